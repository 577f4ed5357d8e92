"""Manifests from outside: the result that each one's header names, the arithmetic in it, and a golden file.

`python -m tests.unit.claim_mutator.test_corpus` writes the golden files anew; read the difference before you
keep it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from claim_mutator import pod
from claim_mutator.container import Percent, Rules, read
from claim_mutator.conversion import convert
from claim_mutator.refusal import Refused
from claim_mutator.template import Cluster

MANIFESTS = Path(__file__).parents[2] / "corpus" / "manifests"
GOLDEN = Path(__file__).parent / "golden"
CLUSTER = Cluster(card_sizes=(24 << 30, 80 << 30))
WORKLOADS = {"Pod", "Deployment", "StatefulSet", "Job"}
"""Kinds whose Pods are plain to see; those of other kinds are made by operators."""

_ARITHMETIC = re.compile(
    r"#   (?P<kind>\w+)/(?P<name>[\w-]+) (?P<container>[\w-]+) \[\w+\]: "
    r"(?:none|gpus=(?P<gpus>\d+) mem=(?P<memory>\d+)(?P<unit>%| MiB) cores=(?P<cores>\w+))$"
)


def manifests() -> list[Path]:
    return sorted(path for path in MANIFESTS.glob("*.yaml") if not path.name.startswith("052-"))


def templates(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """`Kind/name` and the Pod, or Pod template, of each document that has one."""
    found = []
    for document in yaml.safe_load_all(path.read_text()):
        if document and document["kind"] in WORKLOADS:
            template = document if document["kind"] == "Pod" else document["spec"]["template"]
            found.append((f"{document['kind']}/{document['metadata']['name']}", template))
    return found


def outcome(path: Path) -> list[dict[str, Any]]:
    """What becomes of each document."""
    found: list[dict[str, Any]] = []
    for name, template in templates(path):
        try:
            conversion = convert(pod.from_manifest(template), Rules(), CLUSTER)
        except Refused as refused:
            found.append({"object": name, "refused": [problem.text for problem in refused.problems]})
            continue
        found.append(
            {
                "object": name,
                "patch": list(conversion.operations),
                "template": conversion.template and conversion.template.document(""),
                "warnings": list(conversion.warnings),
            }
        )
    return found


def expectation(path: Path) -> str:
    match = re.search(r"^# expect: (\S+)", path.read_text(), re.MULTILINE)
    assert match
    return match[1]


@pytest.mark.parametrize("path", manifests(), ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    assert outcome(path) == json.loads((GOLDEN / f"{path.stem}.json").read_text())


@pytest.mark.parametrize("path", manifests(), ids=lambda path: path.stem)
def test_expected_result(path: Path) -> None:
    expected = expectation(path)
    for each in outcome(path):
        refused, changed, warned = "refused" in each, bool(each.get("patch")), bool(each.get("warnings"))
        if expected in ("REJECT", "API-REJECT", "ALIAS"):  # no alias is configured here
            assert refused, each
        elif expected == "UNCHANGED":
            assert not refused, each
            assert not changed, each
        elif expected == "ACCEPT-WARN":
            assert warned, each
        elif expected in ("ACCEPT", "PENDING", "SCENARIO"):
            assert changed, each
        else:
            assert expected == "ACCEPT-OR-REJECT"


@pytest.mark.parametrize(
    "path", [path for path in manifests() if expectation(path) == "ACCEPT"], ids=lambda path: path.stem
)
def test_arithmetic_of_the_header(path: Path) -> None:
    """The numbers that the corpus computed by itself from HAMi's rules."""
    found: dict[str, str] = {}
    for name, template in templates(path):
        for group, index, container in pod.from_manifest(template).all_containers():
            request = read(group, index, container, Rules()).request
            memory = "100%"
            if request is not None and request.memory is not None:
                percent = isinstance(request.memory, Percent)
                memory = f"{request.memory.value}%" if percent else f"{request.memory} MiB"  # type: ignore[union-attr]
            found[f"{name} {container.name}"] = (
                f"gpus={request.count} mem={memory} cores={request.cores or 'unset'}" if request else "none"
            )
    lines = filter(None, map(_ARITHMETIC.match, path.read_text().splitlines()))
    expected = {
        f"{line['kind']}/{line['name']} {line['container']}": (
            f"gpus={line['gpus']} mem={line['memory']}{line['unit']} cores={line['cores']}"
            if line["gpus"]
            else "none"
        )
        for line in lines
    }
    assert expected
    assert {key: found[key] for key in expected} == expected


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for path in manifests():
        text = json.dumps(outcome(path), indent=1, ensure_ascii=False)
        (GOLDEN / f"{path.stem}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main()

"""Manifests from outside: the result that each one's header names, the arithmetic in it, and a golden file.

REGENERATE_GOLDEN=1 writes the golden files anew; read the difference before you keep it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from claim_mutator import pod, workload
from claim_mutator.cluster import Cluster
from claim_mutator.container import Percent, read
from claim_mutator.conversion import convert
from claim_mutator.names import ResourceNames
from claim_mutator.refusal import Refused
from claim_mutator.rules import Rules
from tests.unit.golden import assert_golden

CORPUS = Path(__file__).parents[2] / "corpus"
GOLDEN = Path(__file__).parent / "golden"
CLUSTER = Cluster(card_sizes=(24 << 30, 80 << 30), most_cards=8)
ALIASES = Rules(ResourceNames(count=("nvidia.com/gpu", "nvidia.com/vgpu", "nvidia.com/gpualloc")))
EXPECTED: dict[str, dict[str, Any]] = json.loads((CORPUS / "expected.json").read_text())

_NOT_YAML = "052-tab-indented-yaml.yaml"
_ARITHMETIC = re.compile(
    r"(?P<kind>\w+)/(?P<name>[\w-]+) (?P<container>[\w-]+) \[\w+\]: "
    r"(?:none|gpus=(?P<gpus>\d+) mem=(?P<memory>\d+)(?P<unit>%| MiB) cores=(?P<cores>\w+))$"
)


def named(*results: str) -> list[str]:
    """Manifests whose header expects one of these results; all, if none is named."""
    return [
        name
        for name, entry in sorted(EXPECTED.items())
        if name != _NOT_YAML and (not results or entry["expect"] in results)
    ]


def templates(name: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """`Kind/name`, a Pod or Pod template, and whether that is what admission would see.

    Of containers that are part of something else an operator makes Pods; here they are read as if they were
    a Pod's.
    """
    for document in yaml.safe_load_all((CORPUS / "manifests" / name).read_text()):
        if not document:
            continue
        title = f"{document['kind']}/{document['metadata']['name']}"
        for pointer in workload.templates(document):
            yield title, workload.at(document, pointer), True
        for pointer in workload.pod_specs(document):
            yield title, {"spec": workload.at(document, pointer)}, not workload.is_accounting(document)


def outcome(name: str, rules: Rules) -> list[dict[str, Any]]:
    """What becomes of each template's Pods."""
    found: list[dict[str, Any]] = []
    for title, template, seen in templates(name):
        if not seen:
            continue
        try:
            conversion = convert(pod.from_manifest(template), rules, CLUSTER)
        except Refused as refused:
            found.append({"object": title, "refused": [problem.text for problem in refused.problems]})
            continue
        found.append(
            {
                "object": title,
                "patch": list(conversion.operations),
                "template": conversion.template and conversion.template.document(""),
                "warnings": list(conversion.warnings),
            }
        )
    return found


def arithmetic(name: str, rules: Rules) -> dict[str, str]:
    """What each container asks for, in the corpus' words."""
    found: dict[str, str] = {}
    for title, template, _ in templates(name):
        for group, index, container in pod.from_manifest(template).all_containers():
            request = read(group, index, container, rules).request
            words = "none"
            if request is not None:
                memory = "100%"
                if isinstance(request.memory, Percent):
                    memory = f"{request.memory.value}%"
                elif request.memory is not None:
                    memory = f"{request.memory} MiB"
                words = f"gpus={request.count} mem={memory} cores={request.cores or 'unset'}"
            found[f"{title} {container.name}"] = words
    return found


def test_every_manifest_is_here() -> None:
    assert set(EXPECTED) == {path.name for path in (CORPUS / "manifests").iterdir()}


def test_headers_and_list_agree() -> None:
    for name, entry in EXPECTED.items():
        match = re.search(r"^# expect: (\S+)", (CORPUS / "manifests" / name).read_text(), re.MULTILINE)
        assert match
        assert match[1] == entry["expect"]


@pytest.mark.parametrize("name", named())
def test_golden(name: str) -> None:
    text = json.dumps(outcome(name, Rules()), indent=1, ensure_ascii=False)
    assert_golden(GOLDEN / f"{Path(name).stem}.json", f"{text}\n")


@pytest.mark.parametrize("name", named("ALIAS"))
def test_golden_with_aliases(name: str) -> None:
    text = json.dumps(outcome(name, ALIASES), indent=1, ensure_ascii=False)
    assert_golden(GOLDEN / f"{Path(name).stem}-alias.json", f"{text}\n")


@pytest.mark.parametrize("name", named("REJECT", "API-REJECT", "ALIAS"))
def test_refused(name: str) -> None:
    """ALIAS: no alias is configured here, and a card more or less would be a surprise."""
    found = outcome(name, Rules())
    assert found
    assert all("refused" in each for each in found)


@pytest.mark.parametrize("name", named("ACCEPT", "ACCEPT-WARN", "PENDING", "SCENARIO"))
def test_accepted(name: str) -> None:
    found = outcome(name, Rules())
    assert found
    assert all(each.get("patch") for each in found)


@pytest.mark.parametrize("name", named("ALIAS"))
def test_accepted_with_aliases(name: str) -> None:
    assert all(each.get("patch") for each in outcome(name, ALIASES))


@pytest.mark.parametrize("name", named("ACCEPT-WARN"))
def test_warned(name: str) -> None:
    assert all(each["warnings"] for each in outcome(name, Rules()))


@pytest.mark.parametrize("name", named("UNCHANGED"))
def test_unchanged(name: str) -> None:
    assert all(each["patch"] == [] for each in outcome(name, Rules()))


@pytest.mark.parametrize("name", named("ACCEPT-OR-REJECT"))
def test_never_silent(name: str) -> None:
    """Honoured to the letter, or a word about it."""
    for each in outcome(name, Rules()):
        honoured = name == "021-numa-bind-two.yaml" and each["template"]
        assert honoured or each.get("refused") or each.get("warnings")


@pytest.mark.parametrize("name", named("ACCEPT", "ACCEPT-WARN", "PENDING", "SCENARIO", "ALIAS", "UNCHANGED"))
def test_arithmetic(name: str) -> None:
    """The numbers that the corpus computed by itself from HAMi's rules."""
    rules = ALIASES if EXPECTED[name]["expect"] == "ALIAS" else Rules()
    found = arithmetic(name, rules)
    lines = [_ARITHMETIC.match(line) for line in EXPECTED[name]["reference"]]
    expected = {
        f"{line['kind']}/{line['name']} {line['container']}": (
            f"gpus={line['gpus']} mem={line['memory']}{line['unit']} cores={line['cores']}"
            if line["gpus"]
            else "none"
        )
        for line in lines
        if line
    }
    assert len(expected) == len(set(EXPECTED[name]["reference"]))
    assert {key: found[key] for key in expected} == expected

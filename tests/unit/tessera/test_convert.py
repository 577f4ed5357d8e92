"""`tessera convert`: documents, warnings, exit statuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from tessera.main import app

CORPUS = Path(__file__).parents[2] / "corpus" / "manifests"


def run(path: Path | str, *flags: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, ["convert", "-f", str(path), *flags], input=text)


def corpus(number: str) -> Path:
    (path,) = CORPUS.glob(f"{number}-*.yaml")
    return path


def documents(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))


def test_pod_and_its_template() -> None:
    template, pod = documents(run(corpus("001")))
    assert template["kind"] == "ResourceClaimTemplate"
    (claim,) = pod["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert pod["spec"]["containers"][0]["resources"] == {"claims": [{"name": "tessera", "request": "g0"}]}


def test_equal_pods_share_a_template() -> None:
    assert [each["kind"] for each in documents(run(corpus("003")))] == ["ResourceClaimTemplate", "Pod", "Pod"]


@pytest.mark.parametrize(
    ("cards", "memories"), [("40Gi", ["12Gi"]), ("24Gi, 80Gi", ["7372Mi", "24Gi"])], ids=["one size", "two"]
)
def test_percentage(cards: str, memories: list[str]) -> None:
    template, _ = documents(run(corpus("051"), "--cards", cards))
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    found = request.get("firstAvailable") or [request["exactly"]]
    assert [each["capacity"]["requests"]["memory"] for each in found] == memories


@pytest.mark.parametrize("number", ["088", "094", "119"])
def test_unchanged_comes_out_as_it_went_in(number: str) -> None:
    result = run(corpus(number))
    assert result.exit_code == 0
    assert result.stdout == corpus(number).read_text()


@pytest.mark.parametrize(
    ("number", "message"),
    [("036", "write 8192"), ("039", "200MB is not a quantity"), ("051", "no card of the cluster is known")],
)
def test_refused(number: str, message: str) -> None:
    result = run(corpus(number))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Refused: ")
    assert message in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "standard input:1:"),
        ("- a", "not an object"),
        (
            "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: d}\nspec: {}",
            "Deployment d: spec.template",
        ),
        ("kind: Pod\nspec: {containers: 5}", "Pod (no name): Expected `array | null`, got `int`"),
        ("\0", "standard input"),
    ],
    ids=["cut", "list", "no template", "wrong type", "NUL"],
)
def test_unreadable(text: str, message: str) -> None:
    result = run("-", text=text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_tabs_are_named_with_line_and_column() -> None:
    result = run(corpus("052"))
    assert result.exit_code == 2
    assert "052-tab-indented-yaml.yaml:18:1:" in result.stderr


def test_missing_file() -> None:
    assert run("/nowhere").exit_code == 2


def test_bad_cards() -> None:
    result = run(corpus("051"), "--cards", "24Gib")
    assert result.exit_code == 2
    assert "--cards: '24Gib' is not a quantity" in result.stderr


def test_misplaced_annotation_is_told() -> None:
    result = run(corpus("113"))
    assert result.exit_code == 0
    assert result.stderr.startswith(
        "Warning: Job job-113: annotation nvidia.com/use-gpuuuid has no effect here"
    )


@pytest.mark.parametrize("kind", ["Deployment", "CronJob", "List"])
def test_kinds(kind: str) -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    template: dict[str, Any] = {"spec": {"containers": [{"name": "c", **limits}]}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **template}
    by_kind: dict[str, dict[str, Any]] = {
        "Deployment": {"apiVersion": "apps/v1", "spec": {"template": template}},
        "CronJob": {"apiVersion": "batch/v1", "spec": {"jobTemplate": {"spec": {"template": template}}}},
        "List": {"apiVersion": "v1", "items": [pod]},
    }
    document = by_kind[kind] | {"kind": kind, "metadata": {"name": "x", "namespace": "team"}}
    found = documents(run("-", text=yaml.safe_dump(document)))
    assert found[0]["kind"] == "ResourceClaimTemplate"
    assert "resourceClaims" in yaml.safe_dump(found[1])
    assert found[0]["metadata"].get("namespace") == ("team" if kind != "List" else None)


def test_ambiguous_strings_stay_strings_for_everybody() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {a: '1e3', b: 'y', c: '2026-01-01'}}\n"
        "spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}\n"
    )
    result = run("-", text=text)
    assert result.exit_code == 0
    for quoted in ("a: '1e3'", "b: 'y'", "c: '2026-01-01'"):
        assert quoted in result.stdout

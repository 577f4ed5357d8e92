"""`tessera convert`: documents, warnings, exit statuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from tessera.main import app

CORPUS = Path(__file__).parents[2] / "corpus" / "manifests"
EXPECTED: dict[str, dict[str, Any]] = json.loads((CORPUS.parent / "expected.json").read_text())


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
    assert f"\nRefused: {corpus(number)}:" in f"\n{result.stderr}"
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
        ("kind: !!bool maybe", "standard input: a value does not fit its tag"),
        ("kind: !!timestamp now", "standard input: a value does not fit its tag"),
    ],
    ids=["cut", "list", "no template", "wrong type", "NUL", "no truth value", "no time"],
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
        f"Warning: {corpus('113')}:13: Job job-113: annotation nvidia.com/use-gpuuuid has no effect here"
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


@pytest.mark.parametrize("number", [path.name[:3] for path in sorted(CORPUS.iterdir())])
def test_the_corpus(number: str) -> None:
    """The result that each header names, as an exit status; and whatever happens, no traceback."""
    expected = EXPECTED[corpus(number).name]["expect"]
    result = run(corpus(number), "--cards", "24Gi,80Gi")
    assert "Traceback" not in result.stderr
    if expected in ("REJECT", "API-REJECT", "ALIAS"):
        assert result.exit_code == (2 if number == "052" else 1)
        assert result.stdout == ""
        assert f"{corpus(number).name}:" in result.stderr
    elif expected == "ACCEPT-OR-REJECT":
        assert result.exit_code in (0, 1)
    else:
        assert result.exit_code == 0
    if expected == "UNCHANGED":
        assert result.stdout == corpus(number).read_text()
    if expected == "ACCEPT-WARN":
        assert result.stderr.startswith("Warning: ")


@pytest.mark.parametrize(
    "number", [name[:3] for name, entry in EXPECTED.items() if entry["expect"] == "ALIAS"]
)
def test_aliases(number: str) -> None:
    names = "resource-count=nvidia.com/gpu,nvidia.com/vgpu,nvidia.com/gpualloc"
    found = documents(run(corpus(number), "--set", names))
    assert found[0]["kind"] == "ResourceClaimTemplate"
    assert "nvidia.com/" not in yaml.safe_dump(found)


REFUSED = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  template:
    metadata:
      annotations:
        nvidia.com/numa-bind: "perhaps"
    spec:
      containers:
        - name: work
          resources:
            limits: &limits
              nvidia.com/gpumem: 3Gi
              nvidia.com/gpu: "1"
            requests: *limits
        - name: other
          resources:
            limits: {nvidia.com/gpucores: 200}
"""


def test_every_reason_has_its_line() -> None:
    result = run("-", text=REFUSED)
    assert result.exit_code == 1
    lines = [line.split(": ")[1] for line in result.stderr.splitlines()]
    assert lines == ["standard input:15", "standard input:20", "standard input:9"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            "kind: Pod\nspec:\n  containers:\n  - name: [1]\n",
            "standard input:4: Pod (no name): Expected `str`",
        ),
        ("kind: Pod\nmetadata:\n  name: p\n  name: q\n", "standard input:4: name is there twice"),
        ("kind: List\nitems:\n- 1\n", "standard input:3: an item of the List is not an object"),
        ("a: &x [*x]\n", "standard input"),
    ],
    ids=["wrong type", "twice", "item", "itself"],
)
def test_what_is_not_readable_has_its_line(text: str, place: str) -> None:
    result = run("-", text=text)
    assert "Traceback" not in result.stderr
    if place != "standard input":
        assert result.exit_code == 2
    assert place in (result.stderr or place)


def test_lines_of_later_documents_and_of_lists() -> None:
    bad = "resources: {limits: {nvidia.com/gpumem: 1Gi}}"
    text = (
        "kind: ConfigMap\n---\n# a Pod\nkind: List\nitems:\n- kind: Pod\n  metadata: {name: p}\n  spec:\n"
        f"    containers:\n    - name: c\n      {bad}\n"
    )
    result = run("-", text=text)
    assert result.stderr.startswith("Refused: standard input:11: Pod p: container 'c'")


CUSTOM = """\
# kept
apiVersion: example.com/v1
kind: Crowd
metadata: {name: crowd, namespace: team}
spec:
  groups:
    - name: a
      template: &template
        spec:
          containers: [{name: c, resources: {limits: {nvidia.com/gpumem: 3000}}}]
    - name: b
      template: *template
---
kind: ConfigMap
apiVersion: v1
metadata: {name: m}   # comments and form stay
data: {a: 22:22}
"""


def test_templates_of_any_kind_are_found_by_their_form() -> None:
    result = run("-", text=CUSTOM)
    template, crowd, _ = documents(result)
    assert template["metadata"]["namespace"] == "team"
    for group in crowd["spec"]["groups"]:
        assert group["template"]["spec"]["resourceClaims"] == [
            {"name": "tessera", "resourceClaimTemplateName": template["metadata"]["name"]}
        ]
    assert "metadata: {name: m}   # comments and form stay" in result.stdout
    assert (
        "standard input:8: Crowd team/crowd: spec.groups.0.template is converted; where Crowd"
        in result.stderr
    )


def test_explained() -> None:
    result = run(corpus("068"), "--explain")
    assert result.exit_code == 0
    assert "Explained: " in result.stderr
    assert "nvidia.com/gpumem: 4000 means 1 card, 4000 MiB, no limit of compute: request g1" in result.stderr
    assert "container 'app' at most memory 4000Mi" in result.stderr
    assert run(corpus("068")).stdout == result.stdout


def test_the_servers_release_decides_the_form() -> None:
    for release, names in (("1.35", ["g0-0", "g0-1"]), ("v1.36.3", ["g0"])):
        template, _ = documents(run(corpus("032"), "--kubernetes", release))
        assert [request["name"] for request in template["spec"]["spec"]["devices"]["requests"]] == names


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--kubernetes", "1.34"), "--kubernetes: 1.34 is no release that works"),
        (("--set", "colour=red"), "--set: colour=red is no flag of tessera-mutator"),
        (("--set", "privileged"), "write NAME=VALUE"),
        (("--set", "privileged=perhaps"), "--set: privileged can't be 'perhaps': write deny or allow"),
        (("--instances", "many"), "--instances: 'many' is not a quantity"),
    ],
)
def test_flags(flags: tuple[str, ...], message: str) -> None:
    result = run(corpus("001"), *flags)
    assert result.exit_code == 2
    assert message in result.stderr


def test_settings() -> None:
    assert run(corpus("074")).exit_code == 1
    result = run(corpus("074"), "--set", "preset-node-name=convert")
    assert "nodeName:" not in result.stdout.partition("kind: Pod")[2]
    assert "matchFields" in result.stdout


def test_instances() -> None:
    template, _ = documents(run(corpus("024"), "--instances", "10Gi,20Gi"))
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert [form["name"] for form in request["firstAvailable"]] == ["m10", "m20"]


def test_namespaces_in_the_file_count() -> None:
    head = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {%s}}\n---\n"
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: team}\nspec:\n  containers:\n"
        "  - {name: c, env: [{name: CUDA_DISABLE_CONTROL, value: 'true'}],"
        " resources: {limits: {nvidia.com/gpumem: 3000}}}\n"
    )
    trusted = run("-", text=head % 'tessera.dev/trusted: "true"' + pod)
    assert "trusted.gpu.tessera.dev" in trusted.stdout
    assert trusted.stderr == ""
    ignored = head % "hami.io/webhook: ignore" + pod
    assert run("-", text=ignored).stdout == ignored
    assert "CUDA_DISABLE_CONTROL=true has no effect" in run("-", text=head % "" + pod).stderr


def test_what_kueue_counts_is_told() -> None:
    result = run(corpus("101"))
    assert result.exit_code == 0
    assert "Job kueue-101: Kueue counts what the file says" in result.stderr


def test_containers_that_are_no_pods_are_judged_and_left() -> None:
    result = run(corpus("056"))
    assert result.stdout == corpus("056").read_text()
    assert "spec.predictor is left as it is" in result.stderr
    refused = corpus("056").read_text().replace("nvidia.com/gpumem: 5000", "nvidia.com/gpumem: 5Gi")
    result = run("-", text=refused)
    assert result.exit_code == 1
    assert (
        "Refused: standard input:32: InferenceService isvc-056: container 'kserve-container'" in result.stderr
    )

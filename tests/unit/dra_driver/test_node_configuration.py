from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cards.capacity import Scales
from dra_driver.cards.rules import CardMatch, Effect, Interposition, MemoryOverflow, Placement, Rules
from dra_driver.configuration.node_configuration import NodeConfigurationError, parse, resolve

HEAD = "apiVersion: gpu.tessera.dev/v1alpha1\nkind: NodeConfiguration\n"
DEFAULTS = Rules(Scales(10, Fraction(1), Fraction(1)), interposition=Interposition.SHIM)
FULL = """\
splitCount: 4
memoryScaling: 1.1
coreScaling: "2"
reservedMemory: 512Mi
unifiedMemory: 96Gi
excludedCards:
  - uuid: GPU-a
  - index: 0
  - model: Quadro P4*
placement: spread
interposition: preload
taintEffects:
  gpu.tessera.dev/xid: NoExecute
  gpu.tessera.dev/lost: None
"""
LAYERS = """\
splitCount: 2
taintEffects: {gpu.tessera.dev/xid: NoExecute, gpu.tessera.dev/lost: NoSchedule}
excludedCards: [{index: 1}]
overrides:
  - nodes: {glob: "a-*"}
    splitCount: 3
    placement: spread
  - nodes: {name: a-1}
    splitCount: 4
    excludedCards: []
    taintEffects: {gpu.tessera.dev/xid: None}
  - nodes: {glob: "a-*", labelSelector: {matchLabels: {pool: big}}}
    splitCount: 5
  - nodes: {name: z}
    splitCount: 6
"""


def rules(text: str, name: str = "a-1", **labels: str) -> Rules:
    return resolve(parse((HEAD + text).encode(), "f"), name, labels, DEFAULTS).rules


def mistakes(text: str) -> list[str]:
    with pytest.raises(NodeConfigurationError) as caught:
        parse(text.encode(), "/etc/f.yaml")
    return str(caught.value).splitlines()


def test_every_field() -> None:
    assert rules(FULL) == Rules(
        scales=Scales(4, Fraction("1.1"), Fraction(2), 512 << 20),
        unified_memory=96 << 30,
        excluded=(CardMatch(uuid="GPU-a"), CardMatch(index=0), CardMatch(model="Quadro P4*")),
        placement=Placement.SPREAD,
        taint_effects={"gpu.tessera.dev/xid": Effect.NO_EXECUTE, "gpu.tessera.dev/lost": Effect.NONE},
    )


def test_what_is_left_out_is_the_settings() -> None:
    assert rules("") == DEFAULTS
    assert rules("splitCount: null\nexcludedCards: ~\n") == DEFAULTS


@pytest.mark.parametrize(
    ("name", "labels", "split", "applied"),
    [
        pytest.param("b-1", {}, 2, (), id="none"),
        pytest.param("a-2", {}, 3, (0,), id="glob"),
        pytest.param("a-1", {}, 4, (0, 1), id="name-below-glob"),
        pytest.param("a-1", {"pool": "big"}, 5, (0, 1, 2), id="labels-below-name"),
        pytest.param("b-1", {"pool": "big"}, 2, (), id="all-of-nodes-must-match"),
    ],
)
def test_the_later_override_wins(
    name: str, labels: dict[str, str], split: int, applied: tuple[int, ...]
) -> None:
    found = resolve(parse((HEAD + LAYERS).encode(), "f"), name, labels, DEFAULTS)
    assert (found.rules.scales.split_count, found.applied) == (split, applied)


def test_memory_overflow() -> None:
    assert rules("memoryOverflow: refuse\n").memory_overflow is MemoryOverflow.REFUSE
    assert rules("splitCount: 3\n").memory_overflow is MemoryOverflow.SPILL
    (mistake,) = mistakes(f"{HEAD}memoryOverflow: managed\n")
    assert mistake == "/etc/f.yaml: memoryOverflow: can't be 'managed': write one of 'refuse', 'spill'"


def test_interposition() -> None:
    assert (
        rules("interposition: preload\noverrides: [{nodes: {name: a-1}, interposition: shim}]\n") == DEFAULTS
    )
    assert rules("interposition: preload\n").interposition is Interposition.PRELOAD
    (mistake,) = mistakes(f"{HEAD}interposition: hook\n")
    assert mistake == "/etc/f.yaml: interposition: can't be 'hook': write one of 'preload', 'shim'"


def test_lists_replace_and_taint_effects_add_up() -> None:
    found = rules(LAYERS)
    assert found.excluded == ()
    assert found.placement is Placement.SPREAD
    assert found.taint_effects == {
        "gpu.tessera.dev/xid": Effect.NONE,
        "gpu.tessera.dev/lost": Effect.NO_SCHEDULE,
    }


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        pytest.param("matchLabels: {a: b}", {"a": "b", "c": "d"}, True, id="label"),
        pytest.param("matchLabels: {a: b, c: e}", {"a": "b", "c": "d"}, False, id="all-labels"),
        pytest.param("matchExpressions: [{key: a, operator: In, values: [x, b]}]", {"a": "b"}, True, id="in"),
        pytest.param("matchExpressions: [{key: a, operator: In, values: [x]}]", {}, False, id="in-absent"),
        pytest.param(
            "matchExpressions: [{key: a, operator: NotIn, values: [b]}]", {"a": "b"}, False, id="not-in"
        ),
        pytest.param(
            "matchExpressions: [{key: a, operator: NotIn, values: [b]}]", {}, True, id="not-in-absent"
        ),
        pytest.param("matchExpressions: [{key: a, operator: Exists}]", {"a": ""}, True, id="exists"),
        pytest.param("matchExpressions: [{key: a, operator: DoesNotExist}]", {"a": ""}, False, id="absent"),
    ],
)
def test_label_selectors(selector: str, labels: dict[str, str], matches: bool) -> None:
    text = f"overrides:\n  - nodes:\n      labelSelector: {{{selector}}}\n    splitCount: 3\n"
    assert (rules(text, **labels).scales.split_count == 3) == matches


def test_labels_are_needed_only_where_they_decide() -> None:
    assert parse((HEAD + LAYERS).encode(), "f").needs_labels
    assert not parse((HEAD + FULL).encode(), "f").needs_labels
    assert not parse((HEAD + "overrides: [{nodes: {name: a}}]").encode(), "f").needs_labels


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "splitCount: 0", "splitCount: can't be 0: write a whole number from 1 to 1000", id="zero"
        ),
        pytest.param('splitCount: "10"', "splitCount: can't be '10': write a whole number", id="a-text"),
        pytest.param("splitCount: true", "splitCount: can't be True: write a whole number", id="a-truth"),
        pytest.param("splitCount: 2.0", "splitCount: can't be 2.0: write a whole number", id="a-fraction"),
        pytest.param("splitCounts: 2", "splitCounts: there is no such field: write splitCount", id="typo"),
        pytest.param("zzz: 2", "zzz: there is no such field: leave it out", id="unknown"),
        pytest.param(
            "memoryScaling: 0",
            "memoryScaling: can't be 0: write a number from 0.01 to 100, such as 1.5",
            id="no-memory",
        ),
        pytest.param("memoryScaling: .inf", "memoryScaling: can't be inf: write a number", id="infinite"),
        pytest.param("coreScaling: 1e9", "coreScaling: can't be '1e9': write a number", id="too-much"),
        pytest.param("coreScaling: []", "coreScaling: can't be []: write a number", id="a-list"),
        pytest.param(
            "reservedMemory: -1Gi", "reservedMemory: can't be '-1Gi': write a whole number of bytes", id="neg"
        ),
        pytest.param(
            "reservedMemory: 1GB", "reservedMemory: can't be '1GB': '1GB' is not a quantity", id="unit"
        ),
        pytest.param("reservedMemory: 0.5", "reservedMemory: can't be 0.5: write a whole number", id="float"),
        pytest.param(
            "unifiedMemory: 0", "unifiedMemory: can't be 0 bytes: write at least 1Mi", id="no-memory-at-all"
        ),
        pytest.param(
            "placement: pack", "placement: can't be 'pack': write one of 'binpack', 'spread'", id="placement"
        ),
        pytest.param(
            "taintEffects: {gpu.tessera.dev/hot: None}",
            "taintEffects: there is no taint 'gpu.tessera.dev/hot': write one of gpu.tessera.dev/device-",
            id="taint-key",
        ),
        pytest.param(
            "taintEffects: {gpu.tessera.dev/xid: Evict}",
            "taintEffects: gpu.tessera.dev/xid can't be 'Evict': write one of None, NoSchedule, NoExecute",
            id="taint-effect",
        ),
        pytest.param(
            "taintEffects: NoExecute", "taintEffects: can't be 'NoExecute': write taint keys", id="taints"
        ),
        pytest.param(
            "excludedCards: [{index: 1, uuid: GPU-a}]",
            "excludedCards[0]: write exactly one of uuid, index and model",
            id="two-of-three",
        ),
        pytest.param(
            "excludedCards: [{}]", "excludedCards[0]: write exactly one of uuid, index", id="none-of-three"
        ),
        pytest.param(
            "excludedCards: {index: 1}", "excludedCards: can't be {'index': 1}: write a list", id="no-list"
        ),
        pytest.param(
            "excludedCards: [GPU-a]", "excludedCards[0]: can't be 'GPU-a': write fields with", id="no-fields"
        ),
        pytest.param(
            "overrides: [{splitCount: 2}]", "overrides[0].nodes: is missing: write it", id="no-nodes"
        ),
        pytest.param(
            "overrides: [{nodes: {}}]", "overrides[0].nodes: chooses no nodes: write name, glob", id="nobody"
        ),
        pytest.param(
            "overrides: [{nodes: {labelSelector: {}}}]",
            "overrides[0].nodes.labelSelector: is empty: write matchLabels",
            id="empty-selector",
        ),
        pytest.param(
            "overrides: [{nodes: {name: a}}, {nodes: {name: a}, splitCount: 1001}]",
            "overrides[1].splitCount: can't be 1001: write a whole number",
            id="path-into-overrides",
        ),
        pytest.param(
            "overrides: [{nodes: {labelSelector: {matchExpressions: [{key: a, operator: In}]}}}]",
            "overrides[0].nodes.labelSelector.matchExpressions[0]: In with values []: write no values with",
            id="in-nothing",
        ),
        pytest.param(
            "splitCount: 2\nsplitCount: 3", "is not YAML: key 'splitCount' is there twice", id="twice"
        ),
        pytest.param("a: [", "is not YAML: while parsing", id="no-yaml"),
    ],
)
def test_a_mistake_says_what_to_write(text: str, expected: str) -> None:
    (line,) = mistakes(HEAD + text)
    assert line.startswith(f"/etc/f.yaml: {expected}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "is empty: begin it with apiVersion: gpu.tessera.dev/v1alpha1", id="empty"),
        pytest.param("- a", "is a list, not a mapping: begin it with", id="a-list"),
        pytest.param(
            "apiVersion: gpu.tessera.dev/v2\nkind: NodeConfiguration",
            "apiVersion 'gpu.tessera.dev/v2', kind 'NodeConfiguration' is not known here: write apiVersion:",
            id="another-version",
        ),
        pytest.param("splitCount: 2", "apiVersion None, kind None is not known here", id="no-kind"),
        pytest.param("\x00", "is not YAML: ", id="binary"),
        pytest.param("[" * 5000, "is not YAML: ", id="deep"),
        pytest.param("splitCount: !!bool maybe", "is not YAML: a value does not fit its tag", id="no-bool"),
        pytest.param("splitCount: !!int ''", "is not YAML: a value does not fit its tag", id="no-int"),
        pytest.param("splitCount: !!timestamp x", "is not YAML: a value does not fit its tag", id="no-time"),
    ],
)
def test_what_is_no_node_configuration(text: str, expected: str) -> None:
    (line,) = mistakes(text)
    assert line.startswith(f"/etc/f.yaml: {expected}")


def test_all_mistakes_at_once() -> None:
    assert len(mistakes(HEAD + "splitCount: 0\nplacement: x\noverrides: [{nodes: {}}]\n")) == 3


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: (HEAD + text).encode()))
def test_anything_is_understood_or_refused_in_words(content: bytes) -> None:
    try:
        parse(content, "f")
    except NodeConfigurationError as error:
        assert all(line.startswith("f: ") for line in str(error).splitlines())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    [
        "splitCount",
        "memoryScaling",
        "reservedMemory",
        "excludedCards",
        "placement",
        "taintEffects",
        "overrides",
    ]
)


@given(st.dictionaries(names, values))
def test_any_value_is_understood_or_refused_in_words(fields: dict[str, object]) -> None:
    text = json.dumps(
        {"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "NodeConfiguration", **fields}
    )  # JSON is YAML
    try:
        parse(text.encode(), "f")
    except NodeConfigurationError as error:
        assert str(error).startswith("f: ")

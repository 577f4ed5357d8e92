"""HAMi's annotations → CEL, refusals, warnings."""

from __future__ import annotations

import pytest

from claim_mutator import metadata, selection
from tests.unit.claim_mutator import cel

UUID = 'device.attributes["gpu.tessera.dev"].uuid'
PRODUCT = 'device.attributes["gpu.tessera.dev"].productName'
SHOWN = f'("nvidia-" + {PRODUCT}.lowerAscii())'


@pytest.mark.parametrize(
    ("key", "value", "expressions"),
    [
        pytest.param("use-gpuuuid", "GPU-1", [f'has({UUID}) && {UUID} in ["GPU-1"]'], id="one uuid"),
        pytest.param(
            "use-gpuuuid",
            " GPU-1, GPU-2,",
            [f'has({UUID}) && {UUID} in ["GPU-1", "GPU-2"]'],
            id="list, trimmed",
        ),
        pytest.param(
            "nouse-gpuuuid", "GPU-1", [f'!(has({UUID}) && {UUID} in ["GPU-1"])'], id="not this uuid"
        ),
        pytest.param("use-gputype", "A100", [f'has({PRODUCT}) && ({SHOWN}.contains("a100"))'], id="type"),
        pytest.param(
            "use-gputype",
            "A10,NVIDIA-NVIDIA L4",
            [f'has({PRODUCT}) && ({SHOWN}.contains("a10") || {SHOWN}.contains("nvidia-nvidia l4"))'],
            id="types as HAMi shows them",
        ),
        pytest.param(
            "nouse-gputype", "1080", [f'!(has({PRODUCT}) && ({SHOWN}.contains("1080")))'], id="not this type"
        ),
        pytest.param("use-gpuuuid", " , ", [], id="empty: no constraint"),
        pytest.param(
            "use-gpuuuid",
            'x"] || true || "',
            [f'has({UUID}) && {UUID} in ["x\\"] || true || \\""]'],
            id="quoted",
        ),
    ],
)
def test_expressions(key: str, value: str, expressions: list[str]) -> None:
    found = selection.read({f"nvidia.com/{key}": value})
    assert list(found.selectors) == expressions
    assert found.problems == ()


def test_all_hold_together() -> None:
    annotations = {metadata.USE_UUID: "a", metadata.NO_USE_UUID: "b", metadata.USE_TYPE: "c"}
    assert len(selection.read(annotations).selectors) == 3


@pytest.mark.parametrize(
    ("mode", "cards", "instances"),
    [
        ("", True, False),
        (" ", True, False),
        ("hami-core", True, False),
        ("mig", False, True),
        ("mig,hami-core", True, True),
    ],
    ids=repr,
)
def test_modes(mode: str, cards: bool, instances: bool) -> None:
    found = selection.read({metadata.MODE: mode})
    assert (found.cards, found.instances, found.problems) == (cards, instances, ())


def test_an_instance_is_meant_by_its_cards_uuid_too() -> None:
    annotations = {metadata.MODE: "mig", metadata.USE_UUID: "GPU-1"}
    (expression,) = selection.read(annotations).selectors
    assert cel.holds(expression, {"uuid": "MIG-9", "parentUUID": "GPU-1"})
    assert cel.holds(expression, {"uuid": "GPU-1"})
    assert not cel.holds(expression, {"uuid": "MIG-9"})
    assert not cel.holds(expression, {})
    (expression,) = selection.read({metadata.MODE: "mig", metadata.NO_USE_UUID: "GPU-1"}).selectors
    assert not cel.holds(expression, {"uuid": "MIG-9", "parentUUID": "GPU-1"})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (metadata.MODE, "mps", "write hami-core or mig"),
        (metadata.USE_UUID, ",".join(["GPU-" + "0" * 32] * 400), "list fewer cards"),
    ],
    ids=["vgpu-mode mps", "too long"],
)
def test_refused(key: str, value: str, message: str) -> None:
    (problem,) = selection.read({key: value}).problems
    assert problem.text.startswith(f"annotation {key}: ")
    assert message in problem.text

"""HAMi's annotations → CEL, refusals, warnings."""

from __future__ import annotations

import pytest

from claim_mutator import selection
from claim_mutator.names import ResourceNames

NAMES = ResourceNames()
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
    found = selection.read({f"nvidia.com/{key}": value}, NAMES)
    assert list(found.selectors) == expressions
    assert (found.problems, found.warnings) == ((), ())


def test_all_hold_together() -> None:
    annotations = {selection.USE_UUID: "a", selection.NO_USE_UUID: "b", selection.USE_TYPE: "c"}
    assert len(selection.read(annotations, NAMES).selectors) == 3


@pytest.mark.parametrize(
    ("value", "binds"), [("true", True), ("1", True), ("T", True), ("false", False), ("", False)], ids=repr
)
def test_numa_bind(value: str, binds: bool) -> None:
    assert selection.read({selection.NUMA_BIND: value}, NAMES).same_numa_node is binds


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (selection.NUMA_BIND, "yes", "write true or false"),
        (selection.MODE, "mig", "write hami-core"),
        (selection.USE_UUID, ",".join(["GPU-" + "0" * 32] * 400), "list fewer cards"),
    ],
    ids=["numa-bind yes", "vgpu-mode mig", "too long"],
)
def test_refused(key: str, value: str, message: str) -> None:
    (problem,) = selection.read({key: value}, NAMES).problems
    assert problem.text.startswith(f"annotation {key}: ")
    assert message in problem.text


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("hami.io/gpu-scheduler-policy", "no effect"),
        ("hami.io/node-scheduler-policy", "affinity"),
        ("hami.io/device-scoring-weights", "no effect"),
        ("nvidia.com/gpumem", "write nvidia.com/gpumem: x into resources.limits"),
    ],
)
def test_warned(key: str, message: str) -> None:
    (warning,) = selection.read({key: "x"}, NAMES).warnings
    assert message in warning


def test_vgpu_mode_that_is_offered() -> None:
    assert selection.read({selection.MODE: "mig,hami-core"}, NAMES) == selection.Selection()

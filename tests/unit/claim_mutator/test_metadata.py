"""Annotations and labels: known, misspelt, in the wrong place, left over."""

from __future__ import annotations

import pytest

from claim_mutator import metadata, pod
from claim_mutator.names import ResourceNames


def notices(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None) -> list[str]:
    found = pod.from_manifest({"metadata": {"annotations": annotations, "labels": labels}, "spec": {}})
    return [notice.text for notice in metadata.notices(found, ResourceNames())]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("nvidia.com/gpumem", "write nvidia.com/gpumem: x into resources.limits"),
        ("nvidia.com/gpu-mem", "write nvidia.com/gpumem into resources.limits"),
        ("nvidia.com/gpucore", "write nvidia.com/gpucores into resources.limits"),
        ("hami.io/gpu-core", "write nvidia.com/gpucores into resources.limits"),
        ("hami.io/gpumem", "write nvidia.com/gpumem into resources.limits"),
        ("nvidia.com/use-gpu-uuid", "write nvidia.com/use-gpuuuid"),
        ("nvidia.com/use-gputypes", "write nvidia.com/use-gputype"),
        ("nvidia.com/no-use-gputype", "write nvidia.com/nouse-gputype"),
        ("hami.io/use-gputype", "write nvidia.com/use-gputype"),
        ("nvidia.com/numabind", "write nvidia.com/numa-bind"),
        ("hami.io/gpu-schedule-policy", "write hami.io/gpu-scheduler-policy"),
        ("nvidia.com/gpu-scheduler-policy", "write hami.io/gpu-scheduler-policy"),
        ("nvidia.com/mig-profile-preference", "the smallest MIG instance that has the memory"),
        ("hami.io/vulkan", "Vulkan is not limited"),
        ("hami.io/webhook", "write hami.io/webhook: x into metadata.labels"),
    ],
)
def test_told(key: str, message: str) -> None:
    (text,) = notices({key: "x"})
    assert text.startswith(f"annotation {key}")
    assert message in text


@pytest.mark.parametrize(
    "key",
    [*metadata.KNOWN, "nvidia.com/gpu.product", "nvidia.com/vcuda-core-limit", "hami.io/node-lock",
     "example.com/use-gpuuuid", "gpu-memory", "nvidia.com/cuda.driver.major"],
)  # fmt: skip
def test_in_order_or_somebody_elses(key: str) -> None:
    assert notices({key: "x"}) == []


def test_an_annotation_that_is_a_label() -> None:
    (text,) = notices(labels={"nvidia.com/use-gputype": "A100"})
    assert text == "label nvidia.com/use-gputype has no effect: write it into metadata.annotations"


@pytest.mark.parametrize(
    "key",
    ["hami.io/vgpu-node", "hami.io/vgpu-time", "hami.io/bind-time", "hami.io/bind-phase",
     "hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate", "hami.io/vgpu-mig-allocations",
     "hami.io/dcu-devices-allocated"],
)  # fmt: skip
def test_left_over_by_hami(key: str) -> None:
    assert metadata.stale({key: "x", "hami.io/gpu-scheduler-policy": "binpack"}) == [key]
    (text,) = notices({key: "x"}, {"hami.io/vgpu-node": "a"})
    assert text.startswith(key)
    assert "HAMi wrote it for another Pod" in text

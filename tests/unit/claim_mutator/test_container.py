"""HAMi's edge cases (v2.10): what a container's limits mean."""

from __future__ import annotations

import re
from typing import Any

import pytest

from claim_mutator.container import Percent, Request
from claim_mutator.names import ResourceNames
from claim_mutator.rules import Rules
from tests.unit.claim_mutator.pods import container, limits, manifest, reading

ALONE = Request(1, None, 100)


@pytest.mark.parametrize(
    ("quantities", "request_"),
    [
        pytest.param({"gpu": 1}, ALONE, id="count only: the card alone"),
        pytest.param({"gpu": 2}, Request(2, None, 100), id="two cards alone"),
        pytest.param({"gpu": "1", "gpumem": "3000", "gpucores": "30"}, Request(1, 3000, 30), id="all three"),
        pytest.param({"gpumem": 3000}, Request(1, 3000, 0), id="memory without count"),
        pytest.param({"gpucores": 30}, Request(1, None, 30), id="cores without count: whole memory"),
        pytest.param({"gpumem_percentage": 50}, Request(1, Percent(50), 0), id="percentage without count"),
        pytest.param({"gpu": 1, "gpumem": 3000}, Request(1, 3000, 0), id="memory without cores: no limit"),
        pytest.param({"gpu": 1, "gpucores": 50}, Request(1, None, 50), id="count and cores"),
        pytest.param({"gpu": 1, "gpumem_percentage": 100}, ALONE, id="percentage 100: the card alone"),
        pytest.param(
            {"gpu": 1, "gpumem_percentage": 100, "gpucores": 30}, Request(1, None, 30), id="100 % and cores"
        ),
        pytest.param(
            {"gpu": 1, "gpumem_percentage": 0}, Request(1, None, 0), id="percentage 0: whole, no cores"
        ),
        pytest.param({"gpu": 1, "gpumem": 0}, Request(1, None, 0), id="memory 0: whole, no cores"),
        pytest.param(
            {"gpu": 1, "gpumem": 0, "gpumem_percentage": 50},
            Request(1, Percent(50), 0),
            id="memory 0 and 50 %",
        ),
        pytest.param(
            {"gpu": 1, "gpumem": 3000, "gpumem_percentage": 50}, Request(1, 3000, 0), id="both: memory counts"
        ),
        pytest.param(
            {"gpu": 1, "gpumem": 3000, "gpumem_percentage": 100}, Request(1, 3000, 100), id="both, with 100 %"
        ),
        pytest.param({"gpu": 1, "gpucores": 0}, Request(1, None, 0), id="cores 0 said: no default of 100"),
        pytest.param({"gpu": 1, "gpumem": 100, "gpucores": 100}, Request(1, 100, 100), id="cores 100"),
        pytest.param({"gpu": 1, "gpumem": "5k"}, Request(1, 5000, 0), id="5k"),
        pytest.param({"gpu": 1, "gpumem": "81k"}, Request(1, 81000, 0), id="81k"),
        pytest.param({"gpu": 1, "gpumem": "1M"}, Request(1, 1_000_000, 0), id="1M"),
        pytest.param({"gpu": 1, "gpumem": "1e3"}, Request(1, 1000, 0), id="1e3"),
        pytest.param({"gpu": 1, "gpumem": "3000000m"}, Request(1, 3000, 0), id="milli, but whole"),
        pytest.param({"gpu": 0}, None, id="count 0"),
        pytest.param({"gpu": 0, "gpumem": 0}, None, id="count 0, memory 0"),
        pytest.param({"priority": 1}, None, id="priority only"),
        pytest.param({"cpu": 1}, None, id="no GPU"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_meaning(quantities: dict[str, Any], request_: Request | None) -> None:
    found = reading(manifest(container(**quantities)))
    assert found.problems == ()
    assert found.request == request_


@pytest.mark.parametrize(
    ("quantities", "message"),
    [
        pytest.param({"gpu": 1, "gpumem": "3Gi"}, "gpumem: 3Gi .*MiB: write 3072", id="3Gi"),
        pytest.param({"gpu": 1, "gpumem": "16Gi"}, "write 16384", id="16Gi"),
        pytest.param({"gpu": 1, "gpumem": "4096Mi"}, "write 4096", id="4096Mi"),
        pytest.param({"gpu": 1, "gpumem": "1Ki"}, "write 1$", id="1Ki"),
        pytest.param({"gpu": 1, "gpumem": 4294967296}, "write 4096", id="bytes"),
        pytest.param({"gpu": 1, "gpumem": "8G"}, "for 8 GiB write 8192", id="8G"),
        pytest.param({"gpu": 1, "gpumem": "3000M"}, "write 3000", id="3000M"),
        pytest.param({"gpu": 1, "gpumem": "9E"}, "write at most", id="9E"),
        pytest.param({"gpu": 1, "gpumem": -1}, "negative", id="memory -1"),
        pytest.param({"gpu": 1, "gpumem": "1500m"}, "not a whole number of MiB: write 2", id="1500m"),
        pytest.param({"gpu": 1, "gpumem": 0.5}, "not a whole number", id="0.5"),
        pytest.param({"gpu": 1, "gpumem": "200MB"}, "200MB is not a quantity", id="200MB"),
        pytest.param({"gpu": 1, "gpumem_percentage": 101}, "out of range.*0 to 100", id="101 %"),
        pytest.param({"gpu": 1, "gpumem_percentage": -1}, "negative", id="-1 %"),
        pytest.param({"gpu": 1, "gpucores": 101}, "out of range.*0 to 100", id="cores 101"),
        pytest.param({"gpu": 1, "gpucores": "0.3"}, "not a whole number.*write 1", id="cores 0.3"),
        pytest.param({"gpu": "500m"}, "not a whole number of cards: write 1", id="half a card"),
        pytest.param({"gpu": 33}, "at most 32", id="33 cards"),
        pytest.param({"gpu": 1, "priority": 5}, "write 0 .high. or 1 .low.", id="priority 5"),
        pytest.param(
            {"gpu": 0, "gpumem": 5000}, "no card, beside nvidia.com/gpumem: write 1", id="0 and memory"
        ),
        pytest.param({"gpu": 1, "nvidia.com/vgpu": 8}, "write nvidia.com/gpu$", id="vgpu"),
        pytest.param(
            {"gpumem": 1, "nvidia.com/gpualloc": 1}, "gpualloc: 1 is not a name.*write", id="gpualloc"
        ),
        pytest.param(
            {"gpu": 1, "nvidia.com/gputypeage": 50}, "write nvidia.com/gpumem-percentage", id="gputypeage"
        ),
        pytest.param(
            {"gpu": 1, "nvidia.com/gpumem\N{MINUS SIGN}percentage": 5},
            "write nvidia.com/gpumem-percentage",
            id="U+2212",
        ),
        pytest.param({"gpu": 1, "nvidia.com/GPUMem": 50}, "write nvidia.com/gpumem$", id="case"),
        pytest.param({"nvidia.com/gpumemory": 50}, "write nvidia.com/gpumem$", id="gpumemory alone"),
        pytest.param({"gpu": 1, "nvidia.com/prioritiy": 0}, "write nvidia.com/priority", id="prioritiy"),
    ],
)
def test_refused(quantities: dict[str, Any], message: str) -> None:
    found = reading(manifest(container(**quantities)))
    assert found.request is None
    (problem,) = found.problems
    assert problem.text.startswith("container 'work', limits: nvidia.com/")
    assert problem.pointer[:5] == ("spec", "containers", 0, "resources", "limits")
    assert re.search(message, problem.text), problem.text


@pytest.mark.parametrize(
    "key",
    ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "hami.nvidia.com/gpu", "volcano.sh/vgpu-memory",
     "nvidia.com/GA102GL_A10", "amd.com/gpu", "nvidia.com/hostdev", "tencent.com/vcuda-core"],
)  # fmt: skip
def test_somebody_elses_resources_are_left_alone(key: str) -> None:
    found = reading(manifest(container(**{key: 1})))
    assert (found.request, found.problems, found.keys) == (None, (), ())


def test_all_mistakes_at_once() -> None:
    found = reading(manifest(container(gpu=-1, gpumem="3Gi", gpucores=200, priority=7)))
    assert len(found.problems) == 4


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ({"gpu": 0, "gpumem": 3000}, "requests: nvidia.com/gpu: 0 differs from the limit 4"),
        ({"gpu": 4, "gpumem": 3000, "gpucores": 5}, "requests: nvidia.com/gpucores: 5 is in requests only"),
    ],
    ids=["differs", "in requests only"],
)
def test_requests_must_follow_limits(requests: dict[str, Any], message: str) -> None:
    document = manifest(container(gpu=4, gpumem=3000))
    document["spec"]["containers"][0]["resources"]["requests"] = limits(**requests)
    (problem,) = reading(document).problems
    assert message in problem.text


def test_requests_may_be_written_otherwise() -> None:
    document = manifest(container(gpu=1, gpumem="3k"))
    document["spec"]["containers"][0]["resources"]["requests"] = limits(gpu="1", gpumem=3000)
    assert reading(document).problems == ()


def test_where_ours_is_called_vgpu_gpu_is_the_device_plugins() -> None:
    """Beside a share of ours it can only be a slip."""
    rules = Rules(ResourceNames(count=("nvidia.com/vgpu",)))
    found = reading(manifest(container(gpu=1, cpu="1")), rules)
    assert (found.request, found.problems, found.keys) == (None, (), ())
    (problem,) = reading(manifest(container(gpu=1, gpumem=3000)), rules).problems
    assert problem.text.endswith("nvidia.com/gpu: 1 is not a name that is known here: write nvidia.com/vgpu")


def test_renamed_and_aliased() -> None:
    rules = Rules(
        ResourceNames(count=("example.com/vgpu", "nvidia.com/vgpu"), memory=("example.com/mem",)), 1
    )
    resources = {"example.com/vgpu": 2, "example.com/mem": 1000, "nvidia.com/gpucores": 30}
    assert reading(manifest(container(**resources)), rules).request == Request(2, 1000, 30)
    assert reading(manifest(container(**{"nvidia.com/vgpu": 1})), rules).request == ALONE
    (problem,) = reading(manifest(container(**{"nvidia.com/vgpu": 1, "example.com/vgpu": 1})), rules).problems
    assert "means the same as example.com/vgpu" in problem.text


def test_default_count() -> None:
    assert reading(manifest(container(gpumem=1)), Rules(default_count=2)).request == Request(2, 1, 0)


def test_no_default_count() -> None:
    (problem,) = reading(manifest(container(gpumem=1)), Rules(default_count=0)).problems
    assert "nvidia.com/gpumem: 1 names no number of cards: write nvidia.com/gpu: 1 beside it" in problem.text
    assert reading(manifest(container(gpu=1)), Rules(default_count=0)).request == ALONE


@pytest.mark.parametrize(
    ("quantities", "request_"),
    [
        pytest.param({"gpu": 1}, Request(1, 5000, 100), id="cores 100 all the same"),
        pytest.param({"gpucores": 30}, Request(1, 5000, 30), id="cores"),
        pytest.param({"gpu": 1, "gpumem": 0}, Request(1, 5000, 10), id="memory 0"),
        pytest.param({"gpu": 1, "gpumem_percentage": 0}, Request(1, 5000, 10), id="percentage 0"),
        pytest.param({"gpu": 1, "gpumem": 3000}, Request(1, 3000, 10), id="memory"),
        pytest.param({"gpu": 1, "gpumem_percentage": 100}, ALONE, id="percentage 100"),
        pytest.param({"gpu": 1, "gpumem": 3000, "gpucores": 0}, Request(1, 3000, 0), id="no limit of cores"),
    ],
)
def test_default_memory_and_cores(quantities: dict[str, Any], request_: Request) -> None:
    rules = Rules(default_memory=5000, default_cores=10)
    assert reading(manifest(container(**quantities)), rules).request == request_


def test_memory_factor() -> None:
    rules = Rules(memory_factor=1024)
    assert reading(manifest(container(gpumem=24)), rules).request == Request(1, 24 << 10, 0)
    for value, meant in (("24Gi", 24), (24 << 30, 24), ("24G", 24), ("1500Mi", 2)):
        (problem,) = reading(manifest(container(gpumem=value)), rules).problems
        assert "counts units of 1024 MiB" in problem.text
        assert problem.text.endswith(f"write {meant}")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("nvdia.com/gpumem", "nvidia.com/gpumem"),
        ("nvidia.con/gpucores", "nvidia.com/gpucores"),
        ("hami.nvidia.com/gpumem", None),
        ("amd.com/gpumem", None),
    ],
)
def test_a_misspelt_domain_beside_ours(key: str, meant: str | None) -> None:
    found = reading(manifest(container(gpu=1, **{key: 1})))
    assert [problem.text.rpartition("write ")[2] for problem in found.problems] == ([meant] if meant else [])
    assert reading(manifest(container(**{key: 1}))).problems == ()


def test_useless_percentage_is_told() -> None:
    (notice,) = reading(manifest(container(gpu=1, gpumem=3000, gpumem_percentage=50))).notices
    assert "nvidia.com/gpumem-percentage has no effect beside nvidia.com/gpumem" in notice.text

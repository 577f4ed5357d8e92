"""For random Pods: what the converted Pod's claim gives each container is what oracle.py says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claim_mutator import patch
from claim_mutator.cluster import Cluster
from claim_mutator.refusal import Refused
from kube.quantity import parse_quantity
from tests.unit.claim_mutator import cel, oracle
from tests.unit.claim_mutator.oracle import MIB, Refuse, Wish
from tests.unit.claim_mutator.pods import GI, container, converted, manifest

CLUSTERS = {
    "one size": Cluster((40 * GI,)),
    "two sizes": Cluster((24 * GI, 80 * GI)),
    "1.36": Cluster((24 * GI, 80 * GI), (1, 36)),
    "1.35": Cluster((24 * GI, 80 * GI), (1, 35)),
}

amounts = st.one_of(st.integers(0, 20000), st.sampled_from(["3k", "5k", "16k", "3Gi", "x", "-1"]))
quantities = st.fixed_dictionaries(
    {},
    optional={
        "gpu": st.integers(0, 4) | st.sampled_from([8, 33]),
        "gpumem": amounts,
        "gpumem_percentage": st.integers(0, 101) | st.just(100),
        "gpucores": st.sampled_from([0, 0, 10, 30, 50, 99, 100, 101]),
    },
)
sane = st.fixed_dictionaries(
    {"gpu": st.integers(1, 3)},
    optional={
        "gpumem": st.integers(1, 20000),
        "gpumem_percentage": st.integers(1, 100),
        "gpucores": st.sampled_from([0, 10, 30, 50, 100]),
    },
)


@st.composite
def pods(draw: st.DrawFn, limits: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    inits = []
    for number in range(draw(st.integers(0, 4))):
        each = container(f"i{number}", **draw(limits))
        if draw(st.booleans()):
            each["restartPolicy"] = "Always"
        inits.append(each)
    apps = [container(f"a{number}", **draw(limits)) for number in range(draw(st.integers(1, 3)))]
    return manifest(*apps, initContainers=inits)


class Given:
    """What one container has on cards of one size: read from the converted Pod and the template alone."""

    def __init__(self, devices: dict[str, Any], each: dict[str, Any], size: int) -> None:
        names = [claim["request"] for claim in each["resources"].get("claims", ())]
        self.requests = [request for request in devices["requests"] if request["name"] in names]
        assert len(self.requests) == len(names)
        self.names = set(names)
        forms = [_form_for(request, size) for request in self.requests]
        self.count = sum(form["count"] for _, form in forms)
        self.memory: set[int] = set()
        self.cores: set[int] = set()
        self.exclusive = []
        for path, form in forms:
            capacity = form.get("capacity", {}).get("requests", {})
            cap = _cap(devices, path, each["name"])
            held = [int(parse_quantity(where["memory"])) for where in (capacity, cap) if "memory" in where]
            self.memory.add(min([*held, size]) // MIB)
            cores = [int(parse_quantity(where["cores"])) for where in (capacity, cap) if "cores" in where]
            self.cores.add(min(cores, default=0))
            self.exclusive.append(capacity.get("shares") == "1000")


def _form_for(request: dict[str, Any], size: int) -> tuple[str, dict[str, Any]]:
    """The form that a card of this size is given in, and how config refers to it."""
    if "exactly" in request:
        return request["name"], request["exactly"]
    for form in request["firstAvailable"]:
        expressions = [selector["cel"]["expression"] for selector in form.get("selectors", ())]
        if all(cel.holds(text, {}, {"memory": str(size)}) for text in expressions):
            return f"{request['name']}/{form['name']}", form
    raise AssertionError(f"{request} has no form for {size}")


def _cap(devices: dict[str, Any], path: str, name: str) -> dict[str, Any]:
    for config in devices.get("config", ()):
        if path in config["requests"] or path.partition("/")[0] in config["requests"]:
            for cap in config["opaque"]["parameters"].get("caps", ()):
                if cap["container"] == name:
                    return {key: str(value) for key, value in cap.items()}
    return {}


def _containers(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from document["spec"]["initContainers"]
    yield from document["spec"]["containers"]


def _check(document: dict[str, Any], cluster: Cluster) -> None:
    try:
        wishes = [oracle.wish_of(each["resources"]["limits"]) for each in _containers(document)]
    except Refuse:
        with pytest.raises(Refused):
            converted(document, cluster)
        return
    try:
        conversion = converted(document, cluster)
    except Refused as refused:
        assert "cards together" in str(refused) or "entries in the claim" in str(refused)
        return
    after = patch.apply(document, conversion.operations)
    if conversion.template is None:
        assert not any(wishes)
        return
    devices = conversion.template.devices
    apart = [set(each["requests"]) for each in devices.get("constraints", ()) if "distinctAttribute" in each]
    for each, wish in zip(_containers(after), wishes, strict=True):
        if wish is None:
            assert "claims" not in each["resources"]
            continue
        large_enough = [size for size in cluster.card_sizes if wish.memory(size) * MIB <= size]
        for size in large_enough:
            found = Given(devices, each, size)
            assert found.count == wish.count
            _check_amounts(found, wish, size)
            if not wish.cores and each in after["spec"]["containers"]:
                assert found.cores <= {0, 100}  # no limit, also beside an init container that has one
            if wish.count > 1:
                assert found.names in apart
            assert all(found.exclusive) or not wish.exclusive


def _check_amounts(found: Given, wish: Wish, size: int) -> None:
    assert found.memory == {wish.memory(size)}
    if 0 < wish.cores < 100:
        assert found.cores == {wish.cores}
    elif wish.cores == 100:
        assert found.cores == {100}


@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
@given(document=pods(quantities))
def test_anything(cluster: Cluster, document: dict[str, Any]) -> None:
    _check(document, cluster)


@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
@given(document=pods(sane))
def test_pods_that_are_in_order(cluster: Cluster, document: dict[str, Any]) -> None:
    _check(document, cluster)


@given(
    inits=st.lists(st.tuples(st.integers(1, 9000), st.booleans()), max_size=4),
    apps=st.lists(st.integers(1, 9000), min_size=1, max_size=3),
)
def test_peak_of_init_containers_and_sum_of_the_others(
    inits: list[tuple[int, bool]], apps: list[int]
) -> None:
    """One card each, so that the claim's memory is the Pod's: what HAMi reserves (v2.10), sidecars added.

    Where application containers are on different cards, that is. On one card HAMi reserves less, at least
    the peak; a claim is never below it.
    """
    listed = [
        container(f"i{number}", gpumem=memory) | ({"restartPolicy": "Always"} if sidecar else {})
        for number, (memory, sidecar) in enumerate(inits)
    ]
    document = manifest(
        *(container(f"a{number}", gpumem=memory) for number, memory in enumerate(apps)), initContainers=listed
    )
    template = converted(document, CLUSTERS["one size"]).template
    assert template is not None
    held = sum(
        int(parse_quantity(request["exactly"]["capacity"]["requests"]["memory"])) // MIB
        for request in template.devices["requests"]
    )
    peak = max((memory for memory, sidecar in inits if not sidecar), default=0)
    lasting = sum(apps) + sum(memory for memory, sidecar in inits if sidecar)
    assert held == lasting + max(0, peak - max(apps))
    on_one_card = max(sum(apps), peak) + lasting - sum(apps)
    assert held >= on_one_card
    assert held == on_one_card or (len(apps) > 1 and peak > max(apps))


terms = st.sampled_from(
    ["GPU-1", "GPU-2", "A10", "a100", "NVIDIA-NVIDIA L4", "tesla", '"]', " ", "\\", "4090"]
)
lists = st.lists(terms, max_size=3).map(", ".join)
selections = st.fixed_dictionaries(
    {},
    optional={
        f"nvidia.com/{key}": lists for key in ("use-gpuuuid", "nouse-gpuuuid", "use-gputype", "nouse-gputype")
    },
)
cards = st.fixed_dictionaries(
    {},
    optional={
        "uuid": st.sampled_from(["GPU-1", "GPU-2", "GPU-3"]),
        "productName": st.sampled_from(["NVIDIA A10", "NVIDIA A100-SXM4-80GB", "NVIDIA L4", "Tesla T4"]),
        "type": st.sampled_from(["gpu", "mig"]),
    },
)


@given(annotations=selections, attributes=cards)
def test_cards_that_may_be_given(annotations: dict[str, str], attributes: dict[str, str]) -> None:
    """Whatever a device lacks, no expression raises."""
    template = converted(manifest(container(gpu=1), annotations=annotations)).template
    assert template is not None
    (request,) = template.devices["requests"]
    expressions = [selector["cel"]["expression"] for selector in request["exactly"].get("selectors", ())]
    found = all([cel.holds(text, attributes) for text in expressions])  # noqa: C419 - each of them, always
    assert found == oracle.allowed(annotations, attributes.get("uuid"), attributes.get("productName"))

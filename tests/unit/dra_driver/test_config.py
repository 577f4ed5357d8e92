from __future__ import annotations

from typing import Any

import pytest

from dra_driver.cards.capacity import Amounts
from dra_driver.cards.rules import Interposition, MemoryOverflow
from dra_driver.claims.allocation import OpaqueConfig, Result
from dra_driver.claims.config import Terms, terms_of
from dra_driver.claims.share_config import ContainerCap, CorePolicy, Enforcement
from dra_driver.errors import ConfigError
from dra_driver.names import DeviceName
from tests.unit.dra_driver.cards import GIB

HEADER = {"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "ShareConfig"}


def result(request: str = "g0", cores: int = 30) -> Result:
    return Result(request, "node-a", DeviceName("gpu-a"), "share", Amounts(8 * GIB, cores, 100))


def config(
    parameters: dict[str, Any], *requests: str, from_class: bool = False, header: Any = HEADER
) -> OpaqueConfig:
    return OpaqueConfig(from_class, requests, {**header, **parameters}, "config[0].opaque.parameters")


def of_class(**parameters: Any) -> OpaqueConfig:
    return config(parameters, from_class=True)


def of_claim(**parameters: Any) -> OpaqueConfig:
    return config(parameters)


def cap(container: str, memory: int | None = None, cores: int | None = None) -> ContainerCap:
    return ContainerCap(container, memory, cores)


PRELOAD, SHIM = Interposition.PRELOAD, Interposition.SHIM


@pytest.mark.parametrize(
    ("node", "configs", "expected"),
    [
        pytest.param(SHIM, [], SHIM, id="the-nodes"),
        pytest.param(SHIM, [of_class(priority=0), of_claim(corePolicy="force")], SHIM, id="left-out"),
        pytest.param(SHIM, [of_class(interposition="preload")], PRELOAD, id="a-class-may-loosen"),
        pytest.param(PRELOAD, [of_class(interposition="shim")], SHIM, id="a-class"),
        pytest.param(PRELOAD, [of_claim(interposition="shim")], SHIM, id="a-claim-tightens"),
        pytest.param(
            SHIM,
            [of_class(interposition="preload"), of_claim(interposition="shim")],
            SHIM,
            id="a-claim-tightens-the-class",
        ),
        pytest.param(PRELOAD, [of_claim(interposition="preload")], PRELOAD, id="what-holds-anyway"),
    ],
)
def test_interposition(node: Interposition, configs: list[OpaqueConfig], expected: Interposition) -> None:
    assert terms_of(result(), configs, node).interposition is expected


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        pytest.param([], MemoryOverflow.SPILL, id="the-nodes"),
        pytest.param([of_class(memoryOverflow="refuse")], MemoryOverflow.REFUSE, id="a-class"),
        pytest.param([of_claim(memoryOverflow="refuse")], MemoryOverflow.REFUSE, id="a-claim-tightens"),
    ],
)
def test_memory_overflow(configs: list[OpaqueConfig], expected: MemoryOverflow) -> None:
    assert terms_of(result(), configs).memory_overflow is expected


def test_a_claim_spills_nothing_that_is_refused() -> None:
    loose = of_claim(memoryOverflow="spill")
    preload, refuse = Interposition.PRELOAD, MemoryOverflow.REFUSE
    with pytest.raises(ConfigError, match=r"\.memoryOverflow: 'spill' is looser than 'refuse'"):
        terms_of(result(), [loose], preload, refuse)
    of_the_class = of_class(memoryOverflow="spill")
    assert terms_of(result(), [of_the_class, loose], preload, refuse).memory_overflow is MemoryOverflow.SPILL


@pytest.mark.parametrize("configs", [[], [of_class(interposition="shim")]], ids=["node", "class"])
def test_a_claim_takes_no_shim_away(configs: list[OpaqueConfig]) -> None:
    with pytest.raises(ConfigError, match=r"\.interposition: 'preload' is looser than 'shim'"):
        terms_of(result(), [*configs, of_claim(interposition="preload")], SHIM)


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        pytest.param([], Terms(), id="default"),
        pytest.param([of_claim()], Terms(), id="empty"),
        pytest.param(
            [of_class(enforcement="none", corePolicy="disable", priority=0)],
            Terms(Enforcement.NONE, CorePolicy.DISABLE, 0),
            id="a-class-may-loosen",
        ),
        pytest.param(
            [of_claim(corePolicy="force")], Terms(core_policy=CorePolicy.FORCE), id="a-claim-tightens"
        ),
        pytest.param(
            [of_claim(enforcement="library")], Terms(Enforcement.LIBRARY), id="asks-for-the-library"
        ),
        pytest.param(
            [of_class(enforcement="none"), of_claim(enforcement="none")],
            Terms(Enforcement.NONE),
            id="a-claim-repeats-what-the-class-allows",
        ),
        pytest.param(
            [of_class(enforcement="none", priority=0), of_claim(enforcement="library", priority=1)],
            Terms(Enforcement.LIBRARY, priority=1),
            id="a-claim-tightens-the-class",
        ),
        pytest.param(
            [of_class(corePolicy="disable"), of_class(corePolicy="force")],
            Terms(core_policy=CorePolicy.FORCE),
            id="the-last-of-a-source-counts",
        ),
        pytest.param(
            [of_claim(corePolicy="force"), of_class(priority=0)],
            Terms(core_policy=CorePolicy.FORCE, priority=0),
            id="whatever-the-order",
        ),
        pytest.param([config({"corePolicy": "force"}, "g1")], Terms(), id="for-another-request"),
        pytest.param(
            [config({"corePolicy": "force"}, "g0")],
            Terms(core_policy=CorePolicy.FORCE),
            id="for-this-request",
        ),
        pytest.param(
            [of_claim(caps=[{"container": "a", "memory": "3000Mi", "cores": 10}])],
            Terms(caps=(cap("a", 3000 << 20, 10),)),
            id="caps",
        ),
        pytest.param(
            [
                of_class(caps=[{"container": "a", "memory": "4Gi"}, {"container": "b", "cores": 20}]),
                of_claim(caps=[{"container": "a", "memory": "2Gi"}, {"container": "c", "memory": 1000}]),
            ],
            Terms(caps=(cap("a", 2 * GIB), cap("b", None, 20), cap("c", 1000))),
            id="caps-of-both",
        ),
    ],
)
def test_terms(configs: list[OpaqueConfig], expected: Terms) -> None:
    assert terms_of(result(), configs) == expected


def test_subrequests() -> None:
    alternative = result("g0/s80")
    for name in ("g0", "g0/s80"):
        assert terms_of(alternative, [config({"corePolicy": "force"}, name)]).core_policy is CorePolicy.FORCE
    assert terms_of(alternative, [config({"corePolicy": "force"}, "g0/s24")]) == Terms()


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        pytest.param(
            [of_claim(enforcement="none")],
            r"parameters\.enforcement: 'none' takes effect from a DeviceClass",
            id="none",
        ),
        pytest.param(
            [of_claim(corePolicy="disable")],
            r"\.corePolicy: 'disable' is looser than 'default'",
            id="disable",
        ),
        pytest.param(
            [of_class(corePolicy="force"), of_claim(corePolicy="default")],
            r"\.corePolicy: 'default' is looser than 'force'",
            id="looser-than-the-class",
        ),
        pytest.param([of_claim(priority=0)], r"\.priority: 0 goes before 1", id="priority"),
        pytest.param(
            [of_claim(caps=[{"container": "a", "memory": "9Gi"}])],
            r"\.caps\[0\]\.memory: 9Gi is more than the 8Gi that holds here",
            id="cap-above-the-grant",
        ),
        pytest.param(
            [of_claim(caps=[{"container": "a", "cores": 31}])],
            r"\.caps\[0\]\.cores: 31 is more than the 30",
            id="cores",
        ),
        pytest.param(
            [
                of_class(caps=[{"container": "a", "memory": "1Gi"}]),
                of_claim(caps=[{"container": "a", "memory": "2Gi"}]),
            ],
            r"\.caps\[0\]\.memory: 2Gi is more than the 1Gi",
            id="cap-above-the-classes",
        ),
    ],
)
def test_a_claim_can_not_loosen(configs: list[OpaqueConfig], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        terms_of(result(), configs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(
            of_claim(corepolicy="force"), r"\.corepolicy: there is no such field", id="unknown-field"
        ),
        pytest.param(
            of_claim(corePolicy="Force"),
            r"\.corePolicy: .*'default', 'force' or 'disable', not 'Force'",
            id="value",
        ),
        pytest.param(
            of_claim(core_policy="force"), r"\.core_policy: there is no such field", id="python-name"
        ),
        pytest.param(of_claim(priority="0"), r"\.priority: .*not '0'", id="text-for-a-number"),
        pytest.param(of_claim(priority=2), r"\.priority: .*from 0 to 1, not 2", id="priority"),
        pytest.param(of_claim(priority=True), r"\.priority: ", id="true-is-no-number"),
        pytest.param(of_claim(caps=[{"memory": "1Gi"}]), r"\.caps\[0\]\.container: is missing", id="missing"),
        pytest.param(
            of_claim(caps=[{"container": "a", "memory": "-1Gi"}]),
            r"\.caps\[0\]\.memory: .*above 0",
            id="negative",
        ),
        pytest.param(
            of_claim(caps=[{"container": "a", "memory": "3 GB"}]),
            r"\.caps\[0\]\.memory: .*not a quantity",
            id="no-quantity",
        ),
        pytest.param(
            of_claim(caps=[{"container": "a", "memory": 1.5}]),
            r"\.caps\[0\]\.memory: .*not a quantity",
            id="float",
        ),
        pytest.param(
            of_claim(caps=[{"container": "a", "cores": 1}] * 2), r"\.caps: .*'a' is there twice", id="twice"
        ),
        pytest.param(
            of_claim(caps=[{"container": f"c{i}"} for i in range(17)]),
            r"\.caps: .*at most 16",
            id="too-many-caps",
        ),
        pytest.param(
            config({}, header={}), r"parameters: apiVersion None, kind None is not known", id="no-header"
        ),
        pytest.param(
            config({}, header={"apiVersion": "gpu.tessera.dev/v2", "kind": "ShareConfig"}),
            r"apiVersion 'gpu.tessera.dev/v2', .*write apiVersion: gpu.tessera.dev/v1alpha1",
            id="another-version",
        ),
        pytest.param(OpaqueConfig(True, (), None, "p"), r"^p: ", id="null"),
        pytest.param(OpaqueConfig(True, (), ["a"], "p"), r"^p: ", id="a-list"),
    ],
)
def test_what_can_not_be_understood(given: OpaqueConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        terms_of(result(), [given])

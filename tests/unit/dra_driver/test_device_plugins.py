from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dra_driver.cards.rules import Effect, Rules
from dra_driver.cards.taints import DEVICE_PLUGIN
from dra_driver.conditions import Condition, Conditions
from dra_driver.kubelet.device_plugins import DevicePlugins, of_plugins
from dra_driver.node import Node
from kube.client import Client
from kube.configuration import Connection
from tests.unit.dra_driver.cards import two_cards


def raw_node(**capacity: str) -> dict[str, Any]:
    named = {name.replace("__", "/").replace("_", "."): amount for name, amount in capacity.items()}
    return {"metadata": {"name": "node-a"}, "status": {"capacity": {"cpu": "8", "memory": "32Gi", **named}}}


@pytest.mark.parametrize(
    ("node", "found"),
    [
        pytest.param({"metadata": {"name": "node-a"}}, {}, id="a-node-without-a-status"),
        pytest.param(raw_node(), {}, id="none"),
        pytest.param(raw_node(nvidia_com__gpu="2"), {"nvidia.com/gpu": 2}, id="whole-cards"),
        pytest.param(raw_node(nvidia_com__gpu="0"), {}, id="what-is-left-of-one-that-is-gone"),
        pytest.param(
            {"status": {"capacity": {"nvidia.com/gpu.shared": "1k", "nvidia.com/mig-1g.10gb": "7"}}},
            {"nvidia.com/gpu.shared": 1000, "nvidia.com/mig-1g.10gb": 7},
            id="parts-of-cards",
        ),
        pytest.param(
            {"status": {"capacity": {"nvidia.com/vgpu": "10", "volcano.sh/vgpu-number": "10"}}},
            {"nvidia.com/vgpu": 10, "volcano.sh/vgpu-number": 10},
            id="as-hami-and-volcano-call-them",
        ),
        pytest.param(
            {"status": {"capacity": {"amd.com/gpu": "2", "nvidia.com/hostdev": "2", "x/nvidia.com": "1"}}},
            {},
            id="other-devices",
        ),
        pytest.param(raw_node(nvidia_com__gpu="two"), {"nvidia.com/gpu": 1}, id="more-than-none-at-least"),
    ],
)
def test_of_plugins(node: dict[str, Any], found: dict[str, int]) -> None:
    assert of_plugins(node) == found


class World:
    """A node, whose Node object `plugins` is told of."""

    def __init__(self) -> None:
        self.node = Node("node-a", Rules())
        self.node.found(two_cards())
        self.conditions = Conditions()
        self.known = 0
        self.plugins = DevicePlugins(
            Client(Connection("http://localhost:1"), user_agent="test"),
            node=self.node,
            conditions=self.conditions,
            first_known=self.first_known,
        )

    def first_known(self) -> None:
        self.known += 1

    @property
    def tainted(self) -> bool:
        keys = {taint.key for some in self.node.taints.values() for taint in some}
        return DEVICE_PLUGIN in keys

    @property
    def said(self) -> tuple[bool, str]:
        state = self.conditions[Condition.DEVICE_PLUGIN]
        return state.holds, state.detail


@pytest.fixture
def world() -> World:
    return World()


def test_a_plugin_comes_and_goes(world: World) -> None:
    world.plugins.saw(raw_node())
    assert (world.tainted, world.said[0]) == (False, True)
    world.plugins.saw(raw_node(nvidia_com__gpu="2"))
    assert (world.tainted, world.said[0]) == (True, False)
    assert "the Node has 2 of nvidia.com/gpu" in world.said[1]
    world.plugins.saw(raw_node(nvidia_com__gpu="0"))
    assert (world.tainted, world.said[0]) == (False, True)
    assert world.known == 1


def test_it_is_known_to_be_there_before_anything_is_published(world: World) -> None:
    """`first_known` publishes."""
    seen = []
    world.plugins = DevicePlugins(
        Client(Connection("http://localhost:1"), user_agent="test"),
        node=world.node,
        conditions=world.conditions,
        first_known=lambda: seen.append((world.plugins.are_known, world.tainted)),
    )
    world.plugins.saw(raw_node(nvidia_com__gpu="2"))
    assert seen == [(True, True)]


def test_other_ailments_stay(world: World) -> None:
    world.node.ail(replace(world.node.ailments, is_silent=True))
    world.plugins.saw(raw_node(nvidia_com__gpu="2"))
    assert world.node.ailments.is_silent
    assert world.node.ailments.has_device_plugin


def test_cards_that_are_split_between_both(world: World) -> None:
    """The administrator says so, while the agent runs; and takes it back."""
    world.plugins.saw(raw_node(nvidia_com__gpu="2"))
    world.node.configure(Rules(taint_effects={DEVICE_PLUGIN: Effect.NONE}))
    assert world.said == (
        True,
        "a device plugin has 2 of nvidia.com/gpu; as taintEffects has it, these are other cards than ours",
    )
    world.node.configure(Rules())
    assert not world.said[0]

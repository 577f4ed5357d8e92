"""Whether a device plugin hands out this node's cards beside us. Two that don't know of each other give one
card to two Pods; neither can see it, but the Node's status tells.

What a DeviceClass maps an extended resource to (`extendedResourceName`) never stands in a Node's status: what
does is registered with the kubelet. A plugin that is gone stands there for five minutes more, so one that is
only being updated is not taken for gone.

New Pods are kept away by a taint; what runs is left alone. An administrator who has split a node's cards
between the two (`excludedCards` here, as much there) says so by the taint's effect None.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from dra_driver.cards.rules import Effect
from dra_driver.cards.taints import DEVICE_PLUGIN
from dra_driver.conditions import Condition, Conditions
from dra_driver.node import Node
from kube import paths
from kube.client import Client
from kube.quantity import QuantityError, parse_quantity
from kube.reflector import Change, Reflector

_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/vgpu", "volcano.sh/vgpu-number")
"""HAMi's can be called anything; `nvidia.com/vgpu` is what it is called where `gpu` is NVIDIA's."""
_PREFIX = "nvidia.com/mig-"


def of_plugins(node: Mapping[str, Any]) -> dict[str, int]:
    """What device plugins have registered of NVIDIA's cards, by resource; a raw Node."""
    capacity = (node.get("status") or {}).get("capacity") or {}
    counts = {
        name: _count(amount)
        for name, amount in capacity.items()
        if name in _RESOURCES or name.startswith(_PREFIX)
    }
    return {name: counts[name] for name in sorted(counts) if counts[name] > 0}


def _count(amount: str | int) -> int:
    try:
        return int(parse_quantity(amount))
    except QuantityError:
        return 1  # it is there


class DevicePlugins:
    """Watches our Node. `first_known` is called when it has been seen for once."""

    def __init__(
        self, client: Client, *, node: Node, conditions: Conditions, first_known: Callable[[], None]
    ) -> None:
        self._node = node
        self._conditions = conditions
        self._first_known = first_known
        self._found: dict[str, int] | None = None
        self._reflector = Reflector(
            client,
            paths.nodes(),
            params={"fieldSelector": f"metadata.name={node.name}"},
            on_change=self._changed,
            reduced=_reduced,
        )
        node.listen(self._say)

    @property
    def are_known(self) -> bool:
        """Whether the Node has been seen: before, nothing is to be published."""
        return self._found is not None

    async def run(self) -> NoReturn:
        """Until cancelled. What was known holds while the API server is away."""
        say = partial(self._conditions.fail, Condition.DEVICE_PLUGIN)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run(), name="node-reflector")
            tasks.create_task(self._reflector.tell_until_synced(say), name="node-sync")
        raise AssertionError("unreachable: the first of the tasks does not end")

    def _changed(self, change: Change) -> None:
        if change.kind != "DELETED":
            self.saw(change.object)

    def saw(self, node: Mapping[str, Any]) -> None:
        """Our Node, as it is now."""
        before, self._found = self._found, of_plugins(node)
        if self._found != before:
            self._node.ail(replace(self._node.ailments, has_device_plugin=bool(self._found)))
            self._say()
        if before is None:
            self._first_known()

    def _say(self) -> None:
        if self._found is None:
            return
        if not self._found:
            self._conditions.hold(Condition.DEVICE_PLUGIN, "no device plugin hands out NVIDIA's cards here")
            return
        there = ", ".join(f"{count} of {name}" for name, count in self._found.items())
        if self._node.rules.taint_effects.get(DEVICE_PLUGIN) is Effect.NONE:
            self._conditions.hold(
                Condition.DEVICE_PLUGIN,
                f"a device plugin has {there}; as taintEffects has it, these are other cards than ours",
            )
            return
        self._conditions.fail(
            Condition.DEVICE_PLUGIN,
            f"a device plugin hands out cards of this node, too: the Node has {there}. New Pods are kept away"
            f" from ours by the taint {DEVICE_PLUGIN}: take the plugin off the node or, if it has other"
            f" cards than we, set taintEffects: {{{DEVICE_PLUGIN}: None}} in the node configuration",
        )


def _reduced(node: dict[str, Any]) -> dict[str, Any]:
    """Without images, conditions and what else makes a Node large."""
    return {
        "metadata": {key: node["metadata"].get(key) for key in ("name", "uid", "resourceVersion")},
        "status": {"capacity": (node.get("status") or {}).get("capacity") or {}},
    }

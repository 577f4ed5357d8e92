"""ResourceClaimTemplates in the cluster: there is one of each name, made when it is first needed.

A template that is known costs no API call, unless the keeper has marked it as unused: then the mark is taken
away first. Names follow content, so whoever made one that is there already
made the same; many reviews that need a new one at the same moment wait for one creation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from claim_mutator.names import MANAGED_BY, MUTATOR
from claim_mutator.quota.cost import Demand, demand_of
from claim_mutator.template import Template
from kube import paths
from kube.client import Client
from kube.errors import AlreadyExists, NotFound
from kube.reflector import Change

SELECTOR = {"labelSelector": f"{MANAGED_BY}={MUTATOR}"}
UNUSED_SINCE = "tessera.dev/unused-since"
"""The keeper's mark, an annotation."""
_KEPT = ("namespace", "name", "uid", "resourceVersion")
_DEMAND = "demand"
_FRESH = 60.0  # seconds after which the reflector must have seen what we made


class TemplateStore:
    """`known` is the reflector's view of our templates; `on_created` is called for each that we made."""

    def __init__(
        self,
        client: Client,
        known: Mapping[str, Mapping[str, Any]],
        *,
        on_created: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._known = known
        self._on_created = on_created
        self._clock = clock
        self._fresh: dict[str, float] = {}
        self._pending: dict[str, asyncio.Task[None]] = {}

    def has(self, namespace: str, name: str) -> bool:
        """Whether the template is there, and not about to go, as far as is known here."""
        key = f"{namespace}/{name}"
        known = self._known.get(key)
        return (known is not None and not marked(known)) or self._fresh.get(key, 0.0) > self._clock()

    def shown(self, change: Change) -> None:
        """By the reflector, which knows better from then on: a namespace may go, and come again, soon."""
        self._fresh.pop(change.key, None)

    async def ensure(self, namespace: str, template: Template) -> None:
        """Returns when the template is there. Raises ApiError."""
        if self.has(namespace, template.name):
            return
        key = f"{namespace}/{template.name}"
        creation = self._pending.get(key)
        if creation is None:
            creation = asyncio.create_task(self._create(namespace, template))
            self._pending[key] = creation
            creation.add_done_callback(lambda _: self._pending.pop(key, None))
        # One review that is given up must not take the others' creation with it.
        await asyncio.shield(creation)

    async def _create(self, namespace: str, template: Template) -> None:
        if not await self._revived(namespace, template.name):
            try:
                await self._client.create(
                    paths.resource_claim_templates(namespace), template.document(namespace)
                )
                self._on_created()
            except AlreadyExists:
                pass
        now = self._clock()
        self._fresh = {key: until for key, until in self._fresh.items() if until > now}
        if not self.has(namespace, template.name):
            self._fresh[f"{namespace}/{template.name}"] = now + _FRESH

    async def _revived(self, namespace: str, name: str) -> bool:
        """Takes the keeper's mark from a template that is there; False if there is none."""
        if f"{namespace}/{name}" not in self._known:
            return False
        try:
            await unmark(self._client, paths.resource_claim_template(namespace, name))
        except NotFound:
            return False
        return True


def reduced(instance_class: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What is kept of a template: thousands of them take little room then. With what a quota has to know."""

    def essential(template: dict[str, Any]) -> dict[str, Any]:
        metadata = template["metadata"]
        kept = {key: metadata[key] for key in _KEPT if key in metadata}
        mark = (metadata.get("annotations") or {}).get(UNUSED_SINCE)
        if mark is not None:
            kept["annotations"] = {UNUSED_SINCE: mark}
        return {
            "metadata": kept,
            _DEMAND: demand_of(template.get("spec", {}).get("spec") or {}, instance_class),
        }

    return essential


def demand(template: Mapping[str, Any] | None) -> Demand | None:
    """Of one that was `reduced`."""
    found: Demand | None = None if template is None else template.get(_DEMAND)
    return found


def marked(template: Mapping[str, Any]) -> bool:
    return UNUSED_SINCE in (template["metadata"].get("annotations") or {})


async def unmark(client: Client, path: str) -> None:
    """The template is needed; whoever is about to delete it now meets another resource version."""
    await client.patch(path, {"metadata": {"annotations": {UNUSED_SINCE: None}}})

"""Removes templates of ours that nobody uses. One replica does it; more would do no harm, nor a kill.

1. A template that no Pod of its namespace names is marked, in an annotation, with the time.
2. A review that needs a marked template takes the mark away before it is answered (templates.py), and so does
   the keeper where a Pod has appeared.
3. A mark that has stayed for `keep` seconds: Pods are listed once more, and what makes Pods, because one
   may name the template itself (copied from a converted Pod), also while it has no replicas. Then the
   template is deleted under the resource version that it was looked at with. Whoever took the mark away in
   between wins.

Claims need no template any more once they are there, and until then their Pods are.

`keep` is far longer than a watch takes to show the mark to all replicas, so a Pod that was admitted by
somebody who had not seen it yet is listed in step 3.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from claim_mutator.templates import UNUSED_SINCE, marked, unmark
from kube import paths
from kube.client import Client
from kube.errors import ApiError, Conflict, NotFound

_log = logging.getLogger(__name__)
_PAGE = "100"
_OWNERS = {
    "/apis/apps/v1": ("deployments", "statefulsets", "daemonsets", "replicasets"),
    "/apis/batch/v1": ("jobs", "cronjobs"),
    "/api/v1": ("replicationcontrollers",),
}


class TemplateKeeper:
    """`known` is the reflector's view of our templates, by namespace/name."""

    def __init__(
        self,
        client: Client,
        known: Mapping[str, Mapping[str, Any]],
        *,
        period: float,
        keep: float,
        leads: Callable[[], bool] = lambda: True,
        on_removed: Callable[[], None] = lambda: None,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self._client = client
        self._known = known
        self._period = period
        self._keep = dt.timedelta(seconds=keep)
        self._leads = leads
        self._on_removed = on_removed
        self._now = now

    async def run(self) -> NoReturn:
        """A turn each `period` seconds, until cancelled."""
        while True:
            await asyncio.sleep(self._period)
            if not self._leads():
                continue
            try:
                await self.turn()
            except ApiError as error:
                _log.warning("unused templates: %s", error)

    async def turn(self) -> None:
        """Looks at every template once. Raises ApiError; what has been done until then stays done."""
        by_namespace: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for template in self._known.values():
            by_namespace[template["metadata"]["namespace"]].append(template)
        for namespace, templates in by_namespace.items():
            used = await self._used(namespace)
            if any(self._is_due(each) and each["metadata"]["name"] not in used for each in templates):
                used |= await self._named_by_owners(namespace)
            for template in templates:
                try:
                    await self._judge(namespace, template, template["metadata"]["name"] in used)
                except (Conflict, NotFound):
                    continue  # somebody else changed it: next turn

    async def _judge(self, namespace: str, template: Mapping[str, Any], used: bool) -> None:
        metadata = template["metadata"]
        path = paths.resource_claim_template(namespace, metadata["name"])
        if used:
            if marked(template):
                await unmark(self._client, path)
            return
        if not marked(template):
            mark = {UNUSED_SINCE: self._now().isoformat(timespec="seconds")}
            version = metadata["resourceVersion"]
            await self._client.patch(path, {"metadata": {"resourceVersion": version, "annotations": mark}})
        elif self._is_due(template):
            await self._client.delete(path, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
            self._on_removed()
            _log.info("removed template %s/%s: no Pod uses it", namespace, metadata["name"])

    def _is_due(self, template: Mapping[str, Any]) -> bool:
        return marked(template) and self._now() - _since(template, self._now()) >= self._keep

    async def _used(self, namespace: str) -> set[str]:
        """Names of the templates that Pods of the namespace refer to."""
        return await self._named(paths.pods(namespace), ())

    async def _named_by_owners(self, namespace: str) -> set[str]:
        """The same of what Pods are made of."""
        found: set[str] = set()
        for group, kinds in _OWNERS.items():
            for kind in kinds:
                steps = ("jobTemplate", "spec", "template") if kind == "cronjobs" else ("template",)
                found |= await self._named(f"{group}/namespaces/{namespace}/{kind}", ("spec", *steps))
        return found

    async def _named(self, path: str, steps: Sequence[str]) -> set[str]:
        """Of the Pods, or Pod templates, at `steps` in the collection's objects."""
        found: set[str] = set()
        token = ""
        while True:
            page = {"limit": _PAGE} | ({"continue": token} if token else {})
            answer = await self._client.get(path, params=page)
            for item in answer.get("items") or ():
                for step in (*steps, "spec"):
                    item = item.get(step) or {}  # noqa: PLW2901 - one step further
                for claim in item.get("resourceClaims") or ():
                    found.add(claim.get("resourceClaimTemplateName") or "")
            token = (answer.get("metadata") or {}).get("continue") or ""
            if not token:
                return found


def _since(template: Mapping[str, Any], now: dt.datetime) -> dt.datetime:
    """A mark that somebody made unreadable starts anew with every turn: such a template stays."""
    try:
        since = dt.datetime.fromisoformat(template["metadata"]["annotations"][UNUSED_SINCE])
    except ValueError:
        return now
    return since if since.tzinfo else now

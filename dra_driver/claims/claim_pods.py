"""Which Pod uses a claim, for metrics: people look for Pods, the agent is told of claims.

Seen whenever somebody reads a claim anyway, to prepare or to reconcile it; nothing is asked for it, and
nothing is kept of claims that are gone. Right after a start it is not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from dra_driver.claims.allocation import ClaimRef
from dra_driver.names import ClaimUID

_SPARE = 64  # claims that may be remembered beyond those that are held


class ClaimPods:
    """`held`: the claims that matter, by UID."""

    def __init__(self, held: Callable[[], Collection[ClaimUID]]) -> None:
        self._held = held
        self._pods: dict[ClaimUID, str] = {}

    def saw(self, ref: ClaimRef, raw: Mapping[str, Any]) -> None:
        """A claim as the API server has it. Of several Pods that share it the first by name is told."""
        users = (raw.get("status") or {}).get("reservedFor") or ()
        pods = [str(user.get("name", "")) for user in users if user.get("resource") == "pods"]
        self._pods[ref.uid] = min(pods, default="")
        held = self._held()
        if len(self._pods) > 2 * len(held) + _SPARE:
            self._pods = {uid: pod for uid, pod in self._pods.items() if uid in held or uid == ref.uid}

    def of(self, uid: ClaimUID) -> str:
        """A Pod's name; empty where none is known."""
        return self._pods.get(uid, "")

"""Which failures become Events, under which reason, and about what. Pure but for the recorder's memory.

About the Node: what makes the whole node less than it should be. About a claim: what nobody but its owner, or
an administrator, can put right; the kubelet repeats every Prepare error on the Pod itself, and failures that
pass by themselves (an API server that is away, a driver that is being installed) are not the claim's.
"""

from __future__ import annotations

from dra_driver.cards.xids import describe
from dra_driver.claims.allocation import ClaimRef
from dra_driver.conditions import Condition, State
from dra_driver.errors import ConfigError, OvercommitError, PermanentError
from dra_driver.names import DeviceName
from dra_driver.node import Node
from kube.events import ObjectRef, Recorder

CARD_ERROR, CARD_LOST, CARD_WELL = "CardError", "CardLost", "CardWell"
CLAIM_STATUS_NOT_WRITTEN = "ClaimStatusNotWritten"

# A registration or a slice that is late says nothing about the node: the kubelet or the API server is away.
_REASONS = {
    Condition.GPUS: "CardsNotUsable",
    Condition.DRIVER_FILES: "DriverMissing",
    Condition.LIBRARY: "LibraryMissing",
    Condition.LEDGER: "LedgerDamaged",
    Condition.FEATURES: "FieldsDropped",
    Condition.CONFIGURATION: "ConfigurationRefused",
    Condition.DEVICE_PLUGIN: "DevicePluginFound",
}
_RECOVERED = "Recovered"


class Announcements:
    """What the agent's parts report to; every method may be called at any time, and returns at once."""

    def __init__(self, recorder: Recorder, node: str) -> None:
        self._recorder = recorder
        self._node = ObjectRef.of_node(node)
        self._failing: set[Condition] = set()
        self._complaints: dict[tuple[DeviceName, str], str] = {}

    def condition(self, condition: Condition, state: State) -> None:
        """A condition of readiness has changed."""
        reason = _REASONS.get(condition)
        if reason is None:
            return
        if not state.holds:
            self._failing.add(condition)
            self._recorder.warn(self._node, reason, state.detail)
        elif condition in self._failing:
            self._failing.remove(condition)
            self._recorder.note(self._node, f"{reason}{_RECOVERED}", state.detail)

    def cards(self, node: Node) -> None:
        """What is known of the node's cards has changed."""
        complaints = _complaints(node)
        for key, message in complaints.items():
            if self._complaints.get(key) != message:
                device, reason = key
                self._recorder.warn(self._node, reason, f"device {device}: {message}", part=device)
        for device in {device for device, _ in self._complaints} - {device for device, _ in complaints}:
            self._recorder.note(self._node, CARD_WELL, f"device {device} is well again", part=device)
        self._complaints = complaints

    def refused(self, ref: ClaimRef, error: Exception) -> None:
        """A claim was not prepared."""
        reason = _reason(error)
        if reason is not None:
            self._recorder.warn(ObjectRef.of_claim(ref.namespace, ref.name, ref.uid), reason, str(error))

    def claim_status_not_written(self, why: str) -> None:
        self._recorder.warn(self._node, CLAIM_STATUS_NOT_WRITTEN, why)


def _complaints(node: Node) -> dict[tuple[DeviceName, str], str]:
    """(device, reason) → what is the matter with it."""
    inventory = node.cards
    if inventory is None:
        return {}
    found = {(lost.card.name, CARD_LOST): lost.reason for lost in inventory.lost}
    for card in (*inventory.cards, *(lost.card for lost in inventory.lost)):
        xid = node.ailments.xid_of(card)
        if xid is not None:
            found[card.name, CARD_ERROR] = describe(xid, inventory.actions.get(card.gpu_uuid))
    return found


def _reason(error: Exception) -> str | None:
    if isinstance(error, ConfigError):
        return "ShareConfigRefused"
    if isinstance(error, PermanentError):
        return "PrepareRefused"
    if isinstance(error, OvercommitError):
        return "CardOvercommitted"
    return None

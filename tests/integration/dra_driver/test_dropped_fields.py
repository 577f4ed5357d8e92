"""What the publisher does where the API server drops the fields of a feature that is off."""

from __future__ import annotations

import copy

import pytest

from dra_driver.conditions import Condition
from tests.integration.api_objects import Object
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.publishing import SLICES, TOLD, XID, Setting, wanted


class TaintlessServer(ApiServer):
    """Has DRADeviceTaints off: drops what belongs to it, silently, as the real one does."""

    dropping = True

    def _store(self, collection: str, key: tuple[str, str], item: Object, kind: str) -> Object:
        if self.dropping and collection == SLICES:
            for device in item["spec"].get("devices", ()):
                self._drop_from(device)
        return super()._store(collection, key, item, kind)

    def _drop_from(self, device: Object) -> None:
        device.pop("taints", None)


def updates(setting: Setting) -> float | None:
    """Whose answers the publisher has."""
    return setting.registry.get_sample_value("tessera_slice_writes_total", {"verb": "update"})


class ForgetfulServer(TaintlessServer):
    """Has DRAConsumableCapacity off as well."""

    def _drop_from(self, device: Object) -> None:
        super()._drop_from(device)
        device.pop("allowMultipleAllocations", None)
        for capacity in device["capacity"].values():
            capacity.pop("requestPolicy", None)


@pytest.mark.parametrize("api", [ForgetfulServer], indirect=True)
async def test_dropped_fields_are_said_aloud_and_not_fought(setting: Setting) -> None:
    setting.publisher.want(wanted())
    await setting.until(lambda: not setting.conditions[Condition.FEATURES].holds)
    detail = setting.conditions[Condition.FEATURES].detail
    assert "dropped allowMultipleAllocations" in detail
    assert "switch on the feature gate DRAConsumableCapacity" in detail
    assert await setting.is_quiet()
    assert setting.writes == 1
    assert isinstance(setting.api, ForgetfulServer)
    setting.api.dropping = False
    setting.publisher.want(wanted(3))
    await setting.until(lambda: setting.conditions[Condition.FEATURES].holds)


@pytest.mark.parametrize("api", [TaintlessServer], indirect=True)
async def test_dropped_taints_are_told_where_one_is_needed(setting: Setting) -> None:
    def features() -> bool:
        return setting.conditions[Condition.FEATURES].holds

    def dropped() -> float | None:
        return setting.registry.get_sample_value("tessera_slice_fields_dropped", {"gate": "DRADeviceTaints"})

    setting.publisher.want(wanted())
    await setting.until_published()
    assert await setting.is_quiet()
    assert (features(), dropped()) == (True, 0)

    setting.publisher.want(wanted(2, TOLD))
    await setting.until(lambda: dropped() == 1)
    assert features()  # nobody is worse off
    assert "DRADeviceTaints" in setting.conditions[Condition.FEATURES].detail

    setting.publisher.want(wanted(2, XID))
    await setting.until(lambda: not features())
    assert setting.conditions[Condition.FEATURES].detail == (
        "the API server dropped taints from our ResourceSlices: switch on the feature gate DRADeviceTaints on"
        " API server, scheduler and kubelet"
    )
    before = setting.writes
    assert await setting.is_quiet()

    setting.publisher.want(wanted())
    await setting.until(lambda: features() and dropped() == 0)
    assert await setting.is_quiet()
    assert setting.writes == before  # there is nothing to take back


@pytest.mark.parametrize("api", [TaintlessServer], indirect=True)
async def test_a_feature_that_was_switched_on_is_used_in_time(setting: Setting) -> None:
    setting.publisher.want(wanted(2, XID))
    await setting.until(lambda: not setting.conditions[Condition.FEATURES].holds)
    assert isinstance(setting.api, TaintlessServer)
    setting.ahead = 3601
    setting.publisher.want(copy.deepcopy(wanted(3, XID)))  # wakes it
    await setting.until(lambda: updates(setting) == 1)  # it knows what was dropped
    assert len(setting.devices()) == 3
    assert not setting.conditions[Condition.FEATURES].holds
    setting.api.dropping = False
    setting.ahead = 2 * 3601
    setting.api.put(SLICES, setting.slices[0])  # wakes it
    await setting.until(lambda: setting.conditions[Condition.FEATURES].holds)
    assert len(setting.taints()) == 1


async def test_dropped_fields_of_one_slice_are_not_forgotten_for_the_others_sake(setting: Setting) -> None:
    setting.publisher.want(wanted(70, XID))
    await setting.until_published()
    assert len(setting.slices) == 2
    first = copy.deepcopy(setting.slices[0])
    for device in first["spec"]["devices"]:
        device.pop("taints", None)
    setting.api.put(SLICES, first)  # somebody has removed it: it comes back
    await setting.until(lambda: updates(setting) == 1)
    assert setting.taints()
    assert setting.conditions[Condition.FEATURES].holds

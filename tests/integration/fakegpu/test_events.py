# SPDX-License-Identifier: Apache-2.0
"""Events on command: XIDs, memory errors, who hears of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from tests.fakegpu.driver_root import program
from tests.integration.fakegpu.conftest import GIB, INVENTORIES, Driver
from tests.integration.fakegpu.controls import (
    DOUBLE,
    LISTENER,
    SINGLE,
    UNSUPPORTED,
    WHOLE_CARD,
    XID,
    Listener,
    control,
    refused,
)
from tests.integration.fakegpu.test_mig import CARD, FIRST
from tests.integration.fakegpu.test_nvml import attempts


def test_every_waiting_process_hears_every_event_in_order(make_driver: Callable[[str], Driver]) -> None:
    driver = make_driver("mig.ini")
    client = driver.client(LISTENER.replace("{types}", "0xf"))
    with driver.spawn(*client) as one, driver.spawn(*client) as two:
        listeners = Listener(one), Listener(two)
        control(driver, "xid", "1", "48")
        control(driver, "xid", CARD, "63")
        control(driver, "ecc", "0", "single")
        control(driver, "ecc", "1", "double")
        control(driver, "xid", FIRST, "43")
        for listener in listeners:
            assert [listener.next() for _ in range(5)] == [
                [1, XID, 48, WHOLE_CARD, WHOLE_CARD],
                [0, XID, 63, WHOLE_CARD, WHOLE_CARD],
                [0, SINGLE, 0, WHOLE_CARD, WHOLE_CARD],
                [1, DOUBLE, 0, WHOLE_CARD, WHOLE_CARD],
                [0, XID, 43, 9, 0],
            ]


def test_a_set_hears_only_what_it_registered_for(make_driver: Callable[[str], Driver]) -> None:
    driver = make_driver("mig.ini")
    control(driver, "xid", "0", "31")  # before anybody listened
    with driver.spawn(*driver.client(LISTENER.replace("{types}", str(DOUBLE)))) as process:
        listener = Listener(process)
        control(driver, "xid", "0", "48")
        control(driver, "ecc", "0", "single")
        control(driver, "ecc", "0", "double")
        assert listener.next() == [0, DOUBLE, 0, WHOLE_CARD, WHOLE_CARD]


def test_an_event_wakes_at_once_and_waiting_costs_nothing(driver: Driver) -> None:
    code = """
import pynvml as n, resource
n.nvmlInit()
s = n.nvmlEventSetCreate()
n.nvmlDeviceRegisterEvents(n.nvmlDeviceGetHandleByIndex(0), 8, s)
answer(ready=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
n.nvmlEventSetWait_v2(s, 20000)
answer(at=time.monotonic(), switches=resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before)"""
    with driver.spawn(*driver.client(code)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.5)
        before = time.monotonic()
        control(driver, "xid", "0", "48")
        heard = json.loads(process.stdout.readline())
    assert 0 < heard["at"] - before < 10  # of the 20 s that it would have waited
    assert heard["switches"] <= 3


def test_who_is_far_behind_misses_the_oldest(driver: Driver) -> None:
    code = """
import pynvml as n, subprocess
n.nvmlInit()
s = n.nvmlEventSetCreate()
n.nvmlDeviceRegisterEvents(n.nvmlDeviceGetHandleByIndex(0), 8, s)
for code in range(1001, 1301): subprocess.run([CTL, "xid", STATE, "0", str(code)], check=True)
heard = []
while True:
    try: heard.append(n.nvmlEventSetWait_v2(s, 0).eventData)
    except n.NVMLError_Timeout: break
answer(count=len(heard), first=heard[0], last=heard[-1])"""
    code = code.replace("CTL", repr(str(program("fakegpu-ctl")))).replace("STATE", repr(str(driver.state)))
    assert driver.cuda(code) == {"count": 256, "first": 1045, "last": 1300}


def test_memory_errors_are_counted_where_the_card_can(make_driver: Callable[[str], Driver]) -> None:
    driver = make_driver("mig.ini")
    control(driver, "ecc", "1", "single")
    control(driver, "ecc", "1", "single")
    control(driver, "ecc", "1", "double")
    calls = {f"{kind}": f"n.nvmlDeviceGetTotalEccErrors(h(1), {kind}, 0)" for kind in (0, 1)}
    assert attempts(driver, {**calls, "mode": "n.nvmlDeviceGetEccMode(h(1))"}) == {
        "0": 2,
        "1": 1,
        "mode": [1, 1],
    }


def test_cards_without_ecc_report_no_memory_errors(driver: Driver) -> None:
    calls = {
        "types": "n.nvmlDeviceGetSupportedEventTypes(h(0)) & 3",
        "register": "n.nvmlDeviceRegisterEvents(h(0), 0xb, n.nvmlEventSetCreate())",
        "mode": "n.nvmlDeviceGetEccMode(h(0))",
    }
    assert attempts(driver, calls) == {"types": 0, "register": UNSUPPORTED, "mode": UNSUPPORTED}
    assert "ecc = 1" in refused(driver, "ecc", "0", "double")


def test_a_card_without_events_and_one_without_a_memory_figure(
    make_driver: Callable[[str], Driver],
) -> None:
    text = (INVENTORIES / "two-cards.ini").read_text()
    text = text.replace("brand = geforce", "brand = geforce\nno_events = 1\nno_memory_info = 1")
    calls = {
        "types": "n.nvmlDeviceGetSupportedEventTypes(h(0))",
        "register": "n.nvmlDeviceRegisterEvents(h(0), 8, n.nvmlEventSetCreate())",
        "memory": "n.nvmlDeviceGetMemoryInfo(h(0)).total",
        "second": "n.nvmlDeviceGetMemoryInfo(h(0), version=n.nvmlMemory_v2).total",
        "other": "n.nvmlDeviceGetMemoryInfo(h(1)).total",
    }
    unsupported = dict.fromkeys(("types", "register", "memory", "second"), UNSUPPORTED)
    assert attempts(make_driver(text), calls) == {**unsupported, "other": 80 * GIB}


def test_a_card_tells_what_it_needs(driver: Driver) -> None:
    field = "n.nvmlDeviceGetFieldValues(h(0), [230, 1])"
    calls = {"told": f"[[v.nvmlReturn, v.value.uiVal] for v in {field}]"}
    assert attempts(driver, calls) == {"told": [[3, 0], [3, 0]]}
    control(driver, "action", "0", "2")
    assert attempts(driver, calls) == {"told": [[0, 2], [3, 0]]}
    control(driver, "action", "0", "0")
    assert attempts(driver, calls) == {"told": [[0, 0], [3, 0]]}

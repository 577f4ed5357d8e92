# SPDX-License-Identifier: Apache-2.0
"""What goes wrong on command: events, lost cards, NVML slow, hanging or failing, memory of strangers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakegpu.driver_root import program
from tests.integration.fakegpu.conftest import GIB, INVENTORIES, Driver, eventually
from tests.integration.fakegpu.test_mig import CARD, FIRST, THREE
from tests.integration.fakegpu.test_nvml import attempts

LOST, UNKNOWN, TIMEOUT, UNSUPPORTED = -15, -999, -10, -3
XID, SINGLE, DOUBLE, WHOLE_CARD = 8, 1, 2, 0xFFFFFFFF

LISTENER = """
import pynvml as n
n.nvmlInit()
s = n.nvmlEventSetCreate()
for i in range(n.nvmlDeviceGetCount()):
    h = n.nvmlDeviceGetHandleByIndex(i)
    n.nvmlDeviceRegisterEvents(h, n.nvmlDeviceGetSupportedEventTypes(h) & {types}, s)
answer(ready=True)
while True:
    try:
        e = n.nvmlEventSetWait_v2(s, 20000)
        card = n.nvmlDeviceGetIndex(e.device)
        answer(event=[card, e.eventType, e.eventData, e.gpuInstanceId, e.computeInstanceId])
    except n.NVMLError as error:
        answer(event=-error.value)
        if error.value != 10: time.sleep(0.05)
"""


class Listener:
    """A process that tells every event it hears."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._lines = process.stdout
        assert json.loads(self._lines.readline()) == {"ready": True}

    def next(self) -> object:
        return json.loads(self._lines.readline())["event"]


def control(driver: Driver, command: str, *arguments: str) -> None:
    driver.tool("fakegpu-ctl", command, driver.state, *arguments)


def refused(driver: Driver, command: str, *arguments: str) -> str:
    done = subprocess.run(
        [program("fakegpu-ctl"), command, driver.state, *arguments],
        env=driver.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    return done.stderr


# --- events ---------------------------------------------------------------------------------------


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


# --- lost cards -----------------------------------------------------------------------------------

WATCH = """
import pynvml as n
n.nvmlInit()
handle = n.nvmlDeviceGetHandleByIndex(1)
calls = [lambda: n.nvmlDeviceGetUUID(handle)[:3], lambda: n.nvmlDeviceGetCount(),
         lambda: n.nvmlDeviceGetHandleByIndex(1) and 0, lambda: n.nvmlDeviceGetMinorNumber(
             n.nvmlDeviceGetHandleByIndex(0))]
def attempt(call):
    try: return call()
    except n.NVMLError as e: return -e.value
for line in sys.stdin:
    if line.strip() == "again": n.nvmlShutdown(); n.nvmlInit()
    answer(seen=[attempt(call) for call in calls])"""


@pytest.mark.parametrize(("gone", "anew"), [((), [LOST, 2, LOST, 0]), (("--gone",), [-2, 1, -2, 0])])
def test_a_lost_card_answers_lost_until_it_is_found(
    driver: Driver, gone: tuple[str, ...], anew: list[object]
) -> None:
    """Gone from the list too: for who starts NVML anew; its old handles answer as those of a lost one."""
    good = ["GPU", 2, 0, 0]
    with driver.spawn(*driver.client(WATCH), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None

        def look(word: str = "look") -> object:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(word + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())["seen"]

        assert look() == good
        control(driver, "lose", "1", *gone)
        assert look() == [LOST, 2, LOST, 0]
        assert look("again") == anew
        control(driver, "find", "1")
        assert look("again") == good


def test_a_waiting_process_hears_of_the_loss(driver: Driver) -> None:
    """First the event that the driver could still send, then that a card of the set is lost."""
    with driver.spawn(*driver.client(LISTENER.replace("{types}", str(XID)))) as process:
        listener = Listener(process)
        control(driver, "xid", "1", "48")
        control(driver, "lose", "1")
        assert listener.next() in ([1, XID, 48, WHOLE_CARD, WHOLE_CARD], LOST)
        assert eventually(lambda: listener.next() == LOST)
        control(driver, "reset")
        control(driver, "xid", "1", "31")
        assert eventually(lambda: listener.next() == [1, XID, 31, WHOLE_CARD, WHOLE_CARD])


def test_the_instances_of_a_lost_card_are_lost(make_driver: Callable[[str], Driver]) -> None:
    driver = make_driver("mig.ini")
    control(driver, "xid", THREE, "79")
    calls = {
        "card": "n.nvmlDeviceGetUUID(h(0))",
        "instance": f"n.nvmlDeviceGetHandleByUUID('{FIRST}') and 0",
        "unknown": "n.nvmlDeviceGetHandleByUUID('GPU-none') and 0",
        "other": "n.nvmlDeviceGetMinorNumber(h(1))",
    }
    assert attempts(driver, calls) == {"card": LOST, "instance": LOST, "unknown": LOST, "other": 1}
    control(driver, "find", CARD)
    assert attempts(driver, {"instance": f"n.nvmlDeviceGetHandleByUUID('{FIRST}') and 0"}) == {"instance": 0}


def test_cuda_does_not_list_a_lost_card(driver: Driver) -> None:
    control(driver, "lose", "0")
    code = (
        "start(); n, c = ctypes.create_string_buffer(64), ctypes.c_int(); cuda.cuDeviceGetName(n, 64, 0);"
        "cuda.cuDeviceGetCount(ctypes.byref(c)); answer(name=n.value.decode(), count=c.value)"
    )
    assert driver.cuda(code) == {"name": "NVIDIA A100-SXM4-80GB", "count": 1}


def test_running_processes_feel_the_loss(driver: Driver) -> None:
    code = """
start()
f = kernel()
stream = ctypes.c_void_p()
check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
answer(ready=True)
sys.stdin.readline()
answer(errors=[allocate(64)[0], launch(f, 1), launch(f, 1, stream), cuda.cuCtxSynchronize()])
sys.stdin.readline()
answer(errors=[allocate(64)[0], launch(f, 1, stream), cuda.cuCtxSynchronize()])"""
    with driver.spawn(*driver.client(code), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        for command, expected in (("lose", [999] * 4), ("find", [0] * 3)):
            control(driver, command, "0")
            process.stdin.write("\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["errors"] == expected


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


# --- NVML that misbehaves -------------------------------------------------------------------------

ASK = """
import pynvml as n
n.nvmlInit()
h = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
for line in sys.stdin:
    begin = time.monotonic()
    try: found = n.nvmlDeviceGetMinorNumber(h[int(line)])
    except n.NVMLError as e: found = -e.value
    answer(found=found, took=time.monotonic() - begin)"""


class Asker:
    """A process that has NVML open and asks for a card's minor number when told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self(0)[0] == 0

    def send(self, card: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{card}\n")
        self._process.stdin.flush()

    def receive(self) -> tuple[int, float]:
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        return answer["found"], answer["took"]

    def __call__(self, card: int) -> tuple[int, float]:
        self.send(card)
        return self.receive()


def test_every_call_is_late(driver: Driver) -> None:
    with driver.spawn(*driver.client(ASK), stdin=subprocess.PIPE) as process:
        ask = Asker(process)
        control(driver, "nvml", "--delay", "300")
        found, took = ask(1)
        assert found == 1
        assert took >= 0.3
        control(driver, "nvml", "--ok")
        assert min(ask(1)[1] for _ in range(20)) < 0.3


def test_calls_hang_until_told_otherwise(driver: Driver) -> None:
    with driver.spawn(*driver.client(ASK), stdin=subprocess.PIPE) as process:
        ask = Asker(process)
        control(driver, "nvml", "--hang")
        ask.send(1)
        time.sleep(0.3)
        control(driver, "nvml", "--ok")
        found, took = ask.receive()
        assert found == 1
        assert took >= 0.3


def test_a_hanging_process_can_be_killed_and_starting_hangs_too(driver: Driver) -> None:
    control(driver, "nvml", "--hang")
    with driver.spawn(sys.executable, "-c", "import pynvml as n; n.nvmlInit()") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.terminate()
        assert process.wait(5) == -15
    control(driver, "nvml", "--ok")
    assert driver.nvml("n.nvmlDeviceGetCount()") == 2


def test_cuda_goes_on_while_nvml_hangs(driver: Driver) -> None:
    control(driver, "nvml", "--hang")
    assert driver.cuda("start(); answer(error=allocate(1 << 20)[0])") == {"error": 0}


def test_calls_fail_with_a_code_on_one_card_or_everywhere(driver: Driver) -> None:
    with driver.spawn(*driver.client(ASK), stdin=subprocess.PIPE) as process:
        ask = Asker(process)
        control(driver, "nvml", "--card", "1", "--fail", "999")
        assert [ask(0)[0], ask(1)[0]] == [0, UNKNOWN]
        assert attempts(driver, {"count": "n.nvmlDeviceGetCount()", "card": "h(1) and 0"}) == {
            "count": 2,
            "card": UNKNOWN,
        }
        control(driver, "nvml", "--fail", "999")
        assert [ask(0)[0], ask(1)[0]] == [UNKNOWN, UNKNOWN]
        control(driver, "reset")
        assert [ask(0)[0], ask(1)[0]] == [0, 1]


def test_starting_fails_with_the_code_too(driver: Driver) -> None:
    control(driver, "nvml", "--fail", "9")
    code = "import pynvml as n\ntry: n.nvmlInit()\nexcept n.NVMLError as e: print(e.value)"
    assert driver.run(sys.executable, "-c", code) == "9\n"


# --- strangers ------------------------------------------------------------------------------------


def test_memory_of_strangers_is_used_but_nobody_s(driver: Driver) -> None:
    control(driver, "stranger", "0", "20Gi")
    seen = "[n.nvmlDeviceGetMemoryInfo(h).{} for h in [n.nvmlDeviceGetHandleByIndex(0)]][0]"
    assert driver.nvml(seen.format("used")) == 20 * GIB
    assert driver.nvml("n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(0))") == []
    code = "start(); answer(info=free_total(), errors=[allocate(5 << 30)[0], allocate(4 << 30)[0]])"
    assert driver.cuda(code) == {"info": [4 * GIB, 24 * GIB], "errors": [2, 0]}
    control(driver, "stranger", "0", "0")
    assert driver.nvml(seen.format("free")) == 24 * GIB


def test_strangers_take_no_more_than_is_free(driver: Driver) -> None:
    assert "not that much free" in refused(driver, "stranger", "0", "25Gi")
    control(driver, "stranger", "0", "24Gi")
    control(driver, "stranger", "0", "23Gi")
    assert driver.used() == 23 * GIB


@pytest.mark.parametrize(
    "arguments",
    [
        ("xid", "2", "48"),
        ("xid", "GPU-none", "48"),
        ("xid", "0", "many"),
        ("xid", "0"),
        ("ecc", "0", "triple"),
        ("lose", "0", "--slowly"),
        ("stranger", "0", "1G"),
        ("nvml", "--delay"),
        ("nvml", "--fail", "0"),
        ("nvml", "--card", "7", "--hang"),
        ("nvml", "--sing"),
    ],
    ids=" ".join,
)
def test_commands_that_make_no_sense_are_refused(driver: Driver, arguments: tuple[str, ...]) -> None:
    assert refused(driver, *arguments) != ""
    assert driver.nvml("n.nvmlDeviceGetMinorNumber(n.nvmlDeviceGetHandleByIndex(1))") == 1


def test_the_state_shows_what_is_wrong(driver: Driver) -> None:
    control(driver, "xid", "0", "79")
    control(driver, "stranger", "1", "1Gi")
    shown = driver.tool("fakegpu-ctl", "show", Path(driver.state))
    assert "XID 79" in shown
    assert "lost" in shown
    assert f"{GIB} bytes used by strangers" in shown

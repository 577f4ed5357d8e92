# SPDX-License-Identifier: Apache-2.0
"""What goes wrong on command: NVML slow, hanging or failing, memory of strangers."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.fakegpu.conftest import GIB, Driver
from tests.integration.fakegpu.controls import UNKNOWN, control, refused
from tests.integration.fakegpu.test_nvml import attempts

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

    def is_answered(self, within: float) -> bool:
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], within)[0])

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
        assert not ask.is_answered(within=0.5)
        control(driver, "nvml", "--ok")
        assert ask.receive()[0] == 1


def test_a_hanging_process_can_be_killed_and_starting_hangs_too(driver: Driver) -> None:
    control(driver, "nvml", "--hang")
    with driver.spawn(sys.executable, "-c", "import pynvml as n; n.nvmlInit()") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.terminate()
        assert process.wait(60) == -15
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

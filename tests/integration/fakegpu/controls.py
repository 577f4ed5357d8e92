# SPDX-License-Identifier: Apache-2.0
"""The control command, and clients that listen to NVML."""

from __future__ import annotations

import json
import subprocess

from tests.fakegpu.driver_root import program
from tests.integration.fakegpu.conftest import Driver

LOST, UNKNOWN, UNSUPPORTED = -15, -999, -3
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

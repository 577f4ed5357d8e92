"""The agent as its own process, on a node that is a temporary directory."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from itertools import chain
from pathlib import Path

import aiohttp

from dra_driver.kubelet.sockets import Sockets
from dra_driver.names import DRIVER
from tests.fakegpu import driver_root
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.kubelet import wait_for

DRIVER_DOCUMENT = "gpu.tessera.dev-driver_files.json"
_HARMLESS = "43"  # an XID that says nothing against a card


def free_address() -> tuple[str, int]:
    """Of this host, where nobody else listens until the agent does: others take free ports of 127.0.0.1."""
    host = "127." + ".".join(str(random.randint(1, 254)) for _ in range(3))  # noqa: S311 - no secret
    with socket.create_server((host, 0)) as listener:
        return host, int(listener.getsockname()[1])


class Agent:
    """`start`, `stop` and `kill` may alternate; the node's directories stay. Use as a context manager.

    `program`: what Python runs, for a test that needs something else before `main`.
    """

    def __init__(
        self,
        root: Path,
        api: ApiServer,
        *,
        node: str = "node-a",
        program: str = "from dra_driver.main import main; main()",
        **environment: str,
    ) -> None:
        self._program = program
        self.root = root
        self.address = free_address()
        self.sockets = Sockets.below(root / "kubelet", DRIVER, environment.get("TESSERA_POD_UID"))
        self.log = root / "agent.log"
        self._boot = root / "boot_id"
        self.boot("boot-1")
        self._environment = {
            key: value for key, value in os.environ.items() if not key.startswith("TESSERA_")
        } | {
            "TESSERA_NODE_NAME": node,
            "TESSERA_KUBELET_ROOT": str(root / "kubelet"),
            "TESSERA_CDI_ROOT": str(root / "cdi"),
            "TESSERA_STATE_DIR": str(root / "state"),
            "TESSERA_RUN_DIR": str(root / "run"),
            "TESSERA_DRIVER_ROOT": str(root / "driver"),
            "TESSERA_CONTAINER_DRIVER_ROOT": str(root / "driver"),
            "TESSERA_SYS_ROOT": str(root / "driver/sys"),
            "TESSERA_HTTP_ADDRESS": "{}:{}".format(*self.address),
            "TESSERA_KUBECONFIG": str(api.write_kubeconfig(root / "kubeconfig")),
            "TESSERA_BOOT_ID_FILE": str(self._boot),
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def boot(self, boot_id: str) -> None:
        """As the kernel would after a boot."""
        self._boot.write_text(f"{boot_id}\n")

    async def start(self) -> None:
        """Until both sockets are there."""
        self._process = self._spawn()
        try:
            await wait_for(self.sockets.registration)
        except TimeoutError as error:
            raise AssertionError(f"no sockets:\n{self.log.read_text()}") from error

    async def end(self, seconds: float = 60.0) -> tuple[int, str]:
        """Of an agent that can't run: its exit status and what it said."""
        self._process = self._spawn()
        status = await asyncio.to_thread(self._process.wait, seconds)
        self._process = None
        return status, self.log.read_text()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", self._program],
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    async def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 60.0) -> int:
        """Its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        status = await asyncio.to_thread(self._process.wait, seconds)
        self._process = None
        return status

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cpu_seconds(self) -> float:
        """What it has spent since its start, in all threads; in steps of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def ended(self, seconds: float = 60.0) -> int:
        """By itself: its exit status."""
        assert self._process is not None
        status = await asyncio.to_thread(self._process.wait, seconds)
        self._process = None
        return status

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def until(self, what: Callable[[], bool | Awaitable[bool]], seconds: float = 60.0) -> None:
        """Fails with the agent's log."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    answer = what()
                    if answer if isinstance(answer, bool) else await answer:
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            raise AssertionError(f"it did not come to pass:\n{self.log.read_text()}") from error

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body of its HTTP endpoint."""
        async with (
            aiohttp.ClientSession() as session,
            session.get("http://{}:{}{}".format(*self.address, path)) as answer,
        ):
            return answer.status, await answer.text()

    async def series(self) -> dict[str, float]:
        """What /metrics has: name and labels → value."""
        _, text = await self.get("/metrics")
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    async def until_ready(self, seconds: float = 60.0) -> None:
        """Fails with /readyz's own words."""

        async def is_ready() -> bool:
            return (await self.get("/readyz"))[0] == 200

        await self.until(is_ready, seconds)

    async def fakegpu(self, command: str, *arguments: str) -> None:
        """Does something to the node's fake cards."""
        program = str(driver_root.program("fakegpu-ctl"))
        process = await asyncio.create_subprocess_exec(
            program, command, str(self.root / "fakegpu"), *arguments
        )
        assert await process.wait() == 0

    async def until_it_hears_errors(self) -> None:
        """Of the cards: as from a real driver, it never learns of those before it listened."""
        series = f'tessera_xid_events_total{{xid="{_HARMLESS}"}}'
        before = (await self.series())[series]

        async def hears() -> bool:
            await self.fakegpu("xid", "0", _HARMLESS)
            return (await self.series())[series] > before

        await self.until(hears)

    def files(self) -> set[str]:
        """All that is there for claims; the driver's document is for whoever comes next, too."""
        found = self.below("state/ledger", "run/claims", "cdi")
        return {str(path.relative_to(self.root)) for path in found if path.name != DRIVER_DOCUMENT}

    def below(self, *directories: str) -> list[Path]:
        """By os.walk, which passes over what the agent removes meanwhile."""
        return [
            Path(where, name)
            for directory in directories
            for where, *names in os.walk(self.root / directory)
            for name in chain(*names)
        ]

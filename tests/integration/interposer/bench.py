"""A container without a container: the fake driver, grants and the library in a mount namespace of its own.

`Bench` is a node's fake cards (a state directory) and the grants of one container. Programs run under
`unshare --mount` with the grants bind-mounted on /run/tessera/grants and the library in LD_PRELOAD: what is
tested is what ships.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interposer import abi

ROOT = Path(__file__).resolve().parents[3]
FAKE = ROOT / "tests" / "fakegpu" / "build" / "x86_64"
INVENTORY = ROOT / "tests" / "fakegpu" / "inventories" / "two-cards.ini"
SMALL, LARGE = "GPU-4e6c1f2a-9d0b-4c5e-8a17-30f1b2c4d5e6", "GPU-b7d3a850-61c4-4f2e-9e3d-7a5508c9f1d2"
SHIM = {"libtessera-shim.so": "libcuda.so.1", "libtessera-shim-nvml.so": "libnvidia-ml.so.1"}
MI = 1 << 20
CARD_BYTES = {SMALL: 24 << 30, LARGE: 80 << 30}
NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1")
PATIENCE = 300.0
"""Seconds after which a program hangs: many times what the longest takes, since the machine may be busy."""
HANGS = 30.0
"""The same of one that does next to nothing."""


def limits(uuid: str = SMALL, memory: int = 256 * MI, cores: int = 0, **others: Any) -> abi.Limits:
    """Limits as the agent would write them; memory in bytes, cores in percent."""
    values: dict[str, Any] = {
        "claim": "5f0c1d1e-0000-4000-8000-000000000000",
        "card_memory_bytes": CARD_BYTES.get(uuid, 0),
        "guaranteed_cores": cores,
        "effective_cores": cores,
        "policy": abi.Policy.DEFAULT,
        "priority": 1,
        "spill": False,
        "caps": (),
    }
    return abi.Limits(uuid=uuid, memory_bytes=memory, **(values | others))


def answer_of(result: subprocess.CompletedProcess[str]) -> Any:
    """The JSON that a program has printed; it must have ended well."""
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def finished(process: subprocess.Popen[str], timeout: float = PATIENCE) -> Any:
    """The JSON that a started program prints in the end."""
    output, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, errors
    return json.loads(output)


@dataclass
class Bench:
    """Fake cards and the grants of one container; `preload=False` runs programs without the library."""

    directory: Path
    preload: bool = True
    library: Path = field(default_factory=abi.library_path)
    shim: bool = False
    """The library also stands in the driver's place."""
    shares_cards_of: Bench | None = None
    """Another container of the same node."""
    environment: dict[str, str] = field(default_factory=dict)
    cards: str = INVENTORY.name
    """The inventory's file."""
    nodes: Sequence[str] = NODES
    """Device nodes that the container has."""
    driver: Mapping[str, str] = field(default_factory=dict)
    """Other values of the inventory's [driver] section."""
    multiprocessors: int = 0
    """Of each card; 0: as in the inventory."""
    container: str = ""
    """The container's name, shown as the kubelet shows it; empty: it isn't."""
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.grants = self.directory / "grants"
        self.grants.mkdir()
        self.devices = self.directory / "dev"
        self.devices.mkdir()
        for name in self.nodes:
            (self.devices / name).parent.mkdir(exist_ok=True)
            (self.devices / name).touch()
        neighbour = self.shares_cards_of
        self.state: Path = self.directory / "state" if neighbour is None else neighbour.state
        if neighbour is not None:
            return
        self.state.mkdir()
        self.control("init", str(self.state), str(self.inventory()))

    def inventory(self) -> Path:
        text = INVENTORY.with_name(self.cards).read_text()
        for key, value in self.driver.items():
            text = re.sub(rf"(?m)^{key} = .*\n", "", text)
            text = text.replace("[driver]\n", f"[driver]\n{key} = {value}\n", 1)
        if self.multiprocessors:
            text = re.sub(r"(?m)^sms = .*$", f"sms = {self.multiprocessors}", text)
        path = self.directory / "inventory.ini"
        path.write_text(text)
        return path

    def shim_library(self) -> Path:
        """A directory with what is mounted under the driver's names."""
        directory = self.directory / "shim"
        if not directory.exists():
            directory.mkdir()
            for built, name in SHIM.items():
                shutil.copy(abi.library_path().with_name(built), directory / name)
        return directory

    def mounted_driver(self) -> str:
        """What puts the driver's own libraries where only the shim looks."""
        driver = "/run/tessera/driver"
        binds = [
            f"touch {driver}/{name} && mount --bind {shlex.quote(str(FAKE / name))} {driver}/{name} && "
            for name in SHIM.values()
        ]
        return f"mkdir -p {driver} && {''.join(binds)}"

    def termination_log(self) -> str:
        """What mounts the file by whose path a container's name is known."""
        pod = "0f8e2b1c-5d6a-4e3f-9b7a-1c2d3e4f5a6b"
        path = self.directory / "pods" / pod / "containers" / self.container / "0a1b2c3d"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return f"touch /run/log && mount --bind {shlex.quote(str(path))} /run/log && "

    def control(self, *arguments: str) -> str:
        command = [str(FAKE / "fakegpu-ctl"), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def high_water(self, card: int = 0) -> int:
        """The most bytes that the driver ever held on the card."""
        return int(re.findall(r"peak (\d+)", self.control("show", str(self.state)))[card])

    def held(self, card: int = 0) -> int:
        """Bytes that the driver holds on the card now."""
        return int(re.findall(r"memory (\d+) of", self.control("show", str(self.state)))[card])

    def busy_seconds(self, card: int = 0) -> float:
        """Device time that the card has spent on kernels so far, by the driver's clock."""
        return float(re.findall(r"busy ([\d.]+) s", self.control("show", str(self.state)))[card])

    def grant(self, name: str = "grant", **values: Any) -> Path:
        """A grant's directory, made or changed as the agent does it."""
        directory = self.grants / name
        directory.mkdir(exist_ok=True)
        abi.write_limits(directory / "limits", limits(**values))
        abi.create_usage(directory / "usage")
        return directory

    def usage(self, name: str = "grant") -> abi.Usage:
        return abi.read_usage(self.grants / name / "usage")

    def command(self, words: Sequence[str | Path], environment: Mapping[str, str]) -> list[str]:
        """The program, in a mount namespace where the grants are where the library looks for them."""
        variables = {
            "LD_LIBRARY_PATH": str(self.shim_library() if self.shim else FAKE),
            "FAKEGPU_DIR": str(self.state),
            "FAKEGPU_DEV": str(self.devices),
        }
        variables |= self.environment | dict(environment)
        if self.shim:
            variables["ROADS_CUDA"] = str(self.shim_library() / "libcuda.so.1")
        if self.preload:
            variables["LD_PRELOAD"] = f"{self.library} {variables.get('LD_PRELOAD', '')}".strip()
        assignments = " ".join(f"{key}={shlex.quote(value)}" for key, value in variables.items())
        script = (
            "mount -t tmpfs none /run && mkdir -p /run/tessera/grants && "
            f"mount --bind {shlex.quote(str(self.grants))} /run/tessera/grants && "
            f"{self.termination_log() if self.container else ''}{self.mounted_driver() if self.shim else ''}"
            f"exec env {assignments} {shlex.join(map(str, words))}"
        )
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]

    def start(
        self, *words: str | Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            self.command(words, environment or {}), stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def run(
        self, *words: str | Path, environment: Mapping[str, str] | None = None, timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        command = self.command(words, environment or {})
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    def answer(self, *words: str | Path, environment: Mapping[str, str] | None = None) -> Any:
        return answer_of(self.run(*words, environment=environment))

    def python(self, script: str, *arguments: str) -> str:
        """Output of a Python program, which talks to the driver through ctypes."""
        result = self.run(sys.executable, "-c", script, *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

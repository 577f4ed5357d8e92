# SPDX-License-Identifier: Apache-2.0
"""Lays out the root of a fake NVIDIA driver, as a driver container leaves it on a node, and its state.

    python -m tests.fakegpu.driver_root --root DIR --state DIR --inventory FILE

Below DIR: libraries under their versioned names with the usual links, nvidia-smi, device nodes (which open
but do nothing: they are /dev/null by another name), and what NVML's users read of /proc and /sys. The state
directory stands for the kernel driver: whoever shall see the cards needs it as /run/fakegpu. Needs root
(mknod) and a built `make -C tests/fakegpu`. Doing it again replaces everything; a running driver keeps the
state that it has mapped.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.fakegpu.inventory import (
    Card,
    Inventory,
    InventoryError,
    compute_instance_capability,
    gpu_instance_capability,
    read_inventory,
)

BUILD = Path(__file__).parent / "build"
INVENTORIES = Path(__file__).parent / "inventories"
LIBRARIES = ("libcuda", "libnvidia-ml")
NULL_DEVICE = os.makedev(1, 3)


class DriverRootError(Exception):
    """The root can't be laid out; the message says what to do."""


def build_directory() -> Path:
    """Where the Makefile puts libraries and programs for this machine."""
    return BUILD / platform.machine()


def program(name: str) -> Path:
    """Path of nvidia-smi, fakegpu-ctl, cuda-alloc or cuda-burn."""
    path = build_directory() / name
    if not path.exists():
        raise DriverRootError(f"{path} is missing: run make -C {Path(__file__).parent}")
    return path


def library_directory(root: Path) -> Path:
    """Where a driver's libraries lie below its root."""
    return root / "usr" / "lib" / f"{platform.machine()}-linux-gnu"


def _link(target: str, link: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _copy(source: Path, target: Path) -> None:
    """By rename, so that a program that is running keeps its file."""
    temporary = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, temporary)
    temporary.chmod(0o755)
    temporary.replace(target)


def _install_files(root: Path, version: str) -> None:
    libraries = library_directory(root)
    libraries.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        built = next(build_directory().glob(f"{name}.so.[0-9]*.*"), None)
        if built is None:
            raise DriverRootError(f"{name} is not built: run make -C {Path(__file__).parent}")
        _copy(built, libraries / f"{name}.so.{version}")
        _link(f"{name}.so.{version}", libraries / f"{name}.so.1")
        _link(f"{name}.so.1", libraries / f"{name}.so")
    (root / "usr" / "bin").mkdir(parents=True, exist_ok=True)
    _copy(program("nvidia-smi"), root / "usr" / "bin" / "nvidia-smi")


def _make_node(node: Path, mode: int) -> None:
    try:
        os.mknod(node, mode | stat.S_IFCHR, NULL_DEVICE)
    except PermissionError:
        raise DriverRootError(f"making {node} needs root") from None
    node.chmod(mode)


def _capabilities(cards: tuple[Card, ...]) -> Iterator[tuple[str, int]]:
    """Path below …/capabilities and number of each right over MIG; none where no card is in MIG mode."""
    if not any(card.mig for card in cards):
        return
    yield "mig/config", 1
    yield "mig/monitor", 2
    for card in cards:
        for instance in card.instances:
            gi, ci = instance.gpu_instance, instance.compute_instance
            below = f"gpu{card.minor}/mig/gi{gi}"
            yield f"{below}/access", gpu_instance_capability(card.minor, gi)
            yield f"{below}/ci{ci}/access", compute_instance_capability(card.minor, gi, ci)


def _capability_mode(path: str) -> int:
    return 0o400 if path == "mig/config" else 0o444


def _make_nodes(root: Path, cards: tuple[Card, ...]) -> None:
    directory = root / "dev"
    directory.mkdir(parents=True, exist_ok=True)
    names = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", *(f"nvidia{card.minor}" for card in cards)]
    shutil.rmtree(directory / "nvidia-caps", ignore_errors=True)
    for stale in directory.glob("nvidia*"):
        stale.unlink()
    for name in names:
        _make_node(directory / name, 0o666)
    capabilities = dict(_capabilities(cards))
    if capabilities:
        (directory / "nvidia-caps").mkdir()
    for path, number in capabilities.items():
        _make_node(directory / "nvidia-caps" / f"nvidia-cap{number}", _capability_mode(path))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _write_proc(root: Path, inventory: Inventory) -> None:
    proc = root / "proc" / "driver" / "nvidia"
    _write(
        proc / "version",
        f"NVRM version: NVIDIA UNIX {platform.machine()} Kernel Module  {inventory.driver_version}  (fake)\n"
        "GCC version:  none\n",
    )
    _write(
        proc / "params",
        "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"
        'EnableMSI: 1\nRegistryDwords: ""\n',
    )
    for card in inventory.cards:
        _write(
            proc / "gpus" / card.pci / "information",
            f"Model: \t\t {card.name}\nIRQ:   \t\t 0\nGPU UUID: \t {card.uuid}\n"
            "Video BIOS: \t 92.00.45.00.03\nBus Type: \t PCIe\nDMA Size: \t 47 bits\n"
            f"DMA Mask: \t 0x7fffffffffff\nBus Location: \t {card.pci}\n"
            f"Device Minor: \t {card.minor}\nGPU Excluded:\t No\n",
        )


def _write_capabilities(root: Path, cards: tuple[Card, ...]) -> None:
    """What tells the capability nodes of an instance, as the driver has it in /proc."""
    proc = root / "proc" / "driver"
    shutil.rmtree(proc / "nvidia" / "capabilities", ignore_errors=True)
    minors = []
    for path, number in dict(_capabilities(cards)).items():
        _write(
            proc / "nvidia" / "capabilities" / path,
            f"DeviceFileMinor: {number}\nDeviceFileMode: {_capability_mode(path)}\nDeviceFileModify: 1\n",
        )
        minors.append(f"{path.removeprefix('mig/').replace('/mig/', '/')} {number}\n")
    _write(proc / "nvidia-caps" / "mig-minors", "".join(minors))


def _write_sys(root: Path, cards: tuple[Card, ...]) -> None:
    links = root / "sys" / "bus" / "pci" / "devices"
    links.mkdir(parents=True, exist_ok=True)
    for card in cards:
        port = card.pci_root.removeprefix("pci") + ":01.0"
        device = Path("devices") / card.pci_root / port / card.pci
        values = {
            "numa_node": f"{card.numa_node}",
            "vendor": f"0x{card.pci_device_id & 0xFFFF:04x}",
            "device": f"0x{card.pci_device_id >> 16:04x}",
            "class": "0x030200",
        }
        for name, value in values.items():
            _write(root / "sys" / device / name, value + "\n")
        _link(str(Path("../../..") / device), links / card.pci)


def install(root: Path, state: Path, inventory: Path) -> Inventory:
    """Lays out `root`, makes `state`/state for the cards of the inventory file, and returns what it read.

    Raises DriverRootError, InventoryError, OSError. Safe to repeat after a crash at any point.
    """
    cards = read_inventory(inventory)
    _install_files(root, cards.driver_version)
    _make_nodes(root, cards.cards)
    _write_proc(root, cards)
    _write_capabilities(root, cards.cards)
    _write_sys(root, cards.cards)
    state.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        [program("fakegpu-ctl"), "init", state, inventory], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        raise DriverRootError(made.stderr.strip())
    return cards


def main() -> int:
    parser = argparse.ArgumentParser(description="Lay out the root of a fake NVIDIA driver and its state.")
    parser.add_argument("--root", type=Path, required=True, help="where the driver's files go")
    parser.add_argument("--state", type=Path, required=True, help="stands for the kernel driver")
    parser.add_argument("--inventory", type=Path, default=INVENTORIES / "two-cards.ini", help="the cards")
    arguments = parser.parse_args()
    try:
        inventory = install(arguments.root, arguments.state, arguments.inventory)
    except (DriverRootError, InventoryError, OSError) as error:
        print(f"driver_root: {error}", file=sys.stderr)
        return 1
    for card in inventory.cards:
        print(f"/dev/nvidia{card.minor}  {card.uuid}  {card.name}")
        for instance in card.instances:
            print(f"    {instance.uuid}  {instance.profile}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

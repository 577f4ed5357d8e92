# SPDX-License-Identifier: Apache-2.0
"""The driver's root and the inventories it is made from."""

from __future__ import annotations

import platform
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakegpu.driver_root import library_directory, program
from tests.fakegpu.inventory import InventoryError, read_inventory
from tests.integration.fakegpu.conftest import INVENTORIES, Driver

CARD = (
    "[card]\nname = one\nuuid = GPU-00000000-0000-0000-0000-000000000001\nmemory = 1Gi\nsms = 1\n"
    "compute_capability = 8.0\npci = 0000:01:00.0\n"
)
DRIVER = "[driver]\nversion = 570.124.06\n"


def test_files_are_where_a_real_driver_has_them(driver: Driver) -> None:
    libraries = library_directory(driver.root)
    for name in ("libcuda", "libnvidia-ml"):
        assert (libraries / f"{name}.so.570.124.06").is_file()
        assert str((libraries / f"{name}.so.1").readlink()) == f"{name}.so.570.124.06"
        assert str((libraries / f"{name}.so").readlink()) == f"{name}.so.1"
    for node in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1"):
        mode = (driver.root / "dev" / node).stat().st_mode
        assert stat.S_ISCHR(mode)
        assert stat.S_IMODE(mode) == 0o666
    proc = driver.root / "proc" / "driver" / "nvidia"
    assert "570.124.06" in (proc / "version").read_text()
    assert "Device Minor: \t 1" in (proc / "gpus" / "0000:41:00.0" / "information").read_text()
    device = driver.root / "sys" / "bus" / "pci" / "devices" / "0000:41:00.0"
    assert (device / "numa_node").read_text() == "1\n"
    assert (device / "vendor").read_text() == "0x10de\n"
    assert "pci0000:40" in device.resolve().parts
    assert stat.S_IMODE((driver.state / "state").stat().st_mode) == 0o666


def test_again_with_other_cards_replaces_everything(make_driver: Callable[[str], Driver]) -> None:
    make_driver("four-cards.ini")
    driver = make_driver("two-cards.ini")
    assert sorted(path.name for path in (driver.root / "dev").glob("nvidia[0-9]*")) == ["nvidia0", "nvidia1"]
    assert driver.nvml("n.nvmlDeviceGetCount()") == 2


def test_the_command_says_what_it_made(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fakegpu.driver_root"),
            *("--root", str(tmp_path / "root"), "--state", str(tmp_path / "state")),
            *("--inventory", str(INVENTORIES / "two-cards.ini")),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout.splitlines()[1].startswith("/dev/nvidia1  GPU-b7d3a850")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DRIVER, "no [card] section"),
        (CARD, "[driver] names no version"),
        (DRIVER + "nonsense = 1\n", "line 3: unknown key"),
        ("version = 1\n", "line 1: neither"),
        (DRIVER + "[card]\nmemory = 24G\n", "line 4: this value does not fit"),
        (DRIVER + "[card]\nmemory = -1\n", "line 4: this value does not fit"),
        (DRIVER + "[card]\nmemory = 99999999Ti\n", "line 4: this value does not fit"),
        (DRIVER + "[card]\nname = x\nuuid = GPU-1\n", "uuid must be"),
        (DRIVER + CARD * 17, "too many cards"),
        (DRIVER + CARD.replace("sms = 1\n", ""), "needs memory, sms"),
    ],
    ids=lambda value: None if "\n" in value else value[:20],
)
def test_bad_inventories_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.ini"
    path.write_text(text)
    done = subprocess.run(
        [program("fakegpu-ctl"), "init", tmp_path, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("text", ["nonsense", DRIVER + "[card]\nname = x\n", "[driver]\n"])
def test_python_refuses_them_too(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.ini"
    path.write_text(text)
    with pytest.raises(InventoryError, match=r"bad\.ini"):
        read_inventory(path)


@pytest.mark.parametrize("path", sorted(INVENTORIES.glob("*.ini")), ids=lambda path: path.name)
def test_the_inventories_here_are_good_and_distinct(path: Path) -> None:
    cards = read_inventory(path).cards
    assert len({card.uuid for card in cards}) == len(cards)
    assert len({card.pci for card in cards}) == len(cards)


def test_libraries_run_on_old_systems_and_export_the_interface_only() -> None:
    for name, prefix in (("libcuda", "cu"), ("libnvidia-ml", "nvml")):
        (library,) = program("fakegpu-ctl").parent.glob(f"{name}.so.[0-9]*.*")
        dump = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
        symbols = [line.split() for line in dump.splitlines()]
        assert [parts[2] for parts in symbols if len(parts) == 3 and not parts[2].startswith(prefix)] == []
        versions = {parts[-1].rsplit("@", 1)[-1] for parts in symbols if "@GLIBC_" in parts[-1]}
        assert all(
            tuple(map(int, version.removeprefix("GLIBC_").split("."))) <= (2, 17) for version in versions
        )
    assert platform.machine() in str(program("fakegpu-ctl"))

from __future__ import annotations

from pathlib import Path

import pytest

from dra_driver.cards.sysfs import Location, driven, locate

BDF = "0000:41:00.0"


def device(root: Path, chain: str, numa: str | None) -> None:
    real = root / "devices" / chain
    real.mkdir(parents=True)
    if numa is not None:
        (real / "numa_node").write_text(numa)
    link = root / "bus/pci/devices" / BDF
    link.parent.mkdir(parents=True)
    link.symlink_to(f"../../../devices/{chain}")


@pytest.mark.parametrize(
    ("chain", "numa", "expected"),
    [
        pytest.param(
            f"pci0000:40/0000:40:01.0/{BDF}", "1\n", Location("pci0000:40", 1), id="behind-a-bridge"
        ),
        pytest.param(f"pci0000:40/{BDF}", "0\n", Location("pci0000:40", 0), id="at-the-root"),
        pytest.param(f"pci0000:40/{BDF}", "-1\n", Location("pci0000:40", None), id="no-numa"),
        pytest.param(f"pci0000:40/{BDF}", None, Location("pci0000:40", None), id="no-numa-file"),
        pytest.param(f"pci0000:40/{BDF}", "many", Location("pci0000:40", None), id="numa-text"),
        pytest.param(f"platform/soc/{BDF}", "0", Location(None, 0), id="not-pci"),
    ],
)
def test_locate(tmp_path: Path, chain: str, numa: str | None, expected: Location) -> None:
    device(tmp_path, chain, numa)
    assert locate(tmp_path, BDF) == expected


def test_unknown_device(tmp_path: Path) -> None:
    assert locate(tmp_path, BDF) == Location(None, None)


def test_what_the_kernel_driver_has(tmp_path: Path) -> None:
    assert driven(tmp_path) == 0
    directory = tmp_path / "bus/pci/drivers/nvidia"
    directory.mkdir(parents=True)
    assert driven(tmp_path) == 0
    for name in ("0000:3b:00.0", "0000:af:00.0", "bind", "module", "new_id", "uevent"):
        (directory / name).touch()
    assert driven(tmp_path) == 2
    (directory / "0000:3b:00.4/physfn").mkdir(parents=True)  # a virtual function
    assert driven(tmp_path) == 2

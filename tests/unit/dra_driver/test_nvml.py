"""NVML that can't be asked: what the rest of the agent makes of it depends on which error it is."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from dra_driver.cards.nvml import DriverReplacedError, Nvml, NvmlError


def failing(number: int) -> Callable[..., Any]:
    def call(*_args: Any) -> None:
        raise pynvml.NVMLError(number)

    return call


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The installed driver's, whose kernel part is of another version than what this process has loaded."""
    path = tmp_path / "libnvidia-ml.so.570.124.06"
    path.touch()
    monkeypatch.setattr(ctypes, "CDLL", lambda _path: object())
    monkeypatch.setattr(pynvml, "nvmlInit", failing(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    return path


class Root:
    """Where the driver is looked for."""

    def __init__(self, path: Path) -> None:
        self.found: Path | None = path
        self.nvml = Nvml(library=lambda: self.found, sys_root=path.parent)


def test_a_driver_that_was_replaced_takes_a_new_process(library: Path) -> None:
    root = Root(library)
    with pytest.raises(NvmlError, match="can't be used"):
        root.nvml.read()
    root.found = library.with_name("libnvidia-ml.so.580.65.06")
    root.found.touch()
    with pytest.raises(DriverReplacedError, match=r"libnvidia-ml\.so\.580\.65\.06 is installed now"):
        root.nvml.read()


def test_another_file_of_the_same_name_is_another_driver(library: Path) -> None:
    root = Root(library)
    with pytest.raises(NvmlError):
        root.nvml.read()
    new = library.with_name("new")
    new.touch()
    os.utime(new, ns=(1, 1))
    new.replace(library)
    with pytest.raises(DriverReplacedError):
        root.nvml.read()


@pytest.mark.parametrize("is_there", [True, False], ids=["half-installed", "taken-away"])
def test_a_new_process_is_of_no_use_where_it_would_find_the_same(library: Path, is_there: bool) -> None:
    """Or it would be started again and again, and no Pod could be torn down."""
    root = Root(library)
    for _ in range(2):
        with pytest.raises(NvmlError, match="can't be used"):
            root.nvml.read()
        root.found = library if is_there else None


def test_a_library_that_vanishes_while_it_is_looked_for(library: Path) -> None:
    def vanished() -> Path:
        raise FileNotFoundError(2, "No such file or directory", str(library))

    with pytest.raises(NvmlError, match=r"can't be looked for: .*libnvidia-ml\.so\.570"):
        Nvml(library=vanished, sys_root=library.parent).read()


def test_a_version_that_is_no_text(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", b"\xff".decode)
    with pytest.raises(NvmlError, match="stopped answering"):
        Root(library).nvml.read()

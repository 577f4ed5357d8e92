"""NVIDIA's own headers, of the newest CUDA 12 and 13, in the environment that `make clients` makes."""

from __future__ import annotations

from pathlib import Path

import pytest

CLIENTS = Path(__file__).resolve().parents[2] / ".venv" / "clients"
RELEASES = ("12", "13")
_FOLDERS = {
    ("cudaTypedefs.h", "12"): "cuda_runtime/include",
    ("nvml.h", "12"): "nvml_dev/include",
    ("cudaTypedefs.h", "13"): "cu13/include",
    ("nvml.h", "13"): "cu13/include",
}


def header(name: str, release: str) -> str:
    """The text of `cudaTypedefs.h` or `nvml.h`. Fails the test where it is missing."""
    folder = f"lib/python3.*/site-packages/nvidia/{_FOLDERS[name, release]}"
    found = next(CLIENTS.glob(f"{folder}/{name}"), None)
    if found is None:
        pytest.fail(f"{CLIENTS / folder / name} is missing: `make clients` makes it")
    return found.read_text()

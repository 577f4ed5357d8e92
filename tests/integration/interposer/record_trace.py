# SPDX-License-Identifier: Apache-2.0
"""Records what the agent's loop sees of a card, for tests/unit/dra_driver/test_traces.py.

    python -m tests.integration.interposer.record_trace FILE SECONDS NAME=CORES:MS[:PROCESSES] …

Kernels of so many ms in each container; the first two seconds are left out. With the looks goes what each
container had in truth, by its kernels.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from dra_driver.monitor import monitor
from dra_driver.monitor.control import Memory, Snapshot, Terms, control
from tests.integration.interposer.virtual import Node, closing


def recorded(directory: Path, seconds: float, loads: dict[str, list[str]]) -> dict[str, Any]:
    looks: list[Snapshot] = []

    def recording(memory: Memory, snapshot: Snapshot) -> tuple[Memory, dict[str, Terms]]:
        looks.append(snapshot)
        return control(memory, snapshot)

    monitor.control = recording  # type: ignore[attr-defined]
    with closing(Node(directory, directory, agent=True)) as node:
        for name, (cores, kernel_ms, *processes) in loads.items():
            node.container(name, int(cores))
            node.burn(name, float(kernel_ms), int(*processes or ["1"]))
        node.pass_time(2)
        looks.clear()
        shares = node.shares(seconds)
    return {"shares": shares, "looks": [_plain(dataclasses.asdict(look)) for look in looks]}


def _plain(look: dict[str, Any]) -> dict[str, Any]:
    """In words that JSON has."""
    for grant in look["grants"]:
        grant["policy"] = int(grant["policy"])
        grant["spans"] = [[span["slot"], span["start_ns"], span["end_ns"]] for span in grant["spans"]]
    return look


def main() -> None:
    path, seconds, *words = sys.argv[1:]
    loads = {name: load.split(":") for name, _, load in (word.partition("=") for word in words)}
    with tempfile.TemporaryDirectory() as directory:
        trace = recorded(Path(directory), float(seconds), loads)
    Path(path).write_text(json.dumps(trace, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()

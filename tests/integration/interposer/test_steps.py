# SPDX-License-Identifier: Apache-2.0
"""A process is stopped, or killed, at any instruction of what it does to a usage file; the others go on.

`steps.c` is judge and victim, built from the library's own sources and stepped through by ptrace.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from interposer import abi
from tests.integration.interposer.bench import ROOT

SOURCES = ROOT / "interposer" / "src"
NEEDED = ("account", "region", "region_file", "usage", "log")
ENDS = ("kill", "on", "full")
SCENES = {"change": 5, "release": 1, "sweep": 1, "register": 31, "register-late": 31, "lost": 31}
"""Every how many instructions it is stopped: to come to the hundredth takes a hundred steps. The three ends
begin at different ones."""
ROWS = [
    pytest.param(scene, end, id=f"{scene}-{end}")
    for scene in SCENES
    for end in ENDS
    # Who has lost his slot still holds memory of which the others can't know, so nothing is full then.
    if (scene, end) != ("lost", "full")
]


@pytest.fixture(scope="session")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if platform.machine() != "x86_64":
        pytest.skip("stepped through, a load and store exclusive of another machine never comes to an end")
    program = tmp_path_factory.mktemp("programs") / "steps"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17"]
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
    flags += [f"-I{SOURCES}", f"-I{SOURCES.parent / 'include'}"]
    sources = [Path(__file__).with_name("steps.c"), *(SOURCES / f"{name}.c" for name in NEEDED)]
    subprocess.run([*compiler, *flags, *sources, "-o", program], check=True)
    return program


@pytest.mark.parametrize(("scene", "end"), ROWS)
def test_who_is_stopped_holds_nobody_up(tmp_path: Path, steps: Path, scene: str, end: str) -> None:
    """Whatever the stopped one holds is known to the granule; the rest is others', at once, and no more."""
    usage = tmp_path / "usage"
    abi.create_usage(usage)
    words = [str(steps), str(usage), scene, end, str(ENDS.index(end)), str(SCENES[scene])]
    result = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert int(result.stdout) > 100

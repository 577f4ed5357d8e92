# SPDX-License-Identifier: Apache-2.0
"""Containers as users have them, several of one grant: with PIDs of their own, as any user, all read-only."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.interposer.bench import FAKE, HANGS, MI, Bench
from tests.integration.interposer.test_memory import OUT_OF_MEMORY
from tests.integration.interposer.test_views import NVML

LIMIT, CONTEXT, BLOCK = 100 * MI, 4 * MI, 30 * MI
OWN_PIDS = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""As a container without hostPID: the program's PID there is 1 in each."""


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    bench = make_bench(driver={"context": "4Mi"})
    bench.grant(memory=LIMIT)
    return bench


def holding(bench: Bench, roads: Path, block: int) -> tuple[subprocess.Popen[str], int]:
    """A container that goes on, and what it holds."""
    process = bench.start(*OWN_PIDS, roads, "link", "fill", str(block))
    assert process.stdout is not None
    return process, int(json.loads(process.stdout.readline())["held"])


def test_the_same_pid_in_each(bench: Bench, roads: Path) -> None:
    """They are told apart; who ends gives back what was his, and nothing else."""
    first, held = holding(bench, roads, BLOCK)
    _, rest = holding(bench, roads, 2 * MI)
    assert (held, rest) == (3 * BLOCK, 2 * MI)
    sizes = [(each.memory_bytes, each.context_bytes) for each in bench.usage().processes]
    assert sizes == [(held, CONTEXT), (rest, CONTEXT)]
    assert bench.held() == held + rest + 2 * CONTEXT
    first.kill()  # and by it the program, a moment later
    deadline = time.monotonic() + HANGS
    while len(bench.usage().processes) != 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    room = LIMIT - rest - 2 * CONTEXT
    found = bench.answer(*OWN_PIDS, roads, "link", "edge", "plain")
    assert (found["held"], found["code"], found["free_after"]) == (room, OUT_OF_MEMORY, room)


def test_nvml_shows_what_the_other_one_holds(bench: Bench, roads: Path) -> None:
    """Whose PID can't be seen is shown as 0; it is no process of this container."""
    holding(bench, roads, BLOCK)
    (found, _) = bench.answer(*OWN_PIDS, sys.executable, "-c", NVML)
    assert found["memory"] == [LIMIT, 3 * BLOCK + CONTEXT, LIMIT - 3 * BLOCK - CONTEXT]
    assert found["processes"] == found["details"][0] == [[0, 3 * BLOCK + CONTEXT]]


def alone(bench: Bench, program: Path, user: str) -> str:
    """What runs it where there is nothing but its files, and nothing can be written."""
    driver = bench.shim_library() if bench.shim else FAKE
    files = [bench.library, driver / "libcuda.so.1", driver / "libnvidia-ml.so.1", program]
    own = {
        "LD_PRELOAD": f"/run/own/{bench.library.name}",
        "LD_LIBRARY_PATH": "/run/own",
        "FAKEGPU_DIR": "/run/state",
        "FAKEGPU_DEV": "/run/dev",
    }
    return (
        f"mkdir /run/own /run/state /run/dev && cp {shlex.join(map(str, files))} /run/own/ && "
        f"mount --bind {shlex.quote(str(bench.state))} /run/state && "
        f"mount --bind {shlex.quote(str(bench.devices))} /run/dev && "
        f"mount -t tmpfs -o ro none /tmp && mount -o remount,ro,bind /run && "
        f"exec {user} env {' '.join(f'{key}={value}' for key, value in own.items())} /run/own/{program.name}"
    )


ROOT, ANY_USER = "", "setpriv --reuid=12345 --regid=12345 --clear-groups --no-new-privs"


@pytest.mark.parametrize("shim", [False, True], ids=["preload", "shim"])
def test_any_user_beside_root_with_nothing_to_write_to(
    make_bench: Callable[..., Bench], roads: Path, shim: bool
) -> None:
    bench = make_bench(shim=shim, driver={"context": "4Mi"})
    bench.grant(memory=LIMIT)
    for path in (bench.state, *bench.state.iterdir(), *bench.devices.iterdir()):
        path.chmod(0o777)
    for user, other in ((ROOT, ANY_USER), (ANY_USER, ROOT)):
        holder = bench.start("sh", "-c", f"{alone(bench, roads, user)} link fill {BLOCK}")
        assert holder.stdout is not None
        assert json.loads(holder.stdout.readline()) == {"held": 3 * BLOCK, "code": OUT_OF_MEMORY}
        room = LIMIT - 3 * BLOCK - 2 * CONTEXT
        found = bench.answer("sh", "-c", f"{alone(bench, roads, other)} gpa2 edge plain")
        assert (found["held"], found["code"], found["free_after"]) == (room, OUT_OF_MEMORY, room)
        holder.kill()
        holder.wait()
        found = bench.answer("sh", "-c", f"{alone(bench, roads, other)} link edge async")
        assert (found["held"], found["code"]) == (LIMIT - CONTEXT, OUT_OF_MEMORY)

# SPDX-License-Identifier: Apache-2.0
"""What a forked child is answered, whichever lock of the library a thread of its parent had just then."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.interposer.bench import MI, Bench, answer_of
from tests.integration.interposer.conftest import compiled


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(Path(__file__).with_name("forks.c"), tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("way", ["preload", "shim"])
def test_a_child_waits_for_no_thread_of_its_parent(
    make_bench: Callable[..., Bench], forks: Path, way: str
) -> None:
    bench = make_bench(shim=way == "shim")
    bench.grant(memory=300 * MI, cores=50)
    assert answer_of(bench.run(forks, "300", timeout=300)) == {"forks": 300}


# The directory's reader is held up at a grant that is a pipe, which in the end is none.
READS = """
import ctypes, os, signal, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
codes = []
def reads():
    tasks = "/proc/self/task"
    return any(open(f"{tasks}/{task}/syscall").read().startswith("257 ") for task in os.listdir(tasks))
def wait_for(condition):
    while not condition(): time.sleep(0.01)
thread = threading.Thread(target=lambda: codes.append(cuda.cuInit(0)))
thread.start()
wait_for(reads)
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if cuda.cuInit(0) == 802 else 4)
ended = 0
while thread.is_alive() or ended == 0:
    try:
        os.close(os.open("/run/tessera/grants/grant/limits", os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        pass  # nobody reads just now
    time.sleep(0.01)
    if ended == 0: ended, status = os.waitpid(child, os.WNOHANG)
print(codes, os.waitstatus_to_exitcode(status))
"""


def test_a_child_of_a_process_that_just_reads_its_grants_reads_them_anew(bench: Bench) -> None:
    (bench.grants / "grant").mkdir()
    os.mkfifo(bench.grants / "grant" / "limits")
    result = bench.run(sys.executable, "-c", READS)
    assert (result.returncode, result.stdout) == (0, "[802] 0\n"), result.stderr

# SPDX-License-Identifier: Apache-2.0
"""Programs without CUDA in a container with a share: the library is in them too, and they notice nothing.

It is preloaded as in a container, by /etc/ld.so.preload, which holds for setuid programs as well.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.interposer.bench import MI, Bench

PROBE = """
import json, os, subprocess, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
libraries = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
found = {
    "fds": [os.readlink(f"/proc/self/fd/{fd}").partition(":")[0] for fd in (0, 1, 2)],
    "open": sum(os.path.exists(f"/proc/self/fd/{fd}") for fd in range(3, 1024)),
    "status": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "Threads", "Umask")],
    "uid": status["Uid"].strip(),
    # libdl is part of libc since glibc 2.34, and what has its name is empty.
    "libraries": sorted(name for name in libraries if "tessera" not in name and "libdl" not in name),
    "preloaded": any("libtessera" in name for name in libraries),
    "environment": dict(os.environ),
}
child = os.fork()
if child == 0:
    os.execl("/bin/sh", "sh", "-c", "exit 7")
found["child"] = os.waitpid(child, 0)[1]
shell = subprocess.run("echo $(echo inner) | cat; true &", shell=True, capture_output=True, text=True)
found["shell"] = [shell.stdout, shell.stderr]
print(json.dumps(found))
"""
LOADED = "cp -a /etc /run/etc && echo {library} > /run/etc/ld.so.preload && mount --bind /run/etc /etc && "
READ_ONLY = "mount -t tmpfs -o ro none /tmp && "
USER = "setpriv --reuid=12345 --regid=12345 --clear-groups env HOME=/nonexistent "


def ran(bench: Bench, words: str, *, before: str = "", preloaded: bool) -> subprocess.CompletedProcess[str]:
    """In a mount namespace with grants, where /run is empty but for them."""
    bench.preload = False
    library = "/run/libtessera.so"  # in no folder that a user can't look into
    load = LOADED.format(library=library) if preloaded else ""
    script = f"cp {bench.library} {library} && {before}{load}exec env -i PATH=/usr/bin:/bin {words}"
    return bench.run("sh", "-c", script)


def probed(bench: Bench, words: str, **how: str) -> tuple[dict[str, object], dict[str, object]]:
    """What the probe finds without the library, and with it."""
    results = [ran(bench, words, preloaded=preloaded, **how) for preloaded in (False, True)]
    assert [(result.returncode, result.stderr) for result in results] == [(0, ""), (0, "")]
    bare, loaded = (json.loads(result.stdout) for result in results)
    assert (bare.pop("preloaded"), loaded.pop("preloaded")) == (False, True)
    return bare, loaded


PYTHON = f"/usr/bin/python3 -I -S -c {shlex.quote(PROBE)}"


@pytest.mark.parametrize(
    ("words", "before"),
    [(PYTHON, ""), (PYTHON, READ_ONLY), (USER + PYTHON, ""), (USER + PYTHON, READ_ONLY)],
    ids=["root", "read-only-tmp", "any-user", "any-user-read-only-tmp"],
)
def test_nothing_is_different(bench: Bench, words: str, before: str) -> None:
    bench.grant(memory=64 * MI)
    bare, loaded = probed(bench, words, before=before)
    assert loaded == bare
    assert bench.usage().processes == ()


def test_setuid(bench: Bench) -> None:
    """Such a program is started with care: it takes no variables, but what /etc/ld.so.preload says."""
    bench.grant(memory=64 * MI)
    before = "cp /usr/bin/env /run/env && chmod 4755 /run/env && "
    words = f"setpriv --reuid=12345 --regid=12345 --clear-groups /run/env -i {PYTHON}"
    bare, loaded = probed(bench, words, before=before)
    assert loaded == bare
    assert bare["uid"] == "12345\t0\t0\t0"


def test_a_broken_grant_is_nothing_to_them(bench: Bench) -> None:
    (bench.grant(memory=64 * MI) / "limits").write_bytes(b"broken")
    bare, loaded = probed(bench, PYTHON)
    assert loaded == bare


@pytest.mark.parametrize(
    "words", ["sh -c 'exec sh -c \"exec true\"'", "bash -c 'for i in 1 2 3; do (exit $i); done; exit 4'"]
)
def test_exit_statuses(bench: Bench, words: str) -> None:
    bench.grant(memory=64 * MI)
    found = [ran(bench, words, preloaded=preloaded) for preloaded in (False, True)]
    assert found[0].returncode == found[1].returncode
    assert (found[1].stdout, found[1].stderr) == ("", "")


def test_the_probe_would_notice(bench: Bench, tmp_path: Path) -> None:
    """A library that opens a file, ignores a signal and changes the umask when it is loaded."""
    source = tmp_path / "bad.c"
    source.write_text("""
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
__attribute__((constructor)) static void meddle(void) {
  open("/dev/null", O_RDONLY);
  signal(SIGHUP, SIG_IGN);
  umask(0);
}
""")
    bad = tmp_path / "libtessera.so"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17", "-shared", "-fPIC"]
    subprocess.run([*compiler, source, "-o", bad], check=True)
    bench.library = bad
    bench.grant(memory=64 * MI)
    bare, loaded = probed(bench, PYTHON)
    assert {name for name in bare if bare[name] != loaded[name]} >= {"open", "status"}

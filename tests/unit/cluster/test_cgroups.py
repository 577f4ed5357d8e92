"""Finding cgroup hierarchies in /proc/self/mountinfo."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import cgroups
from tests.cluster.cgroups import Hierarchy

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1 = """
22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:3 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
ROOT = Path("/sys/fs/cgroup")


@pytest.mark.parametrize(
    ("mountinfo", "expected", "unified"),
    [
        pytest.param(V2, [Hierarchy(ROOT, 2)], True, id="v2"),
        pytest.param(
            V1.strip(),
            [
                Hierarchy(ROOT / "cpu,cpuacct", 1, ("cpu", "cpuacct")),
                Hierarchy(ROOT / "cpuset", 1, ("cpuset",)),
                Hierarchy(ROOT / "systemd", 1, ("name=systemd",)),
                Hierarchy(ROOT / "unified", 2),
            ],
            False,
            id="v1 with an empty v2 beside it",
        ),
        pytest.param(
            V2 + "\n77 23 0:26 /a/b /mnt/part rw - cgroup2 cgroup2 rw",
            [Hierarchy(ROOT, 2)],
            True,
            id="a bind mount of a part is not a hierarchy",
        ),
        pytest.param(
            V2.replace("/sys/fs/cgroup", r"/mnt/with\040space"),
            [Hierarchy(Path("/mnt/with space"), 2)],
            True,
            id="escaped path",
        ),
    ],
)
def test_hierarchies(mountinfo: str, expected: list[Hierarchy], unified: bool) -> None:
    found = cgroups.hierarchies(mountinfo)
    assert found == expected
    assert cgroups.unified(found) is unified

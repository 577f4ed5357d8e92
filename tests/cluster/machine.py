"""What this machine allows, looked up once."""

from __future__ import annotations

import functools
import re
import resource
import subprocess
from pathlib import Path

from tests.cluster import cgroups
from tests.cluster.configuration import Machine

CAP_SYS_RESOURCE = 24


@functools.cache
def probe() -> Machine:
    status = Path("/proc/self/status").read_text()
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    capabilities = int(effective.group(1), 16) if effective else 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    nat = subprocess.run(
        ["unshare", "--net", "iptables", "-t", "nat", "-N", "probe"], capture_output=True, check=False
    )
    return Machine(
        cgroup_v2=cgroups.unified(cgroups.hierarchies()),
        sys_resource=bool(capabilities >> CAP_SYS_RESOURCE & 1),
        open_files=1_000_000 if hard == resource.RLIM_INFINITY else hard,
        nat=nat.returncode == 0,
    )

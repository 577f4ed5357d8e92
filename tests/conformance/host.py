"""One node, as a driver sees it: its directories, its Node object, its identity towards the API server.

Everything lies below one directory with a short name: a Unix socket's path has at most 107 bytes.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from kube import paths
from kube.client import Client
from kube.errors import AlreadyExists
from tests.conformance.control_plane import HOST, ControlPlane

NAMESPACE = "drivers"
_CLUSTER_ADMIN = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "drivers"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [
        {
            "kind": "Group",
            "apiGroup": "rbac.authorization.k8s.io",
            "name": f"system:serviceaccounts:{NAMESPACE}",
        }
    ],
}


@dataclass(frozen=True)
class Host:
    """A node's name and root directory; made by `make`."""

    name: str
    root: Path

    @property
    def registrations(self) -> Path:
        """Where the kubelet looks for sockets."""
        return self.root / "kubelet/plugins_registry"

    @property
    def plugins(self) -> Path:
        """Where drivers have their own directories: survives a reboot."""
        return self.root / "kubelet/plugins"

    @property
    def cdi(self) -> Path:
        """Where the container runtime looks for CDI documents: a reboot empties it."""
        return self.root / "cdi"

    @property
    def run(self) -> Path:
        """Stands for /run: a reboot empties it."""
        return self.root / "run"

    @property
    def state(self) -> Path:
        """Stands for /var/lib: survives a reboot."""
        return self.root / "state"

    @property
    def service_account(self) -> Path:
        """What a Pod has at /var/run/secrets/kubernetes.io/serviceaccount."""
        return self.root / "serviceaccount"

    @property
    def user(self) -> str:
        """How the API server names the node's driver."""
        return f"system:serviceaccount:{NAMESPACE}:{self.name}"

    def files(self) -> set[str]:
        """All that a driver has made on the node, relative to the root.

        Not what lies directly in its own directory: sockets, locks, and a file for all claims, if it has one.
        By os.walk, which passes over what the driver removes meanwhile.
        """
        found = (
            Path(where, name)
            for directory in (self.plugins, self.cdi, self.run, self.state)
            for where, *names in os.walk(directory)
            for name in chain(*names)
            if directory != self.plugins or len(Path(where).relative_to(self.plugins).parts) > 1
        )
        return {str(path.relative_to(self.root)) for path in found}

    def cdi_devices(self) -> set[str]:
        """Every name that a container could ask for, "vendor/class=device"."""
        names = set()
        for path in self.cdi.glob("*"):
            if path.suffix in (".json", ".yaml"):
                try:
                    document: dict[str, Any] = yaml.safe_load(path.read_bytes())
                except FileNotFoundError:  # the driver has removed it meanwhile
                    continue
                names |= {f"{document['kind']}={device['name']}" for device in document["devices"]}
        return names


async def make(plane: ControlPlane, client: Client, name: str, root: Path) -> Host:
    """The directories, the Node, and a service account that may do everything, with its token."""
    host = Host(name, root)
    for directory in (host.registrations, host.plugins, host.cdi, host.run, host.state, host.service_account):
        directory.mkdir(parents=True)
    await client.create(paths.nodes(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    for path, body in (
        (paths.namespaces(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", _CLUSTER_ADMIN),
    ):
        try:
            await client.create(path, body)
        except AlreadyExists:
            continue
    accounts = f"{paths.namespace(NAMESPACE)}/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await client.create(accounts, account)
    wish = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 24 * 3600},
    }
    token = (await client.create(f"{accounts}/{name}/token", wish))["status"]["token"]
    (host.service_account / "token").write_text(token)
    (host.service_account / "namespace").write_text(NAMESPACE)
    (host.service_account / "ca.crt").write_bytes(plane.credentials.file("ca.crt").read_bytes())
    return host


def in_cluster(
    plane: ControlPlane, host: Host, command: Sequence[str], *, volatile: bool = False
) -> tuple[list[str], dict[str, str]]:
    """argv and environment of a command that finds the API server as in a Pod, with the node's account.

    It runs in a mount namespace of its own, whose /run is empty but for that account. `volatile`: what a
    reboot empties is a tmpfs, as on a real node, and nobody outside sees what is written there.
    """
    tmpfs = "mount -t tmpfs -o mode=755 none"
    mounts = ["/run", *((str(host.cdi), str(host.run)) if volatile else ())]
    account = "/var/run/secrets/kubernetes.io"
    script = " && ".join(
        [
            *(f"{tmpfs} {shlex.quote(path)}" for path in mounts),
            f'mkdir -p {account} && ln -s "$0" {account}/serviceaccount && exec "$@"',
        ]
    )
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    return [*argv, str(host.service_account), *command], {
        "KUBERNETES_SERVICE_HOST": HOST,
        "KUBERNETES_SERVICE_PORT": str(plane.port),
    }

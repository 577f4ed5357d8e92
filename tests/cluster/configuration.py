"""Flags and configuration files of the components: pure functions of where things lie and what the machine
allows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from tests.cluster import network
from tests.cluster.credentials import Credentials, node_name

CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
CONTAINERD_ROOT = Path("/var/lib/containerd")
ETCD = "http://127.0.0.1:2379"
ETCD_PEERS = "http://127.0.0.1:2380"
FAKE_DRIVER = "/run/fakegpu"
# By minor of Kubernetes: what Tessera uses and is off there. kind-configs/ says the same to kind, and why.
NEEDED_GATES: Mapping[int, Mapping[str, bool]] = {
    35: {"DRAConsumableCapacity": True, "DRADeviceTaints": True, "ResourceHealthStatus": True}
}


@dataclass(frozen=True)
class Machine:
    """What the kernel and our own privileges allow; see machine.py."""

    cgroup_v2: bool
    sys_resource: bool  # CAP_SYS_RESOURCE: raising limits, lowering oom_score_adj
    open_files: int  # the hard limit
    nat: bool  # iptables NAT works in a network namespace


@dataclass(frozen=True)
class Settings:
    """What a person chooses about a cluster's components."""

    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # component → more flags
    kubelet: Mapping[str, Any] = field(default_factory=dict)  # KubeletConfiguration fields

    def on(self, minor: int) -> Self:
        """For a Kubernetes of that minor, with the gates that it needs; what a person chose wins."""
        return replace(self, feature_gates={**NEEDED_GATES.get(minor, {}), **self.feature_gates})


def _pairs(values: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={str(value).lower()}" for name, value in sorted(values.items()))


def _gates(settings: Settings) -> list[str]:
    return [f"--feature-gates={_pairs(settings.feature_gates)}"] if settings.feature_gates else []


def etcd(data: Path, clients: str = ETCD, peers: str = ETCD_PEERS) -> list[str]:
    return [
        f"--data-dir={data}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(
    credentials: Credentials, settings: Settings, *, etcd: str = ETCD, port: int = network.API_PORT
) -> list[str]:
    file = credentials.file
    runtime = [f"--runtime-config={_pairs(settings.runtime_config)}"] if settings.runtime_config else []
    return [
        f"--etcd-servers={etcd}",
        "--bind-address=0.0.0.0",
        f"--advertise-address={network.address(0)}",
        f"--secure-port={port}",
        f"--tls-cert-file={file('apiserver.crt')}",
        f"--tls-private-key-file={file('apiserver.key')}",
        f"--client-ca-file={file('ca.crt')}",
        # The front of an aggregated API server; without it every component complains each minute.
        f"--requestheader-client-ca-file={file('ca.crt')}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--service-cluster-ip-range={network.SERVICES}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={file('sa.pub')}",
        f"--service-account-signing-key-file={file('sa.key')}",
        f"--kubelet-certificate-authority={file('ca.crt')}",
        f"--kubelet-client-certificate={file('kubelet-client.crt')}",
        f"--kubelet-client-key={file('kubelet-client.key')}",
        "--kubelet-preferred-address-types=InternalIP",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        *runtime,
        *_gates(settings),
    ]


def controller_manager(credentials: Credentials, settings: Settings) -> list[str]:
    kubeconfig = credentials.file("controller-manager.conf")
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--root-ca-file={credentials.file('ca.crt')}",
        f"--service-account-private-key-file={credentials.file('sa.key')}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins",
        # The default of 20 requests a second makes the start 5 s longer. A benchmark that counts on the
        # default sets it again by Cluster(arguments=…).
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        # A node that is stopped is seen after seconds, so that tests need not wait for minutes.
        "--node-monitor-grace-period=20s",
        *_gates(settings),
    ]


def scheduler(credentials: Credentials, settings: Settings) -> list[str]:
    kubeconfig = credentials.file("scheduler.conf")
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        *_gates(settings),
    ]


def proxy(credentials: Credentials, index: int) -> list[str]:
    return [
        f"--kubeconfig={credentials.file('proxy.conf')}",
        "--proxy-mode=iptables",
        f"--hostname-override={node_name(index)}",
        f"--cluster-cidr={network.PODS}",
        "--conntrack-max-per-core=0",  # a setting of the whole machine
    ]


def kubelet(index: int, configuration: Path, credentials: Credentials) -> list[str]:
    return [
        f"--config={configuration}",
        f"--kubeconfig={credentials.file(node_name(index) + '.conf')}",
        "--root-dir=/var/lib/kubelet",
        f"--node-ip={network.address(index)}",
        f"--hostname-override={node_name(index)}",
        "--v=2",
    ]


def kubelet_configuration(
    index: int, cgroup_root: str, credentials: Credentials, machine: Machine, settings: Settings
) -> str:
    """KubeletConfiguration as JSON."""
    file, name = credentials.file, node_name(index)
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(file("ca.crt"))},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
            "imagefs.inodesFree": "1%",
        },
        "failSwapOn": False,
        "featureGates": dict(settings.feature_gates),
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "5s",
        "resolvConf": "/etc/resolv.conf",
        "tlsCertFile": str(file(f"{name}.crt")),
        "tlsPrivateKeyFile": str(file(f"{name}.key")),
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    }
    document |= kubelet_concessions(machine)
    return json.dumps(document | dict(settings.kubelet), indent=2) + "\n"


def kubelet_concessions(machine: Machine) -> dict[str, Any]:
    """Fields of KubeletConfiguration without which kubelet doesn't start on this machine; mostly none."""
    fields: dict[str, Any] = {}
    if not machine.cgroup_v2:
        fields["failCgroupV1"] = False
    if not machine.sys_resource:
        fields |= {"oomScoreAdj": 0, "maxOpenFiles": machine.open_files}
    return fields


def containerd(runc: Path, plugins: Path, base_spec: Path, machine: Machine) -> str:
    """containerd's configuration (version 3, so 2.0 and newer), in TOML."""
    restricted = str(not machine.sys_resource).lower()
    return f"""version = 3
root = "{CONTAINERD_ROOT}"
state = "/run/containerd"

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins.'io.containerd.internal.v1.opt']
  path = "/var/lib/containerd/opt"

[plugins.'io.containerd.nri.v1.nri']
  disable = true

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "localhost/pause:1"

[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  # Without CAP_SYS_RESOURCE no process may lower its oom_score_adj, and every sandbox would fail.
  restrict_oom_score_adj = {restricted}
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{plugins}"]
    conf_dir = "/etc/cni/net.d"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "{base_spec}"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      SystemdCgroup = false
"""


def base_runtime_spec(default: str) -> str:
    """containerd's default OCI spec (JSON) plus the fake driver's state in every container: it stands for the
    kernel.
    """
    spec: dict[str, Any] = json.loads(default)
    spec["process"].pop("rlimits", None)  # a container has its node's limits
    # CRI sets what belongs to a Pod; these of the default would stay where CRI has nothing to say.
    mount = {"destination": FAKE_DRIVER, "type": "bind", "source": FAKE_DRIVER, "options": ["rbind", "rw"]}
    spec["mounts"].append(mount)
    return json.dumps(spec, indent=2) + "\n"


def cni(index: int, machine: Machine) -> str:
    """The node's Pod network: a bridge, addresses from the node's own subnet."""
    ranges = [[{"subnet": network.pod_subnet(index)}]]
    ipam = {
        "type": "host-local",
        "ranges": ranges,
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/var/lib/cni/ipam",
    }
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": machine.nat,
        "ipam": ipam,
    }
    portmap = [{"type": "portmap", "capabilities": {"portMappings": True}}] if machine.nat else []
    document = {"cniVersion": "1.0.0", "name": "tessera", "plugins": [bridge, *portmap]}
    return json.dumps(document, indent=2) + "\n"

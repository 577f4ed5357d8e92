"""One node of a running cluster: its namespaces, its components, its logs."""

from __future__ import annotations

import contextlib
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import configuration, namespaces, network
from tests.cluster.binaries import Binaries
from tests.cluster.configuration import Machine, Settings
from tests.cluster.control import Control, Process
from tests.cluster.credentials import Credentials, node_name
from tests.cluster.errors import StartError, WaitError
from tests.cluster.namespaces import Namespaces
from tests.cluster.oci import Image, write_archive
from tests.cluster.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
DRIVER_ROOT = "/run/nvidia/driver"
KUBELET_HEALTH = 10248  # its default port for /healthz on loopback
TAIL = 25  # lines of a log that a failure shows


def driver_environment(search_path: str) -> dict[str, str]:
    """So that `nvidia-smi` works in a node's shell, as where the driver is installed on the host."""
    libraries = f"{DRIVER_ROOT}/usr/lib/{platform.machine()}-linux-gnu"
    return {"PATH": f"{search_path}:{DRIVER_ROOT}/usr/bin", "LD_LIBRARY_PATH": libraries}


@dataclass
class Node:
    """Made by Cluster. `work` holds configuration and the mount point of the node's tmpfs, `logs` its
    logs.
    """

    index: int
    cgroup: str  # name below each hierarchy
    work: Path
    logs: Path
    binaries: Binaries
    credentials: Credentials
    machine: Machine
    settings: Settings
    keep: list[Path]
    commands: dict[str, list[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return node_name(self.index)

    @property
    def address(self) -> str:
        return network.address(self.index)

    @property
    def socket(self) -> Path:
        """Of the node's init."""
        return self.work / f"{self.name}.sock"

    @property
    def control(self) -> Control:
        return Control(self.socket)

    @property
    def namespaces(self) -> Namespaces:
        return Namespaces(self.control.pid())

    @property
    def state(self) -> Path:
        """The node's tmpfs; from outside, under its init's root."""
        return self.work / self.name / "state"

    def path(self, inside: str) -> Path:
        """A file of the node as this process can open it: node.path("/var/run/cdi")."""
        return Path(f"/proc/{self.namespaces.pid}/root{inside}")

    # --- commands in the node

    def run(
        self,
        *command: str,
        input: str | None = None,
        check: bool = True,
        timeout: float = 240.0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in the node's namespaces, in /. CommandError where it fails and `check` is set."""
        argv = self.namespaces.command(*command)
        variables = (
            self.environment() | driver_environment(self.binaries.search_path) | dict(environment or {})
        )
        return namespaces.run(argv, text=input, check=check, timeout=timeout, environment=variables)

    def environment(self) -> dict[str, str]:
        return {
            "PATH": self.binaries.search_path,
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "CONTAINERD_ADDRESS": str(configuration.CONTAINERD_SOCKET),
            "CONTAINERD_NAMESPACE": "k8s.io",
        }

    # --- components

    def start(self, component: str) -> None:
        """Starts a component that isn't running, with the command it had."""
        self.control.start(
            component,
            self.commands[component],
            log=self.log(component),
            directory=Path("/"),
            environment=self.environment(),
        )

    def stop(self, component: str, number: int = signal.SIGTERM) -> None:
        """Ends a component by this signal and waits for it; its containers live on."""
        self.control.stop(component, number)

    def restart(self, component: str, number: int = signal.SIGTERM) -> None:
        """Ends a component and starts it again; containerd and kubelet answer when this returns."""
        self.stop(component, number)
        self.start(component)
        if component == "containerd":
            self.wait_for_containerd()
        elif component == "kubelet":
            self.wait_for_kubelet()

    def processes(self) -> dict[str, Process]:
        return self.control.processes()

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"

    def add(self, component: str, program: str, arguments: list[str]) -> None:
        """Starts a component under this name: `program` is one of the binaries."""
        more = self.settings.arguments.get(component, ())
        self.commands[component] = [str(self.binaries[program]), *arguments, *more]
        self.start(component)

    def check(self) -> None:
        """Raises StartError with the end of its log where a component has ended."""
        for process in self.processes().values():
            if process.status is not None:
                ended = f"{process.name} on {self.name} ended with status {process.status}"
                raise StartError(f"{ended}:\n{self.tail(self.log(process.name))}")

    def tail(self, path: Path, lines: int = TAIL) -> str:
        """The end of a log, under its name."""
        try:
            text = path.read_text(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:  # a Pod's may go at any time
            text = ["(no log)"]
        return f"--- {path}\n" + "\n".join(text)

    def log_files(self, namespace: str) -> list[Path]:
        """Of every component, and of a namespace's containers, those that have ended included."""
        return [*sorted(self.logs.glob("*.log")), *sorted(self.logs.glob(f"pods/{namespace}_*/*/*.log"))]

    # --- coming up, step by step

    def init_command(self) -> list[str]:
        """argv for the cluster's init: the node's own init, which first lays out the node's file system."""
        python = [sys.executable, "-m"]
        pods = self.logs / "pods"
        pods.mkdir(parents=True, exist_ok=True)
        layout = [
            *python,
            "tests.cluster.node_root",
            str(self.state),
            self.name,
            str(pods),
            *map(str, self.keep),
        ]
        return namespaces.unshare(*python, "tests.cluster.init", str(self.socket), "--", *layout)

    def start_control_plane(self) -> None:
        """etcd and the API server, which retries until etcd answers."""
        self.add("etcd", "etcd", configuration.etcd(self.state / "etcd"))
        self.add("kube-apiserver", "kube-apiserver", configuration.apiserver(self.credentials, self.settings))

    def start_controllers(self) -> None:
        """What ends when the API server isn't there yet."""
        arguments = configuration.controller_manager(self.credentials, self.settings)
        self.add("kube-controller-manager", "kube-controller-manager", arguments)
        self.add("kube-scheduler", "kube-scheduler", configuration.scheduler(self.credentials, self.settings))

    def start_containerd(self) -> None:
        directory = self.work / self.name
        spec = directory / "base-spec.json"
        default = self.run("ctr", "oci", "spec").stdout
        spec.write_text(configuration.base_runtime_spec(default))
        file = directory / "containerd.toml"
        plugins = self.binaries["bridge"].parent
        file.write_text(configuration.containerd(self.binaries["runc"], plugins, spec, self.machine))
        self.path("/etc/cni/net.d/10-tessera.conflist").write_text(
            configuration.cni(self.index, self.machine)
        )
        self.add("containerd", "containerd", ["--config", str(file)])

    def wait_for_containerd(self, timeout: float = 120.0) -> None:
        self._wait("containerd", lambda: self.run("ctr", "version", check=False).returncode == 0, timeout)

    def wait_for_kubelet(self, timeout: float = 120.0) -> None:
        """Until its own health check answers; the node may be NotReady for some time yet."""

        def healthy() -> bool:
            with (
                contextlib.suppress(OSError),
                self.namespaces.connect("127.0.0.1", KUBELET_HEALTH, 5.0) as peer,
            ):
                peer.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                return b" 200 " in peer.recv(64)
            return False

        self._wait("kubelet", healthy, timeout)

    def _wait(self, component: str, answers: Callable[[], bool], timeout: float) -> None:
        try:
            wait_for(answers, f"{component} on {self.name}", timeout, 0.1, self.check)
        except WaitError as error:
            raise StartError(f"{error}:\n{self.tail(self.log(component))}") from error

    def start_kubelet(self) -> None:
        file = self.work / self.name / "kubelet.json"
        root = f"/{self.cgroup}/{self.name}"
        text = configuration.kubelet_configuration(
            self.index, root, self.credentials, self.machine, self.settings
        )
        file.write_text(text)
        self.add("kubelet", "kubelet", configuration.kubelet(self.index, file, self.credentials))
        self.add("kube-proxy", "kube-proxy", configuration.proxy(self.credentials, self.index))

    def import_images(self, images: list[Image]) -> None:
        """Streams the images into containerd."""
        options = ["--local", "--snapshotter=overlayfs", "--discard-unpacked-layers"]
        command = self.namespaces.command("ctr", "images", "import", *options, "-")
        environment = self.environment()
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            # ctr reads the archive to its end before it says anything, so a broken pipe has its reason in the
            # output.
            with contextlib.suppress(BrokenPipeError), process.stdin:
                write_archive(images, process.stdin)
            said = process.stdout.read().decode(errors="replace")
        if process.returncode != 0:
            raise StartError(f"importing images on {self.name} failed:\n{said[-2000:]}")

    def install_fake_driver(self, inventory: Path) -> None:
        """Lays out the fake NVIDIA driver and its cards, as tests/fakegpu documents it."""
        arguments = [
            "--root",
            DRIVER_ROOT,
            "--state",
            configuration.FAKE_DRIVER,
            "--inventory",
            str(inventory),
        ]
        self.run("env", f"--chdir={ROOT}", sys.executable, "-m", "tests.fakegpu.driver_root", *arguments)

    def images(self) -> list[str]:
        return self.run("ctr", "images", "list", "-q").stdout.split()

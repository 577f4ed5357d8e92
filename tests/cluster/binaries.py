"""The programs of the cluster, built from the pinned Go modules of `modules/` (go.sum verifies every byte).

One `Module` is one go.mod and the commands taken from it. What is built lies in the cache (see cache.py),
keyed by the module's files, the flags, and the toolchain: a second checkout builds nothing. KUBE_BIN names a
directory with Kubernetes binaries that are used as they are; other programs found there (etcd, containerd,
helm, …) are used too.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import cache, packages, toolchain
from tests.cluster.errors import BuildError, MissingError
from tests.cluster.progress import step

KUBERNETES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)
DEFAULT_VERSION = "1.37"
# Each costs a build and a run of all tests; older minors have them where they are asked for (CHOSEN).
TESTED = ("1.37", "1.36")
CHOSEN = "TESSERA_TEST_VERSIONS"
GIVEN = "KUBE_BIN"
FLAGS = ("-trimpath", "-buildvcs=false")
CERT_MANAGER = "github.com/cert-manager/cert-manager"
KUEUE = "sigs.k8s.io/kueue"


@dataclass(frozen=True)
class Build:
    """One `go build`: import paths of commands and how they are built."""

    commands: tuple[str, ...]
    ldflags: str = "-s -w"
    tags: str = ""
    cgo: bool = False

    def arguments(self, output: Path) -> list[str]:
        tags = ["-tags", self.tags] if self.tags else []
        return ["build", *FLAGS, *tags, "-ldflags", self.ldflags, "-o", f"{output}/", *self.commands]


@dataclass(frozen=True)
class Module:
    """A directory of `modules/` and what is built from it."""

    directory: Path
    title: str
    cost: str  # what a first build takes on two cores, for the person who waits
    builds: tuple[Build, ...]
    rename: dict[str, str] = field(default_factory=dict)

    def key(self, go_version: str) -> str:
        flags = [repr(build) for build in self.builds]
        files = [self.directory / name for name in ("go.mod", "go.sum")] + [*self.directory.glob("*.go")]
        return cache.key_of_files(self.directory, files, go_version, platform.machine(), *FLAGS, *flags)


@dataclass(frozen=True)
class Binaries:
    """Where each program lies. `kubernetes` is the exact version, "1.37.2"."""

    kubernetes: str
    programs: dict[str, Path]

    def __getitem__(self, name: str) -> Path:
        return self.programs[name]

    @property
    def minor(self) -> int:
        return int(self.kubernetes.split(".")[1])

    @property
    def search_path(self) -> str:
        """PATH for components: ours first (containerd looks for its shim and runc there), then the
        system's.
        """
        directories = dict.fromkeys(str(path.parent) for path in self.programs.values())
        return ":".join([*directories, packages.PATH])


def supported() -> dict[str, str]:
    """Minor version → exact version, from the modules: {"1.36": "1.36.3", "1.37": "1.37.2", …}."""
    return {
        directory.name.removeprefix("kubernetes-"): _pinned(directory) for directory in _kubernetes_modules()
    }


def tested() -> list[str]:
    """The versions whose clusters a run of the tests starts; binaries that are given are of one."""
    if chosen := os.environ.get(CHOSEN):
        return chosen.split(",")
    return [DEFAULT_VERSION] if os.environ.get(GIVEN) else list(TESTED)


def resolve_version(wanted: str) -> str:
    """ "1.37", "v1.37", "1.37.2" → "1.37"; raises MissingError for a version that isn't pinned here."""
    versions = supported()
    text = wanted.removeprefix("v")
    for minor, exact in versions.items():
        if text in (minor, exact):
            return minor
    known = ", ".join(sorted(versions.values()))
    raise MissingError(f"Kubernetes {wanted} isn't pinned in tests/cluster/modules; there is {known}")


def obtain(wanted: str = DEFAULT_VERSION) -> Binaries:
    """Every program that a cluster of this version needs; builds what isn't in the cache."""
    packages.require(packages.RUN)
    given = _given()
    programs: dict[str, Path] = {}
    if set(KUBERNETES) <= given.keys():
        exact = _reported_version(given["kubelet"])
    else:
        minor = resolve_version(wanted)
        exact = supported()[minor]
        programs |= _obtain(_kubernetes_module(minor), given)
    for module in (_node_module(), _etcd_module(), _helm_module()):
        programs |= _obtain(module, given)
    return Binaries(exact, programs | given)


def cert_manager() -> Path:
    """cert-manager's controllers as one program; where they are needed, not in each cluster."""
    (program,) = _obtain(_cert_manager_module(), {}).values()
    return program


def kueue() -> Path:
    """Kueue's controllers; where they are needed."""
    (program,) = _obtain(_kueue_module(), {}).values()
    return program


def source(module: str, directory: Path) -> Path:
    """Where the files of a Go module lie that the go.mod in `directory` pins; fetches what isn't here."""
    answer = _go(toolchain.find(), Build(()), directory, ["mod", "download", "-json", module], None)
    return Path(json.loads("".join(answer))["Dir"])


def _given() -> dict[str, Path]:
    """What KUBE_BIN offers; refused where it has some of Kubernetes, but not all."""
    chosen = os.environ.get(GIVEN)
    if not chosen:
        return {}
    directory = Path(chosen).absolute()
    names = [*KUBERNETES, *(name for module in _other_modules() for name in _names(module))]
    given = {name: directory / name for name in names if os.access(directory / name, os.X_OK)}
    if lacking := [name for name in KUBERNETES if name not in given]:
        raise MissingError(f"{GIVEN}={directory} lacks {', '.join(lacking)}")
    return given


def _obtain(module: Module, given: dict[str, Path]) -> dict[str, Path]:
    names = _names(module)
    if set(names) <= given.keys():
        return {}
    go = toolchain.find()
    directory = cache.entry(
        module.directory.name, module.key(go.version), lambda path: _build(module, go, path)
    )
    return {name: directory / name for name in names}


def _names(module: Module) -> list[str]:
    built = [command_name(command) for build in module.builds for command in build.commands]
    return [module.rename.get(name, name) for name in built]


def command_name(import_path: str) -> str:
    """What `go build` calls the command: the last element, or the one before a major version's
    ("…/server/v3").
    """
    elements = import_path.split("/")
    return elements[-2] if re.fullmatch(r"v\d+", elements[-1]) else elements[-1]


def _build(module: Module, go: toolchain.Toolchain, output: Path) -> None:
    packages.require(packages.BUILD)
    counter = _Counter()
    with step(f"building {module.title} ({module.cost}, once)", counter.text):
        for build in module.builds:
            counter.start(_count_packages(module, build, go))
            _go(go, build, module.directory, build.arguments(output), counter)
    for old, new in module.rename.items():
        (output / old).rename(output / new)


class _Counter:
    """Packages compiled so far of a build, for the heartbeat; packages in Go's own cache aren't printed by
    it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = self._total = 0

    def start(self, total: int) -> None:
        with self._lock:
            self._done, self._total = 0, total

    def one_more(self) -> None:
        with self._lock:
            self._done += 1

    def text(self) -> str:
        with self._lock:
            if not self._total:
                return "fetching modules"
            return f"{self._done} packages compiled of at most {self._total}, then linking"


def _count_packages(module: Module, build: Build, go: toolchain.Toolchain) -> int:
    tags = ["-tags", build.tags] if build.tags else []
    listing = _go(go, build, module.directory, ["list", "-deps", *tags, *build.commands], None)
    return len(listing)


def _go(
    go: toolchain.Toolchain, build: Build, directory: Path, arguments: list[str], counter: _Counter | None
) -> list[str]:
    """Runs go, returns its lines of output; with a counter, its package lines are counted instead."""
    if counter is not None:
        arguments = [arguments[0], "-v", *arguments[1:]]
    lines = []
    with subprocess.Popen(
        [go.go, *arguments],
        cwd=directory,
        env=go.environment(cgo=build.cgo),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if counter is not None else None,
        text=True,
    ) as process:
        for line in map(str.rstrip, process.stdout or ()):
            if counter is not None and re.fullmatch(r"[\w./~-]+", line):
                counter.one_more()
            else:
                lines.append(line)
    if process.returncode != 0:
        raise BuildError(f"go {arguments[0]} in {directory.name} failed:\n" + "\n".join(lines[-30:]))
    return lines if counter is None else []


def _reported_version(kubelet: Path) -> str:
    run = subprocess.run([kubelet, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"v(\d+\.\d+\.\d+\S*)", run.stdout)
    if match is None:
        raise MissingError(f"{kubelet} --version says no version: {run.stdout.strip()} {run.stderr.strip()}")
    return match.group(1)


def _kubernetes_modules() -> list[Path]:
    return sorted(toolchain.MODULES.glob("kubernetes-*"))


def _pinned(directory: Path, module: str = "k8s.io/kubernetes") -> str:
    match = re.search(
        rf"^(?:require )?\s*{re.escape(module)} v(\S+)", (directory / "go.mod").read_text(), re.MULTILINE
    )
    if match is None:
        raise MissingError(f"{directory.name}/go.mod doesn't pin {module}")
    return match.group(1)


def _kubernetes_module(minor: str) -> Module:
    directory = toolchain.MODULES / f"kubernetes-{minor}"
    exact, package = _pinned(directory), "k8s.io/component-base/version"
    # Without these the components call themselves v0.0.0-master, and checks of version skew go wrong.
    values = {"gitVersion": f"v{exact}", "gitMajor": "1", "gitMinor": minor.split(".")[1]}
    version = " ".join(f"-X {package}.{name}={value}" for name, value in values.items())
    commands = tuple(f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES)
    return Module(directory, f"Kubernetes {exact}", "about 7 min", (Build(commands, f"-s -w {version}"),))


def _node_module() -> Module:
    directory = toolchain.MODULES / "node"
    containerd, plugins = "github.com/containerd/containerd/v2", "github.com/containernetworking/plugins"
    commands = [f"{containerd}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")]
    kinds = ("ipam/host-local", "main/bridge", "main/loopback", "meta/portmap")
    commands += [f"{plugins}/plugins/{kind}" for kind in kinds]
    runc = "github.com/opencontainers/runc"
    version = _pinned(directory, containerd)
    return Module(
        directory,
        f"containerd {version}, runc {_pinned(directory, runc)}, CNI plugins {_pinned(directory, plugins)}",
        "about 2 min",
        (
            Build(tuple(commands), f"-s -w -X {containerd}/version.Version={version}"),
            # Without the tag, Pods with the RuntimeDefault seccomp profile fail to start.
            Build((runc,), tags="seccomp", cgo=True),
        ),
    )


def _etcd_module() -> Module:
    directory = toolchain.MODULES / "etcd"
    server = "go.etcd.io/etcd/server/v3"
    title = f"etcd {_pinned(directory, server)}"
    return Module(directory, title, "about 1 min", (Build((server,)),), {"server": "etcd"})


def _helm_module() -> Module:
    directory = toolchain.MODULES / "helm"
    helm = "helm.sh/helm/v4"
    return Module(
        directory, f"Helm {_pinned(directory, helm)}", "about 2 min", (Build((f"{helm}/cmd/helm",)),)
    )


def _cert_manager_module() -> Module:
    directory = toolchain.MODULES / "cert-manager"
    title = f"cert-manager {_pinned(directory, CERT_MANAGER)}"
    return Module(directory, title, "about 2 min", (Build(("gpu.tessera.dev/tests/cluster/cert-manager",)),))


def _kueue_module() -> Module:
    directory = toolchain.MODULES / "kueue"
    title = f"Kueue {_pinned(directory, KUEUE)}"
    return Module(directory, title, "about 2 min", (Build((f"{KUEUE}/cmd/kueue",)),))


def _other_modules() -> tuple[Module, ...]:
    return _node_module(), _etcd_module(), _helm_module()

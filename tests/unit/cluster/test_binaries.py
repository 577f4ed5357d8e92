"""Which programs a cluster uses, and when they are built anew."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from tests.cluster import binaries, packages
from tests.cluster.errors import MissingError


@pytest.fixture(autouse=True)
def no_installing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "require", lambda _: None)
    monkeypatch.delenv("KUBE_BIN", raising=False)


@pytest.mark.parametrize(
    ("import_path", "expected"),
    [
        ("k8s.io/kubernetes/cmd/kubelet", "kubelet"),
        ("go.etcd.io/etcd/server/v3", "server"),
        ("github.com/containerd/containerd/v2/cmd/ctr", "ctr"),
        ("github.com/opencontainers/runc", "runc"),
    ],
)
def test_command_name(import_path: str, expected: str) -> None:
    assert binaries.command_name(import_path) == expected


@pytest.mark.parametrize("wanted", ["1.37", "v1.37", "1.37.2", "v1.37.2"])
def test_version_by_minor_or_exact(wanted: str) -> None:
    assert binaries.resolve_version(wanted) == "1.37"
    assert binaries.supported()["1.37"] == "1.37.2"


@pytest.mark.parametrize("wanted", ["1.34", "1.37.1", "1.3", "", "latest"])
def test_version_that_is_not_pinned(wanted: str) -> None:
    with pytest.raises(MissingError, match=r"isn't pinned in \S+; there is 1\.35\.4, 1\.36\.3, 1\.37\.2"):
        binaries.resolve_version(wanted)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ["1.37", "1.36"]),
        ({"TESSERA_TEST_VERSIONS": "1.35"}, ["1.35"]),
        ({"TESSERA_TEST_VERSIONS": "1.36,1.35"}, ["1.36", "1.35"]),
        ({"KUBE_BIN": "/there"}, ["1.37"]),
    ],
    ids=["default", "one", "two", "given binaries"],
)
def test_versions_that_a_run_tests(
    environment: dict[str, str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TESSERA_TEST_VERSIONS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert binaries.tested() == expected
    assert set(expected) <= binaries.supported().keys()


def test_key_sees_a_program_of_our_own(tmp_path: Path) -> None:
    module = binaries._cert_manager_module()
    copy = dataclasses.replace(module, directory=tmp_path / "m")
    shutil.copytree(module.directory, copy.directory)
    key = module.key("1.26.8")
    assert copy.key("1.26.8") == key
    with (copy.directory / "main.go").open("a") as file:
        file.write("\n")
    assert copy.key("1.26.8") != key


def test_kueue_and_cert_manager_compile_once_what_both_need() -> None:
    """Half of each is the other's; `go get` raises what is older in one of them."""
    one, other = (
        dict(re.findall(r"^\s+(\S+) (v\S+)", (module.directory / "go.mod").read_text(), re.MULTILINE))
        for module in (binaries._cert_manager_module(), binaries._kueue_module())
    )
    shared = one.keys() & other.keys()
    assert len(shared) > 50
    assert {name: one[name] for name in shared} == {name: other[name] for name in shared}


def test_key_sees_module_flags_and_toolchain(tmp_path: Path) -> None:
    module = binaries._kubernetes_module("1.37")
    copy = dataclasses.replace(module, directory=tmp_path / "m")
    shutil.copytree(module.directory, copy.directory)
    key = module.key("1.26.8")
    assert copy.key("1.26.8") == key
    (build,) = module.builds
    changed = [
        copy.key("1.26.9"),
        dataclasses.replace(copy, builds=(dataclasses.replace(build, tags="x"),)).key("1.26.8"),
        dataclasses.replace(copy, builds=(dataclasses.replace(build, cgo=True),)).key("1.26.8"),
    ]
    with (copy.directory / "go.sum").open("a") as file:
        file.write("\n")
    changed.append(copy.key("1.26.8"))
    assert len({key, *changed}) == 5


def test_components_know_their_version() -> None:
    (build,) = binaries._kubernetes_module("1.36").builds
    package = "k8s.io/component-base/version"
    wanted = [f"{package}.{value}" for value in ("gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36")]
    assert build.ldflags.split(" -X ") == ["-s -w", *wanted]


def _programs(directory: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (directory / name).write_text("#!/bin/sh\necho Kubernetes v1.36.9-rc.1\n")
        (directory / name).chmod(0o755)


def test_kube_bin_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _programs(tmp_path, (*binaries.KUBERNETES, "helm"))
    monkeypatch.setenv("KUBE_BIN", str(tmp_path))
    built: list[str] = []

    def obtain(module: binaries.Module, given: dict[str, Path]) -> dict[str, Path]:
        names = [name for name in binaries._names(module) if name not in given]
        built.extend(names)
        return {name: Path("/built") / name for name in names}

    monkeypatch.setattr(binaries, "_obtain", obtain)
    found = binaries.obtain("1.37")
    assert (found.kubernetes, found.minor) == ("1.36.9-rc.1", 36)
    assert found["kubelet"] == tmp_path / "kubelet"
    assert found["helm"] == tmp_path / "helm"
    assert {"etcd", "containerd", "runc", "bridge"} <= set(built)
    assert found.search_path.endswith(packages.PATH)


def test_kube_bin_that_lacks_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _programs(tmp_path, binaries.KUBERNETES[:-2])
    monkeypatch.setenv("KUBE_BIN", str(tmp_path))
    with pytest.raises(MissingError, match=rf"^KUBE_BIN={tmp_path} lacks kube-proxy, kubectl$"):
        binaries.obtain()

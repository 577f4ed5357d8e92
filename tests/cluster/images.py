"""The images of the cluster, made offline and cached by content, layer by layer.

| image | what is in it |
| --- | --- |
| localhost/pause:1 | a static program that holds a Pod's namespaces |
| localhost/busybox:1 | the distribution's static busybox |
| localhost/tessera-base:1 | Debian's minimal base system and its Python |
| localhost/tessera:VERSION | base, locked dependencies, the project; the top-level Dockerfile's layout |
| localhost/cuda-test:1 | base, cuda-alloc and cuda-burn |
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.cluster import cache, packages
from tests.cluster.errors import BuildError, MissingError
from tests.cluster.oci import Image, Layer, layer_of_tree
from tests.cluster.progress import step

ROOT = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
PYTHON = "3.11"  # of that suite
BASE_PACKAGES = ("python3", "libpython3-stdlib")
STRIPPED = (
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/lintian",
    "var/cache/apt",
    "var/cache/debconf",
    "var/lib/apt/lists",
    "var/log",
)
KEPT = 8  # layers of a kind that stay in the cache: working on the project makes many
CUDA_PROGRAMS = ("cuda-alloc", "cuda-burn")
# -I: neither the working directory nor the environment changes what a command imports.
WRAPPER = """#!/usr/bin/python3 -I
import sys
sys.path.insert(0, "/opt/tessera")
from {module} import main
sys.exit(main())
"""


def plain() -> list[Image]:
    """What every cluster needs: pause, busybox."""
    packages.require(packages.IMAGES[:1])
    return [pause(), busybox()]


def project() -> list[Image]:
    """The project's own images and those that its tests run. Raises MissingError where something isn't
    built.
    """
    return [Image("localhost/tessera-base:1", (base_layer(),), command=("python3",)), tessera(), cuda_test()]


def project_version() -> str:
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return version


def pause() -> Image:
    source = Path(__file__).parent / "pause.c"

    def fill(tree: Path) -> None:
        packages.require(packages.BUILD)
        _run(
            [
                "gcc",
                "-std=c11",
                "-D_GNU_SOURCE",
                "-Wall",
                "-Werror",
                "-Os",
                "-static",
                "-s",
                "-o",
                str(tree / "pause"),
                str(source),
            ]
        )

    layer = _layer("image-pause", cache.key_of_files(source.parent, [source], platform.machine()), fill)
    return Image("localhost/pause:1", (layer,), entrypoint=("/pause",))


def busybox() -> Image:
    found = shutil.which("busybox", path=packages.PATH)
    # A dynamic program names its loader in its first page.
    if found is None or re.search(rb"/ld-(linux|musl)", Path(found).read_bytes()[:4096]):
        raise MissingError("busybox here isn't statically linked; please install busybox-static")
    program = Path(found)

    def fill(tree: Path) -> None:
        for directory in ("bin", "etc", "tmp"):
            (tree / directory).mkdir()
        shutil.copy(program, tree / "bin" / "busybox")
        for applet in _run([found, "--list"]).decode().split():
            if applet != "busybox":
                (tree / "bin" / applet).symlink_to("busybox")
        (tree / "etc" / "passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
        (tree / "tmp").chmod(0o1777)

    layer = _layer("image-busybox", cache.key_of_files(program.parent, [program]), fill)
    return Image("localhost/busybox:1", (layer,), command=("sh",))


def base_layer() -> Layer:
    """Debian's base system with Python; about 75 s where it isn't cached."""
    return Layer.read(_base() / "layer.tar")


def tessera() -> Image:
    """The project's image from this working tree."""
    name = f"localhost/tessera:{project_version()}"
    return Image(
        name, (base_layer(), _dependencies_layer(), _project_layer()), entrypoint=("/usr/local/bin/tessera",)
    )


def cuda_test() -> Image:
    built = ROOT / "tests" / "fakegpu" / "build" / platform.machine()
    programs = [built / name for name in CUDA_PROGRAMS]
    if lacking := [program.name for program in programs if not program.exists()]:
        raise MissingError(f"{' and '.join(lacking)} aren't built; run make fakegpu")

    def fill(tree: Path) -> None:
        target = tree / "usr" / "local" / "bin"
        target.mkdir(parents=True)
        for program in programs:
            shutil.copy(program, target)

    layer = _layer("image-cuda-test", cache.key_of_files(built, programs), fill)
    return Image("localhost/cuda-test:1", (base_layer(), layer), command=("cuda-alloc",))


def of_program(name: str, program: Path, target: str) -> Image:
    """An image of nothing but one static program, at `target`."""

    def fill(tree: Path) -> None:
        path = tree / target.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(program, path)

    kind = f"image-{program.name}"
    layer = _layer(kind, cache.key_of_files(program.parent, [program], target), fill)
    return Image(name, (layer,), entrypoint=(target,))


def wrappers() -> dict[str, str]:
    """Command → its text, for each console script of the project."""
    scripts: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    return {name: WRAPPER.format(module=target.removesuffix(":main")) for name, target in scripts.items()}


def _base() -> Path:
    """Cache entry with `rootfs/` (to run its Python) and `layer.tar`."""
    key = cache.key(SUITE, platform.machine(), *BASE_PACKAGES, *STRIPPED)

    def build(directory: Path) -> None:
        packages.require(packages.IMAGES)
        rootfs = directory / "rootfs"
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}", SUITE]
        with step(f"bootstrapping Debian {SUITE} for images (about 75 s, once)"):
            # Namespaces of its own: a debootstrap that is killed leaves no mounts behind.
            alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL"]
            _run([*alone, *command, str(rootfs), *_mirror()])
        for name in STRIPPED:
            shutil.rmtree(rootfs / name, ignore_errors=True)
        for name in ("opt/tessera", "var/log", "var/cache/apt/archives/partial", "var/lib/apt/lists/partial"):
            (rootfs / name).mkdir(parents=True, exist_ok=True)
        (rootfs / "etc/resolv.conf").unlink(missing_ok=True)
        layer_of_tree(rootfs, directory / "layer.tar", lambda name: name.startswith("dev/"))

    return cache.entry("image-base", key, build)


def _mirror() -> list[str]:
    """The Debian mirror of the machine's own apt sources; without one, debootstrap has a default."""
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*.sources"))]
    found = mirror_in(file.read_text() for file in files if file.exists())
    return [found] if found else []


def mirror_in(sources: Iterable[str]) -> str | None:
    """The first Debian archive that these apt sources (either format) name."""
    for text in sources:
        found = re.search(r"^(?:URIs:|deb\b.*?)\s*(https?://\S+/debian/?)(?:\s|$)", text, re.MULTILINE)
        if found:
            return found.group(1)
    return None


def _dependencies_layer() -> Layer:
    lock = ROOT / "requirements" / "run.txt"
    target = f"{platform.machine()}-manylinux_2_36"

    def fill(tree: Path) -> None:
        site = tree / "opt" / "tessera"
        uv = Path(sys.executable).parent / "uv"
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--link-mode", "copy"]
        options += ["--python-version", PYTHON, "--python-platform", target]
        with step("installing run-time dependencies for the image (once per lock)"):
            _run([str(uv), "pip", "install", "-q", *options, "--target", str(site), "-r", str(lock)])
            _tidy(site)
            _compile(site, strict=False)

    key = cache.key(lock.read_text(), PYTHON, target, _base().name)
    return _layer("image-dependencies", key, fill)


def _project_layer() -> Layer:
    sources = project_sources()

    def fill(tree: Path) -> None:
        site = tree / "opt" / "tessera"
        wheel = _wheel(tree.parent)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        wheel.unlink()
        _compile(site, strict=True)
        commands = tree / "usr" / "local" / "bin"
        commands.mkdir(parents=True)
        for name, text in wrappers().items():
            (commands / name).write_text(text)
            (commands / name).chmod(0o755)

    # dev.txt pins what generates protocol code and compiles the library.
    builders = (ROOT / "requirements" / "dev.txt").read_text()
    key = cache.key_of_files(ROOT, sources, builders, platform.machine(), WRAPPER, _base().name)
    return _layer("image-project", key, fill)


def project_sources() -> list[Path]:
    """Every file that the wheel is made of; what is generated from them isn't listed."""
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = configuration["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = [ROOT / name for name in ("pyproject.toml", "hatch_build.py")]
    files += [path for path in (ROOT / "README.md", ROOT / "LICENSE") if path.exists()]
    generated = re.compile(r"(^|/)(__pycache__|build)/|_pb2(_grpc)?\.pyi?$|^interposer/_abi\.py$")
    for folder in folders:
        found = (path for path in sorted((ROOT / folder).rglob("*")) if path.is_file())
        files += [path for path in found if not generated.search(str(path.relative_to(ROOT)))]
    return files


def _wheel(directory: Path) -> Path:
    if importlib.util.find_spec("hatchling") is None:
        raise MissingError("the Python environment lacks hatchling; run make build")
    with step("building the project's wheel for the image"):
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)])
    return next(directory.glob("*.whl"))


def _tidy(site: Path) -> None:
    """Console scripts name the Python of this machine, lock files are uv's."""
    shutil.rmtree(site / "bin", ignore_errors=True)
    for name in (".lock", ".gitignore", "CACHEDIR.TAG"):
        (site / name).unlink(missing_ok=True)


def _compile(site: Path, *, strict: bool) -> None:
    """Byte code by the image's own Python; valid whatever the files' times are (a layer's are all zero)."""
    rootfs = _base() / "rootfs"
    compileall = [
        "chroot",
        str(rootfs),
        "python3",
        "-m",
        "compileall",
        "-qq",
        "--invalidation-mode=unchecked-hash",
    ]
    script = 'mount --bind "$1" "$2/opt/tessera" && shift 2 && exec "$@"'
    shell = ["sh", "-c", script, "sh", str(site), str(rootfs), *compileall, "/opt/tessera"]
    # A dependency may ship templates that aren't valid Python; the project may not.
    _run(["unshare", "--mount", *shell], check=strict)


def _layer(name: str, key: str, fill: Callable[[Path], None]) -> Layer:
    """The cached layer, or the one that `fill(tree)` makes."""

    def build(directory: Path) -> None:
        tree = directory / "tree"
        tree.mkdir()
        fill(tree)
        layer_of_tree(tree, directory / "layer.tar")
        shutil.rmtree(tree)

    return Layer.read(cache.entry(name, key, build, keep=KEPT) / "layer.tar")


def _run(command: list[str], *, check: bool = True) -> bytes:
    environment = os.environ | {"PATH": f"{packages.PATH}:{os.environ.get('PATH', '')}", "LC_ALL": "C.UTF-8"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    if check and run.returncode != 0:
        said = (run.stdout + run.stderr).decode(errors="replace").strip()
        raise BuildError(f"{' '.join(command[:8])} … failed:\n{said[-3000:]}")
    return run.stdout

"""The project's image has the layout that the top-level Dockerfile makes."""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.cluster import images

DOCKERFILE = (images.ROOT / "Dockerfile").read_text()


def test_dockerfile_writes_the_same_commands(tmp_path: Path) -> None:
    """Runs the Dockerfile's own loop, into another directory."""
    loop = re.search(r"^RUN (for command in .*?done)$", DOCKERFILE, re.MULTILINE | re.DOTALL)
    assert loop is not None
    script = loop.group(1).replace("\\\n", "\n").replace("/usr/local/bin/", f"{tmp_path}/")
    script = script.replace("' \n", "' \\\n")  # one continuation is inside the printf command
    subprocess.run(["sh", "-ec", script], check=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == images.wrappers()


def test_dockerfile_copies_every_command() -> None:
    copied = re.search(r"^COPY --from=build (/usr/local/bin/.*) /usr/local/bin/$", DOCKERFILE, re.MULTILINE)
    assert copied is not None
    assert {Path(path).name for path in copied.group(1).split()} == set(images.wrappers())


def test_dockerfile_is_of_the_same_debian() -> None:
    assert f"ARG DEBIAN={images.SUITE}" in DOCKERFILE
    assert "--require-hashes" in DOCKERFILE


def test_sources_are_what_the_wheel_is_made_of() -> None:
    names = {str(path.relative_to(images.ROOT)) for path in images.project_sources()}
    assert {"pyproject.toml", "interposer/include/tessera_abi.h", "dra_driver/main.py"} <= names
    assert not [name for name in names if re.search(r"_pb2|__pycache__|/build/|_abi\.py|^tests/", name)]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        pytest.param("deb http://a.example/debian bookworm main\n", "http://a.example/debian", id="one line"),
        pytest.param(
            "Types: deb\n# a comment\nURIs: http://other.example/debian/\nSuites: bookworm\n",
            "http://other.example/debian/",
            id="deb822",
        ),
        pytest.param("deb http://a.example/ubuntu noble main\n", None, id="another distribution"),
        pytest.param("deb http://mirror.example/debian-security x main\n", None, id="security only"),
    ],
)
def test_mirror_is_the_machines_own(sources: str, expected: str | None) -> None:
    assert images.mirror_in([sources]) == expected


def test_an_image_of_one_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "made"
    program.write_text("#!/bin/true\n")
    program.chmod(0o755)
    image = images.of_program("localhost/one:1", program, "/bin/manager")
    (layer,) = image.layers
    with tarfile.open(layer.path) as archive:
        assert archive.getmember("./bin/manager").mode & 0o111 == 0o111
    program.write_text("#!/bin/false\n")
    assert images.of_program("localhost/one:1", program, "/bin/manager").layers[0].digest != layer.digest

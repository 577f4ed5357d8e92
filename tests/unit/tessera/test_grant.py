"""`tessera grant`: what it writes is what the agent writes, and what it can't do it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from interposer import abi
from tessera.main import app

UUID = "GPU-4e6c1f2a-9d0b-4c5e-8a17-30f1b2c4d5e6"
REQUIRED = ("--uuid", UUID, "--memory", "3000Mi")


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["grant", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_write(tmp_path: Path) -> None:
    options = (
        "--cores",
        "30",
        "--policy",
        "force",
        "--priority",
        "0",
        "--claim",
        "c1",
        "--card-memory",
        "24Gi",
    )
    assert run("write", tmp_path / "new" / "grant", *REQUIRED, *options) == (0, "", "")
    assert abi.read_limits(tmp_path / "new" / "grant" / "limits") == abi.Limits(
        uuid=UUID,
        claim="c1",
        memory_bytes=3000 << 20,
        card_memory_bytes=24 << 30,
        guaranteed_cores=30,
        effective_cores=30,
        policy=abi.Policy.FORCE,
        priority=0,
        spill=False,
        caps=(),
    )
    assert abi.read_usage(tmp_path / "new" / "grant" / "usage").processes == ()


def test_defaults_are_no_compute_limit(tmp_path: Path) -> None:
    assert run("write", tmp_path, *REQUIRED)[0] == 0
    limits = abi.read_limits(tmp_path / "limits")
    assert (limits.effective_cores, limits.policy, limits.priority) == (0, abi.Policy.DEFAULT, 1)
    assert limits.card_memory_bytes == limits.memory_bytes


def test_what_spills_is_written_and_shown(tmp_path: Path) -> None:
    assert run("write", tmp_path, *REQUIRED, "--spill")[0] == 0
    assert abi.read_limits(tmp_path / "limits").spill
    assert "goes on in managed memory" in run("show", tmp_path)[1]


def test_write_again_changes_in_place(tmp_path: Path) -> None:
    run("write", tmp_path, *REQUIRED)
    inode = (tmp_path / "limits").stat().st_ino
    assert run("write", tmp_path, "--uuid", UUID, "--memory", "1Gi")[0] == 0
    assert (tmp_path / "limits").stat().st_ino == inode
    assert abi.read_limits(tmp_path / "limits").memory_bytes == 1 << 30


def test_show(tmp_path: Path) -> None:
    run("write", tmp_path, *REQUIRED, "--cores", "30")
    code, output, _ = run("show", tmp_path)
    assert code == 0
    lines = {line.split()[0]: line.split(maxsplit=1)[1].strip() for line in output.splitlines()}
    assert lines["memory"] == "0 of 3000Mi"
    assert lines["cores"] == "30 % now, 30 % guaranteed"
    assert lines["policy"] == "default, priority 1"
    assert lines["card"] == f"{UUID}, 3000Mi"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--uuid", "0", "--memory", "1Gi"), "uuid is '0', expected GPU- or MIG- and a UUID"),
        (("--uuid", UUID, "--memory", "lots"), "--memory: 'lots' is not a quantity"),
        (("--uuid", UUID, "--memory", "0"), "--memory is 0, expected whole bytes above 0"),
        (("--uuid", UUID, "--memory", "-1Gi"), "--memory is -1Gi, expected whole bytes above 0"),
        (("--uuid", UUID, "--memory", "500m"), "--memory is 500m, expected whole bytes above 0"),
        (("--uuid", UUID, "--memory", "1Gi", "--card-memory", "x"), "--card-memory: 'x' is not a quantity"),
    ],
    ids=["uuid", "no-quantity", "zero", "negative", "fraction", "card"],
)
def test_refusals(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    code, _, errors = run("write", tmp_path, *arguments)
    assert code == 1
    assert message in errors
    assert not any(tmp_path.iterdir())


def test_show_names_what_it_cannot_read(tmp_path: Path) -> None:
    code, _, errors = run("show", tmp_path)
    assert (code, errors) == (1, f"Error: {tmp_path}/limits: No such file or directory\n")

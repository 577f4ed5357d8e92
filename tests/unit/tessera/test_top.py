"""`tessera top`: amounts of the moment from two looks, and what can't be read is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dra_driver.claims.ledger_file import Entry, State, encode
from dra_driver.names import ClaimUID
from interposer import abi
from tessera.main import app
from tessera.top import GrantName, Look, Reading, Row, rows

UUID = "GPU-4e6c1f2a-9d0b-4c5e-8a17-30f1b2c4d5e6"
OTHER = "GPU-b7d3a850-61c4-4f2e-9e3d-7a5508c9f1d2"
CLAIM = "0c8f1f2e-0000-4000-8000-000000000001"
SECOND = 10**9


def process(slot: int = 0, pid: int = 7, *, busy: float = 0, waited: float = 0) -> abi.Process:
    """Seconds."""
    return abi.Process(
        slot=slot,
        pid=pid,
        memory_bytes=0,
        context_bytes=0,
        module_bytes=0,
        launches=0,
        busy_ns=int(busy * SECOND),
        waited_ns=int(waited * SECOND),
        last_launch_ns=0,
        refused=0,
    )


def reading(*processes: abi.Process, uuid: str = UUID, cores: int = 30, memory: int = 0) -> Reading:
    limits = abi.Limits(
        uuid=uuid,
        claim=CLAIM,
        memory_bytes=3000 << 20,
        card_memory_bytes=24 << 30,
        guaranteed_cores=cores,
        effective_cores=cores,
        policy=abi.Policy.DEFAULT,
        priority=1,
        spill=False,
        caps=(),
    )
    return Reading(limits, abi.Usage(memory, memory, processes))


def seen(at: float, **readings: Reading) -> Look:
    return Look(at, {GrantName(CLAIM, name): each for name, each in readings.items()}, {})


@pytest.mark.parametrize(
    ("before", "now", "cores", "held_back"),
    [
        (reading(process(busy=1)), reading(process(busy=1)), 0, 0),
        (reading(process(busy=1, waited=1)), reading(process(busy=1.6, waited=2)), 30, 50),
        (reading(process(busy=1)), reading(process(busy=1.2), process(1, 8, busy=0.4)), 30, 0),
        (reading(process(busy=1), process(1, 8, busy=3)), reading(process(busy=1.2)), 10, 0),
        (reading(process(busy=5, waited=5)), reading(process(busy=0.2, waited=1)), 10, 50),
        (reading(process(pid=7, busy=0.1)), reading(process(pid=9, busy=0.2)), 10, 0),
    ],
    ids=["idle", "one", "another-begins", "one-ends", "slot-of-another", "slot-of-another-sooner"],
)
def test_compute_of_two_looks(before: Reading, now: Reading, cores: float, held_back: float) -> None:
    (row,) = rows(seen(10, g=before), seen(12, g=now))
    assert (row.cores, row.held_back) == pytest.approx((cores, held_back))


def test_rows_go_card_by_card_and_a_grant_that_is_gone_has_none() -> None:
    before = seen(0, gone=reading(), g0=reading())
    now = seen(
        1, g2=reading(uuid=OTHER, cores=0), g1=reading(process(busy=0.5), memory=5 << 20), g0=reading()
    )
    found = rows(before, now)
    assert [(row.card, row.name.grant) for row in found] == [(UUID, "g0"), (UUID, "g1"), (OTHER, "g2")]
    assert found[1] == Row(UUID, GrantName(CLAIM, "g1"), 5 << 20, 3000 << 20, 50.0, 30, 0.0, 1)


def top(tmp_path: Path) -> tuple[int, str, str]:
    directories = ("--run-dir", str(tmp_path / "run"), "--state-dir", str(tmp_path / "state"))
    result = CliRunner().invoke(app, ["top", "--once", "--period", "0.1", *directories])
    return result.exit_code, result.stdout, result.stderr


def write(tmp_path: Path, grant: str, cores: str = "30") -> Path:
    directory = tmp_path / "run/claims" / CLAIM / f"{CLAIM}-{grant}"
    arguments = ("grant", "write", str(directory), "--uuid", UUID, "--memory", "3000Mi", "--cores", cores)
    assert CliRunner().invoke(app, arguments).exit_code == 0
    return directory


def test_the_table(tmp_path: Path) -> None:
    write(tmp_path, "g0-00000001")
    write(tmp_path, "g1-00000001", cores="0")
    damaged = write(tmp_path, "g2-00000001")
    (damaged / "limits").write_bytes(b"")
    (tmp_path / "run/claims/whole-card").mkdir()  # has no limits
    ledger = tmp_path / "state/ledger"
    ledger.mkdir(parents=True)
    entry = Entry(
        uid=ClaimUID(CLAIM), namespace="team", name="trainer", boot_id="b", state=State.PREPARED, grants=()
    )
    (ledger / f"{CLAIM}.json").write_bytes(encode(entry))
    code, output, _ = top(tmp_path)
    assert code == 0
    *table, unreadable = output.splitlines()
    heading, first, second = (line.split() for line in table)
    assert heading == ["CARD", "CLAIM", "SHARE", "MEMORY", "COMPUTE", "HELD", "BACK", "PROCESSES"]
    shown = ["team/trainer", "g0-00000001", "0", "of", "3000", "MiB", "0.0", "of", "30", "%", "0", "%", "0"]
    assert first == [UUID, *shown]
    assert second[2:] == ["g1-00000001", "0", "of", "3000", "MiB", "0.0", "%", "0", "%", "0"]
    assert unreadable.startswith(f"team/trainer can't be read: {damaged}/limits")


def test_a_claim_that_the_ledger_does_not_know_has_its_uid(tmp_path: Path) -> None:
    write(tmp_path, "g0-00000001")
    assert f"{UUID}  {CLAIM}  g0-00000001" in top(tmp_path)[1]


def test_nothing_to_show(tmp_path: Path) -> None:
    (tmp_path / "run/claims").mkdir(parents=True)
    assert top(tmp_path) == (0, "No share with limits is on this node.\n", "")


def test_not_an_agents_pod(tmp_path: Path) -> None:
    code, output, said = top(tmp_path)
    assert (code, output) == (1, "")
    assert said.startswith(f"Error: {tmp_path}/run/claims: No such file or directory; an agent's Pod has it")

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cards.capacity import Amounts
from dra_driver.claims.ledger import Ledger
from dra_driver.claims.ledger_file import (
    VERSION,
    CorruptLedgerError,
    Entry,
    GrantEntry,
    NewerLedgerError,
    State,
    decode,
    encode,
)
from dra_driver.names import ClaimUID, DeviceName
from tests.unit.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
UID = ClaimUID("0c8f1f2e-0000-4000-8000-000000000001")


def grant(device: str = "gpu-a", memory: int = 3 << 30, number: int = 0) -> GrantEntry:
    return GrantEntry(
        name=f"{UID}-g{number}-aaaaaaaa",
        request=f"g{number}",
        device=DeviceName(device),
        uuid="GPU-A",
        memory=memory,
        cores=30,
        shares=100,
        share_id="aaaaaaaa-1111-4111-8111-111111111111",
        limited=True,
    )


def entry(
    uid: str = UID, boot_id: str = "boot-1", state: State = State.PREPARED, *grants: GrantEntry
) -> Entry:
    return Entry(
        uid=ClaimUID(uid),
        namespace="default",
        name="claim",
        boot_id=boot_id,
        state=state,
        grants=grants or (grant(),),
        library="0.1.0-abcdefabcdef",
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def reloaded(directory: Path, boot_id: str = "boot-1") -> Ledger:
    ledger = Ledger(directory, boot_id)
    ledger.load()
    return ledger


def test_the_format_of_this_version() -> None:
    assert_golden(GOLDEN / f"ledger-{VERSION}.json", encode(entry()).decode() + "\n")


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_every_version_can_be_read(version: int) -> None:
    """Later releases must go on reading these very files."""
    assert decode((GOLDEN / f"ledger-{version}.json").read_bytes(), UID) == entry()


def test_written_is_loaded(directory: Path) -> None:
    ledger = reloaded(directory)
    ledger.write(entry())
    assert dict(reloaded(directory).entries) == {UID: entry()}
    assert ledger.erase(UID)
    assert not ledger.erase(UID)
    assert dict(reloaded(directory).entries) == {}


def test_fields_of_a_later_release_are_ignored(directory: Path) -> None:
    reloaded(directory)
    inner = json.dumps(json.loads(encode(entry()))["entry"] | {"future": {"a": 1}})
    checksum = hashlib.sha256(inner.encode()).hexdigest()
    text = f'{{"version": 1, "sha256": "{checksum}", "new": 1, "entry": {inner}}}'
    (directory / f"{UID}.json").write_text(text)
    assert dict(reloaded(directory).entries) == {UID: entry()}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="half"),
        pytest.param(encode(entry())[:-20], id="cut"),
        pytest.param(encode(entry()).replace(b'"cores":30', b'"cores":31'), id="a-digit-changed"),
        pytest.param(encode(entry(uid="another")), id="another-claims"),
        pytest.param(b"\x00" * 100, id="zeros-after-a-power-cut"),
        pytest.param(b'{"version":1,"sha256":"","entry":{}}', id="no-checksum"),
    ],
)
def test_corrupt_files_are_set_aside(directory: Path, content: bytes) -> None:
    ledger = reloaded(directory)
    ledger.write(entry(uid="good"))
    (directory / f"{UID}.json").write_bytes(content)
    again = reloaded(directory)
    assert (directory / f"{UID}.corrupt").read_bytes() == content
    assert set(again.entries) == {"good"}
    assert [stored.path.name for stored in again.uncounted.values()] == [f"{UID}.corrupt"]
    assert set(reloaded(directory).uncounted) == {UID}
    again.write(entry())
    again.hold(entry())
    assert again.uncounted == {}
    assert reloaded(directory).uncounted == {}
    again.erase(UID)
    again.release(UID)
    assert [path.name for path in directory.iterdir()] == ["good.json"]


@pytest.mark.parametrize("error", [errno.EIO, errno.EUCLEAN])
def test_a_file_that_the_disk_has_lost_is_corrupt(
    directory: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """And is no reason for the agent not to start: the others' Pods could not be torn down."""
    ledger = reloaded(directory)
    ledger.write(entry())
    ledger.write(entry(uid="good"))
    break_reading(monkeypatch, UID, error)
    again = reloaded(directory)
    assert set(again.entries) == {"good"}
    assert os.strerror(error) in again.uncounted[UID].why
    again.write(entry())
    monkeypatch.undo()
    assert set(reloaded(directory).entries) == {"good", UID}


def test_a_file_that_can_not_be_read_just_now_is_not_set_aside(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = reloaded(directory)
    ledger.write(entry())
    break_reading(monkeypatch, UID, errno.EMFILE)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        reloaded(directory)
    monkeypatch.undo()
    assert set(reloaded(directory).entries) == {UID}


def break_reading(monkeypatch: pytest.MonkeyPatch, stem: str, error: int) -> None:
    read = Path.read_bytes

    def broken(path: Path) -> bytes:
        if path.stem == stem:
            raise OSError(error, os.strerror(error), str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", broken)


@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC])
def test_a_corrupt_file_that_can_not_be_renamed_keeps_its_name(
    directory: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    reloaded(directory)
    (directory / f"{UID}.json").write_bytes(b"{")

    def fail(*_args: object) -> None:
        raise OSError(error, "no")

    monkeypatch.setattr(Path, "replace", fail)
    assert [stored.path.name for stored in reloaded(directory).uncounted.values()] == [f"{UID}.json"]


def newer(**fields: object) -> bytes:
    """A file of version 2: of an entry's fields, those that every version keeps, and others."""
    inner = json.loads(encode(entry()))["entry"]
    grants = [
        {key: grant[key] for key in ("device", "memory", "cores", "shares")} for grant in inner["grants"]
    ]
    text = json.dumps({"uid": UID, "boot_id": "boot-1", "grants": grants, "state": "resizing"} | fields)
    return f'{{"version":2,"sha256":"{hashlib.sha256(text.encode()).hexdigest()}","entry":{text}}}'.encode()


async def test_a_newer_file_is_counted_and_left_alone(directory: Path) -> None:
    """A release that was gone back to must not give away what the newer one has given away."""
    reloaded(directory)
    (directory / f"{UID}.json").write_bytes(newer())
    ledger = reloaded(directory)
    assert ledger.uncounted == {}
    assert ledger.stored[UID].is_newer
    assert ledger.held_by_others(ClaimUID("another")) == {"gpu-a": Amounts(3 << 30, 30, 100)}
    assert (directory / f"{UID}.json").read_bytes() == newer()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'{"version": 2, "sha256": "", "entry": {"all": "different"}}', id="different"),
        pytest.param(newer(grants=[{"device": "gpu-a"}]), id="no-amounts"),
        pytest.param(newer(uid="another"), id="another-claims"),
        pytest.param(newer().replace(b'"cores": 30', b'"cores": 31'), id="a-digit-changed"),
    ],
)
def test_a_newer_file_that_is_not_understood_is_left_alone(directory: Path, content: bytes) -> None:
    reloaded(directory)
    (directory / f"{UID}.json").write_bytes(content)
    ledger = reloaded(directory)
    assert "version 2 is of a newer release, this one knows 1" in ledger.uncounted[UID].why
    assert dict(ledger.entries) == {}
    assert (directory / f"{UID}.json").read_bytes() == content


def test_entries_of_an_earlier_boot_are_not_counted(directory: Path) -> None:
    """Without the file that says whose boot it is, as an administrator may have removed it."""
    reloaded(directory).write(entry(boot_id="boot-0"))
    directory.with_name("boot_id").unlink()
    ledger = Ledger(directory, "boot-1")
    assert ledger.load().earlier_boot == (UID,)
    assert dict(ledger.entries) == {}


def test_what_a_power_cut_has_torn_is_of_an_earlier_boot(directory: Path) -> None:
    reloaded(directory, "boot-0").write(entry(boot_id="boot-0"))
    (directory / "torn.json").write_bytes(b"")
    (directory / "newer.json").write_bytes(newer())
    (directory / "old.corrupt").write_bytes(b"\0\0")
    ledger = Ledger(directory, "boot-1")
    loaded = ledger.load()
    assert loaded.is_other_boot
    assert set(loaded.earlier_boot) == {UID, "torn", "newer", "old"}
    assert dict(ledger.entries) == {}
    assert ledger.uncounted == {}


def test_the_boot_is_on_disk_before_its_first_entry(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reloaded(directory, "boot-0").write(entry(boot_id="boot-0"))
    ledger = reloaded(directory)
    marker = directory.with_name("boot_id")
    assert marker.read_text() == "boot-0\n"
    with monkeypatch.context() as patch:
        patch.setattr("cdi.durable.os.fsync", full_disk)
        with pytest.raises(OSError, match="No space left"):
            ledger.write(entry())
    assert reloaded(directory).stored == {}  # or this boot's entry would be taken for an earlier one's
    ledger.write(entry())
    assert marker.read_text() == "boot-1\n"
    assert set(reloaded(directory).entries) == {UID}


def full_disk(*_args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_what_another_agent_has_done_is_caught_up_with(directory: Path) -> None:
    ours, theirs = reloaded(directory), reloaded(directory)
    for ledger, uid in ((ours, "a"), (theirs, "b"), (theirs, "c")):
        ledger.hold(entry(uid))
        ledger.write(entry(uid))
    own = ours.entries[ClaimUID("a")]
    await ours.catch_up()
    assert set(ours.entries) == {"a", "b", "c"}
    assert ours.entries[ClaimUID("a")] is own
    kept = ours.entries[ClaimUID("b")]
    theirs.erase(ClaimUID("c"))
    theirs.write(entry("a", "boot-1", State.PREPARED, grant(memory=5)))
    await ours.catch_up()
    assert set(ours.entries) == {"a", "b"}
    assert ours.entries[ClaimUID("b")] is kept
    assert ours.held_by_others(ClaimUID("b"))[DeviceName("gpu-a")].memory == 5


async def test_a_lost_file_of_a_claim_that_is_there_does_not_free_its_share(directory: Path) -> None:
    ledger = Ledger(directory, "boot-1", has_files=lambda uid: uid == UID)
    ledger.load()
    for uid in (UID, "gone"):
        ledger.hold(entry(uid))
        ledger.write(entry(uid))
        (directory / f"{uid}.json").unlink()
    await ledger.catch_up()
    assert set(ledger.entries) == {UID}
    assert dict(ledger.stored) == {}


async def test_a_file_that_is_broken_while_we_run_is_still_counted(directory: Path) -> None:
    ledger = reloaded(directory)
    ledger.hold(entry())
    ledger.write(entry())
    (directory / f"{UID}.json").write_bytes(b"{")
    await ledger.catch_up()
    assert dict(ledger.entries) == {UID: entry()}
    assert ledger.uncounted == {}
    assert set(ledger.unreadable) == {UID}


def test_somebodys_change_is_noticed(directory: Path) -> None:
    ledger = reloaded(directory)
    assert not ledger.is_current()
    ledger.leave()
    assert ledger.is_current()
    (directory / "forged.json").write_bytes(encode(entry("forged")))
    assert not ledger.is_current()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["gpu-a", "gpu-b"]), st.integers(0, 9))))
def test_the_running_sum_is_the_sum(steps: list[tuple[str, str, int]]) -> None:
    ledger = Ledger(Path("/nonexistent"), "boot-1")
    for uid, device, memory in steps:
        if memory == 0:
            ledger.release(ClaimUID(uid))
        else:
            ledger.hold(entry(uid, "boot-1", State.PREPARED, grant(device, memory), grant(device, 1, 1)))
    for uid in "abcd":
        held: dict[str, int] = {}
        for other in ledger.entries.values():
            for each in other.grants if other.uid != uid else ():
                held[each.device] = held.get(each.device, 0) + each.memory
        found = ledger.held_by_others(ClaimUID(uid))
        assert {device: amounts.memory for device, amounts in found.items()} == held


def test_what_others_hold() -> None:
    ledger = Ledger(Path("/nonexistent"), "boot-1")
    ledger.hold(entry("one", "boot-1", State.PREPARED, grant(), grant("gpu-b", 5, 1)))
    ledger.hold(entry("two", "boot-1", State.PREPARING, grant()))
    assert ledger.held_by_others(ClaimUID("two")) == {
        "gpu-a": Amounts(3 << 30, 30, 100),
        "gpu-b": Amounts(5, 30, 100),
    }
    assert ledger.held_by_others(ClaimUID("three"))[DeviceName("gpu-a")] == Amounts(6 << 30, 60, 200)
    ledger.release(ClaimUID("two"))
    assert ledger.held_by_others(ClaimUID("one")) == {}


@given(st.integers(0, len(encode(entry())) - 1), st.integers(0, 255))
def test_no_damaged_byte_goes_unnoticed(position: int, byte: int) -> None:
    content = bytearray(encode(entry()))
    content[position] = byte
    try:
        found = decode(bytes(content), UID)
    except (CorruptLedgerError, NewerLedgerError):
        return
    assert found == entry()

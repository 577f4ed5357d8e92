from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.capacity import Amounts
from dra_driver.ledger import (
    CorruptLedgerError,
    Entry,
    GrantEntry,
    Ledger,
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


def test_the_format_of_version_1() -> None:
    """Later releases must go on reading this very file."""
    assert_golden(GOLDEN / "ledger-1.json", encode(entry()).decode() + "\n")
    assert decode((GOLDEN / "ledger-1.json").read_bytes(), UID) == entry()


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
    again = Ledger(directory, "boot-1")
    loaded = again.load()
    assert [path.name for path in loaded.set_aside] == [f"{UID}.corrupt"]
    assert (directory / f"{UID}.corrupt").read_bytes() == content
    assert set(again.entries) == {"good"}
    assert Ledger(directory, "boot-1").load().set_aside == ()


def test_a_newer_file_is_left_alone(directory: Path) -> None:
    reloaded(directory)
    content = b'{"version": 2, "sha256": "", "entry": {"all": "different"}}'
    (directory / f"{UID}.json").write_bytes(content)
    ledger = Ledger(directory, "boot-1")
    assert [path.name for path in ledger.load().newer] == [f"{UID}.json"]
    assert (directory / f"{UID}.json").read_bytes() == content


def test_entries_of_an_earlier_boot_are_not_counted(directory: Path) -> None:
    reloaded(directory).write(entry(boot_id="boot-0"))
    ledger = Ledger(directory, "boot-1")
    assert ledger.load().earlier_boot == (entry(boot_id="boot-0"),)
    assert dict(ledger.entries) == {}


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

"""Progress lines in a log."""

from __future__ import annotations

import threading

import pytest

from tests.cluster import progress


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (83, "1 min 23 s"), (3600, "60 min 00 s")],
)
def test_duration(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text


def test_long_step_has_a_heartbeat(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "HEARTBEAT", 0.02)
    asked = threading.Event()

    def detail() -> str:
        asked.set()
        return "half"

    with progress.step("building it (7 min, once)", detail):
        assert asked.wait(60)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "==> building it (7 min, once)"
    assert lines[1] == "    0 s: half"
    assert lines[-1].startswith("==> building it: done in ")


def test_failed_step_is_not_done(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), progress.step("building it"):
        raise ZeroDivisionError
    assert "done" not in capsys.readouterr().err

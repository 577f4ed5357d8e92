from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dra_driver.process import logs

_log = logging.getLogger("dra_driver.test")


class Lines(logging.Handler):
    """What would be printed."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def handlers() -> Iterator[list[Lines]]:
    made = [Lines(logs.TextLines()), Lines(logs.JsonLines())]
    logger = logging.getLogger("dra_driver.test")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    for handler in made:
        logger.addHandler(handler)
    yield made
    for handler in made:
        logger.removeHandler(handler)


def objects(handler: Lines) -> list[dict[str, Any]]:
    return [json.loads(line) for line in handler.lines]


def test_both_forms(handlers: list[Lines]) -> None:
    text, as_json = handlers
    with logs.about(request="17", method="NodePrepareResources"), logs.about(claim="ns/name:uid"):
        _log.warning("%d of two", 1, extra=logs.fields(milliseconds=3.5, path=Path("/a")))
    (line,) = text.lines
    assert line.endswith(
        "WARNING  dra_driver.test: 1 of two [request=17 method=NodePrepareResources claim=ns/name:uid]"
    )
    (entry,) = objects(as_json)
    time = datetime.fromisoformat(entry.pop("time"))
    assert abs((datetime.now(UTC) - time).total_seconds()) < 60
    assert entry == {
        "level": "warning",
        "logger": "dra_driver.test",
        "message": "1 of two",
        "request": "17",
        "method": "NodePrepareResources",
        "claim": "ns/name:uid",
        "milliseconds": 3.5,
        "path": "/a",
    }


def test_text_does_not_say_a_claim_twice(handlers: list[Lines]) -> None:
    with logs.about(claim="ns/name:uid"):
        _log.info("ResourceClaim ns/name:uid is there")
    assert handlers[0].lines[0].endswith("ResourceClaim ns/name:uid is there")


def test_a_message_can_not_look_like_another_line(handlers: list[Lines]) -> None:
    _log.info("first\n2026-01-01 second\r")
    assert handlers[0].lines[0].endswith("first\\n2026-01-01 second\\r")
    assert len(handlers[1].lines[0].splitlines()) == 1


def test_a_traceback_is_told(handlers: list[Lines]) -> None:
    try:
        dict[str, int]()["x"]
    except KeyError:
        _log.exception("it failed")
    assert "KeyError: 'x'" in handlers[0].lines[0]
    assert "KeyError: 'x'" in objects(handlers[1])[0]["traceback"]


async def test_tasks_and_threads_inherit_it_and_neighbours_do_not(handlers: list[Lines]) -> None:
    async def work(claim: str) -> None:
        with logs.about(claim=claim):
            await asyncio.sleep(0)
            await asyncio.to_thread(_log.info, "in a thread of %s", claim[-1])
            await asyncio.create_task(later())

    async def later() -> None:
        _log.info("later")

    async def of_a_task() -> None:
        logs.task_is_about(claim="ns/c:3")
        _log.info("later")

    await asyncio.gather(work("ns/a:1"), work("ns/b:2"), of_a_task())
    _log.info("about nothing")
    said = [(entry["message"], entry.get("claim")) for entry in objects(handlers[1])]
    assert sorted(said, key=str) == [
        ("about nothing", None),
        ("in a thread of 1", "ns/a:1"),
        ("in a thread of 2", "ns/b:2"),
        ("later", "ns/a:1"),
        ("later", "ns/b:2"),
        ("later", "ns/c:3"),
    ]


def test_other_packages_are_quiet_at_debug() -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    ours = {name: logging.getLogger(name).level for name in ("dra_driver", "kube", "cdi", "interposer")}
    try:
        logs.start("debug", "json")
        assert logging.getLogger("dra_driver.anything").isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("asyncio").isEnabledFor(logging.INFO)
    finally:
        logging.captureWarnings(capture=False)
        root.handlers[:], root.level = before
        for name, level in ours.items():
            logging.getLogger(name).setLevel(level)

"""Log lines: for people as text, for machines as JSON, each with the claim and the call that it is about.

What a line is about is held in context variables, which tasks and `asyncio.to_thread` inherit: what is logged
anywhere below a Prepare carries its claim. No payload is logged above debug.

    with about(request="17", method="NodePrepareResources"), about(claim=str(ref)):
        _log.info("done", extra=fields(milliseconds=3.1))
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal

import msgspec

_OURS = ("dra_driver", "kube", "cdi", "interposer")
_FIELDS = "fields"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_about: ContextVar[Mapping[str, str]] = ContextVar("about", default=_NOTHING)


@contextlib.contextmanager
def about(**what: str) -> Iterator[None]:
    """Lines from inside say so: `claim` (namespace/name:uid), `request` (a call's number), `method`."""
    token = _about.set({**_about.get(), **what})
    try:
        yield
    finally:
        _about.reset(token)


def task_is_about(**what: str) -> None:
    """As `about`, for the rest of the present task, which nobody else shares."""
    _about.set({**_about.get(), **what})


def fields(**values: Any) -> dict[str, Any]:
    """For `extra=`: what JSON lines have besides the message, which says it in words already."""
    return {_FIELDS: values}


def start(level: str, form: Literal["text", "json"]) -> None:
    """From here on all logs go to stderr. `level` is ours; of other packages only warnings are shown."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    for name in _OURS:
        logging.getLogger(name).setLevel(level.upper())


class TextLines(logging.Formatter):
    """`TIME LEVEL module: message [claim=… request=…]`; a claim that the message names is not said twice."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        said = " ".join(
            f"{name}={value}"
            for name, value in _about.get().items()
            if name != "claim" or value not in message
        )
        line = (
            f"{_time(record):%Y-%m-%d %H:%M:%S}.{int(record.msecs):03d} {record.levelname:<8}"
            f" {record.name}: {_one_line(message)}{f' [{said}]' if said else ''}"
        )
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonLines(logging.Formatter):
    """An object per line: time, level, logger, message, then what it is about, fields, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_about.get(),
            **getattr(record, _FIELDS, {}),
        }
        if trace := _trace(self, record):
            line["traceback"] = trace
        return msgspec.json.encode(line, enc_hook=str).decode()


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    parts += [formatter.formatStack(record.stack_info)] if record.stack_info else []
    return "\n".join(parts)


def _one_line(message: str) -> str:
    """So that nobody's text can look like a line of ours."""
    return message.replace("\r", "\\r").replace("\n", "\\n")

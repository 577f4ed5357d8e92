"""Progress on a terminal or in a CI log: one line when a step starts, a heartbeat while it lasts, one at its
end.

Everything goes to stderr, so that stdout stays the command's own.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

HEARTBEAT = 15.0  # seconds between two lines in a log; a terminal's line is renewed each second


def say(text: str) -> None:
    print(f"\033[1m==>\033[0m {text}" if sys.stderr.isatty() else f"==> {text}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """12.3 → "12 s", 83 → "1 min 23 s"."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"


@contextlib.contextmanager
def step(title: str, detail: Callable[[], str] | None = None) -> Iterator[None]:
    """Says `title`, then every now and then the time it has taken and `detail()`, then how long it took.

    `detail` is called from another thread.
    """
    say(title)
    started, done = time.monotonic(), threading.Event()
    beat = threading.Thread(target=_beat, args=(started, done, detail), daemon=True)
    beat.start()
    try:
        yield
    finally:
        done.set()
        beat.join()
    say(f"{title.partition(' (')[0]}: done in {duration(time.monotonic() - started)}")


def _beat(started: float, done: threading.Event, detail: Callable[[], str] | None) -> None:
    terminal = sys.stderr.isatty()
    while not done.wait(1.0 if terminal else HEARTBEAT):
        line = "    " + duration(time.monotonic() - started)
        if detail is not None and (more := detail()):
            line += f": {more}"
        print(
            f"\r\033[K{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True
        )
    if terminal:
        print("\r\033[K", end="", file=sys.stderr, flush=True)

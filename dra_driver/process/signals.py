"""Signals, taken by a thread of their own: they are answered whatever the event loop is busy with.

SIGTERM, SIGINT   the agent ends in order; if it hasn't after a few seconds, or at a second signal, at once,
                  which is safe at any moment, since everything on disk is written for a crash
SIGUSR1           the state is written down (dump.py)
SIGUSR2           the stacks of all threads go to stderr, even where Python itself hangs
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

_log = logging.getLogger(__name__)
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
_TAKEN = _ENDING | {signal.SIGUSR1}
PATIENCE = 4.5  # seconds from SIGTERM to the end


def block() -> None:
    """From here on this thread, and those that it starts, leave our signals to `Signals`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN)
    if sys.stderr is not None:
        faulthandler.register(signal.SIGUSR2, all_threads=True, chain=False)


class Signals:
    """`stop` is set by the first signal that ends us. `dump` is called in our thread, at each SIGUSR1."""

    def __init__(self, dump: Callable[[], None], *, patience: float = PATIENCE) -> None:
        block()
        self.stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._dump = dump
        self._patience = patience
        threading.Thread(target=self._take, name="signals", daemon=True).start()

    def _take(self) -> None:
        ends_at: float | None = None
        while True:
            if ends_at is None:
                number = signal.sigwait(_TAKEN)
            else:
                info = signal.sigtimedwait(_TAKEN, max(0.0, ends_at - time.monotonic()))
                if info is None:
                    self._give_up(f"not ended within {self._patience:g} s of being told to")
                number = signal.Signals(info.si_signo)
            if number == signal.SIGUSR1:
                self._dump_safely()
            elif ends_at is not None:
                self._give_up("told to stop again")
            else:
                ends_at = time.monotonic() + self._patience
                _log.info("told to stop by %s", signal.Signals(number).name)
                self._loop.call_soon_threadsafe(self.stop.set)

    def _dump_safely(self) -> None:
        try:
            self._dump()
        except Exception:
            _log.exception("the state can't be dumped")

    def _give_up(self, why: str) -> NoReturn:
        _log.error("%s: ended at once; the next start takes up what was going on", why)
        faulthandler.dump_traceback(all_threads=True)
        os._exit(1)

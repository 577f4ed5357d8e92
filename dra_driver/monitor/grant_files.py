"""The files of one grant, read in full only where something has happened since the last look.

A node holds hundreds of grants, nearly all of them idle: looking at one that is takes a few microseconds.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from dra_driver.claims.grants import LIMITS, USAGE
from dra_driver.monitor.control import Grant, Process, Terms
from interposer import abi
from interposer.abi_glance import glance

_log = logging.getLogger(__name__)


class GrantFiles:
    """`seen`: the grant as of the last look; None: it couldn't be read. `is_new`: not what it was before."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.limits = directory / LIMITS
        self._usage = directory / USAGE
        self._path = str(self._usage)
        self._glance: int | None = None
        self.seen: Grant | None = None
        self.is_new = True

    def look(self, since: int) -> Grant | None:
        """The grant by now; with the spans that end later than `since`. None: a file can't be read."""
        try:
            seen = glance(self._path)
            self.is_new = seen != self._glance or self._may_change_unseen()
            if self.is_new:
                self.seen, self._glance = self._read(since), seen
            elif self.seen is not None and self.seen.spans:
                spans = tuple(span for span in self.seen.spans if span.end_ns > since)
                self.seen = replace(self.seen, spans=spans)
        except abi.AbiError as error:
            _log.debug("compute of %s is not looked after: %s", self.name, error)
            self.is_new, self.seen, self._glance = self.seen is not None, None, None
        return self.seen

    def _may_change_unseen(self) -> bool:
        """Whether a process is at something that its death would end, which writes nothing."""
        return self.seen is None or any(
            process.waiting or process.there is not None for process in self.seen.processes
        )

    def _read(self, since: int) -> Grant:
        limits, usage = abi.read_limits(self.limits), abi.read_usage(self._usage, since)
        return Grant(
            name=self.name,
            guaranteed=limits.guaranteed_cores,
            policy=limits.policy,
            priority=limits.priority,
            processes=tuple(_process(each) for each in usage.processes),
            spans=usage.spans,
            told=_told(limits),
        )


def _told(limits: abi.Limits) -> Terms | None:
    if not limits.lease_until_ns:
        return None
    return Terms(limits.effective_cores, limits.stretch, limits.stretch_unlent, limits.lease_until_ns)


def _process(process: abi.Process) -> Process:
    there = (process.resident_ns, process.resident_until) if process.resident_ns else None
    return Process(
        slot=process.slot,
        busy_ns=process.busy_ns,
        waited_ns=process.waited_ns,
        launches=process.launches,
        waiting=process.waiting > 0,
        short_ns=process.short_ns,
        there=there,
    )

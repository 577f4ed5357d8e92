"""Which of a node's agents looks after what is there: publishes slices, mends files, removes leftovers.

While one agent replaces another there are two, maybe of different releases. Both answer the kubelet; but if
both tried to have everything as they would have it, they would undo each other's work without an end. So the
agent that the kubelet registered last leads, as it is also the one that the kubelet asks, and the other
stands back until the leader is gone. The leader's socket is written in a file; it leads as long as somebody
listens there, so a crash needs no cleaning up, and going back to the old release just works.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from pathlib import Path

from cdi import durable

NAME = "leader"
_log = logging.getLogger(__name__)


class Lead:
    """`path`: the file. `own`: the socket on which this agent serves the kubelet."""

    def __init__(self, path: Path, own: Path, *, is_alive: Callable[[Path], bool] | None = None) -> None:
        self._path = path
        self._own = own
        self._is_alive = is_alive or is_listening
        self._listeners: list[Callable[[], None]] = []
        self._held: bool | None = None
        self._why_not_written = ""

    def listen(self, listener: Callable[[], None]) -> None:
        """`listener` is called when we have become the leader, or are none any more."""
        self._listeners.append(listener)

    def take(self) -> None:
        """The kubelet has registered this agent: from now on it leads."""
        self._write()
        self.holds()

    def holds(self) -> bool:
        """Whether we lead, taking over from a leader who is gone. A few system calls, none that waits."""
        leader = self._leader()
        if leader != self._own and (leader is None or not self._is_alive(leader)):
            self._take_over(leader)
            leader = self._own
        self._tell(leader == self._own)
        return leader == self._own

    def _leader(self) -> Path | None:
        try:
            return Path(self._path.read_text(errors="replace").strip() or "/")
        except OSError:
            return None

    def _take_over(self, gone: Path | None) -> None:
        self._write()
        if gone is not None and self._held is False:
            _log.info("the agent at %s is gone; this one leads the node", gone)

    def _write(self) -> None:
        why_not = ""
        try:
            durable.write(self._path, bytes(self._own), survives_power_cut=False)
        except OSError as error:
            why_not = error.strerror or str(error)
        if why_not and why_not != self._why_not_written:  # or a full disk would be told twice a second
            _log.error(
                "%s can't be written (%s), so another agent of this node may go on leading",
                self._path,
                why_not,
            )
        self._why_not_written = why_not

    def _tell(self, holds: bool) -> None:
        if holds != self._held:
            was, self._held = self._held, holds
            if was is not None or not holds:
                _log.info(
                    "this agent %s", "leads the node" if holds else "stands back: a newer one leads the node"
                )
            for listener in self._listeners:
                listener()


def is_listening(path: Path) -> bool:
    """Whether a process serves a Unix socket. Never waits: one that is too busy to answer counts."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.setblocking(False)
        try:
            return peer.connect_ex(str(path)) in (0, errno.EAGAIN, errno.EINPROGRESS)
        except OSError:  # a path that is too long
            return False

"""Entering the namespaces of a cluster from outside, by the PID of the init that holds them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import CommandError

CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Namespaces:
    """The namespaces of process `pid` (a number of this process's own PID namespace)."""

    pid: int

    def command(self, *argv: str) -> list[str]:
        """argv that runs a command in all of them; it starts in / and inherits the environment."""
        return ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--uts", "--", *argv]

    def network_command(self, *argv: str) -> list[str]:
        """argv that runs a command in the network namespace only: files are this machine's, as is the PID."""
        return ["nsenter", f"--target={self.pid}", "--net", "--", *argv]

    def ip(self, *lines: str) -> None:
        """`ip` commands in the network namespace, one process for all of them."""
        command = self.network_command("ip", "-batch", "-")
        run(command, text="\n".join(lines) + "\n")

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """The calling thread is in the network namespace meanwhile: sockets made here stay there for good."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            other = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _setns(other)
            finally:
                os.close(other)
            try:
                yield
            finally:
                _setns(own)
        finally:
            os.close(own)

    def connect(self, host: str, port: int, timeout: float) -> socket.socket:
        """A TCP connection from inside the network namespace, usable by any thread."""
        with self.network():
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        connection.settimeout(timeout)
        try:
            connection.connect((host, port))
        except OSError:
            connection.close()
            raise
        return connection


def unshare(*argv: str) -> list[str]:
    """argv that runs a command as PID 1 of namespaces of its own; its unshare process takes it along when it
    ends.
    """
    flags = [
        "--mount",
        "--pid",
        "--net",
        "--uts",
        "--ipc",
        "--fork",
        "--kill-child=KILL",
        "--propagation=private",
    ]
    return ["unshare", *flags, "--", *argv]


def run(
    command: list[str],
    *,
    text: str | None = None,
    check: bool = True,
    timeout: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command with `text` as its input and its output captured; CommandError where it fails."""
    done = subprocess.run(
        command,
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout,
        env=environment,
    )
    if check and done.returncode != 0:
        shown = tuple(command[command.index("--") + 1 :] if command[0] == "nsenter" else command)
        raise CommandError(shown, done.returncode, done.stdout, done.stderr)
    return done


def alive(pid: int) -> bool:
    """Whether the process exists and isn't a zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def _setns(descriptor: int) -> None:
    if _LIBC.setns(descriptor, CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"setns: {os.strerror(error)}")

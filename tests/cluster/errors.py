"""What can go wrong around the test cluster, by what the person in front of it should do."""

from __future__ import annotations


class ClusterError(Exception):
    """Anything the harness reports; its text is for people."""


class MissingError(ClusterError):
    """This machine lacks something that can't be fetched; the text is one line that names it."""


class BuildError(ClusterError):
    """A build step ended with an error; the text holds the end of its output."""


class StartError(ClusterError):
    """A component or the cluster didn't come up; the text holds the ends of the logs."""


class CommandError(ClusterError):
    """A command against the cluster (kubectl, helm, a command in a node) ended with a non-zero status."""

    def __init__(self, command: tuple[str, ...], status: int, stdout: str, stderr: str) -> None:
        self.command, self.status, self.stdout, self.stderr = command, status, stdout, stderr
        super().__init__(f"{' '.join(command)}: exit status {status}\n{stderr}{stdout}".rstrip())


class WaitError(ClusterError):
    """A condition that was waited for didn't come true in time."""

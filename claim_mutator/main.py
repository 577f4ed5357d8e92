"""`tessera-mutator`: one asyncio process, supervised tasks. A task that dies ends the process with an error.

SIGTERM drains, and ends with exit status 0.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator

from claim_mutator.facts import UnsupportedServer
from claim_mutator.names import MUTATOR
from claim_mutator.replica import run
from claim_mutator.settings import Settings, load
from kube import configuration
from kube.configuration import ConfigurationError
from kube.settings import SettingsError, fields, sources

_log = logging.getLogger(__name__)


def main() -> None:
    """Exit status 0 after SIGTERM, 1 when something went wrong, 2 for bad settings."""
    try:
        settings = load(sys.argv[1:], os.environ)
    except SettingsError as error:
        for mistake in error.mistakes:
            print(f"{MUTATOR}: {mistake}", file=sys.stderr)
        sys.exit(2)
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    for sentence in sources.unknown_variables(os.environ, fields(Settings)):
        _log.warning("%s", sentence)
    reasons: list[BaseException] = []
    try:
        asyncio.run(run(settings, configuration.load(settings.kubeconfig)))
    except* (ConfigurationError, UnsupportedServer, OSError) as group:
        reasons += _leaves(group)
    # Not in the except* above: what is raised there becomes one more member of the group (Python 3.11.2).
    for reason in reasons:
        _log.critical("%s", reason)
    if reasons:
        sys.exit(1)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


if __name__ == "__main__":
    main()

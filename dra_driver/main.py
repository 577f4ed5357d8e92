"""tessera-driver: reads the settings, starts the agent, and says with its exit status how it ended.

0 after SIGTERM, 1 after a failure, 2 for settings that can't be used.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

from dra_driver import agent
from dra_driver.configuration.settings import PROGRAM, Settings, load
from dra_driver.process import dump, logs, memory, signals, tasks
from kube import configuration
from kube.configuration import Connection
from kube.settings import SettingsError, fields, sources

_log = logging.getLogger(__name__)
_THREADS = 8  # for files: by default there would be one for each core and more


def main() -> NoReturn:
    """The console script."""
    try:
        chosen = load(sys.argv[1:])
        connection = configuration.load(chosen.kubeconfig)
    except (SettingsError, configuration.ConfigurationError) as error:
        for line in str(error).splitlines():
            print(f"{PROGRAM}: {line}", file=sys.stderr)
        sys.exit(2)
    logs.start(chosen.log_level, chosen.log_format)
    memory.bound()
    signals.block()
    for sentence in sources.unknown_variables(os.environ, fields(Settings)):
        _log.warning("%s", sentence)
    dump.announce(chosen.run_dir)
    status = _run(chosen, connection)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: a thread that hangs in the NVIDIA driver or on a dead disk would be waited for.
    os._exit(status)


def _run(chosen: Settings, connection: Connection) -> int:
    """The exit status. The loop is left as it is at the end: closing it waits for its threads."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="files"))
    try:
        loop.run_until_complete(agent.run(chosen, connection))
    except OSError as error:
        # A directory that can't be written, an address in use: the sentence is all there is to know.
        _log.critical("ended: %s", error)
        return 1
    except Exception as error:
        _log.critical("ended by a failure: %s", "; ".join(tasks.reasons(error)), exc_info=True)
        return 1
    _log.info("ended")
    return 0

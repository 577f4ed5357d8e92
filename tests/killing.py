"""The node agent, which kills itself at named points of Prepare or Unprepare.

It is the agent's own `main`; only the steps are others, which look into a file (the `order`) for the points
at which to die, one a line: "before cdi", "after remove-ledger". A point is taken out before the agent dies
of it, so one that is started again gets further. Tests run it instead of `tessera-driver`, as text where this
package is not installed: so nothing but the standard library and the agent is imported here.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dra_driver.claims.steps import Step, Steps
    from dra_driver.metrics.counters import Metrics


def run(order: str) -> None:
    """The agent, with the settings that the environment has. Does not return."""
    from dra_driver import agent, main  # noqa: PLC0415 - of the child alone, see `run_again`
    from dra_driver.claims.steps import Steps  # noqa: PLC0415

    dying = threading.Lock()

    def point(when: str, step: Step) -> None:
        with dying:
            left = read(Path(order))
            if f"{when} {step.value}" in left:
                left.remove(f"{when} {step.value}")
                write(Path(order), left)
                os.kill(os.getpid(), signal.SIGKILL)

    def steps(metrics: Metrics) -> Steps:
        return Steps(
            took=metrics.step_took,
            clock=time.monotonic,
            reached=functools.partial(point, "before"),
            passed=functools.partial(point, "after"),
        )

    agent.run = functools.partial(agent.run, steps=steps)
    main.main()


def run_again(order: str) -> None:
    """The same, and again whenever it was killed: Kubernetes would wait longer each time."""
    while True:
        child = os.fork()
        if child == 0:
            run(order)
        signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))  # noqa: B023
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            os._exit(max(os.waitstatus_to_exitcode(status), 0))


def read(order: Path) -> list[str]:
    """The points that are left."""
    try:
        return order.read_text().splitlines()
    except FileNotFoundError:
        return []


def write(order: Path, points: Iterable[str]) -> None:
    order.write_text("".join(f"{point}\n" for point in points))


def before_each_and_after_the_last(steps: Sequence[Step]) -> list[str]:
    """All points: what is after one step is before the next."""
    return [*(f"before {step.value}" for step in steps), f"after {steps[-1].value}"]


def text(order: str, *, entry: str = "run", installed_in: str = "") -> str:
    """A program for `python -c`. `installed_in`: where the agent's packages are, if not on Python's path."""
    path = f"import sys\nsys.path.insert(0, {installed_in!r})\n" if installed_in else ""
    return f"{Path(__file__).read_text()}\n{path}{entry}({order!r})\n"

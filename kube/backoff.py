"""How long to wait before the next try: grows with each failure, jittered so that many clients spread out."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """`first` seconds after one failure, doubled with each further one, never more than `longest`."""

    first: float = 0.8
    longest: float = 30.0

    def delay(self, failures: int, retry_after: float | None = None) -> float:
        """Seconds after `failures` failures in a row; at least what the server asked for."""
        if failures <= 0:
            return retry_after or 0.0
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 16))
        return max(full * random.uniform(0.5, 1.0), retry_after or 0.0)  # noqa: S311 - spreads load, no secret

"""Version numbers as drivers print them → SemVer, the only form that a ResourceSlice's `version` may have.

A single attribute that is not SemVer has the API server refuse the whole slice, and NVIDIA's are not:
570.124.06 has a leading zero, 12.8 two parts, 535.104.05.01 four. Every version stays of type `version`, or a
selector that compares them would fail on some nodes.
"""

from __future__ import annotations

import re

_NUMBERS = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_MAX_LENGTH = 64  # of an attribute's value
_UNKNOWN = "0.0.0"


def semver(text: str) -> str:
    """Three parts without leading zeros; a fourth and further ones become build metadata (`+1`).

    Text without a leading number gives 0.0.0: a version below all others, never a refused slice.
    """
    match = _NUMBERS.match(text.strip())
    if match is None:
        return _UNKNOWN
    parts = [part.lstrip("0") or "0" for part in match.group().split(".")]
    core = [*parts, "0", "0"][:3]
    version = ".".join(core) + (f"+{'.'.join(parts[3:])}" if parts[3:] else "")
    return version if len(version) <= _MAX_LENGTH else _UNKNOWN


def cuda_version(number: int) -> str:
    """NVML's CUDA version, 1000 * major + 10 * minor: 12080 → 12.8.0."""
    return f"{number // 1000}.{number % 1000 // 10}.0"

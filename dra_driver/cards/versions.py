"""Version numbers as drivers print them → SemVer, the only form that a ResourceSlice's `version` may have.

A single attribute that is not SemVer has the API server refuse the whole slice, and NVIDIA's are not:
570.124.06 has a leading zero, 12.8 two parts, 535.104.05.01 four. Every version stays of type `version`: a
selector that compares it with a string would be an error, which ends the scheduling of its Pod on all nodes.
What numbers can't say is kept as build metadata, which no comparison looks at.
"""

from __future__ import annotations

import re

_NUMBERS = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_NOT_IN_METADATA = re.compile(r"[^0-9A-Za-z-]+", re.ASCII)
_MAX_LENGTH = 64  # of an attribute's value
_MAX_NUMBER = (1 << 64) - 1  # Kubernetes keeps the parts in 64 bits
_UNKNOWN = "0.0.0"


def semver(text: str) -> str:
    """Three parts without leading zeros; whatever follows becomes build metadata (`+1`, `+beta`).

    Text without a leading number gives 0.0.0 and the text: a version below all others, never a refused slice.
    """
    match = _NUMBERS.match(text.strip())
    parts = [part.lstrip("0") or "0" for part in match.group().split(".")] if match is not None else []
    core = ".".join([*parts, "0", "0", "0"][:3])
    rest = text.strip()[match.end() :] if match is not None else text
    if len(core) > _MAX_LENGTH or any(int(part) > _MAX_NUMBER for part in parts[:3]):
        return _UNKNOWN
    words = (word.strip("-") for word in _NOT_IN_METADATA.split(rest))
    metadata = [*parts[3:], *(word for word in words if word)]
    version = f"{core}+{'.'.join(metadata)}" if metadata else core
    return version if len(version) <= _MAX_LENGTH else core


def cuda_version(number: int) -> str:
    """NVML's CUDA version, 1000 * major + 10 * minor: 12080 → 12.8.0."""
    return f"{number // 1000}.{number % 1000 // 10}.0"

"""HAMi's rules (v2.10), read a second time and written without a line of the converter.

Deliberate differences from HAMi, each an answer in place of a silent surprise: out of range, binary suffixes,
a share of no card, more than 32 cards are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20
_FACTORS = {"k": 1000, "M": 1000_000, "": 1}


class Refuse(Exception):  # noqa: N818 - what is expected
    """Such a Pod must not get in."""


@dataclass(frozen=True)
class Wish:
    """memory is a function of the card's size, in MiB; None: all of it, whatever the size."""

    count: int
    mebibytes: int | None
    percent: int | None
    cores: int
    """0: no limit."""

    def memory(self, card: int) -> int:
        """MiB of a card of so many bytes."""
        if self.mebibytes is not None:
            return self.mebibytes
        if self.percent is not None:
            return max(1, card // MIB * self.percent // 100)
        return card // MIB

    @property
    def exclusive(self) -> bool:
        return self.cores == 100


def wish_of(limits: Mapping[str, Any]) -> Wish | None:
    """One container's limits. Raises Refuse."""
    gpu, gpumem, percentage, cores = (
        _number(limits.get(f"nvidia.com/{name}"))
        for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores")
    )
    for name, value, most in (
        ("gpu", gpu, 32),
        ("gpumem", gpumem, 1 << 24),
        ("p", percentage, 100),
        ("c", cores, 100),
    ):
        if value is not None and not 0 <= value <= most:
            raise Refuse(name)
    given = [value for value in (gpumem, percentage, cores) if value is not None]
    if gpu is None:
        if not given:
            return None
        gpu = 1
    if gpu == 0:
        if any(given):
            raise Refuse("a share of no card")
        return None
    if cores is None:
        exclusive = percentage == 100 if percentage is not None else gpumem is None
        cores = 100 if exclusive else 0
    if gpumem:
        return Wish(gpu, gpumem, None, cores)
    if percentage and percentage < 100:
        return Wish(gpu, None, percentage, cores)
    return Wish(gpu, None, None, cores)


def _number(value: Any) -> int | None:
    if value is None or isinstance(value, int):
        return value
    factor = _FACTORS.get(value[-1:] if value[-1:].isalpha() else "")
    digits = value.rstrip("kM")
    if factor is None or not digits.lstrip("-").isdigit():
        raise Refuse(str(value))
    return int(digits) * factor


def allowed(annotations: Mapping[str, str], uuid: str | None, product: str | None) -> bool:
    """Whether a card may be given; one that does not tell its UUID or name matches nothing."""

    def listed(key: str) -> list[str]:
        return [part.strip() for part in annotations.get(f"nvidia.com/{key}", "").split(",") if part.strip()]

    def named(term: str) -> bool:
        return product is not None and term.lower() in f"NVIDIA-{product}".lower()

    if listed("use-gpuuuid") and uuid not in listed("use-gpuuuid"):
        return False
    if uuid is not None and uuid in listed("nouse-gpuuuid"):
        return False
    if listed("use-gputype") and not any(map(named, listed("use-gputype"))):
        return False
    return not any(map(named, listed("nouse-gputype")))

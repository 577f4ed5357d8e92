"""Parameters that a claim may carry, and what is said to them: at Prepare, and by the API server before it.

One table for both, so that they can't drift apart: what the admission policy lets through must be prepared,
and what Prepare would refuse should not have been let in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

API_VERSION, KIND = "gpu.tessera.dev/v1alpha1", "ShareConfig"
HEADER = {"apiVersion": API_VERSION, "kind": KIND}


@dataclass(frozen=True)
class Case:
    """`parameters` of a claim of a class without config of its own; `refused`: the field, None for none."""

    name: str
    parameters: dict[str, Any]
    refused: str | None = None


def _case(name: str, refused: str | None = None, **parameters: Any) -> Case:
    return Case(name, HEADER | parameters, refused)


def _capped(name: str, refused: str | None = None, **cap: Any) -> Case:
    return _case(name, refused, caps=[cap])


CASES = (
    _case("nothing"),
    _case("the-library", enforcement="library"),
    _case("force", corePolicy="force"),
    _case("as-a-shim", interposition="shim"),
    _case("preloaded", interposition="preload"),
    _case("out-of-memory-rather-than-slow", memoryOverflow="refuse"),
    _case("what-holds-anyway", corePolicy="default", priority=1),
    _case("all-at-once", enforcement="library", corePolicy="force", priority=1),
    _case("nulls", enforcement=None, interposition=None, corePolicy=None, priority=None, caps=None),
    _case("no-caps", caps=[]),
    _capped("a-cap", container="a", memory="1Gi", cores=10),
    _capped("memory-alone", container="a-b-c", memory=1048576),
    _capped("cores-alone", container="a", cores=1),
    _case("sixteen-caps", caps=[{"container": f"c{n}", "cores": 1} for n in range(16)]),
    # What loosens.
    _case("no-enforcement", "enforcement", enforcement="none"),
    _case("no-core-policy", "corePolicy", corePolicy="disable"),
    _case("goes-first", "priority", priority=0),
    # What is misspelt, or of another type: it must not mean that nothing was asked.
    _case("unknown-field", "corepolicy", corepolicy="force"),
    _case("unknown-field-of-a-later-release", "burst", burst=True),
    _case("enforcement-in-capitals", "enforcement", enforcement="Library"),
    _case("enforcement-is-no-text", "enforcement", enforcement=True),
    _case("unknown-interposition", "interposition", interposition="hook"),
    _case("interposition-true", "interposition", interposition=True),
    _case("unknown-overflow", "memoryOverflow", memoryOverflow="managed"),
    _case("overflow-true", "memoryOverflow", memoryOverflow=True),
    _case("unknown-core-policy", "corePolicy", corePolicy="strict"),
    _case("priority-as-text", "priority", priority="1"),
    _case("priority-too-high", "priority", priority=2),
    _case("priority-negative", "priority", priority=-1),
    _case("priority-true", "priority", priority=True),
    _case("caps-not-a-list", "caps", caps={"a": {"cores": 1}}),
    _case("caps-of-text", "caps", caps=["a"]),
    _case("seventeen-caps", "caps", caps=[{"container": f"c{n}", "cores": 1} for n in range(17)]),
    _case("a-container-twice", "caps", caps=[{"container": "a", "cores": 1}] * 2),
    _capped("cap-without-container", "caps", memory="1Gi"),
    _capped("cap-of-a-number", "caps", container=7, cores=1),
    _capped("cap-of-no-container-name", "caps", container="A", cores=1),
    _capped("cap-of-nothing", "caps", container="a"),
    _capped("cap-with-unknown-field", "caps", container="a", cores=1, mem="1Gi"),
    _capped("cap-negative-memory", "caps", container="a", memory="-1Gi"),
    _capped("cap-no-memory", "caps", container="a", memory="0"),
    _capped("cap-no-quantity", "caps", container="a", memory="3 GB"),
    _capped("cap-part-of-a-byte", "caps", container="a", memory="500m"),
    _capped("cap-memory-true", "caps", container="a", memory=True),
    _capped("cap-no-cores", "caps", container="a", cores=0),
    _capped("cap-too-many-cores", "caps", container="a", cores=101),
    _capped("cap-cores-as-text", "caps", container="a", cores="10"),
    # What is no ShareConfig at all.
    Case("no-header", {}, "apiVersion"),
    Case("another-version", {"apiVersion": "gpu.tessera.dev/v2", "kind": KIND}, "apiVersion"),
    Case("another-kind", {"apiVersion": API_VERSION, "kind": "TimeSlicingConfig"}, "kind"),
)

"""Conversions of Pods that are alike: replicas, and Pods that differ in what nobody here reads.

A conversion depends on nothing but the part of a Pod that `pod.py` decodes, the namespace and the cluster's
facts; so its result can be given again as long as these are the same. That saves most of a review's time.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from claim_mutator import review
from claim_mutator.cluster import Cluster
from claim_mutator.conversion import Conversion, convert
from claim_mutator.pod import Pod
from claim_mutator.rules import Rules

_MOST = 256  # results
_LONGEST = 32 << 10  # bytes of what is read of a Pod


class Conversions:
    """The least recently used are forgotten; all, when the cluster changes."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._cluster: Cluster | None = None
        self._found: OrderedDict[tuple[str, bytes], tuple[Conversion, str]] = OrderedDict()
        self._encoder = msgspec.json.Encoder()

    def convert(self, pod: Pod, cluster: Cluster, namespace: str) -> tuple[Conversion, str]:
        """The conversion, and its patch as it is answered. Raises Refused, which is not remembered."""
        if cluster is not self._cluster:
            self._found.clear()
            self._cluster = cluster
        key = namespace, self._read_part(pod)
        held = self._found.get(key)
        if held is not None:
            self._found.move_to_end(key)
            return held
        conversion = convert(pod, self._rules, cluster, namespace)
        found = conversion, review.patch_of(conversion.operations)
        if len(key[1]) <= _LONGEST:
            self._found[key] = found
            if len(self._found) > _MOST:
                self._found.popitem(last=False)
        return found

    def _read_part(self, pod: Pod) -> bytes:
        """Without the names, which matter to messages only."""
        metadata = pod.metadata
        if metadata is None:
            return self._encoder.encode(pod)
        names = metadata.name, metadata.generate_name
        metadata.name = metadata.generate_name = None
        try:
            return self._encoder.encode(pod)
        finally:
            metadata.name, metadata.generate_name = names

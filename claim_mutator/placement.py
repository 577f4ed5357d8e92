"""HAMi's policies for nodes and cards → constraints between a container's cards, or words. Pure.

What a policy prefers is a list of levels, best first: alternatives that the scheduler tries in this order,
and by which it prefers nodes. The last level of a preference takes any cards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from claim_mutator.metadata import CARD_POLICY, NODE_POLICY, NUMA_BIND, WEIGHTS
from claim_mutator.names import DRIVER
from claim_mutator.refusal import Notice, Problem, annotation
from claim_mutator.rules import Rules
from claim_mutator.terms import FALSE, TRUE

_NUMA_NODE = f"{DRIVER}/numaNode"


@dataclass(frozen=True)
class Level:
    """Cards of one container that belong together: equal in `match`, and each as `selector` (CEL) says."""

    name: str = ""
    match: str | None = None
    selector: str | None = None


ANY = Level()
NUMA_BOUND = (
    Level("numa", match=_NUMA_NODE),
    # HAMi takes cards of which no NUMA node is known for cards of one node.
    Level("nonuma", selector=f'!has(device.attributes["{DRIVER}"].numaNode)'),
)
NUMA_PREFERRED = (Level("numa", match=_NUMA_NODE), Level("any"))
TOPOLOGY = (
    Level("nvlink", match=f"{DRIVER}/nvlinkDomain"),
    Level("pcie", match="resource.kubernetes.io/pcieRoot"),
    *NUMA_PREFERRED,
)


@dataclass(frozen=True)
class Placement:
    """levels: of cards of one container, where it has several. alone: HAMi's mutex."""

    levels: tuple[Level, ...] = (ANY,)
    alone: bool = False
    problems: tuple[Problem, ...] = ()
    notices: tuple[Notice, ...] = ()

    @property
    def is_preference(self) -> bool:
        return len(self.levels) > 1 and self.levels[-1].selector is None


def read(annotations: Mapping[str, str], rules: Rules) -> Placement:
    """Never raises: what can't be honoured is in `problems`, what has no effect in `notices`."""
    problems: list[Problem] = []
    notices: list[Notice] = []
    policies = [term for term in _terms(annotations.get(CARD_POLICY)) if _known(term, rules, notices)]
    levels: tuple[Level, ...] = (ANY,)
    if "topology-aware" in policies:
        levels = TOPOLOGY
    elif "numa" in policies:
        levels = NUMA_PREFERRED
    numa_bind = annotations.get(NUMA_BIND, "").strip()
    if numa_bind in TRUE:
        levels = NUMA_BOUND
    elif numa_bind not in FALSE:
        text = f"annotation {NUMA_BIND}: {numa_bind} is not a truth value: write true or false"
        problems.append(Problem(annotation(NUMA_BIND), text))
    if "mutex" in policies:
        _note(notices, CARD_POLICY, "mutex", "gives the Pod its cards alone, for as long as it runs")
    _read_node_policy(annotations.get(NODE_POLICY, "").strip(), notices)
    _read_weights(annotations.get(WEIGHTS, "").strip(), problems, notices)
    return Placement(levels, "mutex" in policies, tuple(problems), tuple(notices))


def _known(term: str, rules: Rules, notices: list[Notice]) -> bool:
    if term in ("topology-aware", "numa", "mutex"):
        return True
    if term not in ("binpack", "spread"):
        _note(
            notices,
            CARD_POLICY,
            term,
            "has no effect, it is not known: write binpack, spread, topology-aware, numa or mutex",
        )
    elif term != rules.placement:
        _note(
            notices,
            CARD_POLICY,
            term,
            f"has no effect: cards are filled by {rules.placement} here, as an administrator set it",
        )
    return False


def _read_node_policy(policy: str, notices: list[Notice]) -> None:
    if policy:
        text = "has no effect: the Kubernetes scheduler chooses nodes; write "
        wish = "podAffinity" if policy == "binpack" else "topologySpreadConstraints, or podAntiAffinity"
        _note(notices, NODE_POLICY, policy, text + wish)


def _read_weights(weights: str, problems: list[Problem], notices: list[Notice]) -> None:
    """HAMi refuses what is malformed; what is well formed nobody reads here."""
    if not weights:
        return
    pairs = [re.fullmatch(r"\s*(slot|core|memory)\s*=\s*([0-9]+)\s*", part) for part in weights.split(",")]
    found = {pair[1]: int(pair[2]) for pair in pairs if pair}
    if len(pairs) == len(found) == 3 and any(found.values()):
        _note(
            notices, WEIGHTS, weights, "has no effect: cards are not scored, their order is set for the node"
        )
        return
    text = "is not three weights, of which one is above 0: write slot=1,core=1,memory=1, or remove it"
    problems.append(Problem(annotation(WEIGHTS), f"annotation {WEIGHTS}: {weights} {text}"))


def _note(notices: list[Notice], key: str, value: str, text: str) -> None:
    notices.append(Notice(annotation(key), f"annotation {key}: {value} {text}"))


def _terms(value: str | None) -> list[str]:
    return [term.strip() for term in (value or "").split(",") if term.strip()]

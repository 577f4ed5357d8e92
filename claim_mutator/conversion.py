"""A Pod → what has to change, the template that it needs, and what its author should know. Pure.

The whole meaning is here, used by the webhook and by `tessera convert` alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from claim_mutator import capacity, container, metadata, outlook, patch, placement, selection, shape, terms
from claim_mutator.alternatives import needs_sizes
from claim_mutator.cluster import Cluster
from claim_mutator.container import Percent, Reading
from claim_mutator.names import (
    IGNORE,
    IGNORE_LABELS,
    MAX_ALTERNATIVES,
    MAX_CONFIGS,
    MAX_CONSTRAINTS,
    MAX_DEVICES,
    Role,
)
from claim_mutator.patch import Operation
from claim_mutator.placement import Placement
from claim_mutator.pod import Pod
from claim_mutator.policies import check_others, check_pod
from claim_mutator.refusal import Notice, Pointer, Problem, Refused
from claim_mutator.rules import Rules
from claim_mutator.shape import Ask, Shape
from claim_mutator.template import Template, template_of


@dataclass(frozen=True)
class Conversion:
    """Nothing to do, if `operations` is empty."""

    operations: tuple[Operation, ...] = ()
    template: Template | None = None
    notices: tuple[Notice, ...] = ()
    readings: tuple[Reading, ...] = ()
    """Of every container of a Pod that has anything to convert, init containers first."""
    requests: Mapping[Pointer, tuple[str, ...]] = field(default_factory=dict)
    """By container, the requests of the template that it refers to."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Each once."""
        return tuple(dict.fromkeys(notice.text for notice in self.notices))


def convert(pod: Pod, rules: Rules, cluster: Cluster, namespace: str = "") -> Conversion:
    """namespace: where the Pod is going to be, if it does not say. Raises Refused with all that is wrong."""
    if any(pod.labels.get(label) == IGNORE for label in IGNORE_LABELS):
        return Conversion()
    readings = tuple(container.read(group, index, each, rules) for group, index, each in pod.all_containers())
    problems = [problem for reading in readings for problem in reading.problems]
    if not problems and not any(reading.keys for reading in readings):
        return Conversion(notices=(*metadata.resources(pod, rules.names), *check_others(pod, rules)))
    if not problems and not any(reading.request for reading in readings):
        return _without_cards(pod, readings, rules)
    if cluster.drops_capacity:
        raise Refused([Problem(("spec", "containers"), capacity.DROPPED)], ())
    namespace = namespace or (pod.metadata and pod.metadata.namespace) or ""
    return _PodConverter(pod, readings, rules, cluster, namespace in cluster.trusted_namespaces).convert()


def _without_cards(pod: Pod, readings: tuple[Reading, ...], rules: Rules) -> Conversion:
    """The names go, and that is all: such a Pod may be privileged, on a node of its choice, anything."""
    notices = tuple(notice for reading in readings for notice in reading.notices)
    return Conversion(tuple(patch.operations(pod, readings, rules)), None, notices, readings)


class _PodConverter:
    """Collects problems and notices while it goes on, so that one refusal names them all."""

    def __init__(
        self, pod: Pod, readings: tuple[Reading, ...], rules: Rules, cluster: Cluster, trusted: bool
    ) -> None:
        self._pod = pod
        self._readings = readings
        self._rules = rules
        self._cluster = cluster
        self._trusted = trusted
        self._problems = [problem for reading in readings for problem in reading.problems]
        self._notices = [notice for reading in readings for notice in reading.notices]

    def convert(self) -> Conversion:
        chosen = selection.read(self._pod.annotations)
        placed = placement.read(self._pod.annotations, self._rules)
        problems, notices = check_pod(self._pod, self._rules)
        self._problems += [*chosen.problems, *placed.problems, *problems]
        self._notices += [*notices, *placed.notices]
        self._notices += metadata.notices(self._pod, self._rules.names)
        asking = [reading for reading in self._readings if reading.request]
        asks = [self._ask(reading, placed) for reading in asking]
        grouping = shape.group(asks, hundred_is_alone=not self._cluster.cores_are_scaled)
        found = Shape(
            grouping.shares,
            grouping.together,
            chosen.selectors,
            placed.levels,
            chosen.cards,
            chosen.instances,
        )
        self._check_memory(asking, found)
        self._check_size(found)
        self._raise_problems()
        cluster = self._cluster.narrowed(chosen.takes) if chosen.cards and chosen.selectors else self._cluster
        template = template_of(found, cluster, self._rules.classes)
        self._check_template(template)
        self._raise_problems()
        names = {
            reading.pointer: tuple(name for index in used for name in template.request_names[index])
            for reading, used in zip(asking, grouping.users, strict=True)
        }
        changes = patch.operations(self._pod, self._readings, self._rules, template, names)
        self._note_placement(placed, asking, template)
        self._notices += outlook.notices(asking, chosen, self._rules, cluster)
        return Conversion(tuple(changes), template, tuple(self._notices), self._readings, names)

    def _raise_problems(self) -> None:
        if self._problems:
            raise Refused(self._problems, self._notices)

    def _ask(self, reading: Reading, placed: Placement) -> Ask:
        if reading.request is None:
            raise ValueError("a container that asks for nothing has no request")
        each = self._pod.container(reading.pointer)
        held, notices = terms.read(
            reading.pointer, each, reading.priority, self._rules, trusted=self._trusted
        )
        self._notices += notices
        return Ask(reading.name, reading.kind, reading.request, held, placed.alone)

    def _check_memory(self, asking: Sequence[Reading], found: Shape) -> None:
        """What can't be turned into memory: percentages where no size is known, and of MIG instances."""
        sizes = len(self._cluster.card_sizes)
        if not found.cards:
            for reading in asking:
                self._check_instance(reading)
            return
        if 0 < sizes <= MAX_ALTERNATIVES or not any(map(needs_sizes, found.shares)):
            return
        known = "no card of the cluster is known yet, so its memory is not"
        if sizes:
            known = (
                f"the cluster's cards have {sizes} different sizes, more than the {MAX_ALTERNATIVES} possible"
            )
        for reading in asking:
            if reading.request is not None and isinstance(reading.request.memory, Percent):
                self._refuse(reading, Role.PERCENTAGE, reading.request.memory.value, known)

    def _check_instance(self, reading: Reading) -> None:
        request = reading.request
        if request is None:
            return
        instances = "MIG instances are chosen by their memory"
        if isinstance(request.memory, Percent):
            self._refuse(reading, Role.PERCENTAGE, request.memory.value, instances)
        elif request.memory is None:
            memory = self._rules.names.preferred(Role.MEMORY)
            text = f"container {reading.name!r}: {instances}, and it names none: write {memory} in MiB"
            self._problems.append(Problem((*reading.pointer, "resources", "limits"), text))
        elif request.cores:
            key = reading.key(Role.CORES, self._rules)
            text = f"container {reading.name!r}: {key} has no effect on MIG instances: each is given whole"
            self._notices.append(Notice(reading.limit(key), text))

    def _refuse(self, reading: Reading, role: Role, value: int, why: str) -> None:
        key, memory = reading.key(role, self._rules), self._rules.names.preferred(Role.MEMORY)
        text = (
            f"container {reading.name!r}, limits: {key}: {value} can't be turned into memory: {why};"
            f" write {memory} in MiB"
        )
        self._problems.append(Problem(reading.limit(key), text))

    def _check_size(self, found: Shape) -> None:
        if found.devices > MAX_DEVICES:
            text = (
                f"the containers ask for {found.devices} cards together, and one Pod can have {MAX_DEVICES}:"
                " ask for fewer"
            )
            self._problems.append(Problem(("spec", "containers"), text))

    def _check_template(self, template: Template) -> None:
        """Limits of the API that only Pods of many containers with many alternatives reach."""
        devices = template.devices
        for entries, most in (("constraints", MAX_CONSTRAINTS), ("config", MAX_CONFIGS)):
            if (number := len(devices.get(entries, ()))) > most:
                text = (
                    f"the containers need {number} entries in the claim's {entries}, and it can have {most}:"
                    " let fewer containers ask for cards, or write gpumem instead of percentages"
                )
                self._problems.append(Problem(("spec", "containers"), text))

    def _note_placement(self, placed: Placement, asking: Sequence[Reading], template: Template) -> None:
        if not placed.is_preference:
            return
        several = [reading for reading in asking if reading.request and reading.request.count > 1]
        why = "it places several cards of one container, and here each has one"
        if several:
            constraints = template.devices.get("constraints", ())
            if any("matchAttribute" in constraint for constraint in constraints):
                return
            why = "it needs Kubernetes 1.36, and cards of one size that no init container shares in part"
        key = metadata.CARD_POLICY
        text = f"annotation {key}: {self._pod.annotations[key]} has no effect: {why}"
        self._notices.append(Notice(("metadata", "annotations", key), text))

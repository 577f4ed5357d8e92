"""A Pod → what has to change, the template that it needs, and what its author should know. Pure.

The whole meaning is here, used by the webhook and by `tessera convert` alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from claim_mutator import container, patch, selection, shape
from claim_mutator.container import Percent, Reading, Rules
from claim_mutator.names import MAX_ALTERNATIVES, MAX_DEVICES, MEBIBYTE, Role
from claim_mutator.patch import Operation
from claim_mutator.pod import Pod
from claim_mutator.refusal import Problem, Refused
from claim_mutator.template import Cluster, Template, template_of


@dataclass(frozen=True)
class Conversion:
    """Nothing to do, if `operations` is empty."""

    operations: tuple[Operation, ...] = ()
    template: Template | None = None
    warnings: tuple[str, ...] = ()


def convert(pod: Pod, rules: Rules, cluster: Cluster) -> Conversion:
    """Raises Refused with everything that is wrong."""
    readings = [container.read(group, index, each, rules) for group, index, each in pod.all_containers()]
    problems = [problem for reading in readings for problem in reading.problems]
    if not problems and not any(reading.keys for reading in readings):
        return Conversion()
    chosen = selection.read(pod.annotations, rules.names)
    asking = any(reading.request for reading in readings)
    if asking:
        problems += [*chosen.problems, *_pod_problems(pod)]
        readings = [_resolved(reading, cluster) for reading in readings]
        problems += _percentage_problems(readings, rules, cluster)
    if problems:
        raise Refused(problems)
    warnings = [warning for reading in readings for warning in reading.warnings]
    warnings += _priority_warnings(readings)
    if not asking:
        return Conversion(tuple(patch.operations(pod, readings, None, None)), None, tuple(warnings))
    assignment = shape.assign(readings, selectors=chosen.selectors, same_numa_node=chosen.same_numa_node)
    _check_devices(assignment.shape)
    template = template_of(assignment.shape, cluster)
    changes = patch.operations(pod, readings, assignment, template)
    warnings += [*chosen.warnings, *_size_warnings(readings, rules, cluster)]
    return Conversion(tuple(changes), template, tuple(warnings))


def _pod_problems(pod: Pod) -> list[Problem]:
    """What would make limits void, or the Pod wait for ever."""
    problems = []
    for group, index, each in pod.all_containers():
        if each.security_context is not None and each.security_context.privileged:
            problems.append(
                Problem(
                    ("spec", group, index, "securityContext", "privileged"),
                    f"container {each.name!r} is privileged: it would see every card of the node, whatever"
                    " the Pod's limits; remove securityContext.privileged, or the GPU resources",
                )
            )
    if pod.spec.node_name:
        problems.append(
            Problem(
                ("spec", "nodeName"),
                f"spec.nodeName: {pod.spec.node_name} bypasses the scheduler, which allocates the GPUs: write"
                f" nodeSelector: {{kubernetes.io/hostname: {pod.spec.node_name}}} instead",
            )
        )
    return problems


def _resolved(reading: Reading, cluster: Cluster) -> Reading:
    """Percentages as MiB where all cards have one size."""
    request = reading.request
    if request is None or not isinstance(request.memory, Percent) or len(cluster.card_sizes) != 1:
        return reading
    share = max(1, cluster.card_sizes[0] // MEBIBYTE * request.memory.value // 100)
    return replace(reading, request=replace(request, memory=share))


def _percentage_problems(readings: Sequence[Reading], rules: Rules, cluster: Cluster) -> list[Problem]:
    sizes = len(cluster.card_sizes)
    if 0 < sizes <= MAX_ALTERNATIVES:
        return []
    if sizes:
        known = f"the cluster's cards have {sizes} different sizes, more than the {MAX_ALTERNATIVES} possible"
    else:
        known = "no card of the cluster is known yet, so its memory is not"
    problems = []
    for reading in readings:
        if reading.request is not None and isinstance(reading.request.memory, Percent):
            key = next(name for _, name in reading.keys if rules.names.roles[name] is Role.PERCENTAGE)
            problems.append(
                Problem(
                    (*reading.pointer, "resources", "limits", key),
                    f"container {reading.name!r}, limits: {key}: {reading.request.memory.value} can't be"
                    f" turned into memory: {known}; write {rules.names.preferred(Role.MEMORY)} in MiB",
                )
            )
    return problems


def _check_devices(found: shape.Shape) -> None:
    if found.devices > MAX_DEVICES:
        raise Refused(
            [
                Problem(
                    ("spec", "containers"),
                    f"the containers ask for {found.devices} cards together, and one Pod can have"
                    f" {MAX_DEVICES}: ask for fewer",
                )
            ]
        )


def _priority_warnings(readings: Sequence[Reading]) -> list[str]:
    return [
        f"container {reading.name!r}: priority {reading.priority} is passed on as"
        f" {patch.PRIORITY_VARIABLE}, but has no effect by itself: a high priority comes from the DeviceClass"
        for reading in readings
        if reading.priority == 0
    ]


def _size_warnings(readings: Sequence[Reading], rules: Rules, cluster: Cluster) -> list[str]:
    largest = max(cluster.card_sizes, default=0) // MEBIBYTE
    return [
        f"container {reading.name!r}: {rules.names.preferred(Role.MEMORY)} {reading.request.memory} is more"
        f" than any card of the cluster has now ({largest}): the Pod will wait"
        for reading in readings
        if largest
        and reading.request is not None
        and isinstance(reading.request.memory, int)
        and reading.request.memory > largest
    ]

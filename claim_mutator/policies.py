"""What an administrator decides about Pods that would make limits void, or wait for ever. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from claim_mutator.names import HAMI_SCHEDULER
from claim_mutator.pod import Pod
from claim_mutator.refusal import Notice, Problem
from claim_mutator.rules import Policy, Rules

_MIRROR = "kubernetes.io/config.mirror"
_POD_GROUP = "scheduling.x-k8s.io/pod-group"


def check_pod(pod: Pod, rules: Rules) -> tuple[list[Problem], list[Notice]]:
    """Of a Pod that asks for cards."""
    problems: list[Problem] = []
    notices: list[Notice] = []
    _check_privileged(pod, rules, problems, notices)
    _check_node_name(pod, rules, problems, notices)
    _check_gang(pod, rules, notices)
    return problems, notices


def check_others(pod: Pod, rules: Rules) -> Iterator[Notice]:
    """Of a Pod that has none of the names: it stays as it is, and may ask for a card of another vendor."""
    scheduler = pod.spec.scheduler_name
    if scheduler in rules.schedulers:
        text = (
            f"spec.schedulerName: {scheduler} stays, because the Pod asks for no GPU of ours: where that"
            " scheduler is gone the Pod will wait for ever; leave it out"
        )
        yield Notice(("spec", "schedulerName"), text)


def _check_privileged(pod: Pod, rules: Rules, problems: list[Problem], notices: list[Notice]) -> None:
    """Any container: also one that asks for no card sees them all."""
    for group, index, each in pod.all_containers():
        if each.security_context is None or not each.security_context.privileged:
            continue
        pointer = ("spec", group, index, "securityContext", "privileged")
        if rules.privileged is Policy.DENY:
            text = (
                f"container {each.name!r} is privileged: it would see every card of the node, whatever the"
                " Pod's limits; remove securityContext.privileged, or the GPU resources"
            )
            problems.append(Problem(pointer, text))
        else:
            text = f"container {each.name!r} is privileged: it sees every card of the node, without limits"
            notices.append(Notice(pointer, text))


def _check_node_name(pod: Pod, rules: Rules, problems: list[Problem], notices: list[Notice]) -> None:
    node = pod.spec.node_name
    if not node:
        return
    pointer = ("spec", "nodeName")
    if _MIRROR in pod.annotations:
        text = (
            f"spec.nodeName: {node} is a static Pod's, and those can't have GPUs: make it a DaemonSet's Pod"
        )
        problems.append(Problem(pointer, text))
    elif rules.node_name is Policy.DENY:
        text = (
            f"spec.nodeName: {node} bypasses the scheduler, which allocates the GPUs: write nodeSelector:"
            f" {{kubernetes.io/hostname: {node}}} instead"
        )
        problems.append(Problem(pointer, text))
    else:
        text = (
            f"spec.nodeName: {node} became a node affinity, because the scheduler has to allocate the GPUs:"
            f" write nodeSelector: {{kubernetes.io/hostname: {node}}} instead"
        )
        notices.append(Notice(pointer, text))


def _check_gang(pod: Pod, rules: Rules, notices: list[Notice]) -> None:
    """HAMi's scheduler has a plugin for groups, the default scheduler may not have it."""
    if pod.spec.scheduler_name not in rules.schedulers:
        return
    group, pointer = pod.labels.get(_POD_GROUP), ("metadata", "labels", _POD_GROUP)
    if not group and pod.spec.scheduling_group is not None:
        group, pointer = pod.spec.scheduling_group.pod_group_name, ("spec", "schedulingGroup", "podGroupName")
    if group:
        text = (
            f"Pod group {group} was {HAMI_SCHEDULER}'s to start together, and that is the default scheduler's"
            " Pod now: write the schedulerName of a scheduler that knows Pod groups"
        )
        notices.append(Notice(pointer, text))

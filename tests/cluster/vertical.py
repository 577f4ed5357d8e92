"""The steps of the vertical: `make demo` shows them, tests/cluster asserts them. They return facts.

Everything goes through kubectl, as a person's would: each command can be typed again on the running cluster.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kube.quantity import parse_quantity

MANIFESTS = Path(__file__).parent / "manifests"
DRIVER = "gpu.tessera.dev"
SYSTEM_NAMESPACE = "tessera-system"
MEBIBYTE = 1024 * 1024

T = TypeVar("T")


class Kubectl(Protocol):
    """What most steps need of a cluster: kubectl, raising when it fails unless `check` is False."""

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str: ...


class Nodes(Kubectl, Protocol):
    """... and a command in a node's namespaces."""

    def on_node(self, index: int, *command: str) -> str: ...


@dataclass(frozen=True)
class Card:
    """One device of a ResourceSlice: memory in MiB, cores in percent, shares per mille."""

    node: str
    device: str
    product: str
    uuid: str
    memory: int
    cores: int
    shares: int


@dataclass(frozen=True)
class Share:
    """One allocated result of a claim: memory in MiB, cores in percent, shares per mille of the card."""

    claim: str
    pod: str
    request: str
    device: str
    share_id: str
    memory: int
    cores: int
    shares: int


def get(cluster: Kubectl, *args: str) -> Any:
    """`kubectl get ARGS -o json`, decoded."""
    return json.loads(cluster.kubectl("get", *args, "-o", "json"))


def wait_until(what: str, probe: Callable[[], T | None], timeout: float = 180.0) -> T:
    """The first result of `probe` that is neither None nor empty; TimeoutError says what was waited for."""
    deadline = time.monotonic() + timeout
    while True:
        result = probe()
        if result:
            return result
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:.0f} s for {what}")
        time.sleep(0.3)


def _amount(capacity: dict[str, Any], name: str) -> Fraction:
    value = capacity[name]
    return parse_quantity(value["value"] if isinstance(value, dict) else value)


def cards(cluster: Kubectl) -> list[Card]:
    """The cards that our slices publish, in the scheduler's order: slice by name, device by position."""
    found = []
    slices = [s for s in get(cluster, "resourceslices")["items"] if s["spec"]["driver"] == DRIVER]
    for item in sorted(slices, key=lambda s: str(s["metadata"]["name"])):
        for device in item["spec"].get("devices", []):
            attributes, capacity = device["attributes"], device["capacity"]
            found.append(
                Card(
                    node=item["spec"]["nodeName"],
                    device=device["name"],
                    product=attributes["productName"]["string"],
                    uuid=attributes["uuid"]["string"],
                    memory=int(_amount(capacity, "memory") / MEBIBYTE),
                    cores=int(_amount(capacity, "cores")),
                    shares=int(_amount(capacity, "shares")),
                )
            )
    return found


def shares(cluster: Kubectl, namespace: str) -> list[Share]:
    """The allocated shares of a namespace's claims, by Pod."""
    found = []
    for claim in get(cluster, "resourceclaims", "-n", namespace)["items"]:
        owners = claim["metadata"].get("ownerReferences", [])
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", []):
            consumed = result["consumedCapacity"]
            found.append(
                Share(
                    claim=claim["metadata"]["name"],
                    pod=owners[0]["name"] if owners else "",
                    request=result["request"],
                    device=result["device"],
                    share_id=result["shareID"],
                    memory=int(_amount(consumed, "memory") / MEBIBYTE),
                    cores=int(_amount(consumed, "cores")),
                    shares=int(_amount(consumed, "shares")),
                )
            )
    return sorted(found, key=lambda share: (share.pod, share.request))


def apply(cluster: Kubectl, namespace: str, manifest: str) -> None:
    """Applies tests/cluster/manifests/<manifest> into a namespace, made when missing."""
    apply_text(cluster, namespace, (MANIFESTS / manifest).read_text())


def apply_text(cluster: Kubectl, namespace: str, text: str) -> None:
    exists = cluster.kubectl("get", "namespace", namespace, "--ignore-not-found", "-o", "name")
    if not exists.strip():
        create_namespace(cluster, namespace)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=text)


def create_namespace(cluster: Kubectl, namespace: str) -> None:
    """One in which Pods can be made: they need its ServiceAccount, which comes a moment later."""
    cluster.kubectl("create", "namespace", namespace)
    until_usable(cluster, namespace)


def until_usable(cluster: Kubectl, namespace: str) -> None:
    """Of a namespace that somebody has just made."""
    account = ("get", "serviceaccount", "default", "-n", namespace, "--ignore-not-found")
    wait_until(f"the default ServiceAccount of {namespace}", lambda: cluster.kubectl(*account))


def running(cluster: Kubectl, namespace: str, selector: str, count: int, timeout: float = 240.0) -> list[str]:
    """The names of `count` running Pods of a selector; on time-out the error carries why they don't run."""

    def probe() -> list[str] | None:
        pods = get(cluster, "pods", "-n", namespace, "-l", selector)["items"]
        ready = [p["metadata"]["name"] for p in pods if p["status"].get("phase") == "Running"]
        return sorted(ready) if len(ready) == count else None

    try:
        return wait_until(f"{count} running Pods {selector}", probe, timeout)
    except TimeoutError as error:
        described = cluster.kubectl("describe", "pods", "-n", namespace, "-l", selector, check=False)
        events = cluster.kubectl("get", "events", "-n", namespace, check=False)
        raise TimeoutError(f"{error}\n{described}\n{events}") from error


def execute(cluster: Kubectl, namespace: str, pod: str, *command: str, check: bool = True) -> str:
    """A command in a Pod's (only) container."""
    return cluster.kubectl("exec", "-n", namespace, pod, "--", *command, check=check)


def metrics(cluster: Kubectl, name: str, port: int) -> dict[str, str]:
    """The /metrics pages of a program's Pods, by Pod, through the API server's proxy."""
    pods = get(cluster, "pods", "-n", SYSTEM_NAMESPACE, "-l", f"app.kubernetes.io/name={name}")["items"]
    path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods/{{}}:{port}/proxy/metrics"
    return {
        pod["metadata"]["name"]: cluster.kubectl("get", "--raw", path.format(pod["metadata"]["name"]))
        for pod in pods
    }


@dataclass(frozen=True)
class Allocation:
    """What `cuda-alloc --json` reports: bytes held in how many blocks, the refusing CUDA error or ""."""

    held: int
    blocks: int
    refusal: str
    free: int
    total: int


def allocate(cluster: Kubectl, namespace: str, pod: str, *options: str) -> Allocation:
    """Runs cuda-alloc in a Pod; without `--total` it allocates until it is refused."""
    return _allocation(execute(cluster, namespace, pod, "cuda-alloc", "--json", *options))


def _allocation(text: str) -> Allocation:
    report = json.loads(text)
    return Allocation(
        held=report["held_bytes"],
        blocks=report["blocks"],
        refusal=report["refusal"] or "",
        free=report["free_bytes"],
        total=report["total_bytes"],
    )


@dataclass(frozen=True)
class Neighbours:
    """Two allocations at one time on one card."""

    filler: Allocation
    neighbour: Allocation


HOLD = """
cuda-alloc --json --total {bytes} --hold 600 > {file} &
until [ -e {file}-end ]; do sleep 0.2; done
kill $! && cat {file}
"""
"""Ends well only if the program still holds its memory in the end."""


def fill_beside_neighbour(cluster: Kubectl, namespace: str, filler: str, neighbour: str) -> Neighbours:
    """`filler` takes all that it can get while `neighbour` holds 2000 MiB, also after the refusal."""
    file = f"/tmp/held-{time.monotonic_ns()}"
    hold = HOLD.format(bytes=2000 * MEBIBYTE, file=file)
    with ThreadPoolExecutor() as pool:
        holding = pool.submit(execute, cluster, namespace, neighbour, "sh", "-c", hold)
        try:
            report = (cluster, namespace, neighbour, "cat", file)
            wait_until("the neighbour to hold its memory", lambda: execute(*report, check=False))
            filled = allocate(cluster, namespace, filler)
        finally:
            execute(cluster, namespace, neighbour, "touch", f"{file}-end")
        return Neighbours(filled, _allocation(holding.result()))


@dataclass(frozen=True)
class Burn:
    """What `cuda-burn --json` reports: its share of the device's time in percent, kernels that ran."""

    share_percent: float
    kernels: int


def burn_together(cluster: Kubectl, namespace: str, pods: Sequence[str], seconds: int) -> list[Burn]:
    """Runs cuda-burn in several Pods at once, `seconds` long."""

    def burn(pod: str) -> Burn:
        report = json.loads(
            execute(cluster, namespace, pod, "cuda-burn", "--json", "--seconds", str(seconds))
        )
        return Burn(share_percent=report["share"] * 100, kernels=report["kernels"])

    with ThreadPoolExecutor() as pool:
        return list(pool.map(burn, pods))


NODE_TRACES = {
    "grant directories": "/run/tessera/claims",
    "CDI specs": "/var/run/cdi",
    "ledger entries": "/var/lib/tessera/ledger",
}


def claim_uids(cluster: Kubectl, namespace: str) -> list[str]:
    """The UIDs of a namespace's claims."""
    return [c["metadata"]["uid"] for c in get(cluster, "resourceclaims", "-n", namespace)["items"]]


def traces(cluster: Nodes, namespace: str, uids: Sequence[str]) -> dict[str, int]:
    """What a namespace's claims have left: objects in the API, files on the first node. All zero: nothing."""
    kinds = ("pods", "resourceclaims", "resourceclaimtemplates")
    found = {kind: len(get(cluster, kind, "-n", namespace)["items"]) for kind in kinds}
    for what, directory in NODE_TRACES.items():
        names = cluster.on_node(0, "ls", "-A", directory).split()
        found[what] = len([name for name in names if any(uid in name for uid in uids)])
    return found


def delete(cluster: Nodes, namespace: str, timeout: float = 180.0) -> dict[str, int]:
    """Deletes a namespace and waits until nothing is left of its claims; TimeoutError says what is."""
    uids = claim_uids(cluster, namespace)
    cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=true", "--timeout=180s")
    deadline = time.monotonic() + timeout
    while any((found := traces(cluster, namespace, uids)).values()):
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{timeout:.0f} s after namespace {namespace} was deleted there is left: {found}"
            )
        time.sleep(0.3)
    return found

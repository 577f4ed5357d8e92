"""Small Pods by the dozen: each with a claim of its own, made from a template of manifests/small.yaml."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from tests.cluster import vertical
from tests.cluster.cluster import Cluster

Pod = dict[str, Any]


def pod(name: str, *command: str, template: str = "small", app: str = "small") -> Pod:
    """One that runs a command of busybox, and ends with it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "share", "resourceClaimTemplateName": template}],
            "containers": [
                {
                    "name": "work",
                    "image": "localhost/busybox:1",
                    "imagePullPolicy": "IfNotPresent",
                    "command": list(command),
                    "resources": {"claims": [{"name": "share"}]},
                }
            ],
        },
    }


def create(cluster: Cluster, namespace: str, *pods: Pod) -> None:
    manifest = {"apiVersion": "v1", "kind": "List", "items": list(pods)}
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(manifest))


@contextmanager
def one_a_second(cluster: Cluster, namespace: str) -> Iterator[list[str]]:
    """Starts a Pod every second until the block ends; gives the names of those started."""
    names: list[str] = []
    is_over = threading.Event()
    failures: list[Exception] = []

    def work() -> None:
        due = time.monotonic()
        while not is_over.wait(max(0.0, due - time.monotonic())):
            name = f"each-second-{len(names)}"
            try:
                create(cluster, namespace, pod(name, "test", "-d", "/run/tessera/grants", app="each-second"))
            except Exception as error:
                failures.append(error)
                return
            names.append(name)
            due += 1.0

    thread = threading.Thread(target=work, name="one-pod-a-second")
    thread.start()
    try:
        yield names
    finally:
        is_over.set()
        thread.join()
    if failures:
        raise failures[0]


def succeeded(cluster: Cluster, namespace: str, app: str, count: int, timeout: float = 180.0) -> list[Pod]:
    """The Pods of an app, when all have done their work."""

    def probe() -> list[Pod] | None:
        found = vertical.get(cluster, "pods", "-n", namespace, "-l", f"app={app}")["items"]
        done = [each for each in found if each["status"]["phase"] in ("Succeeded", "Failed")]
        return done if len(done) == count else None

    done: list[Pod] = vertical.wait_until(f"{count} Pods {app} to end", probe, timeout)
    return [each for each in done if each["status"]["phase"] == "Succeeded"]


def start_delay(found: Pod) -> float:
    """Seconds from its creation to its container's start; the API server has whole ones."""
    started = found["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"]
    created = found["metadata"]["creationTimestamp"]
    return (datetime.fromisoformat(started) - datetime.fromisoformat(created)).total_seconds()


def prepare_failures(cluster: Cluster, namespace: str) -> list[str]:
    """What the kubelet could not prepare."""
    selector = "--field-selector=reason=FailedPrepareDynamicResources"
    return [
        str(event["message"]) for event in vertical.get(cluster, "events", "-n", namespace, selector)["items"]
    ]

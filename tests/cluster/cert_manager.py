"""cert-manager on a cluster: its CRDs, and its controllers (modules/cert-manager) on the first node.

It has no webhook of its own here, which would only check what is written to its objects.
"""

from __future__ import annotations

import json
from typing import Any

from tests.cluster import binaries, toolchain
from tests.cluster.cluster import Cluster

COMPONENT = "cert-manager"


def install(cluster: Cluster) -> None:
    """Starts it on a cluster that has none; it ends with the cluster."""
    module = binaries.source(binaries.CERT_MANAGER, toolchain.MODULES / COMPONENT)
    cluster.kubectl("apply", "--server-side", "-f", str(module / "deploy" / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")
    node = cluster.node(0)
    node.commands[COMPONENT] = ["env", f"KUBECONFIG={cluster.kubeconfig}", str(binaries.cert_manager())]
    node.start(COMPONENT)


def certificate(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        cluster.kubectl("get", "certificates.cert-manager.io", name, "-n", namespace, "-o", "json")
    )
    return found


def is_ready(found: dict[str, Any]) -> bool:
    """Issued, and nothing of it is being renewed."""
    conditions = {each["type"]: each["status"] for each in found.get("status", {}).get("conditions", ())}
    return conditions.get("Ready") == "True" and conditions.get("Issuing") != "True"


def renew(cluster: Cluster, namespace: str, name: str) -> None:
    """Asks for a new certificate now, as `cmctl renew` does, and waits until it is there."""
    found = certificate(cluster, namespace, name)
    before = found["status"]["revision"]
    condition = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "Certificate re-issuance manually triggered",
        "lastTransitionTime": found["metadata"]["creationTimestamp"],
        "observedGeneration": found["metadata"]["generation"],
    }
    conditions = [each for each in found["status"]["conditions"] if each["type"] != "Issuing"]
    patch = json.dumps({"status": {"conditions": [*conditions, condition]}})
    what = ("certificates.cert-manager.io", name, "-n", namespace)
    cluster.kubectl("patch", *what, "--subresource=status", "--type=merge", "-p", patch)

    def renewed() -> bool:
        after = certificate(cluster, namespace, name)
        return is_ready(after) and bool(after["status"]["revision"] > before)

    cluster.wait(renewed, f"certificate {name} to be renewed")

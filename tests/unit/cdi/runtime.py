"""What a container runtime makes of CDI ids, as the reference implementation does (Cache.InjectDevices).

What is common to a document comes in once, where its first device is asked for; of two mounts at one place
the later counts; an id that no document has keeps the container from starting.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def mounted(documents: Iterable[dict[str, Any]], ids: Iterable[str]) -> dict[str, str]:
    """Container path → host path. `documents`: decoded. Raises KeyError for an id that there is not."""
    devices = {
        f"{document['kind']}={device['name']}": (document, device)
        for document in documents
        for device in document["devices"]
    }
    edits: list[dict[str, Any]] = []
    seen: list[dict[str, Any]] = []
    for name in ids:
        document, device = devices[name]
        if not any(document is one for one in seen):
            seen.append(document)
            edits.append(document.get("containerEdits", {}))
        edits.append(device["containerEdits"])
    return {mount["containerPath"]: mount["hostPath"] for each in edits for mount in each.get("mounts", ())}

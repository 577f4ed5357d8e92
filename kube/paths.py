"""URL paths of the API objects that this project touches."""

from __future__ import annotations

_RESOURCE = "/apis/resource.k8s.io/v1"
_CORE = "/api/v1"

VERSION = "/version"


def resource_slices() -> str:
    return f"{_RESOURCE}/resourceslices"


def resource_slice(name: str) -> str:
    return f"{_RESOURCE}/resourceslices/{name}"


def device_class(name: str) -> str:
    return f"{_RESOURCE}/deviceclasses/{name}"


def resource_claims(namespace: str | None = None) -> str:
    """Of one namespace, or of all."""
    return _of_namespace(_RESOURCE, "resourceclaims", namespace)


def resource_claim(namespace: str, name: str) -> str:
    return f"{resource_claims(namespace)}/{name}"


def resource_claim_status(namespace: str, name: str) -> str:
    return f"{resource_claim(namespace, name)}/status"


def resource_claim_templates(namespace: str | None = None) -> str:
    """Of one namespace, or of all."""
    return _of_namespace(_RESOURCE, "resourceclaimtemplates", namespace)


def resource_claim_template(namespace: str, name: str) -> str:
    return f"{resource_claim_templates(namespace)}/{name}"


def nodes() -> str:
    return f"{_CORE}/nodes"


def node(name: str) -> str:
    return f"{_CORE}/nodes/{name}"


def namespaces() -> str:
    return f"{_CORE}/namespaces"


def namespace(name: str) -> str:
    return f"{_CORE}/namespaces/{name}"


def pods(namespace: str | None = None) -> str:
    """Of one namespace, or of all."""
    return _of_namespace(_CORE, "pods", namespace)


def pod(namespace: str, name: str) -> str:
    return f"{pods(namespace)}/{name}"


def secrets(namespace: str) -> str:
    return f"{_CORE}/namespaces/{namespace}/secrets"


def secret(namespace: str, name: str) -> str:
    return f"{secrets(namespace)}/{name}"


def config_maps(namespace: str) -> str:
    return f"{_CORE}/namespaces/{namespace}/configmaps"


def config_map(namespace: str, name: str) -> str:
    return f"{config_maps(namespace)}/{name}"


def resource_quotas(namespace: str | None = None) -> str:
    """Of one namespace, or of all."""
    return _of_namespace(_CORE, "resourcequotas", namespace)


def resource_quota_status(namespace: str, name: str) -> str:
    return f"{resource_quotas(namespace)}/{name}/status"


def events(namespace: str) -> str:
    """Core v1 Events: what `kubectl describe` shows."""
    return f"{_CORE}/namespaces/{namespace}/events"


def leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def lease(namespace: str, name: str) -> str:
    return f"{leases(namespace)}/{name}"


def mutating_webhook_configuration(name: str) -> str:
    return f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}"


def resource(path: str) -> tuple[str, bool]:
    """A path's resource (plural, with `/status` and other subresources), and whether it names one object."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return "/".join(rest[:1] + rest[2:3]) or path.strip("/"), len(rest) > 1


def _of_namespace(group: str, resource: str, namespace: str | None) -> str:
    return f"{group}/{resource}" if namespace is None else f"{group}/namespaces/{namespace}/{resource}"

"""Where the API server is, and who we are towards it.

In a Pod that is a service account's token and CA; the `kubernetes` package (35 MiB) is imported only where a
kubeconfig has to be read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigurationError(Exception):
    """No usable configuration; the message says where it was looked for."""


@dataclass(frozen=True)
class Connection:
    """An API server and the credentials for it. `server` has no trailing slash."""

    server: str
    ca_file: Path | None = None
    token_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    namespace: str = "default"
    token: str | None = None
    """A token written in a kubeconfig itself; `token_file` is read again and again, this one never."""
    verify: bool = True
    server_name: str | None = None
    """The name that the server's certificate must have, where it is not the host of `server`."""


def in_cluster(service_account: Path = _SERVICE_ACCOUNT) -> Connection:
    """The connection of a Pod with a service account. Raises ConfigurationError outside one."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigurationError("not in a Pod: KUBERNETES_SERVICE_HOST and _PORT are not set")
    token, ca_file = service_account / "token", service_account / "ca.crt"
    for file in (token, ca_file):
        if not file.is_file():
            raise ConfigurationError(
                f"in a Pod, but {file} is missing: does it have a service account token?"
            )
    namespace = service_account / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_file=ca_file,
        token_file=token,
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
    )


def from_kubeconfig(path: Path | None) -> Connection:
    """The current context of a kubeconfig; None means $KUBECONFIG or ~/.kube/config."""
    try:
        from kubernetes import client, config  # noqa: PLC0415 - costs 35 MiB, so only here
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "reading a kubeconfig needs the package `kubernetes`: pip install 'tessera-gpu[kubeconfig]'"
        ) from error
    file = None if path is None else str(path)
    found = client.Configuration()
    try:
        config.load_kube_config(config_file=file, client_configuration=found)  # type: ignore[no-untyped-call]
        _, context = config.list_kube_config_contexts(config_file=file)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as error:
        raise ConfigurationError(f"kubeconfig {path or '(default)'}: {error}") from error
    bearer = (found.api_key or {}).get("authorization") or (found.api_key or {}).get("BearerToken")
    return Connection(
        server=found.host.rstrip("/"),
        ca_file=Path(found.ssl_ca_cert) if found.ssl_ca_cert else None,
        client_cert=Path(found.cert_file) if found.cert_file else None,
        client_key=Path(found.key_file) if found.key_file else None,
        namespace=context.get("context", {}).get("namespace") or "default",
        token=bearer.removeprefix("Bearer ") if bearer else None,
        verify=bool(found.verify_ssl),
        server_name=found.tls_server_name or None,
    )


def load(kubeconfig: Path | None) -> Connection:
    """A named kubeconfig; else the Pod's service account; else the default kubeconfig."""
    if kubeconfig is not None:
        return from_kubeconfig(kubeconfig)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster()
    return from_kubeconfig(None)

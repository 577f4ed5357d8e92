"""Raw JSON requests to the cluster's API server from outside its namespaces, as administrator; for waiting
and looking.

It costs a millisecond where kubectl costs a tenth of a second. Tests that show what a person sees use
kubectl.
"""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from tests.cluster import network
from tests.cluster.credentials import Credentials
from tests.cluster.errors import ClusterError
from tests.cluster.namespaces import Namespaces


class ApiError(ClusterError):
    """The API server answered with an error; `status` is HTTP's."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(f"API server: {status} {text[:500]}")


class Api:
    """One connection a request."""

    def __init__(self, namespaces: Namespaces, credentials: Credentials, timeout: float = 60.0) -> None:
        self._namespaces, self._timeout = namespaces, timeout
        self._tls = ssl.create_default_context(cafile=credentials.file("ca.crt"))
        self._tls.load_cert_chain(credentials.file("admin.crt"), credentials.file("admin.key"))

    def get(self, path: str) -> dict[str, Any]:
        """The object or list at a path like /api/v1/nodes; ApiError, or OSError where there is no server."""
        document: dict[str, Any] = json.loads(self.text(path))
        return document

    def exists(self, path: str) -> bool:
        try:
            self.text(path)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def text(self, path: str) -> str:
        host = network.address(0)
        raw = self._namespaces.connect(host, network.API_PORT, self._timeout)
        connection = http.client.HTTPConnection(host)
        with self._tls.wrap_socket(raw, server_hostname=host) as connection.sock:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode(errors="replace")
        if response.status >= 400:
            raise ApiError(response.status, body)
        return body

"""cert-manager and the webhook's certificate: issued, trusted, left; renewed without a refused Pod."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cryptography import x509

from tests.cluster import cert_manager, network, vertical
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import VERSIONS
from tests.cluster.vertical import SYSTEM_NAMESPACE

pytestmark = pytest.mark.cluster

MUTATOR, AUTHORITY, SERVING = "tessera-mutator", "tessera-mutator-ca", "tessera-mutator-certificate"
VALUES = {"mutator": {"certManager": {"enabled": True}, "replicas": 2}}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "asks"},
    "spec": {
        "containers": [
            {
                "name": "work",
                "image": "localhost/busybox:1",
                "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}},
            }
        ]
    },
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """With a kubelet that looks at mounted Secrets all the time, else each exchange would take a minute."""
    with Cluster(version=VERSIONS[0], kubelet={"syncFrequency": "2s"}) as cluster:
        cert_manager.install(cluster)
        cluster.install_chart(VALUES)  # and waits until the webhook is ready, so it has a certificate
        yield cluster


def secret(cluster: Cluster, name: str) -> dict[str, bytes]:
    """The data of a Secret of the chart's namespace."""
    data = vertical.get(cluster, "secret", name, "-n", SYSTEM_NAMESPACE).get("data") or {}
    return {key: base64.b64decode(value) for key, value in data.items()}


def trusted(cluster: Cluster) -> set[bytes]:
    """The caBundles of the webhook configuration."""
    configuration = vertical.get(cluster, "mutatingwebhookconfiguration", MUTATOR)
    return {base64.b64decode(each["clientConfig"].get("caBundle", "")) for each in configuration["webhooks"]}


def served(cluster: Cluster) -> set[int]:
    """The serial numbers of the certificates that the replicas serve; 0 of one that doesn't answer."""
    slices = ("-n", SYSTEM_NAMESPACE, "-l", f"kubernetes.io/service-name={MUTATOR}")
    endpoints = [
        (address, part["ports"][0]["port"])
        for part in vertical.get(cluster, "endpointslices", *slices)["items"]
        for endpoint in part["endpoints"]
        if endpoint["conditions"]["ready"]
        for address in endpoint["addresses"]
    ]
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    found = set()
    for address, port in endpoints:
        try:
            with anyone.wrap_socket(cluster.node().namespaces.connect(address, port, 5.0)) as peer:
                shown = peer.getpeercert(binary_form=True) or b""
            found.add(x509.load_der_x509_certificate(shown).serial_number)
        except OSError:  # it is just ending
            found.add(0)
    return found


def until_served(cluster: Cluster) -> None:
    """Until each replica serves what is in the Secret."""
    wanted = {x509.load_pem_x509_certificate(secret(cluster, SERVING)["tls.crt"]).serial_number}
    cluster.wait(lambda: served(cluster) == wanted, "the replicas to take the new certificate")


class Asking:
    """Dry-run creations of a GPU Pod, one after the other, each of which the webhook has to convert."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_over = threading.Event()
        self.converted, self.failures = 0, list[str]()

    def ask(self) -> None:
        credentials, host = self._cluster.credentials, network.address(0)
        tls = ssl.create_default_context(cafile=credentials.file("ca.crt"))
        tls.load_cert_chain(credentials.file("admin.crt"), credentials.file("admin.key"))
        while not self._is_over.is_set():
            raw = self._cluster.node().namespaces.connect(host, network.API_PORT, 10.0)
            connection = http.client.HTTPConnection(host)
            with tls.wrap_socket(raw, server_hostname=host) as connection.sock:
                path = "/api/v1/namespaces/default/pods?dryRun=All"
                connection.request("POST", path, json.dumps(POD), {"Content-Type": "application/json"})
                response = connection.getresponse()
                answer: dict[str, Any] = json.load(response)
            if response.status == 201 and "resourceClaims" in answer["spec"]:
                self.converted += 1
            else:
                self.failures.append(str(answer.get("message", answer)))
            self._is_over.wait(0.05)

    @contextmanager
    def meanwhile(self) -> Iterator[None]:
        thread = threading.Thread(target=self.ask, name="asking")
        thread.start()
        try:
            self.some_more()
            yield
            self.some_more()
        finally:
            self._is_over.set()
            thread.join()

    def some_more(self) -> None:
        """Until ten more have been answered."""
        goal = self.converted + len(self.failures) + 10
        self._cluster.wait(lambda: self.converted + len(self.failures) >= goal, "ten answers")


def test_issued_and_trusted(cluster: Cluster) -> None:
    serving, authority = secret(cluster, SERVING), secret(cluster, AUTHORITY)
    assert trusted(cluster) == {serving["ca.crt"]} == {authority["tls.crt"]}
    assert cert_manager.is_ready(cert_manager.certificate(cluster, SYSTEM_NAMESPACE, MUTATOR))
    secrets = vertical.get(cluster, "secrets", "-n", SYSTEM_NAMESPACE)["items"]
    ours = {item["metadata"]["name"] for item in secrets if item["type"] == "kubernetes.io/tls"}
    assert ours == {SERVING, AUTHORITY}  # the mutator has made none of its own


def test_renewed_without_a_pod_that_is_refused(cluster: Cluster) -> None:
    before = served(cluster)
    asking = Asking(cluster)
    with asking.meanwhile():
        cert_manager.renew(cluster, SYSTEM_NAMESPACE, MUTATOR)
        until_served(cluster)
    assert asking.failures == []
    assert asking.converted > 20
    assert not served(cluster) & before


def test_a_new_authority_without_a_pod_that_is_refused(cluster: Cluster) -> None:
    """First the CA alone, which changes nothing, then the certificate under it, whose bundle is then new."""
    before = trusted(cluster)
    asking = Asking(cluster)
    with asking.meanwhile():
        cert_manager.renew(cluster, SYSTEM_NAMESPACE, AUTHORITY)
        assert trusted(cluster) == before
        cert_manager.renew(cluster, SYSTEM_NAMESPACE, MUTATOR)
        until_served(cluster)
        wanted = {secret(cluster, AUTHORITY)["tls.crt"]}
        cluster.wait(lambda: trusted(cluster) == wanted, "the new authority to be trusted")
    assert asking.failures == []
    assert trusted(cluster) != before


def certificate_made(cluster: Cluster) -> bytes:
    """The CA that the mutator has made, empty while there is none."""
    return secret(cluster, f"{MUTATOR}-tls").get("ca.crt", b"")


def until_trusted(cluster: Cluster, authority: Callable[[], bytes]) -> None:
    """Until nobody else is trusted, and every replica is."""
    cluster.wait(lambda: trusted(cluster) == {authority()} != {b""}, "the authority alone to be trusted")

    def refuses_none() -> bool:
        asking = Asking(cluster)
        with asking.meanwhile():
            pass
        return asking.failures == []

    cluster.wait(refuses_none, "replicas of before to be asked no more")


def test_left_and_taken_again_on_a_running_release(cluster: Cluster) -> None:
    """Where its own CA takes over from cert-manager's, or the other way round, no Secret is in the way."""
    cluster.install_chart({"mutator": {"replicas": 2}})
    until_trusted(cluster, lambda: certificate_made(cluster))
    asks = vertical.get(cluster, "certificates.cert-manager.io", "-n", SYSTEM_NAMESPACE)["items"]
    assert asks == []
    cluster.helm("rollback", "tessera", "-n", SYSTEM_NAMESPACE, "--wait", "--timeout", "240s")
    until_trusted(cluster, lambda: secret(cluster, AUTHORITY)["tls.crt"])
    left = vertical.get(cluster, "secrets", "-n", SYSTEM_NAMESPACE)["items"]
    assert f"{MUTATOR}-tls" not in {each["metadata"]["name"] for each in left}

"""Certificates, keys and kubeconfigs of a cluster, made anew for each run and valid for a month."""

from __future__ import annotations

import datetime
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.cluster.network import API_PORT, SERVICE_API, address

LIFETIME = datetime.timedelta(days=30)


@dataclass(frozen=True)
class Credentials:
    """Paths below one directory: ca.crt, NAME.crt, NAME.key, NAME.conf (kubeconfig), sa.key, sa.pub."""

    directory: Path

    def file(self, name: str) -> Path:
        return self.directory / name


def node_name(index: int) -> str:
    return f"node-{index}"


def issue(directory: Path, nodes: int) -> Credentials:
    """Everything that `nodes` nodes and the control plane on the first of them need."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = _Authority.make(directory)
    control_plane = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    authority.issue("apiserver", "kube-apiserver", [*control_plane, "127.0.0.1", address(0), SERVICE_API])
    authority.issue("kubelet-client", "kube-apiserver-kubelet-client", [], organization="system:masters")
    authority.issue("admin", "admin", [], organization="system:masters")
    authority.issue("controller-manager", "system:kube-controller-manager", [])
    authority.issue("scheduler", "system:kube-scheduler", [])
    authority.issue("proxy", "system:kube-proxy", [])
    for index in range(nodes):
        name = node_name(index)
        authority.issue(name, f"system:node:{name}", [name, address(index)], organization="system:nodes")
    clients = [
        "admin",
        "controller-manager",
        "scheduler",
        "proxy",
        *(node_name(index) for index in range(nodes)),
    ]
    for client in clients:
        _write(directory / f"{client}.conf", kubeconfig(directory, client).encode())
    accounts = ec.generate_private_key(ec.SECP256R1())
    _write(directory / "sa.key", _pem(accounts))
    public = accounts.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(directory / "sa.pub", public)
    return Credentials(directory)


def kubeconfig(directory: Path, client: str) -> str:
    """A kubeconfig (JSON is YAML) that names files of `directory`."""
    cluster = {
        "server": f"https://{address(0)}:{API_PORT}",
        "certificate-authority": str(directory / "ca.crt"),
    }
    user = {
        "client-certificate": str(directory / f"{client}.crt"),
        "client-key": str(directory / f"{client}.key"),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tessera", "cluster": cluster}],
        "users": [{"name": client, "user": user}],
        "contexts": [{"name": "tessera", "context": {"cluster": "tessera", "user": client}}],
        "current-context": "tessera",
    }
    return json.dumps(document, indent=2) + "\n"


@dataclass(frozen=True)
class _Authority:
    directory: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, directory: Path) -> _Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tessera-test-cluster")])
        builder = _builder(name, name, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        certificate = builder.sign(key, hashes.SHA256())
        _write(directory / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM))
        _write(directory / "ca.key", _pem(key))
        return cls(directory, key, certificate)

    def issue(self, file: str, common_name: str, names: list[str], organization: str = "") -> None:
        """A certificate for both sides of TLS; `names` are DNS names and IP addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        builder = _builder(x509.Name(attributes), self.certificate.subject, key.public_key())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(usage, critical=False)
        if names:
            alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        _write(self.directory / f"{file}.crt", certificate.public_bytes(serialization.Encoding.PEM))
        _write(self.directory / f"{file}.key", _pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o600)

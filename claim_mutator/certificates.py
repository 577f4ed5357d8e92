"""Our own CA and the webhook's serving certificate: making and judging them. Pure.

A new CA is published together with the one before it, so that there is no moment at which an API server that
trusts only one of them meets a certificate of the other.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = dt.timedelta(days=1)
_SKEW = dt.timedelta(hours=1)  # clocks of API servers that are behind ours
_KEYS = {"ca_bundle": "ca.crt", "ca_key": "ca.key", "certificate": "tls.crt", "key": "tls.key"}


@dataclass(frozen=True)
class Lifetimes:
    """How long certificates live, and how long before their end they are replaced."""

    ca: dt.timedelta = 1825 * _DAY
    ca_renewal: dt.timedelta = 365 * _DAY
    serving: dt.timedelta = 90 * _DAY
    serving_renewal: dt.timedelta = 30 * _DAY


@dataclass(frozen=True)
class Credentials:
    """PEM. `ca_bundle` holds the CA that signs first, then the one before, while that lives."""

    ca_bundle: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes

    @property
    def expires(self) -> dt.datetime:
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc

    def to_data(self) -> dict[str, str]:
        """The `data` of a Secret of type kubernetes.io/tls."""
        return {name: base64.b64encode(getattr(self, field)).decode() for field, name in _KEYS.items()}


def from_data(data: Mapping[str, str] | None) -> Credentials | None:
    """None for a Secret that holds nothing usable: it is then filled anew."""
    try:
        found = {field: base64.b64decode((data or {})[name], validate=True) for field, name in _KEYS.items()}
        credentials = Credentials(**found)
        x509.load_pem_x509_certificates(credentials.ca_bundle)
        x509.load_pem_x509_certificate(credentials.certificate)
        load_pem_private_key(credentials.ca_key, None)
        load_pem_private_key(credentials.key, None)
    except (KeyError, ValueError, TypeError, binascii.Error):
        return None
    return credentials


def joined(bundle: bytes, other: bytes) -> bytes:
    """Both bundles' certificates, each once, those of `bundle` first."""
    found = dict.fromkeys(x509.load_pem_x509_certificates(bundle) + x509.load_pem_x509_certificates(other))
    return b"".join(each.public_bytes(Encoding.PEM) for each in found)


def renewed(
    held: Credentials | None,
    names: Sequence[str],
    now: dt.datetime,
    lifetimes: Lifetimes = Lifetimes(),
) -> Credentials:
    """`held` itself while it is good for `names`; otherwise with what is due replaced."""
    if held is None:
        return _with_serving(_new_ca((), now, lifetimes), names, now, lifetimes)
    authorities = x509.load_pem_x509_certificates(held.ca_bundle)
    if _is_due(authorities[0], now, lifetimes.ca_renewal) or not _signs(held.ca_key, authorities[0]):
        living = [each for each in authorities if each.not_valid_after_utc > now]
        return _with_serving(_new_ca(living[:1], now, lifetimes), names, now, lifetimes)
    serving = x509.load_pem_x509_certificate(held.certificate)
    if (
        not _is_due(serving, now, lifetimes.serving_renewal)
        and _names_of(serving) == list(names)
        and _matches(held)
        and _signed_by(serving, authorities[0])
    ):
        return held
    return _with_serving(held, names, now, lifetimes)


def _is_due(certificate: x509.Certificate, now: dt.datetime, renewal: dt.timedelta) -> bool:
    """Near its end; or before its time, because a clock was ahead when it was made."""
    return certificate.not_valid_after_utc - now < renewal or now < certificate.not_valid_before_utc


def _new_ca(previous: Sequence[x509.Certificate], now: dt.datetime, lifetimes: Lifetimes) -> Credentials:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"tessera-mutator CA {now:%Y-%m-%d}")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(name, name, key, now, lifetimes.ca)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    bundle = b"".join(each.public_bytes(Encoding.PEM) for each in (certificate, *previous))
    return Credentials(bundle, _pem(key), b"", b"")


def _with_serving(
    authority: Credentials, names: Sequence[str], now: dt.datetime, lifetimes: Lifetimes
) -> Credentials:
    ca = x509.load_pem_x509_certificates(authority.ca_bundle)[0]
    ca_key = load_pem_private_key(authority.ca_key, None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise TypeError("the CA's key is not one that we made")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(names[0][:64]), ca.subject, key, now, lifetimes.serving)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    return replace(authority, certificate=certificate.public_bytes(Encoding.PEM), key=_pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    lifetime: dt.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lifetime)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _names_of(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return extension.value.get_values_for_type(x509.DNSName)


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _signs(key: bytes, authority: x509.Certificate) -> bool:
    """Whether it is the CA's, and of our kind: of a Secret that cert-manager had meanwhile it isn't."""
    private = load_pem_private_key(key, None)
    return isinstance(private, ec.EllipticCurvePrivateKey) and private.public_key() == authority.public_key()


def _matches(held: Credentials) -> bool:
    """Whether the serving certificate and its key belong together."""
    certificate = x509.load_pem_x509_certificate(held.certificate)
    return certificate.public_key() == load_pem_private_key(held.key, None).public_key()

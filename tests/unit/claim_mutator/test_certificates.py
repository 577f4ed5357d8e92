"""Certificates: what OpenSSL says to them, and when they are replaced."""

from __future__ import annotations

import datetime as dt
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from claim_mutator import certificates
from claim_mutator.certificates import Credentials, from_data, joined, renewed
from claim_mutator.credentials import load, serving_names

NAMES = serving_names("tessera-mutator", "team")
NOW = dt.datetime.now(dt.UTC)


def after(days: float) -> dt.datetime:
    return NOW + dt.timedelta(days=days)


def handshake(trusted: bytes, credentials: Credentials, name: str) -> None:
    """A TLS handshake in memory; raises ssl.SSLError as a client would."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load(serving, credentials)
    trust = ssl.create_default_context(cadata=trusted.decode())
    trust.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trust.wrap_bio(to_client, to_server, server_hostname=name)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for side in (client, server):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize("name", NAMES)
def test_openssl_accepts(name: str) -> None:
    credentials = renewed(None, NAMES, NOW)
    handshake(credentials.ca_bundle, credentials, name)


def test_another_name_is_not_accepted() -> None:
    credentials = renewed(None, NAMES, NOW)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(credentials.ca_bundle, credentials, "tessera-mutator.other.svc")


def test_another_ca_is_not_accepted() -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(renewed(None, NAMES, NOW).ca_bundle, renewed(None, NAMES, NOW), NAMES[0])


@pytest.mark.parametrize(
    ("days", "serving", "ca"),
    [
        pytest.param(0, False, False, id="fresh"),
        pytest.param(59, False, False, id="31 days left"),
        pytest.param(61, True, False, id="29 days left"),
        pytest.param(200, True, False, id="serving certificate has ended"),
        pytest.param(1461, True, True, id="less than a year of the CA left"),
        pytest.param(2000, True, True, id="both have ended"),
    ],
)
def test_replaced_when_due(days: float, serving: bool, ca: bool) -> None:
    held = renewed(None, NAMES, NOW)
    found = renewed(held, NAMES, after(days))
    assert (found.certificate != held.certificate) is serving
    assert (found.ca_key != held.ca_key) is ca
    assert renewed(found, NAMES, after(days)) is found


@pytest.mark.parametrize("ca", [True, False], ids=["all of it", "the serving certificate"])
def test_replaced_where_the_clock_was_ahead(ca: bool) -> None:
    """Nobody takes a certificate before its time; an hour is allowed for."""
    ahead = renewed(None if ca else renewed(None, NAMES, NOW), NAMES, after(61))
    assert renewed(ahead, NAMES, after(61) - dt.timedelta(minutes=59)) is ahead
    found = renewed(ahead, NAMES, NOW)
    assert found.certificate != ahead.certificate
    assert (found.ca_key != ahead.ca_key) is ca
    assert renewed(found, NAMES, NOW) is found


def test_the_ca_before_is_trusted_while_it_lives() -> None:
    held = renewed(None, NAMES, NOW)
    found = renewed(held, NAMES, after(1500))
    assert found.ca_bundle.endswith(held.ca_bundle)
    handshake(found.ca_bundle, held, NAMES[0])
    later = renewed(found, NAMES, after(3000))
    assert len(x509.load_pem_x509_certificates(later.ca_bundle)) == 2, "only one before"
    assert len(x509.load_pem_x509_certificates(renewed(held, NAMES, after(2000)).ca_bundle)) == 1


def test_replaced_for_other_names() -> None:
    held = renewed(None, NAMES, NOW)
    found = renewed(held, serving_names("other", "team"), NOW)
    assert found.certificate != held.certificate
    assert found.ca_bundle == held.ca_bundle


def test_pieces_that_do_not_belong_together_are_replaced() -> None:
    one, other = renewed(None, NAMES, NOW), renewed(None, NAMES, NOW)
    mixed = Credentials(one.ca_bundle, one.ca_key, other.certificate, other.key)
    found = renewed(mixed, NAMES, NOW)
    handshake(one.ca_bundle, found, NAMES[0])
    swapped = Credentials(one.ca_bundle, one.ca_key, one.certificate, other.key)
    assert renewed(swapped, NAMES, NOW).key != other.key


@pytest.mark.parametrize("kind", ["another", "rsa"])
def test_a_ca_that_its_key_is_not_of_is_replaced(kind: str) -> None:
    """As when cert-manager had the Secret for a while: it leaves `ca.key` as it was."""
    ours, theirs = renewed(None, NAMES, NOW), renewed(None, NAMES, NOW)
    key = ours.ca_key
    if kind == "rsa":
        private = rsa.generate_private_key(65537, 2048)
        key = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    other = serving_names("other", "team")
    found = renewed(Credentials(theirs.ca_bundle, key, theirs.certificate, theirs.key), other, NOW)
    handshake(found.ca_bundle, found, other[0])
    handshake(found.ca_bundle, theirs, NAMES[0])  # what is still served
    assert renewed(found, other, NOW) is found


def test_data_of_the_secret() -> None:
    held = renewed(None, NAMES, NOW)
    data = held.to_data()
    assert set(data) == {"tls.crt", "tls.key", "ca.crt", "ca.key"}
    assert from_data(data) == held
    for broken in (
        None,
        {},
        {**data, "tls.crt": ""},
        {**data, "ca.key": "%"},
        {**data, "tls.key": "aGFsbG8="},
    ):
        assert from_data(broken) is None


def test_joined() -> None:
    one, other = renewed(None, NAMES, NOW).ca_bundle, renewed(None, NAMES, NOW).ca_bundle
    assert joined(one, other) == one + other
    assert joined(one + other, other) == one + other


def test_lifetimes_leave_room() -> None:
    lifetimes = certificates.Lifetimes()
    assert lifetimes.serving_renewal < lifetimes.serving < lifetimes.ca_renewal < lifetimes.ca

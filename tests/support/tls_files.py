"""Certificates for tests: an authority, and keys with certificates that it signs, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; `trust` is its own."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.trust = directory / f"{name}.pem"
        self.trust.write_bytes(_pem(_certificate(name, self._key.public_key(), name, self._key)))

    def issue(self, name: str, *, password: str | None = None, hosts: tuple[str, ...] = ()) -> Pair:
        """<name>.pem and <name>.key, anew each time (PKCS8, as Java wants it). hosts: IP addresses
        that the certificate is for."""
        key = ec.generate_private_key(ec.SECP256R1())
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        secret: KeySerializationEncryption = NoEncryption()
        if password is not None:
            secret = BestAvailableEncryption(password.encode())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret)
        certificate = _certificate(name, key.public_key(), self._name, self._key, hosts)
        for path, data in ((pair.certificate, _pem(certificate)), (pair.key, private)):
            part = path.with_suffix(".part")
            part.write_bytes(data)
            # A broker names a key that other users may read.
            part.chmod(0o600)
            part.replace(path)
        return pair

    def client_settings(self, pair: Pair | None) -> dict[str, str]:
        """Of a client that trusts only this authority, with its certificate or without one."""
        found = {
            "tls.enable": "true",
            "tls.test.mode.enable": "false",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": str(self.trust),
        }
        if pair is not None:
            found["tls.client.certPath"] = str(pair.certificate)
            found["tls.client.keyPath"] = str(pair.key)
        return found


def _certificate(
    name: str,
    public: ec.EllipticCurvePublicKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    hosts: tuple[str, ...] = (),
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 30 * _DAY)
        .add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True)
    )
    if hosts:
        addresses = [x509.IPAddress(ipaddress.ip_address(host)) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def client_context(
    trust: Path | None = None, pair: Pair | None = None, password: str | None = None
) -> ssl.SSLContext:
    """A client's; without `trust` it takes any server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if trust is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(trust)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key, password)
    return context


def server_context(pair: Pair) -> ssl.SSLContext:
    """A server's that asks for no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # nothing is sent behind the handshake
    context.load_cert_chain(pair.certificate, pair.key)
    return context

"""Private keys that `ssl` cannot load from a file: test mode keys and encrypted ones.

Imported only when needed, since its imports take 50 ms. Keys are never written to disk. Any thread;
no state.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import ssl
from collections.abc import Iterator
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

_DAY: Final = datetime.timedelta(days=1)
_DAYS: Final = 3650


def load_self_signed(context: ssl.SSLContext) -> None:
    """Load a fresh key and a self-signed certificate into `context`. Raises OSError (including
    ssl.SSLError). Follows Netty's SelfSignedCertificate, with an elliptic key: 4 ms where an RSA
    key takes 100; that where tls.ciphers leaves no other suite of TLS 1.2."""
    suites = [suite for suite in context.get_ciphers() if suite["protocol"] != "TLSv1.3"]
    needs_rsa = not any(suite["auth"] == "auth-ecdsa" for suite in suites)
    with _file_in_memory(_make_pem(needs_rsa=needs_rsa)) as path:
        context.load_cert_chain(path)


def load_encrypted(context: ssl.SSLContext, certificate: str, key: bytes, password: str) -> None:
    """Load the certificate chain of a PEM file and an encrypted PEM key (PKCS8) into `context`.

    OpenSSL 3 has disabled the ciphers used in RocketMQ's documentation for encrypting keys, such as
    PBE-SHA1-RC4-128. Raises ValueError for a wrong password or cipher, ssl.SSLError, OSError.
    """
    try:
        plain = load_pem_private_key(key, password.encode())
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(str(error)) from error
    data = plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with _file_in_memory(data) as path:
        context.load_cert_chain(certificate, path)


@contextlib.contextmanager
def _file_in_memory(data: bytes) -> Iterator[str]:
    """A path from which `ssl` can read `data`, until the end of the block."""
    fd = os.memfd_create("tls-key", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _make_pem(*, needs_rsa: bool) -> bytes:
    """Private key (PKCS8) and certificate, one PEM text."""
    key = (
        rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        if needs_rsa
        else ec.generate_private_key(ec.SECP256R1())
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAYS * _DAY)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + certificate.public_bytes(Encoding.PEM)

"""Ed25519 signatures of links: files of 64 bytes beside them, as `openssl pkeyutl` checks.

`<link>.<first 16 digits of the key's fingerprint>.sig`; the public key lies in
`<out>/evidence/keys/<the same>.pem`. `cryptography` is imported when a key is read: nothing else
of the report needs it. Must not know what is signed.
"""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark.evidence.links import DIRECTORY

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

KEYS: Final = f"{DIRECTORY}/keys"
SIGNATURE_BYTES: Final = 64
_SHORT: Final = 16
_MAKE_ONE: Final = "make one with: openssl genpkey -algorithm ed25519 -out FILE"


class KeyFileError(Exception):
    """A key that cannot be used: says which file, why, and the way out."""


class PublicKey:
    """A key that signatures are checked with. `fingerprint`: SHA-256 of its DER, hex, as
    `openssl pkey -pubin -outform DER | sha256sum` prints it."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        form = PublicFormat.SubjectPublicKeyInfo
        self._key = key
        self.pem = key.public_bytes(Encoding.PEM, form)
        self.fingerprint = hashlib.sha256(key.public_bytes(Encoding.DER, form)).hexdigest()
        self.short = self.fingerprint[:_SHORT]

    def has_signed(self, content: bytes, signature: bytes) -> bool:
        """Whether `signature` is this key's of `content`."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, content)
        except InvalidSignature:
            return False
        return True


class PrivateKey:
    """A key that signs."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key())

    def sign(self, content: bytes) -> bytes:
        """64 bytes."""
        return self._key.sign(content)


def read_public_key(path: Path) -> PublicKey:
    """Of a PEM file. Raises KeyFileError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_content(path))
    except (ValueError, UnsupportedAlgorithm) as error:
        way_out = "openssl pkey -in KEY -pubout -out FILE writes one"
        raise KeyFileError(f"{path}: is not a public key in PEM; {way_out}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path}: is not an ed25519 key")
    return PublicKey(key)


def read_private_key(path: Path) -> PrivateKey:
    """Of a PEM file (PKCS 8, not encrypted) that its owner alone may read. Raises KeyFileError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _content(path)
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileError(f"{path}: others may read or write it: chmod 600 {path}")
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError as error:
        way_out = "openssl pkey -in KEY -out FILE writes it without a passphrase"
        raise KeyFileError(f"{path}: has a passphrase; {way_out}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyFileError(f"{path}: is not a private key in PEM; {_MAKE_ONE}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path}: is not an ed25519 key; {_MAKE_ONE}")
    return PrivateKey(key)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be read: {error.strerror}") from error


def signature_name(link_name: str, short: str) -> str:
    """The file of a signature; `short`: of the key."""
    return f"{link_name}.{short}.sig"


def signer_of(name: str) -> tuple[str, str] | None:
    """Link and short fingerprint of a signature's file; None for any other file."""
    link, _, rest = name.partition(".json.")
    short, _, suffix = rest.partition(".")
    return (f"{link}.json", short) if suffix == "sig" and len(short) == _SHORT else None

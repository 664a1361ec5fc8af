"""What Python's ssl cannot send: TLS 1.3 key updates, as many as a hostile client likes.

KeyUpdates makes the records that a client sends after its handshake; the keys come from OpenSSL's
key log. An update changes the sender's key and may demand one in return (RFC 8446, 4.6.3).
"""

from __future__ import annotations

import hmac
import ssl
import struct
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.tls_files import client_context

UPDATE_SIZE: Final = 27
"""Bytes of one on the wire, and of the answer to it."""
_HASHES: Final = {
    "TLS_AES_128_GCM_SHA256": ("sha256", 16),
    "TLS_AES_256_GCM_SHA384": ("sha384", 32),
}
_DATA: Final = b"\x17"
_HANDSHAKE: Final = b"\x16"


def logging_context(key_log: Path) -> ssl.SSLContext:
    """A client's, of TLS 1.3 only; for one connection."""
    context = client_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.keylog_filename = str(key_log)
    return context


class KeyUpdates:
    """One client's records after its handshake; nothing else may be sent by its connection."""

    def __init__(self, cipher: str, key_log: Path) -> None:
        """`cipher`: what was agreed upon."""
        self._hash, self._key_size = _HASHES[cipher]
        lines = (line.split() for line in key_log.read_text().splitlines())
        secrets = [words[2] for words in lines if words[0] == "CLIENT_TRAFFIC_SECRET_0"]
        self._use(bytes.fromhex(secrets[-1]))

    def updates(self, count: int, *, wants_answer: bool = True) -> bytes:
        """So many records."""
        records = []
        for _ in range(count):
            records.append(self._record(bytes([24, 0, 0, 1, wants_answer]), _HANDSHAKE))
            self._use(self._expand(b"traffic upd", len(self._secret)))
        return b"".join(records)

    def data(self, data: bytes) -> bytes:
        """A record with up to 16 KiB of the client's data."""
        return self._record(data, _DATA)

    def _record(self, content: bytes, kind: bytes) -> bytes:
        head = b"\x17\x03\x03" + struct.pack(">H", len(content) + 1 + 16)
        nonce = (self._iv ^ self._number).to_bytes(12)
        self._number += 1
        return head + self._key.encrypt(nonce, content + kind, head)

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._key = AESGCM(self._expand(b"key", self._key_size))
        self._iv = int.from_bytes(self._expand(b"iv", 12))
        self._number = 0

    def _expand(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label without a context; one block is enough."""
        text = b"tls13 " + label
        info = struct.pack(">HB", size, len(text)) + text + b"\0\x01"
        return hmac.digest(self._secret, info, self._hash)[:size]

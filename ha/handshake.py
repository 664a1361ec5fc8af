"""The handshake between our own HA peers: who they are, and proof that they know the same secret.

Pure: bytes in, bytes out; no socket, no clock, any thread. A slave begins it when it knows that
its master is ours (haProtocol in the answer to request 28), or when it has a secret itself; its
first 8 bytes are no report (negative), so that a master tells it from RocketMQ's protocol, which
goes on without any of this. Integers are big-endian.

    slave hello    8 MAGIC, uint16 version, uint16 flags, 32 nonce, int64 broker id,
                   uint16 length and UTF-8 of brokerName (at most MAX_NAME bytes)
    master hello   8 MAGIC, uint16 version, uint16 flags, 32 nonce, int64 min phy offset, int64 max
                   phy offset, uint16 length and ASCII of "ip:port" of its remoting port (at most
                   MAX_ADDRESS bytes), 32 proof
    slave proof    32 proof; the first report follows it

    flags          bit 0: the sender has a secret and proves it
                   bit 1, of a slave: its reports say what is on its disk (haAckLevel=flushed)
                   the other bits are 0; a bit that is not known means nothing
    version        the slave's highest; the master answers with the one that is spoken, at most
                   that. No single flipped bit makes 2 a 1: none brings a link down to version 1
    proof          HMAC-SHA256(secret, label + slave hello + master hello without its proof). The
                   labels differ, so that no side's proof serves as the other's, and both nonces
                   are in it, so that none can be used again. Without a secret, in version 1:
                   zeros; in version 2: the same with an empty secret, which proves nothing but that
                   both hellos came as they were sent

The master's proof comes first: a slave proves nothing to one that has not. After it frames have the
checked form (frame.py), and in version 2 reports, the first one too, have the sealed form
(reports.py); its key is made as the proofs are, with a third label. Version 1 is that of earlier
brokers of ours: their reports are RocketMQ's. The secret is never sent. What it does not protect
from is somebody between the two who passes everything on and reads or changes what follows: that
takes haTlsEnable.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from ha.master_hello import MasterHello
from ha.refusals import RefusalReason

VERSION: Final = 2
"""The highest version that is spoken here; request 28 tells it as haProtocol."""
MAGIC: Final = b"\xf1MQHello"
MAX_NAME: Final = 1024
MAX_ADDRESS: Final = 256
PROOF_SIZE: Final = 32
NONCE_SIZE: Final = 32

_SLAVE_HEAD: Final = Struct(">8sHH32sqH")
_MASTER_HEAD: Final = Struct(">8sHH32sqqH")
_SHOWN: Final = 64
"""Characters of a stranger's name in a log line."""
_NO_PROOF: Final = bytes(PROOF_SIZE)
_MASTER_LABEL: Final = b"RocketMQ HA 1: master\0"
_SLAVE_LABEL: Final = b"RocketMQ HA 1: slave\0"
_REPORT_LABEL: Final = b"RocketMQ HA 2: reports\0"
_SEALS_REPORTS: Final = 2
"""From this version on reports are sealed, and hellos are checked without a secret, too."""
_SAME_SECRET: Final = "haSharedSecretFile must hold the same secret on both sides"


class Flag(enum.IntFlag):
    """The flags of a hello."""

    NONE = 0
    PROVES = 1
    """The sender has a secret and proves it."""
    REPORTS_FLUSHED = 2
    """A slave's reports say what is on its disk, not only what it has."""


class HandshakeError(Exception):
    """The peer is not one to go on with; the text names the cause and the way out."""

    def __init__(self, reason: RefusalReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class OwnIdentity:
    """What this broker says of itself, and its secret."""

    broker_name: str
    broker_id: int
    broker_address: str
    """ "ip:port" of its remoting port, as its registration names it."""
    secret: bytes | None = field(default=None, repr=False)
    """None: it has none, and proves nothing."""
    reports_flushed: bool = False
    """As a slave it reports what is on its disk (haAckLevel=flushed)."""


@dataclass(frozen=True, slots=True)
class SlaveHello:
    """What a slave says of itself."""

    broker_name: str
    broker_id: int
    is_proved: bool
    """It proved the secret."""
    reports_flushed: bool = False
    """What it reports is on its disk."""
    report_key: bytes | None = field(default=None, repr=False, compare=False)
    """For Reports; None: its version knows no sealed ones."""


class MasterHandshake:
    """The master's side of one handshake: feed it what comes, send what it returns."""

    def __init__(
        self,
        own: OwnIdentity,
        bounds: Callable[[], tuple[int, int]],
        *,
        must_prove: bool,
        nonce: bytes | None = None,
    ) -> None:
        """bounds: the log's min and max phy offset now. must_prove: whether a slave that does not
        prove the secret is refused. nonce: for tests."""
        self._own = own
        self._bounds = bounds
        self._must_prove = must_prove
        self._nonce = nonce or secrets.token_bytes(NONCE_SIZE)
        self._received = b""
        self._wanted = _SLAVE_HEAD.size
        self._transcript = b""
        self._name = ""
        self._broker_id = 0
        self._slave_flags = Flag.NONE
        self._version = VERSION
        self.slave: SlaveHello | None = None
        """Once the handshake is done."""

    @property
    def missing(self) -> int:
        """How many bytes it wants next, at most; 0: it is done."""
        return 0 if self.slave else self._wanted - len(self._received)

    def receive(self, data: bytes) -> bytes:
        """Take at most `missing` bytes; what must be sent now. Raises HandshakeError."""
        self._received += data
        if self.missing:
            return b""
        if self._transcript:
            self._take_proof()
            return b""
        head = _SLAVE_HEAD.unpack_from(self._received)
        magic, version, flags, _nonce, broker_id, name_size = head
        if magic != MAGIC or not version or name_size > MAX_NAME:
            raise HandshakeError(
                RefusalReason.BAD_HANDSHAKE, "its hello is not one of a slave of this broker's kind"
            )
        if len(self._received) < _SLAVE_HEAD.size + name_size:
            self._wanted = _SLAVE_HEAD.size + name_size
            return b""
        self._version = min(version, VERSION)
        self._broker_id = broker_id
        self._name = self._received[_SLAVE_HEAD.size :].decode("utf-8", "replace")
        self._slave_flags = Flag(flags & (Flag.PROVES | Flag.REPORTS_FLUSHED))
        return self._answer()

    def _answer(self) -> bytes:
        if self._must_prove and not self._slave_proves:
            raise HandshakeError(
                RefusalReason.NOT_PROVED,
                f"it claims to be {self._claim()} but offers no proof: set haSharedSecretFile "
                "there as here, or name its address in haTrustedAddresses",
            )
        proves = self._own.secret is not None and self._slave_proves
        low, high = self._bounds()
        address = self._own.broker_address.encode()[:MAX_ADDRESS]
        flags = Flag.PROVES if proves else Flag.NONE
        version = self._version
        head = _MASTER_HEAD.pack(MAGIC, version, flags, self._nonce, low, high, len(address))
        hello = head + address
        self._transcript = self._received + hello
        self._received, self._wanted = b"", PROOF_SIZE
        secret = self._own.secret if proves else None
        return hello + _proof(version, secret, _MASTER_LABEL, self._transcript)

    def _claim(self) -> str:
        """Who it says it is, for a log line that it must not be able to end."""
        return f"{self._name[:_SHOWN]!a}:{self._broker_id}"

    def _take_proof(self) -> None:
        secret = self._own.secret if self._slave_proves else None
        expected = _proof(self._version, secret, _SLAVE_LABEL, self._transcript)
        if not hmac.compare_digest(expected, self._received):
            if secret is None:
                raise _damaged()
            raise HandshakeError(
                RefusalReason.NOT_PROVED,
                f"it claims to be {self._claim()}, but its proof is wrong: {_SAME_SECRET}",
            )
        self.slave = SlaveHello(
            self._name,
            self._broker_id,
            is_proved=secret is not None,
            reports_flushed=bool(self._slave_flags & Flag.REPORTS_FLUSHED),
            report_key=_report_key(self._version, secret, self._transcript),
        )

    @property
    def _slave_proves(self) -> bool:
        return bool(self._slave_flags & Flag.PROVES)


class SlaveHandshake:
    """The slave's side: send `hello`, feed it what comes, send what it returns."""

    def __init__(
        self, own: OwnIdentity, *, nonce: bytes | None = None, version: int = VERSION
    ) -> None:
        """With a secret a master that does not prove it is refused. nonce, version: for tests."""
        self._own = own
        name = own.broker_name.encode()
        if len(name) > MAX_NAME:
            raise HandshakeError(
                RefusalReason.BAD_HANDSHAKE,
                f"brokerName has {len(name)} bytes, at most {MAX_NAME} can be sent to a master",
            )
        flags = Flag.NONE if own.secret is None else Flag.PROVES
        flags |= Flag.REPORTS_FLUSHED if own.reports_flushed else Flag.NONE
        nonce = nonce or secrets.token_bytes(NONCE_SIZE)
        head = _SLAVE_HEAD.pack(MAGIC, version, flags, nonce, own.broker_id, len(name))
        self.hello: Final = head + name
        self._version = version
        self.report_key: bytes | None = None
        """For Reports, once the handshake is done; None: the master's version knows no sealed
        ones."""
        self._received = b""
        self._wanted = len(MAGIC)
        self.master: MasterHello | None = None
        """Once the handshake is done."""

    @property
    def missing(self) -> int:
        """How many bytes it wants next, at most; 0: it is done."""
        return 0 if self.master else self._wanted - len(self._received)

    def receive(self, data: bytes) -> bytes:
        """Take at most `missing` bytes; what must be sent now. Raises HandshakeError."""
        self._received += data
        if self.missing:
            return b""
        if self._wanted == len(MAGIC):
            if self._received != MAGIC:
                raise HandshakeError(
                    RefusalReason.NOT_PROVED,
                    "it does not answer the handshake: is this the HA port of a broker of this "
                    "kind and version? A slave with haSharedSecretFile follows no other",
                )
            self._wanted = _MASTER_HEAD.size
            return b""
        _, version, flags, _nonce, low, high, size = _MASTER_HEAD.unpack_from(self._received)
        if not 0 < version <= self._version or size > MAX_ADDRESS or not 0 <= low <= high:
            raise HandshakeError(
                RefusalReason.BAD_HANDSHAKE,
                f"its hello cannot be read (version {version}, log from {low} to {high}): the link "
                "damages bytes, or it is not a broker of this kind",
            )
        self._wanted = _MASTER_HEAD.size + size + PROOF_SIZE
        if len(self._received) < self._wanted:
            return b""
        return self._judge(version, Flag(flags), low, high)

    def _judge(self, version: int, flags: Flag, low: int, high: int) -> bytes:
        """Our proof, once the master's is good."""
        secret = self._own.secret
        if secret is not None and not flags & Flag.PROVES:
            raise HandshakeError(
                RefusalReason.NOT_PROVED,
                f"it offers no proof, and this broker follows only masters that do: {_SAME_SECRET}",
            )
        hello, proof = self._received[:-PROOF_SIZE], self._received[-PROOF_SIZE:]
        transcript = self.hello + hello
        if not hmac.compare_digest(_proof(version, secret, _MASTER_LABEL, transcript), proof):
            if secret is None:
                raise _damaged()
            raise HandshakeError(RefusalReason.NOT_PROVED, f"its proof is wrong: {_SAME_SECRET}")
        address = hello[_MASTER_HEAD.size :].decode("ascii", "replace")
        self.master = MasterHello(low, high, address or None, is_proved=secret is not None)
        self.report_key = _report_key(version, secret, transcript)
        return _proof(version, secret, _SLAVE_LABEL, transcript)


def _proof(version: int, secret: bytes | None, label: bytes, transcript: bytes) -> bytes:
    if secret is None and version < _SEALS_REPORTS:
        return _NO_PROOF
    return hmac.new(secret or b"", label + transcript, hashlib.sha256).digest()


def _report_key(version: int, secret: bytes | None, transcript: bytes) -> bytes | None:
    return None if version < _SEALS_REPORTS else _proof(version, secret, _REPORT_LABEL, transcript)


def _damaged() -> HandshakeError:
    """Without a secret there is nothing to know: the bytes are not those that were sent."""
    return HandshakeError(
        RefusalReason.BAD_CHECKSUM, "the handshake was damaged in transit; retrying"
    )

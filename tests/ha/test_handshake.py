"""The handshake's bytes: layout, proofs, and everything that is no proof."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import random
import struct

import pytest

from ha.frame import REPORT
from ha.handshake import (
    MAGIC,
    MAX_ADDRESS,
    MAX_NAME,
    HandshakeError,
    MasterHandshake,
    OwnIdentity,
    SlaveHandshake,
    SlaveHello,
)
from ha.master_hello import MasterHello
from ha.refusals import RefusalReason

SECRET = b"a secret of the group"
SLAVE = OwnIdentity("broker-ä", 3, "10.0.0.3:10911", SECRET)
MASTER = OwnIdentity("broker-ä", 0, "10.0.0.2:10911", SECRET)
BOUNDS = (4096, 1 << 40)
ZEROS = bytes(32)


def without_secret(own: OwnIdentity) -> OwnIdentity:
    return dataclasses.replace(own, secret=None)


def master_of(own: OwnIdentity = MASTER, *, must_prove: bool = True) -> MasterHandshake:
    return MasterHandshake(own, lambda: BOUNDS, must_prove=must_prove)


def feed(side: MasterHandshake | SlaveHandshake, data: bytes, piece: int = 1 << 20) -> bytes:
    """In pieces, as a socket that is read with `missing` gives them; what is answered."""
    answer = b""
    while data and side.missing:
        size = min(piece, side.missing)
        answer += side.receive(data[:size])
        data = data[size:]
    assert not data, "it wants no more"
    return answer


def shake(slave: SlaveHandshake, master: MasterHandshake, piece: int = 1 << 20) -> None:
    proof = feed(slave, feed(master, slave.hello, piece), piece)
    assert feed(master, proof, piece) == b""


@pytest.mark.parametrize("version", [1, 2])
def test_layout(version: int) -> None:
    """Truth from outside: struct and hmac, with the labels of the module's docstring. Version 1 is
    what earlier brokers speak: not a bit of it may change."""
    slave = SlaveHandshake(SLAVE, nonce=b"S" * 32, version=version)
    master = MasterHandshake(MASTER, lambda: BOUNDS, must_prove=True, nonce=b"M" * 32)
    name, address = "broker-ä".encode(), b"10.0.0.2:10911"
    hello = MAGIC + struct.pack(">HH", version, 1) + b"S" * 32
    hello += struct.pack(">qH", 3, len(name)) + name
    assert slave.hello == hello
    body = MAGIC + struct.pack(">HH", version, 1) + b"M" * 32
    body += struct.pack(">qqH", *BOUNDS, len(address)) + address
    answer = feed(master, hello)
    master_proof = hmac.digest(SECRET, b"RocketMQ HA 1: master\0" + hello + body, hashlib.sha256)
    assert answer == body + master_proof
    slave_proof = hmac.digest(SECRET, b"RocketMQ HA 1: slave\0" + hello + body, hashlib.sha256)
    assert feed(slave, answer) == slave_proof
    assert feed(master, slave_proof) == b""
    assert SECRET not in hello + answer + slave_proof
    key = hmac.digest(SECRET, b"RocketMQ HA 2: reports\0" + hello + body, hashlib.sha256)
    assert slave.report_key == (key if version == 2 else None)
    assert master.slave is not None
    assert master.slave.report_key == slave.report_key


@pytest.mark.parametrize(("flushed", "flags"), [(False, 1), (True, 3)])
def test_a_slave_says_whether_its_reports_mean_its_disk(flushed: bool, flags: int) -> None:
    slave = SlaveHandshake(dataclasses.replace(SLAVE, reports_flushed=flushed))
    assert struct.unpack_from(">H", slave.hello, len(MAGIC) + 2) == (flags,)
    master = master_of()
    shake(slave, master)
    assert master.slave is not None
    assert master.slave.is_proved
    assert master.slave.reports_flushed is flushed


def test_magic_is_no_report() -> None:
    (report,) = REPORT.unpack(MAGIC)
    assert report < -(1 << 32), "and no small negative number that somebody might mean"


@pytest.mark.parametrize("piece", [1, 7, 33, 1 << 20])
def test_both_prove_the_secret(piece: int) -> None:
    slave, master = SlaveHandshake(SLAVE), master_of()
    shake(slave, master, piece)
    assert slave.master == MasterHello(*BOUNDS, "10.0.0.2:10911", is_proved=True)
    assert master.slave == SlaveHello("broker-ä", 3, is_proved=True)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("piece", [1, 1 << 20])
def test_without_secrets_nothing_is_proved(piece: int, version: int) -> None:
    slave = SlaveHandshake(without_secret(SLAVE), version=version)
    master = master_of(without_secret(MASTER), must_prove=False)
    proof = feed(slave, feed(master, slave.hello, piece), piece)
    assert (proof == ZEROS) == (version == 1)
    assert (slave.report_key is None) == (version == 1)
    feed(master, proof, piece)
    assert slave.master == MasterHello(*BOUNDS, "10.0.0.2:10911", is_proved=False)
    assert master.slave == SlaveHello("broker-ä", 3, is_proved=False)


def test_a_slave_without_a_secret_where_the_address_is_enough() -> None:
    slave, master = SlaveHandshake(without_secret(SLAVE)), master_of(must_prove=False)
    shake(slave, master)
    assert slave.master is not None
    assert not slave.master.is_proved
    assert master.slave is not None
    assert not master.slave.is_proved


def test_a_slave_without_a_secret_learns_nothing() -> None:
    with pytest.raises(HandshakeError, match="offers no proof") as raised:
        feed(master_of(), SlaveHandshake(without_secret(SLAVE)).hello)
    assert raised.value.reason is RefusalReason.NOT_PROVED


def test_a_strangers_name_cannot_end_a_log_line() -> None:
    named = dataclasses.replace(SLAVE, broker_name="b\n2026 INFO all is well" + "x" * 900)
    stranger = SlaveHandshake(without_secret(named))
    with pytest.raises(HandshakeError) as raised:
        feed(master_of(), stranger.hello)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300


def test_a_master_without_a_secret_is_not_followed() -> None:
    slave, master = SlaveHandshake(SLAVE), master_of(without_secret(MASTER), must_prove=False)
    with pytest.raises(HandshakeError, match="it offers no proof") as raised:
        feed(slave, feed(master, slave.hello))
    assert raised.value.reason is RefusalReason.NOT_PROVED


def test_other_secrets() -> None:
    slave = SlaveHandshake(SLAVE)
    other = master_of(dataclasses.replace(MASTER, secret=SECRET + b"!"))
    with pytest.raises(HandshakeError, match="proof is wrong"):
        feed(slave, feed(other, slave.hello))
    master, liar = master_of(), SlaveHandshake(dataclasses.replace(SLAVE, secret=b"x" * 16))
    feed(master, liar.hello)
    for guess in (ZEROS, b"\xff" * 32):
        with pytest.raises(
            HandshakeError, match="its proof is wrong: haSharedSecretFile"
        ) as raised:
            feed(master, guess)
        assert raised.value.reason is RefusalReason.NOT_PROVED
        assert master.slave is None
        master = master_of()
        feed(master, liar.hello)


def test_a_masters_own_proof_proves_nothing_to_it() -> None:
    master, slave = master_of(), SlaveHandshake(SLAVE)
    answer = feed(master, slave.hello)
    with pytest.raises(HandshakeError):
        feed(master, answer[-32:])
    # Nor does one that another connection of it gave for the same hello.
    second = master_of()
    feed(second, slave.hello)
    with pytest.raises(HandshakeError):
        feed(second, feed(master_of(), slave.hello)[-32:])


def test_a_slaves_own_hello_is_no_answer() -> None:
    slave = SlaveHandshake(SLAVE)
    with pytest.raises(HandshakeError):
        feed(slave, (slave.hello + bytes(100))[: slave.missing + 300])


def test_what_was_recorded_is_worth_nothing() -> None:
    slave, master = SlaveHandshake(SLAVE), master_of()
    answer = feed(master, slave.hello)
    proof = feed(slave, answer)
    feed(master, proof)
    second = master_of()
    feed(second, slave.hello)
    with pytest.raises(HandshakeError):
        feed(second, proof)
    with pytest.raises(HandshakeError):
        feed(SlaveHandshake(SLAVE), answer)


@pytest.mark.parametrize("secret", [SECRET, None])
def test_a_changed_bit_anywhere_ends_it(secret: bytes | None) -> None:
    """In either hello or either proof, with secrets or without: the other side does not go on."""
    chance = random.Random(5)
    for _ in range(300):
        with pytest.raises((HandshakeError, EOFError)):
            _shake_with_a_flip(chance, secret)


def test_no_flipped_bit_of_a_version_brings_a_link_down_to_the_first() -> None:
    hello = SlaveHandshake(without_secret(SLAVE)).hello
    answer = feed(master_of(without_secret(MASTER), must_prove=False), hello)
    for bit in range(16):
        changed = bytearray(hello)
        changed[8 + bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(HandshakeError):
            answered = feed(master_of(without_secret(MASTER), must_prove=False), bytes(changed))
            assert struct.unpack_from(">H", answered, 8) == (2,)
        changed = bytearray(answer)
        changed[8 + bit // 8] ^= 1 << bit % 8
        with pytest.raises(HandshakeError):
            feed(SlaveHandshake(without_secret(SLAVE)), bytes(changed))


def _shake_with_a_flip(chance: random.Random, secret: bytes | None) -> None:
    slave = SlaveHandshake(dataclasses.replace(SLAVE, secret=secret))
    master = master_of(dataclasses.replace(MASTER, secret=secret), must_prove=secret is not None)
    where = chance.randrange(3)
    answer = _deliver(master, _flip(slave.hello, chance) if where == 0 else slave.hello)
    proof = _deliver(slave, _flip(answer, chance) if where == 1 else answer)
    _deliver(master, _flip(proof, chance) if where == 2 else proof)


def _deliver(side: MasterHandshake | SlaveHandshake, data: bytes) -> bytes:
    """EOFError where it waits for more than comes: the owner's time limit ends that."""
    answer = b""
    while data:
        size = side.missing
        if not size:
            raise EOFError
        answer += side.receive(data[:size])
        data = data[size:]
    if side.missing and not answer:
        raise EOFError
    return answer


def _flip(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def test_lengths_are_bounded() -> None:
    head = MAGIC + struct.pack(">HH32sqH", 1, 0, bytes(32), 1, MAX_NAME + 1)
    with pytest.raises(HandshakeError) as raised:
        feed(master_of(), head)
    assert raised.value.reason is RefusalReason.BAD_HANDSHAKE
    head = MAGIC + struct.pack(">HH32sqqH", 1, 1, bytes(32), 0, 1, MAX_ADDRESS + 1)
    with pytest.raises(HandshakeError) as raised:
        feed(SlaveHandshake(SLAVE), head)
    assert raised.value.reason is RefusalReason.BAD_HANDSHAKE
    with pytest.raises(HandshakeError):
        SlaveHandshake(OwnIdentity("n" * (MAX_NAME + 1), 1, ""))


@pytest.mark.parametrize(("version", "low", "high"), [(0, 0, 1), (3, 0, 1), (1, -1, 1), (1, 2, 1)])
def test_a_masters_hello_that_makes_no_sense(version: int, low: int, high: int) -> None:
    head = MAGIC + struct.pack(">HH32sqqH", version, 1, bytes(32), low, high, 0)
    with pytest.raises(HandshakeError) as raised:
        feed(SlaveHandshake(without_secret(SLAVE)), head)
    assert raised.value.reason is RefusalReason.BAD_HANDSHAKE


def test_a_newer_slave_is_answered_in_our_version() -> None:
    hello = bytearray(SlaveHandshake(without_secret(SLAVE)).hello)
    hello[8:10] = struct.pack(">H", 7)
    answer = feed(master_of(must_prove=False), bytes(hello))
    assert struct.unpack_from(">H", answer, 8) == (2,)


@pytest.mark.parametrize("secret", [SECRET, None])
def test_an_older_master_answers_in_its_own_version(secret: bytes | None) -> None:
    """As brokers of version 1 do whatever a slave's hello says. Truth from outside, as above."""
    slave = SlaveHandshake(dataclasses.replace(SLAVE, secret=secret))
    body = MAGIC + struct.pack(">HH", 1, 1 if secret else 0) + b"M" * 32
    body += struct.pack(">qqH", *BOUNDS, 0)
    said = slave.hello + body
    proof = ZEROS
    if secret:
        proof = hmac.digest(secret, b"RocketMQ HA 1: master\0" + said, hashlib.sha256)
    expected = ZEROS
    if secret:
        expected = hmac.digest(secret, b"RocketMQ HA 1: slave\0" + said, hashlib.sha256)
    assert feed(slave, body + proof) == expected
    assert slave.report_key is None


def test_a_master_that_speaks_rocketmqs_protocol_is_told_from_the_first_bytes() -> None:
    with pytest.raises(HandshakeError, match="does not answer the handshake"):
        feed(SlaveHandshake(SLAVE), struct.pack(">q", 4096))


def test_the_secret_is_not_shown() -> None:
    assert "secret" not in repr(SLAVE)

"""A slave's link after a handshake: whom it follows, and that nothing damaged is published."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ha.ha_client_info import HAClientState
from ha.handshake import MasterHandshake, OwnIdentity
from ha.master_hello import MasterHello
from tests.ha.master_world import FILE_SIZE, MASTER, MasterWorld
from tests.ha.slave_world import SlaveWorld
from tests.support.deadline import wait_until
from tests.support.flipping_relay import FlippingRelay
from tests.support.plain_log import PlainLog
from tests.support.scripted_master import ScriptedLink, ScriptedMaster, checked_frame

SECRET = b"a secret of the group"
SIZE = 4096


@pytest.fixture
def master() -> Iterator[ScriptedMaster]:
    with ScriptedMaster() as master:
        yield master


def shake(secret: bytes | None = None) -> MasterHandshake:
    own = OwnIdentity("b", 0, "127.0.0.1:10911", secret)
    return MasterHandshake(own, lambda: (0, 9_000), must_prove=secret is not None)


def linked(world: SlaveWorld, master: ScriptedMaster, secret: bytes | None = None) -> ScriptedLink:
    """The slave's link, after its first report."""
    world.start()
    link = master.accept()
    link.shake_hands(shake(secret))
    assert link.read_report() == 0
    return link


@pytest.fixture
def world(tmp_path: Path, master: ScriptedMaster) -> Iterator[SlaveWorld]:
    world = SlaveWorld(tmp_path, master)
    assert not isinstance(world.inspection, Exception)
    world.inspection = dataclasses.replace(world.inspection, ha_protocol=2)
    yield world
    world.stop()


# -- frames --------------------------------------------------------------------------------------


def test_checked_frames_of_all_sizes(world: SlaveWorld, master: ScriptedMaster) -> None:
    link = linked(world, master)
    assert world.info.master_hello == MasterHello(0, 9_000, "127.0.0.1:10911", is_proved=False)
    chance, end, data = random.Random(3), 0, b""
    link.checked_frame(0)
    for size in (1, 300, 1_000, 2_795, 4_096, 4_000, 96):
        body = chance.randbytes(size)
        link.checked_frame(end, body)
        data += body
        end += size
        link.reports_until(end)
    assert world.bytes_of(0, end) == data
    link.checked_frame(end)
    wait_until(lambda: world.info.state is HAClientState.TRANSFER)


def test_byte_by_byte(world: SlaveWorld, master: ScriptedMaster) -> None:
    link = linked(world, master)
    stream = b"".join(checked_frame(at, b"0123456789" * 10) for at in (0, 100, 200))
    for value in stream:
        link.send(bytes((value,)))
    link.reports_until(300)
    assert world.bytes_of(0, 301) == b"0123456789" * 30 + b"\0"


@pytest.mark.parametrize("at", [*range(20), 20, 60, 119])
def test_a_flipped_bit_is_never_published(
    world: SlaveWorld, master: ScriptedMaster, at: int
) -> None:
    """In the header (also of a size: nobody waits for bytes that do not come) and in the body; what
    came whole before it stays."""
    link = linked(world, master)
    damaged = bytearray(checked_frame(50, b"d" * 100))
    damaged[at] ^= 1 << at % 8
    link.send(checked_frame(0, b"g" * 50) + bytes(damaged))
    link.wait_closed()
    wait_until(lambda: world.refusals() == {"bad_checksum": 1})
    assert world.end == 50
    again = master.accept()
    again.shake_hands(shake())
    assert again.read_report() == 50
    assert world.bytes_of(0, 200) == b"g" * 50 + bytes(150)
    again.checked_frame(50, b"d" * 100)
    again.reports_until(150)


def test_a_master_of_ours_that_cannot_be_asked_is_one_of_ours_still(
    world: SlaveWorld, master: ScriptedMaster
) -> None:
    """It is being restarted and does not answer questions yet: its link is checked nevertheless.
    One that says that it knows no handshake sees RocketMQ's bytes."""
    link = linked(world, master)
    link.checked_frame(0, b"g" * 50)
    link.reports_until(50)
    assert not isinstance(world.inspection, Exception)
    world.inspection = dataclasses.replace(world.inspection, ha_protocol=0, master_max=-1)
    link.close()
    again = master.accept()
    again.shake_hands(shake())
    assert again.read_report() == 50
    world.inspection = dataclasses.replace(world.inspection, ha_protocol=0, master_max=9_000)
    again.close()
    assert master.accept().read_report() == 50


def test_a_flip_in_a_body_that_is_received_into_the_file(tmp_path: Path) -> None:
    with ScriptedMaster() as master:
        world = SlaveWorld(tmp_path, master, file_size=1 << 20, files=1)
        assert not isinstance(world.inspection, Exception)
        world.inspection = dataclasses.replace(world.inspection, ha_protocol=2)
        link = linked(world, master)
        frame = bytearray(checked_frame(0, bytes(range(256)) * 2_000))
        frame[-1] ^= 1
        link.send(bytes(frame))
        link.wait_closed()
        wait_until(lambda: world.refusals() == {"bad_checksum": 1})
        assert world.end == 0
        again = master.accept()
        again.shake_hands(shake())
        assert again.read_report() == 0
        assert world.bytes_of(0, 1 << 20).count(0) == 1 << 20
        world.stop()


# -- whom it follows -----------------------------------------------------------------------------


def test_a_secret_is_asked_for_even_where_the_master_was_not_seen_to_be_ours(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    world = SlaveWorld(tmp_path, master, secret=SECRET, ha_shared_secret_file="/s")
    link = linked(world, master, SECRET)
    link.checked_frame(0, b"x")
    link.reports_until(1)
    hello = world.info.master_hello
    assert hello is not None
    assert hello.is_proved
    world.stop()


@pytest.mark.parametrize("secret", [None, b"another secret of 16"])
def test_a_master_without_the_secret_is_not_followed(
    tmp_path: Path, master: ScriptedMaster, secret: bytes | None
) -> None:
    world = SlaveWorld(tmp_path, master, secret=SECRET, ha_shared_secret_file="/s").start()
    link = master.accept()
    own = OwnIdentity("b", 0, "127.0.0.1:10911", secret)
    with pytest.raises(ConnectionError):
        link.shake_hands(MasterHandshake(own, lambda: (0, 9), must_prove=False))
    wait_until(lambda: "haSharedSecretFile" in world.error_text)
    assert world.refusals().keys() == {"not_proved"}
    assert world.connected == []
    assert world.info.master_hello is None
    world.stop()


def test_a_java_master_is_not_followed_with_a_secret(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    world = SlaveWorld(tmp_path, master, secret=SECRET, ha_shared_secret_file="/s").start()
    link = master.accept()
    link.frame(0, b"bytes of a log")
    link.wait_closed()
    wait_until(lambda: "does not answer the handshake" in world.error_text)
    assert world.end == 0
    world.stop()


def test_a_master_that_closes_and_one_that_says_nothing(
    tmp_path: Path, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ha.master_connector.CONNECT_MS", 50)
    world = SlaveWorld(tmp_path, master, secret=SECRET, ha_shared_secret_file="/s").start()
    wait_until(lambda: "did not answer the handshake" in world.error_text)
    while "closed the connection during the handshake" not in world.error_text:
        master.accept().close()
    world.stop()


def test_a_registered_address_is_no_reason_to_follow(
    tmp_path: Path, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger may have registered as brokerId 0. Nobody is connected to."""
    world = SlaveWorld(tmp_path, master, ha_trusted_addresses="192.0.2.1").start()
    wait_until(lambda: "anybody may register" in world.error_text)
    for way_out in ("haSharedSecretFile", "haMasterAddress", "haTrustedAddresses"):
        assert way_out in world.error_text
    assert world.refusals().keys() == {"unknown_peer"}
    master._listening.settimeout(0.2)
    with pytest.raises(TimeoutError):
        master.accept()
    world.stop()


def test_an_operators_word_is_one(tmp_path: Path, master: ScriptedMaster) -> None:
    world = SlaveWorld(
        tmp_path, master, ha_trusted_addresses="192.0.2.1", ha_master_address=master.address
    ).start()
    link = master.accept()
    assert link.read_report() == 0, "RocketMQ's protocol: it was not seen to be ours"
    link.frame(0, b"x")
    link.reports_until(1)
    world.stop()


# -- two of ours ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["received", "validated", "flushed"])
def test_bits_that_flip_on_the_link_reach_nobody(tmp_path: Path, level: str) -> None:
    """60 seeded positions over frames, hellos and heartbeats: no damaged byte is acknowledged."""
    chance = random.Random(f"{level}-11")
    source = PlainLog(tmp_path / "source")
    own = dataclasses.replace(MASTER, secret=SECRET)
    with (
        MasterWorld(tmp_path, file_size=SIZE, own=own) as master,
        FlippingRelay(master.address) as relay,
    ):
        (tmp_path / "slave").mkdir()
        world = SlaveWorld(tmp_path / "slave", None, files=24, secret=SECRET, ha_ack_level=level)
        assert not isinstance(world.inspection, Exception)
        world.inspection = dataclasses.replace(world.inspection, ha_address=relay.address)
        world.start()
        for number in range(60):
            # PlainLog also writes the blank at a file's end.
            before = source.end
            source.append(chance.randbytes(chance.randrange(1, 700)))
            raw = _bytes_between(source, before, source.end)
            relay.flip(chance.randrange(20 + len(raw)), chance.randrange(8))
            end = master.log.append_bytes(raw)
            wait_until(lambda end=end: _has_acknowledged(world, master, end, level))  # type: ignore[misc]
            assert world.bytes_of(0, end) == bytes(master.log.content), number
        assert relay.flipped == 60
        assert world.refusals().get("bad_checksum", 0) >= 50
        for acknowledged in master.group_transfer.acknowledged:
            assert acknowledged <= master.log.end
        world.stop()


@pytest.mark.parametrize("secret", [None, SECRET])
def test_bits_that_flip_on_the_way_back_acknowledge_nothing(
    tmp_path: Path, secret: bytes | None
) -> None:
    """A slave's reports, at 40 seeded positions: what counts as acknowledged is
    never more than its log holds."""
    chance = random.Random(f"{secret!r}-12")
    with (
        MasterWorld(tmp_path, own=dataclasses.replace(MASTER, secret=secret)) as master,
        FlippingRelay(master.address) as relay,
    ):
        (tmp_path / "slave").mkdir()
        world = SlaveWorld(tmp_path / "slave", None, secret=secret, file_size=FILE_SIZE, files=1)
        assert not isinstance(world.inspection, Exception)
        world.inspection = dataclasses.replace(
            world.inspection, ha_address=relay.address, ha_protocol=2
        )
        world.start()
        for _ in range(40):
            relay.flip(chance.randrange(24), chance.randrange(8), towards_client=False)
            end = master.log.append(chance.randrange(1, 300))
            wait_until(lambda end=end: _has_acknowledged(world, master, end, ""))  # type: ignore[misc]
            assert max(p.ack_offset for p in master.group_transfer.added) <= world.end
        assert relay.flipped >= 30
        assert master.refusals()["bad_checksum"] >= 25
        world.stop()


def _bytes_between(log: PlainLog, start: int, end: int) -> bytes:
    data = b"".join(log.path(at).read_bytes() for at in range(start - start % SIZE, end, SIZE))
    return data[start % SIZE :][: end - start]


def _has_acknowledged(world: SlaveWorld, master: MasterWorld, end: int, level: str) -> bool:
    if level == "flushed":
        world.flush()
    added = master.group_transfer.added
    return bool(added) and added[-1].ack_offset == end

"""What 5.3.3 brokers said on HA connections, and what no broker says, against our two sockets."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ha.autoswitch_connections import FirstHandshake
from ha.autoswitch_frame import (
    MAX_TRANSFER_BODY,
    FramesOfMaster,
    FramesOfSlave,
    MasterFrame,
    MasterHandshakeFrame,
    ReportFrame,
    SlaveHandshakeFrame,
    TransferFrame,
    encode_report,
    encode_slave_handshake,
    encode_transfer_header,
)
from ha.checked_carriage import SlaveBytes
from ha.epochs import epoch_list
from ha.handshake import HandshakeError, OwnIdentity, SlaveHandshake
from store.control_slots import APPEND_END, MAX_PHY_OFFSET, MIN_PHY_OFFSET
from tests.ha.member_world import FILE_SIZE, FIRST_EPOCH, Member
from tests.remoting.golden_frames import GOLDEN
from tests.support.deadline import wait_until

JAVA_SLAVES = {"newslave": 3, "24422-2": 99, "24422-3": 98, "24422-1": 1, "24412-1": 2}
"""Streams, and which broker the slave is."""
TWO_EPOCHS = epoch_list([(1, 0), (2, 693)])
SECRET = b"the secret of this group's tests"
_WAIT_S = 10.0


def said(name: str, way: str) -> bytes:
    return (GOLDEN / "controller-5.3.3" / f"ha-{name}.{way}.bin").read_bytes()


def reports_of(name: str) -> list[int]:
    frames = FramesOfSlave().receive(said(name, "c2s"))
    return [frame.max_offset for frame in frames if isinstance(frame, ReportFrame)]


def bodies_of(name: str) -> bytes:
    frames = FramesOfMaster().receive(said(name, "s2c"))
    return b"".join(frame.body for frame in frames if isinstance(frame, TransferFrame))


JAVA_LOG = bodies_of("newslave")
"""Of both groups of streams: the log of the group up to its third epoch."""


def with_java_log(member: Member, end: int) -> None:
    """The member's log holds the first `end` bytes of the Java brokers' one."""
    member.log.put(0, JAVA_LOG[:end])
    member.counters[APPEND_END] = member.counters[MAX_PHY_OFFSET] = member.log.end = end


class Peer:
    """A socket to our member, or one that it has opened."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(_WAIT_S)
        self.socket = sock
        self.heard = b""

    @classmethod
    def of(cls, member: Member, receive_buffer: int = 0) -> Peer:
        host, _, port = member.address.partition(":")
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.connect((host, int(port)))
        return cls(sock)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            data = self.socket.recv(size - len(found))
            if not data:
                raise EOFError
            found += data
        self.heard += found
        return found

    def read_frame(self) -> MasterFrame:
        """Of a master."""
        data = self.read(4)
        data += self.read(16 if data == b"\0\0\0\1" else 32)
        data += self.read(struct.unpack_from(">i", data, 4)[0])
        (frame,) = FramesOfMaster().receive(data)
        return frame

    def read_body(self) -> TransferFrame:
        """The next frame with bytes of the log."""
        while True:
            frame = self.read_frame()
            if isinstance(frame, TransferFrame) and frame.body:
                return frame

    def read_report(self) -> int:
        (frame,) = FramesOfSlave().receive(self.read(12))
        assert isinstance(frame, ReportFrame)
        return frame.max_offset

    def wait_closed(self) -> None:
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionError:
            return

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


@pytest.fixture
def port() -> Iterator[socket.socket]:
    """A master's HA port that a test plays."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(_WAIT_S)
    yield listening
    listening.close()


def name_of(port: socket.socket) -> str:
    return f"127.0.0.1:{port.getsockname()[1]}"


# Java's bytes


@pytest.mark.parametrize("largest_piece", [1, 40, 5_000])
@pytest.mark.parametrize("name", JAVA_SLAVES)
def test_our_slave_takes_a_java_masters_bytes(
    tmp_path: Path, port: socket.socket, name: str, largest_piece: int
) -> None:
    random = Random(name)
    begin, *_ = theirs = [*dict.fromkeys(reports_of(name))]
    with Member(tmp_path, JAVA_SLAVES[name]) as slave:
        with_java_log(slave, begin)
        (hello,) = FramesOfSlave().receive(said(name, "c2s")[:16])
        assert isinstance(hello, SlaveHandshakeFrame)
        slave.service._links = slave.service._links.__class__(
            slave.service._links.own,
            slave.begin_log,
            slave.service._links.queue_offsets,
            async_learner=hello.async_learner,
        )
        slave.follow(name_of(port), 3)
        with Peer(port.accept()[0]) as link:
            assert link.read(16) == said(name, "c2s")[:16]
            data = said(name, "s2c")
            head = 20 + struct.unpack_from(">i", data, 4)[0]
            link.send(data[:head])
            assert link.read_report() == begin
            at = head
            while at < len(data):
                size = random.randrange(1, largest_piece + 1)
                link.send(data[at : at + size])
                at += size
            ours = [begin]
            while ours[-1] != theirs[-1]:
                ours.append(link.read_report())
        assert ours == sorted(set(ours))
        slave.wait_end(theirs[-1])
        assert slave.bytes_of(0, theirs[-1]) == JAVA_LOG[: theirs[-1]]
        (epoch, epochs, end), *_ = slave.hellos
        (greeting, *_) = FramesOfMaster().receive(data[:head])
        assert isinstance(greeting, MasterHandshakeFrame)
        assert (epoch, epochs, end) == (3, greeting.epochs, greeting.max_offset)
        *_, last = FramesOfMaster().receive(data)
        assert isinstance(last, TransferFrame)
        wait_until(lambda: slave.confirmed and slave.confirmed[-1] == last.confirm_offset)
        assert slave.refusals().keys() <= {"network"}


@pytest.mark.parametrize("name", JAVA_SLAVES)
def test_our_master_serves_a_java_slave(tmp_path: Path, name: str) -> None:
    """The slave's bytes are Java's, in its order, each report as soon as it can be true."""
    with Member(tmp_path, 5, ha_transfer_batch_size=32_768) as master:
        with_java_log(master, len(JAVA_LOG))
        master.lead(TWO_EPOCHS)
        with Peer.of(master) as slave:
            data = said(name, "c2s")
            slave.send(data[:16])
            greeting = slave.read_frame()
            assert greeting == MasterHandshakeFrame(len(JAVA_LOG), 2, TWO_EPOCHS)
            begin, *reports = reports_of(name)
            slave.send(data[16:28])
            found = b""
            for report in reports:
                while begin + len(found) < report:
                    frame = slave.read_body()
                    assert frame.offset == begin + len(found)
                    assert len({_epoch_at(frame.offset), _epoch_at(_last_byte(frame))}) == 1
                    assert frame.confirm_offset == len(JAVA_LOG)
                    found += frame.body
                slave.send(encode_report(report))
            assert JAVA_LOG[begin:].startswith(found)
            wait_until(lambda: master.acked() == reports[-1])
            assert [*master.connected.values()] == [JAVA_SLAVES[name]]
        wait_until(lambda: master.gone)


def _last_byte(frame: TransferFrame) -> int:
    return frame.offset + len(frame.body) - 1


def _epoch_at(offset: int) -> int:
    return 2 if offset >= 693 else 1


def test_a_handshake_may_come_again_before_it_is_answered(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as master:
        end = master.append(3)
        master.lead()
        with Peer.of(master) as slave:
            slave.send(encode_slave_handshake(SlaveHandshakeFrame(2)) * 2)
            assert isinstance(slave.read_frame(), MasterHandshakeFrame)
            slave.send(encode_report(0))
            assert len(slave.read_body().body) == end


def test_a_java_slave_gets_heartbeats(tmp_path: Path) -> None:
    """After its first report: an earlier one would end the connection there."""
    with Member(tmp_path, 1, ha_send_heartbeat_interval=20) as master:
        end = master.append(3)
        master.lead()
        with Peer.of(master) as slave:
            slave.send(encode_slave_handshake(SlaveHandshakeFrame(2)))
            slave.read_frame()
            slave.socket.settimeout(0.1)
            with pytest.raises(TimeoutError):
                slave.read_frame()
            slave.socket.settimeout(_WAIT_S)
            slave.send(encode_report(end))
            for _ in range(3):
                assert slave.read_frame() == TransferFrame(end, 1, 0, end, b"")


def test_a_java_slave_is_told_what_is_confirmed_soon_after(tmp_path: Path) -> None:
    """By a heartbeat of RocketMQ, byte for byte, long before one is due; and once."""
    with Member(tmp_path, 1) as master, Member(tmp_path, 3) as ours:
        end, confirmed = master.append(3), [0]
        master.service.lead(FIRST_EPOCH, 1, lambda: confirmed[0])
        ours.follow(master.address)
        with Peer.of(master) as slave:
            slave.send(encode_slave_handshake(SlaveHandshakeFrame(2)))
            slave.read_frame()
            slave.send(encode_report(0))
            assert slave.read_body().confirm_offset == 0
            slave.send(encode_report(end))
            ours.wait_end(end)
            for offset in (60, end):
                confirmed[0], told_at = offset, time.monotonic()
                assert slave.read(36) == struct.pack(">iiqiqq", 2, 0, end, 1, 0, offset)
                assert time.monotonic() - told_at < 2
                wait_until(lambda offset=offset: ours.confirmed[-1] == offset)  # type: ignore[misc]
            slave.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                slave.read(1)
        assert [*dict.fromkeys(ours.confirmed)] == [0, 60, end]


# Hostile slaves


NO_SLAVE = {
    "a report before the handshake": (encode_report(0) + bytes(4), "bad_handshake"),
    "the protocol without controller": (struct.pack(">qq", 0, 0), "bad_handshake"),
    "state 4": (struct.pack(">ihhq", 4, 0, 0, 2), "bad_handshake"),
    "a flag of 2": (struct.pack(">ihhq", 1, 2, 0, 2), "bad_handshake"),
    "broker id 0": (struct.pack(">ihhq", 1, 0, 0, 0), "bad_handshake"),
    "http": (b"GET / HTTP/1.1\r\n\r\n", "bad_handshake"),
}


@pytest.mark.parametrize("what", NO_SLAVE)
def test_no_slave_is_closed_at_the_door(tmp_path: Path, what: str) -> None:
    data, reason = NO_SLAVE[what]
    with Member(tmp_path, 1) as master:
        master.append(3)
        master.lead()
        with Peer.of(master) as peer:
            peer.send(data)
            peer.wait_closed()
            master.wait_refused(reason)
            assert peer.heard == b""
            assert master.connected == {}


FALSE_REPORTS = {
    "beyond the log": ([1_000_000], "beyond_max"),
    "negative": ([-1], "bad_frame"),
    "beyond what was sent": ([0, 1_000_000], "beyond_sent"),
    "falling": ([100, 99], "decreasing"),
}


@pytest.mark.parametrize("what", FALSE_REPORTS)
def test_a_false_report_ends_the_connection(tmp_path: Path, what: str) -> None:
    reports, reason = FALSE_REPORTS[what]
    with Member(tmp_path, 1) as master:
        master.append(3)
        master.lead()
        with Peer.of(master) as peer:
            peer.send(encode_slave_handshake(SlaveHandshakeFrame(2)))
            peer.read_frame()
            for report in reports:
                peer.send(struct.pack(">iq", 2, report))
            peer.wait_closed()
            master.wait_refused(reason)
            wait_until(lambda: master.gone)
            assert master.acked() < 1_000_000


@pytest.mark.parametrize(
    ("name", "shaken_as", "version"), [("g", 2, 2), ("g", 3, 2), ("g", 2, 1), ("another", 2, 2)]
)
def test_who_shakes_hands_is_who_follows_and_seals_its_reports(
    tmp_path: Path, name: str, shaken_as: int, version: int
) -> None:
    """A member with the secret cannot speak for another one, nor without seals; nor can a broker of
    another group that has the same secret."""
    is_good = (name, shaken_as, version) == ("g", 2, 2)
    with Member(tmp_path, 1, secret=SECRET) as master:
        master.append(3)
        master.lead()
        with Peer.of(master) as peer:
            own = OwnIdentity(name, shaken_as, "127.0.0.1:2", SECRET)
            shaking = SlaveHandshake(own, version=version)
            peer.send(shaking.hello)
            while shaking.missing:
                peer.send(shaking.receive(peer.read(shaking.missing)))
            frame = encode_slave_handshake(SlaveHandshakeFrame(2))
            peer.send(SlaveBytes(shaking.report_key).pack(frame))
            if is_good:
                peer.read(12 + 20 + 12)
                peer.send(SlaveBytes(bytes(32)).pack(encode_report(0)))
                peer.wait_closed()
                master.wait_refused("bad_checksum")
                assert master.reported == []
            else:
                peer.wait_closed()
                master.wait_refused("bad_handshake")
                assert master.connected == {}


def test_a_position_that_was_deleted_ends_the_connection(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as master:
        master.begins_at(2 * FILE_SIZE)
        master.append(3)
        master.lead(epoch_list([(1, 2 * FILE_SIZE)]))
        with Peer.of(master) as peer:
            peer.send(encode_slave_handshake(SlaveHandshakeFrame(2)))
            peer.read_frame()
            peer.send(encode_report(FILE_SIZE))
            peer.wait_closed()
            master.wait_refused("below_min")


def test_silent_peers_are_dropped(tmp_path: Path) -> None:
    """Before the handshake, in the middle of it, and before the first report."""
    handshake = encode_slave_handshake(SlaveHandshakeFrame(2))
    with Member(tmp_path, 1, ha_housekeeping_interval=50) as master:
        master.lead()
        for data in (b"", handshake[:9], handshake):
            with Peer.of(master) as peer:
                peer.send(data)
                peer.wait_closed()
        master.wait_refused("silent", 3)


def test_a_slave_that_does_not_read_is_dropped_when_its_bytes_are_deleted(tmp_path: Path) -> None:
    with Member(tmp_path, 1, files=0, file_size=1 << 20) as master:
        end = master.append(150, size=100_000)
        master.lead()
        with Peer.of(master, receive_buffer=4_096) as peer:
            peer.send(encode_slave_handshake(SlaveHandshakeFrame(2)))
            peer.read_frame()
            peer.send(encode_report(0))
            peer.read_body()
            progress = master.service.registry.live()[0]
            wait_until(lambda: progress.transferred > 1 << 20)
            before = -1
            while before != progress.transferred:  # Until the socket takes no more.
                before = progress.transferred
                threading.Event().wait(0.1)
            assert progress.transferred < end
            assert progress.transferred != progress.sent_offset, "in the middle of a frame"
            for path in master.directory.iterdir():
                path.unlink()
            master.counters[MIN_PHY_OFFSET] = end - end % (1 << 20)
            master.wait_refused("below_min")


def test_connections_are_counted(tmp_path: Path) -> None:
    with Member(tmp_path, 1, ha_max_connections=2) as master:
        master.lead()
        peers = [Peer.of(master) for _ in range(3)]
        for peer in peers:
            peer.send(encode_slave_handshake(SlaveHandshakeFrame(2)))
        master.wait_refused("too_many_connections")
        wait_until(lambda: len(master.connected) == 2)
        for peer in peers:
            peer.close()
        wait_until(lambda: len(master.gone) == 2)


# Hostile masters


GREETING = struct.pack(">iiqi", 1, 12, 100, 1) + struct.pack(">iq", 1, 0)
FALSE_MASTERS = {
    "another protocol": (struct.pack(">qi", 0, 0) * 4, "bad_frame"),
    "a list of a million epochs": (struct.pack(">iiqi", 1, 12_000_000, 0, 1), "bad_frame"),
    "two answers": (GREETING * 2, "bad_frame"),
    "a frame before the report": (
        GREETING + struct.pack(">iiqiqq", 2, 1, 0, 1, 0, 0) + b"x",
        "bad_frame",
    ),
}


@pytest.mark.parametrize("what", FALSE_MASTERS)
def test_a_false_master_is_left(tmp_path: Path, port: socket.socket, what: str) -> None:
    data, reason = FALSE_MASTERS[what]
    with Member(tmp_path, 2) as slave:
        slave.decides = "nothing"
        slave.follow(name_of(port))
        with Peer(port.accept()[0]) as link:
            link.send(data)
            link.wait_closed()
            slave.wait_refused(reason)
            assert slave.end == 0


FALSE_FRAMES = {
    "too large": (struct.pack(">iiqiqq", 2, MAX_TRANSFER_BODY + 1, 0, 1, 0, 0), "bad_frame"),
    "over the end of a file": (
        struct.pack(">iiqiqq", 2, FILE_SIZE + 1, 0, 1, 0, 0) + bytes(FILE_SIZE + 1),
        "bad_frame",
    ),
    "a gap": (struct.pack(">iiqiqq", 2, 1, 300, 1, 0, 0) + b"x", "offset_mismatch"),
    "no record": (struct.pack(">iiqiqq", 2, 300, 100, 1, 0, 0) + bytes(300), "bad_record"),
}


@pytest.mark.parametrize("what", FALSE_FRAMES)
def test_a_false_frame_ends_the_link(tmp_path: Path, port: socket.socket, what: str) -> None:
    data, reason = FALSE_FRAMES[what]
    with Member(tmp_path, 2) as slave:
        end = slave.append(1)
        good = slave.bytes_of(0, end)
        # Whatever is said of 100 is said of the log's end.
        data = data.replace(struct.pack(">q", 100), struct.pack(">q", end), 1)
        if what == "over the end of a file":
            data = data[:8] + struct.pack(">q", end) + data[16:]
        slave.follow(name_of(port))
        with Peer(port.accept()[0]) as link:
            link.read(16)
            link.send(GREETING)
            assert link.read_report() == end
            link.send(data)
            link.wait_closed()
            slave.wait_refused(reason)
        assert slave.end == end
        slave.service.stop()
        assert slave.bytes_of(0, 2 * FILE_SIZE) == good + bytes(2 * FILE_SIZE - end)


def test_a_silent_master_is_left(tmp_path: Path, port: socket.socket) -> None:
    with Member(tmp_path, 2, ha_housekeeping_interval=50) as slave:
        slave.follow(name_of(port))
        for answer in (b"", GREETING):
            with Peer(port.accept()[0]) as link:
                link.send(answer)
                link.wait_closed()
        slave.wait_refused("silent", 2)


def test_a_records_rest_may_come_much_later(tmp_path: Path, port: socket.socket) -> None:
    with Member(tmp_path, 2) as slave, Member(tmp_path, 1) as master:
        end = master.append(2)
        first = master.log.records[1][0]
        data = master.bytes_of(0, end)
        slave.follow(name_of(port))
        with Peer(port.accept()[0]) as link:
            link.read(16)
            link.send(GREETING)
            assert link.read_report() == 0
            for at in range(end):
                frame = TransferFrame(at, 1, 0, end, b"")
                link.send(encode_transfer_header(frame, 1) + data[at : at + 1])
                if at == end - 2:
                    assert link.read_report() == first
                    assert slave.end == first
            assert link.read_report() == end
        assert slave.bytes_of(0, end) == data
        assert slave.hellos[0][1] == FIRST_EPOCH


def test_what_is_confirmed_before_the_logs_were_compared_is_told_again(
    tmp_path: Path, port: socket.socket
) -> None:
    """A Java master's heartbeats begin with its handshake; the member believes no confirm offset
    before both logs were compared. Of an idle master it never heard another one."""
    with Member(tmp_path, 2) as slave:
        slave.decides = "nothing"
        end = slave.append(1)
        heartbeat = struct.pack(">iiqiqq", 2, 0, end, 1, 0, end)
        slave.follow(name_of(port))
        with Peer(port.accept()[0]) as link:
            link.read(16)
            link.send(GREETING + heartbeat)
            wait_until(lambda: slave.hellos != [] and slave.confirmed == [end])
            slave.service.transfer()
            assert link.read_report() == end
            link.send(heartbeat)
            wait_until(lambda: slave.confirmed == [end, end])


@pytest.mark.parametrize("key", [None, bytes(32)])
def test_a_report_is_no_first_message(key: bytes | None) -> None:
    """Nobody who has not said who he is acknowledges anything."""
    data = SlaveBytes(key).pack(encode_report(0))
    whole = data + SlaveBytes(key).pack(encode_slave_handshake(SlaveHandshakeFrame(2)))
    for message in (data, data + bytes(4), whole):
        with pytest.raises(HandshakeError):
            FirstHandshake(key).take(message)

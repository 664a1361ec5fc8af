"""HAClient and MasterLink against a master that is played by hand: loopback sockets, a real page,
real files."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ha.frame import FRAME_HEADER, MAX_FRAME_BODY, REPORT
from ha.ha_client_info import HAClientState
from ha.inspection import Verdict
from ha.last_error import SeenError
from ha.master_link import MasterLink
from ha.selector_factory import EVENT_READ, EVENT_WRITE
from ha.transport import make_tls_context
from ipc.clock import SystemClock
from store.control_slots import (
    APPEND_END,
    DISPATCHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    RUNNING_FLAGS,
    SYNC_FLUSH_WANTED,
)
from store.errors import StoreError
from store.mapped_file import create_allocated, file_name
from store.replica_log import ReplicaLog
from store.running_flags import RunningFlag
from tests.ha.master_world import Certificates
from tests.ha.slave_world import SlaveWorld, connect
from tests.support.deadline import wait_until
from tests.support.plain_log import PlainLog
from tests.support.scripted_master import ScriptedLink, ScriptedMaster

GOLDEN = Path(__file__).parents[1] / "golden"
SIZE = 4096


@pytest.fixture
def master() -> Iterator[ScriptedMaster]:
    with ScriptedMaster() as master:
        yield master


@pytest.fixture
def world(tmp_path: Path, master: ScriptedMaster) -> Iterator[SlaveWorld]:
    world = SlaveWorld(tmp_path, master)
    yield world
    world.stop()


def records(directory: Path, count: int, start: int = 0, size: int = 60) -> tuple[bytes, list[int]]:
    """A master's log from `start` on, and where its records end."""
    log = PlainLog(directory / "master", start=start)
    for number in range(count):
        log.append(bytes([number % 251]) * size)
    data = b"".join(log.path(at).read_bytes() for at in range(start - start % SIZE, log.end, SIZE))
    return data[start % SIZE :][: log.end - start], [at + len(raw) for at, raw in log.records]


def frames(data: bytes, start: int, largest: int) -> bytes:
    """`data` as frames that do not cross a file."""
    found, at = b"", 0
    while at < len(data):
        size = min(largest, len(data) - at, SIZE - (start + at) % SIZE)
        found += FRAME_HEADER.pack(start + at, size) + data[at : at + size]
        at += size
    return found


# -- receiving ---------------------------------------------------------------------------------


def test_the_first_report_comes_at_once_and_every_frame_is_reported(
    world: SlaveWorld, master: ScriptedMaster
) -> None:
    link = connect(world, master)
    end = 0
    for body in (b"a", b"b" * 300, b"c" * 2000):
        link.frame(end, body)
        end += len(body)
        assert link.read_report() == end
        assert world.end == end
    assert world.bytes_of(0, end) == b"a" + b"b" * 300 + b"c" * 2000
    wait_until(lambda: world.rings == 3)
    assert world.counters[APPEND_END] == end


def test_frames_split_byte_by_byte(world: SlaveWorld, master: ScriptedMaster) -> None:
    link = connect(world, master)
    link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = frames(b"0123456789" * 30, 0, 100) + FRAME_HEADER.pack(300, 0)
    for at in range(len(stream)):
        link.send(stream[at : at + 1])
    assert set(link.reports_until(300)) <= {100, 200, 300}
    assert world.bytes_of(0, 301) == b"0123456789" * 30 + b"\0"


def test_nothing_of_a_cut_frame_is_published(world: SlaveWorld, master: ScriptedMaster) -> None:
    link = connect(world, master)
    link.send(FRAME_HEADER.pack(0, 1000) + b"x" * 999)
    wait_until(lambda: world.bytes_of(998, 999) == b"x")
    assert world.end == 0
    assert world.counters[APPEND_END] == 1000
    link.send(b"x")
    assert link.read_report() == 1000


def test_reports_of_frames_that_came_together_are_one(
    world: SlaveWorld, master: ScriptedMaster
) -> None:
    link = connect(world, master)
    link.send(frames(b"r" * 4000, 0, 100))
    assert len(link.reports_until(4000)) < 40


@pytest.mark.parametrize("largest", [1, 700, SIZE])
def test_files_roll_and_the_rest_behind_a_blank_comes_verbatim(
    world: SlaveWorld, master: ScriptedMaster, tmp_path: Path, largest: int
) -> None:
    log = PlainLog(tmp_path / "master")
    while log.end < 3 * SIZE:
        log.append(b"body" * 30)
    data = bytearray(b"".join(log.path(at).read_bytes() for at in (0, SIZE, 2 * SIZE)))
    data[SIZE - 30 : SIZE] = bytes(range(1, 31))  # what lies behind the blank's head
    link = connect(world, master)
    link.send(frames(bytes(data), 0, largest))
    link.reports_until(3 * SIZE)
    assert world.bytes_of(0, 3 * SIZE) == data


def test_big_frames_of_all_sizes(tmp_path: Path, master: ScriptedMaster) -> None:
    """Larger than the buffer, than the socket's buffers, and the largest of all."""
    world = SlaveWorld(tmp_path, master, file_size=32 << 20, files=1)
    link = connect(world, master)
    rng = random.Random(5)
    data, stream = b"", b""
    for size in (65_523, 65_524, 65_536, 1 << 20, 3, MAX_FRAME_BODY, 65_537, 1, 131_072):
        body = rng.randbytes(size)
        stream += FRAME_HEADER.pack(len(data), size) + body
        data += body
    sender = threading.Thread(target=link.send, args=(stream,))
    sender.start()
    link.reports_until(len(data))
    sender.join()
    assert world.bytes_of(0, len(data)) == data
    assert world.info.received == len(data)
    wait_until(lambda: world.info.bytes_per_second > 0)
    world.stop()


def test_a_stream_cut_anywhere_gives_the_same_log(tmp_path: Path, master: ScriptedMaster) -> None:
    rng = random.Random(7)
    data = rng.randbytes(6 * SIZE)
    stream, at = b"", 0
    while at < len(data):
        size = min(rng.choice((1, 13, 400, SIZE)), SIZE - at % SIZE)
        stream += FRAME_HEADER.pack(at, size) + data[at : at + size]
        stream += FRAME_HEADER.pack(at + size, 0) * rng.randrange(3)
        at += size
    world = SlaveWorld(tmp_path, master)
    link = connect(world, master)
    while stream:
        cut = rng.randrange(1, 3000)
        link.send(stream[:cut])
        stream = stream[cut:]
    link.reports_until(len(data))
    assert world.bytes_of(0, len(data)) == data
    world.stop()


# -- golden ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "slave", "first", "level"),
    [
        ("ha-005", "slave", 0, "received"),
        ("ha-005", "slave", 0, "validated"),
        ("ha-104", "slave2", 16_384, "received"),
        ("ha-104", "slave2", 16_384, "validated"),
    ],
)
def test_a_java_masters_stream_gives_the_java_slaves_log(
    tmp_path: Path, master: ScriptedMaster, name: str, slave: str, first: int, level: str
) -> None:
    golden = GOLDEN / "wire-json" / "ha"
    stream = (golden / f"{name}.s2c.bin").read_bytes()
    reports = json.loads((golden / f"{name}.json").read_text())["slaveReports"]
    world = SlaveWorld(tmp_path, master, file_size=16_384, files=0, ha_ack_level=level)
    link = connect(world, master)
    for at in range(0, len(stream), 1000):
        link.send(stream[at : at + 1000])
    if first == 0:
        world.wait_end(16_384)
        world.allocate(16_384)
    assert set(link.reports_until(reports[-1])) <= {0, *reports}
    assert world.begun == [first]
    for path in sorted((GOLDEN / "store-G" / slave / "commitlog").iterdir()):
        expected = path.read_bytes()
        start = int(path.name)
        assert world.bytes_of(start, start + 16_384) == expected, path.name
    world.stop()


# -- each way a link ends ----------------------------------------------------------------------


def begin_badly(link: ScriptedLink, kind: str) -> None:
    bodies = {
        "gap": FRAME_HEADER.pack(200, 10) + b"x" * 10,
        "repeated": FRAME_HEADER.pack(0, 10) + b"x" * 10,
        "heartbeat elsewhere": FRAME_HEADER.pack(99, 0),
        "negative": FRAME_HEADER.pack(100, -1),
        "too large": FRAME_HEADER.pack(100, MAX_FRAME_BODY + 1),
        "crossing": FRAME_HEADER.pack(100, SIZE - 99),
    }
    link.frame(0, b"g" * 100)
    assert link.read_report() == 100
    link.send(bodies[kind])


@pytest.mark.fault(22)
@pytest.mark.parametrize(
    ("kind", "reason", "text"),
    [
        ("gap", "offset_mismatch", "for offset 200 received, our log continues at 100"),
        ("repeated", "offset_mismatch", "for offset 0 received, our log continues at 100"),
        ("heartbeat elsewhere", "offset_mismatch", "for offset 99 received"),
        ("negative", "bad_frame", "a frame of -1 bytes"),
        ("too large", "bad_frame", f"a frame of {MAX_FRAME_BODY + 1} bytes"),
        ("crossing", "bad_frame", "mappedFileSizeCommitLog is 4096 here"),
    ],
)
def test_a_wrong_frame_ends_the_link(
    world: SlaveWorld,
    master: ScriptedMaster,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    reason: str,
    text: str,
) -> None:
    link = connect(world, master)
    begin_badly(link, kind)
    link.wait_closed()
    again = master.accept()
    assert again.read_report() == 100
    assert world.refusals() == {reason: 1}
    assert text in world.error_text
    assert f"{master.address}: {reason}" in caplog.text
    again.frame(100, b"h")
    assert again.read_report() == 101
    assert world.bytes_of(0, 102) == b"g" * 100 + b"h\0"


def test_a_master_that_closes_is_asked_again_from_where_it_ended(
    world: SlaveWorld, master: ScriptedMaster
) -> None:
    link = connect(world, master)
    link.send(frames(b"a" * 500, 0, 100) + FRAME_HEADER.pack(500, 1000) + b"part of a frame")
    link.reports_until(500)
    wait_until(lambda: world.bytes_of(500, 501) == b"p")
    link.close()
    again = master.accept()
    assert again.read_report() == 500
    assert world.info.received == 500, "whole frames"
    assert world.bytes_of(500, SIZE) == bytes(SIZE - 500)
    assert world.refusals() == {"network": 1}
    again.frame(500, b"b" * 10)
    assert again.read_report() == 510
    assert world.info.received == 510, "over both links"
    assert world.bytes_of(490, 511) == b"a" * 10 + b"b" * 10 + b"\0"


def test_a_master_that_closes_without_a_byte_is_explained(
    world: SlaveWorld, master: ScriptedMaster
) -> None:
    connect(world, master).close()
    wait_until(lambda: "haTrustedAddresses" in world.error_text)


def test_nobody_listens(tmp_path: Path) -> None:
    gone = ScriptedMaster()
    gone.close()
    world = SlaveWorld(tmp_path, gone).start()
    wait_until(lambda: world.refusals().get("network", 0) >= 2)
    assert "refused" in world.error_text
    world.stop()


def test_a_silent_master_is_left(tmp_path: Path, master: ScriptedMaster) -> None:
    world = SlaveWorld(tmp_path, master, ha_housekeeping_interval=150)
    link = connect(world, master)
    link.wait_closed()
    wait_until(lambda: world.refusals().get("silent") == 1)
    assert "haHousekeepingInterval" in world.error_text
    world.stop()


def test_heartbeats_keep_the_link_and_are_answered(tmp_path: Path, master: ScriptedMaster) -> None:
    world = SlaveWorld(
        tmp_path, master, ha_housekeeping_interval=400, ha_send_heartbeat_interval=40
    )
    link = connect(world, master)
    link.frame(0, b"x" * 77)
    for _ in range(25):
        assert link.read_report() == 77
        link.frame(77)
    assert world.refusals() == {}
    assert world.info.last_write_ms > 0
    world.stop()


# -- where the log begins ----------------------------------------------------------------------


@pytest.fixture
def empty(tmp_path: Path, master: ScriptedMaster) -> Iterator[SlaveWorld]:
    world = SlaveWorld(tmp_path, master, files=0)
    yield world
    world.stop()


def test_an_empty_slave_begins_where_the_master_does(
    empty: SlaveWorld, master: ScriptedMaster
) -> None:
    start = 5 * SIZE
    empty.say(Verdict.START_AT, start_offset=start, master_min=start, master_max=9 * SIZE)
    link = connect(empty, master, start)
    assert empty.begun == [start]
    assert empty.counters[MIN_PHY_OFFSET] == empty.end == start
    link.frame(start, b"first")
    assert link.read_report() == start + 5
    assert empty.bytes_of(start, start + 5) == b"first"
    assert empty.info.received == 5


def test_the_whole_history_from_0_is_asked_for_with_1(
    empty: SlaveWorld, master: ScriptedMaster
) -> None:
    """A Java master that is told 0 sends its newest file only; byte 0 of a log is always 0."""
    empty.say(Verdict.START_AT, start_offset=0, master_max=9 * SIZE)
    link = connect(empty, master, 1)
    assert (empty.end, empty.counters[MIN_PHY_OFFSET]) == (1, 0)
    link.frame(1, b"\0\0\xcc")
    assert link.read_report() == 4
    assert empty.bytes_of(0, 4) == b"\0\0\0\xcc"


def test_the_byte_of_our_own_is_a_part_of_the_first_record(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    data, ends = records(tmp_path, 3)
    world = SlaveWorld(tmp_path, master, files=0, ha_ack_level="validated")
    world.say(Verdict.START_AT, start_offset=0, master_max=9 * SIZE)
    link = connect(world, master, 1)
    link.frame(1, data[1 : ends[0] + 5])
    assert link.read_report() == ends[0]
    link.close()
    again = master.accept()
    assert again.read_report() == ends[0]
    again.frame(ends[0], data[ends[0] :])
    assert again.reports_until(ends[2])
    assert world.bytes_of(0, ends[2]) == data
    world.stop()


def test_a_log_of_the_one_byte_goes_on(tmp_path: Path, master: ScriptedMaster) -> None:
    """Process ha died behind its byte: the inspection calls that log empty, too."""
    data, ends = records(tmp_path, 3)
    world = SlaveWorld(tmp_path, master, ha_ack_level="validated")
    world.counters[MAX_PHY_OFFSET] = world.counters[APPEND_END] = 1
    world.say(Verdict.START_AT, start_offset=0, master_max=9 * SIZE)
    link = connect(world, master, 1)
    assert world.begun == []
    link.frame(1, data[1:])
    assert link.reports_until(ends[2])
    world.stop()


def test_an_empty_master_is_told_0(empty: SlaveWorld, master: ScriptedMaster) -> None:
    empty.say(Verdict.START_AT, start_offset=0, master_max=0)
    link = connect(empty, master, 0)
    link.frame(0)
    link.frame(0, b"\0\0\0\xccfirst")
    assert link.reports_until(9)
    assert empty.begun == [0]


@pytest.mark.parametrize("start", [0, 7 * SIZE])
def test_without_an_inspection_the_first_frame_says_where(
    empty: SlaveWorld, master: ScriptedMaster, start: int
) -> None:
    link = connect(empty, master, 0)
    link.frame(start)
    link.frame(start, b"data")
    assert link.reports_until(start + 4)
    assert empty.begun == [start]
    assert empty.bytes_of(start, start + 4) == b"data"


def test_a_first_frame_that_fills_the_buffer_says_where(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    """More is there to be read, and nothing of it can be stored before the log has begun."""
    world = SlaveWorld(tmp_path, master, file_size=1 << 20, files=0)
    link = connect(world, master)
    link.send(frames_of(bytes(range(1, 251)) * 2_000, 3 << 20, 1 << 19))
    assert link.reports_until((3 << 20) + 500_000)
    assert world.begun == [3 << 20]
    world.stop()


def frames_of(data: bytes, start: int, largest: int) -> bytes:
    """`data` as frames, in a file that is large enough."""
    return b"".join(
        FRAME_HEADER.pack(start + at, len(data[at : at + largest])) + data[at : at + largest]
        for at in range(0, len(data), largest)
    )


def test_a_first_frame_within_a_file_is_of_another_file_size(
    empty: SlaveWorld, master: ScriptedMaster
) -> None:
    link = connect(empty, master, 0)
    link.frame(SIZE + 1000, b"data")
    link.wait_closed()
    wait_until(lambda: "mappedFileSizeCommitLog" in empty.error_text)
    assert empty.refusals()["bad_frame"] == 1
    assert (empty.begun, empty.end) == ([], 0)


def test_an_empty_log_that_has_begun_may_begin_again(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    world = SlaveWorld(tmp_path, master, start=6 * SIZE, files=1)
    world.say(Verdict.START_AT, start_offset=2 * SIZE, master_max=9 * SIZE)
    link = connect(world, master, 2 * SIZE)
    link.frame(2 * SIZE, b"x")
    assert link.read_report() == 2 * SIZE + 1
    world.stop()


def test_a_store_that_cannot_begin_is_asked_again(
    empty: SlaveWorld, master: ScriptedMaster
) -> None:
    empty.say(Verdict.START_AT, start_offset=SIZE, master_max=9 * SIZE)
    empty.begin_fails = StoreError("no answer from process store")
    empty.start()
    wait_until(lambda: "no answer from process store" in empty.error_text)
    empty.begin_fails = None
    assert _first_report(master) == SIZE


def test_a_first_file_that_is_never_made_is_said(
    empty: SlaveWorld, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ha.replica_log_start._FIRST_FILE_MS", 50)
    empty.say(Verdict.START_AT, start_offset=SIZE, master_max=9 * SIZE)
    empty.allocates = False
    empty.start()
    wait_until(lambda: "is the disk full" in empty.error_text)
    empty.allocates = True
    assert _first_report(master) == SIZE


def _first_report(master: ScriptedMaster) -> int:
    """Of the first link that gets so far: a master is met before the log starts where it says."""
    while True:
        with contextlib.suppress(ConnectionError):
            return master.accept().read_report()


# -- haAckLevel --------------------------------------------------------------------------------


def test_validated_publishes_and_reports_whole_records_only(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    data, ends = records(tmp_path, 60)
    world = SlaveWorld(tmp_path, master, ha_ack_level="validated")
    link = connect(world, master)
    good = {0, *ends, *range(0, len(data), SIZE)}
    at = 0
    while at < len(data):
        size = min(97, len(data) - at, SIZE - at % SIZE)
        link.frame(at, data[at : at + size])
        at += size
    assert set(link.reports_until(ends[-1])) <= good
    assert world.end == ends[-1]
    assert world.bytes_of(0, ends[-1]) == data
    world.stop()


def test_a_frame_may_end_within_a_record(tmp_path: Path, master: ScriptedMaster) -> None:
    data, ends = records(tmp_path, 4)
    world = SlaveWorld(tmp_path, master, ha_ack_level="validated")
    link = connect(world, master)
    link.frame(0, data[: ends[1] + 10])
    assert link.read_report() == ends[1]
    assert world.end == ends[1]
    assert world.counters[APPEND_END] == ends[1] + 10
    link.frame(ends[1] + 10)
    link.frame(ends[1] + 10, data[ends[1] + 10 :])
    assert link.read_report() == ends[3]
    world.stop()


@pytest.mark.fault(22)
@pytest.mark.parametrize("level", ["validated", "flushed"])
def test_bytes_that_are_no_records_are_not_published(
    tmp_path: Path, master: ScriptedMaster, level: str
) -> None:
    data, ends = records(tmp_path, 10)
    bad = bytearray(data)
    bad[ends[4] + 100] ^= 1  # the body of the sixth
    world = SlaveWorld(tmp_path, master, ha_ack_level=level)
    link = connect(world, master)
    link.frame(0, bytes(bad))
    link.wait_closed()
    wait_until(lambda: world.refusals() == {"bad_record": 1})
    world.wait_end(ends[4])
    assert "bodyCRC" in world.error_text
    world.flush()
    again = master.accept()
    assert again.read_report() == ends[4]
    assert world.bytes_of(ends[4], SIZE) == bytes(SIZE - ends[4])
    assert world.counters[APPEND_END] == ends[4]
    again.frame(ends[4], data[ends[4] :])
    world.wait_end(ends[9])
    world.stop()


LEVELS = ("received", "validated", "flushed")


@pytest.mark.fault(22)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("at", "reason", "what"),
    [
        (3, "bad_record", "totalSize"),
        (4, "bad_record", "magic"),
        (22, "unexpected_record", "queueOffset says 1099511627781"),
        (70, "unexpected_record", "storeHost"),
    ],
)
def test_a_flipped_bit_is_asked_for_again_at_once(
    tmp_path: Path, master: ScriptedMaster, level: str, at: int, reason: str, what: str
) -> None:
    """A Java master's frames have no checksum."""
    data, ends = records(tmp_path, 10)
    bad = bytearray(data)
    bad[ends[4] + at] ^= 1
    slow = {"ha_reconnect_interval": 60_000}
    world = SlaveWorld(tmp_path, master, ha_ack_level=level, **slow)
    link = connect(world, master)
    link.frame(0, bytes(bad))
    link.wait_closed()
    world.wait_end(ends[4])
    world.flush()
    again = master.accept()
    assert world.refusals() == {reason: 1}
    assert what in world.error_text
    again.frame(ends[4], data[ends[4] :])
    world.wait_end(ends[9])
    assert world.bytes_of(0, ends[9]) == data
    world.stop()


@pytest.mark.fault(22)
def test_a_size_that_is_too_large_is_seen_without_so_many_bytes(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    """Otherwise all sends would time out until the master has sent as much."""
    data, ends = records(tmp_path, 3)
    bad = bytearray(data)
    bad[ends[1] + 2] ^= 4  # 1,024 bytes more
    world = SlaveWorld(tmp_path, master, judges_records=True)
    link = connect(world, master)
    link.frame(0, bytes(bad))
    link.wait_closed()
    wait_until(lambda: "not the sum of its parts" in world.error_text)
    assert world.end == ends[1]
    world.stop()


def test_what_a_master_sends_twice_is_its_own(tmp_path: Path, master: ScriptedMaster) -> None:
    """A record is kept as it is; bytes that are none are refused, and the text names ways out."""
    data, ends = records(tmp_path, 10)
    odd = bytearray(data)
    odd[ends[3] + 22] ^= 1  # a queue offset
    odd[ends[6] + 4] ^= 1  # a magic
    world = SlaveWorld(tmp_path, master, judges_records=True)
    link = connect(world, master)
    at = 0
    for refused_at in (ends[3], ends[4], ends[6], ends[6], ends[6]):
        link.frame(at, bytes(odd[at:]))
        link.wait_closed()
        world.wait_end(refused_at)
        link = master.accept()
        at = link.read_report()
        assert at == refused_at
    wait_until(lambda: "the same bytes came twice" in world.error_text)
    assert world.refusals()["bad_record"] == 3
    assert world.bytes_of(0, ends[6]) == odd[: ends[6]]
    link.frame(at, data[at:])
    world.wait_end(ends[9])
    world.stop()


def test_a_queue_that_the_slave_has_goes_on_where_it_ended(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    """After a restart of process ha the consume queues say what comes next."""
    data, ends = records(tmp_path, 10)
    world = SlaveWorld(tmp_path, master, judges_records=True)
    with_log(world, 0, ends[4])
    world.counters[DISPATCHED_OFFSET] = ends[4]
    world.queues["T", 0] = (0, 6)
    link = connect(world, master, ends[4])
    link.frame(ends[4], data[ends[4] :])
    link.wait_closed()
    wait_until(lambda: "queueOffset says 5, queue T/0 continues at 6" in world.error_text)
    world.queues["T", 0] = (0, 5)
    link = master.accept()
    link.frame(ends[4], data[ends[4] :])
    world.wait_end(ends[9])
    world.stop()


def test_flushed_reports_what_is_on_disk(tmp_path: Path, master: ScriptedMaster) -> None:
    data, ends = records(tmp_path, 6)
    world = SlaveWorld(tmp_path, master, ha_ack_level="flushed", ha_send_heartbeat_interval=30)
    link = connect(world, master)
    link.frame(0, data[: ends[2]])
    world.wait_end(ends[2])
    assert world.counters[SYNC_FLUSH_WANTED] == ends[2]
    assert [link.read_report() for _ in range(3)] == [0, 0, 0]  # heartbeats
    link.frame(ends[2], data[ends[2] : ends[4]])
    world.wait_end(ends[4])
    world.flush()
    assert set(link.reports_until(ends[4])) <= {0, ends[4]}
    world.stop()


def test_flushed_says_where_to_go_on_only_when_that_is_on_disk(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    """The first report is an acknowledgement, too."""
    data, ends = records(tmp_path, 3)
    world = SlaveWorld(tmp_path, master, ha_ack_level="flushed")
    link = connect(world, master)
    link.frame(0, data)
    world.wait_end(ends[2])
    link.close()
    again = master.accept()
    again.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        again.read_report()
    assert world.counters[SYNC_FLUSH_WANTED] == ends[2]
    world.flush()
    again.socket.settimeout(5)
    assert again.read_report() == ends[2]
    world.stop()


# -- the next file is not there ----------------------------------------------------------------


def test_frames_wait_for_the_next_file(tmp_path: Path, master: ScriptedMaster) -> None:
    data = random.Random(1).randbytes(3 * SIZE)
    world = SlaveWorld(tmp_path, master, files=1, ha_send_heartbeat_interval=30)
    link = connect(world, master)
    link.send(frames(data, 0, 700))
    link.reports_until(SIZE)
    assert [link.read_report() for _ in range(4)] == [SIZE] * 4  # heartbeats go on
    world.allocate(SIZE)
    world.bell().ring()
    link.reports_until(2 * SIZE)
    world.allocate(2 * SIZE)
    link.reports_until(3 * SIZE)
    assert world.bytes_of(0, 3 * SIZE) == data
    assert world.refusals() == {}
    world.stop()


def test_a_full_disk_is_said_and_nothing_is_lost(
    tmp_path: Path,
    master: ScriptedMaster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("ha.frame_room._LONG_MS", 50)
    data = random.Random(1).randbytes(2 * SIZE)
    world = SlaveWorld(tmp_path, master, files=1, ha_housekeeping_interval=200)
    world.counters[RUNNING_FLAGS] = RunningFlag.DISK_FULL
    link = connect(world, master)
    link.send(frames(data, 0, 700))
    wait_until(lambda: "the disk is full" in world.error_text)
    assert not seen_error(world).is_over
    threading.Event().wait(0.3)  # longer than a silent master is borne
    assert world.info.state is HAClientState.TRANSFER
    assert caplog.text.count("replication stalled") == 1
    world.allocate(SIZE)
    world.allocate(2 * SIZE)
    link.reports_until(2 * SIZE)
    assert world.bytes_of(0, 2 * SIZE) == data
    wait_until(lambda: "replication resumed\n" in caplog.text)
    assert seen_error(world).is_over
    world.stop()


def seen_error(world: SlaveWorld) -> SeenError:
    """What HA status shows."""
    error = world.info.last_error
    assert error is not None
    return error


def test_an_error_is_over_once_the_link_is_there_again(
    world: SlaveWorld, master: ScriptedMaster
) -> None:
    connect(world, master).close()
    wait_until(lambda: world.info.last_error is not None)
    first = seen_error(world)
    assert ("the master closed the connection" in first.text, first.is_over) == (True, False)
    assert abs(first.at_ms - time.time() * 1000) < 60_000
    assert master.accept().read_report() == 0
    assert world.info.state is HAClientState.TRANSFER
    assert seen_error(world) == replace(first, is_over=True)


# -- finding the master ------------------------------------------------------------------------


def test_an_address_that_is_not_known_yet_is_waited_for(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    world = SlaveWorld(tmp_path, None)
    world.say(Verdict.WAIT, text="no master is registered")
    world.start()
    world.wait_state(HAClientState.WAITING_FOR_ADDRESS)
    wait_until(lambda: world.error_text == "no master is registered")
    world.say(Verdict.GO, ha_address=master.address)
    assert master.accept().read_report() == 0
    world.wait_state(HAClientState.TRANSFER)
    assert world.info.master_address == master.address
    assert world.connected == [(world.info.local_address, master.address)]
    world.stop()


def test_a_changed_address_closes_the_open_link(world: SlaveWorld, master: ScriptedMaster) -> None:
    link = connect(world, master)
    link.frame(0, b"abc")
    assert link.read_report() == 3
    world.client.update_master_address(master.address)
    world.client.update_master_address(None)
    link.frame(3, b"d")
    assert link.read_report() == 4
    with ScriptedMaster() as other:
        world.say(Verdict.GO, ha_address=other.address)
        world.client.update_master_address(other.address)
        link.wait_closed()
        assert other.accept().read_report() == 4
        assert world.refusals() == {}


def test_a_silent_master_is_asked_again_soon(tmp_path: Path, master: ScriptedMaster) -> None:
    """It may be restarted; haReconnectInterval is for one that answers, and does not serve."""
    world = SlaveWorld(tmp_path, None, ha_reconnect_interval=60_000)
    world.say(Verdict.WAIT, text="no answer", ha_address=master.address)
    world.start()
    wait_until(lambda: world.info.last_error is not None)
    assert world.info.last_error is not None
    assert world.info.last_error.text == "no answer"
    world.say(Verdict.GO, ha_address=master.address)
    assert master.accept().read_report() == 0
    world.stop()


def test_a_master_that_was_followed_is_looked_for_soon(
    tmp_path: Path, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SlaveWorld(tmp_path, master, ha_reconnect_interval=60_000)
    real, ahead_ms = SystemClock.monotonic_ms, 0
    monkeypatch.setattr(SystemClock, "monotonic_ms", lambda clock: real(clock) + ahead_ms)
    world.start()
    link = master.accept()
    assert link.read_report() == 0
    world.wait_state(HAClientState.TRANSFER)
    ahead_ms = 60_000
    link.close()
    assert master.accept().read_report() == 0
    world.stop()


@pytest.mark.parametrize("what", ["address", "stop"])
def test_a_rest_ends_at_once(tmp_path: Path, master: ScriptedMaster, what: str) -> None:
    world = SlaveWorld(tmp_path, None, ha_reconnect_interval=60_000)
    world.inspection = StoreError("remoting is away")
    world.start()
    world.wait_state(HAClientState.RESTING)
    assert "remoting is away" in world.error_text
    if what == "address":
        world.inspection = SlaveWorld(tmp_path, master).inspection
        world.client.update_master_address(master.address)
        assert master.accept().read_report() == 0
    world.stop()


def test_the_stop_does_not_wait_for_an_inspection(tmp_path: Path, master: ScriptedMaster) -> None:
    world = SlaveWorld(tmp_path, master)
    answered = threading.Event()
    world.before_inspection = lambda: answered.wait(20)
    world.start()
    wait_until(lambda: world.inspected)
    assert world.client.shutdown(1_000)
    answered.set()


def test_the_stop_does_not_wait_for_a_connection(tmp_path: Path, master: ScriptedMaster) -> None:
    world = SlaveWorld(tmp_path, master)
    backlog = socket.create_server(("127.0.0.1", 0), backlog=0)
    address = backlog.getsockname()
    queued = []
    for _ in range(3):  # full: further connections get no answer
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(address)
        queued.append(sock)
    world.say(Verdict.GO, ha_address=f"127.0.0.1:{address[1]}")
    world.start()
    world.wait_state(HAClientState.CONNECTING)
    world.stop()
    for sock in (*queued, backlog):
        sock.close()


def test_a_wrong_address_is_named(tmp_path: Path, master: ScriptedMaster) -> None:
    world = SlaveWorld(tmp_path, master)
    world.say(Verdict.GO, ha_address="somewhere")
    world.start()
    wait_until(lambda: "'somewhere' is not an address" in world.error_text)
    world.stop()


# -- logs that do not belong together ----------------------------------------------------------


def with_log(world: SlaveWorld, start: int, end: int) -> None:
    world.counters[MIN_PHY_OFFSET] = start
    world.counters[MAX_PHY_OFFSET] = world.counters[APPEND_END] = end


@pytest.mark.parametrize(("verdict", "reason"), [("ahead", "ahead"), ("diverged", "diverged")])
def test_a_log_that_is_no_part_of_the_masters_is_refused(
    world: SlaveWorld,
    master: ScriptedMaster,
    caplog: pytest.LogCaptureFixture,
    verdict: str,
    reason: str,
) -> None:
    with_log(world, 0, 900)
    world.say(Verdict(verdict), master_max=700, common_offset=600)
    world.start()
    world.wait_state(HAClientState.REFUSED)
    wait_until(lambda: world.refusals().get(reason, 0) >= 2)
    text = world.error_text
    for part in ("ends at 900", "the master's at 700", "ends at 600", "haTruncateDiverged"):
        assert part in text
    assert f"{master.address}: {reason}" in caplog.text
    assert (world.resyncs, world.end) == ([], 900)
    assert world.connected == []
    world.say(Verdict.GO)
    assert master.accept().read_report() == 900


@pytest.mark.parametrize(
    ("common", "request_made"), [(600, ("truncate", 600)), (100, ("start_over", 50))]
)
def test_with_the_operators_word_it_goes_back(
    tmp_path: Path, master: ScriptedMaster, common: int, request_made: tuple[str, int]
) -> None:
    world = SlaveWorld(tmp_path, master, ha_truncate_diverged=True, ha_reconnect_interval=60_000)
    with_log(world, 100, 900)
    world.say(Verdict.DIVERGED, master_min=50, master_max=700, common_offset=common)
    world.start()
    wait_until(lambda: world.resyncs)
    assert [request[:2] for request in world.resyncs] == [request_made]
    assert "ends at 900" in world.resyncs[0][2]
    world.stop()


@pytest.mark.parametrize(("end", "verdict"), [(900, Verdict.BELOW_MIN), (1, Verdict.START_AT)])
def test_what_is_gone_on_the_master_makes_us_start_over(
    tmp_path: Path, master: ScriptedMaster, end: int, verdict: Verdict
) -> None:
    world = SlaveWorld(tmp_path, master, ha_reconnect_interval=60_000)
    with_log(world, 0, end)
    world.say(verdict, master_min=2 * SIZE, start_offset=2 * SIZE, master_max=3 * SIZE)
    world.start()
    wait_until(lambda: world.resyncs)
    assert world.resyncs[0][:2] == ("start_over", 2 * SIZE)
    assert world.refusals() == {"behind_master_min": 1}
    assert f"starts at {2 * SIZE}" in world.error_text
    world.stop()


def test_a_new_start_that_cannot_be_prepared_is_asked_for_again(
    tmp_path: Path, master: ScriptedMaster, caplog: pytest.LogCaptureFixture
) -> None:
    world = SlaveWorld(tmp_path, master)
    with_log(world, 0, 900)
    world.resync_fails = StoreError("/store: No space left on device")
    world.say(Verdict.BELOW_MIN, master_min=2 * SIZE, master_max=3 * SIZE)
    world.start()
    wait_until(lambda: len(world.resyncs) >= 3)
    assert "No space left" in world.error_text
    assert caplog.text.count("cannot be prepared") == 1
    world.stop()


# -- what the environment does -----------------------------------------------------------------


def test_a_file_that_is_gone_ends_the_link_and_not_the_process(
    world: SlaveWorld, master: ScriptedMaster
) -> None:
    path = world.directory / file_name(0)
    path.unlink()
    link = connect(world, master)
    link.frame(0, b"data")
    link.wait_closed()
    wait_until(lambda: f"{path}: cannot be opened" in world.error_text)
    again = master.accept()
    assert again.read_report() == 0
    create_allocated(path, SIZE)
    again.frame(0, b"data")
    assert again.read_report() == 4
    assert world.bytes_of(0, 5) == b"data\0"


def test_bytes_that_cannot_be_zeroed_are_zeroed_before_the_next_link(
    world: SlaveWorld, master: ScriptedMaster
) -> None:
    link = connect(world, master)
    link.send(FRAME_HEADER.pack(0, 1000) + b"x" * 500)
    wait_until(lambda: world.bytes_of(499, 500) == b"x")
    path, away = world.directory / file_name(0), world.directory / "away"
    path.rename(away)
    link.close()
    wait_until(lambda: "replication stalled" in world.error_text)
    assert file_name(0) in world.error_text
    away.rename(path)
    assert master.accept().read_report() == 0
    assert world.bytes_of(0, SIZE) == bytes(SIZE)


def test_a_stop_without_the_file_is_a_stop(
    world: SlaveWorld, master: ScriptedMaster, caplog: pytest.LogCaptureFixture
) -> None:
    link = connect(world, master)
    link.send(FRAME_HEADER.pack(0, 1000) + b"x" * 500)
    wait_until(lambda: world.bytes_of(499, 500) == b"x")
    (world.directory / file_name(0)).unlink()
    assert world.client.shutdown(1_000)
    assert "unpublished bytes remain" in caplog.text
    assert world.failures == []


def test_whole_frames_that_came_with_a_bad_one_are_kept(
    world: SlaveWorld, master: ScriptedMaster
) -> None:
    """Over a file's end, in one recv: nothing else would remain of them but bytes to zero."""
    link = connect(world, master)
    good = frames(b"g" * (SIZE + 1000), 0, SIZE)
    link.send(good + FRAME_HEADER.pack(99, 5) + b"xxxxx")
    link.wait_closed()
    assert master.accept().read_report() == SIZE + 1000
    assert world.bytes_of(0, 2 * SIZE) == (b"g" * (SIZE + 1000)).ljust(2 * SIZE, b"\0")
    assert world.counters[APPEND_END] == SIZE + 1000


def test_no_thread_for_a_question_is_said(
    world: SlaveWorld, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    world.start()
    master.accept().close()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        wait_until(lambda: "can't start new thread" in world.error_text)
    assert master.accept().read_report() == 0


@pytest.mark.parametrize("host", ["a..b", "x" * 70])
def test_a_name_that_is_none_is_said(world: SlaveWorld, host: str) -> None:
    world.say(Verdict.GO, ha_address=f"{host}:10912")
    world.start()
    wait_until(lambda: f"'{host}' cannot be resolved" in world.error_text)


def test_a_selector_that_takes_nothing_is_said(
    world: SlaveWorld, master: ScriptedMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = world.client._selector._selector.register

    def full(fd: int, events: int) -> object:
        if events == EVENT_READ:
            raise OSError(28, "No space left on device")
        return register(fd, events)

    with monkeypatch.context() as patch:
        patch.setattr(world.client._selector._selector, "register", full)
        world.start()
        wait_until(lambda: "No space left" in world.error_text)
    with ScriptedMaster() as other:
        world.say(Verdict.GO, ha_address=other.address)
        link = other.accept()
        assert link.read_report() == 0
        link.frame(0, b"data")
        assert link.read_report() == 4


def test_the_stop_does_not_wait_for_a_store_that_hangs(
    empty: SlaveWorld, master: ScriptedMaster
) -> None:
    empty.say(Verdict.START_AT, start_offset=SIZE, master_max=9 * SIZE)
    answered = threading.Event()
    empty.before_begin = lambda: answered.wait(20)
    empty.start()
    wait_until(lambda: empty.begun)
    assert empty.client.shutdown(1_000)
    answered.set()


# -- kill and resume ---------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["received", "validated"])
def test_a_killed_writer_leaves_no_unpublished_byte(
    tmp_path: Path, master: ScriptedMaster, level: str
) -> None:
    """The next process has the page and the files: it goes on where readers were told."""
    data, ends = records(tmp_path, 10)
    world = SlaveWorld(tmp_path, master, ha_ack_level=level)
    # As a process leaves them that was killed while it filled a large frame.
    start = world.file_size - 100
    with_log(world, 0, ends[4])
    world.counters[APPEND_END] = start
    path = world.directory / ("0" * 20)
    path.write_bytes((data[: ends[4]] + b"\xaa" * (start - ends[4])).ljust(SIZE, b"\0"))
    link = connect(world, master, ends[4])
    assert world.bytes_of(0, SIZE) == data[: ends[4]].ljust(SIZE, b"\0")
    link.frame(ends[4], data[ends[4] :])
    link.reports_until(ends[9])
    assert world.bytes_of(0, ends[9]) == data
    world.stop()


def test_an_orderly_stop_in_the_middle_of_a_frame(tmp_path: Path, master: ScriptedMaster) -> None:
    world = SlaveWorld(tmp_path, master)
    link = connect(world, master)
    link.frame(0, b"whole")
    assert link.read_report() == 5
    link.send(FRAME_HEADER.pack(5, 1000) + b"z" * 500)
    wait_until(lambda: world.bytes_of(504, 505) == b"z")
    assert world.client.shutdown(1_000)
    assert world.bytes_of(0, SIZE) == b"whole".ljust(SIZE, b"\0")
    assert world.counters[APPEND_END] == world.end == 5
    world.restart()
    assert master.accept().read_report() == 5
    world.stop()


def test_nothing_is_appended_after_the_stop(tmp_path: Path, master: ScriptedMaster) -> None:
    """The next to stop is process `store`, whose checkpoint would say less than the log holds."""
    world = SlaveWorld(tmp_path, master)
    link = connect(world, master)
    end = 0
    for _ in range(20):
        link.frame(end, b"before")
        end += 6
    wait_until(lambda: world.end > 0)
    assert world.client.shutdown(1_000)
    ended = world.end
    assert not world.client.is_alive, "nobody else writes"
    assert world.counters[APPEND_END] == ended
    stopped = world.bytes_of(0, SIZE)
    with contextlib.suppress(OSError):
        for at in range(end, end + 600, 6):
            link.frame(at, b"behind")
    world.client.update_master_address(master.address)
    world.client.interrupt()
    assert (world.end, world.counters[APPEND_END]) == (ended, ended)
    assert world.bytes_of(0, SIZE) == stopped == (b"before" * 20)[:ended].ljust(SIZE, b"\0")


# -- TLS ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def context(certificates: Certificates, *, server_side: bool, **changes: Any) -> ssl.SSLContext:
    made = make_tls_context(certificates.config(**changes), server_side=server_side)
    assert made is not None
    return made


def test_frames_come_over_tls(
    tmp_path: Path, master: ScriptedMaster, certificates: Certificates
) -> None:
    tls = context(certificates, server_side=False)
    world = SlaveWorld(tmp_path, master, file_size=8 << 20, files=1, tls=tls).start()
    link = master.accept(context(certificates, server_side=True))
    assert link.read_report() == 0
    data = random.Random(2).randbytes(3 << 20)
    stream, at = b"", 0
    for size in (5, 300, 16_384, 100_000, len(data) - 116_689):
        stream += FRAME_HEADER.pack(at, size) + data[at : at + size]
        at += size
    assert at == len(data)
    link.send(stream)
    link.reports_until(len(data))
    assert world.bytes_of(0, len(data)) == data
    world.stop()


def test_a_master_without_tls_is_named(
    tmp_path: Path, master: ScriptedMaster, certificates: Certificates
) -> None:
    world = SlaveWorld(tmp_path, master, tls=context(certificates, server_side=False)).start()
    master.accept().frame(0, b"plain")
    wait_until(lambda: world.refusals().get("tls") == 1)
    assert "haTlsEnable" in world.error_text
    world.stop()


def test_a_master_with_a_strangers_certificate_gets_no_report(
    tmp_path: Path, master: ScriptedMaster, certificates: Certificates
) -> None:
    world = SlaveWorld(tmp_path, master, tls=context(certificates, server_side=False)).start()
    stranger = context(
        certificates,
        server_side=True,
        ha_tls_certificate=certificates.stranger,
        ha_tls_private_key=certificates.stranger_key,
    )
    with pytest.raises(ssl.SSLError):
        master.accept(stranger)
    wait_until(lambda: world.refusals().get("tls") == 1)
    assert "certificate" in world.error_text.lower()
    world.stop()


# -- reports that the socket does not take -----------------------------------------------------


class FullTransport:
    """A transport whose socket takes `room` bytes of reports; frames come from `incoming`."""

    has_pending = False
    is_shut = False
    remote, local = "127.0.0.1:1", "127.0.0.1:2"

    def __init__(self) -> None:
        self.room = 0
        self.taken = b""
        self.incoming: list[bytes] = []

    def fileno(self) -> int:
        return -1

    def recv_into(self, view: memoryview) -> int | None:
        if not self.incoming:
            return None
        data = self.incoming.pop(0)
        view[: len(data)] = data
        return len(data)

    def send(self, parts: Any) -> int:
        (data,) = parts
        count = min(self.room, len(data))
        self.taken += data[:count]
        self.room -= count
        return count


def test_a_report_that_is_not_taken_never_blocks_and_the_newest_follows(
    tmp_path: Path, master: ScriptedMaster
) -> None:
    world = SlaveWorld(tmp_path, master)
    log = ReplicaLog(world.directory, SIZE, world.page, lambda: None)
    log.open()
    transport: Any = FullTransport()
    link = MasterLink(transport, log, world.config, SystemClock(), world.new_validators())
    transport.room = 3
    link.receive()
    assert link.interest == EVENT_READ | EVENT_WRITE
    for at in range(50):
        transport.incoming.append(FRAME_HEADER.pack(at, 1) + b"x")
        link.receive()
    link.receive()
    assert world.end == 50
    assert len(transport.taken) == 3
    assert link.wait_ms() > 0
    transport.room = 100
    link.receive()
    link.receive()
    assert transport.taken == REPORT.pack(0) + REPORT.pack(50)
    assert link.interest == EVENT_READ

"""Both ends of an HA connection in controller mode, against what 5.3.3 brokers said on theirs."""

from __future__ import annotations

import struct

import pytest

from ha.autoswitch_frame import (
    AutoSwitchFrameError,
    FramesOfMaster,
    FramesOfSlave,
    MasterHandshakeFrame,
    ReportFrame,
    SlaveHandshakeFrame,
    TransferFrame,
    encode_master_handshake,
    encode_report,
    encode_slave_handshake,
    encode_transfer_header,
)
from ha.autoswitch_master import CONFIRM_DELAY_MS, AutoSwitchMaster, LogBounds
from ha.autoswitch_slave import AutoSwitchSlave
from ha.epochs import EpochList, EpochOrderError, epoch_list, frame_label
from tests.remoting.golden_frames import GOLDEN

STREAMS = ["24412-1", "24412-2", "24422-1", "24422-2", "24422-3", "newslave"]
INTERVAL_MS = 5_000
TWO_EPOCHS = epoch_list([(1, 0), (2, 693)])
OWN = SlaveHandshakeFrame(2)


def slave_said(name: str) -> bytes:
    return (GOLDEN / "controller-5.3.3" / f"ha-{name}.c2s.bin").read_bytes()


def master_said(name: str) -> bytes:
    return (GOLDEN / "controller-5.3.3" / f"ha-{name}.s2c.bin").read_bytes()


def new_master(file_size: int = 1 << 24, max_size: int = 32_768) -> AutoSwitchMaster:
    return AutoSwitchMaster(
        file_size=file_size, max_size=max_size, heartbeat_interval_ms=INTERVAL_MS
    )


@pytest.mark.parametrize("name", STREAMS)
def test_our_slave_says_to_a_java_master_what_a_java_slave_said(name: str) -> None:
    handshake, *reports = FramesOfSlave().receive(slave_said(name))
    assert isinstance(handshake, SlaveHandshakeFrame)
    ends = [report.max_offset for report in reports if isinstance(report, ReportFrame)]
    slave = AutoSwitchSlave(handshake, report_interval_ms=INTERVAL_MS)
    assert slave.hello() == slave_said(name)[:16]
    said, end = [], ends[0]
    for frame in slave.receive(master_said(name)):
        if isinstance(frame, MasterHandshakeFrame):
            said.append(slave.follow(end, 0))
        elif frame.body:
            end = frame.offset + len(frame.body)
            said.append(slave.due_report(end, 1))
    assert said == [encode_report(end) for end in dict.fromkeys(ends)]


@pytest.mark.parametrize("name", STREAMS)
def test_our_master_sends_a_java_slave_what_a_java_master_sent(name: str) -> None:
    handshake, first, *reports = FramesOfSlave().receive(slave_said(name))
    hello, *frames = FramesOfMaster().receive(master_said(name))
    assert isinstance(handshake, SlaveHandshakeFrame)
    assert isinstance(hello, MasterHandshakeFrame)
    assert isinstance(first, ReportFrame)
    master = new_master()
    log, now_ms = LogBounds(0, hello.max_offset, 0), 0
    assert [*master.receive(encode_slave_handshake(handshake), log)] == [handshake]
    greeting = master.greeting(hello.epochs, log)
    assert greeting == master_said(name)[: len(greeting)]
    assert [*master.receive(encode_report(first.max_offset), log)] == [first]
    position, count = first.max_offset, 0
    if position == TWO_EPOCHS.entries[1].start_offset:
        reminder = TransferFrame(position, *TWO_EPOCHS.entries[0], 0, b"")
        assert master.next_transfer(hello.epochs, log, now_ms) == (reminder, 0), "Java's has none"
    for theirs in frames:
        assert isinstance(theirs, TransferFrame)
        if not theirs.body and (theirs.offset < 0 or not count):
            continue  # Before it had looked at its log.
        end = max(theirs.confirm_offset, theirs.offset + len(theirs.body))
        log, now_ms = LogBounds(0, end, theirs.confirm_offset), now_ms + INTERVAL_MS
        ours = master.next_transfer(hello.epochs, log, now_ms)
        assert ours is not None
        assert ours.size == len(theirs.body)
        label = frame_label(hello.epochs, position)
        javas = (theirs.epoch, theirs.epoch_start_offset)
        border = position + ours.size in (javas[1], label.start_offset)
        assert javas == label or border, "P24: at the border of two epochs only"
        expected = theirs._replace(epoch=label.epoch, epoch_start_offset=label.start_offset)
        assert encode_transfer_header(ours.frame, ours.size) == encode_transfer_header(
            expected, len(theirs.body)
        )
        position, count = position + ours.size, count + 1
    said = b"".join(
        encode_report(one.max_offset) for one in reports if isinstance(one, ReportFrame)
    )
    assert [*master.receive(said, log)] == reports
    assert master.ack_offset == reports[-1][0]


def test_slaves_are_greeted_with_the_epochs_before_a_log() -> None:
    """For Java's, which may know one of those only (P2); ours do not hear of them."""
    master, log = new_master(), LogBounds(0, 700, 0)
    assert [*master.receive(encode_slave_handshake(OWN), log)] == [OWN]
    greeting = master.greeting(epoch_list([(3, 0), (5, 693)]), log)
    entries = [*struct.iter_unpack(">iq", greeting[20:])]
    assert entries == [(1, 0), (2, 0), (3, 0), (5, 693)]
    hello = MasterHandshakeFrame(700, 5, epoch_list([(3, 0), (5, 693)]))
    assert [*FramesOfMaster().receive(greeting)] == [hello]


def test_the_streams_hold_frames_of_both_kinds() -> None:
    """24412-2 has heartbeats only, which the test above would else skip one and all."""
    longest = {name: max(_body_sizes(name)) for name in STREAMS}
    assert longest.pop("24412-2") == 0
    assert min(longest.values()) >= 231


def _body_sizes(name: str) -> list[int]:
    frames = FramesOfMaster().receive(master_said(name))
    return [len(frame.body) for frame in frames if isinstance(frame, TransferFrame)]


# The slave's judgement


def following(end: int) -> AutoSwitchSlave:
    slave = AutoSwitchSlave(OWN, report_interval_ms=INTERVAL_MS)
    hello = encode_master_handshake(MasterHandshakeFrame(1_386, 2, TWO_EPOCHS))
    assert len([*slave.receive(hello)]) == 1
    assert slave.follow(end, 0) == encode_report(end)
    return slave


def transfer(offset: int, body: bytes) -> bytes:
    return encode_transfer_header(TransferFrame(offset, 1, 0, 0, body), len(body)) + body


def test_an_empty_slave_begins_where_its_master_does() -> None:
    slave = following(0)
    frames = [*slave.receive(transfer(4_096, b"abc") + transfer(4_099, b"d"))]
    assert [frame[0] for frame in frames] == [4_096, 4_099]


@pytest.mark.parametrize("offset", [0, 99, 101, 693])
def test_a_frame_that_does_not_come_next(offset: int) -> None:
    with pytest.raises(AutoSwitchFrameError, match=f"offset {offset}, where 100 comes next"):
        [*following(100).receive(transfer(offset, b"x"))]


def test_frames_that_cannot_come_now() -> None:
    fresh = AutoSwitchSlave(OWN, report_interval_ms=INTERVAL_MS)
    with pytest.raises(AutoSwitchFrameError, match="nothing is known"):
        fresh.follow(0, 0)
    with pytest.raises(AutoSwitchFrameError, match="before the master's handshake"):
        [*fresh.receive(transfer(0, b""))]
    hello = encode_master_handshake(MasterHandshakeFrame(0, -1, EpochList()))
    with pytest.raises(AutoSwitchFrameError, match="a second handshake"):
        [*following(0).receive(hello)]
    waiting = AutoSwitchSlave(OWN, report_interval_ms=INTERVAL_MS)
    with pytest.raises(AutoSwitchFrameError, match="before this slave has reported"):
        [*waiting.receive(hello + transfer(0, b"x"))]


def test_reports_are_due_when_the_log_grows_or_after_silence() -> None:
    slave = following(100)
    assert slave.due_report(100, INTERVAL_MS - 1) == b""
    assert slave.due_report(100, INTERVAL_MS) == encode_report(100)
    assert slave.due_report(100, 2 * INTERVAL_MS - 1) == b""
    assert slave.due_report(101, 2 * INTERVAL_MS - 1) == encode_report(101)
    waiting = AutoSwitchSlave(OWN, report_interval_ms=INTERVAL_MS)
    assert waiting.due_report(100, INTERVAL_MS) == b"", "not before the logs are compared"


# The master's judgement


def served(report: int, log: LogBounds, slave: SlaveHandshakeFrame = OWN) -> AutoSwitchMaster:
    master = new_master(file_size=1_000, max_size=400)
    assert len([*master.receive(encode_slave_handshake(slave) + encode_report(report), log)]) == 2
    return master


def sizes(master: AutoSwitchMaster, epochs: EpochList, log: LogBounds) -> list[tuple[int, int]]:
    """Offset and size of all that is sent until nothing is due."""
    found = []
    while (due := master.next_transfer(epochs, log, 0)) is not None:
        found.append((due.frame.offset, due.size))
    return found


def test_frames_end_with_files_epochs_and_the_largest_size() -> None:
    log = LogBounds(0, 1_386, 0)
    master = served(0, log)
    assert sizes(master, TWO_EPOCHS, log) == [
        *((0, 400), (400, 293), (693, 307)),
        (1_000, 386),
    ]
    grown = LogBounds(0, 1_387, 0)
    assert sizes(master, TWO_EPOCHS, grown) == [(1_386, 1)]


def test_where_an_empty_slave_begins() -> None:
    log = LogBounds(1_000, 2_500, 0)
    epochs = epoch_list([(1, 0)])
    assert sizes(served(0, log), epochs, log)[0] == (1_000, 400)
    newest = SlaveHandshakeFrame(2, sync_from_last_file=True)
    assert sizes(served(0, log, newest), epochs, log)[0] == (2_000, 400)


def test_bytes_that_are_deleted_are_not_sent() -> None:
    log, epochs = LogBounds(1_000, 2_500, 0), epoch_list([(1, 0)])
    with pytest.raises(AutoSwitchFrameError, match="from there to 1000 are deleted"):
        served(999, log)
    master = served(1_000, log)
    with pytest.raises(AutoSwitchFrameError, match="from there to 2000 are deleted"):
        master.next_transfer(epochs, LogBounds(2_000, 2_500, 0), 0)


def test_a_log_without_epochs_is_not_sent() -> None:
    log = LogBounds(0, 100, 0)
    with pytest.raises(EpochOrderError):
        served(0, log).next_transfer(EpochList(), log, 0)


def test_heartbeats_come_after_silence_only() -> None:
    log = LogBounds(0, 100, 90)
    master = served(100, log)
    epochs = epoch_list([(3, 0)])
    assert master.next_transfer(epochs, log, 7) is None
    begin_ms = 7 + CONFIRM_DELAY_MS
    assert master.next_transfer(epochs, log, begin_ms) is not None
    assert master.next_transfer(epochs, log, begin_ms + INTERVAL_MS - 1) is None
    due = master.next_transfer(epochs, log, begin_ms + INTERVAL_MS)
    assert due == (TransferFrame(100, 3, 0, 90, b""), 0)
    assert master.next_transfer(epochs, log, begin_ms + INTERVAL_MS + 1) is None


def test_what_is_confirmed_is_told_soon_and_once() -> None:
    epochs, log = epoch_list([(3, 0)]), LogBounds(0, 100, 0)
    master = served(0, log)
    assert master.confirm_wait_ms(0) is None
    assert master.next_transfer(epochs, log, 0) == (TransferFrame(0, 3, 0, 0, b""), 100)
    assert master.next_transfer(epochs, log, 1_000) is None  # Nobody has acknowledged it.
    assert master.confirm_wait_ms(5) == CONFIRM_DELAY_MS - 5
    assert master.confirm_wait_ms(1_000) == CONFIRM_DELAY_MS
    for now_ms, confirmed in ((1_001, 60), (2_000, 100)):
        log = LogBounds(0, 100, confirmed)
        told = TransferFrame(100, 3, 0, confirmed, b"")
        assert master.next_transfer(epochs, log, now_ms) == (told, 0)
        assert master.next_transfer(epochs, log, now_ms + INTERVAL_MS - 1) is None
    assert master.confirm_wait_ms(3_000) is None


def test_frames_of_steady_traffic_carry_what_is_confirmed_and_none_is_added() -> None:
    """One message after the other, each confirmed before the next one comes."""
    epochs, master = epoch_list([(3, 0)]), served(0, LogBounds(0, 0, 0))
    sent = []
    for now_ms in range(1_000):
        number, rest_ms = divmod(now_ms, CONFIRM_DELAY_MS)
        log = LogBounds(0, 10 * (number + 1), 10 * (number + (rest_ms > 0)))
        due = master.next_transfer(epochs, log, now_ms)
        if due is not None:
            sent.append((due.frame.offset, due.size, due.frame.confirm_offset))
    assert sent == [(10 * number, 10, 10 * number) for number in range(1_000 // CONFIRM_DELAY_MS)]


def test_no_heartbeat_comes_before_the_first_report() -> None:
    """A Java slave with data closes the connection: "master pushed offset not equal the max phy
    offset in slave, SLAVE: 70753 MASTER: -1". It reports after as long as a heartbeat takes."""
    log = LogBounds(0, 100, 90)
    master, epochs = new_master(), epoch_list([(3, 0)])
    assert [*master.receive(encode_slave_handshake(OWN), log)] == [OWN]
    for now_ms in (0, INTERVAL_MS, 10 * INTERVAL_MS):
        assert master.next_transfer(epochs, log, now_ms) is None
    assert [*master.receive(encode_report(100), log)] != []
    assert master.next_transfer(epochs, log, 10 * INTERVAL_MS) is None
    due = master.next_transfer(epochs, log, 10 * INTERVAL_MS + CONFIRM_DELAY_MS)
    assert due is not None
    assert due.frame.offset == 100


def test_nothing_is_sent_to_a_stranger() -> None:
    log = LogBounds(0, 100, 0)
    assert new_master().next_transfer(TWO_EPOCHS, log, INTERVAL_MS) is None


def test_a_repeated_handshake_gets_one_answer() -> None:
    log = LogBounds(0, 100, 0)
    master = new_master()
    hello = encode_slave_handshake(OWN)
    assert [*master.receive(hello + hello, log)] == [OWN]
    with pytest.raises(AutoSwitchFrameError, match="broker 3 on the connection of broker 2"):
        [*master.receive(encode_slave_handshake(SlaveHandshakeFrame(3)), log)]


def test_reports_that_cannot_be() -> None:
    log = LogBounds(0, 100, 0)
    with pytest.raises(AutoSwitchFrameError, match="before the handshake"):
        [*new_master().receive(encode_report(0), log)]
    with pytest.raises(AutoSwitchFrameError, match="a report of 101, beyond 100"):
        served(101, log)
    master = served(50, log)
    with pytest.raises(AutoSwitchFrameError, match="a report of 51, beyond 50"):
        [*master.receive(encode_report(51), log)]
    hello_again = encode_slave_handshake(OWN)
    with pytest.raises(AutoSwitchFrameError, match="a second handshake"):
        [*served(50, log).receive(hello_again, log)]

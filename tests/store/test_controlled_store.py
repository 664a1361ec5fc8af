"""DefaultMessageStore in controller mode: its role and its confirm offset change while it is open.

The truth is the list of records that the test has written: what a consumer may see are those that
end at or before the confirm offset.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ha.control_slots import MEMBER_ORDER, MemberRole, order_after, role_of
from ha.epochs import recovered_bounds
from store.commit_log import CommitLog, own_record
from store.commit_log_reader import CommitLogReader
from store.control_slots import (
    ALLOCATED_END,
    CONFIRM_OFFSET,
    DISPATCHED_OFFSET,
    FENCE_COUNT,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    NO_BOUND,
    QUEUES_REBUILDING,
    STORE_STATE,
    SYNC_FLUSH_WANTED,
    StoreState,
)
from store.controller_mode import ControlledRole, FixedRole, RoleNow
from store.errors import StoreError
from store.message_codec import encode_host
from store.resync_request import ResyncAction, ResyncRequest, write_request
from store.topic_queue_table import rebuild_topic_queue_table
from tests.store.test_slave_message_store import SIZE, MasterBytes, SlaveLife, check
from tests.support.deadline import wait_until


class ControlledLife(SlaveLife):
    """One life of a member's broker, but for `remoting` and `ha`."""

    def role(self) -> RoleNow | None:
        if not self.is_controlled:
            return FixedRole(self.page, is_slave=False)
        counters = self.counters
        return ControlledRole(
            self.page,
            lambda: role_of(counters[MEMBER_ORDER]) is MemberRole.LEAD,
            recovered_bounds,
        )

    def __init__(self, root: Path, *, is_controlled: bool = True, **settings: Any) -> None:
        self.is_controlled = is_controlled
        super().__init__(root, **settings)

    def order(self, role: MemberRole) -> None:
        self.counters[MEMBER_ORDER] = order_after(self.counters[MEMBER_ORDER], role)
        self.bell().ring()

    def confirm(self, offset: int) -> None:
        """As process `ha` does."""
        self.counters[CONFIRM_OFFSET] = offset
        self.bell().ring()

    def seen(self, master: MasterBytes) -> int:
        """How many records of the queue consumers see; each unit names its record."""
        low, high = self.table.offsets("T", 0)
        assert low == 0
        data = self.units(high)
        starts = [0, *master.ends][:high]
        for number, (phy_offset, size, _tags) in enumerate(struct.iter_unpack(">qiq", data)):
            assert phy_offset + size == master.ends[number], number
            assert phy_offset >= starts[number]
        return high

    def units(self, count: int) -> bytes:
        directory = self.config.consume_queue_path / "T" / "0"
        data = b"".join(path.read_bytes() for path in sorted(directory.glob("*")))
        return data[: count * 20]

    @property
    def stored_confirm(self) -> int:
        """Byte 32 of the check point, as RocketMQ has it."""
        raw = self.config.checkpoint_path.read_bytes()
        return int.from_bytes(raw[32:40], "big")


def seen_by(master: MasterBytes, confirm_offset: int) -> int:
    """The model: how many records end at or before."""
    return sum(end <= confirm_offset for end in master.ends)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[ControlledLife]:
    life = ControlledLife(tmp_path / "store")
    life.start()
    yield life
    if not life.is_stopped:
        life.stop()


def again(life: SlaveLife, **settings: Any) -> ControlledLife:
    new = ControlledLife(life.config.root, **settings)
    new.start()
    return new


def kill(life: SlaveLife) -> None:
    """What a kill -9 of the whole broker leaves: the files as they are now."""
    root = life.config.root
    copy = root.with_name("killed")
    shutil.copytree(root, copy)
    life.stop()
    shutil.rmtree(root)
    copy.rename(root)


# -- dispatch -----------------------------------------------------------------------------------


def test_dispatch_follows_the_confirm_offset(life: ControlledLife) -> None:
    life.begin(0)
    life.order(MemberRole.FOLLOW)
    master = MasterBytes().add(250)
    life.receive(bytes(master.data))
    assert life.counters[DISPATCHED_OFFSET] == 0
    for confirm in (1, 5_000, 5_001, SIZE - 1, SIZE, SIZE + 1, master.end - 1, master.end):
        life.confirm(confirm)
        expected = seen_by(master, confirm)
        wait_until(lambda expected=expected: life.table.offsets("T", 0)[1] == expected)
        assert life.seen(master) == expected
        assert life.counters[FENCE_COUNT] == 0, "half a record that is not confirmed is no damage"
    life.stop()
    check(life)


def test_every_offset_shows_the_records_before_it(life: ControlledLife) -> None:
    life.begin(0)
    life.order(MemberRole.LEAD)
    master = MasterBytes().add(3)
    life.receive(bytes(master.data))
    for confirm in range(master.end + 1):
        life.confirm(confirm)
        expected = max([0, *(end for end in master.ends if end <= confirm)])
        life.wait_dispatched(expected)
    assert life.counters[FENCE_COUNT] == 0


def test_without_a_bound_all_is_dispatched(life: ControlledLife) -> None:
    life.begin(0)
    life.order(MemberRole.LEAD)
    life.confirm(NO_BOUND)
    master = MasterBytes().add(30)
    life.receive(bytes(master.data))
    life.wait_dispatched(master.end)
    life.stop()
    assert life.stored_confirm == master.end


def test_damage_is_fenced_though_the_bound_lies_within(life: ControlledLife) -> None:
    life.begin(0)
    life.order(MemberRole.LEAD)
    master = MasterBytes().add(10)
    data = bytearray(master.data)
    data[master.ends[3] + 4 : master.ends[3] + 8] = b"\0\0\0\0"
    life.receive(bytes(data))
    life.confirm(master.ends[3] + 20)
    wait_until(lambda: life.counters[FENCE_COUNT] == 1)
    assert life.table.offsets("T", 0)[1] <= 5
    life.confirm(NO_BOUND)
    life.wait_dispatched(master.end)
    assert life.table.offsets("T", 0)[1] == 10
    assert life.counters[FENCE_COUNT] == 1


# -- starts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("tail", [0, 1, 50])
def test_a_start_shows_what_was_confirmed_and_keeps_the_rest(
    life: ControlledLife, how: str, tail: int
) -> None:
    """P3 and P4. Stopped in order it does not scan."""
    life.begin(0)
    life.order(MemberRole.FOLLOW)
    master = MasterBytes().add(250)
    confirmed = 200
    life.receive(bytes(master.data))
    life.confirm(master.ends[confirmed - 1] + tail)
    life.wait_dispatched(master.ends[confirmed - 1])
    if how == "kill":
        wait_until(lambda: life.counters[FLUSHED_OFFSET] == master.end, 5)
        kill(life)
    else:
        life.stop()
        assert life.stored_confirm == master.ends[confirmed - 1] + tail
        assert not life.config.abort_path.exists(), "all is on disk and all is dispatched"
    new = again(life)
    assert new.end == master.end
    assert new.seen(master) == confirmed
    dispatched = master.ends[confirmed - 1]
    assert dispatched <= new.counters[CONFIRM_OFFSET] <= dispatched + tail
    assert new.counters[DISPATCHED_OFFSET] == dispatched
    new.order(MemberRole.LEAD)
    new.confirm(NO_BOUND)
    new.wait_dispatched(master.end)
    assert new.seen(master) == 250
    new.stop()
    check(new)


@pytest.mark.parametrize("states", [True, False])
def test_a_start_without_queues_shows_what_the_check_point_says(
    life: ControlledLife, *, states: bool
) -> None:
    """states: whether the last stop's are there, by which a thread fills the queues again."""
    life.begin(0)
    life.order(MemberRole.FOLLOW)
    master = MasterBytes().add(250)
    life.receive(bytes(master.data))
    life.confirm(master.ends[99] + 10)
    life.wait_dispatched(master.ends[99])
    life.stop()
    for path in (life.config.consume_queue_path, life.config.index_path):
        shutil.rmtree(path)
    if not states:
        life.config.queue_states_path.unlink()
    new = again(life)
    wait_until(lambda: not new.counters[QUEUES_REBUILDING])
    assert new.seen(master) == 100
    assert new.counters[CONFIRM_OFFSET] == master.ends[99] + 10
    new.stop()
    check(new)


@pytest.mark.parametrize("first", [True, False])
def test_into_controller_mode_and_out_of_it(tmp_path: Path, *, first: bool) -> None:
    """Without the mode everything is dispatched, and it stays so afterwards."""
    life = ControlledLife(tmp_path / "store", is_controlled=first)
    life.start()
    master = MasterBytes().add(50)
    if first:
        life.begin(0)
        life.order(MemberRole.FOLLOW)
        life.receive(bytes(master.data))
        life.confirm(master.ends[9])
        life.wait_dispatched(master.ends[9])
        life.stop()
        life = again(life, is_controlled=False)
    else:
        life.receive(bytes(master.data))
    life.wait_dispatched(master.end)
    life.stop()
    new = again(life)
    assert new.seen(master) == 50
    assert new.counters[CONFIRM_OFFSET] == master.end
    new.stop()
    check(new)


def test_a_confirm_offset_beyond_a_lost_end_is_forgotten_at_once(life: ControlledLife) -> None:
    """Else it would hold for the records that come in place of the lost ones."""
    life.begin(0)
    life.order(MemberRole.FOLLOW)
    master = MasterBytes().add(20)
    life.receive(bytes(master.data))
    life.confirm(master.end)
    life.wait_dispatched(master.end)
    life.stop()
    log = life.config.commit_log_path / f"{0:020}"
    data = bytearray(log.read_bytes())
    data[master.ends[9] :] = bytes(len(data) - master.ends[9])
    log.write_bytes(data)
    (life.config.root / "clean.exit").unlink(missing_ok=True)
    life.config.abort_path.touch()
    new = again(life)
    assert (new.end, new.counters[CONFIRM_OFFSET]) == (master.ends[9], master.ends[9])
    assert new.stored_confirm == master.ends[9]
    new.stop()


def test_a_new_leader_says_less_than_was_dispatched(life: ControlledLife) -> None:
    """Led without a bound, then bounded: what was read stays read, also in the check point."""
    life.begin(0)
    life.order(MemberRole.LEAD)
    life.confirm(NO_BOUND)
    master = MasterBytes().add(50)
    life.receive(bytes(master.data))
    life.wait_dispatched(master.end)
    life.order(MemberRole.FOLLOW)
    life.confirm(master.ends[9])
    life.stop()
    assert life.stored_confirm == master.end


def test_a_fence_behind_the_confirm_offset_takes_no_queue_offset(life: ControlledLife) -> None:
    """What stands before it in the log has its units to come."""
    life.begin(0)
    life.order(MemberRole.FOLLOW)
    master = MasterBytes().add(100)
    life.receive(bytes(master.data))
    life.confirm(master.end)
    life.wait_dispatched(master.end)
    life.stop()
    log = life.config.commit_log_path / f"{0:020}"
    data = bytearray(log.read_bytes())
    data[master.ends[50] + 100] ^= 0xFF
    log.write_bytes(data)
    for path in (life.config.consume_queue_path, life.config.index_path):
        shutil.rmtree(path)
    (life.config.root / "clean.exit").unlink()
    raw = bytearray(life.config.checkpoint_path.read_bytes())
    raw[32:40] = master.ends[19].to_bytes(8, "big")
    life.config.checkpoint_path.write_bytes(raw)
    new = again(life)
    assert new.counters[FENCE_COUNT] == 1
    assert new.table.offsets("T", 0) == (0, 20)
    new.confirm(NO_BOUND)
    new.wait_dispatched(master.end)
    assert new.table.offsets("T", 0) == (0, 100)
    sizes = [size for _, size, _ in struct.iter_unpack(">qiq", new.units(100))]
    assert [n for n, size in enumerate(sizes) if size != sizes[0]] == [51]
    new.stop()


def test_a_new_leader_counts_queue_offsets_to_the_end_of_the_log(life: ControlledLife) -> None:
    """P3: records behind the confirm offset have theirs already."""
    life.begin(0)
    life.order(MemberRole.FOLLOW)
    master = MasterBytes().add(120)
    life.receive(bytes(master.data))
    life.confirm(master.ends[79])
    life.wait_dispatched(master.ends[79])
    life.stop()
    new = again(life)
    new.order(MemberRole.LEAD)
    new.log.close()
    reader = CommitLogReader(new.config.commit_log_path, SIZE, new.page)
    log = CommitLog(new.config.commit_log_path, SIZE, new.page, new.clock, new.bell().ring)
    assert rebuild_topic_queue_table(log, new.page, new.table, reader) == 40
    log.open(encode_host("127.0.0.1", 10911))
    for _ in range(3):
        record = own_record(
            0, b"x", b"", now_ms=2_000, store_host=log.store_host, store_host_flag=0
        )
        log.append(log.topic("T"), (record,))
    log.commit()
    assert new.table.offsets("T", 0)[1] == 80
    new.confirm(NO_BOUND)
    wait_until(lambda: new.table.offsets("T", 0) == (0, 123))
    log.close()
    reader.close()
    new.log.open()
    new.stop()
    check(new)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_a_closed_log_lacks_is_fenced(life: ControlledLife, how: str) -> None:
    """By a master's rule, as whoever leads after this start could have others cut off theirs; after
    a kill it is torn, and comes again."""
    life.begin(0)
    life.order(MemberRole.LEAD)
    life.confirm(NO_BOUND)
    master = MasterBytes().add(50)
    life.receive(bytes(master.data))
    life.wait_dispatched(master.end)
    if how == "kill":
        wait_until(lambda: life.counters[FLUSHED_OFFSET] == master.end, 5)
        kill(life)
    else:
        life.stop()
    log = life.config.commit_log_path / f"{0:020}"
    data = bytearray(log.read_bytes())
    data[master.ends[-2] + 100] ^= 0xFF
    log.write_bytes(data)
    new = again(life)
    fenced = how == "stop"
    assert new.end == (master.end if fenced else master.ends[-2])
    assert new.counters[FENCE_COUNT] == fenced
    new.stop()


# -- the end of a follower's log ----------------------------------------------------------------


def test_half_a_record_at_the_end_is_kept_aside(life: ControlledLife) -> None:
    """Only whole records are published in controller mode: what is none is damage, perhaps."""
    life.begin(0)
    life.order(MemberRole.FOLLOW)
    master = MasterBytes().add(150)
    life.receive(bytes(master.data[:-30]))
    life.confirm(master.ends[9])
    life.wait_dispatched(master.ends[9])
    life.confirm(master.end)
    life.wait_dispatched(master.ends[-2])
    assert life.counters[FENCE_COUNT] == 0, "its rest may come"
    life.stop()
    assert life.config.abort_path.exists()
    new = again(life)
    assert new.end == master.ends[-2]
    assert new.seen(master) == 149
    (tail,) = life.config.root.glob("tail-*/commitlog/*")
    half = bytes(master.data[master.ends[-2] : -30])
    assert tail.read_bytes() == half.rstrip(b"\0")
    new.receive(bytes(master.data[master.ends[-2] :]))
    new.confirm(master.end)
    new.wait_dispatched(master.end)
    assert new.seen(master) == 150
    new.stop()
    check(new)


def test_the_log_begins_in_either_role(life: ControlledLife) -> None:
    """Without an order there is no file. A leader's log begins at once, a follower's where its
    master's does, also when this broker led before without a byte."""
    assert life.files() == []
    life.order(MemberRole.LEAD)
    wait_until(lambda: life.counters[ALLOCATED_END] > 0)
    with pytest.raises(StoreError, match="a master's"):
        life.store.log_start.start_at(SIZE, life.clock.monotonic_ms() + 1_000)
    life.order(MemberRole.FOLLOW)
    life.begin(5 * SIZE)
    master = MasterBytes(5 * SIZE).add(5)
    life.receive(bytes(master.data))
    life.confirm(master.end)
    life.wait_dispatched(master.end)
    assert life.counters[MIN_PHY_OFFSET] == 5 * SIZE


def test_a_flush_that_is_waited_for_comes_at_once(tmp_path: Path) -> None:
    """Each change of the role waits for one; ASYNC_FLUSH has ten seconds."""
    life = ControlledLife(
        tmp_path / "store",
        flush_interval_commit_log=60_000,
        flush_commit_log_thorough_interval=60_000,
    )
    life.start()
    life.begin(0)
    life.receive(bytes(MasterBytes().add(3).data))
    life.counters[SYNC_FLUSH_WANTED] = life.counters[MAX_PHY_OFFSET]
    life.bell().ring()
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == life.end)
    life.stop()


# -- process store alone ------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["index", "consumequeue", "nothing"])
@pytest.mark.parametrize("within", [0, 10])
def test_a_restarted_store_process_goes_on_from_the_page(
    life: ControlledLife, missing: str, within: int
) -> None:
    """What process `ha` has confirmed since the start stands; the check point is older."""
    life.begin(0)
    life.order(MemberRole.LEAD)
    master = MasterBytes().add(100)
    life.receive(bytes(master.data))
    life.confirm(master.ends[59] + within)
    life.wait_dispatched(master.ends[59])
    life.store.shutdown(writer_has_stopped=False)
    shutil.rmtree(life.config.root / missing, ignore_errors=True)
    life.counters[STORE_STATE] = StoreState.READY
    life.counters[CONFIRM_OFFSET] = master.ends[69] + within
    life.store = life.new_store()
    life.store.open()
    assert life.counters[CONFIRM_OFFSET] == master.ends[69] + within
    life.store.start()
    life.wait_dispatched(master.ends[69])
    wait_until(lambda: not life.counters[QUEUES_REBUILDING])
    assert life.seen(master) == 70
    assert life.counters[FENCE_COUNT] == 0
    life.confirm(NO_BOUND)
    life.wait_dispatched(master.end)
    life.stop()
    check(life)


# -- cuts ---------------------------------------------------------------------------------------


def cut(life: SlaveLife, action: ResyncAction, offset: int = 0) -> None:
    write_request(life.config.root, ResyncRequest(action=action, offset=offset))


def test_a_cut_takes_the_confirm_offset_along(life: ControlledLife) -> None:
    life.begin(0)
    life.order(MemberRole.FOLLOW)
    master = MasterBytes().add(150)
    life.receive(bytes(master.data))
    life.confirm(master.ends[119])
    life.wait_dispatched(master.ends[119])
    life.stop()
    end = master.ends[59]
    cut(life, ResyncAction.TRUNCATE, end)
    new = again(life)
    assert (new.end, new.counters[CONFIRM_OFFSET]) == (end, end)
    assert new.seen(master) == 60
    assert new.stored_confirm <= end
    other = MasterBytes(end, queue_offset=60).add(10, body_size=50)
    new.receive(bytes(other.data))
    new.confirm(other.ends[4])
    new.wait_dispatched(other.ends[4])
    assert new.table.offsets("T", 0) == (0, 65)
    new.stop()
    check(new)


def test_a_log_that_starts_over_has_no_confirm_offset(life: ControlledLife) -> None:
    life.begin(0)
    life.order(MemberRole.FOLLOW)
    master = MasterBytes().add(150)
    life.receive(bytes(master.data))
    life.confirm(master.end)
    life.wait_dispatched(master.end)
    life.stop()
    cut(life, ResyncAction.START_OVER)
    new = again(life)
    assert (new.end, new.counters[CONFIRM_OFFSET]) == (0, 0)
    assert new.table.offsets("T", 0) == (0, 0)
    other = MasterBytes(3 * SIZE, queue_offset=40).add(10)
    new.order(MemberRole.FOLLOW)
    new.begin(3 * SIZE)
    new.receive(bytes(other.data))
    new.confirm(other.ends[4])
    new.wait_dispatched(other.ends[4])
    assert new.table.offsets("T", 0) == (40, 45)
    new.stop()
    check(new)

"""The buffer of check points: acks, offsets, storing, and what is left of it after a kill."""

from dataclasses import replace

import pytest

from broker.pop.check_point import CheckPoint
from broker.pop.pop_buffer_merge_service import PopBufferMergeService
from broker.pop.pop_journal import PopJournal
from broker.pop.pop_limits import PopLimits
from broker.settings.broker_config import BrokerConfig

BOOT = b"0123456789abcdef"
LIMITS = PopLimits(revive_queue_num=8, max_invisible_ms=3 * 86_400_000, broker_name="b")
SETTINGS = BrokerConfig(
    pop_ck_stay_buffer_time=10_000,
    pop_ck_stay_buffer_time_out=3_000,
    pop_ck_offset_max_queue_size=100,
)


class Offsets:
    def __init__(self):
        self.table = {}

    def commit_offset(self, _remote, group, topic, queue_id, offset):
        self.table[topic, group, queue_id] = offset

    def query_offset(self, group, topic, queue_id):
        return self.table.get((topic, group, queue_id))


class Records:
    """A log in which every record has 10 bytes."""

    def __init__(self):
        self.points = []
        self.end = 0
        self.refuses = False
        self.held = None
        """A list: they wait for room there."""
        self.asked = 0

    def put_check_point(self, point, revive_queue_id, stored, refused):
        self.asked += 1
        if self.refuses:
            refused("full")
            return
        if self.held is not None:
            self.held.append(refused)
            return
        self.points.append((point, revive_queue_id))
        self.end += 10
        stored(self.end)


class World:
    def __init__(self, path, settings=SETTINGS):
        self.path = path
        self.settings = settings
        self.offsets = Offsets()
        self.records = Records()
        self.now_ms = 1_000_000
        self.flushed = 0
        self.ends = {}
        self.start()

    def start(self, boot=BOOT, capacity=1_000):
        """A new process: all that it has is the journal, the log and the saved offsets."""
        self.buffer = PopBufferMergeService(
            self.settings,
            LIMITS,
            PopJournal(self.path, capacity, boot),
            self.records,
            self.offsets,
            lambda: self.now_ms,
            lambda: self.flushed,
        )
        self.buffer.recover(
            self.records.end, lambda topic, queue: self.ends.get((topic, queue), 99)
        )

    def pop(self, start=0, count=3, *, diffs=None, invisible_ms=60_000, queue_id=0):
        diffs = tuple(range(count)) if diffs is None else diffs
        next_offset = start + (max(diffs) if diffs else 0) + 1
        popped = CheckPoint(
            "T", "G", queue_id, start, diffs, self.now_ms, invisible_ms, 5, next_offset
        )
        return self.buffer.add(popped) and popped

    def ack(self, popped, *offsets):
        return self.buffer.ack(popped.key, offsets)

    @property
    def committed(self):
        return self.offsets.query_offset("G", "T", 0)

    def at(self, later_ms):
        self.now_ms += later_ms
        self.buffer.scan()


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "popjournal")


def test_a_wholly_acknowledged_pop_costs_no_record_and_moves_the_offset(world):
    world.offsets.table["T", "G", 0] = 10
    popped = world.pop(10)
    assert world.buffer.pop_offset("T", "G", 0) == 13
    assert world.ack(popped, 10)
    assert world.committed == 10
    assert world.ack(popped, 11, 12)
    assert world.committed == 13
    world.at(20_000)
    assert not world.records.points
    assert (world.buffer.check_point_count, world.buffer.offset_count) == (0, 0)
    assert not world.ack(popped, 10)


def test_there_is_work_from_a_pop_until_nothing_of_it_is_left(world):
    begun = []
    world.buffer.on_work = lambda: begun.append(world.buffer.has_work)
    assert not world.buffer.has_work
    world.pop(10)
    assert begun == [True]
    world.at(10_000)
    assert world.records.points
    assert begun == [True, True]
    assert world.buffer.has_work, "its record is not on disk"
    world.flushed = world.records.end
    world.at(20)
    assert not world.buffer.has_work


def test_a_refused_check_point_is_work(world):
    world.pop(10)
    world.records.refuses = True
    begun = []
    world.buffer.on_work = lambda: begun.append(world.buffer.has_work)
    world.at(10_000)
    assert begun == [True]


def test_offsets_move_in_the_order_of_the_pops(world):
    first, second = world.pop(0), world.pop(3)
    world.ack(second, 3, 4, 5)
    assert world.committed is None
    world.ack(first, 0, 1, 2)
    assert world.committed == 6


def test_what_is_left_is_stored_before_it_is_visible_again_and_counts_once_flushed(world):
    popped = world.pop(0, invisible_ms=5_000)
    world.ack(popped, 1)
    world.at(1_900)
    assert not world.records.points
    world.at(200)
    [(point, revive_queue_id)] = world.records.points
    assert revive_queue_id == 5
    assert (point.num, point.queue_offset_diff, point.bit_map) == (2, [0, 2], 0)
    assert (point.start_offset, point.pop_time, point.invisible_time) == (0, 1_000_000, 5_000)
    assert not world.ack(popped, 0)
    assert world.committed is None
    world.flushed = world.records.end
    world.at(20)
    assert world.committed == 3


@pytest.mark.parametrize("settings", [replace(SETTINGS, enable_pop_buffer_merge=False), SETTINGS])
def test_without_buffer_or_with_little_time_it_is_stored_at_once(tmp_path, settings):
    world = World(tmp_path / "popjournal", settings)
    popped = world.pop(0, invisible_ms=4_000 if settings.enable_pop_buffer_merge else 60_000)
    world.at(0)
    assert len(world.records.points) == 1
    assert not world.ack(popped, 0)


def test_a_refused_check_point_stays_and_is_tried_again(world):
    popped = world.pop(0, invisible_ms=5_000)
    world.records.refuses = True
    world.at(3_000)
    assert world.ack(popped, 0)
    world.records.refuses = False
    world.at(600)
    assert [point.queue_offset_diff for point, _ in world.records.points] == [[1, 2]]


def test_a_pop_that_found_nothing_that_matches_moves_the_offset_in_its_turn(world):
    world.pop(0, diffs=())
    assert world.committed == 1
    popped = world.pop(1)
    world.buffer.add(popped._replace(start_offset=4, diffs=(), next_offset=50))
    assert (world.committed, world.buffer.pop_offset("T", "G", 0)) == (1, 50)
    world.ack(popped, 1, 2, 3)
    assert world.committed == 50


def test_the_buffer_is_turned_off_and_on_while_it_runs(world):
    world.pop(0)
    world.buffer.use(replace(SETTINGS, enable_pop_buffer_merge=False), LIMITS)
    world.pop(3)
    world.at(0)
    assert [point.start_offset for point, _ in world.records.points] == [3]
    world.buffer.use(SETTINGS, LIMITS)
    world.pop(6)
    world.at(0)
    assert len(world.records.points) == 1


def test_what_is_to_be_done_later_begins_the_scans(world):
    begun = []
    world.buffer.on_work = lambda: begun.append(world.buffer.has_work)
    popped = world.pop(0)
    assert begun == [True]
    change(world, popped, 1)
    assert begun == [True, True]


def test_a_log_that_refuses_is_asked_twice_a_second(world):
    world.records.refuses = True
    world.pop(0, invisible_ms=2_000)
    for _ in range(100):
        world.at(10)
    assert world.records.asked == 2
    world.records.refuses = False
    world.at(10)
    assert (world.records.asked, len(world.records.points)) == (3, 1)


def test_the_same_pop_twice_and_one_too_many_are_refused(tmp_path):
    world = World(tmp_path / "popjournal", replace(SETTINGS, pop_ck_offset_max_queue_size=1))
    assert world.buffer.can_add("T", "G", 0)
    popped = world.pop(0)
    assert not world.buffer.add(popped)
    assert not world.buffer.can_add("T", "G", 0)


def test_a_full_journal_hands_nothing_out(tmp_path):
    world = World(tmp_path / "popjournal")
    (tmp_path / "popjournal").unlink()
    world.start(capacity=1)
    popped = world.pop(0)
    assert popped
    assert not world.pop(3)
    world.ack(popped, 0, 1, 2)
    assert world.pop(3)


# -- changed invisible times ------------------------------------------------------------------


def change(world, popped, offset, invisible_ms=60_000):
    world.now_ms += 1
    new = popped._replace(
        start_offset=offset, diffs=(0,), pop_time_ms=world.now_ms,
        invisible_time_ms=invisible_ms, next_offset=-1,
    )  # fmt: skip
    return world.buffer.change(new, popped.key), new


def test_a_changed_message_keeps_the_offset_back_until_its_new_check_point_is_safe(world):
    popped = world.pop(0)
    done, new = change(world, popped, 1)
    assert done is True
    world.ack(popped, 0, 2)
    assert world.committed is None
    done, newer = change(world, new, 1)
    assert done is True
    assert world.committed is None
    world.ack(newer, 1)
    assert world.committed == 3
    assert not world.records.points


def test_a_new_check_point_is_stored_in_its_time(world):
    popped = world.pop(0, 1)
    change(world, popped, 0, 2_000)
    world.at(0)
    [(point, _)] = world.records.points
    assert (point.start_offset, point.queue_offset_diff, point.invisible_time) == (0, [0], 2_000)
    assert world.committed is None
    world.flushed = world.records.end
    world.at(0)
    assert world.committed == 1


def test_the_new_check_point_of_a_stored_one_is_stored_before_the_ack(world):
    popped = world.pop(0)
    world.at(10_000)
    done, _new = change(world, popped, 1)
    assert done is False
    assert len(world.records.points) == 2


def test_the_changed_message_of_a_group_without_offset_is_not_where_it_begins(world):
    """Its pop was before a power loss. After a kill the group went on from that message, and those
    before it, which were never acknowledged, were lost."""
    popped = world.pop(0)
    world.offsets = Offsets()
    world.start(boot=b"x" * 16)
    done, _new = change(world, popped, 2)
    assert done is False
    assert world.buffer.pop_offset("T", "G", 0) is None
    change(world, popped, 2)
    world.start(boot=b"x" * 16)
    assert world.buffer.pop_offset("T", "G", 0) == 0


@pytest.mark.parametrize("end", ["refused", "killed", "not published"])
def test_a_message_renewed_twice_in_one_ms(world, end):
    """After a kill one of both, in no buffer, kept the offsets of all groups where they were; after
    a refusal it kept its row for ever. While the log takes neither, the second is refused."""
    popped = world.pop(0, 1)
    world.at(10_000)
    world.flushed = published = world.records.end
    world.at(20)
    world.records.held = None if end == "not published" else []
    change(world, popped, 0, 5_000)
    world.now_ms -= 1
    done, _new = change(world, popped, 0, 30_000)
    assert done is (False if end == "not published" else None)
    held, world.records.held = world.records.held, None
    if end == "refused":
        for refused in held:
            refused("no room")
    else:
        del world.records.points[published // 10 :]
        world.records.end = published
        world.start()
    world.at(500)
    [_popped, (point, _)] = world.records.points
    assert point.invisible_time == (30_000 if end == "not published" else 5_000)
    world.flushed = world.records.end
    other = world.pop(3, 1)
    world.ack(other, 3)
    world.at(20)
    assert world.committed == 4
    assert not world.buffer._journal._read_rows()


@pytest.mark.parametrize("end", ["refused", "killed", "not published"])
@pytest.mark.parametrize("diffs", [(0, 1, 2), (0,), (1, 2)])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_message_renewed_in_the_ms_of_a_pop_that_begins_with_it(world, end, diffs, is_first):
    """By a handle of before the offset was set back: the renewal has the key of the pop. The pop's
    other messages were lost when the log took neither."""
    popped = CheckPoint("T", "G", 0, 0, diffs, world.now_ms, 2_000, 5, 3)
    renewed = popped._replace(diffs=(0,), invisible_time_ms=30_000, next_offset=-1)
    older = *popped.key[:4], world.now_ms - 60_000
    world.records.held = None if end == "not published" else []

    def pop():
        done = world.buffer.add(popped)
        world.buffer.scan()  # it is short, and handed to the log
        return done

    def renew():
        return world.buffer.change(renewed, older) is not None

    done = [renew(), pop()] if is_first else [pop(), renew()]
    assert done == [True, end == "not published"]
    held, world.records.held = world.records.held, None
    if end == "refused":
        for refused in held:
            refused("no room")
    else:
        world.records.points.clear()
        world.records.end = 0
        world.start()
    world.at(500)
    world.at(20)
    given = [{0}, set(diffs)] if is_first else [set(diffs), {0}]
    stored = {
        point.start_offset + diff
        for point, _ in world.records.points
        for diff in point.queue_offset_diff
    }
    assert stored == set().union(*(of for of, was in zip(given, done, strict=True) if was))
    assert world.committed in (None, 0)
    world.flushed = world.records.end
    world.at(10_000)
    assert (world.committed or 0) == (3 if not is_first or done[1] else 0)
    assert not world.buffer.pops.has_work
    assert not world.buffer._journal._read_rows()


def test_a_message_that_is_renewed_again_and_again_takes_one_row(world):
    """A client that renewed one message 20,000 times a second filled the journal, and no group
    could pop."""
    popped = last = world.pop(0)
    for _ in range(50):
        done, last = change(world, last, 1)
        assert done is True
    assert len(world.buffer._journal._read_rows()) == 2
    world.ack(popped, 0, 2)
    assert world.committed is None
    world.ack(last, 1)
    assert world.committed == 3
    assert not world.buffer._journal._read_rows()


# -- kills ------------------------------------------------------------------------------------


def test_a_clock_that_was_set_back_keeps_nothing_longer_in_the_buffer(world):
    world.pop(0)
    world.now_ms -= 3_600_000
    world.start()
    world.at(9_999)
    assert not world.records.points
    world.at(1)
    assert len(world.records.points) == 1


def test_after_a_kill_an_older_pop_that_was_stored_later_keeps_nobody_waiting(world):
    world.pop(0)
    world.pop(0, queue_id=1, invisible_ms=2_000)
    world.at(0)
    first = world.records.end
    world.at(10_000)
    assert world.records.end == 2 * first
    world.offsets = Offsets()
    world.start()
    world.at(20)
    world.flushed = first
    world.at(20)
    assert world.offsets.query_offset("G", "T", 1) == 3
    assert world.committed == 0
    world.flushed = world.records.end
    world.at(20)
    assert world.committed == 3


def test_after_a_kill_acked_stays_acked_and_the_rest_is_stored_in_its_time(world):
    first, second = world.pop(0), world.pop(3)
    world.ack(first, 0, 1, 2)
    world.ack(second, 4)
    world.offsets = Offsets()  # nothing of it was saved
    world.start()
    assert world.committed == 3
    assert world.buffer.pop_offset("T", "G", 0) == 6
    assert world.ack(second, 3)
    world.at(10_000)
    assert [point.queue_offset_diff for point, _ in world.records.points] == [[2]]
    world.flushed = world.records.end
    world.at(20)
    assert world.committed == 6


def test_after_a_kill_what_was_wholly_acked_behind_an_open_pop_stays_acked(world):
    first, second = world.pop(0), world.pop(3)
    world.ack(second, 3, 4, 5)
    world.start()
    world.ack(first, 0, 1, 2)
    assert world.committed == 6
    world.at(20_000)
    assert not world.records.points


def test_a_check_point_whose_record_was_not_published_is_stored_again(world):
    world.pop(0, invisible_ms=5_000)
    world.at(3_000)
    world.records.end = 0
    world.records.points.clear()
    world.start()
    world.at(0)
    assert len(world.records.points) == 1


def test_and_so_it_is_after_a_second_kill_when_the_log_has_grown_beyond_where_it_was(world):
    """It counted as stored: the offset moved over messages that were in no log any more."""
    popped = world.pop(0, invisible_ms=5_000)
    world.at(3_000)
    world.records.end = 0
    world.records.points.clear()
    world.start()
    world.records.end = world.flushed = 500  # other records, before its turn came
    world.start()
    world.at(0)
    assert world.committed is None or world.committed <= popped.start_offset
    assert [point.start_offset for point, _ in world.records.points] == [0]


def test_after_a_kill_changed_messages_are_stored_before_an_offset_moves(world):
    popped = world.pop(0, 1)
    change(world, popped, 0)
    world.start()
    assert world.committed == 0
    world.at(0)
    assert len(world.records.points) == 1
    assert world.committed == 0
    world.flushed = world.records.end
    world.at(0)
    assert world.committed == 1


def test_another_boot_or_another_queue_forgets_the_journal(world):
    world.pop(0)
    world.start(boot=b"x" * 16)
    assert world.buffer.pop_offset("T", "G", 0) is None
    world.pop(0)
    world.ends["T", 0] = 2  # the log was cut off behind the second message
    world.start()
    assert world.buffer.check_point_count == 0


def test_an_orderly_stop_stores_the_rest_and_removes_the_journal(world):
    popped = world.pop(0)
    world.pop(3)
    world.ack(popped, 0, 1)
    world.buffer.drain()
    world.buffer.finish()
    assert world.committed == 6
    assert [point.queue_offset_diff for point, _ in world.records.points] == [[2], [0, 1, 2]]
    world.buffer.remove_journal()
    assert not world.path.exists()


def test_a_kill_during_an_orderly_stop_before_the_offsets_are_saved_forgets_no_ack(world):
    """The journal was removed first, and what was acknowledged came again."""
    world.ack(world.pop(0), 0, 1, 2)
    world.buffer.drain()
    world.buffer.finish()
    world.offsets = Offsets()
    world.start()
    assert world.buffer.pop_offset("T", "G", 0) == 3


def test_an_orderly_stop_that_could_not_store_keeps_the_journal(world):
    world.pop(0)
    world.records.refuses = True
    world.buffer.drain()
    world.buffer.finish()
    world.buffer.remove_journal()
    assert world.path.exists()
    assert world.committed is None


@pytest.mark.parametrize("is_acked", [False, True])
def test_after_a_kill_the_offset_moves_though_nothing_more_happens_in_its_queue(world, is_acked):
    """It stood still until the group popped that queue again: where it was killed between the last
    ack and the offset, and where a renewed message of another queue was acknowledged before its
    check point was stored."""
    popped = world.pop(0)
    other = world.pop(0, queue_id=1)
    if is_acked:
        _done, renewed = change(world, other, 1)
    world.buffer._journal.set_bits(0, 0b111)
    world.start()
    if is_acked:
        world.records.refuses = True
        world.at(0)
        world.ack(renewed, 1)
    world.at(20)
    assert world.committed == 3
    assert not world.ack(popped, 0)


# -- offsets set by others --------------------------------------------------------------------


def test_an_offset_set_back_forgets_what_was_handed_out(world):
    popped = world.pop(0, diffs=())
    popped = world.pop(1)
    world.pop(4)
    world.offsets.table["T", "G", 0] = 0
    assert world.buffer.pop_offset("T", "G", 0) == 0
    assert not world.ack(popped, 1)
    assert world.buffer.offset_count == 0
    world.start()
    assert world.buffer.check_point_count == 0


@pytest.mark.parametrize(("offset", "is_reset"), [(1, False), (1, True), (5, True)])
def test_an_offset_that_was_set_counts_after_a_kill_that_no_pop_came_before(
    world, offset, is_reset
):
    """The journal's offset, or what it had as handed out, undid the reset."""
    first, second = world.pop(0), world.pop(3)
    world.ack(first, 0, 1, 2)
    world.ack(second, 5)
    world.offsets.table["T", "G", 0] = offset
    world.buffer.offset_was_set("T", "G", 0, is_reset=is_reset)
    world.start()
    assert world.buffer.pop_offset("T", "G", 0) == offset
    world.offsets = Offsets()  # not saved before the kill
    world.start()
    assert world.buffer.pop_offset("T", "G", 0) == offset


def test_an_offset_that_a_pop_has_followed_already_forgets_nothing(world):
    popped = world.pop(0)
    world.offsets.table["T", "G", 0] = 0
    world.buffer.offset_was_set("T", "G", 0, is_reset=False)
    world.buffer.offset_was_set("T", "H", 0, is_reset=True)
    assert world.ack(popped, 0)


@pytest.mark.interpreted
@pytest.mark.parametrize("steps", range(4))
def test_a_kill_while_a_queue_is_forgotten_loses_no_message(world, monkeypatch, steps):
    """With some of its rows left, the group went on behind them."""
    for start in (0, 3, 6):
        world.pop(start)
    world.offsets.table["T", "G", 0] = 0
    freed = []

    def free(_journal, row):
        if len(freed) == steps:
            raise KeyboardInterrupt
        freed.append(row)
        journal_free(world.buffer._journal, row)

    journal_free = PopJournal.free
    monkeypatch.setattr(PopJournal, "free", free)
    try:
        world.buffer.clear_offset_queue("T", "G", 0)
    except KeyboardInterrupt:
        assert len(freed) < 3
    monkeypatch.undo()
    world.start()
    assert world.buffer.pop_offset("T", "G", 0) == 0


class OnlyFound(dict):
    """A table that nobody may walk through."""

    def values(self):
        raise AssertionError("it looks at the check points of all queues")

    __iter__ = keys = items = values


def test_forgetting_a_queue_looks_at_its_own_check_points_only(world):
    """A deleted topic of 1,000 queues walked 1,000 times through those of all others, in a turn of
    the loop."""
    world.pop(0)
    other = world.pop(0, queue_id=1)
    world.buffer.pops._buffer = OnlyFound(world.buffer.pops._buffer)
    world.buffer.clear_offset_queue("T", "G", 0)
    assert world.buffer.check_point_count == 1
    assert world.ack(other, 0)


def test_an_offset_that_a_pull_committed_further_is_not_set_back(world):
    popped = world.pop(0)
    world.offsets.table["T", "G", 0] = 40
    world.ack(popped, 0, 1, 2)
    assert world.committed == 40
    assert world.buffer.pop_offset("T", "G", 0) == 40


def test_queues_without_topic_and_idle_ones_are_forgotten(world):
    popped = world.pop(0)
    world.buffer.clean(lambda topic, group: False)
    assert world.buffer.check_point_count == 0
    popped = world.pop(0)
    world.ack(popped, 0, 1, 2)
    world.now_ms += 300_001
    world.buffer.clean(lambda topic, group: True)
    assert world.buffer.popping() == {("G", "T")}
    world.buffer.clean(lambda topic, group: True)
    assert not world.buffer.popping()
    world.start()
    assert not world.buffer.popping()
    assert world.buffer.pop_offset("T", "G", 0) == 3  # from the saved offsets


def test_a_queue_whose_offset_moved_a_moment_ago_is_not_forgotten(world):
    """The offset is not saved yet: a kill brought back what was acknowledged. (Its last pop may be
    long ago, if the log took nothing meanwhile.)"""
    popped = world.pop(0)
    world.now_ms += 300_001
    world.ack(popped, 0, 1, 2)
    world.buffer.clean(lambda topic, group: True)
    world.offsets = Offsets()
    world.start()
    assert world.buffer.pop_offset("T", "G", 0) == 3


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_queue_keeps_its_number_while_a_renewed_message_has_a_row(world, is_reset):
    """The number went to another queue, and after a kill the row was of a message there."""
    popped = world.pop(0, 1)
    world.at(10_000)
    world.flushed = world.records.end
    world.at(20)
    world.records.points.clear()
    if is_reset:
        world.records.held = []
    else:
        world.records.refuses = True
    change(world, popped, 0)
    if is_reset:
        world.buffer.clear_offset_queue("T", "G", 0)
    world.at(400_000)
    for _ in range(2):
        world.buffer.clean(lambda topic, group: True)
    assert world.pop(0, 2, queue_id=1)
    world.records.refuses, world.records.held = False, None
    world.start()
    world.at(10_000)
    stored = [(one.queue_id, one.queue_offset_diff) for one, _ in world.records.points]
    assert sorted(stored) == [(0, [0]), (1, [0, 1])][is_reset:]


# -- rows that cannot be ----------------------------------------------------------------------

MOST = (1 << 63) - 1


def forge(world, **fields):
    """The journal of a killed process, with a changed message as an older version noted it: of the
    pop of offset 1, which it marked as acknowledged."""
    popped = world.pop(0)
    journal = world.buffer._journal
    row = {"revive": 5, "start": 1, "pop": world.now_ms + 1, "invisible": 60_000, "next": -1}
    row |= fields
    point = CheckPoint(
        "T", "G", 0, row["start"], fields.get("diffs", (0,)), row["pop"], row["invisible"],
        row["revive"], row["next"],
    )  # fmt: skip
    assert journal.add(0, point) is not None
    world.ack(popped, 1)
    return popped


@pytest.mark.parametrize(
    "fields",
    [
        {"pop": MOST},
        {"pop": 0},
        {"pop": 1_000_000 + 3 * 86_400_000},
        {"invisible": MOST},
        {"invisible": -1},
        {"revive": 8},
        {"revive": -1},
        {"revive": 999},
    ],
    ids=str,
)
def test_times_that_cannot_be_freeze_no_offset_and_lose_no_message(world, fields, caplog):
    """The timer refused it for ever, and every group's offset waited for it."""
    world.offsets.table["T", "H", 0] = 0
    popped = forge(world, **fields)
    other = popped._replace(group="H", pop_time_ms=world.now_ms)
    assert world.buffer.add(other)
    world.start()
    assert world.buffer.let_go == 1
    assert "is not valid" in caplog.text
    world.at(0)
    [(point, revive_queue_id)] = world.records.points
    assert (point.start_offset, point.queue_offset_diff) == (1, [0])
    assert point.revive_time <= world.now_ms
    assert 0 <= revive_queue_id < 8
    world.flushed = world.records.end
    world.at(0)
    world.ack(other, 0, 1, 2)
    assert world.offsets.query_offset("H", "T", 0) == 3


@pytest.mark.parametrize(
    "fields",
    [{"start": -5}, {"start": MOST}, {"diffs": (-3,)}, {"diffs": ((1 << 31) - 1,)}, {"next": -2}],
    ids=str,
)
def test_rows_that_name_no_message_are_dropped(world, fields, caplog):
    popped = forge(world, **fields)
    world.start()
    assert world.buffer.let_go == 1
    assert "dropped" in caplog.text
    world.ack(popped, 0, 2)
    assert world.committed == 3
    assert not world.buffer._journal._read_rows()


def test_bytes_that_are_no_row_and_no_queue_are_dropped(world):
    popped = world.pop(0)
    world.pop(3)
    world.pop(0, queue_id=1)
    world.pop(0, queue_id=2)
    data = bytearray(world.path.read_bytes())
    rows_at = 64 + 65_536 * 512
    for number, count in ((1, 33), (2, -1)):
        at = rows_at + 200 * number + 28
        data[at : at + 4] = count.to_bytes(4, "little", signed=True)
    data[64 + 2 * 512 + 32] = 0xFF  # the name of the third queue
    data[64 + 512 + 15] = 0xFF  # the committed offset of the second
    data[rows_at + 600 : rows_at + 608] = b"\xff" * 8  # the fourth row's sequence
    world.path.write_bytes(data)
    world.start()
    assert world.offsets.query_offset("G", "T", 1) is None
    world.ack(popped, 0, 1, 2)
    assert world.committed == 3
    assert world.pop(6)


@pytest.mark.parametrize("count", [33, -1, 0])
def test_no_offset_passes_a_pop_whose_row_is_damaged(world, count):
    """Its messages were lost as soon as a later pop was acknowledged."""
    world.pop(0)
    world.pop(3)
    later = world.pop(6)
    data = bytearray(world.path.read_bytes())
    at = 64 + 65_536 * 512 + 200
    fields = {28: count.to_bytes(4, "little", signed=True)} if count else {40: b"\xff" * 8}
    for place, value in fields.items():
        data[at + place : at + place + len(value)] = value
    world.path.write_bytes(data)
    world.start()
    assert world.buffer.pop_offset("T", "G", 0) == 3
    assert not world.ack(later, 6)
    assert world.buffer.let_go == 2


def test_several_rows_of_one_message_that_cannot_be_are_all_let_go(world):
    popped = forge(world, pop=MOST)
    journal = world.buffer._journal
    for number in range(3):
        journal.add(0, CheckPoint("T", "G", 0, 1, (0,), MOST - number, 60_000, 5))
    world.start()
    world.at(0)
    world.flushed = world.records.end
    world.at(0)
    assert len(journal._read_rows()) == 1
    world.ack(popped, 0, 2)
    assert world.committed == 3


def test_bits_of_messages_that_it_has_not_count_for_nothing(world):
    popped = world.pop(0)
    world.buffer._journal.set_bits(0, 0xFFFD)
    world.start()
    world.ack(popped, 1)
    assert world.committed == 3


def test_numbers_that_do_not_fit_take_no_row_and_no_queue(tmp_path):
    world = World(tmp_path / "popjournal")
    (tmp_path / "popjournal").unlink()
    world.start(capacity=2)
    journal = world.buffer._journal
    for _ in range(10):
        for diffs, pop_time_ms in (((0,), MOST + 1), ((0,) * 33, 1), ((1 << 31,), 1)):
            point = CheckPoint("T", "G", 0, 0, diffs, pop_time_ms, 60_000, 5)
            assert journal.add(0, point) is None
        assert journal.add_queue("T", "G", 1 << 31, 0) is None
        assert journal.add_queue("T", "G", 0, MOST + 1) is None
    assert journal.add_queue("T", "G", 0, 0) == 0
    assert world.pop(0)
    assert world.pop(3)


def test_an_offset_below_zero_that_somebody_committed_is_none(world):
    world.offsets.table["T", "G", 0] = -5
    popped = world.pop(0)
    world.start()
    world.ack(popped, 0, 1, 2)
    assert world.committed == 3

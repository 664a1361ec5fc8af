"""Pulls that are under way before they are wanted: in order, bounded, and never too many rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from remoting.body.message_queue import MessageQueue
from spark.sources.cluster import Cluster, Pulled
from spark.sources.errors import UnavailableError
from spark.sources.losses import LossRule
from spark.sources.options import Connection
from spark.sources.pulls_ahead import MOST_AHEAD, PullsAhead
from spark.sources.queue_reader import RangeReader, ReadRules
from spark.sources.ranges import Range
from tests.spark.sources.fake_queues import DEAD, FakeQueues
from tests.support.deadline import wait_until

SUCCESS = 0
BATCH = 8 << 20
SOON = 3600.0
WARM = 32 * 100
"""From this offset on there are as many under way as there may be."""


def answer(following: int, size: int = 100, code: int = SUCCESS) -> Pulled:
    return Pulled(code, following, 0, 1_000_000, 0, bytes(size), "a", is_master=True)


class Broker:
    """Gives `most` messages for a pull, of `size` bytes together; notes what is asked for."""

    def __init__(self, most: int = 32, size: int = 100) -> None:
        self.most = most
        self.size = size
        self.asked: list[tuple[int, int]] = []
        self.change: Callable[[int, int], Pulled | None] = lambda offset, count: None
        self.gate = threading.Event()
        """Opened at the end of `held`."""
        self._lock = threading.Lock()

    def pull(self, offset: int, count: int) -> Pulled:
        with self._lock:
            self.asked.append((offset, count))
        changed = self.change(offset, count)
        return changed or answer(offset + min(count, self.most), self.size)


def read(
    broker: Broker, end: int, *, is_whole: bool = True, late_s: float = SOON
) -> list[tuple[int, int]]:
    """Where each answer begins and ends."""
    found = []
    offset = 0
    with PullsAhead(broker.pull, end, BATCH, is_whole=is_whole, late_s=late_s) as ahead:
        while offset < end:
            following = one(ahead, offset, end)
            found.append((offset, following))
            offset = following
    return found


def one(ahead: PullsAhead, offset: int, end: int) -> int:
    """Take an answer, as RangeReader does; where it ends."""
    pulled = ahead.take(offset)
    following = min(pulled.next_offset, end)
    if following > offset:
        ahead.ask_on(offset, pulled, following)
    return following


def steps(end: int, step: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + step, end)) for begin in range(0, end, step)]


def test_each_offset_is_asked_for_once_and_comes_in_its_order() -> None:
    broker = Broker()
    assert read(broker, 10_007) == steps(10_007, 32)
    assert sorted(offset for offset, _ in broker.asked) == [*range(0, 10_007, 32)]


def test_what_a_broker_gives_at_most_is_found_out_a_few_times() -> None:
    """Twice as much is asked for now and then, less and less often."""
    broker = Broker()
    read(broker, 32 * 2_000)
    more = sorted(offset for offset, count in broker.asked[1:] if count > 32)
    assert 2 < len(more) < 14
    assert more[-1] - more[-2] > 4 * (more[1] - more[0])


def test_nobody_asks_for_more_than_is_left() -> None:
    assert read(broker := Broker(), 5) == [(0, 5)]
    assert broker.asked == [(0, 5)]


@contextmanager
def held(
    broker: Broker, end: int, most_bytes: int, begin: int = 0, *, late_s: float = SOON
) -> Iterator[PullsAhead]:
    """Read up to `begin`; all pulls behind it wait until the end."""
    given = broker.change

    def wait(offset: int, count: int) -> Pulled | None:
        if offset > begin:
            broker.gate.wait()
        return given(offset, count)

    broker.change = wait
    with PullsAhead(broker.pull, end, most_bytes, is_whole=True, late_s=late_s) as ahead:
        try:
            offset = 0
            while offset <= begin:
                offset = one(ahead, offset, end)
            yield ahead
        finally:
            broker.gate.set()


@pytest.mark.parametrize(
    ("size", "most_bytes", "count"),
    [
        (40_000, BATCH, MOST_AHEAD),
        (40_000, 40_000 * 4 * 3, 3),
        (4_000_000, BATCH, 1),
        (100, 1, 1),
    ],
)
def test_no_more_bytes_than_a_quarter_of_a_batch(size: int, most_bytes: int, count: int) -> None:
    broker = Broker(size=size)
    with held(broker, 100_000, most_bytes, WARM):
        wait_until(lambda: len(behind(broker)) == count)
    assert behind(broker)[0] == WARM + 32
    assert len(behind(broker)) == count


def behind(broker: Broker, begin: int = WARM) -> list[int]:
    return sorted(offset for offset, _ in broker.asked if offset > begin)


def test_answers_that_become_larger_while_they_are_under_way() -> None:
    """What is held has the same bounds, and what was dropped is read in its turn."""
    broker = Broker(size=1_000)
    broker.change = lambda offset, count: answer(offset + 32, BATCH // 8) if offset > WARM else None
    end = WARM + 100 * 32
    with held(broker, end, BATCH, WARM) as ahead:
        wait_until(lambda: len(behind(broker)) == MOST_AHEAD)
        broker.gate.set()
        answers = [each.answer.result() for each in ahead._windows]
        offset = WARM + 32
        while offset < end:
            offset = one(ahead, offset, end)
    sizes = [len(found.records) for found in answers if found]
    assert sizes == [BATCH // 8] * 2
    assert offset == end
    assert max(count for offset, count in broker.asked if offset > WARM) <= 64


def test_one_message_is_ahead_even_when_it_is_larger_than_that() -> None:
    broker = Broker(size=BATCH)
    with held(broker, 1_000, BATCH) as ahead:
        broker.gate.set()
        found = ahead._windows[0].answer.result()
    assert found is not None
    assert len(found.records) == BATCH


def test_one_large_answer_is_forgotten() -> None:
    broker = Broker(size=1_000)
    broker.change = lambda offset, count: answer(offset + 32, BATCH // 2) if offset == 32 else None
    with held(broker, 100_000, BATCH, WARM):
        wait_until(lambda: len(behind(broker)) == MOST_AHEAD)
    assert len(behind(broker)) == MOST_AHEAD


def test_one_is_under_way_at_first() -> None:
    """More could all be late on a slow link, and be asked for again and again."""
    broker = Broker()
    with held(broker, 10_000, BATCH):
        wait_until(lambda: len(broker.asked) > 1)
    assert broker.asked[1:] == [(32, 32)]


@pytest.mark.parametrize(("late_s", "count"), [(-1.0, 1), (SOON, MOST_AHEAD)])
def test_there_are_more_while_answers_come_soon(late_s: float, count: int) -> None:
    broker = Broker()
    with held(broker, 100_000, BATCH, WARM, late_s=late_s):
        wait_until(lambda: len(behind(broker)) == count)
    assert len(behind(broker)) == count


def test_late_answers_make_fewer() -> None:
    broker = Broker()
    counts = []
    with PullsAhead(broker.pull, 100_000, BATCH, is_whole=True, late_s=SOON) as ahead:
        offset = 0
        for late_s in [SOON] * 100 + [-1.0] * 100:
            ahead._late_s = late_s
            offset = one(ahead, offset, 100_000)
            counts.append(len(ahead._windows))
    assert (counts[99], counts[-1]) == (MOST_AHEAD, 1)


def test_a_first_answer_that_is_short() -> None:
    """As of one large message, or where a file of the log ends: the others are not asked for one
    by one."""
    broker = Broker()
    broker.change = lambda offset, count: answer(1) if not offset else None
    found = read(broker, 32 * 200)
    assert found[0] == (0, 1)
    assert {end - begin for begin, end in found[-100:-1]} == {32}
    assert len(broker.asked) < 320


def test_a_first_answer_that_has_none() -> None:
    """The first messages are beyond retention, and failOnDataLoss is off: how much the broker gives
    is not known yet."""
    broker = Broker()
    broker.change = lambda offset, count: answer(5, 0, code=21) if not offset else None
    found = read(broker, 32 * 200)
    assert found[:2] == [(0, 5), (5, 37)]
    assert len(broker.asked) < 210


def test_messages_that_become_larger_are_asked_for_by_fewer() -> None:
    """So that the next pulls are under way, not the rests of many, one behind the other."""
    broker = Broker()
    broker.change = lambda offset, count: answer(offset + min(count, 4)) if offset >= 960 else None
    read(broker, 4_800)
    counts = [count for offset, count in broker.asked if offset >= 2_400]
    assert counts.count(4) > 0.9 * len(counts)


def test_an_answer_that_is_shorter_than_foretold() -> None:
    """As of messages that are larger: nothing that is under way is thrown away."""
    broker = Broker()

    def shorter(offset: int, count: int) -> Pulled | None:
        return answer(offset + min(count, 8)) if offset >= 96 else None

    broker.change = shorter
    found = read(broker, 1_000)
    assert found == [*steps(96, 32), *((96 + b, 96 + e) for b, e in steps(904, 8))]
    asked = [offset for offset, _ in broker.asked]
    assert len(asked) == len(set(asked)) == len(found)


def test_the_rest_of_an_answer_that_was_shorter() -> None:
    """Not more than the rest, as what follows is under way."""
    broker = Broker()

    def shorter(offset: int, count: int) -> Pulled | None:
        return answer(offset + 8) if offset and not offset % 32 else None

    broker.change = shorter
    found = read(broker, 960)
    assert [begin for begin, _ in found[1:]] == [end for _, end in found[:-1]]
    asked = [offset for offset, _ in broker.asked]
    assert len(asked) == len(set(asked)) == len(found)


def beyond(offset: int, count: int) -> Pulled | None:
    return answer(offset + 33 + offset % 17) if offset >= 64 else None


def test_an_answer_that_goes_beyond_what_was_foretold() -> None:
    """As of batches inside: from then on what comes next is not known before."""
    broker = Broker()
    broker.change = beyond
    found = read(broker, 10_000)
    assert [begin for begin, _ in found[1:]] == [end for _, end in found[:-1]]
    assert (found[0][0], found[-1][1]) == (0, 10_000)
    wasted = len(broker.asked) - len(found)
    assert 0 < wasted <= MOST_AHEAD, "only once"


def test_behind_such_an_answer_one_is_ahead() -> None:
    broker = Broker()
    broker.change = beyond
    offset = 0
    with PullsAhead(broker.pull, 10_000, BATCH, is_whole=True, late_s=SOON) as ahead:
        while offset < 500:
            offset = one(ahead, offset, 10_000)
        wait_until(lambda: (offset, 10_000 - offset) in broker.asked)


def test_where_the_broker_selects_one_is_ahead() -> None:
    """How far its answer comes nobody can say."""
    broker = Broker(most=70)
    found = read(broker, 1_000, is_whole=False)
    assert found == steps(1_000, 70)
    assert broker.asked == [(begin, 1_000 - begin) for begin, _ in found]


def test_an_answer_that_does_not_move_on_is_asked_for_anew() -> None:
    """And without a limit that was foretold."""
    broker = Broker()
    tries: list[int] = []

    def stand(offset: int, count: int) -> Pulled | None:
        if offset == 96 and len(tries) < 2:
            tries.append(count)
            return answer(96, 0, code=19)
        return None

    broker.change = stand
    found = read(broker, 1_000)
    assert found[3:6] == [(96, 96), (96, 96), (96, 128)]
    assert found[-1][1] == 1_000
    assert tries == [32, 904]


def test_an_error_comes_in_its_turn() -> None:
    broker = Broker()

    def fail(offset: int, count: int) -> Pulled | None:
        if offset == 96:
            raise UnavailableError("gone")
        return None

    broker.change = fail
    with PullsAhead(broker.pull, 1_000, BATCH, is_whole=True, late_s=SOON) as ahead:
        for offset in (0, 32, 64):
            one(ahead, offset, 1_000)
        wait_until(lambda: len(broker.asked) > 4)
        with pytest.raises(UnavailableError, match="gone"):
            ahead.take(96)


def test_its_threads_end() -> None:
    broker = Broker()
    with held(broker, 100_000, BATCH, WARM) as ahead:
        wait_until(lambda: len(behind(broker)) == MOST_AHEAD)
        ahead.close()
    assert not [thread for thread in ahead._pool._threads if _lives_on(thread)]
    assert len(behind(broker)) == MOST_AHEAD


def _lives_on(thread: threading.Thread) -> bool:
    thread.join(10)
    return thread.is_alive()


def test_a_task_that_is_cancelled_ends_at_once(stored: FakeQueues) -> None:
    """Though its broker is away and would be waited for for an hour."""
    stored.plain("T", 1_000)
    connection = Connection((stored.cluster.address,), timeout_ms=2_000, retry_ms=3_600_000)
    with Cluster(connection) as client:
        part = Range("T", "broker-g", 0, 0, 1_000)
        messages = RangeReader(client, part, ReadRules(LossRule())).messages(BATCH)
        assert next(messages).queue_offset == 0
        before = {each for each in threading.enumerate() if each.name.startswith("rocketmq-pull")}
        stored.routes["T"].broker_datas[0].broker_addrs[0] = DEAD
        client.route("T", fresh=True)
        messages.close()
    assert not [thread for thread in before if _lives_on(thread)]


def test_whoever_asks_when_all_is_closed_gets_an_error() -> None:
    queue = MessageQueue(topic="T", broker_name="broker-g", queue_id=0)
    with Cluster(Connection((DEAD,), retry_ms=3_600_000)) as client:
        failed: list[Exception] = []

        def ask() -> None:
            try:
                client.pull(queue, 0)
            except UnavailableError as error:
                failed.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
    assert not _lives_on(thread)
    assert len(failed) == 1

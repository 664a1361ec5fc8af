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


def answer(following: int, size: int = 100, code: int = SUCCESS) -> Pulled:
    return Pulled(code, following, 0, 1_000_000, 0, bytes(size), "a", is_master=True)


class Broker:
    """Gives `most` messages for a pull, of `size` bytes together; notes what is asked for."""

    def __init__(self, most: int = 32, size: int = 100) -> None:
        self.most = most
        self.size = size
        self.asked: list[tuple[int, int]] = []
        self.change: Callable[[int, int], Pulled | None] = lambda offset, count: None
        self._lock = threading.Lock()

    def pull(self, offset: int, count: int) -> Pulled:
        with self._lock:
            self.asked.append((offset, count))
        changed = self.change(offset, count)
        return changed or answer(offset + min(count, self.most), self.size)


def read(
    broker: Broker, end: int, most_bytes: int = BATCH, *, is_whole: bool = True
) -> list[tuple[int, int]]:
    """Where each answer begins and ends."""
    found = []
    offset = 0
    with PullsAhead(broker.pull, end, most_bytes, is_whole=is_whole) as ahead:
        while offset < end:
            pulled = ahead.take(offset)
            following = min(pulled.next_offset, end)
            found.append((offset, following))
            if following > offset:
                ahead.ask_on(offset, pulled, following)
            offset = following
    return found


def steps(end: int, step: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + step, end)) for begin in range(0, end, step)]


def test_each_offset_is_asked_for_once_and_comes_in_its_order() -> None:
    broker = Broker()
    assert read(broker, 10_007) == steps(10_007, 32)
    assert sorted(broker.asked) == [(0, 10_007), *((b, e - b) for b, e in steps(10_007, 32)[1:])]


def test_nobody_asks_for_more_than_is_left() -> None:
    assert read(broker := Broker(), 5) == [(0, 5)]
    assert broker.asked == [(0, 5)]


@contextmanager
def held(broker: Broker, end: int, most_bytes: int) -> Iterator[PullsAhead]:
    """All pulls but the first wait until the end."""
    gate = threading.Event()

    def wait(offset: int, count: int) -> None:
        if offset:
            gate.wait()

    broker.change = wait
    with PullsAhead(broker.pull, end, most_bytes, is_whole=True) as ahead:
        try:
            pulled = ahead.take(0)
            ahead.ask_on(0, pulled, pulled.next_offset)
            yield ahead
        finally:
            gate.set()


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
    with held(broker, 100_000, most_bytes):
        wait_until(lambda: len(broker.asked) == 1 + count)
    assert sorted(broker.asked)[1:] == [(32 * (1 + n), 32) for n in range(count)]


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
    pieces = ((b, m) for first in range(32, 960, 32) for b, m in ((first, 8), (first + 8, 24)))
    assert found == [(0, 32), *((begin, begin + count) for begin, count in pieces)]
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
    with PullsAhead(broker.pull, 10_000, BATCH, is_whole=True) as ahead:
        while offset < 500:
            pulled = ahead.take(offset)
            ahead.ask_on(offset, pulled, pulled.next_offset)
            offset = pulled.next_offset
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
    with PullsAhead(broker.pull, 1_000, BATCH, is_whole=True) as ahead:
        for offset in (0, 32, 64):
            pulled = ahead.take(offset)
            ahead.ask_on(offset, pulled, pulled.next_offset)
        wait_until(lambda: len(broker.asked) > 4)
        with pytest.raises(UnavailableError, match="gone"):
            ahead.take(96)


def test_its_threads_end() -> None:
    broker = Broker()
    with held(broker, 100_000, BATCH) as ahead:
        wait_until(lambda: len(broker.asked) == 1 + MOST_AHEAD)
        ahead.close()
    assert not [thread for thread in ahead._pool._threads if _lives_on(thread)]
    assert len(broker.asked) == 1 + MOST_AHEAD


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

"""What docs/pop.md promises of ordered pops, and histories that are judged by it.

A queue is handed out in its order: the next batch begins with the first message that was not
acknowledged, and not before all of the last batch are acknowledged or visible again. After a kill
it may begin before that one, by what was not saved, and never behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from remoting.headers.extra_info_util import parse_extra_info
from tests.broker.pop.pop_histories import Step
from tests.broker.pop.pop_model import PAUSES_MS, TIMES_MS
from tests.broker.pop.pop_world import NAME, Killed, NoAnswerError, PopWorld
from tests.support.pop_client import PopClient, PoppedMessage

TOPIC, GROUP, QUEUES = "O", "G", 2
_TIMES_MS = TIMES_MS[1:]
"""Invisible ones. A row of 0 ms takes the next request's, as in RocketMQ."""
_ROUNDS = 60
_HELD = 24


@dataclass
class Batch:
    """What was handed out last, by offset: until when it is hidden."""

    pop_time_ms: int
    attempt: str
    until_ms: dict[int, int]


@dataclass
class OrderedQueue:
    """Of one queue: how it must go on."""

    sent: list[bytes] = field(default_factory=list)
    acked: set[int] = field(default_factory=set)
    may_be_acked: set[int] = field(default_factory=set)
    last: Batch | None = None
    is_sure: bool = True
    """Everything that was answered is known to the broker."""
    closed_until_ms: int = 0
    """Whether or not a pop was answered, or a time changed."""

    def first(self, *, may_be: bool = False) -> int:
        """The first message that was not acknowledged."""
        known = self.acked | self.may_be_acked if may_be else self.acked
        return next((at for at in range(len(self.sent)) if at not in known), len(self.sent))

    def is_last(self, handle: PoppedMessage) -> bool:
        """Whether it was handed out with the last batch, and is open."""
        return (
            self.last is not None
            and self.last.pop_time_ms == parse_extra_info(handle.handle).pop_time_ms
            and handle.offset in self.last.until_ms
            and handle.offset not in self.acked
        )

    def handed_out(self, batch: Batch, now_ms: int) -> None:
        offsets = list(batch.until_ms)
        assert offsets == list(range(offsets[0], offsets[-1] + 1)), f"with gaps: {offsets}"
        first = self.first(may_be=True)
        assert offsets[0] <= first, f"{offsets[0]} is handed out before {first}"
        last = self.last
        if self.is_sure and last is not None and batch.attempt != last.attempt:
            assert offsets[0] >= self.first(), f"{offsets[0]} again, all before {first} is acked"
            closed = {
                at: until - now_ms
                for at, until in last.until_ms.items()
                if until > now_ms and at not in self.acked | self.may_be_acked
            }
            assert not closed, f"{offsets} are handed out while others are hidden: {closed}"
        # All of it is open again, whatever of it was acknowledged before.
        again = {at for at in self.acked if at >= offsets[0]}
        self.acked -= again
        self.may_be_acked |= again
        self.last = batch
        self.is_sure = True
        self.closed_until_ms = max(self.closed_until_ms, *batch.until_ms.values())


class OrderedHistory:
    """One history in one world."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.world = PopWorld(root, seed)
        self.world.topic(TOPIC, QUEUES)
        self.queues = [OrderedQueue() for _ in range(QUEUES)]
        self._handles: list[PoppedMessage] = []
        self._attempts = 0

    def run(self, steps: list[Step]) -> None:
        """Raises AssertionError for a promise that is broken."""
        for name, *numbers in steps:
            step: Callable[..., None] = getattr(self, f"_do_{name}")
            try:
                step(*numbers)
            except Killed:
                self._start()
        self.world.disk.fuse = None
        self._finish()

    def close(self) -> None:
        """Give everything back."""
        self.world.close()

    @property
    def now_ms(self) -> int:
        return self.world.clock.now_ms()

    def _start(self) -> None:
        self.world.start()
        for queue in self.queues:
            queue.is_sure = False

    def _client(self) -> PopClient:
        return PopClient(self.world, GROUP, NAME)  # type: ignore[arg-type]

    # -- steps -----------------------------------------------------------------------------------

    def _do_send(self, queue: int, count: int, _c: int) -> None:
        queue %= QUEUES
        for _ in range(count % 3 + 1):
            body = b"%d/%d" % (queue, len(self.queues[queue].sent))
            if self.world.send(TOPIC, queue, body):
                self.queues[queue].sent.append(body)

    def _do_pop(self, which: int, count: int, invisible: int) -> None:
        again = which % 5 == 0
        self._attempts += not again
        queue_id = which % (QUEUES + 1) - 1
        self._pop(queue_id, count % 4 + 1, _TIMES_MS[invisible % len(_TIMES_MS)])

    def _pop(self, queue_id: int, count: int, invisible_ms: int) -> list[PoppedMessage]:
        now_ms, attempt = self.now_ms, f"a{self._attempts}"
        for queue in self.queues:
            queue.closed_until_ms = max(queue.closed_until_ms, now_ms + invisible_ms)
        try:
            found = self._client().pop(
                TOPIC, queueId=queue_id, maxMsgNums=count, invisibleTime=invisible_ms,
                order="true", attemptId=attempt,
            ).messages  # fmt: skip
        except Killed:
            for queue in self.queues:
                queue.is_sure = False
            raise
        for number, queue in enumerate(self.queues):
            mine = [one for one in found if one.queue_id == number]
            if mine:
                until_ms = now_ms + invisible_ms
                assert [one.message.body for one in mine] == [queue.sent[m.offset] for m in mine]
                batch = Batch(now_ms, attempt, dict.fromkeys([m.offset for m in mine], until_ms))
                queue.handed_out(batch, now_ms)
        self._handles += found
        del self._handles[:-_HELD]
        return found

    def _do_ack(self, which: int, _b: int, _c: int) -> None:
        if self._handles:
            self._ack(self._handles[which % len(self._handles)])

    def _ack(self, handle: PoppedMessage) -> None:
        queue, code = self.queues[handle.queue_id], None
        try:
            code = self._client().ack(handle).code
        except NoAnswerError:
            pass
        finally:
            if code == 0 and queue.is_sure and queue.is_last(handle):
                queue.acked.add(handle.offset)
            else:
                queue.may_be_acked.add(handle.offset)

    def _do_change(self, which: int, invisible: int, _c: int) -> None:
        if not self._handles:
            return
        handle = self._handles[which % len(self._handles)]
        invisible_ms = _TIMES_MS[invisible % len(_TIMES_MS)]
        queue, now_ms = self.queues[handle.queue_id], self.now_ms
        queue.closed_until_ms = max(queue.closed_until_ms, now_ms + invisible_ms)
        answer = self.world.call(
            200053, {**self._client().ack_fields(handle), "invisibleTime": invisible_ms}
        )
        if answer.code == 0 and queue.last and queue.is_last(handle):
            queue.last.until_ms[handle.offset] = now_ms + invisible_ms

    def _do_pause(self, length: int, _b: int, _c: int) -> None:
        self._wait(PAUSES_MS[length % len(PAUSES_MS)])

    def _do_fuse(self, count: int, _b: int, _c: int) -> None:
        self.world.disk.fuse = count % 8

    def _do_kill(self, _a: int, _b: int, _c: int) -> None:
        raise Killed

    def _do_stop(self, _a: int, _b: int, _c: int) -> None:
        self.world.stop()
        self.world.start()

    def _do_save(self, _a: int, _b: int, _c: int) -> None:
        """The tables are saved, and the log is not flushed."""
        self.world.offsets.save()
        self.world.order.save_if_changed()

    def _do_power(self, _a: int, _b: int, _c: int) -> None:
        self.world.power_loss()
        ends = [len(self.world.disk.units.get((TOPIC, at), [])) for at in range(QUEUES)]
        for queue, end in zip(self.queues, ends, strict=True):
            queue.may_be_acked = {at for at in queue.acked | queue.may_be_acked if at < end}
            queue.acked, queue.last, queue.sent = set(), None, queue.sent[:end]
        # Another message may be at its place soon.
        self._handles = [one for one in self._handles if one.offset < ends[one.queue_id]]
        self._start()

    # -- the end ---------------------------------------------------------------------------------

    def _wait(self, time_ms: int) -> None:
        while time_ms > 0:
            self.world.clock.advance(min(time_ms, 500))
            time_ms -= 500
            self.world.services()

    def _finish(self) -> None:
        """Everything comes that was not acknowledged, in order, and nothing is left."""
        latest_ms = max(queue.closed_until_ms for queue in self.queues)
        self._wait(max(latest_ms - self.now_ms, 0) + 1)
        for _ in range(_ROUNDS):
            self._attempts += 1
            found = self._pop(-1, 32, 60_000)
            if not found:
                break
            for handle in found:
                self._ack(handle)
        for queue_id, queue in enumerate(self.queues):
            assert queue.first(may_be=True) == len(queue.sent), f"queue {queue_id}: lost"
            if queue.sent:
                offset = self.world.offsets.query_offset(GROUP, TOPIC, queue_id)
                assert offset == len(queue.sent), f"queue {queue_id}: offset {offset}"


WEIGHTS = {"send": 12, "pop": 24, "ack": 24, "change": 8, "pause": 10, "fuse": 4, "kill": 2}
WEIGHTS |= {"stop": 1, "save": 2, "power": 1}

"""What docs/pop.md promises, as a list of messages; and histories that are judged by it.

A history is a list of steps (name and three numbers), each of which does something or, where there
is nothing to do it to, nothing: any part of a history is one, so that a failing one can be cut
down. Kills come between steps, and between any two things within one that outlive a process.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from remoting.headers.extra_info_util import parse_extra_info
from store.message_codec import decode_record
from tests.broker.pop.pop_histories import Step
from tests.broker.pop.pop_world import NAME, Killed, NoAnswerError, PopWorld
from tests.support.pop_client import PopClient, PoppedMessage

TOPIC, QUEUES = "T", 2
TAGS = ("a", "b")
GROUPS = {"G": "*", "H": "a"}
"""And what they want."""
TIMES_MS = (0, 1, 900, 2_000, 5_000, 12_000, 30_000, 60_000)
"""Invisible ones."""
PAUSES_MS = (1, 20, 500, 1_000, 3_000, 11_000)
LATE_MS = 3_000
"""A message is visible again at most so much later than promised, if somebody looks: a slot of the
timer, and the looks."""
_ROUNDS = 40
_HELD = 64


@dataclass
class Fate:
    """Of a message in a group."""

    handle: PoppedMessage | None = None
    """What it was handed out with last."""
    hidden_until_ms: int = 0
    longest_ms: int = 0
    """The latest time that was promised, whatever was promised after it."""
    is_acked: bool = False
    """In time, and the answer was 0."""
    may_be_acked: bool = False
    """The answer did not come, or the time was over."""
    may_come_twice: bool = False
    """The docs allow it: power was lost, an answer did not come, or a client renewed what it did
    not have any more."""
    times: int = 0
    """It was handed out."""


@dataclass
class Model:
    """See the module."""

    messages: dict[bytes, tuple[int, str]] = field(default_factory=dict)
    """Queue and tag of each that is stored."""
    fates: dict[tuple[str, bytes], Fate] = field(default_factory=dict)
    unanswered_until_ms: int = 0
    """When what an unanswered pop may have taken is visible again."""

    def fate(self, group: str, body: bytes) -> Fate:
        return self.fates.setdefault((group, body), Fate())

    def check_visible(self, group: str, body: bytes, now_ms: int) -> None:
        """It may be handed out, or looked at."""
        assert body in self.messages, f"{body!r} was never sent"
        fate = self.fate(group, body)
        if not fate.may_come_twice:
            assert not fate.is_acked, f"{group} acknowledged {body!r}, and it came again"
            assert fate.hidden_until_ms <= now_ms, (
                f"{group} has {body!r} for {fate.hidden_until_ms - now_ms} ms more"
            )

    def handed_out(self, group: str, popped: PoppedMessage, now_ms: int) -> None:
        body = popped.message.body
        self.check_visible(group, body, now_ms)
        fate = self.fate(group, body)
        assert GROUPS[group] in ("*", self.messages[body][1]), f"{group} does not want {body!r}"
        info = parse_extra_info(popped.handle)
        if fate.handle is None or not fate.may_come_twice:
            fate.is_acked = False
        fate.handle = popped
        fate.hidden_until_ms = info.pop_time_ms + info.invisible_time_ms
        fate.longest_ms = max(fate.longest_ms, fate.hidden_until_ms)
        fate.times += 1

    def acked(self, group: str, handle: PoppedMessage, code: int | None, now_ms: int) -> None:
        """code: None without an answer."""
        fate = self.fate(group, handle.message.body)
        if code == 0 and fate.handle is handle and now_ms < fate.hidden_until_ms:
            fate.is_acked = True
        elif fate.handle is handle or fate.may_come_twice:
            fate.may_be_acked = True
        # Else it is of an earlier pop, and says nothing about this one.

    def changed(
        self,
        group: str,
        handle: PoppedMessage,
        new: PoppedMessage | None,
        now_ms: int,
        asked_ms: int,
    ) -> None:
        """new: None without a good answer. asked_ms: the invisible time."""
        fate = self.fate(group, handle.message.body)
        in_time = fate.handle is handle and now_ms < fate.hidden_until_ms and not fate.is_acked
        if new is None or not in_time:
            fate.may_come_twice = True
            fate.may_be_acked |= fate.is_acked
            fate.hidden_until_ms = max(fate.hidden_until_ms, now_ms + asked_ms + 1)
        if new is not None:
            info = parse_extra_info(new.handle)
            until_ms = info.pop_time_ms + info.invisible_time_ms
            fate.longest_ms = max(fate.longest_ms, until_ms)
            fate.handle = new
            fate.hidden_until_ms = until_ms if in_time else max(fate.hidden_until_ms, until_ms)

    def power_lost(self) -> None:
        """The offsets stand before what was only in memory: it comes again. So does what was
        renewed for a shorter time, when its longer one is over, if only that is on the disk."""
        for fate in [self.fate(group, body) for group in GROUPS for body in self.messages]:
            fate.hidden_until_ms = max(fate.hidden_until_ms, fate.longest_ms)
            fate.may_come_twice = True
            fate.may_be_acked |= fate.is_acked

    def was_reset(self, group: str, body: bytes, *, passed: bool) -> None:
        """The group's offset was set behind this message, or to it or before it."""
        fate = self.fate(group, body)
        fate.may_come_twice = True
        fate.may_be_acked |= passed or fate.is_acked

    def wanted(self, group: str) -> list[bytes]:
        want = GROUPS[group]
        return [body for body, (_queue, tag) in self.messages.items() if want in ("*", tag)]

    def lost(self, group: str) -> list[bytes]:
        """What was neither acknowledged nor may have been."""
        return [
            body
            for body in self.wanted(group)
            if not self.fate(group, body).is_acked and not self.fate(group, body).may_be_acked
        ]


class History:
    """One history in one world."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.world = PopWorld(root, seed)
        self.world.topic(TOPIC, QUEUES)
        self.model = Model()
        self._numbers = 0
        self._handles: list[tuple[str, PoppedMessage]] = []

    def run(self, steps: list[Step]) -> None:
        """Raises AssertionError for a promise that is broken."""
        for name, *numbers in steps:
            step: Callable[..., None] = getattr(self, f"_do_{name}")
            try:
                step(*numbers)
            except Killed:
                self._start(numbers[2] % 20)
        self.world.disk.fuse = None
        self.finish()

    def close(self) -> None:
        """Give everything back."""
        self.world.close()

    @property
    def now_ms(self) -> int:
        return self.world.clock.now_ms()

    def _start(self, fuse: int | None = None) -> None:
        try:
            self.world.start(fuse)
        except Killed:
            self.world.start()

    def _client(self, group: str) -> PopClient:
        return PopClient(self.world, group, NAME)  # type: ignore[arg-type]

    def _held(self, number: int) -> tuple[str, PoppedMessage] | None:
        return self._handles[number % len(self._handles)] if self._handles else None

    # -- steps -----------------------------------------------------------------------------------

    def _do_send(self, queue: int, tag: int, count: int) -> None:
        for _ in range(count % 4 + 1):
            body = b"%d" % self._numbers
            self._numbers += 1
            place = queue % QUEUES, TAGS[tag % len(TAGS)]
            if self.world.send(TOPIC, place[0], body, place[1]):
                self.model.messages[body] = place

    def _do_pop(self, who: int, count: int, invisible: int) -> None:
        group = list(GROUPS)[who % len(GROUPS)]
        queue = who // len(GROUPS) % (QUEUES + 1) - 1
        self._pop(group, queue, count % 5 + 1, TIMES_MS[invisible % len(TIMES_MS)])

    def _pop(self, group: str, queue: int, count: int, invisible_ms: int) -> list[PoppedMessage]:
        now_ms = self.now_ms
        try:
            found = self._client(group).pop(
                TOPIC, queueId=queue, maxMsgNums=count, invisibleTime=invisible_ms,
                exp=GROUPS[group],
            ).messages  # fmt: skip
        except Killed:
            until_ms = now_ms + invisible_ms
            self.model.unanswered_until_ms = max(self.model.unanswered_until_ms, until_ms)
            raise
        assert len(found) <= count
        for popped in found:
            self.model.handed_out(group, popped, now_ms)
            self._handles.append((group, popped))
        del self._handles[:-_HELD]
        return found

    def _do_ack(self, which: int, _b: int, _c: int) -> None:
        held = self._held(which)
        if held is not None:
            self._ack(*held)

    def _ack(self, group: str, handle: PoppedMessage) -> None:
        code, now_ms = None, self.now_ms
        try:
            code = self._client(group).ack(handle).code
        except NoAnswerError:
            pass
        finally:
            self.model.acked(group, handle, code, now_ms)

    def _do_batch_ack(self, which: int, count: int, _c: int) -> None:
        """Of all that one pop took from one queue, as far as it is known here: some."""
        held = self._held(which)
        if held is None:
            return
        group, first = held
        of = parse_extra_info(first.handle), first.topic, first.queue_id
        some = {
            one.offset: one
            for name, one in self._handles
            if (name, parse_extra_info(one.handle), one.topic, one.queue_id) == (group, *of)
        }
        chosen = list(some.values())[: count % 4 + 1]
        bits = 0
        for one in chosen:
            bits |= 1 << one.offset - of[0].ck_queue_offset
        entry = {
            "c": group, "t": first.message.topic, "r": of[0].retry, "so": of[0].ck_queue_offset,
            "q": first.queue_id, "rq": of[0].revive_queue_id, "pt": of[0].pop_time_ms,
            "it": of[0].invisible_time_ms,
            "b": base64.b64encode(bits.to_bytes(16, "little").rstrip(b"\0")).decode(),
        }  # fmt: skip
        body = json.dumps({"brokerName": NAME, "acks": [entry]}).encode()
        code, now_ms = None, self.now_ms
        try:
            code = self.world.call(200151, {}, body).code
        except NoAnswerError:
            pass
        finally:
            for one in chosen:
                self.model.acked(group, one, code, now_ms)

    def _do_change(self, which: int, invisible: int, _c: int) -> None:
        held = self._held(which)
        if held is None:
            return
        group, handle = held
        new, now_ms, asked_ms = None, self.now_ms, TIMES_MS[invisible % len(TIMES_MS)]
        try:
            new = self._client(group).change(handle, asked_ms)
        except (NoAnswerError, AssertionError):
            pass
        finally:
            self.model.changed(group, handle, new, now_ms, asked_ms)
        if new is not None:
            self._handles.append((group, new))

    def _do_forge(self, which: int, how: int, code: int) -> None:
        """A handle that no broker wrote is refused, and nothing happens (else the model would hear
        of it)."""
        held = self._held(which)
        if held is None:
            return
        group, handle = held
        fields = self._client(group).ack_fields(handle)
        parts = handle.handle.split(" ")
        too_late_ms = self.now_ms + 4 * 86_400_000
        place, value = (
            (0, str(handle.offset + 1)), (0, "-1"), (1, "0"), (1, str(too_late_ms)),
            (2, "-1"), (2, str(1 << 62)), (3, "7"), (5, "broker-b"),
        )[how % 8]  # fmt: skip
        parts[place] = value
        fields["extraInfo"] = " ".join(parts)
        request = (200051, 200053)[code % 2]
        answer = self.world.call(request, {**fields, "invisibleTime": 0})
        assert answer.code == 13, answer

    def _do_peek(self, queue: int, _b: int, _c: int) -> None:
        """Who looks changes nothing, and sees nothing that is hidden."""
        fields = {"consumerGroup": "G", "topic": TOPIC, "queueId": queue % (QUEUES + 1) - 1}
        answer = self.world.call(200052, {**fields, "maxMsgNums": 32})
        at, body = 0, answer.body
        while at < len(body):
            message, size = decode_record(body, at)
            self.model.check_visible("G", message.body, self.now_ms)
            at += size

    def _do_pause(self, length: int, _b: int, _c: int) -> None:
        left_ms = PAUSES_MS[length % len(PAUSES_MS)]
        while left_ms > 0:
            step_ms = min(left_ms, 500)
            self.world.clock.advance(step_ms)
            left_ms -= step_ms
            self.world.services()

    def _do_sleep(self, length: int, _b: int, _c: int) -> None:
        """Time goes by, and nobody gets to do anything."""
        self.world.clock.advance(PAUSES_MS[length % len(PAUSES_MS)])

    def _do_idle(self, _a: int, _b: int, _c: int) -> None:
        """Nobody pops for so long that queues are forgotten."""
        self.world.clock.advance(301_000)
        self.world.services()
        for _ in range(2):
            self.world.services()
            self.world.buffer.clean(lambda _topic, _group: True)
            self.world.clock.advance(30_000)

    def _do_flush(self, _a: int, _b: int, _c: int) -> None:
        self.world.flush()
        self.world.services()

    def _do_save(self, _a: int, _b: int, _c: int) -> None:
        """The offsets are saved, and the log is not flushed."""
        self.world.offsets.save()

    def _do_fuse(self, count: int, more: int, _c: int) -> None:
        self.world.disk.fuse = count % 8 if more % 2 else count % 60

    def _do_kill(self, _a: int, _b: int, _c: int) -> None:
        raise Killed

    def _do_stop(self, _a: int, _b: int, _c: int) -> None:
        self._do_room(1, 1, 1)
        self.world.stop()
        self._start()

    def _do_power(self, _a: int, _b: int, _c: int) -> None:
        flushed = self.world.disk.flushed
        log_topic = self.world.disk.units
        self.world.power_loss()
        alive = {
            self.world.log.message_at(TOPIC, queue, number).body
            for queue in range(QUEUES)
            for number in range(len(log_topic.get((TOPIC, queue), [])))
        }
        assert self.world.disk.published == flushed
        self.model.messages = {
            body: place for body, place in self.model.messages.items() if body in alive
        }
        self.model.power_lost()
        # Another message may be at its place soon.
        self._handles = [one for one in self._handles if one[1].message.body in alive]
        self._start()

    def _do_reset(self, who: int, queue: int, offset: int) -> None:
        """An operator sets a group's offset: what is before it counts as consumed, what is behind
        it comes again."""
        group, queue_id = list(GROUPS)[who % len(GROUPS)], queue % QUEUES
        end = self.world.log.offsets(TOPIC, queue_id)[1]
        offset %= end + 1
        self.world.offsets.resets[group, TOPIC, queue_id] = offset
        self.world.offsets.table[group, TOPIC, queue_id] = offset
        for at in range(end):
            body = self.world.log.message_at(TOPIC, queue_id, at).body
            self.model.was_reset(group, body, passed=at < offset)
        self.world.follow_reset(TOPIC, group, queue_id)

    def _do_room(self, has_room: int, writable: int, _c: int) -> None:
        """The log takes nothing for a while, in one of two ways."""
        self.world.appends.has_room = bool(has_room % 3)
        self.world.log.writable = bool(writable % 3)
        if self.world.log.writable:
            self.world.turn()

    # -- the end ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """Everything comes that was not acknowledged, in its time, and nothing else."""
        self._do_room(1, 1, 1)
        latest_ms = max(
            [self.model.unanswered_until_ms]
            + [fate.hidden_until_ms for fate in self.model.fates.values()]
        )
        self._wait(max(latest_ms - self.now_ms, 0) + LATE_MS)
        late = {}
        for group in GROUPS:
            self._drain(group)
            late[group] = self.model.lost(group)
        for _ in range(3):
            self._wait(max(TIMES_MS) + LATE_MS)
            for group in GROUPS:
                self._drain(group)
        lost = {group: self.model.lost(group) for group in GROUPS}
        assert not any(lost.values()), f"lost: {lost}"
        assert not any(late.values()), f"late: {late}"
        self._check_offsets()

    def _check_offsets(self) -> None:
        """All is settled, so each group's offset is behind all that it was given."""
        self._wait(2_000)
        for group in GROUPS:
            for queue in range(QUEUES):
                end = self.world.log.offsets(TOPIC, queue)[1]
                offset = self.world.offsets.query_offset(group, TOPIC, queue)
                assert offset == end, f"{group} in queue {queue}: {offset} of {end}"

    def _wait(self, time_ms: int) -> None:
        while time_ms > 0:
            self.world.clock.advance(min(time_ms, 500))
            time_ms -= 500
            self.world.services()

    def _drain(self, group: str) -> None:
        """Pop and acknowledge until nothing comes."""
        for _ in range(_ROUNDS):
            found = self._pop(group, -1, 32, 60_000)
            if not found:
                return
            for popped in found:
                self._ack(group, popped)
        raise AssertionError("it never ends")


WEIGHTS = {
    "send": 12, "pop": 24, "ack": 16, "batch_ack": 6, "change": 10, "forge": 2, "peek": 2,
    "pause": 14, "sleep": 4, "flush": 4, "fuse": 5, "kill": 2, "stop": 1, "power": 1, "room": 3,
    "reset": 1, "idle": 1, "save": 1,
}  # fmt: skip

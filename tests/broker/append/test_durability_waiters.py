"""DurabilityWaiters: flush and replicas joined, in offset order, with time-outs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.append.durability_waiters import DurabilityWaiters, EncodedAnswer, SendAnswer
from remoting.connection import FRAME_HEAD
from remoting.remoting_codec import FrameDecoder
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.response_code import ResponseCode

OK, FLUSH_TIMEOUT, NO_SLAVE, SLAVE_TIMEOUT = 0, 10, 11, 12


class Target:
    def __init__(self) -> None:
        self.sent: list[RemotingCommand] = []

    def send_command(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    def take(self) -> list[tuple[int, int]]:
        """(opaque, code) of what came since the last call."""
        sent, self.sent = self.sent, []
        return [(command.opaque, command.code) for command in sent]


class World:
    def __init__(self, *, flush: bool = False, replicas: bool = False) -> None:
        self.target = Target()
        self.waiters = DurabilityWaiters(
            waits_for_flush=flush,
            waits_for_replicas=replicas,
            sync_flush_timeout_ms=5000,
            slave_timeout_ms=3000,
            stats=self,
        )
        self.counted: list[tuple[int | None, int, int, int, int | None]] = []
        """(request code, code, waited ms, count, acknowledged after ms)"""
        self.waiters.replicas_available = True
        self.set_now(1000)

    def set_now(self, now_ms: int) -> None:
        self.waiters.now_ms, self.waiters.now_ns = now_ms, now_ms * 1_000_000

    def waited(
        self,
        request_code: int | None,
        code: int,
        waited_ns: int,
        count: int,
        *,
        acked_ns: int | None,
    ) -> None:
        """DurabilityStats."""
        acked_ms = None if acked_ns is None else acked_ns // 1_000_000
        self.counted.append((request_code, int(code), waited_ns // 1_000_000, count, acked_ms))

    @property
    def acked_ms(self) -> list[int | None]:
        """Of each answer, in their order."""
        return [acked for *_, count, acked in self.counted for _ in range(count)]

    def add(self, end: int, opaque: int = 1) -> None:
        answer = SendAnswer(self.target, opaque, SerializeType.JSON, {"queueId": "0"})
        self.waiters.add(end, answer, 310)

    def release(
        self, flushed: int = 0, replicated: int = 0, now_ms: int = 1000
    ) -> list[tuple[int, int]]:
        self.waiters.release(flushed, replicated, now_ms * 1_000_000)
        return self.target.take()


@pytest.mark.parametrize(
    ("flush", "replicas", "active"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
def test_who_has_anything_to_wait_for(flush: bool, replicas: bool, active: bool) -> None:
    assert World(flush=flush, replicas=replicas).waiters.active is active


@pytest.mark.parametrize(
    ("flush", "replicas", "flushed", "replicated", "answered"),
    [
        (True, False, 99, 0, False),
        (True, False, 100, 0, True),
        (True, False, 101, 0, True),
        (False, True, 0, 99, False),
        (False, True, 0, 100, True),
        (True, True, 100, 99, False),
        (True, True, 99, 100, False),
        (True, True, 100, 100, True),
    ],
)
def test_conditions(
    flush: bool, replicas: bool, flushed: int, replicated: int, answered: bool
) -> None:
    world = World(flush=flush, replicas=replicas)
    world.add(100)
    assert world.waiters.can_release(flushed, replicated) is answered
    assert world.release(flushed, replicated) == ([(1, OK)] if answered else [])
    assert len(world.waiters) == (0 if answered else 1)


@pytest.mark.parametrize(
    ("flush", "replicas", "flushed", "replicated", "now_ms", "code"),
    [
        (True, False, 0, 0, 5999, None),
        (True, False, 0, 0, 6000, FLUSH_TIMEOUT),
        (False, True, 0, 0, 3999, None),
        (False, True, 0, 0, 4000, SLAVE_TIMEOUT),
        (True, True, 0, 0, 4000, None),
        (True, True, 100, 0, 4000, SLAVE_TIMEOUT),
        (True, True, 0, 0, 6000, SLAVE_TIMEOUT),
        (True, True, 0, 100, 6000, FLUSH_TIMEOUT),
    ],
)
def test_time_outs_and_which_failure_counts(
    flush: bool, replicas: bool, flushed: int, replicated: int, now_ms: int, code: int | None
) -> None:
    """A replica's failure overrides the flush's; the message stays stored whatever the code."""
    world = World(flush=flush, replicas=replicas)
    world.add(100)
    expected = [] if code is None else [(1, code)]
    assert world.release(flushed, replicated, now_ms) == expected


def test_without_replicas_the_answer_is_11_at_once() -> None:
    world = World(replicas=True)
    world.waiters.replicas_available = False
    world.add(100)
    assert world.release() == [(1, NO_SLAVE)]
    world = World(flush=True, replicas=True)
    world.waiters.replicas_available = False
    world.add(100)
    assert world.release(flushed=0) == []
    assert world.release(flushed=100) == [(1, NO_SLAVE)]


def test_answers_leave_in_offset_order() -> None:
    world = World(flush=True)
    for opaque in range(10):
        world.add(100 + opaque, opaque)
    assert world.waiters.last_offset == 109
    assert world.release(99) == []
    assert world.release(104) == [(opaque, OK) for opaque in range(5)]
    assert world.release(104) == []
    assert world.release(1000) == [(opaque, OK) for opaque in range(5, 10)]
    assert (len(world.waiters), world.waiters.last_offset) == (0, 0)
    assert not world.waiters.can_release(1 << 60, 1 << 60)


def test_the_answer_carries_its_fields_and_form() -> None:
    world = World(flush=True)
    fields = {"queueId": "3", "msgId": "X"}
    world.waiters.add(10, SendAnswer(world.target, 77, SerializeType.ROCKETMQ, fields), 10)
    world.waiters.release(10, 0, 0)
    (answer,) = world.target.sent
    assert answer.is_response
    assert (answer.opaque, answer.serialize_type, answer.ext_fields, answer.remark) == (
        77,
        SerializeType.ROCKETMQ,
        fields,
        None,
    )


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 50)),
        st.tuples(st.just("flush"), st.integers(0, 60)),
        st.tuples(st.just("replicate"), st.integers(0, 60)),
        st.tuples(st.just("time"), st.integers(0, 2500)),
    ),
    max_size=60,
)


@settings(max_examples=80)
@given(flush=st.booleans(), steps=_steps)
def test_nobody_is_told_ok_too_early_nor_forgotten(
    flush: bool, steps: list[tuple[str, int]]
) -> None:
    world = World(flush=flush, replicas=True)
    end = flushed = replicated = added = 0
    now_ms = 1000
    ends: dict[int, tuple[int, int]] = {}
    acked_ms: dict[int, int] = {}
    wanted_ms: list[int | None] = []
    told: list[int] = []
    for kind, amount in steps:
        if kind == "add":
            end, added = end + amount, added + 1
            ends[added] = (end, now_ms)
            world.add(end, added)
        elif kind == "flush":
            flushed = min(flushed + amount, end)
        elif kind == "replicate":
            replicated = min(replicated + amount, end)
        else:
            now_ms += amount
        world.set_now(now_ms)
        for opaque, (need, since) in ends.items():
            if need <= replicated:
                acked_ms.setdefault(opaque, now_ms - since)
        for opaque, code in world.release(flushed, replicated, now_ms):
            told.append(opaque)
            need, since = ends[opaque]
            wanted_ms.append(acked_ms[opaque] if code in (OK, FLUSH_TIMEOUT) else None)
            if code == OK:
                assert not flush or need <= flushed
                assert need <= replicated
            else:
                assert now_ms >= since + (5000 if code == FLUSH_TIMEOUT else 3000)
    assert told == list(range(1, len(told) + 1))
    assert world.acked_ms == wanted_ms
    told += [opaque for opaque, _ in world.release(1 << 60, 1 << 60, now_ms)]
    assert told == list(range(1, added + 1))
    assert sum(count for *_, count, _ in world.counted) == added


def test_answers_are_counted_by_turn_and_code() -> None:
    """Those that came together, were acknowledged together and get one answer: at once, with the
    time that they waited."""
    world = World(flush=True, replicas=True)
    for end in (10, 20, 30):
        world.add(end)
    world.set_now(1400)
    world.add(40)
    world.waiters.add(50, SendAnswer(world.target, 1, SerializeType.JSON, {}), 10)
    world.release(flushed=20, replicated=60, now_ms=1500)
    assert world.counted == [(310, OK, 500, 2, 500)]
    world.release(flushed=60, replicated=60, now_ms=1700)
    assert world.counted[1:] == [
        (310, OK, 700, 1, 500),
        (310, OK, 300, 1, 100),
        (10, OK, 300, 1, 100),
    ]


def test_an_acknowledgement_takes_no_longer_because_of_the_disk() -> None:
    """Both are waited for: the replicas have two of three after 1 ms, the third after 2; the disk
    takes 400. Whoever comes next begins anew."""
    world = World(flush=True, replicas=True)
    for end in (10, 20, 30):
        world.add(end)
    assert world.release(flushed=0, replicated=20, now_ms=1001) == []
    assert world.release(flushed=0, replicated=30, now_ms=1002) == []
    assert world.release(flushed=30, replicated=30, now_ms=1400) == [(1, OK)] * 3
    assert world.counted == [(310, OK, 400, 2, 1), (310, OK, 400, 1, 2)]
    world.set_now(2000)
    world.add(40)
    assert world.release(flushed=40, replicated=30, now_ms=2003) == []
    assert world.release(flushed=40, replicated=40, now_ms=2007) == [(1, OK)]
    assert world.counted[2:] == [(310, OK, 7, 1, 7)]


def test_what_counts_as_acknowledged() -> None:
    """Not what the replicas had not in time, whatever the disk says; a late disk takes nothing
    away; without replicas there is nothing to acknowledge."""
    world = World(flush=True, replicas=True)
    for end in (10, 20):
        world.add(end)
    world.release(replicated=10, now_ms=1005)
    assert world.release(replicated=10, now_ms=6000) == [(1, FLUSH_TIMEOUT), (1, SLAVE_TIMEOUT)]
    assert world.acked_ms == [5, None]
    world = World(flush=True)
    world.add(10)
    world.release(flushed=10, now_ms=1005)
    assert world.acked_ms == [None]


def test_time_outs_are_counted_as_such() -> None:
    world = World(replicas=True)
    world.add(10)
    world.waiters.replicas_available = False
    world.add(20)
    assert world.release(now_ms=2000) == []
    assert world.release(now_ms=4000) == [(1, SLAVE_TIMEOUT), (1, NO_SLAVE)]
    assert [(code, count) for _, code, _, count, _ in world.counted] == [
        (SLAVE_TIMEOUT, 1),
        (NO_SLAVE, 1),
    ]


class Frames:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


@pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT])
def test_an_encoded_answer_carries_the_code_that_came_out(code: ResponseCode) -> None:
    header = b'{"code":0,"extFields":{"queueId":"3"},"flag":1,"opaque":77}'
    frames = Frames()
    EncodedAnswer(frames, FRAME_HEAD.pack(4 + len(header), len(header)) + header).send(code)
    decoder = FrameDecoder()
    decoder.feed(b"".join(frames.written))
    command = decoder.next_command()
    assert command is not None
    assert (command.code, command.opaque, command.ext_fields["queueId"]) == (code, 77, "3")

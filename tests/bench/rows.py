"""The table of bin/bench compare: which loads, in which broker, with which goals.

Data only. Rows of one setup run in one start of the broker, in this order, but for those that start
their brokers themselves (alone.py). TABLE names those of `bin/bench compare --table`.
"""

from __future__ import annotations

from typing import Final

from tests.bench import idle
from tests.bench.alone import FirstUse, IdleClients, PopAck, SyncMaster
from tests.bench.goals import Goal
from tests.bench.measuring import COMPILED, JAVA, JAVA_5, KINDS, SOURCES
from tests.bench.memory_budget import GOAL_MIB
from tests.bench.session import Setup
from tests.bench.shapes import (
    TAGS,
    Boot,
    ClientSend,
    IdleMemory,
    LongPoll,
    OpenLoop,
    Pull,
    Send,
    Shape,
    Stream,
)

SETUPS: Final = {
    setup.name: setup
    for setup in (
        Setup("plain"),
        Setup("open"),
        Setup("filter", settings={"enablePropertyFilter": "true"}),
        Setup("sync-flush", settings={"flushDiskType": "SYNC_FLUSH"}, counts_syncs=True),
        Setup("acl", guard="acl"),
        Setup("tls", guard="tls"),
        Setup("client", has_name_server=True),
        *(Setup(name, is_alone=True) for name in ("pop", "sync-master", "idle", "first-use")),
        Setup("boot", warms_up=False),
    )
}

TABLE: Final = (
    *("send-1x1-128", "send-16x1-128", "send-4x64-128", "send-4x64-1024"),
    *("pull-32-128", "pull-32-1024", "pull-tag-1of10", "binary-4x64-128", "transaction-4x64-128"),
    *("pop-1", "pop-32", "longpoll-1000", "e2e-5000", "e2e-busy-5000", "sync-master-1x1"),
    *("client-java-1", "clients-5000", "memory-idle", "first-use"),
)


def _by_kind(
    figure: str, compiled: float, sources: float | None = None, anchor: str = JAVA
) -> tuple[Goal, ...]:
    """A ratio that compiled modules have to reach, and another one for the sources, or none."""
    goals = (Goal(figure, compiled, kinds=(COMPILED,), anchor=anchor),)
    if sources is None:
        return goals
    return (*goals, Goal(figure, sources, kinds=(SOURCES,), anchor=anchor))


_OF_LIMIT: Final = Goal("of_limit", 0.8, of_ratio=False)
_SEND_128: Final = Send(
    name="send-4x64-128",
    conns=4,
    inflight=64,
    body=128,
    total=400_000,
    goals=(*_by_kind("msg_per_s", 3.5, 2.3), Goal("cpu_us", 0.4), _OF_LIMIT),
)
_SEND_1024: Final = Send(
    name="send-4x64-1024",
    conns=4,
    inflight=64,
    body=1024,
    total=300_000,
    goals=(*_by_kind("msg_per_s", 3.0, 2.3), Goal("cpu_us", 0.4), _OF_LIMIT),
)
_OF_KINDS: Final = Send(
    name="filtered",
    conns=4,
    inflight=64,
    body=128,
    total=400_000,
    options=(f"kinds={TAGS}",),
)
_PULL_GOALS: Final = (Goal("cpu_us", 0.3), _OF_LIMIT)
_OPEN_GOALS: Final = (Goal("p50_us", 0.5), Goal("p99_us", 0.3), Goal("p999_us", 0.3))
_TAIL_GOALS: Final = (Goal("p99_us", 1.0), Goal("p999_us", 1.0))
_BUSY_GOALS: Final = (Goal("p50_us", 1.0), *_TAIL_GOALS)
_MIB_GOALS: Final = tuple(Goal(name, GOAL_MIB, of_ratio=False) for name in ("mib", "rss_mib"))
_LONGEST_DELAY: Final = "delay=18"  # two hours: no delivery falls into the row


def _batch(body: int, total: int) -> Send:
    return Send(
        name=f"batch-16-{body}",
        conns=4,
        inflight=16,
        body=body,
        total=total,
        batch=16,
        goals=(Goal("msg_per_s", 1.5),),
    )


def _variant(name: str, option: str, goals: tuple[Goal, ...]) -> Send:
    return Send(
        name=name,
        conns=4,
        inflight=64,
        body=128,
        total=100_000,
        options=(option,),
        goals=goals,
    )


def _guarded(guard: str, *sides: str) -> Send:
    return Send(
        name=f"{guard}-4x64-128",
        setup=guard,
        conns=4,
        inflight=64,
        body=128,
        total=200_000,
        beside=_SEND_128.name,
        goals=(Goal("msg_per_s", 1.5),),
        sides=(*KINDS, *sides),
    )


def _open(rate: int) -> OpenLoop:
    return OpenLoop(
        name=f"open-{rate}", setup="open", rate=rate, body=1024, seconds=60, goals=_OPEN_GOALS
    )


def _busy(rate: int) -> OpenLoop:
    return OpenLoop(
        name=f"busy-{rate}",
        setup="open",
        rate=rate,
        body=1024,
        seconds=60,
        busy=2,
        goals=_BUSY_GOALS,
    )


def _filtered(name: str, expression: str, goals: tuple[Goal, ...]) -> Pull:
    return Pull(
        name=name,
        setup="filter",
        source=_OF_KINDS,
        expression=expression,
        goals=goals,
    )


def _client(
    language: str, threads: int, total: int, goals: tuple[Goal, ...] = (Goal("msg_per_s", 1.5),)
) -> ClientSend:
    return ClientSend(
        name=f"client-{language}-{threads}",
        setup="client",
        language=language,
        threads=threads,
        body=128,
        total=total,
        goals=goals,
    )


def _pop(batch: int, messages: int, goal: float) -> PopAck:
    return PopAck(
        name=f"pop-{batch}",
        setup="pop",
        batch=batch,
        messages=messages,
        sides=(*KINDS, JAVA_5),
        goals=_by_kind("msg_per_s", goal, anchor=JAVA_5),
    )


def _stream(name: str, busy: int, goal: float) -> Stream:
    return Stream(
        name=name,
        setup="client",
        rate=5_000,
        body=1024,
        seconds=60,
        busy=busy,
        goals=(
            *_by_kind("p50_us", goal),
            *_TAIL_GOALS,
            *(Goal("publish_p50_us", 1.0), Goal("publish_p99_us", 1.0)),
        ),
    )


def all_rows(boot_gb: float) -> list[Shape]:
    """All of them, boots on a store of `boot_gb` GB."""
    return [
        Send(
            name="send-1x1-128",
            conns=1,
            inflight=1,
            body=128,
            total=20_000,
            goals=(
                *_by_kind("p50_us", 0.5, 0.55),
                *_by_kind("cpu_us", 0.25),
                Goal("msg_per_s", 2.0),
            ),
        ),
        Send(
            name="send-16x1-128",
            conns=16,
            inflight=1,
            body=128,
            total=100_000,
            goals=_by_kind("msg_per_s", 2.5, 2.2),
        ),
        _SEND_128,
        _SEND_1024,
        Pull(
            name="pull-32-128", source=_SEND_128, goals=(*_by_kind("msg_per_s", 2.5), *_PULL_GOALS)
        ),
        Pull(
            name="pull-32-1024",
            source=_SEND_1024,
            goals=(*_by_kind("msg_per_s", 2.2), *_PULL_GOALS),
        ),
        Pull(
            name="pull-orderly-32-128",
            source=_SEND_128,
            is_orderly=True,
            goals=(Goal("msg_per_s", 1.5),),
        ),
        _batch(128, 800_000),
        _batch(1024, 400_000),
        _variant("delay-4x64-128", _LONGEST_DELAY, (Goal("msg_per_s", 1.5),)),
        _variant("transaction-4x64-128", "transaction=true", _by_kind("msg_per_s", 2.0, 1.5)),
        _variant("binary-4x64-128", "binary=true", _by_kind("msg_per_s", 1.8, 1.5)),
        IdleMemory(name="memory-idle", goals=_MIB_GOALS),
        _open(5_000),
        _open(20_000),
        _busy(5_000),
        _busy(20_000),
        LongPoll(
            name="longpoll-1000",
            setup="open",
            rate=1_000,
            body=128,
            seconds=30,
            goals=(*_by_kind("p50_us", 0.5), *_by_kind("p99_us", 0.5)),
        ),
        _filtered("pull-tag-1of10", "tag=Tag0", _by_kind("msg_per_s", 2.0)),
        _filtered("pull-sql-1of10", "sql=level < 1", (Goal("msg_per_s", 1.0),)),
        Send(
            name="sync-flush-4x64-128",
            setup="sync-flush",
            conns=4,
            inflight=64,
            body=128,
            total=200_000,
            goals=(Goal("msg_per_s", 1.2),),
        ),
        _guarded("acl", JAVA),  # 5.5.0's accounts are not in this file
        _guarded("tls", JAVA, JAVA_5),
        _client("java", 1, 30_000, _by_kind("msg_per_s", 1.6)),
        _client("java", 16, 100_000),
        _client("java", 64, 100_000),
        _client("go", 16, 100_000),
        _stream("e2e-5000", 0, 0.8),
        _stream("e2e-busy-5000", 2, 1.0),
        _pop(1, 40_000, 2.0),
        _pop(32, 200_000, 3.0),
        SyncMaster(name="sync-master-1x1", setup="sync-master", goals=_by_kind("p50_us", 0.7)),
        IdleClients(
            name="clients-5000",
            setup="idle",
            clients=5_000,
            sides=KINDS,
            is_once=True,
            goals=tuple(idle.GOALS.values()),
        ),
        FirstUse(
            name="first-use",
            setup="first-use",
            sides=(SOURCES,),
            is_once=True,
            goals=(Goal("seconds", 10.0, of_ratio=False, kinds=(SOURCES,)),),
        ),
        Boot(
            name="boot-clean",
            setup="boot",
            gb=boot_gb,
            is_killed=False,
            is_once=True,
            goals=(Goal("seconds", 1.0, of_ratio=False),),
        ),
        Boot(
            name="boot-killed",
            setup="boot",
            gb=boot_gb,
            is_killed=True,
            is_once=True,
            goals=(Goal("seconds", 10.0, of_ratio=False), Goal("seconds", 0.7)),
        ),
    ]

"""The table of bin/bench compare: which loads, in which broker, with which goals.

Data only. Rows of one setup run in one start of the broker, in this order.
"""

from __future__ import annotations

from typing import Final

from tests.bench.goals import Goal
from tests.bench.session import Setup
from tests.bench.shapes import (
    KINDS,
    Boot,
    ClientSend,
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
        Setup("boot", warms_up=False),
    )
}

_OF_LIMIT: Final = Goal("of_limit", 0.8, of_ratio=False)
_SEND_128: Final = Send(
    name="send-4x64-128",
    conns=4,
    inflight=64,
    body=128,
    total=400_000,
    goals=(Goal("msg_per_s", 2.5), Goal("cpu_us", 0.4), _OF_LIMIT),
)
_SEND_1024: Final = Send(
    name="send-4x64-1024",
    conns=4,
    inflight=64,
    body=1024,
    total=300_000,
    goals=(Goal("msg_per_s", 2.3), Goal("cpu_us", 0.4), _OF_LIMIT),
)
_OF_KINDS: Final = Send(
    name="filtered",
    conns=4,
    inflight=64,
    body=128,
    total=400_000,
    options=(f"kinds={KINDS}",),
)
_PULL_GOALS: Final = (Goal("msg_per_s", 2.2), Goal("cpu_us", 0.3), _OF_LIMIT)
_OPEN_GOALS: Final = (Goal("p50_us", 0.5), Goal("p99_us", 0.3), Goal("p999_us", 0.3))
_BUSY_GOALS: Final = (Goal("p50_us", 1.0), Goal("p99_us", 1.0), Goal("p999_us", 1.0))
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


def _variant(name: str, option: str) -> Send:
    return Send(
        name=name,
        conns=4,
        inflight=64,
        body=128,
        total=100_000,
        options=(option,),
        goals=(Goal("msg_per_s", 1.5),),
    )


def _guarded(guard: str) -> Send:
    return Send(
        name=f"{guard}-4x64-128",
        setup=guard,
        conns=4,
        inflight=64,
        body=128,
        total=200_000,
        beside=_SEND_128.name,
        goals=(Goal("msg_per_s", 1.5),),
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


def _filtered(name: str, expression: str, goal: float) -> Pull:
    return Pull(
        name=name,
        setup="filter",
        source=_OF_KINDS,
        expression=expression,
        goals=(Goal("msg_per_s", goal),),
    )


def _client(language: str, threads: int, total: int) -> ClientSend:
    return ClientSend(
        name=f"client-{language}-{threads}",
        setup="client",
        language=language,
        threads=threads,
        body=128,
        total=total,
        goals=(Goal("msg_per_s", 1.5),),
    )


def _stream(name: str, busy: int) -> Stream:
    return Stream(
        name=name,
        setup="client",
        rate=5_000,
        body=1024,
        seconds=60,
        busy=busy,
        goals=(*_BUSY_GOALS, Goal("publish_p50_us", 1.0), Goal("publish_p99_us", 1.0)),
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
            goals=(Goal("msg_per_s", 2.0), Goal("p50_us", 0.5), Goal("cpu_us", 0.3)),
        ),
        Send(
            name="send-16x1-128",
            conns=16,
            inflight=1,
            body=128,
            total=100_000,
            goals=(Goal("msg_per_s", 2.2),),
        ),
        _SEND_128,
        _SEND_1024,
        Pull(name="pull-32-128", source=_SEND_128, goals=_PULL_GOALS),
        Pull(name="pull-32-1024", source=_SEND_1024, goals=_PULL_GOALS),
        Pull(
            name="pull-orderly-32-128",
            source=_SEND_128,
            is_orderly=True,
            goals=(Goal("msg_per_s", 1.5),),
        ),
        _batch(128, 800_000),
        _batch(1024, 400_000),
        _variant("delay-4x64-128", _LONGEST_DELAY),
        _variant("transaction-4x64-128", "transaction=true"),
        _variant("binary-4x64-128", "binary=true"),
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
            goals=(Goal("p50_us", 0.5), Goal("p99_us", 0.5)),
        ),
        _filtered("pull-tag-1of10", "tag=Tag0", 1.5),
        _filtered("pull-sql-1of10", "sql=level < 1", 1.0),
        Send(
            name="sync-flush-4x64-128",
            setup="sync-flush",
            conns=4,
            inflight=64,
            body=128,
            total=200_000,
            goals=(Goal("msg_per_s", 1.2),),
        ),
        _guarded("acl"),
        _guarded("tls"),
        _client("java", 1, 30_000),
        _client("java", 16, 100_000),
        _client("java", 64, 100_000),
        _client("go", 16, 100_000),
        _stream("e2e-5000", 0),
        _stream("e2e-busy-5000", 2),
        Boot(
            name="boot-clean",
            setup="boot",
            gb=boot_gb,
            is_killed=False,
            goals=(Goal("seconds", 1.0, of_ratio=False),),
        ),
        Boot(
            name="boot-killed",
            setup="boot",
            gb=boot_gb,
            is_killed=True,
            goals=(Goal("seconds", 10.0, of_ratio=False), Goal("seconds", 0.7)),
        ),
    ]

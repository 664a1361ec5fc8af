"""What makes a line of a dump good, and the reason that is told of one that is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from spark.dumps.dump_line import BadLineError, decode_line
from tests.spark.dump_lines_builder import T0, Life, Line, replica, sends, sync
from tests.support.every_row import every_row

HOUR_MS = 3_600_000
NULLABLE = {
    *("prev_boot", "prev_seq", "replicas", "metadata"),
    *("unreplicated_bytes", "oldest_unreplicated_ms"),
}
Change = Callable[[Line], Any]


def _without(name: str) -> Change:
    return lambda line: {key: value for key, value in line.items() if key != name}


def _with(**fields: Any) -> Change:
    return lambda line: line | fields


def _row_with(**fields: Any) -> Change:
    return _with(replicas=[replica(state_ms={}), replica("b:2", state_ms={}) | fields])


WHOLE = ": missing, incomplete or of a wrong type"
BAD: dict[str, tuple[Change, str]] = {
    "torn": (lambda line: json.dumps(line)[:-20], "not one JSON object"),
    "two on one line": (lambda line: json.dumps(line) * 2, "not one JSON object"),
    "something behind": (lambda line: json.dumps(line) + " x", "not one JSON object"),
    "an array": (lambda line: json.dumps([line]), "not one JSON object"),
    "nothing": (lambda _: "", "not one JSON object"),
    "single quotes": (lambda line: json.dumps(line).replace('"', "'"), "not one JSON object"),
    "version 3": (_with(v=3), "version 3, this report reads 1 and 2"),
    "version 0": (_with(v=0), "version 0, this report reads 1 and 2"),
    "version 3 that looks different": (
        _with(v=3, ts="now"),
        "version 3, this report reads 1 and 2",
    ),
    "no version": (_without("v"), "v: missing or of a wrong type"),
    "text for a number": (_with(max_offset="5"), "max_offset" + WHOLE),
    "fraction for a number": (_with(max_offset=5.5), "max_offset" + WHOLE),
    "number for a flag": (_with(ready=1), "ready" + WHOLE),
    "negative lag": (_row_with(lag_ms=-1), "replicas: negative"),
    "negative time": (
        _row_with(state_ms={"in_sync": -1, "catching_up": 0, "disconnected": 0}),
        "replicas: negative",
    ),
    "negative exposure": (_with(unreplicated_bytes=-5), "unreplicated_bytes: negative"),
    "a state that is none": (_row_with(state="lost"), "replicas" + WHOLE),
    "more than 64 bits": (_with(max_offset=2**63), "max_offset" + WHOLE),
    "not UTF-8": (lambda line: json.dumps(line).encode() + b"\xff", "not one JSON object"),
    "deep": (lambda _: "[" * 100_000, "not one JSON object"),
    "seq 0": (_with(seq=0), "seq: below 1"),
    "interval 0": (_with(interval_ms=0), "interval_ms: below 1"),
    "a sync counter is missing": (_with(sync={"ok": 1}), "sync" + WHOLE),
    "counts with a hole": (
        _with(ack_latency={"le": [1.0], "counts": [1, None], "sum": 0.0}),
        "ack_latency" + WHOLE,
    ),
    "a boot in the year 10000": (_with(boot_ts=253_402_300_800_000), "boot_ts" + WHOLE),
    "more seconds than can be counted": (
        _with(ack_latency={"le": [1.0], "counts": [1, 1], "sum": 1e300}),
        "ack_latency" + WHOLE,
    ),
    "too few counts": (
        _with(ack_latency={"le": [1.0], "counts": [1], "sum": 0.0}),
        "ack_latency: needs one count more than bounds",
    ),
    "replicas is no list": (_with(replicas=5), "replicas" + WHOLE),
    "a replica is null": (_with(replicas=[None]), "replicas" + WHOLE),
    "a replica lacks its lag": (_row_with(lag_ms=None), "replicas" + WHOLE),
    "a replica's lag is text": (_row_with(lag_ms="7"), "replicas" + WHOLE),
    "a replica's flag is missing": (_row_with(connected=None), "replicas" + WHOLE),
    "a replica lacks a state's time": (_row_with(state_ms={"in_sync": 1}), "replicas" + WHOLE),
    "a replica lacks all times": (_row_with(state_ms=None), "replicas" + WHOLE),
    "a process without a name": (
        _with(processes=[{"up": True, "restarts": 0}]),
        "processes" + WHOLE,
    ),
    "prev_seq is text": (_with(prev_seq="3"), "prev_seq" + WHOLE),
    "metadata lacks failures": (
        _with(metadata=[{"kind": "topics", "age_ms": None}]),
        "metadata" + WHOLE,
    ),
    "an hour too early": (
        _with(ts=T0 - HOUR_MS - 1),
        "ts: more than an hour away from the date of the directory",
    ),
    "an hour too late": (
        _with(ts=T0 + 25 * HOUR_MS),
        "ts: more than an hour away from the date of the directory",
    ),
} | {
    f"no {name}": (_without(name), name + WHOLE)
    for name in Life().line(T0)
    if name not in NULLABLE and name != "v"
}
GOOD: dict[str, Change] = {
    "plain": _with(),
    "unknown fields": _with(news={"a": [1]}),
    "no replicas": _without("replicas"),
    "replicas null": _with(replicas=None),
    "no slave yet": _with(replicas=[]),
    "prev": _with(prev_boot="ab", prev_seq=7),
    "age unknown": _with(metadata=[{"kind": "topics", "age_ms": None, "failures": 0}]),
    "an hour early": _with(ts=T0 - HOUR_MS),
    "an hour late": _with(ts=T0 + 25 * HOUR_MS - 1),
    "no buckets": _with(ack_latency={"le": [], "counts": [3], "sum": 1.5}),
    "offset -1": _row_with(ack_offset=-1),
}


def version_2(line: Line) -> Line:
    """`line` as version 2 of the format has it, of a master with one replica."""
    row = replica(state_ms={}) | {
        "remote": "10.0.0.2:40000",
        "last_error": {"reason": "network: reset", "ts": T0},
        "lag_ms_max": 700,
        "lag_time": [4000, 1000, 0],
    }
    return line | {
        "v": 2,
        "prev_digest": "a" * 64,
        "since": line["mono"] - 5_000,
        "host": "10.0.0.1:10911",
        "exposure": {
            "bytes_at_least": 5,
            "bytes_at_most": 6,
            "ms_at_least": 1,
            "ms_at_most": 2,
            "le": [0, 1024],
            "counts": [3, 4, 0],
        },
        "sends": {
            "ok": 1,
            "flush_disk_timeout": 0,
            "flush_slave_timeout": 2,
            "slave_not_available": 0,
            "refused": 3,
            "latency": {"le": [1.0], "counts": [1, 5], "sum": 9.5},
        },
        "lag_le": [500, 700],
        "replicas": [row],
        "metadata": [{"kind": "topics", "age_ms": 3, "failures": 0, "age_ms_max": 9}],
    }


def _second(change: Change) -> Change:
    return lambda line: change(version_2(line))


def _in_row(**fields: Any) -> Change:
    return _second(
        lambda line: (
            line | {"replicas": [line["replicas"][0], line["replicas"][0] | {"id": "b:2"} | fields]}
        )
    )


def _in(name: str, **fields: Any) -> Change:
    return _second(lambda line: line | {name: line[name] | fields})


def _with_end(**fields: Any) -> Change:
    end = {"boot": "ab" * 8, "uncounted_ms": 64, "sync": sync(), "sends": sends()}
    return _second(lambda line: line | {"ended": end | fields})


BAD |= {
    **{
        f"version 2 without {name}": (_second(_without(name)), name + WHOLE)
        for name in ("since", "host", "sends", "lag_le")
    },
    "version 1 called 2": (_with(v=2), "since" + WHOLE),
    "a digest that is too short": (_second(_with(prev_digest="ab")), "prev_digest" + WHOLE),
    "a digest that is a number": (_second(_with(prev_digest=5)), "prev_digest" + WHOLE),
    "marks from the future": (_second(lambda x: x | {"since": x["mono"] + 1}), "since: after mono"),
    "host is a number": (_second(_with(host=7)), "host" + WHOLE),
    "exposure without a bound": (_in("exposure", bytes_at_most=None), "exposure" + WHOLE),
    "exposure upside down": (
        _in("exposure", bytes_at_least=7),
        "exposure: at_least is above at_most",
    ),
    "exposure's age upside down": (
        _in("exposure", ms_at_least=7),
        "exposure: at_least is above at_most",
    ),
    "exposure with too few counts": (
        _in("exposure", counts=[1, 2]),
        "exposure: needs one count more than bounds",
    ),
    "negative sends": (_in("sends", refused=-1), "sends: negative"),
    "sends without refused ones": (_in("sends", refused=None), "sends" + WHOLE),
    "sends whose latency lacks a count": (
        _in("sends", latency={"le": [1.0], "counts": [1], "sum": 1.0}),
        "sends: latency needs one count more than bounds",
    ),
    "an end without sends": (_with_end(sends=None), "ended" + WHOLE),
    "an end whose latency lacks a count": (
        _with_end(sends=sends(latency={"le": [1.0], "counts": [1], "sum": 1.0})),
        "ended: latency needs one count more than bounds",
    ),
    "a replica without its largest lag": (_in_row(lag_ms_max=None), "lag_ms_max" + WHOLE),
    "a replica without its lags": (_in_row(lag_time=None), "lag_time" + WHOLE),
    "a replica with other lags": (
        _in_row(lag_time=[1, 2]),
        "lag_time: needs one counter more than lag_le has bounds",
    ),
    "an error without its time": (_in_row(last_error={"reason": "x"}), "replicas" + WHOLE),
}
GOOD |= {
    "version 2": version_2,
    "the first line of all": _second(_with(prev_digest=None)),
    "a slave": _second(_with(exposure=None, replicas=[])),
    "never disconnected": _in_row(last_error=None, remote=None),
    "never copied": _second(
        _with(metadata=[{"kind": "topics", "age_ms": None, "failures": 1, "age_ms_max": None}])
    ),
}


def text_of(change: Change) -> bytes:
    changed = change(Life().line(T0 + 5_000))
    if isinstance(changed, bytes):
        return changed
    return (changed if isinstance(changed, str) else json.dumps(changed)).encode()


@every_row("case", BAD)
def test_bad_line(case: str) -> None:
    change, reason = BAD[case]
    with pytest.raises(BadLineError) as caught:
        decode_line(text_of(change), T0)
    assert str(caught.value) == reason


@pytest.mark.parametrize("case", GOOD)
def test_good_line(case: str) -> None:
    assert decode_line(text_of(GOOD[case]), T0).seq == 1


def test_every_field_is_as_in_the_line() -> None:
    line = Life().line(T0 + 5_000, replicas=[replica(lag_ms=7, state_ms={})])
    found = decode_line(json.dumps(line).encode(), T0)
    assert (found.ts, found.mono, found.role) == (T0 + 5_000, line["mono"], "ASYNC_MASTER")
    assert found.replicas is not None
    assert (found.replicas[0].lag_ms, found.replicas[0].state_ms.in_sync) == (7, 0)


def test_every_field_of_version_2_is_as_in_the_line() -> None:
    found = decode_line(text_of(version_2), T0)
    assert (found.v, found.prev_digest, found.host) == (2, "a" * 64, "10.0.0.1:10911")
    assert found.since == found.mono - 5_000
    assert found.exposure is not None
    assert (found.exposure.bytes_at_most, found.exposure.counts) == (6, [3, 4, 0])
    assert found.sends is not None
    assert (found.sends.refused, found.sends.latency.counts) == (3, [1, 5])
    assert found.replicas is not None
    [row] = found.replicas
    assert row.last_error is not None
    assert (row.remote, row.last_error.reason) == ("10.0.0.2:40000", "network: reset")
    assert (row.lag_ms_max, row.lag_time, found.lag_le) == (700, [4000, 1000, 0], [500, 700])
    assert found.metadata is not None
    assert found.metadata[0].age_ms_max == 9


def test_a_line_of_version_1_has_nothing_of_version_2() -> None:
    found = decode_line(text_of(lambda line: version_2(line) | {"v": 1}), T0)
    assert found.v == 1
    assert (found.prev_digest, found.since, found.host, found.lag_le) == (None,) * 4
    assert (found.exposure, found.sends) == (None, None)
    assert found.replicas is not None
    [row] = found.replicas
    assert (row.remote, row.last_error, row.lag_ms_max, row.lag_time) == (None,) * 4
    assert found.metadata is not None
    assert found.metadata[0].age_ms_max is None

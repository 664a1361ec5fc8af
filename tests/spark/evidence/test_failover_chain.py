"""The chain of a group whose brokers change their roles: each life names the broker's own past,
whatever its broker id was then. Lines as docs/metrics_dump.md has them; two hosts, two days.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from spark.evidence.dump_chain import DateLines, Join, join
from tests.spark.dump_lines_builder import T0, Life
from tests.spark.evidence.chained_dumps import dates

D1, D2, _ = dates()
HOUR_MS = 3_600_000


class Host:
    """One broker's process, life after life."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lives = 0
        self.last: dict[str, Any] | None = None
        self.texts: list[bytes] = []

    def lives_as(self, broker_id: int, hours: range, *, knows_past: bool = True) -> None:
        """A line each hour."""
        self.lives += 1
        past = self.last if knows_past else None
        start_ms = T0 + hours[0] * HOUR_MS
        life = Life(start_ms, broker_id=broker_id, boot=f"{self.name}{self.lives:0>15}")
        life.role = "SLAVE" if broker_id else "SYNC_MASTER"
        digest = hashlib.sha256(self.texts[-1]).hexdigest() if past is not None else None
        for hour in hours:
            line = life.line(T0 + hour * HOUR_MS) | {"v": 2, "prev_digest": digest}
            line |= {"prev_boot": past and past["boot"], "prev_seq": past and past["seq"]}
            if past is not None and hour == hours[0]:
                line["ended"] = {"boot": past["boot"], "uncounted_ms": 64, "sync": {"ok": 2}}
            self.texts.append(json.dumps(line).encode())
            self.last, digest = line, hashlib.sha256(self.texts[-1]).hexdigest()


def a_failover(**promoted: bool) -> list[bytes]:
    """The master of host a stops at 05:00 of the second day; host b's slave is promoted, a comes
    back as its slave, and they change once more."""
    a, b = Host("a"), Host("b")
    a.lives_as(0, range(1, 29))
    b.lives_as(1, range(1, 29))
    b.lives_as(0, range(29, 36), **promoted)
    a.lives_as(1, range(30, 36))
    a.lives_as(0, range(36, 46))
    b.lives_as(1, range(37, 46))
    return [*a.texts, *b.texts]


def joins(texts: list[bytes]) -> list[Join]:
    of_dates = {D1: [], D2: []}
    for text in texts:
        is_first = json.loads(text)["ts"] < T0 + 24 * HOUR_MS
        of_dates[D1 if is_first else D2].append(text)
    records = [
        (date, record)
        for date, lines in of_dates.items()
        for record in DateLines([("f", b"".join(line + b"\n" for line in lines))]).records()
    ]
    return list(join(records))


def test_a_failover_breaks_no_chain() -> None:
    assert joins(a_failover()) == []


def test_a_promoted_broker_that_names_no_past_is_named() -> None:
    (found,) = joins(a_failover(knows_past=False))
    assert not found.is_break
    assert "b:0 boot b" in found.text
    assert "names no life before it" in found.text


@pytest.mark.parametrize("what", ["changed", "removed"])
def test_the_last_line_of_the_slave_that_was_promoted(what: str) -> None:
    texts = a_failover()
    place = next(n for n, text in enumerate(texts) if b'"broker_id": 0' in text and b'"b0' in text)
    if what == "removed":
        del texts[place - 1]
    else:
        texts[place - 1] = texts[place - 1].replace(b'"ready": true', b'"ready": false')
    (found,) = joins(texts)
    assert found.is_break
    assert "c/b:1 boot b" in found.text


def test_what_the_old_master_tells_of_its_end_is_in_the_chain() -> None:
    """It comes back as a slave: whoever adds a send that went well there is found."""
    texts = a_failover()
    place = next(n for n, text in enumerate(texts) if b'"ended"' in text)
    assert b'"role": "SLAVE"' in texts[place]
    texts[place] = texts[place].replace(b'"sync": {"ok": 2}}', b'"sync": {"ok": 3}}')
    of_day = [text for text in texts if json.loads(text)["ts"] >= T0 + 24 * HOUR_MS]
    lines = DateLines([("f", b"".join(text + b"\n" for text in of_day))])
    problems = [text for record in lines.records() for text in record.problems]
    assert len(problems) == 1, problems
    assert "boot a" in problems[0]


def test_a_life_that_is_put_behind_a_former_one_of_another_id() -> None:
    """It follows the slave that the promoted master follows."""
    texts = a_failover()
    forged = next(
        json.loads(text) for text in texts if b'"broker_id": 0' in text and b'"b0' in text
    )
    forged |= {"boot": "f" * 16, "broker_id": 3, "ts": T0 + 40 * HOUR_MS}
    found = joins([*texts, json.dumps(forged).encode()])
    assert [each.is_break for each in found] == [True]
    assert "names the same line before it as boot b" in found[0].text

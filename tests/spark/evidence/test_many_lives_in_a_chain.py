"""Lives by the ten thousand, as somebody may write them into a dump: `mqreport verify` takes as
long as there are lines, not as there are pairs of lives."""

from __future__ import annotations

import datetime

import pytest

from spark.evidence.dump_chain import LifeRecord, join
from spark.evidence.file_chain import Life
from spark.reported_day import midnight_ms

DATE = datetime.date(2026, 3, 10)
MANY = 30_000


def record(life: Life, prev_boot: str | None) -> tuple[datetime.date, LifeRecord]:
    found = LifeRecord(
        life=life,
        boot_ts=midnight_ms(DATE) + 1,
        first_seq=1,
        last_seq=1,
        lines=1,
        unchained=0,
        last_digest="a" * 64,
        lines_digest="b" * 64,
        prev_digest="a" * 64 if prev_boot else None,
        prev_boot=prev_boot,
        prev_seq=1 if prev_boot else None,
    )
    return DATE, found


@pytest.mark.timeout(20)
def test_one_boot_under_many_broker_ids() -> None:
    """All the others name that boot: all but one of them is an edit."""
    one = "5d" * 8
    records = [record(Life("c", "b", number, one), None) for number in range(MANY)]
    records += [
        record(Life("c", "b", MANY + number, f"{number:016x}"), one) for number in range(MANY)
    ]
    breaks = [each for each in join(records) if each.is_break]
    assert len(breaks) == MANY - 1

"""tools.chaos.honesty: what brokers hold is read from their log files, when SEND_OK comes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.plain_log import PlainLog
from tools.chaos.ack_log import SEND_OK, Ack, make_body
from tools.chaos.honesty import HonestyJudge
from tools.chaos.scratch_group import ScratchBroker

SIZE = 1 << 14
COUNT = 40


def broker(directory: Path) -> ScratchBroker:
    return ScratchBroker(directory.name, directory, {"mappedFileSizeCommitLog": SIZE})


@pytest.fixture
def brokers(tmp_path: Path) -> list[ScratchBroker]:
    """Three, of which each has twenty messages less than the one before."""
    log = PlainLog(tmp_path / "master" / "store" / "commitlog", SIZE)
    bodies = [make_body(0, number, 500) for number in range(COUNT)]
    for body in bodies:
        log.append(body)
    found = [broker(tmp_path / name) for name in ("master", "slave", "slave2")]
    for number, each in enumerate(found[1:], 1):
        shutil.copytree(log.directory, each.store / "commitlog")
        end = log.records[COUNT - 20 * number][0] if number < 2 else 0
        for path in (each.store / "commitlog").glob("[0-9]*"):
            start = int(path.name)
            data = path.read_bytes()
            path.write_bytes(data[: max(end - start, 0)].ljust(len(data), b"\0"))
    places.clear()
    places.extend(start for start, _raw in log.records)
    return found


places: list[int] = []


def ack(number: int, code: int = SEND_OK, phy_offset: int | None = None) -> tuple[Ack, bytes]:
    place = places[number] if phy_offset is None else phy_offset
    return Ack(0, number, 0, number, code, phy_offset=place), make_body(0, number, 500)


@pytest.mark.parametrize(
    ("needed", "number", "is_honest"),
    [(1, 39, True), (2, 19, True), (2, 20, False), (2, 39, False), (3, 0, False)],
)
def test_as_many_as_are_needed_have_it(
    brokers: list[ScratchBroker], needed: int, number: int, is_honest: bool
) -> None:
    judge = HonestyJudge(lambda: brokers, needed)
    judge.answered(*ack(number))
    assert (judge.looked_at, judge.dishonest) == (1, 0 if is_honest else 1)
    if not is_honest:
        (text,) = judge.violations
        assert text.startswith(f"SEND_OK too early: message {number} of producer 0, at ")
        assert f"of {needed} brokers had it then, not slave" in text


def test_what_is_no_promise_is_not_judged(brokers: list[ScratchBroker]) -> None:
    judge = HonestyJudge(lambda: brokers, 2)
    judge.answered(*ack(39, code=12))
    judge.answered(*ack(39, phy_offset=-1))
    assert judge.looked_at == 0


def test_another_message_at_its_place_is_none(brokers: list[ScratchBroker]) -> None:
    judge = HonestyJudge(lambda: brokers, 2)
    judge.answered(ack(5)[0], ack(6)[1])
    judge.answered(*ack(5, phy_offset=places[6]))
    judge.answered(*ack(5, phy_offset=10 * SIZE))
    assert judge.dishonest == 3


def test_who_was_killed_a_moment_ago_may_have_had_it(brokers: list[ScratchBroker]) -> None:
    judge = HonestyJudge(lambda: brokers, 2)
    judge.excuse(brokers[1], 30)
    judge.answered(*ack(39))
    assert judge.dishonest == 0
    judge = HonestyJudge(lambda: brokers, 2)
    judge.excuse(brokers[1], 0)
    judge.answered(*ack(39))
    assert judge.dishonest == 1

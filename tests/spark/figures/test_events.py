"""What happened to the brokers: restarts, roles, settings, processes, two masters at once."""

from __future__ import annotations

import pytest

from spark.figures.events import events
from spark.figures.sample_stream import read_samples
from spark.reported_day import Day
from tests.spark.core_tables import files_of_groups
from tests.spark.dump_lines_builder import DATE, T0, Cases, Life, Line, processes

W0 = T0 + 600_000
DAY = Day(DATE, W0, W0 + 600_000)
Event = tuple[int, int, str, str]

_case = Cases()


@_case
def _quiet(life: Life) -> list[Line]:
    return life.lines(W0 - 5_000, 4)


@_case
def _restarts(life: Life) -> list[Line]:
    lines = life.lines(W0 + 5_000, 2)
    after = life.restarted(W0 + 20_000)
    lines += after.lines(W0 + 21_000, 1)
    return lines + after.restarted(W0 + 60_000, proved=False).lines(W0 + 62_000, 1)


@_case
def _first_life(life: Life) -> list[Line]:
    life.start_ms = W0 + 20_000
    return life.lines(W0 + 21_000, 1)


@_case
def _back_after_long(life: Life) -> list[Line]:
    life.seq = 7
    return life.restarted(W0 + 20_000).lines(W0 + 21_000, 1)


@_case
def _role(life: Life) -> list[Line]:
    lines = life.lines(W0 + 5_000, 1)
    return lines + life.restarted(W0 + 20_000, role="SYNC_MASTER").lines(W0 + 21_000, 1)


@_case
def _failover(life: Life) -> list[Line]:
    """The slave, on a host that was no master before, takes over as broker 0; then the first one
    is back."""
    slave = Life(broker=life.broker, broker_id=1, role="SLAVE", boot="000000aa" * 2)
    lines = life.lines(W0 + 5_000, 2) + slave.lines(W0 + 7_000, 2)
    promoted = slave.restarted(W0 + 60_000, proved=False, broker_id=0, role="ASYNC_MASTER")
    lines += promoted.lines(W0 + 61_000, 2)
    return lines + life.restarted(W0 + 120_000).lines(W0 + 121_000, 1)


@_case
def _moved(life: Life) -> list[Line]:
    """It leads from 7 s on, and no more from 598 s on: its next line is behind the window."""
    life.marks, life.broker_id = True, 1

    def told(second: int, *, leads: bool, since: int) -> Line:
        mono = 1_000_000 + W0 - T0 + since * 1_000
        member = {"leads": leads, "epoch": 5, "since": mono, "master": 1}
        role = "SYNC_MASTER" if leads else "SLAVE"
        return life.line(W0 + second * 1_000, role=role, member=member)

    return [
        told(5, leads=False, since=-1_000),
        told(10, leads=True, since=7),
        told(15, leads=True, since=7),
        told(595, leads=True, since=7),
        told(602, leads=False, since=598),
    ]


@_case
def _settings(life: Life) -> list[Line]:
    lines = [life.line(W0 + 5_000, config="a" * 12), life.line(W0 + 10_000, config="b" * 12)]
    return [*lines, life.restarted(W0 + 20_000).line(W0 + 21_000, config="c" * 12)]


@_case
def _processes(life: Life) -> list[Line]:
    return [
        life.line(W0 + 5_000, processes=processes(ha_restarts=1)),
        life.line(W0 + 10_000, processes=processes(ha_restarts=2, store=2)),
        life.line(W0 + 15_000, processes=processes(ha_restarts=2, store=2)),
    ]


@_case
def _two_masters(life: Life) -> list[Line]:
    other = Life(start_ms=W0 + 7_000, broker=life.broker, broker_id=3, boot="000000ff" * 2)
    return life.lines(W0 + 5_000, 3) + other.lines(W0 + 8_000, 1)


@_case
def _slave(life: Life) -> list[Line]:
    slave = Life(broker=life.broker, broker_id=1, role="SLAVE", boot="000000aa" * 2)
    lines = life.lines(W0 + 5_000, 1) + slave.lines(W0 + 5_000, 1)
    return lines + slave.restarted(W0 + 20_000).lines(W0 + 21_000, 1)


@_case
def _before_the_window(life: Life) -> list[Line]:
    lines = life.lines(W0 - 60_000, 1)
    return lines + life.restarted(W0 - 20_000).lines(W0 - 10_000, 4)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Event]]:
    """(broker id, ms after W0, kind, text) of each case, in time."""
    root = tmp_path_factory.mktemp("dump")
    _case.write(root)
    return {
        broker: [
            (broker_id, ts - W0, kind, text)
            for broker_id, ts, kind, text in events(read_samples(files, DAY), DAY)
        ]
        for (_, broker), files in files_of_groups([root], DAY).items()
    }


def test_nothing_happened(found: dict[str, list[Event]]) -> None:
    for case in ("quiet", "first_life", "before_the_window"):
        assert found[case] == []


def another(boot: str, until: str) -> str:
    return (
        "another broker became master, or one that lost its dumps: it does not follow boot"
        f" {boot}, master until 2026-03-10 {until} UTC"
    )


def test_restarts(found: dict[str, list[Event]]) -> None:
    proved = "started at 2026-03-10 00:10:20 UTC; nothing is missing between the two lives"
    unproved = "started at 2026-03-10 00:11:00 UTC; samples may be missing before it"
    assert found["restarts"] == [
        (0, 21_000, "restart", proved),
        (0, 62_000, "role_change", another("0000000200000002", "00:10:21")),
        (0, 62_000, "unproved_restart", unproved),
    ]
    long = "started at 2026-03-10 00:10:20 UTC; its life before is not in the dumps"
    assert found["back_after_long"] == [(0, 21_000, "unproved_restart", long)]
    assert found["slave"] == [(1, 21_000, "restart", proved)]


def test_role(found: dict[str, list[Event]]) -> None:
    [_, change] = sorted(found["role"], key=lambda event: event[2] == "role_change")
    assert change == (0, 21_000, "role_change", "ASYNC_MASTER -> SYNC_MASTER")


def test_another_broker_becomes_master(found: dict[str, list[Event]]) -> None:
    """Masters have id 0 whoever they are: only the life before tells them apart."""
    changes = [event for event in found["failover"] if event[2] == "role_change"]
    assert changes == [
        (0, 61_000, "role_change", another("0000000100000001", "00:10:10")),
        (0, 121_000, "role_change", another("000000ab000000ab", "00:11:06")),
    ]


def test_a_role_that_is_taken_while_a_broker_runs_is_told_at_its_moment(
    found: dict[str, list[Event]],
) -> None:
    assert found["moved"] == [
        (1, 7_000, "role_change", "SLAVE -> SYNC_MASTER"),
        (1, 598_000, "role_change", "SYNC_MASTER -> SLAVE"),
    ]


def test_settings(found: dict[str, list[Event]]) -> None:
    changes = [event for event in found["settings"] if event[2] == "config_change"]
    assert changes == [
        (0, 10_000, "config_change", "settings changed, digest aaaaaaaaaaaa -> bbbbbbbbbbbb"),
        (0, 21_000, "config_change", "settings changed, digest bbbbbbbbbbbb -> cccccccccccc"),
    ]


def test_processes(found: dict[str, list[Event]]) -> None:
    assert found["processes"] == [
        (0, 10_000, "process_restart", "process ha was restarted"),
        (0, 10_000, "process_restart", "process store was restarted 2 times"),
    ]


def test_two_masters(found: dict[str, list[Event]]) -> None:
    text = (
        "began while broker id 0 (boot 0000000100000001) wrote as master, until"
        " 2026-03-10 00:10:15 UTC: two masters at once, or a clock was set back"
    )
    assert found["two_masters"] == [(3, 8_000, "overlap", text)]

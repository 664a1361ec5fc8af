"""Small dumps whose every figure a person can check, through both programs.

One window, 10:00 to 13:00 (10,800 s) on 10 March 2026, and one line every 5 minutes (300 s), so
that a whole window is 36 lines. Each story is a broker group of its own. In every line 100 messages
and 1,000 bytes have come since the line before. A line tells of the 300 s before it; the first
one in the window (10:00) of time before the window, which is cut off; the one of 13:00, behind the
window, of its last 300 s. So a group without trouble has 36 x 300 s = 10,800 s.

The objective: in sync with at most 10 s of lag for 99 % of the time: 1 % of 10,800 s is a budget of
108 s.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.spark.both_ways import Question, core_tables_of, plain_tables, same
from tests.spark.dump_lines_builder import (
    LAG_LE,
    T0,
    Life,
    Line,
    ack_latency,
    processes,
    replica,
    sync,
    write_dump,
    write_file,
)
from tests.spark.plain_samples import Tables, Window
from tests.spark.plain_verdicts import PlainObjective

CLUSTER = "hand"
DATE = datetime.date(2026, 3, 10)
STEP_MS = 300_000
OBJECTIVE = PlainObjective(availability_percent=99, lag_seconds=10, min_coverage_percent=90)


def at(clock: str) -> int:
    """Epoch ms of HH:MM on the day."""
    hours, minutes = clock.split(":")
    return T0 + (int(hours) * 60 + int(minutes)) * 60_000


WINDOW = Window(DATE, at("10:00"), at("13:00"))


class Master:
    """One life of a master with one slave; its counters rise by the same for every line."""

    def __init__(self, name: str, boot_clock: str = "00:00", boot: int = 1, **life: Any) -> None:
        self.life = Life(
            start_ms=at(boot_clock),
            cluster=CLUSTER,
            broker=name,
            boot=f"{boot:016x}",
            interval_ms=STEP_MS,
            marks=True,
            **life,
        )
        self.replica = f"{name}:1"
        self.count = 0
        self.max_offset = self.ack_offset = 50_000
        self.state_ms = {"in_sync": 0, "catching_up": 0, "disconnected": 0}
        self.lines: list[Line] = []

    def tell(
        self,
        first: str,
        last: str = "",
        state: str = "in_sync",
        *,
        lag_ms: int = 0,
        acknowledged: int = 1_000,
        messages: int = 100,
        **fields: Any,
    ) -> Master:
        """Lines every 5 minutes from `first` to `last`; `acknowledged` bytes for each of them."""
        for ts in range(at(first), at(last or first) + 1, STEP_MS):
            self.count += messages
            self.max_offset += 1_000
            self.ack_offset = min(self.max_offset, self.ack_offset + acknowledged)
            self.state_ms[state] += STEP_MS
            row = replica(
                self.replica,
                state,
                lag_ms=lag_ms,
                lag_bytes=self.max_offset - self.ack_offset,
                ack_offset=self.ack_offset,
                state_ms=dict(self.state_ms),
                transferred=self.ack_offset - 50_000,
            )
            counters: dict[str, Any] = {"max_offset": self.max_offset, "msgs_in": self.count}
            counters |= {"bytes_in": 10 * self.count, "replicas": [row]}
            self.lines.append(self.life.line(ts, **(counters | fields)))
        return self

    def lose(self, lines: int) -> Master:
        """The last lines were written, but are nowhere to be found."""
        del self.lines[-lines:]
        return self

    def back(self, boot_clock: str, prev_seq: int | None) -> Master:
        """The next life, which found line `prev_seq` of this one (None: nothing)."""
        after = Master(self.life.broker, boot_clock, 2, machine_ms=self.life.machine_ms)
        if prev_seq is not None:
            after.life.prev_boot, after.life.prev_seq = self.life.boot, prev_seq
        after.lines = self.lines
        after.max_offset = after.ack_offset = 50_000
        return after


def perfect() -> list[Line]:
    """36 lines in sync; the one of 11:00 with 2 s of lag, 1,000 bytes at risk. 10 sends waited for
    each line: 9 got their acknowledgement, 5 in the first bucket, 5 in the second."""
    master = Master("perfect").tell("09:55", "10:55").tell("11:00", lag_ms=2_000)
    master.tell("11:05", "13:00")
    for number, line in enumerate(master.lines, 1):
        line["sync"] = sync(ok=9 * number, slave_timeout=number)
        line["ack_latency"] = ack_latency([5 * number, 5 * number, 0, 0, 0], 0.02 * number)
        line["unreplicated_bytes"] = 1_000 if line["ts"] == at("11:00") else 0
    return master.lines


def its_slave() -> list[Line]:
    """The slave of `perfect`: topics are 1 s old, at 12:00 61 s; offsets were never copied."""
    slave = Life(at("00:00"), CLUSTER, "perfect", 1, "SLAVE", "51" * 8, STEP_MS)
    return [
        slave.line(
            ts,
            metadata=[
                {
                    "kind": "topics",
                    "age_ms": 61_000 if ts == at("12:00") else 1_000,
                    "failures": (ts - at("09:55")) // STEP_MS,
                },
                {"kind": "consumer_offsets", "age_ms": None, "failures": 0},
            ],
        )
        for ts in range(at("09:55"), at("13:00") + 1, STEP_MS)
    ]


def stopped() -> list[Line]:
    """The slave is gone at 11:00 to 11:15 (four lines) and catches up at 11:20 and 11:25."""
    master = Master("stopped").tell("09:55", "10:55")
    for number, clock in enumerate(("11:00", "11:05", "11:10", "11:15"), 1):
        master.tell(clock, state="disconnected", lag_ms=number * STEP_MS, acknowledged=0)
    master.tell("11:20", state="catching_up", lag_ms=900_000, acknowledged=2_000)
    master.tell("11:25", state="catching_up", lag_ms=300_000, acknowledged=1_500)
    return master.tell("11:30", "13:00", acknowledged=99_999).lines


def missing_hour() -> list[Line]:
    """The twelve lines 11:00 to 11:55 are nowhere."""
    master = Master("missing").tell("09:55", "10:55").tell("11:00", "11:55").lose(12)
    return master.tell("12:00", "13:00").lines


def restart_proved() -> list[Line]:
    """The master stops after its line of 11:00 and starts at 11:02; its line 1 says so."""
    master = Master("proved").tell("09:55", "11:00")
    after = master.back("11:02", prev_seq=14)
    return after.tell("11:02", messages=5).tell("11:07", "13:02").lines


def restart_not_proved() -> list[Line]:
    """The same, but its line 1 knows of no earlier life."""
    master = Master("unproved").tell("09:55", "11:00")
    return (
        master.back("11:02", prev_seq=None).tell("11:02", messages=5).tell("11:07", "13:02").lines
    )


def killed() -> list[Line]:
    """Killed at 11:12 and back at once; the lines of 11:05 and 11:10 (seq 15, 16) were lost later.
    The slave is not back yet in the first line of the new life, at 11:13."""
    master = Master("killed").tell("09:55", "11:10").lose(2)
    after = master.back("11:12", prev_seq=16)
    after.state_ms["disconnected"] = 60_000 - STEP_MS  # its first line is 60 s after the boot
    return after.tell("11:13", state="disconnected", lag_ms=60_000).tell("11:18", "13:03").lines


def clock_step() -> list[Line]:
    """After 11:00 the wall clock is 30 minutes ahead for five lines, then it is set right."""
    master = Master("clock").tell("09:55", "11:00").tell("11:05", "11:25").tell("11:30", "13:00")
    for line in master.lines:
        if at("11:05") <= line["ts"] <= at("11:25"):
            line["ts"] += 30 * 60_000
    return master.lines


def glitch() -> list[Line]:
    """The wall clock is two hours ahead for the line of 10:30; the slave is gone 11:00 to 11:55."""
    master = Master("glitch").tell("09:55", "10:55").tell("11:00", "11:55", "disconnected")
    lines = master.tell("12:00", "13:00").lines
    lines[7]["ts"] += 2 * 3_600_000
    return lines


def lost() -> list[Line]:
    """Restarted at 11:00; of the new life the lines of 11:00 to 11:10 are lost, in which 100 sends
    got no answer from the slave."""
    after = Master("lost").tell("09:55", "10:55").back("11:00", prev_seq=13)
    after.tell("11:00", "11:10").lose(3)
    return after.tell("11:15", "13:00", sync=sync(ok=100, slave_timeout=100)).lines


def added() -> list[Line]:
    """The slave is new: before 11:00 there was none."""
    master = Master("added").tell("09:55", "10:55", replicas=[])
    master.state_ms["in_sync"] = 0
    return master.tell("11:00", "13:00").lines


def torn() -> list[Line]:
    """A second master since 11:01, to which the slave went. The first one goes on."""
    first = Master("torn").tell("09:55", "11:00").tell("11:05", "13:00", "disconnected")
    return first.lines + Master("torn", "11:01", 2).tell("11:05", "13:00").lines


def vague() -> list[Line]:
    """In the line of 11:00 the lag is at least 5 ms: it may be above the objective."""
    master = Master("vague").tell("09:55", "10:55").tell("11:00", lag_ms=5, acknowledged=1)
    lines = master.tell("11:05", "13:00", acknowledged=99_999).lines
    lines[13]["replicas"][0] |= {"lag_exact": False, "lag_ms_max": 10**9}
    for line in lines[13:]:  # looks at a lag that is not exact are not booked
        line["replicas"][0]["lag_time"][0] -= STEP_MS
    return lines


def named() -> list[Line]:
    """In two lines a connection goes by its ip, then by its name."""
    master = Master("named").tell("09:55", "13:00")
    for line in master.lines[10:]:
        name = "10.0.0.7" if line["ts"] < at("10:55") else "named:2"
        marks = {"lag_ms_max": 0, "lag_time": [0] * (len(LAG_LE) + 1)}
        line["replicas"].append(replica(name, state_ms={}, **marks))
    return master.lines


def quiet() -> list[Line]:
    """A slave tells all the time, its master never."""
    slave = Life(at("00:00"), CLUSTER, "quiet", 1, "SLAVE", "61" * 8, STEP_MS)
    return [slave.line(ts) for ts in range(at("09:55"), at("13:00") + 1, STEP_MS)]


def causes() -> list[Line]:
    """Five ways to be bad for one line (300 s) each, with good time between them."""
    master = Master("causes").tell("09:55", "10:25")
    master.tell("10:30", lag_ms=11_000, acknowledged=500)
    master.tell("10:35", "10:50", acknowledged=99_999).tell("10:55", acknowledged=500, lag_ms=1)
    master.tell("11:00", lag_ms=11_000, acknowledged=0)
    master.tell("11:05", "11:25", acknowledged=99_999)
    master.tell("11:30", state="catching_up", lag_ms=1)
    master.tell("11:35", "11:55")
    master.tell("12:00", state="disconnected", processes=processes(ha_restarts=1))
    master.tell("12:05", "12:25", processes=processes(ha_restarts=1))
    master.tell("12:30", replicas=[], processes=processes(ha_restarts=1))
    return master.tell("12:35", "13:00", processes=processes(ha_restarts=1)).lines


def copies() -> list[Line]:
    """10:30 comes twice; 10:35 comes again with another lag: the text with 0 is the smaller one."""
    lines = Master("copies").tell("09:55", "13:00").lines
    twice = lines[7]
    other = json.loads(json.dumps(lines[8]))
    other["replicas"][0]["lag_ms"] = 20_000
    return [*lines, twice, other]


STORIES: tuple[Callable[[], list[Line]], ...] = (
    *(perfect, its_slave, stopped, missing_hour, restart_proved, restart_not_proved, killed),
    *(clock_step, causes, copies, glitch, lost, added, torn, vague, named, quiet),
)

REPLICA_DAYS: dict[str, dict[str, Any]] = {
    "perfect": {
        "expected": 36,
        "received": 36,
        "duplicates": 0,
        "longest_gap_s": 0,
        "clock_skew_ms": 0,
        "coverage": 1,
        "good_s": 10_800,
        "bad_s": 0,
        "unknown_s": 0,
        "availability": 1,
        # 2 s of lag for 300 of 10,800 s, that is 2.8 %: not in p95, but in p99.
        "lag_ms_p50": 0,
        "lag_ms_p95": 0,
        "lag_ms_p99": 2_000,
        "lag_ms_max": 2_000,
        # Bucket 0 for 0; ln 2000 / ln 1.02 = 383.8, so bucket 384.
        "lag_ms_hist": {0: 10_500_000, 384: 300_000},
        "state_in_sync_s": 10_800,
        "state_unknown_s": 0,
        "minutes_good": 180,
        "minutes_bad": 0,
        "minutes_unknown": 0,
        "minutes_written": 36,
        "minutes_written_good": 36,
        "incidents": 0,
        "mttr_s": None,
        "mtbf_s": None,
        # Differences over 36 lines; that of 10:00 counts whole.
        "transferred_bytes": 36_000,
        "metadata": [
            {
                "kind": "consumer_offsets",
                "max_age_ms": None,
                "p99_age_ms": None,
                "failures": 0,
                "covered_s": 0,
                "at_least_ms": None,
                "at_most_ms": None,
                "unbounded_s": 10_800,
            },
            {
                "kind": "topics",
                "max_age_ms": 61_000,
                # 300 of 10,800 s: more than 1 %.
                "p99_age_ms": 61_000,
                "failures": 36,
                "covered_s": 10_800,
                "at_least_ms": 61_000,
                # Of version 1: between 11:55 and 12:00 the last success was 61 s before the line,
                # the one before it 1 s before 11:55; 240 s lie between. After 12:05 1 s: 360 s.
                "at_most_ms": 360_000,
                "unbounded_s": 0,
            },
        ],
        "budget_s": 108,
        "budget_left_s": 108,
        "budget_used_ratio": 0,
        "burn_1h": 0,
        "verdict": "met",
    },
    "stopped": {
        # Six bad lines (11:00 to 11:25) speak for 10:55 to 11:25.
        "good_s": 9_000,
        "bad_s": 1_800,
        "unknown_s": 0,
        "coverage": 1,
        "availability": 9_000 / 10_800,
        "state_in_sync_s": 9_000,
        "state_disconnected_s": 1_200,
        "state_catching_up_s": 600,
        "state_unknown_s": 0,
        # 1,200 s for 300 of 10,800 s (2.8 %): p99; the 5 % above p95 end at 900 s of lag
        # (above 900 s of lag: 300 s; with both that have 900 s: 900 s = 8.3 %).
        "lag_ms_p95": 900_000,
        "lag_ms_p99": 1_200_000,
        "lag_ms_max": 1_200_000,
        "minutes_good": 150,
        "minutes_bad": 30,
        "minutes_written": 36,
        # Lines of 10:55, 11:00, ... 11:20 end in a bad minute (that of 11:25 does not).
        "minutes_written_good": 30,
        "incidents": 1,
        "incident_s": 1_800,
        "longest_incident_s": 1_800,
        "mttr_s": 1_800,
        "mtbf_s": 9_000,
        # Between 11:20 and 11:25: 300 s, 1,500 bytes.
        "catch_up_s": 300,
        "catch_up_longest_s": 300,
        "catch_up_bytes": 1_500,
        "catch_up_mb_s": 5e-6,
        "budget_left_s": 108 - 1_800,
        "budget_used_ratio": 1_800 / 108,
        # An hour that holds all of it; 6 h and more that do; each against 1 % of the span.
        "burn_1h": 1_800 / 36,
        "burn_6h": 1_800 / 216,
        "burn_24h": 1_800 / 864,
        "burn_3d": 1_800 / 2_592,
        "verdict": "breached",
    },
    "missing": {
        # 12:00 follows 10:55 with lines missing. How long it was in sync, and with what lag, its
        # counters tell: all the time, and of at most 100 ms.
        "received": 24,
        "longest_gap_s": 0,
        "good_s": 10_800,
        "bad_s": 0,
        "unknown_s": 0,
        "coverage": 1,
        "availability": 1,
        "minutes_good": 180,
        "minutes_unknown": 0,
        # The counters went on meanwhile: nothing of them is lost.
        "state_in_sync_s": 10_800,
        "state_unknown_s": 0,
        "transferred_bytes": 36_000,
        # All but 11:00 ... 11:55.
        "minutes_written": 24,
        "incidents": 0,
        "verdict": "met",
    },
    "proved": {
        # 10:00 ... 11:00 are 13 lines, 11:02 ... 12:57 are 24. 12:57 also speaks for 180 s.
        "expected": 36,
        "received": 37,
        "good_s": 10_680,
        "bad_s": 120,
        "unknown_s": 0,
        "state_down_s": 120,
        # 12 x 300 s until 11:00, then 23 x 300 s and 180 s; the first line of the boot 0 s.
        "state_in_sync_s": 12 * 300 + 23 * 300 + 180,
        "state_unknown_s": 0,
        "minutes_bad": 2,
        "incidents": 1,
        "mttr_s": 120,
        # 13 lines with 1,000 each; line 1 of the boot counts from 0: 24 more.
        "transferred_bytes": 37_000,
        "verdict": "breached",
    },
    "unproved": {
        "received": 37,
        "good_s": 10_680,
        "bad_s": 0,
        "unknown_s": 120,
        "longest_gap_s": 120,
        "coverage": 10_680 / 10_800,
        "minutes_unknown": 2,
        "incidents": 0,
        "state_down_s": 0,
        "state_unknown_s": 120,
        # Nobody knows whether the 120 s were good: they do not fit into the 108 s.
        "verdict": "insufficient data",
    },
    "killed": {
        # 10:00 ... 11:00 are 13 lines, 11:13 ... 12:58 are 22.
        "received": 35,
        # Known: 10:00 - 11:00, then from 11:12 on; 11:12 - 11:13 is bad.
        "good_s": 10_020,
        "bad_s": 60,
        "unknown_s": 720,
        "longest_gap_s": 720,
        "availability": 10_020 / 10_080,
        "coverage": 10_080 / 10_800,
        "state_disconnected_s": 60,
        "incidents": 1,
        "mttr_s": 60,
        "mtbf_s": 10_020,
        # 60 s of the allowed 108 s; the 720 s may have been bad, too.
        "verdict": "insufficient data",
    },
    "clock": {
        # 11:30, when the clock is right again, speaks for 11:25 - 11:30. 11:35 to 11:55 come twice.
        "received": 36,
        "good_s": 9_300,
        "unknown_s": 1_500,
        "longest_gap_s": 1_500,
        # 11:30, 11:35, 11:40, 11:45, 11:50 are before 11:55.
        "out_of_order": 5,
        "clock_skew_ms": 1_800_000,
        "coverage": 9_300 / 10_800,
        "verdict": "insufficient data",
    },
    "glitch": {
        # 10:25 - 10:30 is told by nobody, 12:25 - 12:30 by the line of 10:30.
        "good_s": 6_900,
        "bad_s": 3_600,
        "unknown_s": 300,
        "state_disconnected_s": 3_600,
        "incidents": 1,
        "verdict": "breached",
    },
    "added": {
        # The line of 11:00 speaks for 10:55 - 11:00; before that the lines show that it was not.
        "good_s": 7_500,
        "bad_s": 0,
        "unknown_s": 0,
        "excluded_s": 3_300,
        "exclusions": [{"reason": "did not exist yet", "seconds": 3_300}],
        "state_in_sync_s": 7_500,
        "state_disconnected_s": 0,
        "state_unknown_s": 0,
        "incidents": 0,
        "verdict": "met",
    },
    "torn": {
        # Until 11:00 all is well; then the first master lacks what the second one has.
        "good_s": 3_600,
        "bad_s": 0,
        "unknown_s": 7_200,
        "verdict": "insufficient data",
    },
    "vague": {
        "good_s": 10_500,
        "bad_s": 0,
        "unknown_s": 300,
        "lag_ms_max": 5,
        "verdict": "insufficient data",
    },
    "quiet": {
        "received": 0,
        "good_s": 0,
        "bad_s": 0,
        "unknown_s": 10_800,
        "verdict": "insufficient data",
    },
    "causes": {
        # 12:35 has no row before it, and counters as old as the boot: 300 s of them are its own.
        "good_s": 9_300,
        "bad_s": 1_500,
        "unknown_s": 0,
        "incidents": 5,
        "mttr_s": 300,
        "mtbf_s": 9_300 / 5,
        # 12:30 has no row: its 300 s count as disconnected, and so do those of 12:00.
        "state_disconnected_s": 600,
        "state_catching_up_s": 300,
        "state_in_sync_s": 9_900,
        "verdict": "breached",
    },
    "copies": {
        "received": 36,
        "duplicates": 2,
        "conflicts": 1,
        "good_s": 10_800,
        "lag_ms_max": 0,
        "verdict": "met",
    },
}

GROUP_DAYS: dict[str, dict[str, Any]] = {
    "perfect": {
        "role": "ASYNC_MASTER",
        "samples": 36,
        "unreplicated_bytes_max": 1_000,
        "unreplicated_bytes_p99": 1_000,
        "exposure_byte_s": 300_000,
        "sync_ok": 324,
        "sync_flush_slave_timeout": 36,
        "sync_ok_ratio": 0.9,
        "ack_le": [0.001, 0.01, 0.1, 1],
        "ack_counts": [180, 180, 0, 0, 0],
        "ack_sum_s": 0.72,
        # Half of 360 is the whole first bucket; 99 % is 356.4, 176.4 of the second's 180.
        "ack_p50_s": 0.001,
        "ack_p99_s": 0.001 + 0.009 * 176.4 / 180,
        "msgs_in": 3_600,
        "bytes_in": 36_000,
        "restarts": 0,
        "verdict": "met",
    },
    # 13 lines with 100 messages each; line 1 of the new boot has 5, 23 more lines 100 each.
    "proved": {"samples": 37, "msgs_in": 3_605, "restarts": 1, "sync_ok_ratio": None},
    "unproved": {"msgs_in": 3_605, "restarts": 1},
    # Until 11:00 13 lines, then 22 (line 1 counts from 0): the two that are lost are not known of.
    "killed": {"msgs_in": 3_500, "restarts": 1},
    "missing": {"msgs_in": 3_600, "restarts": 0},
    # 12 lines until 10:55; the first one that is left of the new boot has 400, 20 more follow. Its
    # 100 sends with an answer and 100 without are the day's.
    "lost": {"msgs_in": 3_600, "sync_flush_slave_timeout": 100, "sync_ok_ratio": 0.5},
    "quiet": {"samples": 0, "verdict": "insufficient data"},
    "stopped": {"msgs_in": 3_600, "verdict": "breached"},
}

# start, end, s, cause, the largest lag
INCIDENTS: dict[str, list[tuple[str, str, int, str, int | None]]] = {
    "stopped": [("10:55", "11:25", 1_800, "disconnected", 1_200_000)],
    "proved": [("11:00", "11:02", 120, "master_restart", None)],
    "killed": [("11:12", "11:13", 60, "master_restart", 60_000)],
    "glitch": [("10:55", "11:55", 3_600, "disconnected", 0)],
    "causes": [
        ("10:25", "10:30", 300, "slow", 11_000),
        ("10:55", "11:00", 300, "stalled", 11_000),
        ("11:25", "11:30", 300, "fell_behind", 1),
        ("11:55", "12:00", 300, "ha_restart", 0),
        ("12:25", "12:30", 300, "disconnected", None),
    ],
}


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> Question:
    """All stories in one dump, with three lines that are not good."""
    dumps = tmp_path_factory.mktemp("dumps")
    for story in STORIES:
        write_dump(dumps, story())
    good = Master("bad").tell("10:00").lines[0]
    write_file(
        dumps / f"dt={DATE}" / f"cluster={CLUSTER}" / "broker=bad" / "1000-0-x-00000001.jsonl",
        [
            "torn {",
            json.dumps(good | {"v": 3}),
            json.dumps(good | {"ts": at("10:00") - 86_400_000}),
        ],
    )
    expected = [(CLUSTER, "copies", "copies:9"), (CLUSTER, "silent", "silent:1")]
    return Question([dumps], WINDOW, [OBJECTIVE], expected)


@pytest.fixture(scope="module", params=[plain_tables, core_tables_of], ids=["plain", "core"])
def tables(request: pytest.FixtureRequest, question: Question) -> Tables:
    """What a program makes of it."""
    found: Tables = request.param(question)
    return found


def wrong(row: dict[str, Any], wanted: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Columns that are not as wanted: (is, wanted)."""
    return {
        name: (row.get(name, "missing"), value)
        for name, value in wanted.items()
        if not same(row.get(name, "missing"), value)
    }


@pytest.mark.parametrize("name", REPLICA_DAYS)
def test_a_replicas_day(tables: Tables, name: str) -> None:
    (row,) = [row for row in tables["replica_days"] if row["replica"] == f"{name}:1"]
    assert wrong(row, REPLICA_DAYS[name]) == {}


@pytest.mark.parametrize("name", GROUP_DAYS)
def test_a_groups_day(tables: Tables, name: str) -> None:
    (row,) = [row for row in tables["group_days"] if row["broker"] == name]
    assert wrong(row, GROUP_DAYS[name]) == {}


def test_a_connection_without_a_name_is_no_replica(tables: Tables) -> None:
    replicas = {row["replica"] for row in tables["replica_days"] if row["broker"] == "named"}
    assert replicas == {"named:1", "named:2"}


def test_expected_replicas_that_no_line_names(tables: Tables) -> None:
    # The master of `copies` tells all the time, and has no such slave: disconnected.
    (row,) = [row for row in tables["replica_days"] if row["replica"] == "copies:9"]
    bad = {"good_s": 0, "bad_s": 10_800, "unknown_s": 0, "incidents": 1, "mttr_s": None}
    assert wrong(row, bad | {"state_disconnected_s": 10_800, "verdict": "breached"}) == {}
    # Nobody tells of `silent`.
    (row,) = [row for row in tables["replica_days"] if row["replica"] == "silent:1"]
    unknown = {"unknown_s": 10_800, "longest_gap_s": 10_800, "minutes_unknown": 180}
    nothing = {"good_s": 0, "bad_s": 0, "received": 0, "availability": None, "lag_ms_p50": None}
    assert wrong(row, unknown | nothing | {"verdict": "insufficient data"}) == {}
    (row,) = [row for row in tables["incidents"] if row["replica"] == "copies:9"]
    told = {"start_ms": at("10:00"), "end_ms": at("13:00"), "cause": "disconnected", "open": True}
    assert wrong(row, told) == {}


def test_incidents(tables: Tables) -> None:
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in tables["incidents"]:
        if row["replica"] == "copies:9":
            continue
        assert not row["open"]
        assert row["unknown_s"] == 0
        found.setdefault(row["broker"], []).append(
            tuple(row[name] for name in ("start_ms", "end_ms", "duration_s", "cause", "max_lag_ms"))
        )
    wanted = {
        name: [(at(start), at(end), *rest) for start, end, *rest in incidents]
        for name, incidents in INCIDENTS.items()
    }
    assert found == wanted


def test_windows_of_one_known_day(tables: Tables) -> None:
    # The first result of all: 3 hours, of which 2 h 30 min were good and 30 min bad. 1 % of
    # 10,800 s are 108 s: nobody claims the six days before.
    (row,) = [r for r in tables["windows"] if r["broker"] == "stopped" and r["days"] == 7]
    wanted = {
        "days_with_data": 1,
        "good_s": 9_000,
        "bad_s": 1_800,
        "availability": 9_000 / 10_800,
        "lag_ms_max": 1_200_000,
        "incidents": 1,
        "mttr_s": 1_800,
        "begun": "2026-03-10",
        "window_s": 10_800,
        "budget_s": 108,
        "budget_left_s": -1_692,
        "budget_used_ratio": 1_800 / 108,
        "verdict": "breached",
    }
    assert wrong(row, wanted) == {}
    (row,) = [r for r in tables["windows"] if r["broker"] == "stopped" and r["days"] == 30]
    assert wrong(row, {"budget_s": 108, "forecast": "exhausted"}) == {}


def test_bad_lines(tables: Tables) -> None:
    texts = sorted(row["text"] for row in tables["bad_lines"])
    assert len(texts) == 3
    assert "torn {" in texts

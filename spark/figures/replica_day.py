"""One replica's day in figures: times, lag, minutes, hours, counters and incidents.

Runs in the executors, over the time that was laid out for the replica
(spark/figures/replica_time.py) and its group's samples. Each figure's rule is in
docs/sla_report.md. Rows are dictionaries by column (spark/figures/result_tables.py). Must not know
objectives' criteria, stored results or pages.

Tested by tests/spark/figures/test_group_day.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

from spark.dumps.dump_line import Process, ReplicaRow
from spark.figures.disconnects import ended_connection
from spark.figures.distributions import distribution, percentiles
from spark.figures.group_day import P99, GroupFigures, Row, risen
from spark.figures.lag_marks import lag_bounds
from spark.figures.result_tables import PERCENTILES
from spark.figures.sample_stream import Sample
from spark.figures.time_pieces import (
    BAD,
    CATCHING_UP,
    DOWN,
    EXCLUDED,
    GOOD,
    UNKNOWN,
    Piece,
    ReplicaTime,
)
from spark.vocabulary import HOUR_MS, LARGEST, MINUTE_MS, STATES

_MILLION: Final = 1_000_000
_RARE_COUNTERS: Final = ("reconnects", "rejected_acks")
"""Counters that rarely rise."""


class ReplicaDay:
    """One replica's figures, minutes, hours and incidents, from the time that was laid out."""

    def __init__(self, group: GroupFigures, replica: str, time: ReplicaTime) -> None:
        self._group: Final = group
        self._day: Final = group.day
        self._replica: Final = replica
        self._time: Final = time
        self._minute_lags: Final = [-1] * group.minutes
        self._excluded: Final = [each for each in time.pieces if each.quality == EXCLUDED]
        self.minutes: Final = self._minutes()
        self.incidents: Final = self._incidents()
        self.hours: Final[list[Row]] = []
        self._lags: Final[dict[int, dict[int, int]]] = {}
        """Hour -> lag -> ms."""
        self._lag_bytes: Final[dict[int, int]] = {}
        self._weigh_lags()
        self._make_hours()

    def columns(self) -> Row:
        """The columns of replica_days that neither objective nor stored results decide."""
        return {
            **self._group.columns,
            **self._times(),
            "longest_gap_s": _longest_gap_ms(self._time.pieces) / 1000,
            "leading_unknown_s": _leading_unknown_ms(self._time.pieces) / 1000,
            **self._lag_figures(),
            **self._minute_counts(),
            **self._incident_figures(),
            **self._of_counters(),
            "exclusions": self._exclusions(),
            "first_copy_since_ms": self._time.copy_since_ms,
        }

    def _times(self) -> Row:
        sums = dict.fromkeys((GOOD, BAD, UNKNOWN, EXCLUDED), 0)
        states = dict.fromkeys((*STATES, DOWN), 0)
        first_end_ms = None
        for piece in self._time.pieces:
            sums[piece.quality] += piece.length_ms
            if piece.state is not None:
                states[piece.state] += piece.length_ms
            if first_end_ms is None and piece.ends_incident:
                first_end_ms = piece.start_ms
        hidden_ms = 0
        for extra in self._time.extras:
            if extra.quality == UNKNOWN:
                hidden_ms += extra.ms
                continue
            sums[BAD] += extra.ms
            if extra.state is not None:
                states[extra.state] += extra.ms
        window_ms = self._day.window_ms - sums[EXCLUDED]
        bad_ms = min(sums[BAD], window_ms)
        good_ms = min(sums[GOOD], max(0, window_ms - bad_ms - hidden_ms))
        judged_ms = good_ms + bad_ms
        return {
            "window_s": self._day.window_ms / 1000,
            "good_s": good_ms / 1000,
            "bad_s": bad_ms / 1000,
            "unknown_s": (window_ms - judged_ms) / 1000,
            "excluded_s": sums[EXCLUDED] / 1000,
            "coverage": judged_ms / window_ms if window_ms else None,
            "availability": good_ms / judged_ms if judged_ms else None,
            **{f"state_{name}_s": ms / 1000 for name, ms in states.items()},
            "state_unknown_s": max(0, window_ms - sum(states.values())) / 1000,
            "lag_unproved_s": sum(
                [p.length_ms for p in self._time.pieces if p.quality == UNKNOWN and p.state]
            )
            / 1000,
            **self._at_the_borders(first_end_ms),
        }

    def _at_the_borders(self, first_end_ms: int | None) -> Row:
        """The incident that may be the end of one of the day before, and the one that is open."""
        first = self.incidents[0] if self.incidents else None
        if first and first_end_ms is not None and first["start_ms"] > first_end_ms:
            first = None
        last = next((each for each in self.incidents if each["open"]), None)
        return {
            "carried_start_ms": first["start_ms"] if first else None,
            "carried_end_ms": first["end_ms"] if first else None,
            "open_start_ms": last["start_ms"] if last else None,
            "open_end_ms": last["end_ms"] if last else None,
        }

    def lag_p99_columns(self, limit_seconds: float | None) -> Row:
        """How long the lag was above the limit of lag p99, and how long that is not known."""
        found: Row = dict.fromkeys(("lag_p99_above_s", "lag_p99_unknown_s", "lag_p99_bounds_ms"))
        if limit_seconds is None or not self._group.stream.samples:
            return found
        left_out = [
            (piece.start_ms, piece.end_ms)
            for piece in self._time.pieces
            if piece.quality == EXCLUDED or piece.state == DOWN
        ]
        stream, limit_ms = self._group.stream, limit_seconds * 1000
        bounds = lag_bounds(stream, self._replica, limit_ms, left_out, self._day)
        found["lag_p99_above_s"] = bounds.above_ms / 1000
        found["lag_p99_unknown_s"] = bounds.unknown_ms / 1000
        found["lag_p99_bounds_ms"] = bounds.neighbours
        return found

    def _exclusions(self) -> list[Row]:
        seconds: dict[str, int] = {}
        for piece in self._excluded:
            seconds[piece.reason] = seconds.get(piece.reason, 0) + piece.length_ms
        return [{"reason": name, "seconds": seconds[name] / 1000} for name in sorted(seconds)]

    # -- lag

    def _weigh_lags(self) -> None:
        name, excluded, lag_bytes = self._replica, self._excluded, self._lag_bytes
        lag_ms_max = self._minute_lags
        hour, of_hour = -1, self._lags.setdefault(-1, {})
        for (start_ms, end_ms, sample), minute in zip(
            self._group.segments, self._group.minute_of, strict=True
        ):
            row = sample.rows.get(name)
            if row is None:
                continue
            if excluded or minute < 0:
                self._weigh_split_segment(row, start_ms, end_ms)
                continue
            ms, lag = end_ms - start_ms, row.lag_ms
            lag_bytes[row.lag_bytes] = lag_bytes.get(row.lag_bytes, 0) + ms
            if lag > lag_ms_max[minute]:
                lag_ms_max[minute] = lag
            if start_ms // HOUR_MS != hour:
                hour = start_ms // HOUR_MS
                of_hour = self._lags.setdefault(hour, {})
            of_hour[lag] = of_hour.get(lag, 0) + ms

    def _weigh_split_segment(self, row: ReplicaRow, start_ms: int, end_ms: int) -> None:
        """A segment of which a part may be excluded, or which lies in several minutes."""
        first, lag, lag_bytes = self._group.first_minute, row.lag_ms, self._lag_bytes
        ms = end_ms - start_ms - _overlap_ms(self._excluded, start_ms, end_ms)
        if not ms:
            return
        lag_bytes[row.lag_bytes] = lag_bytes.get(row.lag_bytes, 0) + ms
        last_minute = (end_ms - 1 - first) // MINUTE_MS
        for minute in range((start_ms - first) // MINUTE_MS, last_minute + 1):
            if lag > self._minute_lags[minute] and self._counts(minute, start_ms, end_ms):
                self._minute_lags[minute] = lag
        for hour in range(start_ms // HOUR_MS, (end_ms - 1) // HOUR_MS + 1):
            begin_ms, until_ms = max(start_ms, hour * HOUR_MS), min(end_ms, (hour + 1) * HOUR_MS)
            part_ms = until_ms - begin_ms - _overlap_ms(self._excluded, begin_ms, until_ms)
            if part_ms:
                weights = self._lags.setdefault(hour, {})
                weights[lag] = weights.get(lag, 0) + part_ms

    def _counts(self, minute: int, start_ms: int, end_ms: int) -> bool:
        """Whether a part of [start_ms, end_ms) that lies in the minute is not excluded."""
        begin_ms = self._group.first_minute + minute * MINUTE_MS
        start_ms, end_ms = max(start_ms, begin_ms), min(end_ms, begin_ms + MINUTE_MS)
        return _overlap_ms(self._excluded, start_ms, end_ms) < end_ms - start_ms

    def _lag_figures(self) -> Row:
        lags: dict[int, int] = {}
        for weights in self._lags.values():
            for lag, ms in weights.items():
                lags[lag] = lags.get(lag, 0) + ms
        return distribution("lag_ms", lags, PERCENTILES) | distribution(
            "lag_bytes", self._lag_bytes, PERCENTILES
        )

    # -- minutes and hours

    def _minutes(self) -> list[list[int]]:
        """good, bad, unknown and excluded ms of each minute."""
        first, count = self._group.first_minute, self._group.minutes
        found = [[0, 0, 0, 0] for _ in range(count)]
        for piece in self._time.pieces:
            place = _QUALITIES.index(piece.quality)
            start_ms, end_ms = piece.start_ms - first, piece.end_ms - first
            minute, last = start_ms // MINUTE_MS, (end_ms - 1) // MINUTE_MS
            if minute == last:
                found[minute][place] += end_ms - start_ms
                continue
            found[minute][place] += (minute + 1) * MINUTE_MS - start_ms
            for between in range(minute + 1, last):
                found[between][place] = MINUTE_MS
            found[last][place] += end_ms - last * MINUTE_MS
        for extra in self._time.extras:
            found[(extra.ts - first) // MINUTE_MS][_QUALITIES.index(extra.quality)] += extra.ms
        return found

    def minute_rows(self) -> Iterable[tuple[Any, ...]]:
        """Columns of table minutes behind the key."""
        group = self._group
        for place, times in enumerate(self.minutes):
            lag = self._minute_lags[place]
            yield (
                group.first_minute + place * MINUTE_MS,
                *times,
                lag if lag >= 0 else None,
                min(group.msgs_in[place], LARGEST),
                group.written[place],
            )

    def _minute_counts(self) -> Row:
        good = bad = unknown = written = written_good = 0
        for times, is_written in zip(self.minutes, self._group.written, strict=True):
            is_bad = times[1] > 0
            is_good = not is_bad and times[0] > 0 and times[0] >= times[2]
            good, bad, unknown = (
                good + is_good,
                bad + is_bad,
                unknown + (not is_bad and not is_good),
            )
            written += is_written
            written_good += is_written and is_good
        return {
            "minutes_good": good,
            "minutes_bad": bad,
            "minutes_unknown": unknown,
            "minutes_written": written,
            "minutes_written_good": written_good,
        }

    def _make_hours(self) -> None:
        hours: dict[int, list[int]] = {}
        lags: dict[int, int] = {}
        for place, times in enumerate(self.minutes):
            hour = (self._group.first_minute + place * MINUTE_MS) // HOUR_MS
            sums = hours.setdefault(hour, [0, 0, 0, 0])
            for quality, ms in enumerate(times):
                sums[quality] += ms
            lags[hour] = max(lags.get(hour, -1), self._minute_lags[place])
        for hour, sums in hours.items():
            good_ms, bad_ms, unknown_ms, excluded_ms = sums
            self.hours.append(
                {
                    "hour": hour * HOUR_MS,
                    "good_ms": good_ms,
                    "bad_ms": bad_ms,
                    "unknown_ms": unknown_ms,
                    "excluded_ms": excluded_ms,
                    "lag_ms_max": lags[hour] if lags[hour] >= 0 else None,
                    "lag_ms_p99": percentiles(self._lags.get(hour, {}), P99)["p99"],
                }
            )

    # -- counters

    def _of_counters(self) -> Row:
        name = self._replica
        sums = dict.fromkeys(_RARE_COUNTERS, 0)
        transferred = run_ms = run_bytes = longest_ms = all_ms = all_bytes = 0
        for sample in self._group.stream.inside:
            row, before = sample.rows.get(name), sample.boot_predecessor
            past = before.rows.get(name) if before is not None else None
            if row is not None:
                if past is None or before is None:
                    transferred += risen(sample, row.transferred, None)
                    for counter in _RARE_COUNTERS:
                        sums[counter] += risen(sample, getattr(row, counter), None)
                else:
                    if row.transferred > past.transferred:
                        transferred += row.transferred - past.transferred
                    if row.reconnects > past.reconnects:
                        sums["reconnects"] += row.reconnects - past.reconnects
                    if row.rejected_acks > past.rejected_acks:
                        sums["rejected_acks"] += row.rejected_acks - past.rejected_acks
                    if row.state == past.state == CATCHING_UP:
                        run_ms += sample.line.mono - before.line.mono
                        run_bytes += max(0, row.ack_offset - past.ack_offset)
                        continue
            if run_ms or run_bytes:
                longest_ms, all_ms = max(longest_ms, run_ms), all_ms + run_ms
                all_bytes += run_bytes
                run_ms = run_bytes = 0
        longest_ms, all_ms = max(longest_ms, run_ms), all_ms + run_ms
        all_bytes += run_bytes
        seconds = all_ms / 1000
        return {
            **sums,
            "transferred_bytes": transferred,
            "catch_up_s": seconds,
            "catch_up_longest_s": longest_ms / 1000,
            "catch_up_bytes": all_bytes,
            "catch_up_mb_s": all_bytes / _MILLION / seconds if seconds > 0 else None,
        }

    # -- incidents

    def _incidents(self) -> list[Row]:
        found: list[Row] = []
        run: list[Piece] = []
        for piece in self._time.pieces:
            if piece.ends_incident:
                if run:
                    found.append(self._incident(run, len(found) + 1))
                    run = []
            elif piece.quality == BAD or run:
                run.append(piece)
        if run:
            found.append(self._incident(run, len(found) + 1))
        return found

    def _incident(self, run: Sequence[Piece], number: int) -> Row:
        bad = [piece for piece in run if piece.quality == BAD]
        start_ms, end_ms = bad[0].start_ms, bad[-1].end_ms
        bad_ms = sum(piece.length_ms for piece in bad)
        rows = [
            row
            for piece in bad
            if piece.sample is not None and piece.state != DOWN
            if (row := piece.sample.rows.get(self._replica)) is not None
        ]
        return {
            "number": number,
            "start_ms": start_ms,
            "end_ms": end_ms,
            "duration_s": (end_ms - start_ms) / 1000,
            "bad_s": bad_ms / 1000,
            "unknown_s": (end_ms - start_ms - bad_ms) / 1000,
            "cause": self._cause(bad),
            "open": run[-1].end_ms == self._day.w1_ms,
            "max_lag_ms": max((row.lag_ms for row in rows), default=None),
            "max_lag_bytes": max((row.lag_bytes for row in rows), default=None),
            **ended_connection(rows, start_ms, end_ms),
        }

    def _cause(self, bad: Sequence[Piece]) -> str:
        """What the first bad piece shows."""
        first, sample = bad[0], bad[0].sample
        if first.state == DOWN or sample is None:
            is_elected = sample is not None and not sample.proved
            return "failover" if is_elected else "master_restart"
        if _ha_failed(sample):
            return "ha_restart"
        sample = _first_with(sample)
        before = sample.predecessor
        begins = sample.line.seq == 1 if before is None else not sample.same_boot
        if begins and not sample.proved:
            is_other = before is not None and sample.line.prev_boot != before.line.boot
            return "failover" if is_other else "master_restart"
        if first.state == CATCHING_UP:
            return "fell_behind"
        if first.state != STATES[0]:
            return "disconnected"
        told = (piece.sample for piece in bad if piece.state != DOWN)
        stuck = any(self._is_stuck(each) for each in told if each is not None)
        return "stalled" if stuck else "slow"

    def _is_stuck(self, sample: Sample) -> bool:
        row, past = sample.rows.get(self._replica), _row_before(sample, self._replica)
        if row is None or past is None:
            return False
        return row.ack_offset == past.ack_offset and row.lag_bytes > 0 and past.lag_bytes > 0

    def _incident_figures(self) -> Row:
        lengths = [each["end_ms"] - each["start_ms"] for each in self.incidents]
        ended = [each["end_ms"] - each["start_ms"] for each in self.incidents if not each["open"]]
        return {
            "incidents": len(lengths),
            "incidents_ended": len(ended),
            "incident_s": sum(lengths) / 1000,
            "incident_ended_s": sum(ended) / 1000,
            "longest_incident_s": max(lengths, default=0) / 1000,
        }


_QUALITIES: Final = (GOOD, BAD, UNKNOWN, EXCLUDED)


def _first_with(sample: Sample) -> Sample:
    """The sample, or the first line of its boot if that has no interval of its own."""
    before = sample.boot_predecessor
    if before is not None and before.boot_predecessor is None and before.start_ms == before.ts:
        return before
    return sample


def _row_before(sample: Sample, replica: str) -> ReplicaRow | None:
    before = sample.boot_predecessor
    return before.rows.get(replica) if before is not None else None


def _overlap_ms(pieces: Iterable[Piece], start_ms: int, end_ms: int) -> int:
    return sum(
        max(0, min(end_ms, piece.end_ms) - max(start_ms, piece.start_ms)) for piece in pieces
    )


def _longest_gap_ms(pieces: Iterable[Piece]) -> int:
    longest = run = 0
    for piece in pieces:
        run = run + piece.length_ms if piece.quality == UNKNOWN else 0
        longest = max(longest, run)
    return longest


def _ha_failed(sample: Sample) -> bool:
    """Process `ha` is not up, or was restarted since the predecessor."""
    ha = _process_ha(sample)
    if ha is None:
        return False
    before = sample.boot_predecessor
    past = _process_ha(before) if before is not None else None
    return not ha.up or (past is not None and ha.restarts > past.restarts)


def _process_ha(sample: Sample) -> Process | None:
    return next((each for each in sample.line.processes if each.name == "ha"), None)


def _leading_unknown_ms(pieces: Iterable[Piece]) -> int:
    """How long the window had been going on before anything is known."""
    unknown = itertools.takewhile(lambda piece: piece.quality == UNKNOWN, pieces)
    return sum(piece.length_ms for piece in unknown)

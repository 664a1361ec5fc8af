"""DumpHistory: points and incidents of a range of time, from the lines of a broker's own dump.

A thread of a request pool in process `remoting`, one request at a time. Reads for a limited time
and then says how far it has come. Counts are differences of a life's counters, never across lives,
except for what the next life's first line tells of the end of one that was killed.
Knows no request and no names of files.

Tested by tests/broker/metrics/test_dump_history.py.
"""

from __future__ import annotations

from typing import Final

from broker.metrics.dump_lines import DumpLine, DumpLines, ReplicaLine, Sends
from ha.slave_progress import ReplicaState
from ipc.clock import Clock
from remoting.body.metrics_answer import (
    IN_ORDER,
    KILLED,
    UNKNOWN,
    DumpIncident,
    DumpLife,
    DumpPoint,
    LatencyCounts,
    MetricsDumpAnswer,
    ReplicaPoint,
)

LEAD_MS: Final = 60_000
"""How long before the range lines are read, for the differences and states that it begins with."""
BUDGET_MS: Final = 2_000
MAX_INCIDENTS: Final = 5_000
MAX_LIVES: Final = 1_000
_MISSING_INTERVALS: Final = 3
"""Lines are missing after as many intervals without one."""
_IN_SYNC: Final = ReplicaState.in_sync.value
_WORST: Final = (ReplicaState.disconnected.value, ReplicaState.catching_up.value)


def step_ms(begin_ms: int, end_ms: int, max_points: int, interval_ms: int) -> int:
    """The length of an interval: at least that of two lines, as one line may come late."""
    return max(-(-(end_ms - begin_ms) // max_points), 2 * interval_ms)


class DumpHistory:
    """See the module. Used once, by one thread."""

    def __init__(self, begin_ms: int, end_ms: int, step: int, clock: Clock) -> None:
        """step: ms of an interval."""
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._step = step
        self._clock = clock
        count = -(-(end_ms - begin_ms) // step)
        self._points = [_Point(begin_ms + number * step) for number in range(count)]
        self._incidents = _Incidents(begin_ms)
        self._lives = _Lives()
        self._before: DumpLine | None = None

    def read(self, lines: DumpLines) -> MetricsDumpAnswer:
        """lines: from LEAD_MS before the begin on."""
        stop_ms = self._clock.monotonic_ms() + BUDGET_MS
        reached_ms, partial_ms = self._begin_ms, None
        for line in lines:
            is_late = self._clock.monotonic_ms() >= stop_ms or self._incidents.is_full
            if is_late and line.ts > reached_ms > self._begin_ms:
                partial_ms = line.ts
                break
            self._take(line)
            # Not the begin itself: whoever goes on from here shall get further.
            reached_ms = max(reached_ms, line.ts + 1) if line.ts >= self._begin_ms else reached_ms
        until_ms = self._end_ms if partial_ms is None else partial_ms
        self._incidents.end(min(until_ms, self._clock.now_ms()))
        return MetricsDumpAnswer(
            begin=self._begin_ms,
            end=self._end_ms,
            step=self._step,
            partial_up_to=partial_ms,
            bad_lines=lines.bad,
            points=[point.done() for point in self._points if point.ts < until_ms],
            incidents=self._incidents.found,
            lives=self._lives.found(),
        )

    def _take(self, line: DumpLine) -> None:
        last = before = self._before
        if before is not None and before.boot != line.boot:
            before = None
        if before is not None and line.seq <= before.seq:
            return  # Of a file that is there plain and compressed.
        self._before = line
        self._incidents.take(line)
        if line.ts >= self._begin_ms:
            self._lives.take(line)
            point = self._points[(line.ts - self._begin_ms) // self._step]
            point.take(line, before)
            if last is not None and line.ended is not None and line.ended.boot == last.boot:
                point.add_sends(line.ended.sends, last.sends)


class _Point:
    """An interval while it is filled."""

    def __init__(self, ts: int) -> None:
        self.ts = ts
        self._lines = 0
        self._role: str | None = None
        self._broker_id: int | None = None
        self._replicas: dict[str, ReplicaPoint] = {}
        self._sends: dict[str, int] = {}
        self._latency = LatencyCounts()
        self._exposure: int | None = None
        self._msgs_in = 0

    def take(self, line: DumpLine, before: DumpLine | None) -> None:
        """before: the line before it of the same life, if there is one."""
        self._lines += 1
        self._role = line.role
        self._broker_id = line.broker_id
        for replica in line.replicas:
            self._replicas[replica.id] = _worse(self._replicas.get(replica.id), replica)
        if line.exposure is not None:
            self._exposure = max(self._exposure or 0, line.exposure.bytes_at_most)
        if before is None:
            return
        self._msgs_in += _risen(line.msgs_in, before.msgs_in)
        self._add_latency(line, before)
        self.add_sends(line.sends, before.sends)

    def add_sends(self, now: Sends | None, before: Sends | None) -> None:
        """What was answered between two lines of a life, or between its last one and its end."""
        if now is None or before is None:
            return
        for status in Sends.__struct_fields__:
            risen = _risen(getattr(now, status), getattr(before, status))
            self._sends[status] = self._sends.get(status, 0) + risen

    def _add_latency(self, line: DumpLine, before: DumpLine) -> None:
        now, old, known = line.ack_latency, before.ack_latency, self._latency
        # Another version of the broker may have had other buckets.
        if now.le != old.le or len(now.counts) != len(old.counts):
            return
        risen = [_risen(*pair) for pair in zip(now.counts, old.counts, strict=True)]
        if known.le == now.le and len(known.counts) == len(risen):
            risen = [a + b for a, b in zip(risen, known.counts, strict=True)]
        self._latency = LatencyCounts(le=now.le, counts=risen)

    def done(self) -> DumpPoint:
        """As it is answered."""
        return DumpPoint(
            ts=self.ts,
            lines=self._lines,
            broker_id=self._broker_id,
            role=self._role,
            replicas=self._replicas,
            sends=self._sends,
            ack_latency=self._latency,
            exposure_bytes_at_most=self._exposure,
            msgs_in=self._msgs_in,
        )


def _risen(now: int, before: int) -> int:
    """What a counter has counted; one that fell began anew."""
    return now - before if now >= before else now


def _worse(known: ReplicaPoint | None, line: ReplicaLine) -> ReplicaPoint:
    lag_ms = max(line.lag_ms, line.lag_ms_max)
    is_in_sync = line.state == _IN_SYNC
    if known is None:
        return ReplicaPoint(
            lag_ms_max=lag_ms,
            lag_bytes_max=line.lag_bytes,
            worst_state=line.state,
            in_sync=is_in_sync,
        )
    states = (known.worst_state, line.state)
    return ReplicaPoint(
        lag_ms_max=max(known.lag_ms_max, lag_ms),
        lag_bytes_max=max(known.lag_bytes_max, line.lag_bytes),
        worst_state=next((state for state in _WORST if state in states), line.state),
        in_sync=known.in_sync and is_in_sync,
    )


class _Lives:
    """Lives of the broker, by the lines of a range."""

    def __init__(self) -> None:
        self._ended: list[DumpLife] = []
        self._first: DumpLine | None = None
        self._last: DumpLine | None = None

    def take(self, line: DumpLine) -> None:
        """A line, in the order of time."""
        if self._last is not None and self._last.boot != line.boot:
            self._end(IN_ORDER if self._last.final else KILLED)
        if self._first is None:
            self._first = line
        self._last = line

    def found(self) -> list[DumpLife]:
        """The newest ones, as far as an answer has room."""
        if self._last is not None:
            self._end(IN_ORDER if self._last.final else None)
        return self._ended[-MAX_LIVES:]

    def _end(self, end: str | None) -> None:
        first, last = self._first, self._last
        if first is not None and last is not None:
            life = DumpLife(
                boot=first.boot,
                brokerId=first.broker_id,
                from_=first.ts,
                to=last.ts,
                started=first.seq == 1,
                end=end,
            )
            self._ended.append(life)
        self._first = self._last = None


class _Incidents:
    """Stretches in which a replica was not in sync, or nobody wrote what was."""

    def __init__(self, begin_ms: int) -> None:
        self.found: list[DumpIncident] = []
        self._begin_ms = begin_ms
        self._open: dict[str, tuple[int, str]] = {}
        """Since when each replica that is not in sync is in which state."""
        self._last_ms = begin_ms
        self._allowed_ms = 0
        """Longest time without a line; 0: there was none yet."""

    @property
    def is_full(self) -> bool:
        """Whether an answer should have no more."""
        return len(self.found) >= MAX_INCIDENTS

    def take(self, line: DumpLine) -> None:
        """A line, in the order of time."""
        allowed_ms = _MISSING_INTERVALS * line.interval_ms
        if line.ts - self._last_ms > (self._allowed_ms or allowed_ms):
            for replica in list(self._open):
                self._close(replica, self._last_ms)
            self._add("", self._last_ms, line.ts, UNKNOWN)
        states = {each.id: each.state for each in line.replicas if each.state != _IN_SYNC}
        for replica, (_, state) in list(self._open.items()):
            if states.get(replica) != state:
                self._close(replica, line.ts)
        for replica, state in states.items():
            self._open.setdefault(replica, (line.ts, state))
        self._last_ms, self._allowed_ms = line.ts, allowed_ms

    def end(self, until_ms: int) -> None:
        """No line comes any more before `until_ms`."""
        is_missing = until_ms - self._last_ms > self._allowed_ms
        for replica, (from_ms, state) in self._open.items():
            self._add(replica, from_ms, self._last_ms if is_missing else None, state)
        if is_missing:
            self._add("", self._last_ms, None, UNKNOWN)
        self.found.sort(key=lambda incident: (incident.from_, incident.replica))

    def _close(self, replica: str, to_ms: int) -> None:
        from_ms, state = self._open.pop(replica)
        self._add(replica, from_ms, to_ms, state)

    def _add(self, replica: str, from_ms: int, to_ms: int | None, state: str) -> None:
        """Not what had ended before the range begins."""
        if to_ms is None or to_ms >= self._begin_ms:
            self.found.append(DumpIncident(replica=replica, from_=from_ms, to=to_ms, state=state))

"""How long it was from the last line of a life to the first one of the next: the wall clock may
have been set in between, while nobody wrote.

Runs in the executors; pure. A machine counts its own time since it was switched on, which nobody
sets; over a reboot only a clock that a time service held on both sides proves anything. The rule is
in docs/sla_report.md ("Hidden time"). Must not know what the time was.

Tested by tests/spark/figures/test_lives_and_names.py.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from spark.reported_day import REACH_MS, Day
from spark.vocabulary import DAY_MS, MASTER_ROLES

if TYPE_CHECKING:
    from spark.dumps.dump_line import Line
    from spark.figures.sample_stream import Sample

AGREE_MS: Final = 1_000
"""Two clocks that differ by no more tell the same; a time service holds a clock if its error is at
most that."""
_SHORT_MS: Final = 1_000
"""So little hidden time is none."""


class LifeClocks:
    """What the clocks of one life's lines say. `samples`: in the order of seq, and not empty."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples: Final = samples
        self.first: Final = samples[0].line
        self.last: Final = samples[-1].line
        self.latest_ms: Final = max(sample.ts for sample in samples)

    @functools.cached_property
    def true_first_ms(self) -> int | None:
        """The moment of the first line by a clock that was held; None where none was."""
        return _true_ms(self.first, (each.line for each in self.samples))

    @functools.cached_property
    def true_last_ms(self) -> int | None:
        """The same of the last one."""
        return _true_ms(self.last, (each.line for each in reversed(self.samples)))


class Lives:
    """The lives of one stream, to be measured one after the other in its order.

    `is_one_broker`: all of those that were measured are one broker's: each but one names another
    life of the stream as the one before it, maybe through those of other streams, and no two the
    same.
    """

    def __init__(
        self,
        lives: Iterable[Sequence[Sample]],
        every: Iterable[LifeClocks],
        w0_ms: int,
        *,
        is_known: bool,
    ) -> None:
        """every: all lives of the group: the broker of one of these may have lived in another
        stream before. w0_ms: begin of the window. is_known: the group has a history."""
        self.all: Final = [LifeClocks(life) for life in lives]
        self.is_one_broker = True
        self._w0_ms: Final = w0_ms
        self._is_known: Final = is_known
        self._by_boot: Final[dict[str, LifeClocks]] = {}
        for life in self.all:
            self._by_boot.setdefault(life.first.boot, life)
        self._elsewhere: Final[dict[str, LifeClocks]] = {}
        for life in every:
            self._elsewhere.setdefault(life.first.boot, life)
        self._before: LifeClocks | None = None
        self._of_host: Final[dict[str, LifeClocks]] = {}
        self._has_root = False
        self._named: Final[set[str]] = set()

    def measure(self, life: LifeClocks, told: int) -> None:
        """Puts into a life's first sample what its clocks say of the time before it. `told`: the
        latest `ts` of the lives that were measured."""
        named = self._name(life)
        before, sample, host = self._before, life.samples[0], life.first.host
        of_host = self._of_host.get(host) if host is not None else None
        if before is not None and (_is_asked(before, life) or self._may_be_same(before, life)):
            _measure_before(before, life, told)
        elif named is None and of_host is None and self._has_unknown_past(life):
            now = life.true_first_ms
            sample.hidden_down_ms = DAY_MS if now is None else _kept_ms(now - sample.ts)
        for past in (named, of_host):
            if past is None or past is before or not _is_asked(past, life):
                continue
            passed = passed_ms(past, life)
            if passed is not None:
                hidden = _hidden_ms(sample, passed, past.latest_ms)
            else:  # Who tells of the time in between is taken to have a clock that is right.
                hidden = DAY_MS if self.is_one_broker else 0
            sample.hidden_down_ms = max(sample.hidden_down_ms, _kept_ms(hidden))
        if sample.ts < self._w0_ms and sample.hidden_down_ms and life.true_first_ms is None:
            # Its clock may be behind by that much ever since.
            boot_ts = min(life.first.boot_ts, sample.ts)
            sample.carried_ms = max(0, sample.hidden_down_ms - (self._w0_ms - boot_ts))
        self._before = life
        if host is not None:
            self._of_host[host] = life

    def _may_be_same(self, before: LifeClocks, life: LifeClocks) -> bool:
        """Whether a life of which nobody says whose it is may follow the one before it: lines of
        version 1 have no host."""
        is_told = before.first.host is not None and life.first.host is not None
        is_behind = life.first.ts >= before.last.ts - AGREE_MS
        return not is_told and is_behind and self._past_of(life) is None

    def _has_unknown_past(self, life: LifeClocks) -> bool:
        """Whether nobody tells how long a broker was down before this life of it, though it was
        there. Another broker that wrote until then does: clocks of hosts are taken to agree."""
        first, before = life.first, self._before
        is_told = before is not None and before.latest_ms >= self._w0_ms - REACH_MS
        if is_told or first.boot_ts < self._w0_ms - DAY_MS:
            return False
        is_new = first.prev_boot is None and not (self._is_known and first.boot_ts >= self._w0_ms)
        return not is_new

    def _past_of(self, life: LifeClocks) -> LifeClocks | None:
        """The life that it names, of whatever stream."""
        boot = life.first.prev_boot
        if boot is None or boot == life.first.boot:
            return None
        return self._by_boot.get(boot) or self._elsewhere.get(boot)

    def _is_end(self, life: LifeClocks, passed_by: Collection[str]) -> bool:
        return life.first.boot in self._by_boot or life.first.boot in passed_by

    def _name(self, life: LifeClocks) -> LifeClocks | None:
        """The life that it names, which may stand behind it where a clock was set back; and whether
        that comes from one of this stream, which makes both one broker's."""
        named = ours = self._past_of(life)
        passed_by = {life.first.boot}
        while ours is not None and not self._is_end(ours, passed_by):
            passed_by.add(ours.first.boot)
            ours = self._past_of(ours)
        if ours is None or ours.first.boot in passed_by:
            self.is_one_broker = self.is_one_broker and not self._has_root
            self._has_root = True
        else:
            self.is_one_broker = self.is_one_broker and ours.first.boot not in self._named
            self._named.add(ours.first.boot)
        return named


def _measure_before(before: LifeClocks, life: LifeClocks, told: int) -> None:
    """The time between two lives that stand one behind the other: where the wall clock shows less
    than passed the rest is hidden, where it shows more nothing of it is proved down."""
    sample = life.samples[0]
    sample.passed_ms = passed_ms(before, life)
    if sample.passed_ms is None:
        sample.hidden_down_ms, sample.proves_down, sample.shows_more = DAY_MS, False, True
        return
    hidden_ms = _hidden_ms(sample, sample.passed_ms, told)
    sample.hidden_down_ms = _kept_ms(hidden_ms)
    sample.proves_down = hidden_ms >= -AGREE_MS
    sample.shows_more = _hidden_ms(sample, sample.passed_ms, before.last.ts) < -AGREE_MS


def _hidden_ms(first: Sample, passed: int, told: int) -> int:
    """What passed, less what the wall clock shows of it; negative where it shows more."""
    boot_ts = min(first.line.boot_ts, first.ts)
    return max(0, passed - (first.ts - boot_ts)) - max(0, boot_ts - told)


def _kept_ms(hidden_ms: int) -> int:
    return min(hidden_ms, DAY_MS) if hidden_ms > _SHORT_MS else 0


def passed_ms(past: LifeClocks, life: LifeClocks) -> int | None:
    """From the last line of a life to the first one of the next, which may be of another broker;
    None where nothing proves it."""
    before, first = past.last, life.first
    by_uptime_ms = _risen_ms(before, first)
    if by_uptime_ms is not None and by_uptime_ms >= -AGREE_MS:
        return max(0, by_uptime_ms)
    if before.machine_boot is None or first.machine_boot is None:
        # A line from before these fields: two clocks agree, and one of them nobody sets.
        by_mono_ms = first.mono - before.mono
        if abs(by_mono_ms - (first.ts - before.ts)) <= AGREE_MS:
            return max(0, by_mono_ms)
    then, now = past.true_last_ms, life.true_first_ms
    return None if then is None or now is None else max(0, now - then)


def slept_ms(before: Line, line: Line) -> int:
    """How long the machine slept between two lines of a life: its monotonic clock stood still."""
    risen_ms = _risen_ms(before, line)
    return 0 if risen_ms is None else max(0, risen_ms - max(0, line.mono - before.mono))


def _risen_ms(before: Line, line: Line) -> int | None:
    """By how much the uptime of one machine rose; one that falls was put back to an earlier state
    of it. None where it is not known to be one machine."""
    if before.machine_boot is None or before.machine_boot != line.machine_boot:
        return None
    if before.uptime is None or line.uptime is None:
        return None
    return line.uptime - before.uptime


def _true_ms(line: Line, of_its_life: Iterable[Line]) -> int | None:
    """Its moment by the first of these lines at which a time service held the wall clock."""
    for each in of_its_life:
        if each.clock_error_ms is not None and each.clock_error_ms <= AGREE_MS:
            return each.ts + line.mono - each.mono
    return None


def _is_asked(past: LifeClocks, life: LifeClocks) -> bool:
    """Whether the clock of both is the same one: the broker went on, or lines of its host did.
    Clocks of different hosts are taken to agree (docs/sla_report.md, "What is not promised"); lives
    of one host that overlap are two masters at once, which are judged as such."""
    before, first = past.last, life.first
    if first.prev_boot == before.boot:
        return True
    is_behind = first.ts >= before.ts - AGREE_MS
    is_same_host = first.host is not None and first.host == before.host
    is_same_machine = _risen_ms(before, first) is not None
    return is_behind and (is_same_host or is_same_machine)


def inherit_hidden(masters: Iterable[Sample], every: Sequence[LifeClocks], day: Day) -> None:
    """Who was a slave before it became the master brings along what is hidden before that life, as
    long as nobody held the clock. `masters`: laid out; `every`: all lives of the group."""
    by_boot: dict[str, LifeClocks] = {}
    for each in every:
        by_boot.setdefault(each.first.boot, each)
    latest_ms = 0
    for sample in masters:
        before = sample.predecessor
        if sample.boot_predecessor is None and sample.line.boot_ts < day.w1_ms:
            past = list(_past_lives(sample.line, by_boot))
            is_other = before is not None and all(
                before.line.boot != one.first.boot for one in past
            )
            is_told = is_other and latest_ms >= day.w0_ms - REACH_MS
            for slave in itertools.takewhile(_is_of_slave, past):
                hidden_ms = _hidden_before(slave, by_boot, day.w0_ms)
                if hidden_ms < DAY_MS or not is_told:  # who is told of was the master then
                    _inherit(by_boot[sample.line.boot], slave, hidden_ms, day.w0_ms)
        latest_ms = sample.ts if sample.boot_predecessor is None else max(latest_ms, sample.ts)


def _past_lives(line: Line, by_boot: Mapping[str, LifeClocks]) -> Iterator[LifeClocks]:
    """The life that it names, the one that that names, and so on."""
    seen = {line.boot}
    while line.prev_boot is not None and line.prev_boot not in seen:
        seen.add(line.prev_boot)
        past = by_boot.get(line.prev_boot)
        if past is None:
            return
        yield past
        line = past.first


def _is_of_slave(life: LifeClocks) -> bool:
    return life.first.role not in MASTER_ROLES


def _hidden_before(life: LifeClocks, by_boot: Mapping[str, LifeClocks], w0_ms: int) -> int:
    """How much time its clock does not show between a life and the one that it names."""
    sample, boot = life.samples[0], life.first.prev_boot
    if boot is None:
        return 0
    if boot in by_boot:
        passed = passed_ms(by_boot[boot], life)
        latest_ms = by_boot[boot].latest_ms
        return DAY_MS if passed is None else _kept_ms(_hidden_ms(sample, passed, latest_ms))
    if life.first.boot_ts < w0_ms - DAY_MS:
        return 0
    now = life.true_first_ms
    return DAY_MS if now is None else _kept_ms(now - sample.ts)


def _inherit(life: LifeClocks, slave: LifeClocks, hidden_ms: int, w0_ms: int) -> None:
    """What is hidden before the life of a slave is hidden before the one that it led to."""
    sample, first = life.samples[0], slave.samples[0]
    is_before = first.ts < w0_ms
    if is_before:
        is_held = slave.true_first_ms is not None
        shown_ms = w0_ms - min(first.line.boot_ts, first.ts)
        hidden_ms = 0 if is_held else max(0, hidden_ms - shown_ms)
    now = life.true_first_ms
    if now is not None:
        hidden_ms = min(hidden_ms, _kept_ms(now - sample.ts))
    if is_before and now is None:
        sample.carried_ms += hidden_ms
    else:
        sample.hidden_down_ms = max(sample.hidden_down_ms, hidden_ms)


def lives_of(samples: Iterable[Sample]) -> list[LifeClocks]:
    """The lives of samples that are in the order of boot and seq."""
    lives: dict[tuple[int, str], list[Sample]] = {}
    for sample in samples:
        lives.setdefault((sample.line.broker_id, sample.line.boot), []).append(sample)
    return [LifeClocks(life) for life in lives.values()]

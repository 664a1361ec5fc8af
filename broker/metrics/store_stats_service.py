"""StoreStatsService: totals and rates of puts and gets for code 28 and the exporter.

Runs in `remoting`, which does the puts and gets (in RocketMQ it is part of the store). The loop
thread increments integers; the scheduled executor samples every second and rotates the distribution
of put times every minute. Readers get frozen copies. In memory only; knows no request.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from ipc.clock import Clock

if TYPE_CHECKING:
    from ipc.scheduled_executor import ScheduledExecutor

SAMPLING_MS: Final = 1_000
TURN_OVER_MS: Final = 60_000
_KEPT_SAMPLES: Final = 601
_WINDOWS: Final = (10, 60, 600)

DISTRIBUTION_NAMES: Final = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)
_DISTRIBUTION_STARTS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000)
"""The lower bound in ms of each class except the first."""

_LATENCY_STEPS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
"""(width in ms, how many) of the latency classes up to 10 s."""
_LATENCY_BOUNDS: Final = tuple(
    accumulate(chain.from_iterable(repeat(width, times) for width, times in _LATENCY_STEPS))
)
assert _LATENCY_BOUNDS[-1] == 10_000
assert len(DISTRIBUTION_NAMES) == len(_DISTRIBUTION_STARTS) + 1

Rates = tuple[float | None, float | None, float | None]
"""Per second over the last 10, 60 and 600 s; None if it has not run that long."""


class _Sample(NamedTuple):
    timestamp_ms: int
    put: int
    found: int
    miss: int
    transferred: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatistics:
    """The statistics at one moment. Times in ms, sizes in bytes."""

    boot_timestamp_ms: int
    put_times_total: int
    put_failed_times: int
    put_size_total: int
    put_entire_time_max_ms: int
    get_entire_time_max_ms: int
    get_transferred_total: int
    put_distribution: tuple[int, ...]
    """Counts of the last full minute, by DISTRIBUTION_NAMES."""
    put_latency_99_ms: float
    put_latency_999_ms: float
    put_tps: Rates
    found_tps: Rates
    miss_tps: Rates
    transferred_tps: Rates


class StoreStatsService:
    """Owned by: the loop thread for the counters, the scheduled executor for the samples."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._boot_timestamp_ms = clock.now_ms()
        self._samples: deque[_Sample] = deque(maxlen=_KEPT_SAMPLES)
        self.put_times = 0
        self.put_size = 0
        self.put_failed_times = 0
        self.get_found_times = 0
        self.get_miss_times = 0
        self.get_transferred = 0
        self.put_entire_time_max_ms = 0
        self.get_entire_time_max_ms = 0
        self._distribution = [0] * len(DISTRIBUTION_NAMES)
        self._last_distribution = tuple(self._distribution)
        self._latencies = [0] * (len(_LATENCY_BOUNDS) + 1)
        self._last_latencies = tuple(self._latencies)

    # -- counting (loop thread) -----------------------------------------------------------------

    def add_put(self, count: int, size: int, elapsed_ms: int) -> None:
        """`count` messages of `size` bytes were stored; each took `elapsed_ms`."""
        self.put_times += count
        self.put_size += size
        self._distribution[bisect_right(_DISTRIBUTION_STARTS, elapsed_ms)] += count
        self._latencies[bisect_left(_LATENCY_BOUNDS, elapsed_ms)] += count
        self.put_entire_time_max_ms = max(self.put_entire_time_max_ms, elapsed_ms)

    def add_get(self, count: int, elapsed_ms: int) -> None:
        """A pull returned `count` messages (0: none found) in `elapsed_ms`."""
        if count:
            self.get_found_times += 1
            self.get_transferred += count
        else:
            self.get_miss_times += 1
        self.get_entire_time_max_ms = max(self.get_entire_time_max_ms, elapsed_ms)

    # -- sampling (scheduled executor) ----------------------------------------------------------

    def schedule_on(self, scheduler: ScheduledExecutor) -> None:
        """Schedule the tasks."""
        for name, function, period_ms in (
            ("store-stats", self.sample, SAMPLING_MS),
            ("store-stats-minute", self.turn_over, TURN_OVER_MS),
        ):
            scheduler.schedule(name, function, first_delay_ms=period_ms, period_ms=period_ms)

    def sample(self) -> None:
        """Runs every second."""
        self._samples.append(
            _Sample(
                self._clock.now_ms(),
                self.put_times,
                self.get_found_times,
                self.get_miss_times,
                self.get_transferred,
            )
        )

    def turn_over(self) -> None:
        """Runs every minute: the current distribution becomes the reported one."""
        counted, self._distribution = self._distribution, [0] * len(DISTRIBUTION_NAMES)
        self._last_distribution = tuple(counted)
        latencies, self._latencies = self._latencies, [0] * (len(_LATENCY_BOUNDS) + 1)
        self._last_latencies = tuple(latencies)

    # -- reading --------------------------------------------------------------------------------

    def snapshot(self) -> StoreStatistics:
        """A consistent snapshot. Any thread."""
        samples = tuple(self._samples)
        return StoreStatistics(
            boot_timestamp_ms=self._boot_timestamp_ms,
            put_times_total=self.put_times,
            put_failed_times=self.put_failed_times,
            put_size_total=self.put_size,
            put_entire_time_max_ms=self.put_entire_time_max_ms,
            get_entire_time_max_ms=self.get_entire_time_max_ms,
            get_transferred_total=self.get_transferred,
            put_distribution=self._last_distribution,
            put_latency_99_ms=percentile_ms(self._last_latencies, 0.99),
            put_latency_999_ms=percentile_ms(self._last_latencies, 0.999),
            put_tps=_rates(samples, lambda sample: sample.put),
            found_tps=_rates(samples, lambda sample: sample.found),
            miss_tps=_rates(samples, lambda sample: sample.miss),
            transferred_tps=_rates(samples, lambda sample: sample.transferred),
        )


def _rates(samples: tuple[_Sample, ...], value: Callable[[_Sample], int]) -> Rates:
    first, second, third = (_rate(samples, value, seconds) for seconds in _WINDOWS)
    return first, second, third


def _rate(
    samples: tuple[_Sample, ...], value: Callable[[_Sample], int], seconds: int
) -> float | None:
    """Growth over the last `seconds` samples, per second; None when there are fewer."""
    if len(samples) <= seconds:
        return None
    begin, end = samples[-(seconds + 1)], samples[-1]
    span_ms = end.timestamp_ms - begin.timestamp_ms
    return (value(end) - value(begin)) * 1000 / span_ms if span_ms > 0 else 0.0


def percentile_ms(counts: tuple[int, ...], share: float) -> float:
    """The time within which `share` of the puts completed, interpolated linearly within a class.

    `counts` by latency class, the last one open: its puts count as its lower bound.
    """
    wanted = int(sum(counts) * share)
    passed = 0
    lower = 0
    for bound, count in zip((*_LATENCY_BOUNDS, _LATENCY_BOUNDS[-1]), counts, strict=True):
        if wanted <= passed + count:
            return lower + ((bound - lower) * (wanted - passed) / count if count else 0.0)
        passed += count
        lower = bound
    return float(lower)

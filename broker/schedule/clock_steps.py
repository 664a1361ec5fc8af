"""ClockSteps: what was done to the wall clock while delayed messages wait.

A delayed message's due time is its store time plus its delay, by the wall clock of the moment in
which it was stored. When that clock is set, everything that waits would come early or late by the
step. So each step is kept with the queue offsets it concerns, and `due_ms` says when a message is
due by the clock as it is now.

A step is a change of the difference between the wall clock and the time since the machine's boot,
sleep included; below STEP_MS it is none. Steps, and that difference, are kept in a file: {"boot",
"ahead_ms", "steps": {queue id: [[first, end, before_ms, after_ms, by_ms]]}}, so that a clock that
is set while nothing runs is noticed within the same boot of the machine. Over a boot the wall clock
is believed. Owned by the loop thread; the file is written at a step only. (RocketMQ believes the
wall clock always.)
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from ipc.clock import Clock
from store.atomic_write import atomic_write
from store.clean_exit import boot_id

log = logging.getLogger(__name__)

STEP_MS: Final = 500
_LOOK_MS: Final = 20
_MOST_STEPS: Final = 64
"""Of a queue."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The clock was set by `by_ms`, from about `before_ms` to `after_ms`.

    Messages before queue offset `first` were stored earlier, from `end` on later, those in between
    by the one or the other clock.
    """

    first: int
    end: int
    before_ms: int
    after_ms: int
    by_ms: int

    def concerns(self, queue_offset: int, stored_ms: int) -> bool:
        """Whether a message was stored by the clock before this step."""
        if self.first <= queue_offset < self.end:
            return abs(stored_ms - self.before_ms) <= abs(stored_ms - self.after_ms)
        return queue_offset < self.first


class ClockSteps:
    """See the module."""

    def __init__(self, clock: Clock, path: Path | None = None) -> None:
        """path: the file, read by `start`; None: steps are not kept over a restart."""
        self._clock = clock
        self._path = path
        self._steps: dict[int, list[_Step]] = {}
        self._ends: dict[int, int] = {}
        self._seen_ms = 0
        self._wall_ms = 0
        self._ahead_ms = 0
        """Wall clock minus time since boot, as of the last step."""

    def start(self, ends: Mapping[int, int]) -> None:
        """Before the first delivery. ends: by queue id, the queue offset after its last message."""
        kept_ms = self._load()
        wall_ms, boot_ms = self._read()
        self._ahead_ms = wall_ms - boot_ms if kept_ms is None else kept_ms
        self._wall_ms, self._seen_ms = wall_ms, boot_ms
        self._ends = dict(ends)
        if kept_ms is None:
            self._save()
        else:
            self._take_step(self._ends, wall_ms, boot_ms)

    def forget(self) -> None:
        """This broker is no master: others store now, by their clocks."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    @property
    def is_due(self) -> bool:
        """Whether it is time to `look`: the clock was set, or the last time is a while ago."""
        seen_ms = self._clock.since_boot_ms()
        step_ms = self._clock.now_ms() - seen_ms - self._ahead_ms
        return abs(step_ms) >= STEP_MS or seen_ms - self._seen_ms >= _LOOK_MS

    def look(self, ends: Mapping[int, int], turn_ms: int) -> None:
        """Notice a step. ends: as for `start`, now. turn_ms: the wall clock by which this turn of
        the loop stores; set since, the next turn will notice."""
        wall_ms, boot_ms = self._read()
        if abs(wall_ms - turn_ms) >= STEP_MS:
            return
        self._take_step(ends, wall_ms, boot_ms)
        self._wall_ms, self._seen_ms = wall_ms, boot_ms
        self._ends = dict(ends)

    def due_ms(self, queue_id: int, queue_offset: int, deliver_ms: int, delay_ms: int) -> int:
        """When a message is due by the wall clock of now. deliver_ms: by that of its storing."""
        steps = self._steps.get(queue_id)
        if not steps or steps[-1].end <= queue_offset:
            return deliver_ms
        stored_ms = deliver_ms - delay_ms
        by_ms = sum(step.by_ms for step in steps if step.concerns(queue_offset, stored_ms))
        return deliver_ms + by_ms

    def _read(self) -> tuple[int, int]:
        """The wall clock and the time since boot, of one moment. All that is concluded follows from
        one reading: the clock may be set between two. This thread may lose the processor between
        its halves, which looks like a step: then it reads again."""
        while True:
            before_ms = self._clock.since_boot_ms()
            wall_ms, boot_ms = self._clock.now_ms(), self._clock.since_boot_ms()
            if boot_ms - before_ms < STEP_MS // 2:
                return wall_ms, boot_ms

    def _take_step(self, ends: Mapping[int, int], wall_ms: int, boot_ms: int) -> None:
        difference_ms = wall_ms - boot_ms
        by_ms = difference_ms - self._ahead_ms
        if abs(by_ms) < STEP_MS:
            return
        self._ahead_ms = difference_ms
        for queue_id, end in ends.items():
            if end:
                first = self._ends.get(queue_id, 0)
                step = _Step(first, end, self._wall_ms, wall_ms, by_ms)
                self._steps[queue_id] = [*self._steps.get(queue_id, ()), step][-_MOST_STEPS:]
        log.warning(
            "the wall clock was set by %s ms: delayed messages that wait keep their delays", by_ms
        )
        self._save()

    # -- the file --------------------------------------------------------------------------------

    def _load(self) -> int | None:
        """The kept difference, if it is of this boot; the steps are taken over in any case."""
        if self._path is None:
            return None
        try:
            found = json.loads(self._path.read_bytes())
            steps = {
                int(queue_id): [_Step(*map(int, step)) for step in kept]
                for queue_id, kept in found["steps"].items()
            }
            ahead_ms, boot = int(found["ahead_ms"]), found["boot"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s: not used: %r", self._path, error)
            return None
        self._steps = steps
        return ahead_ms if boot == boot_id() else None

    def _save(self) -> None:
        if self._path is None:
            return
        steps = {key: [astuple(step) for step in kept] for key, kept in self._steps.items()}
        found = {"boot": boot_id(), "ahead_ms": self._ahead_ms, "steps": steps}
        try:
            atomic_write(self._path, json.dumps(found).encode())
        except OSError as error:
            log.warning("%s: not written: %s", self._path, error)

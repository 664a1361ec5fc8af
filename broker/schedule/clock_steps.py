"""ClockSteps: the store timestamp of a turn of the loop, and what was done to the wall clock while
delayed messages wait.

A delayed message's due time is its store timestamp plus its delay. When the wall clock is set,
everything that waits would come early or late by the step. So each step is kept with the queue
offsets of what was stored before it, and `due_ms` says when a message is due by the clock as it is
now.

All that a turn stores has the store timestamp that `now_ms` has given to the turn, and it is in
that same reading that a step is looked for: a clock may be set and set right again at any moment,
for a moment, and it is known of each message by which clock it was stored. Nothing else may take
the store timestamp.

A step is a change of the difference between the wall clock and the time since the machine's boot,
sleep included; below STEP_MS it is none. Steps, and that difference, are kept in a file: {"boot",
"ahead_ms", "steps": {queue id: [[end, by_ms]]}}, written before anything is stored by the new
clock; so a clock that is set while nothing runs is noticed within the same boot of the machine.
Over a boot the wall clock is believed. Owned by the loop thread. (RocketMQ believes the wall clock
always.)
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from conf.atomic_file import replace_file
from ipc.clock import Clock
from store.clean_exit import boot_id

log = logging.getLogger(__name__)

STEP_MS: Final = 500
_MOST_STEPS: Final = 64
"""Of a queue: steps between which messages were stored, while its oldest one waits."""
Waiting = Callable[[], Mapping[int, range]]
"""By queue id, the queue offsets of the messages that may wait, up to the last one stored."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The clock was set by `by_ms` after the message before queue offset `end` was stored."""

    end: int
    by_ms: int


class ClockSteps:
    """See the module."""

    def __init__(self, clock: Clock, path: Path | None = None) -> None:
        """path: the file, read by `start`; None: steps are not kept over a restart."""
        self._clock = clock
        self._path = path
        self._steps: dict[int, list[_Step]] = {}
        self._waiting: Waiting | None = None
        self._ahead_ms = 0
        """Wall clock minus time since boot, as of the last step."""

    def start(self, waiting: Waiting) -> None:
        """Before the first message is stored; the log is open."""
        kept_ms = self._load()
        self._waiting = waiting
        self._forget_what_is_gone(waiting())
        if kept_ms is None:
            wall_ms, boot_ms = self._read()
            self._ahead_ms = wall_ms - boot_ms
            self._save()
        else:
            self._ahead_ms = kept_ms
            self._look()

    def stop(self) -> None:
        """This broker stores nothing for now; what the file keeps counts at the next `start`."""
        self._waiting = None

    def forget(self) -> None:
        """This broker is no master: others store now, by their clocks."""
        self._waiting = None
        self._steps.clear()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def now_ms(self) -> int:
        """The wall clock, by which the turn that begins stores; a step is noticed and kept."""
        wall_ms = self._clock.now_ms()
        if self._waiting is None:
            return wall_ms
        off_ms = wall_ms - self._clock.since_boot_ms() - self._ahead_ms
        return wall_ms if -STEP_MS < off_ms < STEP_MS else self._look()

    def due_ms(self, queue_id: int, queue_offset: int, deliver_ms: int) -> int:
        """When a message is due by the wall clock of now. deliver_ms: by that of its storing."""
        steps = self._steps.get(queue_id)
        if not steps or steps[-1].end <= queue_offset:
            return deliver_ms
        return deliver_ms + sum(step.by_ms for step in steps if queue_offset < step.end)

    def _look(self) -> int:
        """The wall clock; what it was set by is kept."""
        wall_ms, boot_ms = self._read()
        by_ms = wall_ms - boot_ms - self._ahead_ms
        if abs(by_ms) >= STEP_MS:
            self._take_step(by_ms)
        return wall_ms

    def _read(self) -> tuple[int, int]:
        """The wall clock and the time since boot, of one moment. This thread may lose the processor
        between its halves, which looks like a step: then it reads again."""
        while True:
            before_ms = self._clock.since_boot_ms()
            wall_ms, boot_ms = self._clock.now_ms(), self._clock.since_boot_ms()
            if boot_ms - before_ms < STEP_MS // 2:
                return wall_ms, boot_ms

    def _take_step(self, by_ms: int) -> None:
        assert self._waiting is not None
        self._ahead_ms += by_ms
        waiting = self._waiting()
        self._forget_what_is_gone(waiting)
        for queue_id, waits in waiting.items():
            if waits:
                steps = self._steps.setdefault(queue_id, [])
                if steps and steps[-1].end == waits.stop:
                    by_all_ms = steps.pop().by_ms + by_ms
                else:
                    by_all_ms = by_ms
                steps.append(_Step(waits.stop, by_all_ms))
                del steps[:-_MOST_STEPS]
        log.warning(
            "the wall clock was moved by %s ms: waiting delayed messages keep their delays", by_ms
        )
        self._save()

    def _forget_what_is_gone(self, waiting: Mapping[int, range]) -> None:
        """No step concerns messages that were delivered, nor those that were cut off the log, whose
        queue offsets are given again."""
        for queue_id, steps in list(self._steps.items()):
            waits = waiting.get(queue_id, range(0))
            self._steps[queue_id] = [
                _Step(min(step.end, waits.stop), step.by_ms)
                for step in steps
                if waits and step.end > waits.start
            ]

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
        except (OSError, ArithmeticError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s: ignored: %r", self._path, error)
            return None
        self._steps = steps
        return ahead_ms if boot == boot_id() else None

    def _save(self) -> None:
        if self._path is None:
            return
        steps = {key: [astuple(step) for step in kept] for key, kept in self._steps.items() if kept}
        found = {"boot": boot_id(), "ahead_ms": self._ahead_ms, "steps": steps}
        try:
            replace_file(self._path, json.dumps(found).encode())
        except OSError as error:
            log.warning("%s: cannot be written: %s", self._path, error)

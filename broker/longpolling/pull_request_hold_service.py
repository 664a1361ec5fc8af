"""PullRequestHoldService: pulls that found nothing wait here until their queue moves (long poll).

Runs on the loop thread of `remoting`. A pull waits under its (topic, queueId); the queue table's
ring of moved rows says which queues to look at. A woken pull runs again; one whose tags match
nothing new goes on waiting from where it had looked to. Follows PullRequestHoldService of the
original, with two differences that clients like: time-outs are noticed within a second (there:
five), and a filtered pull is not answered for messages that it does not want, unless there are
more of them than one pull looks at. A round of the clock costs what is due, not what waits
(docs/costs.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.longpolling.pull_header import HeldPull

SCAN_PERIOD_MS: Final = 1_000
_SWEEP_MS: Final = 30_000
"""Pulls of connections that are gone are forgotten when they are due, and in such a round."""

QueueKey = tuple[str, int]
RunAgain = Callable[[HeldPull, bool], bool]
"""(pull, time is up) -> whether it was answered."""


@dataclass(frozen=True, slots=True)
class HoldFigures:
    """How many pulls wait, on how many queues."""

    pulls: int
    queues: int


class PullRequestHoldService:
    """Waiting pulls by queue. Owned by: the loop thread."""

    def __init__(self, run_again: RunAgain) -> None:
        self._run_again = run_again
        self._held: dict[QueueKey, list[HeldPull]] = {}
        self._due: dict[int, set[QueueKey]] = {}
        """Period of the clock to the queues on which the time of some pull may be up in it."""
        self._sweep_ms = 0

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits."""
        return not self._held

    def figures(self) -> HoldFigures:
        """For the runtime information."""
        return HoldFigures(sum(map(len, self._held.values())), len(self._held))

    def hold(self, key: QueueKey, pull: HeldPull) -> None:
        """Let `pull` wait for `key` to move."""
        self._held.setdefault(key, []).append(pull)
        self._note(key, pull)

    def _note(self, key: QueueKey, pull: HeldPull) -> None:
        self._due.setdefault(pull.deadline_ms // SCAN_PERIOD_MS, set()).add(key)

    def wake(self, key: QueueKey) -> None:
        """`key` has moved: run what waits for it."""
        if key in self._held:
            self._run(key, now_ms=None)

    def wake_all(self) -> None:
        """Too many queues moved to name them: run everything."""
        for key in list(self._held):
            self._run(key, now_ms=None)

    def scan(self, now_ms: int) -> None:
        """Answer the pulls whose time is up; now and then forget those whose connection is gone."""
        period = now_ms // SCAN_PERIOD_MS
        for due in [due for due in self._due if due <= period]:
            for key in self._due.pop(due):
                if key in self._held:
                    self._run(key, now_ms)
                    for pull in self._held.get(key, ()):
                        self._note(key, pull)
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + _SWEEP_MS
            self._sweep()

    def _sweep(self) -> None:
        for key, pulls in list(self._held.items()):
            if not all(pull.connection.is_open for pull in pulls):
                pulls[:] = [pull for pull in pulls if pull.connection.is_open]
                if not pulls:
                    del self._held[key]

    def _run(self, key: QueueKey, now_ms: int | None) -> None:
        """With a time, only pulls whose time is up run; without, all of the queue's."""
        kept: list[HeldPull] = []
        for pull in self._held.pop(key):
            if not pull.connection.is_open:
                continue
            if now_ms is None:
                answered = self._run_again(pull, False)
            elif now_ms >= pull.deadline_ms:
                answered = self._run_again(pull, True)
            else:
                answered = False
            if not answered:
                kept.append(pull)
        if kept:
            self._held.setdefault(key, []).extend(kept)

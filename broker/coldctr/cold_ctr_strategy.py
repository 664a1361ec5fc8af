"""Strategies of cold reads: how the threshold of a group moves with what all groups read.

Loop thread of `remoting`, every five seconds. Pure arithmetic on numbers that it is given.
RocketMQ's counterparts: ColdCtrStrategy, PIDAdaptiveColdCtrStrategy and SimpleColdCtrStrategy of
5.3.3.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

_PROMOTION: Final = 1.5
_DECELERATION: Final = 0.8
_ERRORS: Final = 10
"""How many differences between what is wanted and what was read are remembered."""
_PROPORTIONAL: Final = 0.5
_INTEGRAL: Final = 0.3
_DERIVATIVE: Final = 0.2


class ColdCtrStrategy(Protocol):
    """Moves thresholds (bytes per round of five seconds)."""

    def collect(self, global_acc: int) -> None:
        """All groups together have read `global_acc` cold bytes in this round."""

    def promoted(self, threshold: int) -> int | None:
        """The next threshold of a group that has used its own up; None: it stays."""

    def decelerated(
        self, threshold: int, least: int, *, is_global_limit_passed: bool
    ) -> int | None:
        """The next threshold of a group that has a high one, not below `least`; None: it stays."""


class SimpleColdCtrStrategy:
    """Up by half, down by a fifth while all together read too much. Without state."""

    def collect(self, _global_acc: int) -> None:
        """Nothing is remembered."""

    def promoted(self, threshold: int) -> int:
        """See ColdCtrStrategy."""
        return int(threshold * _PROMOTION)

    def decelerated(
        self, threshold: int, least: int, *, is_global_limit_passed: bool
    ) -> int | None:
        """See ColdCtrStrategy."""
        return _lowered(threshold, least) if is_global_limit_passed else None


class PIDAdaptiveColdCtrStrategy:
    """The same steps, where a PID controller over the last ten rounds says so.

    Owned by: the loop thread.
    """

    def __init__(self, expected_global: int) -> None:
        """expected_global: cold bytes that all groups together should read in a round."""
        self._expected = expected_global
        self._errors: deque[int] = deque(maxlen=_ERRORS)

    def collect(self, global_acc: int) -> None:
        """See ColdCtrStrategy."""
        self._errors.append(self._expected - global_acc)

    def decision_factor(self) -> float:
        """Above 0: there is room; below: too much is read; 0 until ten rounds are known."""
        errors = self._errors
        if len(errors) < _ERRORS:
            return 0.0
        change = errors[-1] - errors[-2]
        return _PROPORTIONAL * errors[-1] + _INTEGRAL * sum(errors) + _DERIVATIVE * change

    def promoted(self, threshold: int) -> int | None:
        """See ColdCtrStrategy."""
        return int(threshold * _PROMOTION) if self.decision_factor() > 0 else None

    def decelerated(
        self, threshold: int, least: int, *, is_global_limit_passed: bool
    ) -> int | None:
        """See ColdCtrStrategy; the controller knows of the global limit already."""
        del is_global_limit_passed
        return _lowered(threshold, least) if self.decision_factor() < 0 else None


def _lowered(threshold: int, least: int) -> int:
    return max(int(threshold * _DECELERATION), least)

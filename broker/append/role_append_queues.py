"""The append queues of brokers that may not write their log: of a slave, of a member, and of a
master that is isolated.

Run on the loop thread of `remoting`. A slave's log has another writer, so nothing is ever stored. A
master that is isolated (slave/pre_online.py) stores nothing before it is online. A member of a
group with a controller stores nothing unless it leads, its lease has not run out (slot 171), and
process `ha` has no other reason to refuse (slot 172): too few in-sync replicas, or another member
that is about to lead. Each is a class of its own, so that a master pays nothing for the question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.append.append_queue import AppendQueue, AppendQueueParts, Refusal
from ha.control_slots import ISOLATED, PUTS_REFUSED, PUTS_UNTIL_MS
from remoting.response_code import ResponseCode

NOT_THE_MASTER: Final = (
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "this broker is a slave: send to its master",
)
_ISOLATED: Final = (
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "this broker is isolated (totalReplicas): it takes messages once its group is linked",
)
_NOT_CONFIRMED: Final = (
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "no controller has confirmed this master lately: it takes no messages until one does",
)
_REMARKS: Final = {
    ResponseCode.SERVICE_NOT_AVAILABLE: "another member of the group takes over from this broker",
    ResponseCode.SYSTEM_ERROR: "the in-sync replicas are not enough (minInSyncReplicas)",
}


def refuse_held(queue: AppendQueue) -> None:
    """Reject all that waits for the next file: this broker leads no more."""
    held = list(queue.held)
    queue.held.clear()
    for gone in held:
        gone.append.refused(*NOT_THE_MASTER)


class SlaveAppendQueue(AppendQueue):
    """See the module. Nothing is stored, whoever asks for it, a client of pop or a service: the log
    was never opened here, and would be written from its beginning on."""

    def _find_refusal_of_all(self) -> Refusal | None:
        return NOT_THE_MASTER


class IsolatedAppendQueue(AppendQueue):
    """See the module. A master that started isolated has it for life. (RocketMQ stores what clients
    send to such a master's address.)"""

    def __init__(self, parts: AppendQueueParts, counters: Sequence[int]) -> None:
        """counters: of the control page."""
        super().__init__(parts)
        self._counters = counters

    @property
    def role_refusal(self) -> Refusal | None:
        """See AppendQueue."""
        return _ISOLATED if self._counters[ISOLATED] else None

    def _find_refusal_of_all(self) -> Refusal | None:
        return self.role_refusal or super()._find_refusal_of_all()


class MemberAppendQueue(AppendQueue):
    """See the module. Owned by: the loop thread."""

    def __init__(
        self, parts: AppendQueueParts, counters: Sequence[int], leads: Callable[[], bool]
    ) -> None:
        """counters: of the control page. leads: whether the log is this process's to write."""
        super().__init__(parts)
        self._leads = leads
        self._counters = counters

    @property
    def role_refusal(self) -> Refusal | None:
        """See AppendQueue."""
        return None if self._leads() else NOT_THE_MASTER

    def _find_refusal_of_all(self) -> Refusal | None:
        if not self._leads():
            return NOT_THE_MASTER
        counters = self._counters
        if code := counters[PUTS_REFUSED]:
            return ResponseCode(code), _REMARKS.get(ResponseCode(code), "puts are refused")
        if self._clock.monotonic_ms() >= counters[PUTS_UNTIL_MS]:
            return _NOT_CONFIRMED
        return super()._find_refusal_of_all()

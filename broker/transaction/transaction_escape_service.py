"""TransactionEscapeService: an acting slave hands undecided transactions to other brokers.

With enableSlaveActingMaster and enableRemoteEscape. While this slave stands in for its master
nobody can end a transaction here, and it asks no producers: halves that are old enough to be
checked are sent, as halves, to another master that has their topic (EscapeBridge), which asks the
producers of their group. The progress of the half and op queues, offsets of this broker's own
group, passes a half once that broker has stored it, and the returning master takes them over (43).
Halves go in their order; one waits while nobody takes it, or while this slave cannot read it, since
the master may. What comes twice: a half that was handed over, and whose end a producer sends to
its own broker all the same.

A thread of its own in process `remoting`, on slaves only. Corresponds to escapeMessage of
TransactionalMessageServiceImpl and TransactionalMessageBridge in RocketMQ 5.3.3, which gives up on
a half after some attempts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from broker.append.diverted_messages import home_of
from broker.append.send_properties import without_property
from broker.out.escape_bridge import EscapeBridge, EscapedMessage, EscapeError
from broker.schedule.due_message import escaped_message
from broker.topic.system_topics import TRANS_HALF_TOPIC
from broker.transaction.half_message_states import HalfMessageStates
from broker.transaction.recovered_halves import was_stored_again
from broker.transaction.transaction_records import (
    CHECK_TIMES,
    PRODUCER_GROUP,
    identity_of,
)
from broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from ipc.clock import Clock
from ipc.service_thread import FailureHandler, ServiceThread
from store.control_slots import DISPATCHED_OFFSET, MAX_PHY_OFFSET
from store.errors import StoreError
from store.message import Message
from store.message_codec import TRANSACTION_MASK, TRANSACTION_PREPARED
from store.put_aside import ReadBy, RecordGuard

log = logging.getLogger(__name__)

LOOK_MS: Final = 1_000


class TransactionEscapeService(ServiceThread):
    """See the module. Owned by: its thread."""

    def __init__(
        self,
        may_deliver: Callable[[], bool],
        make_bridge: Callable[[HalfMessageStates], TransactionalMessageBridge],
        bridge: EscapeBridge,
        counters: memoryview[int],
        time_out_ms: int,
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """may_deliver: ActingMaster. make_bridge: to this slave's store; of it only what reads and
        stores progress is used. counters: of the control page. time_out_ms: transactionTimeOut."""
        super().__init__("TransactionEscapeService", on_failure=on_failure)
        self._may_deliver = may_deliver
        self._make_bridge = make_bridge
        self._bridge = bridge
        self._counters = counters
        self._time_out_ms = time_out_ms
        self._clock = clock
        self._guard = RecordGuard(ReadBy.TRANSACTION_CHECK)
        self._queue: _Halves | None = None
        """While this slave acts."""
        self._trouble = ""

    def step(self) -> None:
        """Hand over what is due."""
        if not self._may_deliver():
            self._queue, self._trouble = None, ""
        else:
            try:
                self._hand_over()
                self._trouble = ""
            except (EscapeError, StoreError) as error:
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning("transactions wait: %s", error)
        self.wait_for_running(LOOK_MS)

    def _hand_over(self) -> None:
        """Raises EscapeError, StoreError: go on there."""
        queue = self._queue or self._open()
        if queue is None:
            return
        high = queue.bridge.offsets(TRANS_HALF_TOPIC)[1]
        while queue.position < high and not self.stopped and self._may_deliver():
            if not queue.states.is_ended(queue.position) and not self._pass(queue):
                return
            queue.position += 1
            if queue.position == high or queue.sent_last:
                queue.store_progress()

    def _open(self) -> _Halves | None:
        """Once the log, which has no writer now, is dispatched."""
        if self._counters[DISPATCHED_OFFSET] < self._counters[MAX_PHY_OFFSET]:
            return None
        states = HalfMessageStates()
        bridge = self._make_bridge(states)
        if not bridge.read_ops():
            return None
        self._queue = _Halves(bridge, states)
        return self._queue

    def _pass(self, queue: _Halves) -> bool:
        """Whether the half at the position is done with: sent, or none. False: it is too young."""
        phy_offset = queue.bridge.phy_offset_at(TRANS_HALF_TOPIC, queue.position)
        half = queue.bridge.find_message(TRANS_HALF_TOPIC, queue.position)
        if half is None:
            raise EscapeError(f"the half at {queue.position} cannot be read here")
        queue.sent_last = False
        found: EscapedMessage | None = None
        identity: tuple[object, ...] = ()
        with self._guard.of(phy_offset):
            if 0 <= self._clock.now_ms() - half.born_timestamp < self._time_out_ms:
                return False
            identity = identity_of(half)
            is_known = identity in queue.sent and was_stored_again(half)
            found = None if is_known else as_half(half)
        if found is not None:
            self._bridge.put(found)
            queue.sent_last = True
            queue.sent.add(identity)
            log.info("half %s: handed over to another broker", queue.position)
        return True


class _Halves:
    """The half queue of a slave that acts."""

    def __init__(self, bridge: TransactionalMessageBridge, states: HalfMessageStates) -> None:
        self.bridge = bridge
        self.states = states
        self.position = bridge.half_offset()
        self.sent: set[tuple[object, ...]] = set()
        """Their identities: copies of a half that was checked are the same transaction."""
        self.sent_last = False

    def store_progress(self) -> None:
        """Everything before the position is done with."""
        self.bridge.store_progress(self.position, self.states.advance_ops(self.position))


def as_half(half: Message) -> EscapedMessage | None:
    """A stored half as a producer's send of it; None if its topic or its group is missing."""
    home, group = home_of(half.properties), half.find_property(PRODUCER_GROUP)
    if home is None or not group:
        return None
    found = escaped_message(half, home[0])
    properties = str(half.properties, "utf-8", "replace")
    return replace(
        found,
        sys_flag=found.sys_flag & ~TRANSACTION_MASK | TRANSACTION_PREPARED,
        properties=without_property(properties, CHECK_TIMES),
    )

"""PopAdmission: whether this broker serves a pop now, and one of these numbers.

Loop thread. For 200050 and 200070 alike; checks, codes and words are those of RocketMQ's
PopMessageProcessor. Knows no topic and no group.

Tested by tests/broker/pop/test_pop_requests.py.
"""

from __future__ import annotations

from typing import Final

from broker.pop.pop_names import MAX_POP_MESSAGES
from broker.pop.request_clock import RequestClock
from broker.settings.broker_config import BrokerConfig
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.message_store_config import MessageStoreConfig

POLLING_FULL: Final = ResponseCode(209)
POLLING_TIMEOUT: Final = ResponseCode(210)
"""Numbers to which 5.x gave a new meaning."""
_PERM_READ: Final = 4
_LATE_MS: Final = 500


class PopAdmission:
    """See the module."""

    def __init__(
        self, broker: BrokerConfig, store: MessageStoreConfig, clock: RequestClock
    ) -> None:
        self.is_held = False
        """Nobody is given messages: this broker is isolated, and does not know yet what its slaves
        handed out."""
        self._clock = clock
        self.use(broker, store)

    def use(self, broker: BrokerConfig, store: MessageStoreConfig) -> None:
        """Apply changed settings."""
        self._name = f"the broker[{broker.broker_ip1}]"
        self._is_readable = bool(broker.broker_permission & _PERM_READ) and not store.is_slave
        self._max_invisible_ms = store.timer_max_delay_ms

    def check(self, sent_ms: int, poll_time_ms: int, most: int, invisible_time_ms: int) -> None:
        """sent_ms: RequestClock. most: messages that are wanted. Raises RequestError."""
        name = self._name
        if self._clock.age_ms(sent_ms) - poll_time_ms > _LATE_MS:
            raise RequestError(POLLING_TIMEOUT, f"{name} pop message is timeout too much")
        if not self._is_readable or self.is_held:
            raise RequestError(ResponseCode.NO_PERMISSION, f"{name} pop message is forbidden")
        if most > MAX_POP_MESSAGES:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER, f"{name} pop message's num is greater than 32"
            )
        if most < 0:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{name} pop message's num is {most}")
        if not 0 <= invisible_time_ms <= self._max_invisible_ms:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{name} invisibleTime {invisible_time_ms} ms is not one of 0 to "
                f"{self._max_invisible_ms} (timerMaxDelaySec)",
            )

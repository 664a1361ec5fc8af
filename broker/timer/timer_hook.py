"""TimerHook: takes messages that name the time of their delivery to the timer topic.

Every way of such a message into the log asks it first; loop thread, and pool threads for the ends
of transactions (it keeps no state). Corresponds to the timer part of RocketMQ's HookUtils, with
SendMessageProcessor's words.

The time is TIMER_DELAY_SEC or TIMER_DELAY_MS from now, or TIMER_DELIVER_MS. It becomes the slot
TIMER_OUT_MS: the last multiple of the precision before it. asked_time.py finds the time again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from broker.append.diverted_messages import (
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    Diversion,
    asks_for_timer,
    with_home,
)
from broker.append.send_properties import append_pairs, find_property, without_property
from broker.topic.system_topics import PERM_READ_WRITE, TIMER_TOPIC
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.clock import Clock
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.message_codec import TRANSACTION_COMMIT, TRANSACTION_MASK
from store.message_properties import PROPERTIES_LIMIT
from store.record import Record

TIMER_DELETE_KEY: Final = "TIMER_DEL_UNIQKEY"
"""On a recall: `<real topic>+<UNIQ_KEY>`, or `<UNIQ_KEY>`, of the message that shall not be
delivered."""
_LONG: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_LONG_BOUND: Final = 1 << 63
_DRAWS: Final = 1000
_DELAYS: Final = ((TIMER_DELAY_SEC, 1000), (TIMER_DELAY_MS, 1))
"""Those go before a time that is named, the first before the second; their unit in ms."""


@dataclass(frozen=True, slots=True)
class TimerSettings:
    """What taking timers needs of the settings."""

    enabled: bool
    """timerWheelEnable."""
    precision_ms: int
    max_delay_ms: int
    """timerMaxDelaySec."""
    congest_num: int
    """timerCongestNumEachSlot: in a slot, from which on some are refused; from twice on all."""


class TimerHook:
    """See the module. `use` replaces its settings; any thread reads them."""

    def __init__(
        self,
        settings: TimerSettings,
        messages_in_slot: Callable[[int], int],
        clock: Clock,
        topics: TopicConfigManager,
    ) -> None:
        """messages_in_slot: of the slot of a time (ms), for flow control."""
        self._topics = topics
        self._settings = settings
        self._messages_in_slot = messages_in_slot
        self._clock = clock

    def use(self, settings: TimerSettings) -> None:
        """Settings were changed."""
        self._settings = settings

    def check(self, properties: str) -> None:
        """Raises RequestError for a message that could not be taken now (a half message: its delay
        begins when it is committed)."""
        if asks_for_timer(properties):
            self._find_slot_ms(properties)

    def refuse(self, properties: str, what: str) -> None:
        """Raises RequestError for a message with such a time where there can be none. what: "a
        batch"."""
        if not asks_for_timer(properties):
            return
        if not self._settings.enabled:
            raise self._disabled()
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"{what} cannot hold delayed messages")

    def divert(self, topic: str, queue_id: int, sys_flag: int, properties: str) -> Diversion | None:
        """Where a timer message is stored; None for any other, and for one that is due already.

        Raises RequestError: disabled (1), not a number or too far (13), too many in its slot (1).
        """
        if not asks_for_timer(properties) or topic == TIMER_TOPIC:
            return None
        if sys_flag & TRANSACTION_MASK not in (0, TRANSACTION_COMMIT):
            return None
        slot_ms = self._find_slot_ms(properties)
        if slot_ms is None:
            return None
        if self._is_congested(slot_ms):
            limit = self._settings.congest_num
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control, max num limit is {2 * limit} or the current "
                f"value is greater than {limit} and less than {2 * limit}, trigger random flow "
                "control",
            )
        self._topics.create(TIMER_TOPIC, 1, PERM_READ_WRITE)
        text = append_pairs(
            without_property(properties, TIMER_OUT_MS), f"{TIMER_OUT_MS}\x01{slot_ms}"
        )
        return Diversion(TIMER_TOPIC, 0, sys_flag, with_home(text, topic, queue_id))

    def divert_record(self, topic: str, record: Record) -> tuple[str, Record]:
        """Where a record for `topic` is stored, and as what. Raises RequestError like `divert`."""
        text = str(record.properties, "utf-8", "surrogateescape")
        place = self.divert(topic, record.queue_id, record.sys_flag, text)
        if place is None:
            return topic, record
        properties = place.properties.encode("utf-8", "surrogateescape")
        if len(properties) > PROPERTIES_LIMIT:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: properties of {len(properties)} bytes "
                f"(limit {PROPERTIES_LIMIT})",
            )
        record = msgspec.structs.replace(record, queue_id=place.queue_id, properties=properties)
        return place.topic, record

    def _disabled(self) -> RequestError:
        return RequestError(
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )

    def _find_slot_ms(self, properties: str) -> int | None:
        """TIMER_OUT_MS of a message that names a time; None: it is due."""
        settings = self._settings
        if not settings.enabled:
            raise self._disabled()
        now_ms = self._clock.now_ms()
        deliver_ms = find_deliver_ms(properties, now_ms)
        due = deliver_ms is not None and deliver_ms <= now_ms
        if due and not find_property(properties, TIMER_DELETE_KEY):
            return None
        if due or deliver_ms is None or deliver_ms - now_ms > settings.max_delay_ms:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{settings.max_delay_ms}ms; or if set del msg, the delay time should be bigger "
                "than the current time",
            )
        return (deliver_ms - 1) // settings.precision_ms * settings.precision_ms

    def _is_congested(self, slot_ms: int) -> bool:
        """As in RocketMQ: the more there are in the slot above the limit, the rarer a refusal; all
        are refused from twice the limit on."""
        limit = self._settings.congest_num
        count = self._messages_in_slot(slot_ms)
        if count <= limit:
            return False
        return count >= 2 * limit or random.randrange(_DRAWS) > _DRAWS * (count - limit) / (
            limit + 0.1
        )


def asks_for_delay(properties: str) -> bool:
    """Whether a message names a delay, which goes before a time that it names."""
    return any(find_property(properties, name) for name, _ in _DELAYS)


def find_deliver_ms(properties: str, now_ms: int) -> int | None:
    """The time that a message names, a delay counted from `now_ms`; None when that is not a
    number."""
    for name, unit_ms in _DELAYS:
        text = find_property(properties, name)
        if text:
            delay = _number(text)
            return None if delay is None else now_ms + delay * unit_ms
    return _number(find_property(properties, TIMER_DELIVER_MS) or "")


def _number(text: str) -> int | None:
    if not _LONG.fullmatch(text):
        return None
    value = int(text)
    return value if -_LONG_BOUND <= value < _LONG_BOUND else None

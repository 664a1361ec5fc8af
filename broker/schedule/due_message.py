"""A delayed message as it is sent to another broker when it is due. Pure, any thread.

An acting slave can append nothing to its own log (slave/delayed_escape_service.py). Corresponds to
ScheduleMessageService.messageTimeUp and EscapeBridge of RocketMQ 5.3.3: the delay is taken out of
the properties, since the other broker would delay the message once more, and nobody waits for its
flush or replicas (WAIT=false).
"""

from __future__ import annotations

from typing import Final

from broker.append.diverted_messages import DELAY, home_of, without_timer
from broker.append.send_properties import append_pairs, find_property, without_property
from broker.out.escape_bridge import EscapedMessage
from broker.topic.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from store.message import Message
from store.message_codec import HOSTS_V6_FLAGS, decode_record

_WAIT: Final = "WAIT"
_PRODUCER_GROUP: Final = "PGROUP"


def read_due_message(record: bytes) -> EscapedMessage | None:
    """The message in a record of the schedule topic; None if there is none that could be
    delivered."""
    message = decode_record(record, 0)[0]
    if message is None or message.topic != SCHEDULE_TOPIC:
        return None
    home = home_of(message.properties)
    if home is None or home[0] == TRANS_HALF_TOPIC:
        return None
    return escaped_message(message, home[0])


def escaped_message(message: Message, topic: str) -> EscapedMessage:
    """A stored message as it is sent to `topic` at another broker, without its delay."""
    properties = str(message.properties, "utf-8", "replace")
    group = find_property(properties, _PRODUCER_GROUP)
    for name in (DELAY, _WAIT):
        properties = without_property(properties, name)
    return EscapedMessage(
        topic=topic,
        producer_group=group or None,
        flag=message.flag,
        sys_flag=message.sys_flag & ~HOSTS_V6_FLAGS,
        born_timestamp=message.born_timestamp,
        reconsume_times=message.reconsume_times,
        properties=append_pairs(without_timer(properties), f"{_WAIT}\x01false"),
        body=message.body,
    )

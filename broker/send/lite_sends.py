"""What a send to a lite topic says about light queues: the broker's word, not the sender's.

Pure text, loop thread and pool threads. A single message with the property __LITE_TOPIC gets
INNER_MULTI_DISPATCH from the broker, whatever its sender wrote there: the light queue of that lite
topic below the topic that it is sent to. A copy for another delivery or for the dead letters gets
none, or it would be in its lite topic twice. Follows SendMessageProcessor of RocketMQ 5.5, which
dispatches dead letters again. Whether the name is one is a rule (rules.py).

Tested by tests/broker/send/test_lite_sends.py.
"""

from __future__ import annotations

from broker.append.send_properties import append_pairs, find_property, without_property
from broker.topic.system_topics import RETRY_GROUP_TOPIC_PREFIX
from remoting.errors import RequestError
from remoting.lite_names import LITE_TOPIC_PROPERTY, to_lmq_name
from remoting.response_code import ResponseCode
from store.lmq_dispatch import named_queues
from store.lmq_places import MULTI_DISPATCH, is_lmq_name

_DISPATCH = MULTI_DISPATCH.decode()


def names_of_sender(text: str, *, is_single: bool) -> list[str]:
    """The light queues that the sender of a message names, and that count."""
    if is_single and find_property(text, LITE_TOPIC_PROPERTY):
        return []
    return named_queues(text.encode())


def with_lite_queue(text: str, topic: str) -> str:
    """The properties of a single message to `topic` that names a lite topic, by the rules; any
    other's as they are. Raises RequestError (13) where both names together are too long."""
    lite = find_property(text, LITE_TOPIC_PROPERTY)
    if not lite:
        return text
    text = without_property(text, _DISPATCH)
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return text
    name = to_lmq_name(topic, lite)
    if not is_lmq_name(name):
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: its lite topic would have the queue {name!a} of "
            f"{len(name.encode())} bytes (limit 127): shorten the topic's or the lite topic's name",
        )
    return append_pairs(text, f"{_DISPATCH}\x01{name}")


def without_lite_queue(text: str) -> str:
    """The properties of the copy of a stored message that is not in its lite topic again."""
    if not find_property(text, LITE_TOPIC_PROPERTY):
        return text
    return without_property(text, _DISPATCH)

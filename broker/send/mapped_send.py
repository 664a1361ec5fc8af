"""MappedSend: a send to a static topic (5.x), between its logic queue and the physical one.

Used by SendMessageProcessor on the loop thread of `remoting`. Follows
TopicQueueMappingManager.rewriteRequestForStaticTopic and SendMessageProcessor of RocketMQ 5.3.3; a
send that names no queue goes to one that this broker leads.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import choice
from typing import NamedTuple

from broker.send.send_header import SendHeader
from remoting.body.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from remoting.logic_queue import led_items


class MappedSend(NamedTuple):
    """The logic queue of a send, and the item that is written to."""

    global_id: int
    item: LogicQueueMappingItem

    def place(self, queue_offset: int) -> tuple[int, int]:
        """Queue id and offset for the sender; -1 while the item's place is not decided."""
        return self.global_id, self.item.static_offset_loosely(queue_offset)


def map_send(
    mappings: Mapping[str, TopicQueueMappingDetail],
    header: SendHeader,
    ext_fields: Mapping[str, str],
) -> MappedSend | None:
    """Let `header` name the physical queue; None for an ordinary topic. Raises RequestError
    (NOT_LEADER_FOR_QUEUE)."""
    detail = mappings.get(header.b)
    if detail is None or ext_fields.get("lo", "").lower() == "false":
        return None
    global_id = int(header.e)
    if global_id < 0:
        led = [key for key, items in detail.hosted_queues.items() if _leads(detail, items)]
        global_id = choice(led) if led else global_id
    item = led_items(detail, header.b, global_id)[-1]
    header.e = str(item.queue_id)
    return MappedSend(global_id, item)


def _leads(detail: TopicQueueMappingDetail, items: list[LogicQueueMappingItem]) -> bool:
    return bool(items) and items[-1].bname == detail.bname

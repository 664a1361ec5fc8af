"""Who has consumed a message: one answer for each group of its topic.

Runs in the command's main thread. A guess from offsets and subscriptions, as in RocketMQ: it
does not prove that a listener succeeded. (Java: MQAdminExt.messageTrackDetail, MessageTrack.)
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.body.client_connection import ConsumerConnection
from remoting.body.heartbeat import ConsumeType
from remoting.errors import RemotingError, RequestError
from remoting.response_code import ResponseCode
from tools.admin_client import AdminClient
from tools.errors import AdminError
from tools.message_decoder import MessageExt
from tools.message_text import TAGS


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """What one group did with a message; track_type is a name of Java's TrackType."""

    consumer_group: str
    track_type: str
    exception_desc: str | None = None

    def __str__(self) -> str:
        return (
            f"MessageTrack [consumerGroup={self.consumer_group}, trackType={self.track_type}, "
            f"exceptionDesc={'null' if self.exception_desc is None else self.exception_desc}]"
        )

    def to_json(self) -> dict[str, str | None]:
        """The track for programs."""
        return {
            "consumerGroup": self.consumer_group,
            "trackType": self.track_type,
            "exceptionDesc": self.exception_desc,
        }


def track_message(admin: AdminClient, message: MessageExt) -> list[MessageTrack]:
    """One track for each group of the topic; none when the topic has no route any more."""
    route = admin.find_route(message.topic)
    groups = [] if route is None else admin.groups_of_topic(message.topic, route)
    return [_track(admin, message, group) for group in groups]


def _track(admin: AdminClient, message: MessageExt, group: str) -> MessageTrack:
    try:
        connection = admin.find_consumer_connection(group)
        if connection is None:
            code = int(ResponseCode.CONSUMER_NOT_ONLINE)
            reason = f"CODE:{code} DESC:the consumer group[{group}] not online"
            return MessageTrack(group, "NOT_ONLINE", reason)
        if connection.consume_type == ConsumeType.CONSUME_ACTIVELY:
            return MessageTrack(group, "PULL")
        if not _consumed(admin, message, group):
            return MessageTrack(group, "NOT_CONSUME_YET")
    except (AdminError, RemotingError, RequestError) as error:
        return MessageTrack(group, "UNKNOWN", str(error))
    return MessageTrack(
        group, "CONSUMED" if _wanted(message, connection) else "CONSUMED_BUT_FILTERED"
    )


def _consumed(admin: AdminClient, message: MessageExt, group: str) -> bool:
    """Whether the group's offset in the message's queue lies behind it."""
    brokers = {
        (broker.broker_name, broker.address)
        for broker in admin.brokers()
        if broker.address == message.store_host
    }
    return any(
        queue.topic == message.topic
        and queue.queue_id == message.queue_id
        and (queue.broker_name, message.store_host) in brokers
        and offset.consumer_offset > message.queue_offset
        for queue, offset in admin.consume_stats(group).offset_table.items()
    )


def _wanted(message: MessageExt, connection: ConsumerConnection) -> bool:
    """Whether the group's subscription takes the message's tag."""
    subscription = connection.subscription_table.get(message.topic)
    if subscription is None or not subscription.tags_set or "*" in subscription.tags_set:
        return True
    return message.properties.get(TAGS) in subscription.tags_set

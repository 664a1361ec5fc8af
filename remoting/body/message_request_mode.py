"""How groups get their messages, and which queues: bodies of 400, 401, 402. Pure data, any thread.

config/messageRequestMode.json has the form of the answer to 402.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.heartbeat import MessageModel
from remoting.body.json_bean import JsonBean
from remoting.body.message_queue import MessageQueue
from remoting.command_custom_header import Int32
from remoting.message_request_mode import MessageRequestMode


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMessageRequestModeRequestBody(JsonBean):
    """Body of 401, and a row of the table.

    pop_share_queue_num: of how many other members a popping member shares the queues; 0 or less:
    every member pops all queues.
    """

    topic: str
    consumer_group: str
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRequestModeSerializeWrapper(JsonBean):
    """Answer to 402: by topic, then by group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAssignmentRequestBody(JsonBean):
    """Body of 400. strategy_name: AVG or AVG_BY_CIRCLE. Its processor refuses one without topic,
    consumer_group or message_model."""

    topic: str | None = None
    consumer_group: str | None = None
    client_id: str | None = None
    message_model: MessageModel | None = None
    strategy_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueueAssignment(JsonBean):
    """A queue of a member; popping members have queue id -1 for all queues of a broker."""

    message_queue: MessageQueue
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAssignmentResponseBody(JsonBean):
    """Answer to 400. None: the member keeps what it has; an empty list: it has nothing."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None

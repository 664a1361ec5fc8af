"""Queue locks of orderly consumers: bodies of 41 and 42. Pure data, any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from remoting.body.json_bean import JsonBean
from remoting.body.message_queue import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class LockBatchRequestBody(JsonBean):
    """Body of LOCK_BATCH_MQ (41). only_this_broker is 5.x only."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockBatchRequestBody(JsonBean):
    """Body of UNLOCK_BATCH_MQ (42). only_this_broker is 5.x only."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockBatchResponseBody(JsonBean):
    """Answer to LOCK_BATCH_MQ: the queues that the client holds now."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"lock_okmqset": "lockOKMQSet"}

    lock_okmqset: list[MessageQueue] = field(default_factory=list)

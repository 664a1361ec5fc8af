"""A client of lite topics for tests and benches: plain frames as a 5.5.0 proxy writes them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from remoting.remoting_command import RemotingCommand
from store.lmq_places import lmq_places
from store.message import Message
from store.message_codec import decode_record
from tests.support.our_broker import FrameClient

PARENT = "TLite"


@dataclass(frozen=True, slots=True)
class LiteMessage:
    """A message with what is needed to acknowledge it."""

    body: bytes
    lite: str
    offset: int
    """In its light queue."""
    attempts: int
    """How often it was handed out before."""
    handle: str
    message: Message


class LiteClient:
    """One client of one group on one connection."""

    def __init__(
        self,
        frames: FrameClient,
        group: str,
        client_id: str,
        broker: str,
        parent: str = PARENT,
    ) -> None:
        self.frames = frames
        self.parent = parent
        self.group = group
        self.client_id = client_id
        self._broker = broker

    # -- subscriptions ---------------------------------------------------------------------------

    def change(self, action: str, *lites: str, **others: Any) -> RemotingCommand:
        """200071."""
        change = {
            "action": action,
            "clientId": self.client_id,
            "group": self.group,
            "liteTopicSet": list(lites),
            "topic": self.parent,
            "version": 0,
            **others,
        }
        return self.frames.call(200071, {}, json.dumps({"subscriptionSet": [change]}).encode())

    def subscribe(self, *lites: str, **others: Any) -> None:
        """Lite topics, one by one."""
        answer = self.change("PARTIAL_ADD", *lites, **others)
        assert answer.code == 0, answer.remark

    # -- pops ------------------------------------------------------------------------------------

    def post_pop(self, **others: Any) -> int:
        """Send 200070; its opaque."""
        fields: dict[str, Any] = {
            "clientId": self.client_id,
            "consumerGroup": self.group,
            "topic": self.parent,
            "maxMsgNum": 32,
            "invisibleTime": 60_000,
            "pollTime": 0,
            "bornTime": int(time.time() * 1000),
            "attemptId": f"{time.monotonic_ns()}",
        }
        return self.frames.post(200070, fields | others)

    def pop(self, **others: Any) -> list[LiteMessage]:
        """200070 and its messages."""
        return self.take_pop(self.post_pop(**others))

    def take_pop(self, opaque: int) -> list[LiteMessage]:
        """What was answered to post_pop; nothing for 210."""
        answer = self.frames.take(opaque)
        if answer.code == 210:
            return []
        assert answer.code == 0, answer.remark
        fields, found, position = answer.ext_fields, [], 0
        counts = fields["orderCountInfo"].split(";")
        while position < len(answer.body):
            message, size = decode_record(answer.body, position)
            position += size
            ((lmq, offset),) = lmq_places(message.properties).items()
            handle = (
                f"0 {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0 "
                f"{self._broker} 0 {offset} {message.phy_offset}"
            )
            count = counts[len(found)]
            if " " in count:
                assert count.startswith(f"0 qo0%{offset} "), count
            found.append(
                LiteMessage(
                    bytes(message.body),
                    lmq.rpartition("$")[2],
                    offset,
                    int(count.rpartition(" ")[2]),
                    handle,
                    message,
                )
            )
        assert len(counts) == len(found)
        return found

    # -- acks --------------------------------------------------------------------------------------

    def ack(self, popped: LiteMessage, **others: Any) -> RemotingCommand:
        """200051."""
        fields = {
            "queueId": 0,
            "offset": popped.offset,
            "topic": self.parent,
            "liteTopic": popped.lite,
            "consumerGroup": self.group,
            "extraInfo": popped.handle,
        }
        return self.frames.call(200051, fields | others)

    def change_time(self, popped: LiteMessage, invisible_ms: int, **others: Any) -> RemotingCommand:
        """200053."""
        fields = {
            "invisibleTime": invisible_ms,
            "suspend": "false",
            "queueId": 0,
            "offset": popped.offset,
            "topic": self.parent,
            "liteTopic": popped.lite,
            "consumerGroup": self.group,
            "extraInfo": popped.handle,
        }
        return self.frames.call(200053, fields | others)


def send_lite(
    frames: FrameClient, lite: str, body: bytes, properties: str = "", parent: str = PARENT
) -> RemotingCommand:
    """310 to a lite topic of the parent."""
    fields = {
        "a": "p",
        "b": parent,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": f"__LITE_TOPIC\x01{lite}\x02WAIT\x01true\x02{properties}",
        "j": 0,
        "k": "false",
        "m": "false",
    }
    return frames.call(310, fields, body)

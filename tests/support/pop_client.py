"""A client of pop consumption for tests and benches: pops, acks and new invisible times by frames.

Plain frames as a Java 5.3.3 proxy writes them; what an answer's offset lists say is compared with
the messages in its body.
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.headers.extra_info_util import ExtraInfo, build_extra_info
from remoting.remoting_command import RemotingCommand
from store.message import Message
from store.message_codec import decode_record
from tests.support.our_broker import FrameClient


@dataclass(frozen=True, slots=True)
class PoppedMessage:
    """A message with what is needed to acknowledge it."""

    message: Message
    topic: str
    """Where it is: the retry topic, if it came from there."""
    queue_id: int
    offset: int
    handle: str


@dataclass(frozen=True, slots=True)
class PopAnswer:
    """The answer to 200050."""

    code: int
    remark: str
    rest: int
    messages: list[PoppedMessage]


class PopClient:
    """One group on one connection."""

    def __init__(self, frames: FrameClient, group: str, broker_name: str) -> None:
        self.frames = frames
        self.group = group
        self._broker_name = broker_name

    def post_pop(self, topic: str, **others: object) -> int:
        """Send 200050; its opaque."""
        fields: dict[str, object] = {
            "consumerGroup": self.group,
            "topic": topic,
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 60_000,
            "pollTime": 0,
            "bornTime": 0,
            "initMode": 0,
            "expType": "TAG",
            "exp": "*",
            "order": "false",
            **others,
        }
        return self.frames.post(200050, fields)

    def pop(self, topic: str, **others: object) -> PopAnswer:
        """200050 and its answer."""
        return self.take_pop(self.post_pop(topic, **others), topic)

    def take_pop(self, opaque: int, topic: str) -> PopAnswer:
        """The answer to post_pop."""
        answer = self.frames.take(opaque)
        fields = answer.ext_fields
        if answer.code != 0:
            rest = int(fields.get("restNum", 0))
            return PopAnswer(answer.code, answer.remark or "", rest, [])
        messages = _messages(answer.body)
        starts = {}
        for item in fields["startOffsetInfo"].split(";"):
            flag, queue_id, start = item.split(" ")
            assert (flag, int(queue_id)) not in starts, "a client of Java throws on duplicates"
            starts[flag, int(queue_id)] = int(start)
        places = []
        for item in fields["msgOffsetInfo"].split(";"):
            flag, queue_id, offsets = item.split(" ")
            places += [(flag, int(queue_id), int(offset)) for offset in offsets.split(",")]
        assert [(m.queue_id, m.queue_offset) for m in messages] == [place[1:] for place in places]
        assert all(message.topic == topic for message in messages)
        popped = [
            self._popped(answer, message, flag, starts[flag, queue_id])
            for message, (flag, queue_id, _offset) in zip(messages, places, strict=True)
        ]
        return PopAnswer(0, answer.remark or "", int(fields["restNum"]), popped)

    def _popped(
        self, answer: RemotingCommand, message: Message, flag: str, start: int
    ) -> PoppedMessage:
        fields = answer.ext_fields
        info = ExtraInfo(
            start,
            int(fields["popTime"]),
            int(fields["invisibleTime"]),
            int(fields["reviveQid"]),
            flag,
            self._broker_name,
        )
        handle = build_extra_info(info, message.queue_id, message.queue_offset)
        stored = message.find_property("POP_CK")
        assert stored in (None, handle)
        topic = info.real_topic(message.topic, self.group)
        return PoppedMessage(message, topic, message.queue_id, message.queue_offset, handle)

    def ack_fields(self, popped: PoppedMessage) -> dict[str, object]:
        """The header of 200051."""
        return {
            "consumerGroup": self.group,
            "topic": popped.topic,
            "queueId": popped.queue_id,
            "extraInfo": popped.handle,
            "offset": popped.offset,
        }

    def ack(self, popped: PoppedMessage) -> RemotingCommand:
        """200051."""
        return self.frames.call(200051, self.ack_fields(popped))

    def change(self, popped: PoppedMessage, invisible_ms: int) -> PoppedMessage:
        """200053; the message with its new handle."""
        fields = {**self.ack_fields(popped), "invisibleTime": invisible_ms}
        answer = self.frames.call(200053, fields)
        assert answer.code == 0, answer.remark
        assert answer.remark == "not set any response code"
        flag = popped.handle.split(" ")[4]
        info = ExtraInfo(
            popped.offset,
            int(answer.ext_fields["popTime"]),
            int(answer.ext_fields["invisibleTime"]),
            int(answer.ext_fields["reviveQid"]),
            flag,
            self._broker_name,
        )
        handle = build_extra_info(info, popped.queue_id, popped.offset)
        return PoppedMessage(popped.message, popped.topic, popped.queue_id, popped.offset, handle)


def _messages(body: bytes) -> list[Message]:
    found = []
    position = 0
    while position < len(body):
        message, size = decode_record(body, position)
        found.append(message)
        position += size
    return found

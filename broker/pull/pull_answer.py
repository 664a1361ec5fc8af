"""The header of a pull in any form, and of its answer.

Used by PullMessageProcessor on the loop thread and by StaticTopicProcessor in its pool. The
answer to a pull of a static topic has the offsets that its client sees, and `offsetDelta`, which
the client adds to those of the messages.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.longpolling.pull_header import PULL_NUMBERS, PullHeader, PullRequest
from broker.pull.pull_read import PullRead
from remoting.body.topic_queue_mapping import LogicQueueMappingItem
from remoting.errors import HeaderError, RequestError
from remoting.frame import AnswerTemplate, BinaryAnswer, JsonAnswer
from remoting.header_numbers import plain_numbers
from remoting.logic_queue import PullPlace
from remoting.remoting_codec import encode_header
from remoting.remoting_command import RESPONSE_FLAG, RemotingCommand, SerializeType
from remoting.shared_decoders import learnt

_NAMES: Final = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
_ANSWER: Final = JsonAnswer(dict.fromkeys(_NAMES, b'"%d"'), remark=True)
_BINARY_ANSWER: Final = BinaryAnswer(dict.fromkeys(_NAMES, b"%d"), remark=True)
"""Values of both: code, suggestWhichBrokerId, the three offsets, opaque, remark."""
_HEADER: Final = learnt(PullHeader)


def pull_template(serialize_type: SerializeType) -> AnswerTemplate:
    """Of the answer to a pull with such a header."""
    return _ANSWER if serialize_type is SerializeType.JSON else _BINARY_ANSWER


def pull_header_of(request: RemotingCommand) -> PullHeader:
    """Raises RequestError."""
    for field in PullHeader.__struct_fields__[:8]:
        if field not in request.ext_fields:
            raise HeaderError("PullMessageRequestHeader", field, "is missing")
    fields = plain_numbers("PullMessageRequestHeader", request.ext_fields, PULL_NUMBERS)
    try:
        header = msgspec.convert(fields, _HEADER, strict=False)
    except msgspec.ValidationError as error:
        field = str(error).rpartition("$.")[2].strip("`")
        raise HeaderError("PullMessageRequestHeader", field, str(error)) from error
    if header.liteTopic:
        header.read_lite()
    return header


def place_of(read: PullRead) -> PullPlace:
    """What was found in the physical queue."""
    return PullPlace(read.code, read.next_offset, read.min_offset, read.max_offset)


def answer_head(request: PullRequest, read: PullRead, suggested: int) -> bytes:
    """The head of the answer's frame. suggested: the broker id to pull from next."""
    if request.mapped is None:
        values = (
            read.code,
            suggested,
            read.next_offset,
            read.min_offset,
            read.max_offset,
            request.opaque,
            read.status,
        )
        return pull_template(request.serialize_type).render(values, read.size)
    place, item = request.mapped.translate(request.header.queueOffset, place_of(read))
    fields = {"suggestWhichBrokerId": str(suggested)} | offset_fields(place, item)
    command = RemotingCommand(
        int(place.code),
        opaque=request.opaque,
        flag=RESPONSE_FLAG,
        remark=read.status.decode(),
        ext_fields=fields,
        serialize_type=request.serialize_type,
    )
    return encode_header(command, read.size)


def refuse(request: PullRequest, error: RequestError) -> None:
    """Answer with an error."""
    answer = RemotingCommand(
        int(error.code),
        opaque=request.opaque,
        flag=RESPONSE_FLAG,
        remark=error.remark,
        ext_fields=error.ext_fields,
        serialize_type=request.serialize_type,
    )
    request.connection.send_command(answer)


def offset_fields(place: PullPlace, item: LogicQueueMappingItem | None = None) -> dict[str, str]:
    """The offsets of an answer. item: of a static topic."""
    fields = {
        "nextBeginOffset": str(place.next_offset),
        "minOffset": str(place.min_offset),
        "maxOffset": str(place.max_offset),
    }
    if item is not None:
        fields["offsetDelta"] = str(item.offset_delta)
    return fields

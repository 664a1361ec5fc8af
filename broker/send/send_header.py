"""The header of a send or a reply: its letters, its frame (JSON or binary), and the long names.

Pure data and its decoders, any thread. The one shape behind every form of a send (10, 310, 320,
JSON or binary) and of a reply (324, 325). Follows SendMessageRequestHeader and
SendMessageRequestHeaderV2 of RocketMQ.

Tested by tests/broker/send/test_send_message_processor.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import structs

from remoting.errors import HeaderError
from remoting.header_numbers import plain_numbers
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.rocketmq_serializable import find_plain_header
from remoting.shared_decoders import learnt
from remoting.typed_numbers import Int32, Int64

V1_NAMES: Final = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "bname": "n",
}
SEND_NUMBERS: Final = "defghjl"
SEND_FLAGS: Final = "km"
Flag = Literal["true", "false"]
"""A frame with another spelling is left to the general path, which reads it as Java does."""
LEAST_VERSION_WITH_RECONSUME_LIMIT: Final = 121
"""MQVersion of 3.4.9: older clients send a limit with a different meaning."""
_LONG_NAME_CODES: Final = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE))
V2_NAMES: Final = {short: long for long, short in V1_NAMES.items()}


class SendHeader(msgspec.Struct, gc=False):
    """SendMessageRequestHeaderV2: the short names of code 310."""

    a: str
    b: str
    c: str
    d: Int32
    e: str
    """queueId; text, since some clients pad it with zeros."""
    f: Int32
    g: Int64
    h: Int32
    i: str = ""
    j: Int32 = 0
    k: Flag = "false"
    """unitMode"""
    l: Int32 | msgspec.UnsetType = msgspec.UNSET  # noqa: E741
    m: Flag = "false"
    """batch"""
    reportDurability: str = ""  # noqa: N815
    """remoting/headers/durability.py"""

    @property
    def is_batch(self) -> bool:
        """Whether the body holds several messages."""
        return self.m == "true"

    @property
    def unit_mode(self) -> bool:
        """Of a topic that the send creates."""
        return self.k == "true"


class SendFrame(msgspec.Struct, gc=False):
    code: Literal[310]
    opaque: Int32
    extFields: SendHeader  # noqa: N815
    flag: Int32 = 0
    version: Int32 = 0


class BinarySendFrame(SendFrame, gc=False):
    """A send of any code whose header is binary: so is its answer's."""


def _renamed(base: type[msgspec.Struct], **types: object) -> type[msgspec.Struct]:
    """`base` with SendMessageRequestHeader's long names, where letters count for nothing."""
    fields = [(f.name, types.get(f.name, f.type), f.default) for f in structs.fields(base)]
    return msgspec.defstruct("V1", fields, bases=(base,), rename=V2_NAMES.get, gc=False)


_HEADER: Final = learnt(SendHeader)
_V1_HEADER: Final = learnt(_renamed(SendHeader))
decode_send_frame: Final = msgspec.json.Decoder(SendFrame, strict=False).decode
decode_v1_frame: Final = cast(
    "Callable[[bytes], SendFrame]",
    msgspec.json.Decoder(
        _renamed(SendFrame, code=Literal[10], extFields=_V1_HEADER), strict=False
    ).decode,
)
decode_batch_frame: Final = cast(
    "Callable[[bytes], SendFrame]",
    msgspec.json.Decoder(
        msgspec.defstruct(
            "SendBatchFrame", [("code", Literal[320])], bases=(SendFrame,), kw_only=True, gc=False
        ),
        strict=False,
    ).decode,
)


def decode_binary_frame(header: bytes) -> BinarySendFrame:
    """A binary header of code 10, 310 or 320. Raises msgspec.ValidationError for one that is not
    plain."""
    read = find_plain_header(header)
    if read is None:
        raise msgspec.ValidationError("not plain")
    if read.code == RequestCode.SEND_MESSAGE:
        fields = cast("SendHeader", msgspec.convert(read.ext_fields, _V1_HEADER, strict=False))
    else:
        fields = msgspec.convert(read.ext_fields, _HEADER, strict=False)
    return BinarySendFrame(cast("Literal[310]", read.code), read.opaque, fields, read.flag)


def send_header_of(request: RemotingCommand) -> SendHeader:
    """The header of any form of a send or reply. Raises HeaderError."""
    fields: Mapping[str, Any] = request.ext_fields
    if request.code in _LONG_NAME_CODES:
        # Letters count for nothing here: RequestGuard judged the long names.
        fields = {V1_NAMES[name]: text for name, text in fields.items() if name in V1_NAMES}
    for name in "abcdefgh":
        if name not in fields:
            raise HeaderError("SendMessageRequestHeader", V2_NAMES[name], "is missing")
    known = {name: value for name, value in fields.items() if name in V2_NAMES}
    fields = plain_numbers("SendMessageRequestHeader", known, SEND_NUMBERS, shown=V2_NAMES)
    fields |= {
        name: "true" if fields[name].lower() == "true" else "false"
        for name in SEND_FLAGS
        if name in fields
    }
    try:
        return msgspec.convert(fields, _HEADER, strict=False)
    except msgspec.ValidationError as error:
        field = str(error).rpartition("$.")[2].strip("`")
        name = V2_NAMES.get(field, field)
        raise HeaderError("SendMessageRequestHeader", name, str(error)) from error

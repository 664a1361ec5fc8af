"""AckFrame: the JSON header of an ack (200051), decoded straight from its bytes.

Pure data, any thread. Not among the modules that are compiled, which may define no msgspec.Struct.

Tested by tests/broker/pop/test_forged_handles.py.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from remoting.typed_numbers import Int32, Int64


class AckHeader(msgspec.Struct, gc=False):
    """AckMessageRequestHeader; wire names."""

    consumerGroup: str  # noqa: N815
    topic: str
    queueId: Int32  # noqa: N815
    extraInfo: str  # noqa: N815
    offset: Int64
    liteTopic: str = ""  # noqa: N815


class AckFrame(msgspec.Struct, gc=False):
    """The JSON header of a frame of 200051."""

    code: Literal[200051]
    opaque: Int32
    extFields: AckHeader  # noqa: N815
    flag: Int32 = 0


decode_ack_frame: Final = msgspec.json.Decoder(AckFrame, strict=False).decode

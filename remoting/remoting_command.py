"""RemotingCommand: one request or one response.

A plain value owned by its creator. It may be passed between threads, but is never modified while
shared. It knows neither its encoding (remoting_codec) nor the meaning of its fields (headers,
body).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from itertools import count
from typing import Final

from remoting.language_code import LanguageCode, language_name
from remoting.mq_version import CURRENT_VERSION

RESPONSE_FLAG: Final = 1
"""Flag bit 0: this is a response."""

ONEWAY_FLAG: Final = 2
"""Flag bit 1: the receiver must not respond."""

LOCAL_LANGUAGE: Final = int(LanguageCode.PYTHON)
"""The language in requests and responses of this implementation."""

_opaque_counter = count()


class SerializeType(IntEnum):
    """The header's encoding: the top byte of the frame's second word."""

    JSON = 0
    ROCKETMQ = 1


def next_opaque() -> int:
    """A fresh request id, 31 bits, one counter for the whole process. Any thread.

    `next` on itertools.count is atomic under the GIL: no id is used twice.
    """
    return next(_opaque_counter) & 0x7FFFFFFF


_COMPARED: Final = (
    "body",
    "code",
    "ext_fields",
    "flag",
    "has_ext_fields",
    "language",
    "opaque",
    "remark",
    "serialize_type",
    "version",
)


class RemotingCommand:
    """One request or response (Java: RemotingCommand).

    code            request or response code
    language        LanguageCode of the sender, as a number
    version         MQVersion ordinal of the sender
    opaque          request id, signed int32; the response has the same
    flag            bit 0 response, bit 1 oneway
    remark          error text of a response, or None
    ext_fields      the custom header, text to text; never None
    has_ext_fields  False when the header carried (or shall carry) no extFields at all
    body            b"" when there is none
    serialize_type  of the header; a response uses that of its request
    came_ns         when the request came here (monotonic), set before it waits for a pool; not a
                    part of what is sent or compared
    """

    __slots__ = (*_COMPARED, "came_ns")

    def __init__(
        self,
        code: int,
        *,
        language: int = LOCAL_LANGUAGE,
        version: int = CURRENT_VERSION,
        opaque: int = 0,
        flag: int = 0,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        serialize_type: SerializeType = SerializeType.JSON,
    ) -> None:
        self.code = code
        self.language = language
        self.version = version
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self.has_ext_fields = ext_fields is not None
        self.ext_fields: dict[str, str] = {} if ext_fields is None else ext_fields
        self.body = body
        self.serialize_type = serialize_type
        self.came_ns = 0

    @classmethod
    def request(
        cls,
        code: int,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
    ) -> RemotingCommand:
        """Create a request with a fresh opaque, JSON header, version 4.9.8."""
        return cls(
            int(code),
            opaque=next_opaque(),
            flag=ONEWAY_FLAG if oneway else 0,
            ext_fields=None if ext_fields is None else dict(ext_fields),
            body=body,
        )

    def response(
        self,
        code: int,
        remark: str | None = None,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Create the response to this request: same opaque, same serialize type."""
        return RemotingCommand(
            int(code),
            opaque=self.opaque,
            flag=RESPONSE_FLAG,
            remark=remark,
            ext_fields=None if ext_fields is None else dict(ext_fields),
            body=body,
            serialize_type=self.serialize_type,
        )

    @property
    def is_response(self) -> bool:
        """True for a response, False for a request."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """True if the receiver must not respond."""
        return bool(self.flag & ONEWAY_FLAG)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemotingCommand):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _COMPARED)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "request"
        return (
            f"RemotingCommand({kind} code={self.code} opaque={self.opaque} flag={self.flag} "
            f"language={language_name(self.language)} version={self.version} "
            f"remark={self.remark!r} ext_fields={self.ext_fields!r} "
            f"body={len(self.body)} bytes {self.serialize_type.name})"
        )

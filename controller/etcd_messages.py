"""Requests and answers of etcd's JSON gateway as values, and back. Pure; any thread.

64-bit numbers are texts, keys and values base64, fields of value 0 are left out
(etcd's api/etcdserverpb/rpc.proto). An answer that is not that, or says what cannot be, is
malformed; unknown fields are left alone, as newer versions have more.

Tested by tests/controller/test_etcd_client.py.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeVar

import msgspec

from controller.etcd_connection import HttpAnswer
from remoting.shared_decoders import decoder_of

AnswerT = TypeVar("AnswerT")
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Of etcd's int64 fields none is below 0 here."""

NOT_FOUND: Final = 5
_PERMISSION_DENIED: Final = 7
_UNAUTHENTICATED: Final = 16
_TRY_ANOTHER: Final = frozenset({1, 2, 4, 8, 13, 14})
"""gRPC's codes of trouble within etcd: cancelled, unknown, deadline, exhausted, internal, not
available (no leader, timed out)."""
_LOGIN_TEXTS: Final = ("invalid auth token", "user name is empty", "revision of auth store is old")


class MalformedAnswerError(Exception):
    """Not what an etcd answers, or an etcd that cannot answer now."""


class EtcdRefusal(Exception):
    """etcd has understood the request and does not carry it out; no other endpoint would."""

    def __init__(self, endpoint: str, code: int, message: str) -> None:
        super().__init__(f"{endpoint}: {message!a:.300} (code {code})")
        self.code = code
        self.message = message

    @property
    def wants_login(self) -> bool:
        """Whether a login may help: there was none, or it holds no more."""
        return self.code == _UNAUTHENTICATED or any(text in self.message for text in _LOGIN_TEXTS)

    @property
    def needs_no_login(self) -> bool:
        """Whether this etcd has no accounts."""
        return "authentication is not enabled" in self.message

    @property
    def kind(self) -> Literal["login", "rights", "other"]:
        """What is to be done about it."""
        if self.code == _PERMISSION_DENIED:
            return "rights"
        is_login = self.wants_login or "authentication failed" in self.message
        return "login" if is_login else "other"


class Header(msgspec.Struct, frozen=True):
    """Of every answer."""

    revision: _Number = 0


class KeyValue(msgspec.Struct, frozen=True):
    """One key; create_revision and mod_revision: of its first and its last write."""

    key: bytes
    create_revision: _Number = 0
    mod_revision: _Number = 0
    value: bytes = b""
    lease: _Number = 0


class RangeAnswer(msgspec.Struct, frozen=True):
    """kv/range, and a range within kv/txn."""

    header: Header
    kvs: list[KeyValue] = []
    more: bool = False


class _Operation(msgspec.Struct, frozen=True):
    response_range: RangeAnswer | None = None


class TxnAnswer(msgspec.Struct, frozen=True):
    """kv/txn."""

    header: Header
    succeeded: bool = False
    responses: list[_Operation] = []

    def range_at(self, number: int) -> RangeAnswer:
        """The answer of the operation of this number. Raises MalformedAnswerError."""
        found = self.responses[number].response_range if number < len(self.responses) else None
        if found is None:
            raise MalformedAnswerError(f"no range in the transaction's answer {number}")
        return found


class LeaseAnswer(msgspec.Struct, frozen=True):
    """lease/grant. time_to_live_s 0: there is no such lease."""

    lease: _Number = msgspec.field(name="ID", default=0)
    time_to_live_s: _Number = msgspec.field(name="TTL", default=0)


class KeepAliveAnswer(msgspec.Struct, frozen=True):
    """lease/keepalive: the first of a stream."""

    result: LeaseAnswer


class NoContent(msgspec.Struct, frozen=True):
    """An answer of which nothing is needed."""


class AuthenticateAnswer(msgspec.Struct, frozen=True):
    """auth/authenticate."""

    token: Annotated[str, msgspec.Meta(min_length=1, max_length=8192, pattern="^[!-~]+$")]


class _Error(msgspec.Struct, frozen=True):
    code: int | msgspec.UnsetType = msgspec.UNSET
    message: str = ""


class _StreamError(msgspec.Struct, frozen=True):
    grpc_code: int
    message: str = ""


class _StreamRefusal(msgspec.Struct, frozen=True):
    error: _StreamError


def encode_request(body: object) -> bytes:
    """bytes become base64; numbers may stay numbers."""
    return msgspec.json.encode(body)


def decode_answer(data: bytes, answer: type[AnswerT]) -> AnswerT:
    """Raises MalformedAnswerError."""
    try:
        # Not strict: numbers are texts.
        return decoder_of(answer, strict=False).decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise MalformedAnswerError(f"not etcd's answer: {error!s:.200}; {data[:60]!r}") from error


def decode_refusal(found: HttpAnswer, endpoint: str) -> Exception:
    """What an answer other than 200 means: EtcdRefusal, or, where another endpoint may do better,
    MalformedAnswerError."""
    code, message = _code_and_message(found.body)
    if code is None:
        return MalformedAnswerError(
            f"it answers with HTTP {found.status} and {found.content_type:.50}: not the JSON "
            "gateway of etcd 3.4 or newer; etcdEndpoints names client URLs, usually port 2379"
        )
    if code in _TRY_ANOTHER:
        return MalformedAnswerError(message[:200])
    return EtcdRefusal(endpoint, code, message)


def _code_and_message(data: bytes) -> tuple[int | None, str]:
    try:
        plain = decoder_of(_Error).decode(data)
        if not isinstance(plain.code, msgspec.UnsetType):
            return plain.code, plain.message
        nested = decoder_of(_StreamRefusal).decode(data).error
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None, ""
    return nested.grpc_code, nested.message

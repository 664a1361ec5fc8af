"""Our codes and header fields against what the classes of RocketMQ 5.5.0 say.

tests/golden/protocol-5.5.0.json is what interop.Facts printed on the class path of a 5.5.0 client;
tests/interop/test_protocol_facts.py prints it again and compares.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import remoting.headers
from remoting.command_custom_header import CommandCustomHeader, _fields
from remoting.request_code import RequestCode
from remoting.response_code import RESPONSE_CODE_NAMES_5X, ResponseCode

FACTS: Final[Mapping[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "protocol-5.5.0.json").read_text()
)

_OF_EVERY_REQUEST: Final = frozenset({"bname", "lo", "ns", "nsd", "oway"})
"""RpcRequestHeader and TopicRequestHeader: for the sender's own use, or read where it matters."""
_MEMBER: Final = "of brokers under a controller, read by it (controller/request_reader.py)"
_ELSEWHERE: Final = "read from the wire without a dataclass (broker/longpolling/pull_header.py)"
_UNUSED: Final = "no broker of RocketMQ reads it"
_INDEX: Final = "RocksDB's index only: a file index has no last key"
NOT_READ: Final[Mapping[str, str]] = {
    "PopLiteMessageResponseHeader.msgOffsetInfo": "a lite pop's answer of 5.5.0 has none",
    "PopLiteMessageResponseHeader.startOffsetInfo": "a lite pop's answer of 5.5.0 has none",
    "BrokerHeartbeatRequestHeader.confirmOffset": _MEMBER,
    "BrokerHeartbeatRequestHeader.electionPriority": _MEMBER,
    "BrokerHeartbeatRequestHeader.epoch": _MEMBER,
    "BrokerHeartbeatRequestHeader.heartbeatTimeoutMills": _MEMBER,
    "BrokerHeartbeatRequestHeader.maxOffset": _MEMBER,
    "PullMessageRequestHeader.proxyFrowardClientId": _ELSEWHERE,
    "CheckTransactionStateRequestHeader.topic": "for proxies, which know it from the message",
    "EndTransactionRequestHeader.topic": _UNUSED,
    "QueryMessageRequestHeader.lastKey": _INDEX,
}
"""Java's header and field to the reason why ours has none."""
_NAMED_OTHERWISE: Final = "ours has another name, or reads its fields where they are used"
NO_HEADER: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "ConsumeMessageDirectlyResultRequestHeader",
            "CreateAclRequestHeader",
            "CreateUserRequestHeader",
            "DeleteUserRequestHeader",
            "GetAclRequestHeader",
            "GetUserRequestHeader",
            "SendMessageRequestHeader",
            "UpdateAclRequestHeader",
            "UpdateUserRequestHeader",
        ),
        _NAMED_OTHERWISE,
    ),
    **dict.fromkeys(
        (
            "CheckTransactionStateResponseHeader",
            "InitConsumerOffsetRequestHeader",
            "RegisterOrderTopicRequestHeader",
            "StatisticsMessagesRequestHeader",
        ),
        "nobody sends it",
    ),
}
"""Java's header to the reason why ours has none of its name."""


def our_headers() -> dict[str, set[str]]:
    """Class name to wire names."""
    found: dict[str, set[str]] = {}
    for module in pkgutil.iter_modules(remoting.headers.__path__, "remoting.headers."):
        for name, cls in vars(importlib.import_module(module.name)).items():
            if isinstance(cls, type) and issubclass(cls, CommandCustomHeader):
                found[name] = {field.wire_name for field in _fields(cls)}
    return found


def test_every_request_code_of_5_5_has_its_name_here() -> None:
    theirs: dict[str, int] = FACTS["requestCodes"]
    ours = {code.name: int(code) for code in RequestCode}
    assert {name: code for name, code in theirs.items() if ours.get(name) != code} == {}


def test_every_response_code_of_5_5_is_known() -> None:
    theirs: dict[str, int] = FACTS["responseCodes"]
    names = {int(code): code.name for code in ResponseCode} | RESPONSE_CODE_NAMES_5X
    assert {name: code for name, code in theirs.items() if names.get(code) != name} == {}


def test_every_field_of_a_header_of_5_5_is_known() -> None:
    ours = our_headers()
    missing = {
        f"{name}.{field}"
        for name, fields in FACTS["headers"].items()
        if name in ours
        for field in set(fields) - ours[name] - _OF_EVERY_REQUEST
    }
    assert missing == set(NOT_READ)


def test_every_header_of_5_5_is_ours_or_has_a_reason() -> None:
    theirs = {name for name, has in FACTS["headers"].items() if set(has) - _OF_EVERY_REQUEST}
    assert theirs - set(our_headers()) == set(NO_HEADER)

"""Header dataclasses to extFields and back; every golden header goes through its class."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest

from remoting.command_custom_header import (
    CommandCustomHeader,
    Int32,
    Int64,
    RpcRequestHeader,
    camel_case,
    decode_header,
    encode_header,
)
from remoting.errors import HeaderError, RequestError
from remoting.headers import (
    admin,
    broker,
    consumer,
    namesrv,
    pull_message,
    query,
    send_message,
    topic,
    transaction,
)
from remoting.response_code import ResponseCode
from tests.remoting.golden_frames import GoldenFrame, check_every_frame, golden_frames

# Ext fields that belong to no header class: ACL, streams, and what goes beside the header.
BESIDE = {"AccessKey", "Signature", "ReqT", "MSG_REGION", "TRACE_ON", "_UNIQUE_KEY_QUERY"}

REQUESTS: dict[int, type[CommandCustomHeader]] = {
    11: pull_message.PullMessageRequestHeader,
    12: query.QueryMessageRequestHeader,
    14: consumer.QueryConsumerOffsetRequestHeader,
    15: consumer.UpdateConsumerOffsetRequestHeader,
    17: topic.CreateTopicRequestHeader,
    29: query.SearchOffsetRequestHeader,
    30: query.GetMaxOffsetRequestHeader,
    31: query.GetMinOffsetRequestHeader,
    33: query.ViewMessageRequestHeader,
    35: consumer.UnregisterClientRequestHeader,
    36: send_message.ConsumerSendMsgBackRequestHeader,
    37: transaction.EndTransactionRequestHeader,
    38: consumer.GetConsumerListByGroupRequestHeader,
    39: transaction.CheckTransactionStateRequestHeader,
    40: consumer.NotifyConsumerIdsChangedRequestHeader,
    100: namesrv.PutKVConfigRequestHeader,
    102: namesrv.DeleteKVConfigRequestHeader,
    103: broker.RegisterBrokerRequestHeader,
    104: broker.UnRegisterBrokerRequestHeader,
    105: namesrv.GetRouteInfoRequestHeader,
    202: topic.GetTopicStatsInfoRequestHeader,
    203: admin.GetConsumerConnectionListRequestHeader,
    205: namesrv.WipeWritePermOfBrokerRequestHeader,
    207: admin.DeleteSubscriptionGroupRequestHeader,
    208: admin.GetConsumeStatsRequestHeader,
    215: topic.DeleteTopicRequestHeader,
    216: namesrv.DeleteTopicFromNamesrvRequestHeader,
    222: admin.ResetOffsetRequestHeader,
    300: topic.QueryTopicConsumeByWhoRequestHeader,
    310: send_message.SendMessageRequestHeaderV2,
    315: admin.ViewBrokerStatsDataRequestHeader,
    320: send_message.SendMessageRequestHeaderV2,
    327: namesrv.AddWritePermOfBrokerRequestHeader,
}
RESPONSES: dict[int, type[CommandCustomHeader]] = {
    11: pull_message.PullMessageResponseHeader,
    12: query.QueryMessageResponseHeader,
    14: consumer.QueryConsumerOffsetResponseHeader,
    26: broker.GetBrokerConfigResponseHeader,
    29: query.SearchOffsetResponseHeader,
    30: query.GetMaxOffsetResponseHeader,
    31: query.GetMinOffsetResponseHeader,
    103: broker.RegisterBrokerResponseHeader,
    205: namesrv.WipeWritePermOfBrokerResponseHeader,
    310: send_message.SendMessageResponseHeader,
    320: send_message.SendMessageResponseHeader,
    327: namesrv.AddWritePermOfBrokerResponseHeader,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleHeader(RpcRequestHeader):
    WIRE_NAMES: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str
    queue_id: Int32
    commit_offset: Int64
    unit_mode: bool = False
    max_times: Int32 | None = None
    note: str | None = None


FIELDS = {"clientID": "c", "queueId": "-1", "commitOffset": "9223372036854775807"}


def test_golden_headers_go_through_their_classes() -> None:
    check_every_frame(golden_frames(), assert_goes_through_its_class)


def assert_goes_through_its_class(golden: GoldenFrame) -> None:
    command = golden.command()
    fields = {key: text for key, text in command.ext_fields.items() if key not in BESIDE}
    classes = REQUESTS if golden.side == "request" else RESPONSES
    cls = classes.get(golden.code)
    if cls is None:
        assert fields == {}, "a header without a class"
    elif fields or golden.code == 103:
        assert encode_header(decode_header(cls, command.ext_fields)).items() >= fields.items()


def test_golden_fast_headers_keep_java_order() -> None:
    check_every_frame(golden_frames(side="request")[::7], assert_keeps_java_order)


def assert_keeps_java_order(golden: GoldenFrame) -> None:
    # Java's fast encoder (binary headers of 310 and 11) writes in declaration order, as we do.
    command = golden.command()
    if (
        golden.code in (310, 11)
        and command.serialize_type == 1
        and "Signature" not in (command.ext_fields)
    ):
        header = decode_header(REQUESTS[golden.code], command.ext_fields)
        assert list(encode_header(header).items()) == list(command.ext_fields.items())


def test_round_trip() -> None:
    header = decode_header(ExampleHeader, FIELDS | {"unitMode": "TRUE", "other": "x", "note": ""})
    assert header == ExampleHeader(
        client_id="c", queue_id=-1, commit_offset=2**63 - 1, unit_mode=True, note=""
    )
    assert encode_header(header) == FIELDS | {"unitMode": "true", "note": ""}
    assert decode_header(ExampleHeader, encode_header(header)) == header


def test_bname_comes_last() -> None:
    header = decode_header(ExampleHeader, FIELDS | {"bname": "b"})
    assert list(encode_header(header)) == [*FIELDS, "unitMode", "bname"]


@pytest.mark.parametrize("name", FIELDS)
def test_missing_field_is_named(name: str) -> None:
    fields = {key: text for key, text in FIELDS.items() if key != name}
    with pytest.raises(HeaderError, match=rf"ExampleHeader\.{name}: is missing") as caught:
        decode_header(ExampleHeader, fields)
    assert caught.value.code is ResponseCode.SYSTEM_ERROR
    assert isinstance(caught.value, RequestError)
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("queueId", "", "is not an integer"),
        ("queueId", "x", "is not an integer"),
        ("queueId", " 1", "is not an integer"),
        ("queueId", "1_0", "is not an integer"),
        ("queueId", "١", "is not an integer"),
        ("queueId", "1.0", "is not an integer"),
        ("queueId", "9" * 10_000, "is not an integer"),
        ("queueId", "2147483648", "out of range"),
        ("queueId", "-2147483649", "out of range"),
        ("commitOffset", "9223372036854775808", "out of range"),
        ("maxTimes", "many", "is not an integer"),
    ],
)
def test_field_that_cannot_be_parsed(name: str, text: str, reason: str) -> None:
    with pytest.raises(HeaderError, match=rf"ExampleHeader\.{name}: .*{reason}"):
        decode_header(ExampleHeader, FIELDS | {name: text})


def test_java_numbers_and_booleans() -> None:
    header = decode_header(ExampleHeader, FIELDS | {"queueId": "+5", "unitMode": "yes"})
    assert (header.queue_id, header.unit_mode) == (5, False)


@pytest.mark.parametrize(
    "module",
    [admin, broker, consumer, namesrv, pull_message, query, send_message, topic, transaction],
)
def test_every_header_class_can_be_planned(module: object) -> None:
    classes = [
        cls
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, CommandCustomHeader)
    ]
    assert classes
    for cls in classes:
        required = {
            cls.WIRE_NAMES.get(field.name, camel_case(field.name))
            for field in dataclasses.fields(cls)
            if field.default is dataclasses.MISSING
        }
        header = decode_header(cls, dict.fromkeys(required, "1"))
        assert required <= encode_header(header).keys()


def test_camel_case() -> None:
    assert camel_case("next_begin_offset") == "nextBeginOffset"
    assert camel_case("topic") == "topic"

"""Lite topics on the wire: names, headers and bodies, byte for byte as RocketMQ 5.5.0 has them."""

from __future__ import annotations

import pytest

from remoting.body.json_bean import JsonBean
from remoting.body.lite import (
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfoResponseBody,
    LiteSubscriptionAction,
    LiteSubscriptionCtlRequestBody,
    OffsetOption,
    OffsetOptionType,
)
from remoting.command_custom_header import decode_header, encode_header
from remoting.headers.extra_info_util import parse_extra_info
from remoting.headers.lite import (
    GetLiteClientInfoRequestHeader,
    GetLiteGroupInfoRequestHeader,
    GetLiteTopicInfoRequestHeader,
    GetParentTopicInfoRequestHeader,
    NotifyUnsubscribeLiteRequestHeader,
    PopLiteMessageRequestHeader,
    PopLiteMessageResponseHeader,
    TriggerLiteDispatchRequestHeader,
)
from remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from remoting.lite_names import (
    MOST_LITE_NAME,
    is_lite_name,
    is_lite_queue,
    parse_lite_queue,
    to_lmq_name,
)
from remoting.remoting_codec import encode_command
from remoting.remoting_command import ONEWAY_FLAG, RemotingCommand
from remoting.request_code import RequestCode
from store.lmq_places import is_lmq_name
from tests.remoting.lite_frames import lite_command, lite_frame, lite_names

V5_5_0 = 513


def as_java(command: RemotingCommand) -> bytes:
    """The frame, with what only says who wrote it as 5.5.0 has it."""
    command.language, command.version = 0, V5_5_0
    return encode_command(command)


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lite", ["s1", "a-b_C9", "0", "x" * MOST_LITE_NAME])
def test_a_lite_topic_s_queue_is_a_light_queue_and_tells_both_names(lite: str) -> None:
    name = to_lmq_name("TLite", lite)
    assert is_lite_name(lite)
    assert is_lmq_name(name)
    assert is_lite_queue(name)
    assert parse_lite_queue(name) == ("TLite", lite)


def test_the_name_that_5_5_0_shows() -> None:
    body = GetLiteClientInfoResponseBody.from_json_bytes(lite_command("200077/01", "response").body)
    assert body.lite_topic_set == [to_lmq_name("TLite", "s3"), to_lmq_name("TLite", "s1")]


@pytest.mark.parametrize(
    "lite", ["", " ", "a b", "a.b", "a$b", "a/b", "é", "٣", "a\n", "%LMQ%", "x" * 65]
)
def test_what_is_no_name_of_a_lite_topic(lite: str) -> None:
    assert not is_lite_name(lite)


@pytest.mark.parametrize(
    "name",
    ["TLite", "%LMQ%a", "%LMQ%$T", "%LMQ%$T$", "%LMQ%$$s", "%LMQ%$T$a$b", "%LMQ%$", "x%LMQ%$T$a"],
)
def test_what_is_no_queue_of_a_lite_topic(name: str) -> None:
    assert parse_lite_queue(name) is None


# -- requests ------------------------------------------------------------------------------------


def test_pop_lite() -> None:
    request = lite_command("200070/01")
    assert request.code == RequestCode.POP_LITE_MESSAGE
    assert decode_header(PopLiteMessageRequestHeader, request.ext_fields) == (
        PopLiteMessageRequestHeader(
            client_id="vm@1075@1@2s2k26ksv",
            consumer_group="GLite",
            topic="TLite",
            max_msg_num=32,
            invisible_time=60_000,
            poll_time=20_000,
            born_time=1795740002608,
            attempt_id="ea5fee15-56dc-42f9-9e9c-1df81bfa0524",
        )
    )


def test_every_subscription_change_is_read_and_written_as_it_was() -> None:
    actions = set()
    for name in lite_names("200071/"):
        request = lite_command(name)
        body = LiteSubscriptionCtlRequestBody.from_request(request.body)
        actions |= {change.action for change in body.subscription_set}
        assert body.to_json_bytes() == request.body
    assert actions == set(LiteSubscriptionAction)


def test_where_a_subscription_begins() -> None:
    body = LiteSubscriptionCtlRequestBody.from_request(lite_command("200071/03").body)
    (change,) = body.subscription_set
    assert change.offset_option == OffsetOption(type=OffsetOptionType.POLICY, value=1)


def test_acks_and_changed_times_tell_the_lite_topic() -> None:
    ack = decode_header(AckMessageRequestHeader, lite_command("200051/08").ext_fields)
    assert (ack.topic, ack.lite_topic, ack.queue_id, ack.offset) == ("TLite", "s1", 0, 0)
    assert parse_extra_info(ack.extra_info).is_order
    change = decode_header(ChangeInvisibleTimeRequestHeader, lite_command("200053/01").ext_fields)
    assert (change.lite_topic, change.suspend, change.invisible_time) == ("", False, 1000)


def test_requests_of_operators() -> None:
    def fields(name: str) -> dict[str, str]:
        return lite_command(name).ext_fields

    assert decode_header(GetParentTopicInfoRequestHeader, fields("200075/01")).topic == "TLite"
    topic = decode_header(GetLiteTopicInfoRequestHeader, fields("200076/01"))
    assert (topic.parent_topic, topic.lite_topic) == ("TLite", "s1")
    client = decode_header(GetLiteClientInfoRequestHeader, fields("200077/01"))
    assert (client.group, client.client_id, client.max_count) == (
        "GLite",
        "vm@1075@1@2s2k26ksv",
        1000,
    )
    assert decode_header(GetLiteGroupInfoRequestHeader, fields("200078/01")).top_k == 5
    assert decode_header(GetLiteGroupInfoRequestHeader, fields("200078/02")).lite_topic == "s1"
    dispatch = decode_header(TriggerLiteDispatchRequestHeader, fields("200079/01"))
    assert (dispatch.group, dispatch.client_id) == ("GLite", None)


# -- what a broker writes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code", "remark", "counts", "pop_time"),
    [
        ("200070/01", 0, "FOUND", "0;0;0;0;0;0", 1795740002643),
        ("200070/11", 210, "NO_MESSAGE_IN_QUEUE", "", 1795740053152),
    ],
)
def test_answers_of_pops(name: str, code: int, remark: str, counts: str, pop_time: int) -> None:
    header = PopLiteMessageResponseHeader(
        invisible_time=60_000, order_count_info=counts, pop_time=pop_time, revive_qid=999
    )
    body = lite_command(name, "response").body
    answer = lite_command(name).response(code, remark, encode_header(header), body)
    assert as_java(answer) == lite_frame(name, "response")


def test_the_answer_to_a_changed_time() -> None:
    header = ChangeInvisibleTimeResponseHeader(
        pop_time=1795740002643, invisible_time=1425, revive_qid=999
    )
    fields = dict(sorted(encode_header(header).items()))  # Java's order says nothing
    answer = lite_command("200053/01").response(0, "not set any response code", fields)
    assert as_java(answer) == lite_frame("200053/01", "response")


def test_a_client_is_told_that_another_took_its_lite_topic() -> None:
    header = NotifyUnsubscribeLiteRequestHeader(
        client_id="vm@1075@2@2s6p98mxu", lite_topic="s1", consumer_group="GLiteEx"
    )
    notice = RemotingCommand(
        RequestCode.NOTIFY_UNSUBSCRIBE_LITE,
        opaque=1136,
        flag=ONEWAY_FLAG,
        ext_fields=encode_header(header),
    )
    assert as_java(notice) == lite_frame("b2p-200073/01", "request")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("200074/01", GetBrokerLiteInfoResponseBody),
        ("200075/01", GetParentTopicInfoResponseBody),
        ("200076/01", GetLiteTopicInfoResponseBody),
        ("200077/01", GetLiteClientInfoResponseBody),
        ("200078/01", GetLiteGroupInfoResponseBody),
        ("200078/02", GetLiteGroupInfoResponseBody),
    ],
)
def test_bodies_for_operators_are_written_as_they_were(name: str, body: type[JsonBean]) -> None:
    raw = lite_command(name, "response").body
    assert body.from_json_bytes(raw).to_json_bytes() == raw

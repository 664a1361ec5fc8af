"""broker.acl.access_resources: the topics and groups of each kind of request."""

from __future__ import annotations

from typing import Any

import pytest

from broker.acl.access_table import ACCESS_TABLE, Who
from broker.acl.permission import Permission, parse_permission, shown, suffices
from remoting.body.heartbeat import CheckClientRequestBody, HeartbeatData, SubscriptionData
from remoting.body.lock_batch import LockBatchRequestBody
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from tests.broker.broker_fakes import golden, request_of
from tests.broker.client.test_consumer_manager import data_of

PUB, SUB, ANY, DENY = Permission.PUB, Permission.SUB, Permission.ANY, Permission.DENY
GROUP = {"%RETRY%g": SUB}


def resources(request: RemotingCommand) -> dict[str, Permission]:
    resources_of = ACCESS_TABLE[request.code].resources_of
    assert resources_of is not None
    return resources_of(request)


@pytest.mark.parametrize(
    ("code", "fields", "needed"),
    [
        (10, {"topic": "t", "producerGroup": "p"}, {"t": PUB}),
        (310, {"b": "t", "a": "p"}, {"t": PUB}),
        (320, {"b": "t", "a": "p"}, {"t": PUB}),
        (10, {"topic": "%RETRY%other", "group": "g"}, {"%RETRY%other": SUB}),
        (310, {"b": "%RETRY%other", "a": "g"}, {"%RETRY%other": SUB}),
        (310, {"b": "%DLQ%g"}, {"%DLQ%g": PUB}),
        (310, {"b": "DefaultCluster_REPLY_TOPIC"}, {"DefaultCluster_REPLY_TOPIC": PUB}),
        (324, {"topic": "t"}, {"t": PUB}),
        (325, {"b": "t"}, {"t": PUB}),
        (324, {"topic": "DefaultCluster_REPLY_TOPIC"}, {}),
        (325, {"b": "DefaultCluster_REPLY_TOPIC"}, {}),
        (36, {"group": "g", "originTopic": "t"}, GROUP),
        (37, {"producerGroup": "p"}, {}),
        (37, {"producerGroup": "p", "topic": "t"}, {"t": PUB}),
        (11, {"consumerGroup": "g", "topic": "t"}, {**GROUP, "t": SUB}),
        (361, {"consumerGroup": "g", "topic": "t"}, {**GROUP, "t": SUB}),
        (11, {"consumerGroup": "g", "topic": "%RETRY%g"}, GROUP),
        (11, {"consumerGroup": "g", "topic": "%DLQ%x"}, {**GROUP, "%DLQ%x": SUB}),
        (14, {"consumerGroup": "g", "topic": "t"}, {**GROUP, "t": SUB}),
        (15, {"consumerGroup": "g", "topic": "t"}, {**GROUP, "t": SUB}),
        (12, {"topic": "t", "key": "k"}, {"t": SUB}),
        (33, {"offset": "1"}, {}),
        (33, {"offset": "1", "topic": "t"}, {"t": SUB}),
        (29, {"topic": "t"}, {"t": ANY}),
        (30, {"topic": "t"}, {"t": ANY}),
        (31, {"topic": "%RETRY%g"}, GROUP),
        (32, {"topic": "t"}, {"t": ANY}),
        (35, {"clientID": "c", "producerGroup": "p"}, {}),
        (35, {"clientID": "c", "consumerGroup": "g"}, GROUP),
        (38, {"consumerGroup": "g"}, GROUP),
    ],
)
def test_what_fields_ask_for(code: int, fields: dict[str, Any], needed: object) -> None:
    assert resources(request_of(code, **fields)) == needed


def test_a_request_without_its_fields_asks_for_nothing() -> None:
    """Its processor refuses it."""
    bodies = {34, 41, 42, 46}
    codes = [code for code, row in ACCESS_TABLE.items() if row.resources_of and code not in bodies]
    assert codes
    assert [code for code in codes if resources(RemotingCommand.request(code))] == []


def test_a_heartbeat_asks_for_all_its_groups_and_topics() -> None:
    body = HeartbeatData(
        client_id="c", consumer_data_set=[data_of("g", "t", "%RETRY%g"), data_of("h", "u")]
    )
    request = RemotingCommand.request(34, body=body.to_json_bytes())
    assert resources(request) == {**GROUP, "t": SUB, "%RETRY%h": SUB, "u": SUB}


def test_a_heartbeat_of_java() -> None:
    request, _ = golden(34)
    heartbeat = HeartbeatData.from_json_bytes(request.body)
    groups = {f"%RETRY%{consumer.group_name}" for consumer in heartbeat.consumer_data_set}
    assert groups <= resources(request).keys()


def test_a_check_of_a_subscription() -> None:
    body = CheckClientRequestBody(
        client_id="c", group="g", subscription_data=SubscriptionData(topic="t")
    )
    request = RemotingCommand.request(46, body=body.to_json_bytes())
    assert resources(request) == {**GROUP, "t": SUB}


@pytest.mark.parametrize("code", [41, 42])
def test_locks_are_the_groups(code: int) -> None:
    body = LockBatchRequestBody(consumer_group="g", client_id="c")
    assert resources(RemotingCommand.request(code, body=body.to_json_bytes())) == GROUP


@pytest.mark.parametrize("code", [34, 41, 42, 46])
def test_a_body_that_cannot_be_read(code: int) -> None:
    with pytest.raises(RequestError, match="invalid JSON in 1 bytes"):
        resources(RemotingCommand.request(code, body=b"{"))


def test_rows_with_rights_name_them() -> None:
    named = {code for code, row in ACCESS_TABLE.items() if row.resources_of is not None}
    assert named == {code for code, row in ACCESS_TABLE.items() if row.who is Who.RESOURCES}


@pytest.mark.parametrize(
    ("text", "permission"),
    [
        ("DENY", DENY),
        ("PUB", PUB),
        (" SUB ", SUB),
        ("PUB|SUB", PUB | SUB),
        ("SUB|PUB", PUB | SUB),
        ("pub", DENY),
        ("ANY", DENY),
        ("", DENY),
        (None, DENY),
    ],
)
def test_words_of_permissions(text: str | None, permission: Permission) -> None:
    assert parse_permission(text) == permission


@pytest.mark.parametrize(
    ("owned", "needed", "enough"),
    [
        (PUB, PUB, True),
        (PUB, SUB, False),
        (PUB | SUB, SUB, True),
        (PUB, ANY, True),
        (SUB, ANY, True),
        (DENY, ANY, False),
        (DENY | PUB, PUB, False),
    ],
)
def test_what_suffices(owned: Permission, needed: Permission, enough: bool) -> None:
    assert suffices(owned, needed) is enough


def test_names_in_remarks() -> None:
    assert (shown("t"), shown("%RETRY%g")) == ("topic:t", "group:g")


def test_a_pop_retry_topic_stands_for_its_topic() -> None:
    fields = {"consumerGroup": "G", "topic": "%RETRY%G_T"}
    needed = {"%RETRY%G": Permission.SUB, "T": Permission.SUB}
    assert resources(RemotingCommand.request(200051, fields)) == needed
    assert resources(RemotingCommand.request(200050, {**fields, "topic": "T"})) == needed

"""Rows: every request of a broker, without access control and behind it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from broker.settings.broker_config import BrokerConfig
from conf.config_fields import field_specs
from remoting.command_custom_header import CommandCustomHeader
from remoting.remoting_codec import encode_command
from remoting.remoting_command import SerializeType
from remoting.request_code import RequestCode as Code
from store.message_codec import encode_host, encode_message_id
from tests.broker.hot_path_world import pull_request, send_request
from tests.fuzz.broker_world import BYSTANDER, GROUPS, TOPICS, Access, BrokerWorld
from tests.fuzz.mutation import mutate_frames
from tests.fuzz.served_connection import request
from tests.fuzz.target import Target
from tests.remoting.golden_frames import golden_frames

_MESSAGE_ID = encode_message_id(encode_host("127.0.0.1", 10911), 0)
ANY_FIELDS: Final = {
    "topic": "GTopic",
    "topicName": "GTopic",
    "group": "G_group",
    "groupName": "G_group",
    "consumerGroup": "G_group",
    "producerGroup": "G_group",
    "clientId": "10.0.0.1@1",
    "clientAddr": "10.0.0.1@1",
    "clientID": "10.0.0.1@1",
    "brokerName": "broker-a",
    "queueId": "0",
    "index": "0",
    "count": "10",
    "offset": "0",
    "timestamp": "0",
    "timerange": "0",
    "isForce": "true",
    "isOrder": "false",
    "jstackEnable": "false",
    "statsName": "TOPIC_PUT_NUMS",
    "statsKey": "GTopic",
    "srcGroup": "G_group",
    "destGroup": "G_tx_group",
    "offline": "false",
    "msgId": _MESSAGE_ID,
    "tranStateTableOffset": "0",
    "commitLogOffset": "0",
    "commitOrRollback": "8",
    "transactionId": "u1",
    "fromTransactionCheck": "false",
    "delayLevel": "1",
    "originMsgId": _MESSAGE_ID,
    "originTopic": "GTopic",
    "unitMode": "false",
    "maxReconsumeTimes": "16",
    "key": "k1",
    "maxNum": "32",
    "beginTimestamp": "0",
    "endTimestamp": "9000000000000",
    "namespace": "",
    "accessKey": "another1",
    "secretKey": "another-secret",
    "admin": "false",
    "topicPerms": "GTopic=PUB",
    "groupPerms": "G_group=SUB",
    "globalWhiteAddrs": "10.0.0.1",
    "phyOffset": "0",
    "size": "4096",
    "start": "0",
    "end": "1048576",
    "brokerId": "1",
    "haAddress": "127.0.0.1:10912",
    "brokerAddr": "127.0.0.1:10911",
}
"""A request without a golden frame has all of these."""


@functools.cache
def seeds() -> Sequence[bytes]:
    """Golden requests (three of each code and form), and one of every other code of the table."""
    found: dict[tuple[int, int], list[bytes]] = {}
    for frame in golden_frames(side="request"):
        command = frame.command()
        ours = found.setdefault((command.code, command.serialize_type), [])
        if len(ours) < 3:
            ours.append(frame.frame)
    known = {code for code, _ in found}
    rest = [request(code, ANY_FIELDS) for code in Code if code not in known]
    made = [
        encode_command(send_request(topic="GTopic", batch="true", code=Code.SEND_BATCH_MESSAGE)),
        encode_command(send_request(topic=TOPICS[0], properties="DELAY\x013\x02KEYS\x01a b")),
        encode_command(send_request(topic=TOPICS[0], serialize=SerializeType.ROCKETMQ)),
        encode_command(pull_request(topic=TOPICS[0], consumerGroup=GROUPS[0], sysFlag=6)),
        encode_command(
            pull_request(topic=TOPICS[0], sysFlag=4, subscription="a > 1", expressionType="SQL92")
        ),
    ]
    for code in (Code.CONSUMER_SEND_MSG_BACK, Code.END_TRANSACTION, Code.VIEW_MESSAGE_BY_ID):
        made.append(request(code, ANY_FIELDS))
    return [*(data for ours in found.values() for data in ours), *rest, *made]


@functools.cache
def tokens() -> Sequence[bytes]:
    """Names of fields, settings, topics and groups."""
    names = {spec.key for spec in field_specs(BrokerConfig)} | set(ANY_FIELDS)
    names |= set(ANY_FIELDS.values()) | set(TOPICS) | set(GROUPS) | {BYSTANDER}
    for header in CommandCustomHeader.__subclasses__():
        names |= {getattr(spec, "name", "") for spec in getattr(header, "__slots__", ())}
    for frame in golden_frames(side="request", kind="wire-json"):
        names |= set(frame.command().ext_fields)
    return [name.encode() for name in sorted(names) if name]


ROWS = (
    Target(
        name="requests",
        what="a broker's requests: every code, fields and bodies, its answers to clients",
        world=BrokerWorld,
        seeds=seeds,
        rooms=("remoting", "broker", "store"),
        mutate=mutate_frames,
        tokens=tokens,
        largest=8192,
        lives=1_000,
    ),
    Target(
        name="requests-acl",
        what="the same behind access control, signed by one of two accounts",
        world=functools.partial(BrokerWorld, access=Access.SIGNED),
        seeds=seeds,
        rooms=("remoting", "broker", "store"),
        mutate=mutate_frames,
        tokens=tokens,
        largest=8192,
        lives=1_000,
    ),
)

"""broker.auth.needed_rights: every request code, against a table written by hand.

The rows are those of @RocketMQAction and @RocketMQResource in the header classes of 5.3.3 and of
the switch in its DefaultAuthorizationContextBuilder; what differs says so.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from broker.acl.access_table import ACCESS_TABLE, Who
from broker.acl.permission import Permission
from broker.auth.needed_rights import NEEDED, needed_rights, to_read_stored
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand

FIELDS: Final = {
    "topic": "T",
    "parentTopic": "T",
    "b": "T",
    "a": "P",
    "group": "G",
    "consumerGroup": "G",
    "groupName": "G",
    "destGroup": "D",
    "srcGroup": "S",
    "compareGroup": "C",
    "filterGroups": "F1,,F2",
    "topicList": "T1;T2",
}
HEARTBEAT: Final = {
    "clientID": "c",
    "consumerDataSet": [
        {"groupName": "G", "subscriptionDataSet": [{"topic": "T"}, {"topic": "%RETRY%G"}]}
    ],
    "producerDataSet": [{"groupName": "P"}],
}
LOCKS: Final = {
    "consumerGroup": "G",
    "clientId": "c",
    "mqSet": [{"topic": name, "brokerName": "b", "queueId": 0} for name in ("T", "%RETRY%G")],
}
BODIES: Final[dict[int, Any]] = {
    18: {"topicConfigList": [{"topicName": "N1"}, {"topicName": "N2"}]},
    200: {"groupName": "N1"},
    225: {"groupConfigList": [{"groupName": "N1"}, {"groupName": "N2"}]},
    5002: {"topicList": ["N1", "%RETRY%N2"]},
    5003: {"groupNameList": ["N1", "N2"]},
    34: HEARTBEAT,
    41: LOCKS,
    42: LOCKS,
    46: {"clientId": "c", "group": "G", "subscriptionData": {"topic": "T"}},
    200151: {"brokerName": "b", "acks": [{"c": "G", "t": "T", "r": "0", "b": "AQ=="}]},
    400: {"clientId": "c", "consumerGroup": "G", "topic": "T"},
    200071: {"subscriptionSet": [{"clientId": "c", "group": "N1", "topic": "N2"}]},
}
CLUSTER_GET, CLUSTER_UPDATE = ["Cluster:X Get"], ["Cluster:X Update"]
GET_T, GET_G = "Topic:T Get", "Group:G Get"
SUB_BOTH: Final = ["Group:G Sub", "Topic:T Sub"]

AS_IN_ROCKETMQ: Final[dict[int, list[str]]] = {
    10: ["Topic:T Pub"],
    310: ["Topic:T Pub"],
    320: ["Topic:T Pub"],
    370: ["Topic:T Pub"],
    37: ["Topic:T Pub"],
    36: ["Group:G Sub"],
    11: ["Topic:T Sub", "Group:G Sub"],
    12: ["Topic:T Sub|Get"],
    34: ["Group:G Sub", "Topic:T Sub"],
    35: ["Group:G Sub"],
    38: ["Group:G Sub|Get"],
    14: ["Topic:T Sub|Get", "Group:G Sub|Get"],
    15: ["Topic:T Sub|Update", "Group:G Sub|Update"],
    41: ["Group:G Sub", "Topic:T Sub"],
    42: ["Group:G Sub", "Topic:T Sub"],
    33: [GET_T],
    29: [GET_T],
    30: [GET_T],
    31: [GET_T],
    32: [GET_T],
    321: [GET_T, GET_G],
    309: SUB_BOTH,
    323: ["Topic:T Update"],
    200050: SUB_BOTH,
    200051: SUB_BOTH,
    200052: SUB_BOTH,
    200053: SUB_BOTH,
    200054: SUB_BOTH,
    200055: [GET_G, GET_T],
    17: ["Topic:T Create"],
    215: ["Topic:T Delete"],
    351: [GET_T],
    202: [GET_T],
    300: [GET_T],
    207: ["Group:G Delete"],
    352: [GET_G],
    353: ["Group:G Update", "Topic:T Update"],
    203: [GET_G],
    307: [GET_G],
    208: [GET_G, GET_T, "Topic:T1 Get", "Topic:T2 Get"],
    303: [GET_T, GET_G],
    343: [GET_G],
    345: [GET_G, GET_T],
    308: ["Group:F1 Get", "Group:F2 Get", "Group:C Get", GET_T],
    314: ["Group:D Update", "Topic:T Update"],
    222: ["Group:G Update", "Topic:T Update"],
    223: [GET_T, GET_G],
    354: [GET_T],
    204: CLUSTER_GET,
    328: CLUSTER_GET,
    315: CLUSTER_GET,
    317: CLUSTER_GET,
    355: CLUSTER_GET,
    906: CLUSTER_UPDATE,
    908: CLUSTER_UPDATE,
    905: CLUSTER_UPDATE,
    902: CLUSTER_UPDATE,
    903: CLUSTER_UPDATE,
    **dict.fromkeys((3001, 3002, 3003, 3006, 3007, 3008), CLUSTER_UPDATE),
    **dict.fromkeys((3004, 3005, 3009, 3010), CLUSTER_GET),
}
"""903: there the cluster that the request names."""

ONLY_OURS: Final[dict[int, list[str]]] = {
    28912: CLUSTER_GET,
    28913: CLUSTER_GET,
    28914: CLUSTER_GET,
    18: ["Topic:N1 Create", "Topic:N2 Create"],
    200: ["Group:N1 Create"],
    225: ["Group:N1 Create", "Group:N2 Create"],
    5002: ["Topic:N1 Delete", "Group:N2 Delete"],
    5003: ["Group:N1 Delete", "Group:N2 Delete"],
    361: ["Topic:T Sub", "Group:G Sub"],
    324: ["Topic:T Pub"],
    325: ["Topic:T Pub"],
    46: SUB_BOTH,
    200151: SUB_BOTH,
    400: SUB_BOTH,
    200070: SUB_BOTH,
    200071: ["Group:N1 Sub", "Topic:N2 Sub"],
    200074: CLUSTER_GET,
    200075: [GET_T],
    200076: [GET_T],
    200077: [GET_T, GET_G],
    200078: [GET_G],
    200079: ["Group:G Update"],
}
"""RocketMQ asks for no right."""

OPEN: Final = frozenset(
    {26, 28, 52, 305, 907, 1007, 2003, 21, 43, 45, 60, 61, 201, 402, 28911, 1008}
)
"""Nothing but a user, as in RocketMQ. A new code does not get here by itself."""


def shown(code: int, fields: dict[str, str] = FIELDS) -> list[str]:
    body = BODIES.get(code)
    request = RemotingCommand.request(
        code, dict(fields), json.dumps(body).encode() if body else b""
    )
    row = ACCESS_TABLE.get(code, ACCESS_TABLE[25])
    return [
        f"{resource.key} {'|'.join(actions)}"
        for resource, actions in needed_rights(request, row, "X")
    ]


def test_as_in_rocketmq() -> None:
    assert {code: shown(code) for code in AS_IN_ROCKETMQ} == AS_IN_ROCKETMQ


def test_every_other_code_that_is_answered() -> None:
    for code, row in ACCESS_TABLE.items():
        if code in AS_IN_ROCKETMQ:
            continue
        if code in ONLY_OURS:
            assert sorted(shown(code)) == sorted(ONLY_OURS[code]), code
        elif code in OPEN:
            assert shown(code) == [], code
        else:
            assert shown(code) == CLUSTER_UPDATE, code
            assert row.who is Who.ADMIN or (row.who is Who.BROKER and row.changes_state)


def test_the_table_has_no_code_that_is_not_shown_here() -> None:
    assert set(NEEDED) <= set(AS_IN_ROCKETMQ) | set(ONLY_OURS)


RETRY: Final = {**FIELDS, "topic": "%RETRY%H", "b": "%RETRY%H"}


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        # RocketMQ: the group that a send names, or of a pull only that which consumes.
        (10, ["Group:H Sub"]),
        (310, ["Group:H Sub"]),
        (11, ["Group:G Sub", "Group:H Sub"]),
        # As there.
        (14, ["Group:G Sub|Get"]),
        (15, ["Group:G Sub|Update"]),
        (30, ["Group:H Get"]),
        (202, ["Group:H Get"]),
        (17, ["Group:H Create"]),
    ],
)
def test_a_retry_topic_is_its_groups(code: int, needed: list[str]) -> None:
    assert shown(code, RETRY) == needed


def test_ones_own_retry_topic() -> None:
    assert shown(11, {**FIELDS, "topic": "%RETRY%G"}) == ["Group:G Sub"]


@pytest.mark.parametrize("topic", ["%RETRY%G_T", "%RETRY%G+T"])
def test_a_pop_retry_topic_is_the_topics(topic: str) -> None:
    assert shown(200051, {**FIELDS, "topic": topic}) == SUB_BOTH


def test_a_reply_may_go_to_every_reply_topic() -> None:
    assert shown(325, {"b": "X_REPLY_TOPIC"}) == []


def test_what_a_request_does_not_name() -> None:
    assert shown(37, {}) == []
    assert shown(35, {}) == []
    assert shown(33, {}) == []
    assert shown(323, {}) == CLUSTER_UPDATE
    assert shown(323, {"topic": " "}) == CLUSTER_UPDATE
    assert shown(310, {}) == ["Topic:null Pub"]


def test_a_body_that_cannot_be_read() -> None:
    with pytest.raises(RequestError):
        list(needed_rights(RemotingCommand.request(34, {}, b"{"), ACCESS_TABLE[34], "X"))


def test_of_a_message_that_is_named_by_its_place() -> None:
    needed = to_read_stored({"T": Permission.SUB, "%RETRY%G": Permission.SUB, "U": Permission.PUB})
    assert [f"{one.resource.key} {'|'.join(one.actions)}" for one in needed] == [
        "Topic:T Sub|Get",
        "Group:G Sub|Get",
        "Topic:U Pub",
    ]

"""Every rule about names that rights depend on, each with what somebody would try with it.

The account has rights on the group `abc` and the topic `orders` (and on nothing of the group `vip`
or the topic `secrets`), with the access control of 4.9 and with that of 5.x. Each row is a request
and whether it is let through; docs/access.md has the same rules under "Names".
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Final

import pytest

from broker.acl.access_table import ACCESS_TABLE
from broker.acl.permission import Permission, suffices
from broker.auth.needed_rights import needed_rights
from broker.topic.system_topics import TRACE_TOPIC
from remoting.key_builder import parse_normal_topic
from remoting.remoting_command import RemotingCommand

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "access.md"
BOTH: Final = Permission.PUB | Permission.SUB
OWNED: Final = {"%RETRY%abc": Permission.SUB, "orders": BOTH}
OWNED_OF_5: Final = {"Group:abc", "Topic:orders"}
POPS: Final = (200050, 200051, 200052, 200053, 200054, 200055)


def is_let_through(code: int, fields: dict[str, str], body: object = None) -> tuple[bool, bool]:
    """By the rights of 4.9, and by those of 5.x. What needs nothing is let through."""
    data = b"" if body is None else json.dumps(body).encode()
    request = RemotingCommand.request(code, fields, data)
    row = ACCESS_TABLE[code]
    assert row.resources_of is not None
    by_account = all(
        suffices(OWNED.get(name, Permission.DENY), needed)
        for name, needed in row.resources_of(request).items()
    )
    needs = needed_rights(request, row, "DefaultCluster")
    return by_account, all(need.resource.key in OWNED_OF_5 for need in needs)


def popped(topic: str, group: str = "abc") -> dict[str, str]:
    return {"consumerGroup": group, "topic": topic}


OWN_POP_RETRY_TOPIC: Final = "own pop retry topic"
OTHER_POP_RETRY_TOPIC: Final = "another group's pop retry topic"
RETRY_TOPIC_PULLED: Final = "retry topic, pulled"
RETRY_TOPIC_SENT_TO: Final = "retry topic, sent to"
REPLY_TOPIC: Final = "reply topic"
DEAD_LETTERS: Final = "dead letters"
SPELLING: Final = "spelling"

_ROWS: Final[list[tuple[str, tuple[int, ...], str, bool]]] = [
    (OWN_POP_RETRY_TOPIC, POPS, "%RETRY%abc_orders", True),
    (OWN_POP_RETRY_TOPIC, POPS, "%RETRY%abc+orders", True),
    (OWN_POP_RETRY_TOPIC, POPS, "%RETRY%abc", True),
    (OWN_POP_RETRY_TOPIC, POPS, "%RETRY%abc_secrets", False),
    (OWN_POP_RETRY_TOPIC, POPS, "%RETRY%abc+secrets", False),
    (OWN_POP_RETRY_TOPIC, POPS, "%RETRY%abc_", False),
    (OTHER_POP_RETRY_TOPIC, POPS, "%RETRY%vip_orders", False),
    (OTHER_POP_RETRY_TOPIC, POPS, "%RETRY%vip+orders", False),
    (OTHER_POP_RETRY_TOPIC, POPS, "%RETRY%abcd_orders", False),
    (OTHER_POP_RETRY_TOPIC, POPS, "%RETRY%abcorders", False),
    (OTHER_POP_RETRY_TOPIC, POPS, "%RETRY%ab_orders", False),
    (OTHER_POP_RETRY_TOPIC, POPS, "%RETRY%vip", False),
    (OTHER_POP_RETRY_TOPIC, POPS, "%RETRY%ABC_orders", False),
    (OTHER_POP_RETRY_TOPIC, POPS, "%RETRY%abc-orders", False),
    (RETRY_TOPIC_PULLED, (11, 361), "%RETRY%abc", True),
    (RETRY_TOPIC_PULLED, (11, 361), "%RETRY%vip", False),
    (RETRY_TOPIC_PULLED, (11, 361), "%RETRY%vip_orders", False),
    (DEAD_LETTERS, (11, 361, *POPS), "%DLQ%abc", False),
    (DEAD_LETTERS, (11, 361, *POPS), "%DLQ%vip", False),
    (SPELLING, (11, 361, *POPS), "%retry%abc_orders", False),
    (SPELLING, (11, 361, *POPS), " %RETRY%abc_orders", False),
    (SPELLING, (11, 361, *POPS), "Orders", False),
    (SPELLING, (11, 361, *POPS), "orders ", False),
    (SPELLING, (11, 361, *POPS), "", False),
]


@pytest.mark.parametrize(
    ("code", "topic", "is_allowed"),
    [
        pytest.param(code, topic, allowed, id=f"{code}-{topic}")
        for _rule, codes, topic, allowed in _ROWS
        for code in codes
    ],
)
def test_what_a_group_reads(code: int, topic: str, is_allowed: bool) -> None:
    assert is_let_through(code, popped(topic)) == (is_allowed, is_allowed)


@pytest.mark.parametrize("code", POPS)
@pytest.mark.parametrize("group", ["vip", "%RETRY%vip", "", "a"])
def test_the_groups_own_name_decides(code: int, group: str) -> None:
    """A group that the account has no right on reads nothing, whatever the topic."""
    for topic in ("orders", "%RETRY%vip_orders", f"%RETRY%{group}_orders"):
        assert is_let_through(code, popped(topic, group)) == (False, False), topic


@pytest.mark.parametrize(
    ("entry", "is_allowed"),
    [
        ({"t": "orders", "r": "0"}, True),
        ({"t": "orders", "r": "1"}, True),
        ({"t": "orders", "r": "2"}, True),
        ({"t": "%RETRY%vip_orders", "r": "0"}, False),
        ({"t": "secrets", "r": "1"}, False),
    ],
)
def test_batches_of_acks_name_the_topic_and_a_flag(entry: dict[str, str], is_allowed: bool) -> None:
    bits = base64.b64encode(b"\1").decode()
    body = {"brokerName": "b", "acks": [{"c": "abc", "b": bits, **entry}]}
    assert is_let_through(200151, {}, body) == (is_allowed, is_allowed)


_SENDS: Final[list[tuple[str, int, str, bool]]] = [
    (RETRY_TOPIC_SENT_TO, 310, "%RETRY%abc", True),
    (RETRY_TOPIC_SENT_TO, 310, "%RETRY%vip", False),
    (RETRY_TOPIC_SENT_TO, 310, "%RETRY%vip_orders", False),
    (RETRY_TOPIC_SENT_TO, 310, "%RETRY%vip+orders", False),
    (REPLY_TOPIC, 310, "DefaultCluster_REPLY_TOPIC", False),
    (REPLY_TOPIC, 325, "DefaultCluster_REPLY_TOPIC", True),
    (REPLY_TOPIC, 325, "DefaultCluster_REPLY_TOPICS", False),
    (REPLY_TOPIC, 325, "%RETRY%vip_X_REPLY_TOPIC", False),
    (DEAD_LETTERS, 310, "%DLQ%abc", False),
    (SPELLING, 310, "%retry%abc", False),
]


@pytest.mark.parametrize(("rule", "code", "topic", "is_allowed"), _SENDS)
def test_what_a_producer_sends_to(rule: str, code: int, topic: str, is_allowed: bool) -> None:
    assert rule
    assert is_let_through(code, {"b": topic}) == (is_allowed, is_allowed)


@pytest.mark.parametrize("topic", [TRACE_TOPIC, TRACE_TOPIC + "S"])
def test_traces_are_no_reason_to_read(topic: str) -> None:
    assert is_let_through(11, popped(topic)) == (False, False)


@pytest.mark.parametrize(
    ("topic", "group", "normal"),
    [
        ("T", "G", "T"),
        ("%RETRY%G_T", "G", "T"),
        ("%RETRY%G+T", "G", "T"),
        ("%RETRY%G_T_U", "G", "T_U"),
        ("%RETRY%G_H_T", "G_H", "T"),
        ("%RETRY%G", "G", "%RETRY%G"),
        ("%RETRY%G_", "G", "%RETRY%G_"),
        ("%RETRY%H_T", "G", "%RETRY%H_T"),
        ("%RETRY%GG_T", "G", "%RETRY%GG_T"),
        ("%RETRY%_T", "", "T"),
    ],
)
def test_only_what_begins_with_the_groups_own_name_is_cut(
    topic: str, group: str, normal: str
) -> None:
    assert parse_normal_topic(topic, group) == normal


def test_the_document_has_the_same_rules() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").partition("\n## Names")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    rules = {row[0] for row in _ROWS} | {row[0] for row in _SENDS}
    assert rules <= set(rows), rules - set(rows)


def test_every_rule_has_an_attack() -> None:
    attacked = {rule for rule, *_rest, allowed in [*_ROWS, *_SENDS] if not allowed}
    assert attacked == {row[0] for row in [*_ROWS, *_SENDS]}

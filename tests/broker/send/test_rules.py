"""The rules of sends: a new one is one row, and no hot loop misses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.send import send_message_processor
from broker.send.marks import (
    DELAY,
    FIFO,
    HALF,
    INNER,
    LIGHT,
    LITE,
    PRIORITY,
    RESERVED,
    TIMER,
    marks_of,
)
from broker.send.rules import (
    BATCH,
    ITEM,
    KINDS,
    RULES,
    SINGLE,
    Checked,
    Circumstances,
    Rule,
    SendRules,
)
from broker.send.send_topic import TopicNature
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from store.batch_codec import encode_item
from store.inner_batch import INNER_BATCH_FLAG
from store.message_codec import TRANSACTION_MASK
from tests.broker.hot_path_world import HotPathWorld, general_requests, send_request
from tests.broker.send.test_batch_send_route import batch_request

_ORDERED = "__SHARDINGKEY\x01s\x02UNIQ_KEY\x01k"
_FORBIDDEN = 1 << 20
"""A bit of sysFlag that no rule of ours looks at."""


def refuse(_message: Checked, _: Circumstances) -> None:
    raise RequestError(ResponseCode.NO_PERMISSION, "not here")


def world_with(monkeypatch: pytest.MonkeyPatch, root: Path, *rows: Rule) -> HotPathWorld:
    def rules(circumstances: Circumstances) -> SendRules:
        return SendRules(circumstances, (*RULES, *rows))

    monkeypatch.setattr(send_message_processor, "SendRules", rules)
    world = HotPathWorld(root)
    world.topic()
    world.topic("U")
    warm = world.client()
    for topic in "TU":
        assert warm.call(send_request(topic=topic)).code == 0
    return world


def codes(world: HotPathWorld, *requests: RemotingCommand) -> list[int]:
    """What the requests are answered when they arrive together, in their order."""
    client = world.client()
    client.send(*requests)
    world.turn()
    answered = {answer.opaque: answer.code for answer in client.answers()}
    return [answered[request.opaque] for request in requests]


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("row", "fields"),
    [
        (Rule(SINGLE, refuse, marks=FIFO), {"properties": _ORDERED}),
        (Rule(SINGLE, refuse, flags=_FORBIDDEN), {"sys_flag": _FORBIDDEN}),
        (Rule(SINGLE, refuse, marks=DELAY), {"properties": "DELAY\x013"}),
        (Rule(SINGLE, refuse, marks=HALF), {"properties": "TRAN_MSG\x01true\x02PGROUP\x01p"}),
    ],
    ids=["marks", "flags", "delays", "halves"],
)
def test_a_rule_for_sends_is_one_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, row: Rule, fields: dict[str, Any]
) -> None:
    """All that it looks at is refused in a run of sends that are taken together, and no other."""
    world = world_with(monkeypatch, tmp_path, row)
    general, before = general_requests(world), len(world.records())
    usual, forbidden = send_request(), send_request(**fields)
    again = send_request(**fields)
    assert codes(world, usual, forbidden, again, send_request()) == [0, 16, 16, 0]
    assert len(world.records()) == before + 2
    assert len(general) < 4


@pytest.mark.interpreted
def test_a_rule_for_batches_is_one_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = world_with(monkeypatch, tmp_path, Rule(BATCH, refuse, marks=FIFO))
    assert codes(world, batch_request(properties=_ORDERED), batch_request()) == [16, 0]
    assert codes(world, send_request(properties=_ORDERED)) == [0]


@pytest.mark.interpreted
def test_a_rule_for_the_messages_of_a_batch_is_one_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = world_with(monkeypatch, tmp_path, Rule(ITEM, refuse, marks=FIFO))
    body = encode_item(0, b"a", b"") + encode_item(0, b"b", _ORDERED.encode())
    forbidden = batch_request(body)
    before = len(world.records())
    assert codes(world, forbidden, batch_request()) == [16, 0]
    assert len(world.records()) == before + 3


@pytest.mark.interpreted
def test_a_rule_for_all_messages_of_some_topics_is_one_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has neither marks nor flags, so that none of them is for the hot loops."""
    row = Rule(SINGLE, refuse, of_topic=lambda nature: nature.needs_keys)
    world = world_with(monkeypatch, tmp_path, row)
    world.topic("V", attributes={"+cleanup.policy": "COMPACTION"})
    keyed = {"topic": "V", "properties": "KEYS\x01k"}
    assert codes(world, send_request(**keyed), send_request(), send_request(**keyed)) == [16, 0, 16]


def test_what_is_left_is_derived_from_the_rows(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path)
    rules = world.send_processor.rules
    assert rules.left_marks[SINGLE] == RESERVED | INNER | PRIORITY | LITE
    assert rules.left_marks[BATCH] == RESERVED | HALF | INNER | DELAY | TIMER
    assert rules.left_marks[ITEM] == RESERVED | INNER | DELAY | TIMER
    assert {rules.left_flags[kind] for kind in (SINGLE, BATCH)} == {
        TRANSACTION_MASK | INNER_BATCH_FLAG
    }


def test_light_queues_are_looked_for_where_there_are_some(tmp_path: Path) -> None:
    rules = HotPathWorld(tmp_path, light_queues=5).send_processor.rules
    assert all(rules.left_marks[kind] & LIGHT for kind in KINDS)


def test_the_first_row_that_objects_has_the_word(tmp_path: Path) -> None:
    rules = HotPathWorld(tmp_path).send_processor.rules
    text = "TRAN_MSG\x01true\x02DELAY\x013"
    assert marks_of(text) & HALF
    with pytest.raises(RequestError, match="a batch cannot hold transactional messages"):
        rules.check(Checked(BATCH, text, 0, TopicNature(False, False)))
    with pytest.raises(RequestError, match="a batch cannot hold delayed messages"):
        rules.check(Checked(ITEM, text, 0, TopicNature(False, False)))

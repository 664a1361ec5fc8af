"""The rules of a message that a consumer sends to its group's retry topic, with no retries left: it
goes to the dead-letter queue without its delay, and the rules look at it as it is stored there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from store.batch_codec import encode_item
from store.inner_batch import INNER_BATCH_FLAG
from tests.broker.hot_path_world import HotPathWorld, send_request
from tests.broker.send.test_batch_send_route import batch_request

_BATCH_QUEUES = {"attributes": {"+queue.type": "BatchCQ"}}
_RETRY: dict[str, Any] = {"topic": "%RETRY%G", "reconsume_times": 20}


def test_a_batch_loses_its_delay_on_the_way(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path)
    answer = world.client().call(batch_request(properties="DELAY\x013", **_RETRY))
    assert answer.code == 0
    assert {record.topic for record in world.records()} == {"%DLQ%G"}
    early = batch_request(properties="DELAY\x013", **{**_RETRY, "reconsume_times": 0})
    assert world.client().call(early).code == 13


def test_an_inner_batch_is_not_stored_in_a_topic_without_batch_queues(tmp_path: Path) -> None:
    """Where each of its messages would count as one."""
    world = HotPathWorld(tmp_path)
    world.topic("%RETRY%G", **_BATCH_QUEUES)
    fields = {"properties": "INNER_NUM\x011", "sys_flag": INNER_BATCH_FLAG}
    request = send_request(encode_item(0, b"a", b""), **fields, **_RETRY)
    assert (world.client().call(request).code, world.records()) == (13, [])


def test_nor_one_whose_messages_the_broker_counts(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path)
    world.topic("%RETRY%G", **_BATCH_QUEUES)
    request = batch_request(properties="UNIQ_KEY\x01u", sys_flag=INNER_BATCH_FLAG, **_RETRY)
    assert (world.client().call(request).code, world.records()) == (13, [])


@pytest.mark.parametrize("times", [0, 20])
def test_light_queues_are_refused_where_batch_queues_are(tmp_path: Path, times: int) -> None:
    world = HotPathWorld(tmp_path, light_queues=5)
    world.topic("%RETRY%G" if times else "%DLQ%G")
    world.topic("%DLQ%G" if times else "%RETRY%G", **_BATCH_QUEUES)
    fields = {**_RETRY, "reconsume_times": times}
    request = send_request(properties="INNER_MULTI_DISPATCH\x01%LMQ%a", **fields)
    assert (world.client().call(request).code, world.records()) == (13, [])


def test_a_dead_letter_needs_the_key_that_its_topic_asks_for(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path)
    world.topic("%DLQ%G", attributes={"+cleanup.policy": "COMPACTION"})
    client = world.client()
    assert client.call(send_request(properties="TAGS\x01t", **_RETRY)).code == 13
    assert client.call(send_request(properties="KEYS\x01k", **_RETRY)).code == 0

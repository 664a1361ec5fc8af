"""Inner batches that clients make themselves: in topics with batch queues, and there whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.batch_codec import encode_item
from store.inner_batch import INNER_BATCH_FLAG
from store.message_properties import find_property
from tests.broker.hot_path_world import HotPathWorld, send_request
from tests.broker.send.test_batch_send_route import batch_request

_ITEM = encode_item(0, b"a", b"")


def batch_world(root: Path) -> HotPathWorld:
    world = HotPathWorld(root)
    world.topic(attributes={"+queue.type": "BatchCQ"})
    return world


@pytest.mark.parametrize(
    "text", ["DELAY\x013", "TRAN_MSG\x01true", "TIMER_DELIVER_MS\x0199", "TIMER_DELAY_SEC\x019"]
)
def test_it_waits_nowhere_and_the_answer_says_so(tmp_path: Path, text: str) -> None:
    """Not that its topic had no batch queues."""
    world = batch_world(tmp_path)
    fields = {"properties": f"INNER_NUM\x011\x02{text}", "sys_flag": INNER_BATCH_FLAG}
    answer = world.client().call(send_request(_ITEM, **fields))
    assert (answer.code, world.records()) == (13, [])
    assert "neither delayed nor transactional" in (answer.remark or "").replace("can be ", "")


def test_a_delayed_message_that_speaks_of_inner_batches_is_none(tmp_path: Path) -> None:
    world = batch_world(tmp_path)
    answer = world.client().call(send_request(properties="DELAY\x013\x02K\x01INNER_NUM\x01"))
    assert answer.code == 0


def test_single_records_with_its_flag_are_stored_together_or_not_at_all(tmp_path: Path) -> None:
    """A batch without UNIQ_KEY becomes a record for each message. Where only some of them fit the
    file, all wait for the next one, and none is stored twice."""
    world = HotPathWorld(tmp_path, file_size=4096, files=1)
    world.topic(attributes={"+queue.type": "BatchCQ"})
    client = world.client()
    assert client.call(send_request(b"x" * 2_500)).code == 0
    bodies = [letter * 500 for letter in (b"a", b"b", b"c")]
    body = b"".join(encode_item(0, each, b"") for each in bodies)
    client.send(batch_request(body, sys_flag=INNER_BATCH_FLAG))
    world.turn()
    assert [record.body for record in world.records()[1:]] == []
    world.allocate(1)
    world.turn()
    assert [record.body for record in world.records()[1:]] == bodies
    (answer,) = client.answers()
    assert answer.code == 0
    stored = world.records()[1:]
    assert [record.queue_offset for record in stored] == [1, 2, 3]
    assert [find_property(record.properties, b"INNER_BASE") for record in stored] == [
        b"1",
        b"2",
        b"3",
    ]

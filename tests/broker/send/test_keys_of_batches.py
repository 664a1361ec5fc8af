"""KEYS of the messages of a batch to a compaction topic: their own, or those that all have."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.batch_codec import encode_item
from tests.broker.hot_path_world import HotPathWorld
from tests.broker.send.test_batch_send_route import batch_request


@pytest.mark.parametrize(
    ("common", "own", "code"),
    [
        ("KEYS\x01k", "", 0),
        ("", "KEYS\x01k", 0),
        ("KEYS\x01 ", "KEYS\x01k", 13),
        ("TAGS\x01t", "", 13),
    ],
)
def test_what_all_have_in_common_counts(tmp_path: Path, common: str, own: str, code: int) -> None:
    """Stored behind a message's own, it is what the last pair of the name says."""
    world = HotPathWorld(tmp_path)
    world.topic(attributes={"+cleanup.policy": "COMPACTION"})
    body = encode_item(0, b"a", own.encode()) * 2
    answer = world.client().call(batch_request(body, properties=common))
    assert (answer.code, len(world.records())) == (code, 0 if code else 2)

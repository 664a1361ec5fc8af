"""Sends to a topic whose queues are being deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.hot_path_world import HotPathWorld, send_request


@pytest.mark.parametrize("fast", [True, False])
def test_they_do_not_make_the_topic_again(tmp_path: Path, fast: bool) -> None:
    """Its configuration is gone first; TBW102 would make one for any send."""
    world = HotPathWorld(tmp_path, fast=fast)
    client = world.client()
    assert client.call(send_request(topic="New")).code == 0
    world.send_processor.block_topic("New")
    world.topics.delete("New")
    world.send_processor.on_topics_changed()
    answer = client.call(send_request(topic="New"))
    assert (answer.code, answer.remark) == (17, "topic[New] is being deleted")
    assert world.topics.find("New") is None
    world.send_processor.unblock_topic("New", deleted=True)
    assert client.call(send_request(topic="New")).ext_fields["queueOffset"] == "0"

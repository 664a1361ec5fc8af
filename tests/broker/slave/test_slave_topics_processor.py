"""21 on the VIP port: what slaves of each version can read (RocketMQ's SlaveSynchronize)."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.processor.table_pages import TablePages
from broker.slave.slave_topics_processor import SlaveTopicsProcessor
from remoting.body.topic_config import TopicConfig
from remoting.remoting_command import RemotingCommand
from tests.broker.broker_fakes import json_of
from tests.broker.processor_world import World
from tests.broker.route_world import built_controller


@pytest.mark.parametrize(
    ("version", "key"),
    [
        (409, "message.type"),
        (475, "message.type"),
        (477, "+message.type"),
        (479, "+message.type"),
        (481, "message.type"),
    ],
)
def test_attributes_for_slaves(tmp_path: Path, version: int, key: str) -> None:
    """477 is 5.3.2, 479 is 5.3.3: they take attributes as changes to topics that are new."""
    world = World(tmp_path)
    world.topics.update(TopicConfig(topic_name="t", attributes={"+message.type": "FIFO"}))
    request = RemotingCommand.request(21)
    request.version = version
    processor = SlaveTopicsProcessor(world.topics.wrapper, TablePages(2_000))
    body = json_of(world.ask(processor, request).body)
    expected = json_of(world.topics.encode())
    expected["topicConfigTable"]["t"]["attributes"] = {key: "FIFO"}
    assert body == expected


def test_only_the_vip_port_is_the_slaves(tmp_path: Path) -> None:
    with built_controller(tmp_path) as controller:
        routes = controller._routes
        assert isinstance(routes.vip[21].processor, SlaveTopicsProcessor)
        assert not isinstance(routes.main[21].processor, SlaveTopicsProcessor)
        assert routes.vip[21].executor == routes.main[21].executor

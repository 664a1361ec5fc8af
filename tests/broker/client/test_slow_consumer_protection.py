"""A group that is online and too far behind is not served any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.slow_consumer_protection import PERIOD_MS, SlowConsumerProtection
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.settings.broker_config import BrokerConfig
from ipc.scheduled_executor import ScheduledExecutor
from tests.broker.broker_fakes import FakeClock

_ON = replace(
    BrokerConfig(), disable_consume_if_consumer_read_slowly=True, consumer_fallbehind_threshold=300
)


class World:
    """A log of 1,000 bytes; each queue has the offsets 2 to 9, entry n at byte 100 n."""

    max_phy_offset = 1000

    def __init__(self, tmp_path: Path, config: BrokerConfig) -> None:
        self.online = {"g"}
        self.disabled: list[str] = []
        self.offsets_of = ConsumerOffsetManager(tmp_path / "consumerOffset.json")
        self.protection = SlowConsumerProtection(config, self.offsets_of, self, self, self)

    def has_group(self, group: str) -> bool:
        return group in self.online

    def disable_consume(self, group: str) -> None:
        self.disabled.append(group)

    def offsets(self, topic: str, _queue_id: int) -> tuple[int, int]:
        return (0, 0) if topic == "deleted" else (2, 10)

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        low, high = self.offsets(topic, queue_id)
        return (100 * queue_offset, 100, 0) if low <= queue_offset < high else None


@pytest.mark.parametrize(
    ("stored", "is_disabled"),
    [
        pytest.param({0: 10, 1: 7}, False, id="just-not-too-far"),
        pytest.param({0: 10, 1: 6}, True, id="one-queue-too-far"),
        pytest.param({0: 0}, True, id="before-the-queue-s-begin"),
        pytest.param({0: 10}, False, id="caught-up"),
        pytest.param({}, False, id="never-stored-anything"),
    ],
)
def test_too_far_behind(tmp_path: Path, stored: dict[int, int], is_disabled: bool) -> None:
    world = World(tmp_path, _ON)
    for queue_id, offset in stored.items():
        world.offsets_of.commit_offset("1.2.3.4:5", "g", "t", queue_id, offset)
    world.protection.protect()
    assert world.disabled == (["g"] if is_disabled else [])


def test_offline_groups_and_deleted_topics_are_left_alone(tmp_path: Path) -> None:
    world = World(tmp_path, _ON)
    world.offsets_of.commit_offset("1.2.3.4:5", "away", "t", 0, 2)
    world.offsets_of.commit_offset("1.2.3.4:5", "g", "deleted", 0, 2)
    world.protection.protect()
    assert world.disabled == []


@pytest.mark.parametrize("config", [_ON, BrokerConfig()], ids=["on", "off"])
def test_it_looks_every_three_minutes_where_asked_for(tmp_path: Path, config: BrokerConfig) -> None:
    clock = FakeClock()
    executor = ScheduledExecutor(clock)
    world = World(tmp_path, config)
    world.offsets_of.commit_offset("1.2.3.4:5", "g", "t", 0, 2)
    world.protection.schedule_on(executor)
    for _ in range(2):
        clock.advance(PERIOD_MS)
        executor.run_due()
    assert world.disabled == (["g", "g"] if config is _ON else [])

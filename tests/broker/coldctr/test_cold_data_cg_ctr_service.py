"""ColdDataCgCtrService and its strategies: who is limited, how thresholds move (RocketMQ 5.3.3)."""

from __future__ import annotations

import dataclasses

import pytest

from broker.coldctr.cold_ctr_strategy import (
    ColdCtrStrategy,
    PIDAdaptiveColdCtrStrategy,
    SimpleColdCtrStrategy,
)
from broker.coldctr.cold_data_cg_ctr_service import ColdDataCgCtrService
from broker.settings.broker_config import BrokerConfig

CONFIG = BrokerConfig(
    cold_ctr_strategy_enable=False, cg_cold_read_threshold=100, global_cold_read_threshold=1000
)


class World:
    def __init__(self, strategy: ColdCtrStrategy | None = None, *, adapts: bool = False) -> None:
        self.now_ms = 1_000_000
        self.service = ColdDataCgCtrService(
            dataclasses.replace(CONFIG, cold_ctr_strategy_enable=adapts),
            strategy or SimpleColdCtrStrategy(),
            lambda: self.now_ms,
            enabled=True,
        )

    def thresholds(self) -> dict[str, int]:
        return self.service.info().config_table

    def end_round(self) -> None:
        self.now_ms += 5_000
        self.service.end_round()


def test_a_group_is_limited_from_its_threshold_to_the_rounds_end() -> None:
    world = World()
    world.service.add("g", 99)
    assert not world.service.is_limited("g")
    world.service.add("g", 1)
    assert world.service.is_limited("g")
    assert not world.service.is_limited("other")
    world.end_round()
    assert not world.service.is_limited("g")


def test_its_first_cold_read_counts() -> None:
    world = World()
    world.service.add("g", 100)
    assert world.service.is_limited("g")


def test_of_all_groups_together_those_that_read_cold_data_are_limited() -> None:
    world = World()
    for number in range(11):
        world.service.add(f"g{number}", 91)
    assert world.service.is_limited("g0")
    assert not world.service.is_limited("reads nothing cold")


@pytest.mark.parametrize("group", ["CID_RMQ_SYS_x", "TOOLS_CONSUMER", "__MONITOR_CONSUMER"])
def test_groups_of_rocketmq_are_spared(group: str) -> None:
    world = World()
    world.service.add(group, 10_000)
    assert world.service.is_spared(group)
    assert not world.service.is_limited(group)


def test_nobody_is_limited_where_it_is_off() -> None:
    world = World()
    world.service.add("g", 100)
    world.service.use(CONFIG, enabled=False)
    assert not world.service.is_limited("g")


def test_an_operators_threshold() -> None:
    world = World()
    world.service.set_threshold("g", 500)
    world.service.add("g", 499)
    assert not world.service.is_limited("g")
    world.service.remove_threshold("g")
    assert world.service.is_limited("g")
    world.service.remove_threshold("nobody")


def test_what_is_told_of_it() -> None:
    world = World()
    world.service.set_threshold("g", 7)
    world.service.add("g", 5)
    world.now_ms += 1
    world.service.add("g", 3)
    assert world.service.info().to_json_bytes() == (
        b'{"runtimeTable":{"g":{"coldAcc":8,"createTimeMills":1000000,'
        b'"lastColdReadTimeMills":1000001}},"configTable":{"g":7},'
        b'"cgColdReadThreshold":100,"globalColdReadThreshold":1000,"globalAcc":8}'
    )


def test_a_group_is_forgotten_a_minute_after_its_last_cold_read() -> None:
    world = World()
    world.service.add("g", 5)
    for _ in range(11):
        world.end_round()
    assert world.service.info().runtime_table["g"].cold_acc == 0
    world.end_round()
    assert world.service.info().runtime_table == {}


def test_the_simple_strategy_goes_up_by_half_and_down_by_a_fifth() -> None:
    world = World(adapts=True)
    world.service.add("g", 100)
    world.end_round()
    assert world.thresholds() == {"g||adaptive": 150}
    world.service.add("g", 150)
    world.end_round()
    assert world.thresholds() == {"g||adaptive": 225}
    world.service.add("others", 1001)
    world.end_round()
    assert world.thresholds() == {"g||adaptive": 180}
    for _ in range(5):
        world.service.add("others", 1001)
        world.end_round()
    assert world.thresholds() == {"g||adaptive": 100}


def test_what_an_operator_has_set_stays() -> None:
    world = World(adapts=True)
    world.service.set_threshold("g", 10)
    world.service.add("g", 100)
    world.end_round()
    assert world.thresholds() == {"g": 10}


def test_three_highest_go_down_in_a_round() -> None:
    world = World(adapts=True)
    for number in range(5):
        name = f"g{number}"
        for _ in range(number + 1):
            world.service.add(name, 500)
            world.end_round()
    before = world.thresholds()
    world.service.add("x", 1001)
    world.end_round()
    lowered = {key for key, value in world.thresholds().items() if value < before[key]}
    assert lowered == {"g2||adaptive", "g3||adaptive", "g4||adaptive"}


def test_adaptive_thresholds_go_with_the_strategy() -> None:
    world = World(adapts=True)
    world.service.add("g", 100)
    world.end_round()
    world.service.use(CONFIG, enabled=True)
    world.end_round()
    assert world.thresholds() == {}


def test_the_pid_controller_waits_for_ten_rounds() -> None:
    strategy = PIDAdaptiveColdCtrStrategy(800)
    world = World(strategy, adapts=True)
    for _ in range(9):
        world.service.add("g", 100)
        world.end_round()
        assert world.thresholds() == {}
    world.service.add("g", 100)
    world.end_round()
    # All errors are 700: 0.5 * 700 + 0.3 * 7000 + 0.2 * 0.
    assert strategy.decision_factor() == pytest.approx(2450)
    assert world.thresholds() == {"g||adaptive": 150}
    for _ in range(9):
        world.service.add("g", 1)
        world.service.add("other", 900)
        world.end_round()
    # Nine are -101 now, one is 700: only at last the factor is below 0.
    assert strategy.decision_factor() == pytest.approx(-50.5 - 62.7)
    assert world.thresholds()["g||adaptive"] == 120

"""LongestTurns: which requests hold up the loop, in /metrics and in mqadmin brokerStatus."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.metrics import metrics_table as table
from broker.metrics.longest_turns import LongestTurns
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots, create_metric_slots
from remoting.request_code import RequestCode as Code
from tests.broker.hot_path_world import send_fields
from tests.fuzz.broker_world import TOPICS, BrokerWorld
from tests.fuzz.served_connection import request


@pytest.fixture
def slots() -> Iterator[MetricSlots]:
    fd = create_metric_slots()
    slots = MetricSlots(fd, ProcessIndex.REMOTING)
    yield slots
    slots.close()
    os.close(fd)


def shown(slots: MetricSlots) -> dict[str, float]:
    found = slots.series(table.LONGEST_TURN.name)
    return {labels[0]: slots.values[slot] for labels, slot in found.items()}


def test_the_longest_turn_of_each_code(slots: MetricSlots) -> None:
    turns = LongestTurns(slots)
    assert turns.text() == ""
    turns.note(2_000_000, {Code.SEND_MESSAGE_V2})
    turns.note(1_500_000, {Code.SEND_MESSAGE_V2, Code.PULL_MESSAGE})
    turns.note(70_000_000, ())
    turns.note(3_000_000, {987_654, 987_655})
    expected = {"send_message_v2": 0.002, "pull_message": 0.0015, "none": 0.07, "unknown": 0.003}
    assert shown(slots) == expected
    assert turns.text() == "70.0 ms (none)"


def test_a_new_process_begins_anew(slots: MetricSlots) -> None:
    LongestTurns(slots).note(2_000_000, {Code.SEND_MESSAGE_V2})
    turns = LongestTurns(slots)
    assert shown(slots) == {}
    turns.note(1_000_000, {Code.SEND_MESSAGE_V2})
    assert shown(slots) == {"send_message_v2": 0.001}


def test_a_turn_of_a_broker_is_counted_under_what_it_served(tmp_path: Path) -> None:
    """Fast and general path; 28 shows the longest."""
    world = BrokerWorld(tmp_path)
    try:
        sees = world.controller._statistics.longest_turns
        sees._longest.clear()
        peer = world.connect()
        send = request(Code.SEND_MESSAGE_V2, send_fields(topic=TOPICS[0]), b"x")
        ask = request(Code.GET_MAX_OFFSET, {"topic": TOPICS[0], "queueId": 0})
        for name, frame in (("send_message_v2", send), ("get_max_offset", ask)):
            world.controller.loop.now_ns = world.clock.monotonic_ns()
            world.clock.advance(7)
            peer.feed(frame)
            world.turn()
            assert sees._longest.pop(name) == 7_000_000
            sees._longest.clear()  # This world ends each turn twice.
            assert not world.controller._server.turn_codes
        sees.note(9_000_000, {Code.GET_MAX_OFFSET})
        peer.feed(request(Code.GET_BROKER_RUNTIME_INFO, {}))
        world.turn()
        answer = peer.answers()[-1]
        assert b'"loopLongestTurn":"9.0 ms (get_max_offset)"' in answer.body
    finally:
        world.close()

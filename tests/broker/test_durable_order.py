"""The durable order of a turn: append, publish, flush, replicate, answer; never otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.broker_controller import BrokerController
from ha.control_slots import REPLICA_COUNT, REPLICATED_OFFSET
from store.control_slots import APPEND_END, FLUSHED_OFFSET, MAX_PHY_OFFSET, SYNC_FLUSH_WANTED
from store.log_file import LogFile
from tests.broker.hot_path_world import Client, HotPathWorld, send_request


class Traced:
    """A world whose steps are noted as they happen."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.world = HotPathWorld(tmp_path, **options)
        self.world.topic()
        self.events: list[str] = []
        self.client: Client = self.world.client()
        write, send = LogFile.write, self.client.sock.send
        world = self.world

        def traced_write(file: LogFile, position: int, data: bytes) -> None:
            wanted = world.counters[SYNC_FLUSH_WANTED]
            assert world.counters[APPEND_END] > world.counters[MAX_PHY_OFFSET]
            self.events.append("bytes" if not world.waiters.active else f"bytes, wanted {wanted}")
            write(file, position, data)

        def traced_send(data: bytes) -> int:
            self.events.append("answer")
            return send(data)

        def published() -> None:
            self.events.append("publish")

        monkeypatch.setattr(LogFile, "write", traced_write)
        monkeypatch.setattr(self.client.sock, "send", traced_send)
        world.log._on_publish = published

    def take(self) -> list[str]:
        events, self.events = self.events, []
        return events


def test_asynchronous_modes_publish_before_they_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = Traced(tmp_path, monkeypatch)
    for _ in range(2):
        traced.client.send(send_request(), send_request())
        assert traced.take() == []
        traced.world.turn()
        assert traced.take() == ["bytes", "publish", "answer"]


def test_sync_flush_and_sync_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = Traced(tmp_path, monkeypatch, waits_for_flush=True, waits_for_replicas=True)
    world = traced.world
    world.counters[REPLICA_COUNT] = 1
    world.turn()
    for _ in range(2):
        traced.client.send(send_request())
        world.turn()
        end = world.counters[MAX_PHY_OFFSET]
        assert traced.take() == [f"bytes, wanted {end}", "publish"]
        world.counters[REPLICATED_OFFSET] = end
        world.turn()
        assert traced.take() == []
        world.counters[FLUSHED_OFFSET] = end
        world.turn()
        assert traced.take() == ["answer"]


@pytest.mark.parametrize("active", [False, True])
def test_the_controllers_end_of_turn_keeps_the_order(active: bool) -> None:
    """wanted -> append and publish -> count; the server's flush of answers is added later."""
    order: list[str] = []

    class Part:
        def __init__(self, *names: str) -> None:
            for name in names:
                setattr(self, name, lambda *_args, name=name: order.append(name))

    controller: Any = object.__new__(BrokerController)
    controller._waiters = type("Waiters", (), {"active": active})()
    controller._follower = Part("before_commit")
    controller._messages = Part("turn_end")
    controller._stats = Part("end_turn")
    controller._server = type("Server", (), {"turn_codes": []})()
    controller._clock = type("Clock", (), {"monotonic_ns": lambda self: 5})()
    controller.loop = type("Loop", (), {"now_ns": 3})()
    controller._turn_end()
    assert order == [*(["before_commit"] if active else []), "turn_end", "end_turn"]

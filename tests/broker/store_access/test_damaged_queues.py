"""DamagedQueues: what is reported reaches process `store` once, and again until it answers."""

from __future__ import annotations

from broker.store_access.damaged_queues import DamagedQueues
from ipc.command_channel import CommandError
from tests.broker.broker_fakes import FakeClock


class Commands:
    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, object]]] = []
        self.away = False

    def call(self, command: str, timeout_ms: int, **arguments: object) -> object:
        assert timeout_ms > 0
        if self.away:
            raise CommandError("store is away")
        self.calls.append((command, arguments))
        return {}


PLACE = ("rebuild_queue", {"topic": "T", "queue_id": 3, "queue_offset": 7})


def test_a_place_is_sent_once_a_second() -> None:
    commands, clock = Commands(), FakeClock()
    damaged = DamagedQueues(commands, clock)
    damaged.report("T", 3, 7)
    damaged.report("T", 3, 7)
    assert damaged.send_all()
    damaged.report("T", 3, 7)
    assert damaged.send_all()
    assert commands.calls == [PLACE]
    clock.advance(1_000)
    damaged.report("T", 3, 7)
    assert damaged.send_all()
    assert commands.calls == [PLACE, PLACE]


def test_it_is_sent_again_while_the_store_is_away() -> None:
    commands = Commands()
    damaged = DamagedQueues(commands, FakeClock())
    commands.away = True
    damaged.report("T", 3, 7)
    assert not damaged.send_all()
    commands.away = False
    assert damaged.send_all()
    assert commands.calls == [PLACE]

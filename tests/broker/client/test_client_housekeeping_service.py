"""broker.client.client_housekeeping_service: both tables follow closed and silent connections."""

from __future__ import annotations

from broker.client.client_channel_info import ClientChannelInfo
from broker.client.client_housekeeping_service import SCAN_PERIOD_MS, ClientHousekeepingService
from broker.client.connected_clients import ConnectedClients
from broker.client.consumer_manager import ConsumerManager, DefaultConsumerIdsChangeListener
from broker.client.known_heartbeats import KnownHeartbeat, KnownHeartbeats
from broker.client.producer_manager import CHANNEL_EXPIRED_MS, ProducerManager
from ipc.scheduled_executor import ScheduledExecutor
from tests.broker.broker_fakes import FakeClock, FakeConnection, FakeGroupFilters
from tests.broker.client.test_consumer_manager import data_of


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.producers = ProducerManager(self.clock)
        self.consumers = ConsumerManager(
            self.clock, DefaultConsumerIdsChangeListener(FakeGroupFilters())
        )
        self.heartbeats = KnownHeartbeats(self.consumers, self.producers)
        self.service = ClientHousekeepingService(
            ConnectedClients(self.producers, self.consumers, self.heartbeats)
        )

    def client(self) -> FakeConnection:
        connection = FakeConnection()
        now_ms = self.clock.now_ms()
        infos = [
            ClientChannelInfo(connection, "c", language=0, version=409, last_update_ms=now_ms)
            for _ in range(2)
        ]
        self.producers.register_producer("p", infos[0])
        self.consumers.register_consumer(data_of("g", "t"), infos[1], notify=True)
        return connection

    def is_empty(self) -> bool:
        return self.producers.find_group("p") is None and not self.consumers.has_group("g")


def test_close() -> None:
    world = World()
    connection = world.client()
    world.service.on_open(connection)
    assert not world.is_empty()
    world.heartbeats.note(connection, KnownHeartbeat(b"", (), (), "", lambda: True))
    assert len(world.heartbeats) == 1
    world.service.on_close(connection, "peer closed")
    assert world.is_empty()
    assert len(world.heartbeats) == 0


def test_scan_each_10_s() -> None:
    world = World()
    connection = world.client()
    executor = ScheduledExecutor(world.clock)
    world.service.schedule_on(executor)
    for _ in range(CHANNEL_EXPIRED_MS // SCAN_PERIOD_MS):
        world.clock.advance(SCAN_PERIOD_MS)
        assert executor.run_due() == 1
        assert connection.is_open
    world.clock.advance(SCAN_PERIOD_MS)
    assert executor.run_due() == 1
    assert not connection.is_open
    assert world.is_empty()


def test_a_clock_that_jumps_expires_nobody() -> None:
    world = World()
    connection = world.client()
    for days in (30, -30):
        world.clock.now += days * 24 * 3_600_000
        world.service.scan()
        assert connection.is_open
    assert not world.is_empty()

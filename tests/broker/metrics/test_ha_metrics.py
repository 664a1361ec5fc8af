"""ha_metrics: replication in real metric slots, over restarts of `ha` and of the broker."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.metrics import metrics_table as table
from broker.metrics.dump_marks import DumpMarks
from broker.metrics.ha_metrics import OBSERVE_MS, HaMetrics
from ha.exposure_marks import ExposureMarks
from ha.group_transfer_service import GroupTransferService
from ha.ha_client_info import HAClientInfo
from ha.ha_config import HaConfig
from ha.ha_observer import NAMING_MS, HaObserver
from ha.refusals import RefusalReason
from ha.replica_memory import FILE_NAME, ReplicaMemory
from ha.replica_registry import REMEMBER_MS, ReplicaRegistry
from ha.slave_progress import SlaveProgress
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots, MetricSlotsReader, create_metric_slots
from remoting.metrics.metric import Metric
from store.commit_log_reader import CommitLogReader
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from tests.ha.client_info import client_info
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock
from tests.support.plain_log import FILE_SIZE, PlainLog
from tests.support.shared_memory import close_page, fresh_page

INTERVAL_MS = 5_000
ROLE = "SYNC_MASTER"


def _no_sleep(interval_ms: float) -> bool:
    return interval_ms == OBSERVE_MS


class World:
    """Process `ha` of broker b in pieces, its slots, and the supervisor's reader of them."""

    def __init__(self, root: Path, *, is_slave: bool = False) -> None:
        self.root = root
        self.clock = ManualClock(monotonic_ms=50_000)
        self.log = PlainLog(root / "commitlog")
        self.client = client_info(received=0) if is_slave else None
        self.handshakes: dict[RefusalReason, int] = {}
        self.max_series = 10_000
        self._ports = itertools.count(1)
        self._fds: list[int] = []
        self.start_broker()

    # -- lives ---------------------------------------------------------------------------------

    def start_broker(self, *, recovers_ms: int = 0) -> None:
        """New shared memory, and a process `ha` as soon as the store has recovered."""
        fd = create_metric_slots()
        self._fds.append(fd)
        self.broker_started_ms = self.clock.monotonic_ms()
        self.clock.advance(recovers_ms)
        self.reader = MetricSlotsReader(fd)
        self.page = fresh_page()
        self.start_ha()

    def start_ha(self) -> None:
        """As broker/processes/ha.py does; nobody is connected."""
        clock, page = self.clock, self.page
        page.counters[MAX_PHY_OFFSET] = self.log.end
        self.slots = MetricSlots(self._fds[-1], ProcessIndex.HA, max_series=self.max_series)
        self.registry = ReplicaRegistry(clock)
        config = HaConfig(ha_slave_fallbehind_max=1 << 20)
        marks = ExposureMarks()
        self.service = GroupTransferService(page, config, clock, self.registry, marks, lambda: None)
        client = self.client
        observer = HaObserver(
            page,
            clock,
            self.registry,
            marks,
            CommitLogReader(self.log.directory, FILE_SIZE, page),
            lambda: self.handshakes,
            lambda: None,
            None if client is None else self._client_info,
        )
        self.memory = ReplicaMemory(self.root / FILE_NAME, clock)
        self.metrics = HaMetrics(
            self.slots,
            observer.observe,
            None if client is not None else self.memory,
            broker_name="b",
            role=ROLE,
            marks=None if client is not None else DumpMarks(self.slots, INTERVAL_MS),
        )
        self.metrics.restore(
            self.registry,
            clock,
            page.counters[MIN_PHY_OFFSET],
            page.counters[MAX_PHY_OFFSET],
            broker_started_ms=self.broker_started_ms,
        )
        self.handshakes = {}

    def _client_info(self) -> HAClientInfo:
        assert self.client is not None
        return self.client

    def stop_broker(self) -> None:
        """In an orderly way: connections have ended, metrics and memory say their last words."""
        for progress in self.registry.live():
            self.leave(progress)
        self.metrics.finish()
        self.memory.finish()

    def kill_broker(self, *, away_ms: int, recovers_ms: int = 0) -> None:
        """It is killed, and started again after `away_ms`."""
        self.clock.advance(away_ms)
        self.start_broker(recovers_ms=recovers_ms)

    # -- what happens --------------------------------------------------------------------------

    def connect(self, broker_id: int, ack: int | None = None, *, sent: int = 0) -> SlaveProgress:
        """Slave b:<broker_id>, which says who it is."""
        remote = f"10.0.0.{broker_id}:{next(self._ports)}"
        self.registry.announce(remote, "b", broker_id)
        return self.connect_from(remote, ack, sent=sent)

    def connect_from(self, remote: str, ack: int | None = None, *, sent: int = 0) -> SlaveProgress:
        ack = self.log.end if ack is None else ack
        wall_ms = self.clock.now_ms()
        progress = SlaveProgress(
            remote, ack, ack, now_ms=self.clock.monotonic_ms(), wall_ms=wall_ms
        )
        progress.sent(self.log.end, 0, self.clock.monotonic_ms())
        progress.transferred = sent
        self.service.add(progress)
        return progress

    def leave(self, progress: SlaveProgress, reason: RefusalReason | None = None) -> None:
        self.service.remove(progress, reason, "gone")

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            self.log.append(b"x" * 200, store_timestamp=self.clock.now_ms())
        self.page.counters[MAX_PHY_OFFSET] = self.log.end

    def ack(self, progress: SlaveProgress) -> None:
        """It gets all there is and says so."""
        progress.sent(self.log.end, 0, self.clock.monotonic_ms())
        assert progress.report(self.log.end) is None

    def look(self, ms: int = 200) -> None:
        """Time passes, five looks a second."""
        self.metrics.wait_for_running = _no_sleep  # type: ignore[method-assign]
        for _ in range(ms // 200):
            self.clock.advance(200)
            self.service.evaluate()
            self.metrics.step()

    # -- what is seen --------------------------------------------------------------------------

    def value(self, metric: Metric, *labels: str) -> float | None:
        """None: there is no such series."""
        found = dict(self.reader.read(metric.name)).get(labels)
        return None if found is None else found[0]

    def of(self, replica: str, metric: Metric) -> float | None:
        return self.value(metric, replica, ROLE)

    def seconds(self, replica: str) -> tuple[float | None, ...]:
        """In sync, catching up, disconnected."""
        states = ("in_sync", "catching_up", "disconnected")
        return tuple(self.value(table.HA_STATE_SECONDS, replica, state) for state in states)

    def exposure(self) -> tuple[float | None, float | None]:
        """What no replica has, in bytes, and whether that is exact."""
        return self.value(table.HA_UNREPLICATED_BYTES), self.value(table.HA_UNREPLICATED_EXACT)

    def lag(self, replica: str) -> tuple[float | None, float | None]:
        """In bytes, and whether that is exact."""
        return self.of(replica, table.HA_REPLICA_LAG_BYTES), self.of(
            replica, table.HA_REPLICA_LAG_EXACT
        )

    def replicas(self) -> set[str]:
        return {labels[0] for labels, _ in self.reader.read(table.HA_REPLICA_CONNECTED.name)}

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        close_page(self.page)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.write(20)
    yield world
    world.close()


def test_a_master_without_replicas_looks_less_often(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr(world.metrics, "wait_for_running", rests.append)
    world.metrics.step()
    world.connect(1, sent=500)
    world.metrics.step()
    assert rests == [1_000, OBSERVE_MS]


def test_a_replica_that_follows(world: World) -> None:
    progress = world.connect(1, sent=500)
    world.look(1000)
    end = float(world.log.end)
    assert world.replicas() == {"b:1"}
    assert world.of("b:1", table.HA_REPLICA_CONNECTED) == 1
    assert world.of("b:1", table.HA_REPLICA_IN_SYNC) == 1
    assert world.of("b:1", table.HA_REPLICA_LEFT) == 0
    assert world.of("b:1", table.HA_REPLICA_LAG_BYTES) == 0
    assert world.of("b:1", table.HA_REPLICA_LAG_SECONDS) == 0
    assert world.of("b:1", table.HA_REPLICA_LAG_EXACT) == 1
    assert world.of("b:1", table.HA_ACK_OFFSET) == end
    assert world.of("b:1", table.HA_TRANSFERRED) == 500
    assert world.of("b:1", table.HA_RECONNECTS) == 0
    assert world.value(table.HA_REJECTED_ACKS, "b:1", "decreasing") == 0
    assert world.seconds("b:1") == (0.8, 0.2, 0)
    assert world.value(table.HA_MASTER_MAX_OFFSET) == end
    assert world.value(table.HA_UNREPLICATED_BYTES) == 0
    assert world.value(table.HA_OBSERVED_MS) == world.clock.monotonic_ms()
    world.write()
    progress.transferred += 7
    world.look(600)
    assert world.of("b:1", table.HA_REPLICA_LAG_BYTES) == world.log.end - end
    assert world.of("b:1", table.HA_REPLICA_LAG_SECONDS) == 0.6
    assert world.value(table.HA_UNREPLICATED_BYTES) == world.log.end - end
    assert world.value(table.HA_OLDEST_UNREPLICATED) == 0.6
    assert world.of("b:1", table.HA_TRANSFERRED) == 507


def test_a_replica_that_leaves_is_missed(world: World) -> None:
    progress = world.connect(1)
    world.look(1000)
    world.leave(progress, RefusalReason.BEYOND_SENT)
    left_ms = world.clock.now_ms()
    world.write()
    world.look(3000)
    assert world.of("b:1", table.HA_REPLICA_CONNECTED) == 0
    assert world.of("b:1", table.HA_REPLICA_IN_SYNC) == 0
    assert world.of("b:1", table.HA_REPLICA_LEFT) == left_ms / 1000
    assert world.of("b:1", table.HA_REPLICA_LAG_SECONDS) == 3
    assert world.value(table.HA_REJECTED_ACKS, "b:1", "beyond_sent") == 1
    assert world.seconds("b:1") == (1.0, 0.2, 2.8)
    world.connect(1)
    world.look(200)
    assert world.of("b:1", table.HA_REPLICA_CONNECTED) == 1
    assert world.of("b:1", table.HA_REPLICA_LEFT) == 0
    assert world.of("b:1", table.HA_RECONNECTS) == 1


def test_after_a_day_it_is_forgotten_and_begins_at_zero_again(world: World) -> None:
    world.leave(world.connect(1, sent=500))
    world.look(200)
    world.clock.advance(REMEMBER_MS)
    world.look(200)
    assert world.replicas() == set()
    assert world.seconds("b:1") == (None, None, None)
    assert world.value(table.HA_REJECTED_ACKS, "b:1", "negative") is None
    world.connect(1, sent=3)
    world.look(200)
    assert world.of("b:1", table.HA_TRANSFERRED) == 3
    assert world.of("b:1", table.HA_RECONNECTS) == 0
    assert world.seconds("b:1") == (0, 0.2, 0)


def test_an_ip_that_gets_a_name_is_no_replica_any_more(world: World) -> None:
    world.connect_from("10.0.0.9:1", sent=40)
    world.look(NAMING_MS)
    assert world.replicas() == {"10.0.0.9"}
    world.registry.announce("10.0.0.9:1", "b", 4)
    world.look(200)
    assert world.replicas() == {"b:4"}
    assert world.seconds("10.0.0.9") == (None, None, None)
    assert world.of("b:4", table.HA_TRANSFERRED) == 40
    assert sum(s or 0 for s in world.seconds("b:4")) == NAMING_MS / 1000 + 0.2


class TestAnotherProcess:
    def test_counters_go_on_and_the_time_between_is_disconnected(self, world: World) -> None:
        world.leave(world.connect(1, sent=500), RefusalReason.DECREASING)
        world.connect(1, sent=20)
        world.look(2000)
        lost_ms = world.clock.now_ms()
        world.clock.advance(1000)  # Shorter than a gap: but nobody can be connected meanwhile.
        world.write()
        world.start_ha()
        assert world.of("b:1", table.HA_REPLICA_CONNECTED) == 0, "it looks before it serves"
        world.look(200)
        assert world.replicas() == {"b:1"}
        assert world.of("b:1", table.HA_REPLICA_CONNECTED) == 0
        assert world.of("b:1", table.HA_REPLICA_LEFT) == lost_ms / 1000
        assert (world.of("b:1", table.HA_REPLICA_LAG_BYTES) or 0) > 200
        assert world.of("b:1", table.HA_REPLICA_LAG_SECONDS) == 0.2
        assert world.seconds("b:1") == (1.8, 0.2, 1.2)
        world.connect(1, sent=3)
        world.look(400)
        assert world.of("b:1", table.HA_REPLICA_CONNECTED) == 1
        assert world.of("b:1", table.HA_TRANSFERRED) == 523
        assert world.of("b:1", table.HA_RECONNECTS) == 2
        assert world.value(table.HA_REJECTED_ACKS, "b:1", "decreasing") == 1
        assert sum(s or 0 for s in world.seconds("b:1")) == pytest.approx(3.6)

    def test_all_of_its_time_is_there_after_many_of_them(self, world: World) -> None:
        world.connect(1)
        for number in range(5):
            world.look(400)
            world.clock.advance(100 + 1500 * number)
            world.start_ha()
            world.look(200)
            world.connect(1)
        elapsed_s = (world.clock.monotonic_ms() - 50_000) / 1000
        assert sum(s or 0 for s in world.seconds("b:1")) == pytest.approx(elapsed_s)
        assert world.of("b:1", table.HA_RECONNECTS) == 4

    def test_an_ip_is_missed_too_and_forgotten_in_time(self, world: World) -> None:
        progress = world.connect_from("10.0.0.9:1")
        world.look(NAMING_MS)
        world.leave(progress)
        world.look(200)
        left_s = world.of("10.0.0.9", table.HA_REPLICA_LEFT)
        assert left_s
        for _ in range(3):
            world.clock.advance(REMEMBER_MS // 4)
            world.start_ha()
            world.look(200)
            assert world.of("10.0.0.9", table.HA_REPLICA_LEFT) == left_s
        world.clock.advance(REMEMBER_MS // 4)
        world.start_ha()
        world.look(200)
        assert world.replicas() == set()

    def test_what_the_file_knows_of_it_is_kept(self, world: World) -> None:
        world.connect(1)
        connected_ms = world.clock.now_ms()
        world.look(200)
        world.memory.step()
        world.start_ha()
        [replica] = world.registry.replicas()
        assert replica.remote == "10.0.0.1:1"
        assert replica.connected_since_ms == connected_ms

    def test_an_empty_slave_lacks_what_the_log_has(self, world: World) -> None:
        world.page.counters[MIN_PHY_OFFSET] = FILE_SIZE
        world.connect(1, 0)
        world.look(200)
        world.start_ha()
        world.look(200)
        assert world.of("b:1", table.HA_REPLICA_LAG_BYTES) == world.log.end - FILE_SIZE

    def test_refusals_and_received_bytes_go_on(self, tmp_path: Path) -> None:
        world = World(tmp_path, is_slave=True)
        assert world.client is not None
        for handshakes, received in ((2, 100), (1, 50)):
            world.handshakes = {RefusalReason.TLS: handshakes}
            world.client = replace(world.client, received=received)
            world.look(400)
            world.start_ha()
        assert world.value(table.HA_REJECTED_HANDSHAKES, "tls") == 3
        assert world.value(table.HA_REJECTED_HANDSHAKES, "unknown_peer") == 0
        assert world.value(table.HA_CLIENT_RECEIVED) == 150
        world.close()

    def test_what_found_no_room_is_no_replica(self, world: World) -> None:
        world.max_series = 1
        world.start_ha()
        world.connect(1)
        world.connect(2)
        world.look(200)
        assert world.replicas() == {"b:1", "__overflow__"}
        world.start_ha()
        assert [replica.id for replica in world.registry.replicas()] == ["b:1"]


class TestAnotherBroker:
    def test_a_named_replica_is_missed_from_the_start(self, world: World) -> None:
        world.leave(world.connect(1, sent=500), RefusalReason.DECREASING)
        left_ms = world.clock.now_ms()
        world.connect(2)
        world.connect_from("10.0.0.9:1")
        world.look(NAMING_MS)
        assert world.replicas() == {"b:1", "b:2", "10.0.0.9"}
        world.memory.step()
        written_ms = world.clock.now_ms()
        world.write()
        world.kill_broker(away_ms=60_000)
        world.look(1000)
        assert world.replicas() == {"b:1", "b:2"}
        assert world.of("b:1", table.HA_REPLICA_LEFT) == left_ms / 1000
        assert world.of("b:2", table.HA_REPLICA_LEFT) == written_ms / 1000
        assert world.of("b:2", table.HA_REPLICA_CONNECTED) == 0
        assert world.of("b:2", table.HA_REPLICA_LAG_SECONDS) == 61
        assert world.seconds("b:1") == (0, 0, 1.0), "all counters begin at zero"
        assert world.of("b:1", table.HA_TRANSFERRED) == 0
        world.connect(1)
        world.look(200)
        assert world.of("b:1", table.HA_RECONNECTS) == 0, "its first connection in this life"

    def test_the_time_of_the_recovery_is_disconnected(self, world: World) -> None:
        world.connect(1)
        world.look(1000)
        world.memory.step()
        world.kill_broker(away_ms=60_000, recovers_ms=600_000)
        world.look(200)
        assert world.seconds("b:1") == (0, 0, 600.2)
        world.connect(1)
        world.look(200)
        world.start_ha()
        world.look(200)
        assert sum(s or 0 for s in world.seconds("b:1")) == pytest.approx(600.6)

    def test_who_left_too_long_ago_is_not(self, world: World) -> None:
        world.leave(world.connect(1))
        world.look(200)
        world.memory.step()
        world.kill_broker(away_ms=REMEMBER_MS)
        world.look(200)
        assert world.replicas() == set()

    def test_replicas_of_another_group_are_not(self, world: World) -> None:
        world.registry.announce("10.0.0.1:1", "other", 1)
        world.connect_from("10.0.0.1:1")
        world.look(200)
        assert world.replicas() == {"other:1"}
        world.memory.finish()
        world.kill_broker(away_ms=1000)
        world.look(200)
        assert world.replicas() == set()

    def test_a_file_that_is_broken_is_no_reason_to_stop(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        (world.root / FILE_NAME).write_bytes(b"{")
        world.kill_broker(away_ms=1000)
        world.connect(1)
        world.look(200)
        assert world.replicas() == {"b:1"}
        assert FILE_NAME in caplog.text


class TestWhatIsRemembered:
    """Positions of another life are lower bounds, unless nothing can have come after them."""

    def test_after_a_kill_the_lag_is_a_bound_until_the_slave_reports(self, world: World) -> None:
        slave = world.connect(1)
        world.look(200)
        world.memory.step()
        written = world.log.end
        world.write(10)
        world.ack(slave)
        held = world.log.end
        world.look(1000)
        world.kill_broker(away_ms=1000)
        world.write()
        world.look(200)
        assert world.lag("b:1") == (world.log.end - written, 0)
        assert world.exposure() == (world.log.end - written, 0)
        world.connect(1, held)
        world.look(200)
        assert world.lag("b:1") == (world.log.end - held, 1)
        assert world.exposure() == (world.log.end - held, 1)

    def test_after_an_orderly_stop_it_is_exact(self, world: World) -> None:
        slave = world.connect(1)
        world.look(200)
        world.memory.step()
        world.write(10)
        world.ack(slave)
        held = world.log.end
        world.stop_broker()
        world.kill_broker(away_ms=1000)
        world.write()
        world.look(200)
        assert world.lag("b:1") == (world.log.end - held, 1)
        assert world.exposure() == (world.log.end - held, 1)

    def test_but_not_for_the_life_after_the_next_one(self, world: World) -> None:
        """The file of the orderly stop is still there when a life is killed that wrote none."""
        world.connect(1)
        world.look(200)
        world.stop_broker()
        world.kill_broker(away_ms=1000)
        slave = world.connect(1)
        world.write(10)
        world.ack(slave)
        world.look(200)
        world.kill_broker(away_ms=1000)
        world.write()
        world.look(200)
        assert world.lag("b:1")[1] == world.exposure()[1] == 0

    def test_a_bound_stays_one_over_an_orderly_stop(self, world: World) -> None:
        world.connect(1)
        world.look(200)
        world.memory.step()
        held = world.log.end
        world.write(2)
        world.kill_broker(away_ms=1000)
        world.look(200)
        world.stop_broker()
        world.kill_broker(away_ms=1000)
        world.look(200)
        assert world.lag("b:1") == (world.log.end - held, 0)

    def test_a_stop_that_did_not_end_a_connection(self, world: World) -> None:
        slave = world.connect(1)
        world.write()
        world.metrics.finish()
        world.memory.finish()
        world.ack(slave)
        world.kill_broker(away_ms=1000)
        world.write()
        world.look(200)
        assert world.lag("b:1")[1] == 0

    def test_another_process_ha_knows_a_bound_too(self, world: World) -> None:
        slave = world.connect(1)
        world.look(200)
        held = world.log.end
        world.write(3)
        world.ack(slave)  # Nobody looks any more.
        world.start_ha()
        world.look(200)
        assert world.lag("b:1") == (world.log.end - held, 0)
        assert world.exposure() == (world.log.end - held, 0)

    def test_nobody_got_what_was_written_later(self, world: World) -> None:
        """So a replica that is further makes the exposure exact again."""
        world.connect(1)
        world.look(200)
        world.memory.step()
        world.write(5)
        world.kill_broker(away_ms=1000)
        world.look(200)
        assert world.exposure()[1] == 0
        world.connect(2)
        world.look(200)
        assert world.exposure() == (0, 1)
        world.write()
        world.look(200)
        assert world.exposure() == (world.log.end - world.log.records[-1][0], 1)
        assert world.lag("b:1")[1] == 0, "of that one nothing more is known"

    def test_who_has_all_has_all(self, world: World) -> None:
        world.connect(1)
        world.look(200)
        world.memory.step()
        world.kill_broker(away_ms=1000)
        world.look(200)
        assert world.lag("b:1") == (0, 1)
        assert world.exposure() == (0, 1)


def test_a_slave_s_own_end(tmp_path: Path) -> None:
    world = World(tmp_path, is_slave=True)
    assert world.client is not None
    world.client = replace(world.client, received=4000)
    world.look(200)
    assert world.value(table.HA_CLIENT_CONNECTED) == 1
    assert world.value(table.HA_CLIENT_RECEIVED) == 4000
    assert world.value(table.HA_UNREPLICATED_BYTES) == 0
    world.client = replace(world.client, local_address=None)
    world.look(200)
    assert world.value(table.HA_CLIENT_CONNECTED) == 0
    world.connect(7)
    world.look(200)
    assert world.replicas() == {"b:7"}, "somebody may follow it"
    world.memory.finish()
    assert not (world.root / FILE_NAME).exists(), "but it is not its replica"
    world.close()


def test_a_master_has_no_end_of_its_own(world: World) -> None:
    world.look(200)
    assert world.value(table.HA_CLIENT_CONNECTED) is None
    assert world.value(table.HA_CLIENT_RECEIVED) is None


def test_its_thread_looks_and_says_the_last_word(world: World) -> None:
    progress = world.connect(1)
    world.metrics.start()
    wait_until(lambda: world.of("b:1", table.HA_REPLICA_CONNECTED) == 1)
    world.leave(progress)
    assert world.metrics.shutdown()
    assert world.metrics.failure is None
    assert world.of("b:1", table.HA_REPLICA_CONNECTED) == 0

"""Replication of process remoting, wired: who may name our master, and what an inspection stops."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.broker_outer_api import BrokerIdentity
from broker.broker_startup import StartupOptions
from broker.command_channel import CommandServer, create_channel
from broker.replication import Replication, SharedParts
from broker.slave_synchronize import SyncKind
from ha.inspection import Inspection, Verdict
from store.clock import SystemClock
from tests.support.shared_memory import close_page, fresh_page

OWN = "10.0.0.2:10911"


class World:
    """A slave; the channel's other end keeps what process ha was told."""

    def __init__(self, root: Path, **settings: str) -> None:
        self.page = fresh_page()
        self.told: list[Any] = []
        asking, self.answering = create_channel()
        self.spare = create_channel()
        values = {"brokerRole": "SLAVE", "brokerId": "1", "storePathRootDir": str(root), **settings}
        shared = SharedParts(
            options=StartupOptions.from_settings(values),
            identity=BrokerIdentity(
                cluster_name="C",
                broker_name="b",
                broker_id=1,
                broker_addr=OWN,
                ha_server_addr="10.0.0.2:10912",
            ),
            page=self.page,
            clock=SystemClock(),
            table=SimpleNamespace(),  # type: ignore[arg-type]
            access=SimpleNamespace(delete_topic_queues=None),  # type: ignore[arg-type]
            client=SimpleNamespace(invoke_async=lambda *_: None),  # type: ignore[arg-type]
            api=SimpleNamespace(get_broker_cluster_info=list),  # type: ignore[arg-type]
            topics=None,  # type: ignore[arg-type]
            groups=None,  # type: ignore[arg-type]
            offsets=None,  # type: ignore[arg-type]
            schedule_offsets=None,  # type: ignore[arg-type]
            on_failure=lambda _service, _error: None,
        )
        self.replication = Replication(shared, AnsweringEnd(asking, self), self.spare[1])

    def serve(self) -> None:
        """Process ha answers what waits."""
        handlers = {"master_address": lambda arguments: self.told.append(arguments) or {}}
        CommandServer(self.answering, handlers, SystemClock()).step()

    def close(self) -> None:
        close_page(self.page)


class AnsweringEnd:
    """The asking socket; a request is answered before the asker waits."""

    def __init__(self, sock: socket.socket, world: World) -> None:
        self._sock, self._world = sock, world

    def send(self, packet: bytes) -> int:
        size = self._sock.send(packet)
        self._world.serve()
        return size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def tell(world: World, remote: str, ha: str, master: str | None) -> None:
    world.replication._told_by_peer(remote, ha, master)


def test_a_new_ha_address_reaches_process_ha_once(world: World) -> None:
    for ha in ("10.0.0.1:10912", "10.0.0.1:10912", None, "10.0.0.3:10912"):
        world.replication.on_master("10.0.0.1:10911", ha)
    assert [told["ha_address"] for told in world.told] == ["10.0.0.1:10912", "10.0.0.3:10912"]


def test_only_a_trusted_peer_may_name_our_master(world: World) -> None:
    tell(world, "192.0.2.66:4711", "192.0.2.66:10912", "192.0.2.66:10911")
    assert world.told == []
    tell(world, "127.0.0.1:4711", "10.0.0.1:10912", "10.0.0.1:10911")
    assert [told["ha_address"] for told in world.told] == ["10.0.0.1:10912"]


def test_a_fixed_master_stays(tmp_path: Path) -> None:
    world = World(tmp_path, haMasterAddress="10.0.0.9:10912")
    tell(world, "127.0.0.1:4711", "10.0.0.1:10912", "10.0.0.1:10911")
    world.replication.on_master("10.0.0.1:10911", "10.0.0.1:10912")
    assert world.told == []
    world.close()


def test_logs_that_differ_keep_the_tables_apart(world: World) -> None:
    synchronize = world.replication._synchronize
    world.replication._inspected(Inspection(verdict=Verdict.AHEAD, text="90 bytes"))
    synchronize.set_master_address("10.0.0.1:10911")
    synchronize.sync_all()
    assert "90 bytes" in str(synchronize.status()[SyncKind.TOPICS].last_error)
    world.replication._inspected(Inspection(verdict=Verdict.GO, text=""))
    assert synchronize._objection is None

"""Process `remoting`, in this process and without threads: every request code, over real files.

A BrokerController of real parts, as broker/wiring puts it together; what process `store` does is
stepped by hand, pools run what they are given at once, and the clock stands still.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from broker.broker_controller import BrokerController
from broker.processes.store import _handlers
from broker.settings.changed_settings import ChangedSettings
from broker.settings.startup_options import StartupOptions
from broker.wiring import server as server_wiring
from broker.wiring.hot_routes import BinaryRoutes, HotRoutes, JsonRoutes
from broker.wiring.process_resources import ProcessResources
from ipc.bell import Bell
from ipc.command_channel import CommandServer, create_channel
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots, create_metric_slots
from ipc.queue_table import create_queue_table
from remoting.remoting_server import Run
from remoting.signature import RequestSigner
from store.control_slots import ALLOCATED_END, MAX_PHY_OFFSET
from store.default_message_store import DefaultMessageStore
from store.errors import StoreError
from store.store_progress import StoreBells
from tests.broker.auth.test_auth_config import ACLS, USERS
from tests.fuzz.served_connection import ServedConnection, call_at_once, serve_at_once
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import close_page, fresh_page

FILE_SIZE = 1 << 20
SIGNERS = {
    "application": RequestSigner("application", "application-secret"),
    "member": RequestSigner("membership", "member-secret"),
    "operator": RequestSigner("operator", "operator-secret"),
}
"""Of the accounts of `accounts_of`; the operator is an administrator."""
USERS_ON = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": USERS,
    "initAuthenticationUser": '{"username":"operator","password":"operator-secret"}',
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": ACLS,
}
"""Settings of a broker with users and access control lists of 5.x, and their operator."""


def accounts_of(topic_perms: str, group_perms: str) -> str:
    """plain_acl.yml of 4.9: an application with these permissions, a member of the group, and an
    operator."""
    return f"""
accounts:
- accessKey: application
  secretKey: application-secret
  topicPerms: [{topic_perms}]
  groupPerms: [{group_perms}]
- accessKey: membership
  secretKey: member-secret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
- accessKey: operator
  secretKey: operator-secret
  admin: true
"""


class GeneralPath(HotRoutes):
    """No request is served from its bytes."""

    def guarded(self) -> JsonRoutes:
        return ()

    def unguarded(self) -> JsonRoutes:
        return ()

    def binary(self) -> BinaryRoutes:
        return ()

    def runs(self) -> tuple[Run, ...]:
        return ()


class _AnsweringEnd:
    """The asking end of a channel; what is asked is answered before the asker waits."""

    def __init__(self, sock: socket.socket, serve: Any) -> None:
        self._sock, self._serve = sock, serve

    def send(self, packet: bytes) -> int:
        size = self._sock.send(packet)
        self._serve()
        return size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class ServedBroker:
    """See the module. Owned by: the caller's thread."""

    def __init__(
        self,
        root: Path,
        settings: Mapping[str, str],
        *,
        file_size: int = FILE_SIZE,
        hot: bool = True,
        ha_commands: Mapping[str, Any] | None = None,
    ) -> None:
        """settings: beside those that every such broker has. hot: false serves every request on
        the general path. ha_commands: what process `ha` answers."""
        self._ha_commands = dict(ha_commands or {})
        self._file_size = file_size
        self.clock = ManualClock()
        self._options = StartupOptions.from_settings(
            {
                "storePathRootDir": str(root),
                "brokerIP1": "127.0.0.1",
                "listenPort": "10911",
                "namesrvAddr": "",
                "rocketmqHome": str(root),
                "enablePropertyFilter": "true",
                "mappedFileSizeCommitLog": str(file_size),
                "mappedFileSizeConsumeQueue": "20000",
                "maxHashSlotNum": "1000",
                "maxIndexNum": "4000",
                "diskMaxUsedSpaceRatio": "99",
                **settings,
            }
        )
        self.page = fresh_page()
        self._fds = [create_queue_table(), create_metric_slots(), ChangedSettings.create()]
        self._channels: list[socket.socket] = []
        self._open_store()
        routes = HotRoutes if hot else GeneralPath
        with mock.patch.object(server_wiring, "HotRoutes", routes):
            self._open_broker(root)

    # -- construction --------------------------------------------------------------------------

    def _open_store(self) -> None:
        names = {"store": ProcessIndex.STORE, "remoting": ProcessIndex.REMOTING}
        names["ha"] = ProcessIndex.HA
        self._bells = {name: Bell(self.page, i, Bell.create()) for name, i in names.items()}
        self._store = DefaultMessageStore(
            self._options.store,
            self.page,
            self._fds[0],
            StoreBells(self._bells["store"], lambda: None),
            self.clock,
            _fail,
        )
        self._store.open()
        self._allocate()

    def _open_broker(self, root: Path) -> None:
        ours: dict[str, Any] = {}
        handlers: dict[str, Any] = {
            "remoting->store": _handlers(self._options, self._store, self.clock),  # type: ignore[arg-type]
            "remoting->ha": self._ha_commands,
            "remoting<-ha": {},
        }
        for name, commands in handlers.items():
            asking, answering = create_channel()
            self._channels += [asking, answering]
            server = CommandServer(answering, commands, self.clock, refusals=(StoreError,))

            def serve(server: CommandServer = server) -> None:
                self.dispatch()
                server.step()

            ours[name] = _AnsweringEnd(asking, serve)
        lent, owner = create_channel()
        self._channels += [lent, owner]
        ours["remoting<-lent"] = lent
        resources = ProcessResources(
            options=self._options,
            page=self.page,
            queue_table_fd=self._fds[0],
            bells=self._bells,
            channels=ours,
            clock=self.clock,
            metric_slots=MetricSlots(self._fds[1], ProcessIndex.REMOTING),
            metrics_fd=self._fds[1],
            config_file=root / "broker.conf",
            changed=ChangedSettings(self._fds[2]),
            on_failure=lambda service, error: pytest.fail(f"{service.name}: {error}"),
        )
        # brokerIP1 is an address in every world; asked for one of IPv6, the resolver refuses it.
        with mock.patch.object(socket, "gethostbyname", str):
            self.controller = BrokerController(resources)
        calls = call_at_once(self.controller.loop)
        (root / "broker.conf").write_text("brokerName=broker-a\n")
        controller = self.controller
        controller.load_tables()
        tables = controller._tables
        for manager in (*tables._managers, tables.schedule_offsets):
            manager.save_in_background(lambda _name, _save: None)
        controller._tables.restore_lost(self._options.store.consume_queue_path)
        controller._access_control.open(controller._executor)
        if not self._options.store.is_slave:
            controller._store.open_log()
        new_topics = controller._messages.new_topics
        new_topics._start, new_topics._register = lambda run: run(), lambda _topics: None
        self._server = controller._server
        serve_at_once(self._server)
        self.hooks = controller.sleep_hooks()
        controller._messages.end_transaction._halves.known.set()
        calls.end_turn = self._end_turn
        self._calls = calls

    def connect(self, host: str = "127.0.0.1", port: int = 0) -> ServedConnection:
        """A new peer; port 0: any that nobody has."""
        return ServedConnection(self._server, self.controller.loop, host, port)

    # -- the other processes -------------------------------------------------------------------

    def _allocate(self) -> None:
        counters = self.page.counters
        wanted = (counters[MAX_PHY_OFFSET] // self._file_size + 2) * self._file_size
        for _ in range(6):
            if counters[ALLOCATED_END] >= wanted:
                return
            self._store._allocate.step()

    def dispatch(self) -> None:
        """What process `store` does with what was appended."""
        self.controller._turn_end()
        while self._store._dispatch.dispatch_once():
            pass
        self._allocate()

    def _end_turn(self) -> None:
        self.dispatch()
        self.hooks.before_sleep()
        self.hooks.after_sleep()

    def turn(self) -> None:
        """The end of a turn of the loop, the store's work, and the start of the next."""
        self._calls.call_others()
        self._end_turn()
        self.controller._turn_end()
        self._server.flush()

    def close(self) -> None:
        """Not orderly: the directory goes."""
        controller = self.controller
        controller._messages.stop_checks()
        controller._server.shutdown()
        with contextlib.suppress(Exception):
            controller._store.log.close()
        controller.loop.close()
        self._store._derived.close()
        self._store._flush._flusher.close()
        self._store._allocate._stop_preparing()
        self._store._derived.source.close()
        for channel in self._channels:
            channel.close()
        for bell in self._bells.values():
            os.close(bell.event_fd)
        for fd in self._fds:
            os.close(fd)
        with contextlib.suppress(Exception):
            close_page(self.page)


def _fail(service: Any, error: Exception) -> None:
    raise AssertionError(f"service {service.name}: {error}") from error

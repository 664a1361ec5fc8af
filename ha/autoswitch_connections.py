"""AutoSwitchConnections: the slaves that this broker serves while it leads, and who is let in.

Any thread; its lock guards the list. AcceptSocketService calls `admit` with a slave's handshake;
who does not lead serves nobody. A slave becomes a replica (ReplicaRegistry) with its first report,
under the id that it named. Corresponds to AutoSwitchHAService of RocketMQ. It knows no
SyncStateSet.

Tested by tests/ha/test_autoswitch_wire.py.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Final

from ha.accept_socket_service import Objection
from ha.autoswitch_connection import AcceptedSlave, AutoSwitchConnection, Leadership
from ha.autoswitch_frame import (
    SLAVE_HANDSHAKE_SIZE,
    AutoSwitchFrameError,
    FramesOfSlave,
    SlaveHandshakeFrame,
)
from ha.checked_carriage import SEAL_SIZE, SlaveBytes
from ha.flow_monitor import FlowMonitor
from ha.group_transfer_service import GroupTransferService
from ha.ha_environment import HaEnvironment
from ha.handshake import HandshakeError, SlaveHello
from ha.member_events import MemberEvents
from ha.refusal_log import RefusalLog
from ha.refusals import RefusalReason
from ha.slave_progress import SlaveProgress
from ha.source_files import LogSource
from ha.transport import Transport
from ha.wait_notify_object import WaitNotifyObject

_NO_SEALS: Final = (
    "its version of the handshake seals no reports, and this broker takes none without a seal in "
    "a group with a controller; bring both to the same version"
)


class FirstHandshake:
    """How the first message of a slave is read at the door (MessageForm)."""

    def __init__(self, key: bytes | None) -> None:
        """key: what our handshake made; None: there was none."""
        self._key = key
        self.size: Final = SLAVE_HANDSHAKE_SIZE + (0 if key is None else SEAL_SIZE)

    def take(self, data: bytes) -> tuple[list[SlaveHandshakeFrame], bytes]:
        """The handshake. Raises HandshakeError."""
        try:
            frames = [*FramesOfSlave().receive(SlaveBytes(self._key).receive(data))]
        except AutoSwitchFrameError as error:
            raise HandshakeError(_as_handshake(error.reason), str(error)) from error
        found = [frame for frame in frames if isinstance(frame, SlaveHandshakeFrame)]
        if not found or found != frames:
            raise HandshakeError(
                RefusalReason.BAD_HANDSHAKE,
                "it reports an offset before it has said who it is: it is no slave of a group "
                "with a controller",
            )
        return found, b""


def _as_handshake(reason: RefusalReason) -> RefusalReason:
    return RefusalReason.BAD_HANDSHAKE if reason is RefusalReason.BAD_FRAME else reason


class AutoSwitchConnections:
    """See the module."""

    def __init__(
        self,
        environment: HaEnvironment,
        source: LogSource,
        transfer: GroupTransferService,
        wait_notify: WaitNotifyObject,
        refusals: RefusalLog,
        events: MemberEvents,
        broker_name: str,
        name_link: Callable[[str, int], object],
    ) -> None:
        """name_link("ip:port", broker id) is called before a slave is served."""
        self._environment = environment
        self._source = source
        self._transfer = transfer
        self._wait_notify = wait_notify
        self._refusals = refusals
        self._events = events
        self._broker_name = broker_name
        self._name_link = name_link
        self._flow = FlowMonitor(environment.config.ha_flow_control)
        self._numbers = itertools.count(1)
        self._lock: Final = threading.Lock()
        self._connections: list[AutoSwitchConnection] = []
        self._leadership: Leadership | None = None

    def lead(self, leadership: Leadership) -> None:
        """Serve slaves from now on."""
        with self._lock:
            self._leadership = leadership

    def stop(self) -> bool:
        """Let nobody in, end all, wait until nothing reads the log any more. False, with an error
        log, if a connection did not end."""
        with self._lock:
            self._leadership = None
            connections = list(self._connections)
        for connection in connections:
            connection.end(None, "this broker stops replication")
        stopped = [connection.shutdown() for connection in connections]
        return all(stopped)

    def admit(
        self,
        transport: Transport,
        handshake: SlaveHandshakeFrame,
        remote: str,
        hello: SlaveHello | None,
    ) -> Objection | None:
        """Serve this slave, taking over the transport. Otherwise why not, or OSError; the
        transport stays the caller's then. hello: what it said in our handshake."""
        objection = None if hello is None else self._objection_to(handshake, hello)
        if objection is not None:
            return objection
        config = self._environment.config
        with self._lock:
            leadership = self._leadership
            if leadership is None:
                return Objection(
                    RefusalReason.NOT_MASTER,
                    "this broker does not lead its group now; the controllers know who does",
                )
            if len(self._connections) >= config.ha_max_connections:
                return Objection(
                    RefusalReason.TOO_MANY_CONNECTIONS,
                    "too many slaves at once; raise haMaxConnections if they are yours",
                )
            slave = AcceptedSlave(
                next(self._numbers),
                transport,
                handshake,
                None if hello is None else hello.report_key,
                reports_flushed=hello is not None and hello.reports_flushed,
            )
            connection = AutoSwitchConnection(
                self._environment,
                slave,
                self._source,
                leadership,
                self._flow,
                self._wait_notify,
                self,
            )
            # Added before it runs, so that one that fails immediately is removed afterwards; `stop`
            # sees it when it runs.
            self._connections.append(connection)
            self._name_link(remote, handshake.broker_id)
            self._events.replica_connected(
                slave.number, handshake.broker_id, handshake.async_learner
            )
            connection.start()
        return None

    def _objection_to(self, handshake: SlaveHandshakeFrame, hello: SlaveHello) -> Objection | None:
        if hello.report_key is None:
            return Objection(RefusalReason.BAD_HANDSHAKE, _NO_SEALS)
        if hello.broker_name != self._broker_name or hello.broker_id != handshake.broker_id:
            return Objection(
                RefusalReason.BAD_HANDSHAKE,
                f"it is {hello.broker_name[:64]!a}:{hello.broker_id}, and wants to be broker "
                f"{handshake.broker_id} of {self._broker_name}",
            )
        return None

    # -- of a connection, on its thread --------------------------------------------------------

    def began(self, connection: AutoSwitchConnection, progress: SlaveProgress) -> None:
        """It counts as a replica from its first report on."""
        self._transfer.add(progress)

    def reported(self, connection: AutoSwitchConnection, log_end: int) -> None:
        """One or several reports were taken."""
        progress = connection.progress
        assert progress is not None
        self._events.replica_reported(connection.slave.number, progress.ack_offset)
        self._transfer.notify_transfer_some(progress, log_end)

    def ended(self, connection: AutoSwitchConnection) -> None:
        """Say why it ended, and forget it; in this order, since `stop` waits for those it knows."""
        if connection.reason is not None:
            self._refusals.refused(connection.remote, connection.reason, connection.text)
        if connection.progress is not None:
            self._transfer.remove(connection.progress, connection.reason, connection.text)
        self._events.replica_gone(connection.slave.number)
        with self._lock:
            self._connections.remove(connection)

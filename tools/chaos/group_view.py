"""GroupView: what is said of a group from outside: who leads by the name server, and what its
controllers record.

A thread looks at the name server again and again, as clients do that look for their master; the
rest is asked on the caller's thread. Any thread.

Tested by tests/tools/chaos/test_group_view.py.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from dataclasses import dataclass
from typing import Final, Protocol

from remoting.body.controller import BrokerReplicasInfo, EpochEntryCache, ReplicasInfo
from remoting.command_custom_header import encode_header
from remoting.headers.controller import ElectMasterRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.remoting_serializable import dumps_java, loads_lenient
from remoting.request_code import RequestCode
from tools.chaos.ack_log import SEND_OK
from tools.chaos.frame_client import FrameClient
from tools.chaos.member_group import CLUSTER
from tools.chaos.scratch_group import BROKER_NAME

_LOOK_S: Final = 0.02
_TIMEOUT_S: Final = 2.0
_ELECT_S: Final = 8.0

Address = tuple[str, int]


class Asked(Protocol):
    """A group that can be asked: of MemberGroup, what is needed here."""

    @property
    def namesrv_address(self) -> Address:
        """Where clients ask."""

    @property
    def controller_addresses(self) -> dict[str, Address]:
        """By the controllers' names."""

    def client_address(self, announced: str) -> Address | None:
        """Where clients come to the broker that announces itself so; None: it is none of it."""


@dataclass(frozen=True, slots=True)
class Named:
    """Whom the name server named, from a moment on."""

    at_s: float
    address: Address


class GroupView:
    """See the module."""

    def __init__(self, group: Asked) -> None:
        self._group = group
        self._end = threading.Event()
        self._named: list[Named] = []
        """Appended by the thread only."""
        self._thread = threading.Thread(target=self._run, name="GroupView", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._end.set()
        self._thread.join(2 * _TIMEOUT_S)

    # -- the name server -----------------------------------------------------------------------

    @property
    def master(self) -> Address | None:
        """Where the master is that was named last; None: none yet."""
        return self._named[-1].address if self._named else None

    def master_before(self, age_s: float) -> Address | None:
        """Who was named so long ago."""
        until_s = time.monotonic() - age_s
        for named in reversed(self._named):
            if named.at_s <= until_s:
                return named.address
        return self.master

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                with FrameClient(self._group.namesrv_address, _TIMEOUT_S) as client:
                    while not self._end.wait(_LOOK_S):
                        self._look(client)
            except OSError:
                self._end.wait(_LOOK_S)

    def _look(self, client: FrameClient) -> None:
        body = client.call(RequestCode.GET_BROKER_CLUSTER_INFO, {}).body
        table = loads_lenient(body).get("brokerAddrTable", {})
        addresses = table.get(BROKER_NAME, {}).get("brokerAddrs", {})
        announced = {str(key): value for key, value in addresses.items()}.get("0")
        address = None if announced is None else self._group.client_address(announced)
        if address is not None and address != self.master:
            self._named.append(Named(time.monotonic(), address))

    # -- the controllers -----------------------------------------------------------------------

    def leader(self) -> str | None:
        """The controller that leads; None: none that answers knows one."""
        for name, address in self._group.controller_addresses.items():
            with contextlib.suppress(OSError), FrameClient(address, _TIMEOUT_S) as client:
                fields = client.call(RequestCode.CONTROLLER_GET_METADATA_INFO, {}).ext_fields
                if fields.get("isLeader") == "true":
                    return name
        return None

    def replicas(self) -> ReplicasInfo | None:
        """What the leader records; None: nobody says it."""
        request = dumps_java([BROKER_NAME])
        for address in self._group.controller_addresses.values():
            with contextlib.suppress(OSError), FrameClient(address, _TIMEOUT_S) as client:
                command = RemotingCommand.request(
                    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {}, request
                )
                answer = client.ask(command)
                if answer.code == SEND_OK and answer.body:
                    table = BrokerReplicasInfo.from_json_bytes(answer.body).replicas_info_table
                    if (found := table.get(BROKER_NAME)) is not None:
                        return found
        return None

    def epoch(self) -> int | None:
        """Of the master that the leader records; None: nobody says it."""
        found = self.replicas()
        return None if found is None else found.master_epoch

    def in_sync(self) -> list[Address]:
        """Where the members of the SyncStateSet are; empty: nobody says it."""
        found = self.replicas()
        announced = (
            [] if found is None else [each.broker_address for each in found.in_sync_replicas]
        )
        return self._known(announced)

    def ids(self) -> dict[Address, int]:
        """The ids that the controllers gave, by where the brokers are."""
        found = self.replicas()
        if found is None:
            return {}
        return {
            address: each.broker_id
            for each in (*found.in_sync_replicas, *found.not_in_sync_replicas)
            if each.broker_id is not None
            and (address := self._group.client_address(str(each.broker_address))) is not None
        }

    def elect(self, broker_id: int) -> int:
        """Designate it, as `mqadmin electMaster` does; the code, -1 without an answer."""
        header = ElectMasterRequestHeader(
            cluster_name=CLUSTER,
            broker_name=BROKER_NAME,
            broker_id=broker_id,
            designate_elect=True,
            invoke_time=time.time_ns() // 1_000_000,
        )
        name = self.leader()
        if name is None:
            return -1
        address = self._group.controller_addresses[name]
        with contextlib.suppress(OSError), FrameClient(address, _ELECT_S) as client:
            return client.call(RequestCode.CONTROLLER_ELECT_MASTER, encode_header(header)).code
        return -1

    def _known(self, announced: list[str | None]) -> list[Address]:
        found = (self._group.client_address(str(each)) for each in announced)
        return [address for address in found if address is not None]


def leads_etcd(address: Address) -> bool:
    """Whether the node of etcd that serves there leads; not, if it does not say so."""
    connection = http.client.HTTPConnection(*address, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", "/v3/maintenance/status", b"{}")
        status = json.loads(connection.getresponse().read())
        return bool(status["leader"] == status["header"]["member_id"])
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return False
    finally:
        connection.close()


def epochs_of(address: Address) -> list[tuple[int, int]]:
    """The epochs of a broker's log: number and where it begins. Raises OSError."""
    with FrameClient(address, _ELECT_S) as client:
        body = client.call(RequestCode.GET_BROKER_EPOCH_CACHE, {}).body
    entries = EpochEntryCache.from_json_bytes(body).epoch_list
    return [(entry.epoch, entry.start_offset) for entry in entries]

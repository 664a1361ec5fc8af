"""AdminHAProcessor: replication for operators and for the group's brokers (906, 907, 28906).

Runs in the `admin` pool: 907 and announcements wait for process `ha`. What goes on on the HA port
is known there only; this processor turns its answer into the body of the original and adds how
the metadata follows. Follows the HA part of AdminBrokerProcessor of 5.3.3; 28906 is ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from broker.processor.table_processor import TableProcessor
from broker.slave.slave_synchronize import SyncStatus
from broker.slave.sync_kind import SyncKind
from ipc.command_channel import CommandError
from remoting.address_patterns import ip_of
from remoting.body.ha_runtime_info import HARuntimeInfo, SlaveSyncInfo
from remoting.command_custom_header import camel_case, decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.ha import (
    AnnounceHALinkRequestHeader,
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

HA_TIMEOUT_MS: Final = 3_000


class HaCommands(Protocol):
    """What is needed of the CommandClient to process `ha`."""

    def call(self, command: str, timeout_ms: int, **arguments: Any) -> dict[str, Any]:
        """Ask and wait. Raises CommandError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HaIdentity:
    """Who this broker is. `initial_max_offset`: end of the log when it started."""

    broker_name: str
    broker_id: int
    broker_address: str
    ha_address: str
    initial_max_offset: int


class AdminHAProcessor(TableProcessor):
    """Codes 906, 907 and ANNOUNCE_HA_LINK."""

    def __init__(
        self,
        identity: Callable[[], HaIdentity],
        *,
        ha: HaCommands,
        slave_sync: Callable[[], Mapping[SyncKind, SyncStatus]],
        update_master: Callable[[str, str, str | None], None],
    ) -> None:
        """`identity` is asked with each request. `slave_sync`: SlaveSynchronize.status, asked on a
        slave only. `update_master`: on a slave, a peer ("ip:port") says: follow this HA address
        and take the metadata from that remoting address."""
        super().__init__(
            {
                RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange_broker_ha_info,
                RequestCode.GET_BROKER_HA_STATUS: self.get_broker_ha_status,
                RequestCode.ANNOUNCE_HA_LINK: self.announce_ha_link,
            }
        )
        self._identity = identity
        self._ha = ha
        self._slave_sync = slave_sync
        self._update_master = update_master

    def exchange_broker_ha_info(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """906: tells a slave who its master is, or asks a master for its addresses."""
        header = decode_header(ExchangeHAInfoRequestHeader, request.ext_fields)
        identity = self._identity()
        is_master = identity.broker_id == 0
        answer = ExchangeHAInfoResponseHeader()
        if header.master_ha_address is None:
            if is_master:
                answer = ExchangeHAInfoResponseHeader(
                    master_ha_address=identity.ha_address,
                    master_flush_offset=identity.initial_max_offset,
                    master_address=identity.broker_address,
                )
        elif is_master:
            log.warning(
                "master address %s: not taken from %s, this broker is a master",
                header.master_ha_address,
                connection.remote_address,
            )
        else:
            log.info(
                "master address %s (%s): told by %s",
                header.master_ha_address,
                header.master_address,
                connection.remote_address,
            )
            self._update_master(
                connection.remote_address, header.master_ha_address, header.master_address
            )
        return request.response(ResponseCode.SUCCESS, None, encode_header(answer))

    def get_broker_ha_status(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """907: every replica, or a slave's own link."""
        tree = self._ask("ha_status")
        try:
            info = HARuntimeInfo.from_json(tree)
        except ValueError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"process ha answered no HA status: {error}"
            ) from error
        if not info.master:
            kinds = self._slave_sync().items()
            sync = {camel_case(kind.label): _sync_info(status) for kind, status in kinds}
            info = replace(info, slave_sync=sync)
        return request.response(ResponseCode.SUCCESS, body=info.to_json_bytes())

    def announce_ha_link(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """28906: a slave of this group says which HA connection is its own. Nobody may name the
        connections of another host: a name decides which acknowledgements count as one copy."""
        header = decode_header(AnnounceHALinkRequestHeader, request.ext_fields)
        identity = self._identity()
        if header.broker_name != identity.broker_name:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"broker {header.broker_name}:{header.broker_id} is no replica of "
                f"{identity.broker_name}; check brokerName on both, and haMasterAddress",
            )
        if header.broker_id in (0, identity.broker_id) or header.broker_id < 0:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"brokerId {header.broker_id} is no slave of {identity.broker_name}:"
                f"{identity.broker_id}; give each replica an id of its own above 0",
            )
        if ip_of(header.link) != ip_of(connection.remote_address):
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"HA link {header.link} is not announced from its own ip but from "
                f"{connection.remote_address}; let the slave reach both ports of its master over "
                "the same network, or leave it without a name: replication works nevertheless",
            )
        self._ask(
            "announce_ha_link",
            link=header.link,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
        )
        log.info(
            "HA link %s: announced as %s:%s by %s",
            header.link,
            header.broker_name,
            header.broker_id,
            connection.remote_address,
        )
        return request.response(ResponseCode.SUCCESS)

    def _ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        try:
            return self._ha.call(command, HA_TIMEOUT_MS, **arguments)
        except CommandError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"replication cannot be asked just now: {error}"
            ) from error


def _sync_info(status: SyncStatus) -> SlaveSyncInfo:
    return SlaveSyncInfo(
        last_success_timestamp=status.last_success_ms or None,
        last_error=status.last_error,
        last_error_timestamp=status.last_error_ms or None,
        failures=status.failures,
    )

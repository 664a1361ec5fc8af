"""AdminHAProcessor: replication for operators and for the group's brokers (905 to 908, 28906).

Runs in the `admin` pool: 907 and announcements wait for process `ha`. Only that process knows the
state of the HA port; this processor converts its response into RocketMQ's body and adds the state
of metadata synchronization. Follows the HA part of AdminBrokerProcessor of 5.3.3; 28906 is an
extension of this broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from broker.processor.table_processor import TableProcessor
from broker.slave.promotion import PromotionOutlook
from broker.slave.sync_kind import SyncKind
from broker.slave.sync_status import SyncStatus
from ipc.command_channel import CommandClient, CommandError
from remoting.address_patterns import ip_of
from remoting.body.ha_runtime_info import HARuntimeInfo, SlaveSyncInfo
from remoting.command_custom_header import camel_case, decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.broker import NotifyMinBrokerIdChangeRequestHeader
from remoting.headers.ha import (
    AnnounceHALinkRequestHeader,
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    ResetMasterFlushOffsetHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.requester import describe_requester
from remoting.response_code import ResponseCode

if TYPE_CHECKING:
    from broker.slave.master_flushed_offset import MasterFlushedOffset

log = logging.getLogger(__name__)

HA_TIMEOUT_MS: Final = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HaIdentity:
    """Identity of this broker. `initial_max_offset`: end of the log when it started."""

    broker_name: str
    broker_id: int
    broker_address: str
    ha_address: str
    initial_max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterNews:
    """What a peer ("ip:port") says about this slave's master in 906."""

    peer: str
    ha_address: str
    """To be followed."""
    address: str | None
    """To copy metadata from."""
    flush_offset: int | None


class AdminHAProcessor(TableProcessor):
    """Codes 905 to 908 and ANNOUNCE_HA_LINK."""

    def __init__(
        self,
        identity: Callable[[], HaIdentity],
        *,
        ha: CommandClient,
        slave_sync: Callable[[], Mapping[SyncKind, SyncStatus]],
        promotion: Callable[[], PromotionOutlook],
        update_master: Callable[[MasterNews], None],
        min_broker_id_changed: Callable[[str], None],
        flushed: MasterFlushedOffset,
    ) -> None:
        """`identity` is called for each request. `slave_sync`: SlaveSynchronize.status,
        `promotion`: ReplicaJournal.outlook, `update_master`: all called on a slave only.
        `min_broker_id_changed`: called with the peer ("ip:port") that sent 905. `flushed`: changed
        on a slave only."""
        super().__init__(
            {
                RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.notify_min_broker_id_change,
                RequestCode.RESET_MASTER_FLUSH_OFFSET: self.reset_master_flush_offset,
                RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange_broker_ha_info,
                RequestCode.GET_BROKER_HA_STATUS: self.get_broker_ha_status,
                RequestCode.ANNOUNCE_HA_LINK: self.announce_ha_link,
            }
        )
        self._identity = identity
        self._ha = ha
        self._slave_sync = slave_sync
        self._promotion = promotion
        self._update_master = update_master
        self._min_broker_id_changed = min_broker_id_changed
        self._flushed = flushed

    def notify_min_broker_id_change(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """905: a name server says that the smallest id of a group has changed. The name servers are
        asked what is true."""
        decode_header(NotifyMinBrokerIdChangeRequestHeader, request.ext_fields)
        self._min_broker_id_changed(connection.remote_address)
        return request.response(ResponseCode.SUCCESS)

    def reset_master_flush_offset(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """908: sets a slave's masterFlushedOffset; a success without effect on a master and without
        an offset, as in RocketMQ."""
        header = decode_header(ResetMasterFlushOffsetHeader, request.ext_fields)
        offset = header.master_flush_offset
        if self._identity().broker_id != 0 and offset is not None:
            if offset < 0:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"masterFlushOffset {offset} is not a position in a log: give 0 or more",
                )
            self._flushed.reset(offset, describe_requester(connection, request))
        return request.response(ResponseCode.SUCCESS)

    def exchange_broker_ha_info(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """906: tells a slave the addresses of its master, or asks a master for its own."""
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
                "master address %s: ignored, sent by %s, this broker is a master",
                header.master_ha_address,
                connection.remote_address,
            )
        else:
            log.info(
                "master address %s (%s): received from %s",
                header.master_ha_address,
                header.master_address,
                connection.remote_address,
            )
            self._update_master(
                MasterNews(
                    peer=connection.remote_address,
                    ha_address=header.master_ha_address,
                    address=header.master_address,
                    flush_offset=header.master_flush_offset,
                )
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
                ResponseCode.SYSTEM_ERROR, f"cannot get the HA status from process ha: {error}"
            ) from error
        if not info.master:
            kinds = self._slave_sync().items()
            sync = {camel_case(kind.label): _sync_info(status) for kind, status in kinds}
            client = replace(info.ha_client_runtime_info, master_flush_offset=self._flushed.value)
            outlook = self._promotion()
            info = replace(
                info,
                slave_sync=sync,
                ha_client_runtime_info=client,
                promotion_objection=outlook.objection,
                promotion_basis=outlook.basis,
            )
        return request.response(ResponseCode.SUCCESS, body=info.to_json_bytes())

    def announce_ha_link(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """28906: a slave of this group identifies its HA connection. It may not identify
        connections of another host, since the identity decides which acknowledgements count as one
        copy."""
        header = decode_header(AnnounceHALinkRequestHeader, request.ext_fields)
        identity = self._identity()
        if header.broker_name != identity.broker_name:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"broker {header.broker_name}:{header.broker_id} is not a replica of "
                f"{identity.broker_name}; check brokerName on both, and haMasterAddress",
            )
        if header.broker_id in (0, identity.broker_id) or header.broker_id < 0:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"brokerId {header.broker_id} is not a slave of {identity.broker_name}:"
                f"{identity.broker_id}; give each replica an id of its own above 0",
            )
        if ip_of(header.link) != ip_of(connection.remote_address):
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"HA link {header.link} is not announced from its own IP but from "
                f"{connection.remote_address}; let the slave reach both ports of its master over "
                "the same network, or ignore this: replication works without a name",
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
                ResponseCode.SYSTEM_ERROR, f"process ha is not available: {error}"
            ) from error


def _sync_info(status: SyncStatus) -> SlaveSyncInfo:
    return SlaveSyncInfo(
        last_success_timestamp=status.last_success_ms or None,
        last_error=status.last_error,
        last_error_timestamp=status.last_error_ms or None,
        failures=status.failures,
    )

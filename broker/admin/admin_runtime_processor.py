"""AdminRuntimeProcessor: state, settings and counters of this broker (25, 26, 28, 306, 315, 329).

Runs in the `admin` pool: 28 accesses disks; 25, 306 and 329 wait for process `store`, 25 for name
servers too. Follows the runtime part of AdminBrokerProcessor of RocketMQ.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final

from broker.metrics.broker_stats_manager import BrokerStats, BrokerStatsManager, StatsSnapshot
from broker.metrics.runtime_info import RuntimeInfo, runtime_table
from broker.processor.table_processor import TableProcessor
from broker.settings.config_update import BrokerConfigUpdate
from broker.store_access.store_commands import StoreCommands
from remoting.body.kv_table import KVTable
from remoting.body.stats import BrokerStatsData, BrokerStatsItem
from remoting.command_custom_header import decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.admin import ViewBrokerStatsDataRequestHeader
from remoting.headers.broker import GetBrokerConfigResponseHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.requester import describe_requester
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

READ_BY_MQADMIN: Final = {
    "clientCallbackExecutorThreads": str(len(os.sched_getaffinity(0))),
    "filterServerNums": "0",
}
"""Settings that mqadmin reads but that have no effect here. exportConfigs fails without the second
(and without useTLS, which is supported here); exportMetrics shows the first, the number of
processors in Java."""


class AdminRuntimeProcessor(TableProcessor):
    """Codes 25, 26, 28, 306, 315 and 329."""

    def __init__(
        self,
        *,
        configs: BrokerConfigUpdate,
        runtime: Callable[[], RuntimeInfo],
        totals: BrokerStats,
        stats: BrokerStatsManager,
        commands: StoreCommands,
    ) -> None:
        super().__init__(
            {
                RequestCode.UPDATE_BROKER_CONFIG: self.update_broker_config,
                RequestCode.GET_BROKER_CONFIG: self.get_broker_config,
                RequestCode.GET_BROKER_RUNTIME_INFO: self.get_broker_runtime_info,
                RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_consume_queue,
                RequestCode.VIEW_BROKER_STATS_DATA: self.view_broker_stats_data,
                RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_commit_log,
            }
        )
        self._configs = configs
        self._runtime = runtime
        self._totals = totals
        self._stats = stats
        self._commands = commands

    def update_broker_config(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """25: change settings; the remark says what applies now and what after a restart."""
        try:
            text = request.body.decode()
        except UnicodeDecodeError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"UnsupportedEncodingException {error}"
            ) from error
        remark = self._configs.update(text, describe_requester(connection, request))
        return request.response(ResponseCode.SUCCESS, remark)

    def get_broker_config(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """26: every setting as `key=value` lines, plus those that mqadmin requires."""
        shown = {**READ_BY_MQADMIN, **self._configs.all_configs()}
        lines = (f"{key}={value}\n" for key, value in shown.items())
        version = self._configs.data_version().to_json_bytes().decode()
        header = GetBrokerConfigResponseHeader(version=version)
        body = "".join(lines).encode()
        return request.response(ResponseCode.SUCCESS, None, encode_header(header), body)

    def get_broker_runtime_info(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """28: counters, rates, offsets and disks."""
        body = KVTable(table=runtime_table(self._runtime(), self._totals))
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def view_broker_stats_data(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """315: one counter over the last minute, hour and day."""
        header = decode_header(ViewBrokerStatsDataRequestHeader, request.ext_fields)
        item = self._stats.find_stats_item(header.stats_name, header.stats_key)
        if item is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        body = BrokerStatsData(
            stats_minute=_stats_item(item.in_minute()),
            stats_hour=_stats_item(item.in_hour()),
            stats_day=_stats_item(item.in_day()),
        )
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def clean_expired_consume_queue(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """306: delete obsolete consume queue files now."""
        return self._run_now(
            "clean expired consume queues",
            self._commands.clean_expired_consume_queue,
            connection,
            request,
        )

    def delete_expired_commit_log(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """329: delete expired commit log files now."""
        return self._run_now(
            "delete expired commit log",
            self._commands.delete_expired_commit_log,
            connection,
            request,
        )

    def _run_now(
        self,
        what: str,
        command: Callable[[], None],
        connection: ConnectionLike,
        request: RemotingCommand,
    ) -> RemotingCommand:
        log.warning("%s: requested by %s", what, connection.remote_address)
        command()
        log.warning("%s: done", what)
        return request.response(ResponseCode.SUCCESS)


def _stats_item(snapshot: StatsSnapshot) -> BrokerStatsItem:
    return BrokerStatsItem(sum=snapshot.sum, tps=snapshot.tps, avgpt=snapshot.avgpt)

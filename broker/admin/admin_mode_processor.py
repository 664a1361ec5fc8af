"""AdminModeProcessor: requests about modes of a broker (354, 355, 1007, 1008, 5001, 200056).

Runs in the `admin` pool, stateless. A 5.3.3 broker takes these codes in every mode: RocksDB for
consumequeues (354) and tables (355), the epochs and roles of a controller (1007, 1008), pop's state
in RocksDB (200056); one of 5.5 takes timers in RocksDB (5001). There is no RocksDB here; in
controller mode process `ha` answers for the epochs, and hears of roles. Otherwise the answers are
that broker's with its default settings, word for word (tests/golden/default-modes-5.3.3.json).
Nothing is exported, checked, moved or changed. Follows AdminBrokerProcessor of 5.3.3 and 5.5.0.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from broker.admin.admin_ha_processor import HA_TIMEOUT_MS
from broker.processor.table_processor import TableProcessor
from ipc.command_channel import CommandClient, CommandError
from remoting.body.controller import EpochEntryCache
from remoting.body.sync_state_set import SyncStateSet
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.controller import NotifyBrokerRoleChangedRequestHeader
from remoting.headers.rocksdb import ExportRocksDBConfigToJsonRequestHeader
from remoting.refusal_log import RefusalLog
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

NO_REMARK: Final = "not set any response code"
"""What Java leaves as the remark of a success that sets none."""
_IN_PROGRESS: Final = b'{"checkStatus":2}'
"""CheckRocksdbCqWriteResult: the check, which needs rocksdbCQDoubleWriteEnable, would go on."""
_MAX_NOTICE: Final = 64 << 10
"""Bytes of a 1008's body; a thousand members take 20 KB. Everybody may send one."""
_CONFIG_TYPES: Final = frozenset({"topics", "subscriptiongroups", "consumeroffsets"})


class AdminModeProcessor(TableProcessor):
    """See the module. Guarded by `_passing`: the way to process `ha` for strangers' notices; by
    `_lock`: the one that waits for it."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        ha: CommandClient | None = None,
        *,
        has_timers: bool = True,
    ) -> None:
        """now_ms: monotonic. ha: in controller mode, who knows the epochs. has_timers:
        timerWheelEnable."""
        self._has_timers = has_timers
        self._ha = ha
        self._passing = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: tuple[int, dict[str, Any]] | None = None
        """The epoch of a notice, and what process `ha` is told of it."""
        self._dropped = RefusalLog(log, now_ms)
        super().__init__(
            {
                RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: self.check_rocksdb_cq_write_progress,
                RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: self.export_rocksdb_config_to_json,
                RequestCode.GET_BROKER_EPOCH_CACHE: self.get_broker_epoch_cache,
                RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self.notify_broker_role_changed,
                RequestCode.POP_ROLLBACK: self.pop_rollback,
                RequestCode.SWITCH_TIMER_ENGINE: self.switch_timer_engine,
            }
        )

    def check_rocksdb_cq_write_progress(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """354: answered before the header is read; what is found goes to the log only."""
        log.info(
            "check of RocksDB's consumequeues, asked by %s: not made, there are only files",
            connection.remote_address,
        )
        return request.response(ResponseCode.SUCCESS, NO_REMARK, body=_IN_PROGRESS)

    def export_rocksdb_config_to_json(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """355: the tables are JSON files already. Raises RequestError for another table's name."""
        header = decode_header(ExportRocksDBConfigToJsonRequestHeader, request.ext_fields)
        for name in filter(None, header.config_type.split(";")):
            if name.strip().lower() not in _CONFIG_TYPES:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"Unknown config type: {name:.80}. It is one of topics, subscriptionGroups, "
                    "consumerOffsets",
                )
        return request.response(ResponseCode.SUCCESS, "export done.")

    def get_broker_epoch_cache(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """1007. Raises RequestError: there are no epochs without a controller."""
        if self._ha is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")
        try:
            found = self._ha.call("epoch_cache", HA_TIMEOUT_MS)
        except CommandError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"cannot get the epochs from process ha: {error}"
            ) from error
        body = EpochEntryCache.from_json(found).to_json_bytes()
        return request.response(ResponseCode.SUCCESS, body=body)

    def notify_broker_role_changed(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """1008: moves no role, whoever sent it; in controller mode the member asks the controllers'
        leader. Raises RequestError for a body that cannot be read."""
        header = decode_header(NotifyBrokerRoleChangedRequestHeader, request.ext_fields)
        if len(request.body) > _MAX_NOTICE:
            text = f"{len(request.body)} bytes are no notice of a controller"
            raise RequestError(ResponseCode.SYSTEM_ERROR, text)
        if request.body:
            SyncStateSet.from_request(request.body)
        remote = connection.remote_address
        if self._ha is not None and header.master_epoch is not None:
            fields, body = dict(request.ext_fields), request.body.decode(errors="replace")
            self._wait(header.master_epoch, {"ext_fields": fields, "body": body, "remote": remote})
            self._pass_on(self._ha)
        elif self._ha is None:
            self._drop(
                remote,
                "there is no controller mode here; an operator changes roles "
                f"(docs/replication.md): master {header.master_broker_id} at "
                f"{header.master_address}, epoch {header.master_epoch}",
            )
        return request.response(ResponseCode.SUCCESS)

    def _wait(self, epoch: int, notice: dict[str, Any]) -> None:
        """Instead of one of an older epoch, for which the member might ask nobody."""
        with self._lock:
            if self._waiting is None or epoch >= self._waiting[0]:
                self._waiting = epoch, notice

    def _pass_on(self, ha: CommandClient) -> None:
        """One at a time: strangers shall not keep every thread of the pool waiting. Of those that
        come meanwhile the newest one follows, since the leader may have been asked before. What is
        lost here the member hears by itself, within syncBrokerMetadataPeriod."""
        for _ in range(2):
            if not self._passing.acquire(blocking=False):
                return
            try:
                self._tell(ha)
            finally:
                self._passing.release()

    def _tell(self, ha: CommandClient) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        _, notice = waiting
        try:
            ha.call("role_notified", HA_TIMEOUT_MS, **notice)
        except CommandError as error:
            self._drop(notice["remote"], f"not passed on: {error}")

    def _drop(self, remote: str, why: str) -> None:
        code = RequestCode.NOTIFY_BROKER_ROLE_CHANGED
        self._dropped.record(remote, code, RequestError(ResponseCode.SUCCESS, why), "dropped")

    def switch_timer_engine(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """5001: timers stay in the files where they are (F); the answers of a 5.5.0 broker that has
        always kept them there. Raises RequestError."""
        engine, why = request.ext_fields.get("E_T"), "param error"
        if not self._has_timers:
            why = "broker timerWheelEnable is false"
        elif not request.ext_fields:
            why = "param error, extFields is null"
        elif engine == "R":
            why = "timerRocksDBEnable must be configured true when broker start"
        elif engine == "F":
            return request.response(ResponseCode.SUCCESS, "switch timer engine success")
        raise RequestError(ResponseCode.INVALID_PARAMETER, why)

    def pop_rollback(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """200056: pop's state is in the file store already."""
        return request.response(ResponseCode.SUCCESS, NO_REMARK)

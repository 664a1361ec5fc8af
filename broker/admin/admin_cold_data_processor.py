"""AdminColdDataProcessor: flow control of cold reads, and read-ahead (2001 to 2004, 5.x).

2001 to 2003 run on the loop, which owns the counters and thresholds; 2004 in the `admin` pool,
since it changes a setting. Follows the part about cold data of AdminBrokerProcessor of RocketMQ
5.3.3, but for what it only logs: a threshold that is no number is refused here.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable
from typing import Final

from broker.coldctr.cold_data_cg_ctr_service import ColdDataCgCtrService
from broker.processor.table_processor import TableProcessor
from conf.errors import ConfigError
from conf.settings_change import read_changes
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.requester import describe_requester
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

READ_AHEAD_MODE: Final = "READ_AHEAD_MODE"
_MOST_TEXT: Final = 1 << 16
"""Bytes of groups and thresholds in one request: it is served on the loop."""
_MOST: Final = 2**63 - 1

ChangeSettings = Callable[[str, str], str]
"""(properties text, who asks) -> what applies when (BrokerConfigUpdate.update)."""


class AdminColdDataProcessor(TableProcessor):
    """Codes 2001 to 2004."""

    def __init__(self, ctr: ColdDataCgCtrService, change_settings: ChangeSettings) -> None:
        super().__init__(
            {
                RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: self.update_group_config,
                RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: self.remove_group_config,
                RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: self.get_info,
                RequestCode.SET_COMMITLOG_READ_MODE: self.set_commit_log_read_mode,
            }
        )
        self._ctr = ctr
        self._change_settings = change_settings

    def update_group_config(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """2001: thresholds of groups, as properties text `group=bytes`."""
        who = describe_requester(connection, request)
        if len(request.body) > _MOST_TEXT:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"the body has {len(request.body)} bytes (limit {_MOST_TEXT}): name fewer groups",
            )
        try:
            changes = read_changes(_text(request), f"request 2001 from {who}")
        except ConfigError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}"
            ) from error
        if not changes:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER, "the body names no group: expected group=bytes"
            )
        thresholds = {group: _threshold(group, text) for group, text in changes.items()}
        for group, threshold in thresholds.items():
            self._ctr.set_threshold(group, threshold)
            log.warning("group %s: cold reads limited to %s by %s", group, threshold, who)
        return request.response(ResponseCode.SUCCESS)

    def remove_group_config(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """2002: the group in the body has no threshold of its own any more."""
        group = _text(request)
        if not group:
            raise RequestError(ResponseCode.INVALID_PARAMETER, "the body names no group")
        self._ctr.remove_threshold(group)
        who = describe_requester(connection, request)
        log.warning("group %.255r: limit of cold reads removed by %s", group, who)
        return request.response(ResponseCode.SUCCESS)

    def get_info(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """2003: counters and thresholds."""
        return request.response(ResponseCode.SUCCESS, body=self._ctr.info().to_json_bytes())

    def set_commit_log_read_mode(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """2004: 0 lets the kernel read ahead in the commit log, 1 does not. Kept in the settings
        file, as dataReadAheadEnable."""
        text = request.ext_fields.get(READ_AHEAD_MODE)
        if text is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode param error"
            )
        mode = _whole_number(text)
        if mode is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode failed")
        if mode not in (mmap.MADV_NORMAL, mmap.MADV_RANDOM):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER, "set commitlog readahead mode param value error"
            )
        enabled = "true" if mode == mmap.MADV_NORMAL else "false"
        who = describe_requester(connection, request)
        self._change_settings(f"dataReadAheadEnable={enabled}\n", who)
        return request.response(
            ResponseCode.SUCCESS, f"set commitlog readahead mode success, mode: {mode}"
        )


def _text(request: RemotingCommand) -> str:
    try:
        return bytes(request.body).decode()
    except UnicodeDecodeError as error:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"UnsupportedEncodingException {error}"
        ) from error


def _threshold(group: str, text: str) -> int:
    threshold = _whole_number(text)
    if threshold is None:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"group {group!r:.255}: its threshold {text!r:.40} is not a number of bytes",
        )
    return threshold


def _whole_number(text: str) -> int | None:
    """As Java's Long.valueOf."""
    if not (text.isascii() and text.lstrip("+-").isdecimal() and len(text) <= 20):
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    return number if -_MOST - 1 <= number <= _MOST else None

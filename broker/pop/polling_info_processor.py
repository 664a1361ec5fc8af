"""PollingInfoProcessor: how many pops wait for a queue (200055). Runs on the loop thread."""

from __future__ import annotations

from collections.abc import Callable

from broker.pop.peeking_check import PeekingCheck
from broker.pop.pop_names import UNSET_REMARK
from broker.processor.table_processor import TableProcessor
from remoting.command_custom_header import decode_header, encode_header
from remoting.headers.pop import PollingInfoRequestHeader, PollingInfoResponseHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

PollingNum = Callable[[str, str, int], int]
"""(topic, group, queue id): how many wait under this key (PopLongPollingService.polling_num)."""


class PollingInfoProcessor(TableProcessor):
    """See the module. Owned by: the loop thread."""

    def __init__(self, check: PeekingCheck, polling_num: PollingNum) -> None:
        super().__init__({RequestCode.POLLING_INFO: self.polling_info})
        self._check = check
        self._polling_num = polling_num

    def polling_info(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """200055: waiters of exactly this key; queue id -1: those who wait for any queue."""
        header = decode_header(PollingInfoRequestHeader, request.ext_fields)
        key = (header.topic, header.consumer_group, header.queue_id)
        self._check.check(connection, *key)
        answer = PollingInfoResponseHeader(polling_num=self._polling_num(*key))
        return request.response(ResponseCode.SUCCESS, UNSET_REMARK, encode_header(answer))

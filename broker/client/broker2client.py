"""Broker2Client: requests from this broker to its clients, over the clients' own connections.

Threads of the admin pool call it and block; the loop only delivers the responses, through the
server's ResponseTable. A client may be slow or dead, so at most `max_waiting` threads block at
once. Further calls fail with SYSTEM_BUSY, which leaves pool threads for other requests. Oneway
requests do not block and may be sent by any thread. Follows Broker2Client of RocketMQ. Operators'
requests and the store are left to the processors.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from broker.client.client_channel_info import ClientChannelInfo
from broker.client.consumer_manager import ConsumerManager
from ipc.clock import Clock
from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from remoting.command_custom_header import encode_header
from remoting.errors import (
    BodyError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RequestError,
)
from remoting.headers.admin import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader
from remoting.headers.transaction import CheckTransactionStateRequestHeader
from remoting.mq_version import V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT, version_name
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from remoting.response_table import ResponseFuture, ResponseTable
from remoting.signature import ACCESS_KEY, SIGNATURE

log = logging.getLogger(__name__)

CALL_TIMEOUT_MS: Final = 10_000
"""Response timeout of a client for 307 and 309."""
STATUS_TIMEOUT_MS: Final = 5_000
"""Response timeout for 221, for all clients of a group together."""

_Call = tuple[ConnectionLike, RemotingCommand, "Future[RemotingCommand]"]


class Broker2Client:
    """Requests to connected clients. Any thread; calls that wait: pool threads only."""

    def __init__(
        self,
        consumers: ConsumerManager,
        responses: ResponseTable,
        clock: Clock,
        *,
        max_waiting: int,
        call_timeout_ms: int = CALL_TIMEOUT_MS,
        status_timeout_ms: int = STATUS_TIMEOUT_MS,
    ) -> None:
        """responses: the response table of the server that the clients are connected to."""
        self._consumers = consumers
        self._responses = responses
        self._clock = clock
        self._max_waiting = max_waiting
        self._slots = threading.BoundedSemaphore(max_waiting)
        self._call_timeout_ms = call_timeout_ms
        self._status_timeout_ms = status_timeout_ms

    # -- one client ------------------------------------------------------------------------------

    def check_producer_transaction_state(
        self,
        connection: ConnectionLike,
        header: CheckTransactionStateRequestHeader,
        half_message: bytes,
    ) -> None:
        """39, oneway: ask a producer for the transaction state of a half message (the record as
        pulled)."""
        connection.send_command(
            RemotingCommand.request(
                RequestCode.CHECK_TRANSACTION_STATE,
                encode_header(header),
                half_message,
                oneway=True,
            )
        )

    def call_client(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """Send `request` and return the client's response.

        Raises RequestError(SYSTEM_BUSY), RemotingTimeoutError, RemotingSendRequestError.
        """
        with self._slot():
            call = self._begin(connection, request, self._call_timeout_ms)
            return self._wait(call, self._call_timeout_ms)

    def call_consumer(
        self, code: RequestCode, group: str, client_id: str, request: RemotingCommand
    ) -> RemotingCommand:
        """Send the fields and body of `request` to one consumer as `code`; return its response.
        Without account and signature, which would let it speak as the operator.

        Raises RequestError: SYSTEM_ERROR (not online, too old, gone), CONSUME_MSG_TIMEOUT,
        SYSTEM_BUSY.
        """
        info = self._consumers.find_member(group, client_id)
        if info is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        if info.version < V3_1_8_SNAPSHOT:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version_name(info.version)}> too low to "
                "finish, please upgrade it to V3_1_8_SNAPSHOT",
            )
        fields = {
            name: text
            for name, text in request.ext_fields.items()
            if name not in (ACCESS_KEY, SIGNATURE)
        }
        passed_on = RemotingCommand.request(code, fields, request.body)
        try:
            return self.call_client(info.connection, passed_on)
        except RemotingTimeoutError as error:
            raise RequestError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: {error}",
            ) from error
        except RemotingError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{client_id}> Exception: {error}",
            ) from error

    # -- every client of a group -----------------------------------------------------------------

    def reset_offset(
        self,
        group: str,
        topic: str,
        timestamp_ms: int,
        offsets: Mapping[MessageQueue, int],
        *,
        for_cpp: bool = False,
    ) -> None:
        """220, oneway: every member of `group` drops these queues and resumes at `offsets`.

        `for_cpp`: use the format of C++ clients. Raises RequestError: CONSUMER_NOT_ONLINE, or
        SYSTEM_ERROR if a member is too old (then no member is notified).
        """
        members = self._members(group)
        if not members:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} "
                f"Timestamp: {timestamp_ms}",
            )
        _refuse_too_old(members)
        header = ResetOffsetRequestHeader(
            topic=topic, group=group, timestamp=timestamp_ms, is_force=False
        )
        body = _reset_body(offsets, for_cpp=for_cpp)
        for member in members:
            member.connection.send_command(
                RemotingCommand.request(
                    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                    encode_header(header),
                    body,
                    oneway=True,
                )
            )
            log.info("reset of group %s, topic %s: sent to %r", group, topic, member)

    def get_consume_status(
        self, group: str, topic: str, client_id: str | None
    ) -> dict[str, dict[MessageQueue, int]]:
        """221: the progress of the members of `group` (or of one member) in `topic`, by client id.

        All members are asked in parallel; one that does not respond in time is left out, with a log
        line. Raises RequestError: SYSTEM_ERROR (nobody online, too old), SYSTEM_BUSY.
        """
        members = self._members(group)
        if not members:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{group}]",
            )
        asked = [each for each in members if not client_id or each.client_id == client_id]
        _refuse_too_old(asked)
        ext_fields = encode_header(GetConsumerStatusRequestHeader(topic=topic, group=group))
        code, timeout_ms = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status_timeout_ms
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        found: dict[str, dict[MessageQueue, int]] = {}
        with self._slot():
            calls = [
                self._begin(each.connection, RemotingCommand.request(code, ext_fields), timeout_ms)
                for each in asked
            ]
            for member, call in zip(asked, calls, strict=True):
                left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
                table = self._status_of(member, call, left_ms)
                if table is not None:
                    found[member.client_id] = table
        return found

    def _status_of(
        self, member: ClientChannelInfo, call: _Call, left_ms: int
    ) -> dict[MessageQueue, int] | None:
        try:
            answer = self._wait(call, left_ms)
            if answer.code == ResponseCode.SUCCESS:
                return GetConsumerStatusBody.from_json_bytes(answer.body).message_queue_table
            log.warning("consume status of %r: %s %s", member, answer.code, answer.remark)
        except (RemotingError, BodyError) as error:
            log.warning("consume status of %r: %s", member, error)
        return None

    def _members(self, group: str) -> list[ClientChannelInfo]:
        info = self._consumers.find_group(group)
        return [] if info is None else info.infos()

    # -- calling and waiting ----------------------------------------------------------------------

    @contextlib.contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._slots.acquire(blocking=False):
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"too many requests are waiting for responses of clients "
                f"({self._max_waiting}; adminBrokerThreadPoolNums sets it); try again in a few "
                "seconds",
            )
        try:
            yield
        finally:
            self._slots.release()

    def _begin(
        self, connection: ConnectionLike, request: RemotingCommand, timeout_ms: int
    ) -> _Call:
        future: Future[RemotingCommand] = Future()
        address, settle = connection.remote_address, _settle(future)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._responses.add(ResponseFuture(request.opaque, address, deadline_ms, settle))
        connection.send_command(request)
        if not connection.is_open and self._responses.take(request.opaque) is not None:
            # Closed before the call was registered: nothing else would complete it.
            settle(None, RemotingSendRequestError(address, "the connection is closed"))
        return connection, request, future

    def _wait(self, call: _Call, timeout_ms: int) -> RemotingCommand:
        connection, request, future = call
        try:
            return future.result(timeout_ms / 1000)
        except TimeoutError as error:
            if self._responses.take(request.opaque) is None:
                return future.result()  # The response arrived at the last moment.
            raise RemotingTimeoutError(
                connection.remote_address, f"no response within {timeout_ms} ms"
            ) from error


def max_waiting_calls(pool_threads: int) -> int:
    """How many threads of a pool may wait for clients: all but one if there are at least two."""
    return max(1, pool_threads - 1)


def _settle(
    future: Future[RemotingCommand],
) -> Callable[[RemotingCommand | None, Exception | None], None]:
    def settle(answer: RemotingCommand | None, error: Exception | None) -> None:
        if answer is not None:
            future.set_result(answer)
        else:
            future.set_exception(error)

    return settle


def _refuse_too_old(members: Sequence[ClientChannelInfo]) -> None:
    for member in members:
        if member.version < V3_0_7_SNAPSHOT:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the client does not support this feature. version={version_name(member.version)}",
            )


def _reset_body(offsets: Mapping[MessageQueue, int], *, for_cpp: bool) -> bytes:
    if not for_cpp:
        return ResetOffsetBody(offset_table=dict(offsets)).to_json_bytes()
    queues = [
        MessageQueueForC(
            topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset
        )
        for queue, offset in offsets.items()
    ]
    return ResetOffsetBodyForC(offset_table=queues).to_json_bytes()

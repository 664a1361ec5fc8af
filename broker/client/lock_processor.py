"""LockProcessor: queue locks of orderly consumers (41, 42).

Cheap: a dict lookup for each queue, may run on the loop's thread. Follows the lock part of
AdminBrokerProcessor of RocketMQ; RebalanceLockManager has the rules of locking.
"""

from __future__ import annotations

from typing import Final

from broker.client.rebalance_lock_manager import RebalanceLockManager
from broker.processor.table_processor import TableProcessor
from remoting.body.lock_batch import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

MAX_QUEUES: Final = 10_000
"""Of one request: a client locks its queues on one broker, group by group."""
MAX_BYTES: Final = 2 << 20
"""Of one request, which is parsed on the loop: 10,000 queues take about half of it and 20 ms."""
_LONGEST_NAME: Final = 255
"""Characters of a topic, broker, group or client id, which the lock is kept with."""


class LockProcessor(TableProcessor):
    """Codes 41 and 42."""

    def __init__(self, locks: RebalanceLockManager) -> None:
        self._locks = locks
        super().__init__(
            {
                RequestCode.LOCK_BATCH_MQ: self.lock_batch,
                RequestCode.UNLOCK_BATCH_MQ: self.unlock_batch,
            }
        )

    def lock_batch(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """41: lock the available queues; the response lists the queues that the client holds
        now."""
        _check_bytes(request)
        body = LockBatchRequestBody.from_request(request.body)
        if len(body.mq_set) > MAX_QUEUES:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"{len(body.mq_set)} queues to lock, over the limit of {MAX_QUEUES} a request",
            )
        names = {body.consumer_group, body.client_id}
        for queue in body.mq_set:
            names |= {queue.topic, queue.broker_name}
        longest = max(len(name or "") for name in names)
        if longest > _LONGEST_NAME:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"a name of {longest} characters, over the limit of {_LONGEST_NAME}",
            )
        held = self._locks.try_lock_batch(body.consumer_group, body.mq_set, body.client_id)
        answer = LockBatchResponseBody(lock_okmqset=held)
        return request.response(ResponseCode.SUCCESS, body=answer.to_json_bytes())

    def unlock_batch(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """42: unlock queues; success whoever owned them."""
        _check_bytes(request)
        body = UnlockBatchRequestBody.from_request(request.body)
        self._locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
        return request.response(ResponseCode.SUCCESS)


def _check_bytes(request: RemotingCommand) -> None:
    """Raises RequestError for a body that would keep the loop for too long."""
    if len(request.body) > MAX_BYTES:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"a list of queues of {len(request.body)} bytes, over the limit of {MAX_BYTES}",
        )

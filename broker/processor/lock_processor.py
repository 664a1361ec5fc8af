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
"""Of one request: a client locks its queues on one broker, group by group. A lock is kept for 60 s,
so that nothing else bounds what a request may create."""


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
        body = LockBatchRequestBody.from_json_bytes(request.body)
        if len(body.mq_set) > MAX_QUEUES:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"{len(body.mq_set)} queues to lock, over the limit of {MAX_QUEUES} a request",
            )
        held = self._locks.try_lock_batch(body.consumer_group, body.mq_set, body.client_id)
        answer = LockBatchResponseBody(lock_okmqset=held)
        return request.response(ResponseCode.SUCCESS, body=answer.to_json_bytes())

    def unlock_batch(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """42: unlock queues; success whoever owned them."""
        body = UnlockBatchRequestBody.from_json_bytes(request.body)
        self._locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
        return request.response(ResponseCode.SUCCESS)

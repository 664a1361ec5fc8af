"""LockProcessor: queue locks of orderly consumers (41, 42).

Light: a dict lookup for each queue, may run on the loop's thread. Follows the lock part of
AdminBrokerProcessor of the original; the rules of a lock are RebalanceLockManager's.
"""

from __future__ import annotations

from broker.client.rebalance_lock_manager import RebalanceLockManager
from broker.processor.table_processor import TableProcessor
from remoting.body.lock_batch import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode


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
        """41: lock what can be had; the answer names what the client holds now."""
        body = LockBatchRequestBody.from_json_bytes(request.body)
        held = self._locks.try_lock_batch(body.consumer_group, body.mq_set, body.client_id)
        answer = LockBatchResponseBody(lock_okmqset=held)
        return request.response(ResponseCode.SUCCESS, body=answer.to_json_bytes())

    def unlock_batch(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """42: give queues back; success whoever owned them."""
        body = UnlockBatchRequestBody.from_json_bytes(request.body)
        self._locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
        return request.response(ResponseCode.SUCCESS)

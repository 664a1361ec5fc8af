"""broker.client.lock_processor: codes 41 and 42 as Java exchanges them."""

from __future__ import annotations

import pytest

from broker.client.lock_processor import MAX_BYTES, MAX_QUEUES, LockProcessor
from broker.client.rebalance_lock_manager import RebalanceLockManager
from remoting.body.lock_batch import LockBatchRequestBody, LockBatchResponseBody
from remoting.body.message_queue import MessageQueue
from remoting.errors import BodyError, RequestError
from remoting.remoting_command import RemotingCommand
from tests.broker.broker_fakes import FakeClock, FakeConnection, assert_same_answer, golden


@pytest.mark.parametrize(("code", "number"), [(41, 1), (41, 2), (42, 1)])
def test_exchanges_of_java(code: int, number: int) -> None:
    processor = LockProcessor(RebalanceLockManager(FakeClock()))
    request, answer = golden(code, number)
    assert_same_answer(processor.process_request(FakeConnection(), request), answer)


def test_what_others_hold_is_left_out() -> None:
    processor = LockProcessor(RebalanceLockManager(FakeClock()))
    request, _ = golden(41)
    processor.process_request(FakeConnection(), request)
    theirs = LockBatchRequestBody.from_json_bytes(request.body)
    other = LockBatchRequestBody(
        client_id="other", consumer_group=theirs.consumer_group, mq_set=theirs.mq_set
    )
    command = RemotingCommand.request(41, body=other.to_json_bytes())
    answer = processor.process_request(FakeConnection(), command)
    assert answer is not None
    assert LockBatchResponseBody.from_json_bytes(answer.body).lock_okmqset == []
    unlock, _ = golden(42)
    processor.process_request(FakeConnection(), unlock)
    answer = processor.process_request(FakeConnection(), command)
    assert answer is not None
    assert LockBatchResponseBody.from_json_bytes(answer.body).lock_okmqset == theirs.mq_set


def test_a_broken_body_is_refused() -> None:
    processor = LockProcessor(RebalanceLockManager(FakeClock()))
    with pytest.raises(BodyError):
        processor.process_request(FakeConnection(), RemotingCommand.request(41, body=b"[]"))


@pytest.mark.parametrize("code", [41, 42])
def test_a_long_body_is_not_parsed(code: int) -> None:
    """That is done on the loop, and would take 0.9 s for 16 MiB."""
    processor = LockProcessor(RebalanceLockManager(FakeClock()))
    command = RemotingCommand.request(code, body=bytes(MAX_BYTES + 1))
    with pytest.raises(RequestError, match="of 2097153 bytes, over the limit of 2097152"):
        processor.process_request(FakeConnection(), command)


@pytest.mark.parametrize("place", ["client_id", "consumer_group", "topic", "broker_name"])
def test_a_long_name_is_not_kept(place: str) -> None:
    names = {"client_id": "c", "consumer_group": "g", "topic": "t", "broker_name": "b"}
    names[place] = "x" * 256
    queue = MessageQueue(topic=names["topic"], broker_name=names["broker_name"], queue_id=0)
    body = LockBatchRequestBody(
        client_id=names["client_id"], consumer_group=names["consumer_group"], mq_set=[queue]
    )
    command = RemotingCommand.request(41, body=body.to_json_bytes())
    with pytest.raises(RequestError, match="a name of 256 characters, over the limit of 255"):
        LockProcessor(RebalanceLockManager(FakeClock())).process_request(FakeConnection(), command)


def test_what_one_request_locks_is_bounded() -> None:
    locks = RebalanceLockManager(FakeClock())
    processor = LockProcessor(locks)
    queues = [MessageQueue(topic="t", broker_name="b", queue_id=n) for n in range(MAX_QUEUES + 1)]
    for count in (MAX_QUEUES + 1, MAX_QUEUES):
        body = LockBatchRequestBody(client_id="c", consumer_group="g", mq_set=queues[:count])
        command = RemotingCommand.request(41, body=body.to_json_bytes())
        if count > MAX_QUEUES:
            with pytest.raises(RequestError, match="10001 queues to lock, over the limit of 10000"):
                processor.process_request(FakeConnection(), command)
            continue
        answer = processor.process_request(FakeConnection(), command)
        assert answer is not None
        assert len(LockBatchResponseBody.from_json_bytes(answer.body).lock_okmqset) == MAX_QUEUES

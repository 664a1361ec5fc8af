"""broker.client.broker2client: requests over the clients' own connections, and how they end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.client.broker2client import Broker2Client, max_waiting_calls
from broker.client.client_channel_info import ClientChannelInfo
from broker.client.consumer_manager import ConsumerManager, DefaultConsumerIdsChangeListener
from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import GetConsumerStatusBody
from remoting.errors import RemotingSendRequestError, RemotingTimeoutError, RequestError
from remoting.headers.transaction import CheckTransactionStateRequestHeader
from remoting.mq_version import CURRENT_VERSION, V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.response_table import ResponseFuture, ResponseTable
from tests.broker.broker_fakes import (
    FakeClock,
    FakeConnection,
    FakeGroupFilters,
    json_of,
    request_of,
)
from tests.broker.client.test_consumer_manager import data_of

Answer = Callable[[RemotingCommand], RemotingCommand | None]
QUEUE = MessageQueue(broker_name="b", queue_id=3, topic="t")


class AnsweringConnection(FakeConnection):
    """A client whose answers are there at once."""

    def __init__(self, responses: ResponseTable, answer: Answer) -> None:
        super().__init__()
        self._responses = responses
        self._answer = answer

    def send_command(self, command: RemotingCommand) -> None:
        super().send_command(command)
        answer = self._answer(command)
        if answer is not None:
            self._responses.complete(answer)


class ClientWorld:
    """Consumers of group `g` and a Broker2Client that waits for 1 ms at most."""

    def __init__(self, responses: ResponseTable | None = None, max_waiting: int = 2) -> None:
        self.clock = FakeClock()
        self.responses = ResponseTable() if responses is None else responses
        self.consumers = ConsumerManager(
            self.clock, DefaultConsumerIdsChangeListener(FakeGroupFilters())
        )
        self.clients = Broker2Client(
            self.consumers,
            self.responses,
            self.clock,
            max_waiting=max_waiting,
            call_timeout_ms=1,
            status_timeout_ms=1,
        )

    def join(
        self, client_id: str, answer: Answer = lambda _: None, version: int = CURRENT_VERSION
    ) -> AnsweringConnection:
        connection = AnsweringConnection(self.responses, answer)
        info = ClientChannelInfo(
            connection, client_id, language=0, version=version, last_update_ms=self.clock.now_ms()
        )
        self.consumers.register_consumer(data_of("g", "t"), info, notify=False)
        connection.sent.clear()
        return connection


def refusal(function: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        function()
    return caught.value.code, caught.value.remark


def status_of(offset: int) -> Answer:
    body = GetConsumerStatusBody(message_queue_table={QUEUE: offset}).to_json_bytes()
    return lambda request: request.response(0, body=body)


# -- one client ----------------------------------------------------------------------------------


def test_a_transaction_check_is_oneway() -> None:
    world = ClientWorld()
    producer = FakeConnection()
    header = CheckTransactionStateRequestHeader(
        tran_state_table_offset=7,
        commit_log_offset=900,
        msg_id="UNIQ",
        transaction_id="UNIQ",
        offset_msg_id="7F00",
    )
    world.clients.check_producer_transaction_state(producer, header, b"half")
    (sent,) = producer.sent
    assert (sent.code, sent.is_oneway, sent.body) == (39, True, b"half")
    assert sent.ext_fields == {
        "tranStateTableOffset": "7",
        "commitLogOffset": "900",
        "msgId": "UNIQ",
        "transactionId": "UNIQ",
        "offsetMsgId": "7F00",
    }
    assert len(world.responses) == 0


def test_a_consumer_gets_the_fields_and_the_body_and_its_answer_comes_back() -> None:
    world = ClientWorld()
    client = world.join("c", lambda request: request.response(1, "as told", {"k": "v"}, b"info"))
    asked = request_of(307, b"body", consumerGroup="g", clientId="c", jstackEnable="true")
    answer = world.clients.call_consumer(RequestCode.GET_CONSUMER_RUNNING_INFO, "g", "c", asked)
    assert (answer.code, answer.remark, answer.ext_fields, answer.body) == (
        1,
        "as told",
        {"k": "v"},
        b"info",
    )
    (sent,) = client.sent
    assert (sent.code, sent.ext_fields, sent.body) == (307, asked.ext_fields, b"body")
    assert sent.opaque != asked.opaque
    assert not sent.is_oneway


@pytest.mark.parametrize(
    ("version", "remark"),
    [
        (None, "The Consumer <g> <c> not online"),
        (
            V3_1_8_SNAPSHOT - 1,
            "The Consumer <c> Version <V3_1_7> too low to finish, please upgrade it to "
            "V3_1_8_SNAPSHOT",
        ),
    ],
)
def test_an_offline_or_old_consumer_is_not_asked(version: int | None, remark: str) -> None:
    world = ClientWorld()
    client = None if version is None else world.join("c", version=version)
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    found = refusal(lambda: world.clients.call_consumer(code, "g", "c", request_of(307)))
    assert found == (ResponseCode.SYSTEM_ERROR, remark)
    assert client is None or client.sent == []


def test_a_consumer_of_the_first_version_that_can_is_asked() -> None:
    world = ClientWorld()
    world.join("c", lambda request: request.response(0), version=V3_1_8_SNAPSHOT)
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    assert world.clients.call_consumer(code, "g", "c", request_of(307)).code == 0


def test_a_silent_consumer_is_a_timeout() -> None:
    world = ClientWorld()
    client = world.join("c")
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    found = refusal(lambda: world.clients.call_consumer(code, "g", "c", request_of(309)))
    assert found == (
        ResponseCode.CONSUME_MSG_TIMEOUT,
        f"consumer <g> <c> Timeout: {client.remote_address}: no response within 1 ms",
    )
    assert len(world.responses) == 0


def test_a_consumer_that_goes_away_is_an_error_at_once() -> None:
    world = ClientWorld()

    def leave(_request: RemotingCommand) -> None:
        error = RemotingSendRequestError("127.0.0.1:40000", "closed by the peer")
        world.responses.fail_address("127.0.0.1:40000", error)

    world.join("c", leave)
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    found = refusal(lambda: world.clients.call_consumer(code, "g", "c", request_of(309)))
    assert found == (
        ResponseCode.SYSTEM_ERROR,
        "invoke consumer <g> <c> Exception: 127.0.0.1:40000: closed by the peer",
    )


def test_a_connection_that_was_closed_before_fails_at_once() -> None:
    world = ClientWorld()
    client = FakeConnection()
    client.is_open = False
    with pytest.raises(RemotingSendRequestError, match="the connection is closed"):
        world.clients.call_client(client, request_of(307))
    assert len(world.responses) == 0


class LateTable(ResponseTable):
    """The answer comes when the waiting thread has given up but not said so yet."""

    def take(self, opaque: int) -> ResponseFuture | None:
        found = super().take(opaque)
        if found is not None:
            found.callback(RemotingCommand(0, opaque=opaque, flag=1, remark="late"), None)
        return None


def test_an_answer_in_the_moment_of_the_timeout_counts() -> None:
    world = ClientWorld(LateTable())
    assert world.clients.call_client(FakeConnection(), request_of(307)).remark == "late"


def test_no_more_than_a_few_wait() -> None:
    world = ClientWorld(max_waiting=1)
    refused: list[RequestError] = []

    def ask_again(request: RemotingCommand) -> RemotingCommand:
        with pytest.raises(RequestError) as caught:
            world.clients.call_client(FakeConnection(), request_of(307))
        refused.append(caught.value)
        return request.response(0)

    client = world.join("c", ask_again)
    for _ in range(2):
        assert world.clients.call_client(client, request_of(307)).code == 0
    assert [(error.code, error.remark) for error in refused] == 2 * [
        (
            ResponseCode.SYSTEM_BUSY,
            "too many requests are waiting for responses of clients (1; "
            "adminBrokerThreadPoolNums sets it); try again in a few seconds",
        )
    ]


def test_a_timeout_frees_its_place() -> None:
    world = ClientWorld(max_waiting=1)
    for _ in range(2):
        with pytest.raises(RemotingTimeoutError):
            world.clients.call_client(FakeConnection(), request_of(307))


@pytest.mark.parametrize(("threads", "waiting"), [(1, 1), (2, 1), (4, 3)])
def test_one_thread_of_a_pool_is_kept(threads: int, waiting: int) -> None:
    assert max_waiting_calls(threads) == waiting


# -- every client of a group ---------------------------------------------------------------------


def test_a_reset_goes_to_every_member() -> None:
    world = ClientWorld()
    members = [world.join("c1"), world.join("c2")]
    world.clients.reset_offset("g", "t", 1234, {QUEUE: 55})
    for member in members:
        (sent,) = member.sent
        assert (sent.code, sent.is_oneway) == (220, True)
        assert sent.ext_fields == {
            "topic": "t",
            "group": "g",
            "timestamp": "1234",
            "isForce": "false",
        }
        assert sent.body == b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:55}}'
    assert members[0].sent[0].opaque != members[1].sent[0].opaque


def test_a_reset_for_cpp_is_a_list() -> None:
    world = ClientWorld()
    member = world.join("c1")
    world.clients.reset_offset("g", "t", -1, {QUEUE: 55}, for_cpp=True)
    (sent,) = member.sent
    assert json_of(sent.body) == {
        "offsetTable": [{"brokerName": "b", "offset": 55, "queueId": 3, "topic": "t"}]
    }


def test_a_reset_needs_somebody_online() -> None:
    found = refusal(lambda: ClientWorld().clients.reset_offset("g", "t", 9, {QUEUE: 1}))
    assert found == (
        ResponseCode.CONSUMER_NOT_ONLINE,
        "Consumer not online, so can not reset offset, Group: g Topic: t Timestamp: 9",
    )


def test_a_reset_with_one_old_member_tells_nobody() -> None:
    world = ClientWorld()
    members = [world.join("new"), world.join("old", version=V3_0_7_SNAPSHOT - 1)]
    found = refusal(lambda: world.clients.reset_offset("g", "t", 9, {QUEUE: 1}))
    assert found == (
        ResponseCode.SYSTEM_ERROR,
        "the client does not support this feature. version=V3_0_6",
    )
    assert [member.sent for member in members] == [[], []]


def test_the_status_of_every_member_that_answers(caplog: pytest.LogCaptureFixture) -> None:
    world = ClientWorld()
    world.join("c1", status_of(5))
    asked = world.join("c2", status_of(6))
    world.join("silent")
    world.join("refuses", lambda request: request.response(1, "no"))
    world.join("talks nonsense", lambda request: request.response(0, body=b"<html>"))
    found = world.clients.get_consume_status("g", "t", None)
    assert found == {"c1": {QUEUE: 5}, "c2": {QUEUE: 6}}
    (sent,) = asked.sent
    assert (sent.code, sent.ext_fields) == (221, {"topic": "t", "group": "g"})
    for name in ("silent", "refuses", "talks nonsense"):
        assert f"consume status of {name} at" in caplog.text
    assert len(world.responses) == 0


def test_the_status_of_the_named_member() -> None:
    world = ClientWorld()
    world.join("c1", status_of(5))
    other = world.join("old", version=1)
    assert world.clients.get_consume_status("g", "t", "c1") == {"c1": {QUEUE: 5}}
    assert other.sent == []
    assert world.clients.get_consume_status("g", "t", "unknown") == {}


@pytest.mark.parametrize(
    ("version", "remark"),
    [
        (None, "No Any Consumer online in the consumer group: [g]"),
        (3, "the client does not support this feature. version=V3_0_0_BETA2"),
    ],
)
def test_a_status_that_cannot_be_had(version: int | None, remark: str) -> None:
    world = ClientWorld()
    if version is not None:
        world.join("c", version=version)
    found = refusal(lambda: world.clients.get_consume_status("g", "t", None))
    assert found == (ResponseCode.SYSTEM_ERROR, remark)

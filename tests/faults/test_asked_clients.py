"""A running broker asks its clients over their own connections; nobody else waits for them."""

from __future__ import annotations

from pathlib import Path

from remoting.body.heartbeat import HeartbeatData
from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import ResetOffsetBody
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.remoting_command import RemotingCommand
from tests.broker.client.test_consumer_manager import data_of
from tests.remoting.test_remoting_server import Peer
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker

CONSUMER = {"consumerGroup": "g", "clientId": "c"}


def consumer_of(broker: OurBroker) -> Peer:
    """A connected consumer `c` of group `g`, which reads what it is sent when its test does."""
    peer = Peer(("127.0.0.1", broker.ports["main"]))
    body = HeartbeatData(client_id="c", consumer_data_set=[data_of("g", "T")]).to_json_bytes()
    peer.send(RemotingCommand.request(34, {}, body))
    while not peer.receive().is_response:
        pass
    return peer


def test_others_are_served_while_clients_are_asked(tmp_path: Path) -> None:
    with OurBroker(tmp_path).start() as broker:
        consumer = consumer_of(broker)
        operators = [broker.client() for _ in range(4)]
        opaques = [operator.post(307, CONSUMER) for operator in operators[:3]]
        asked = [consumer.receive() for _ in opaques]
        assert {command.code for command in asked} == {307}
        busy = operators[3].call(307, CONSUMER)
        assert (busy.code, busy.remark) == (
            2,
            "too many requests are waiting for responses of clients (3; "
            "adminBrokerThreadPoolNums sets it); try again in a few seconds",
        )
        assert operators[3].call(26, {}).code == 0
        assert operators[3].send("T", 0, b"x").code == 0
        for number, command in enumerate(asked):
            consumer.send(command.response(0, None, None, b"%d" % number))
        answers = [op.take(opaque) for op, opaque in zip(operators[:3], opaques, strict=True)]
        assert sorted(answer.body for answer in answers) == [b"0", b"1", b"2"]
        opaque = operators[0].post(307, CONSUMER)
        consumer.receive()
        consumer.sock.close()
        gone = operators[0].take(opaque)
        assert gone.code == 1
        assert (gone.remark or "").startswith("invoke consumer <g> <c> Exception: 127.0.0.1:")
        assert broker.terminate() == 0


def _end_of_queue(operator: FrameClient) -> int:
    return int((operator.call(30, {"topic": "T", "queueId": 0}).ext_fields or {})["offset"])


def test_a_reset_reaches_the_client(tmp_path: Path) -> None:
    with OurBroker(tmp_path, brokerName="b").start() as broker, broker.client() as operator:
        assert operator.send("T", 0, b"x").code == 0
        operator.call(200, {}, SubscriptionGroupConfig(group_name="g").to_json_bytes())
        fields = {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"}
        for queue_id in range(4):
            commit = {"consumerGroup": "g", "topic": "T", "queueId": queue_id, "commitOffset": 0}
            operator.call(15, commit)
        wait_until(lambda: _end_of_queue(operator) == 1)
        assert operator.call(222, fields).code == 206
        consumer = consumer_of(broker)
        answer = operator.call(222, fields)
        told = consumer.receive()
        assert (answer.code, told.code, told.is_oneway) == (0, 220, True)
        table = ResetOffsetBody.from_json_bytes(told.body).offset_table
        assert table == ResetOffsetBody.from_json_bytes(answer.body).offset_table
        assert table[MessageQueue(broker_name="b", queue_id=0, topic="T")] == 1
        assert broker.terminate() == 0

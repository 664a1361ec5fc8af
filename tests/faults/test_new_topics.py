"""Whoever is answered for a topic that was made for them finds it at every name server."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from remoting.body.heartbeat import HeartbeatData
from tests.broker.client.test_consumer_manager import data_of
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker, drain

NEW_TOPICS = 100
_ROUTE_OF_TOPIC = 105


def routes_of(broker: OurBroker) -> FrameClient:
    """A client of the broker's own name server."""
    return FrameClient(("127.0.0.1", broker.ports["namesrv"]))


Ask = Callable[[FrameClient, int], str]
"""Makes a request that needs a new topic; the topic, once the request is answered."""


def a_send(client: FrameClient, number: int) -> str:
    assert client.send(f"Sent{number}", 0, b"x").code == 0
    return f"Sent{number}"


def a_heartbeat(client: FrameClient, number: int) -> str:
    group = f"beating{number}"
    body = HeartbeatData(client_id="c", consumer_data_set=[data_of(group, "T")]).to_json_bytes()
    assert client.call(34, {}, body).code == 0
    return f"%RETRY%{group}"


def a_message_sent_back(client: FrameClient, number: int) -> str:
    sent = client.send("T", 0, b"x")
    group = f"returning{number}"
    fields = {"offset": sent.phy_offset, "group": group, "delayLevel": -1}
    assert client.call(36, fields).code == 0
    return f"%DLQ%{group}"


def a_created_topic(client: FrameClient, number: int) -> str:
    fields = {
        "topic": f"Made{number}",
        "defaultTopic": "TBW102",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
    }
    assert client.call(17, fields).code == 0
    return f"Made{number}"


def a_reply(client: FrameClient, number: int) -> str:
    fields = {"a": "p", "b": f"Reply{number}", "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1}
    client.call(325, {**fields, "h": 0, "i": "", "j": 0, "k": "false", "l": 16, "m": "false"})
    return f"Reply{number}"


@pytest.mark.parametrize(
    "ask", [a_send, a_heartbeat, a_message_sent_back, a_created_topic, a_reply]
)
def test_a_new_topic_has_a_route_when_its_request_is_answered(tmp_path: Path, ask: Ask) -> None:
    with (
        OurBroker(tmp_path).start() as broker,
        broker.client() as client,
        routes_of(broker) as routes,
    ):
        missing = []
        for number in range(NEW_TOPICS):
            topic = ask(client, number)
            if routes.call(_ROUTE_OF_TOPIC, {"topic": topic}).code != 0:
                missing.append(topic)
        assert missing == []


def test_only_what_needs_a_new_topic_waits_for_a_name_server_that_hangs(tmp_path: Path) -> None:
    with OurBroker(tmp_path / "a").start() as first, OurBroker(tmp_path / "b").start() as other:
        servers = [f"127.0.0.1:{each.ports['namesrv']}" for each in (first, other)]
        broker = OurBroker(tmp_path / "c", brokerName="b", namesrvAddr=";".join(servers))
        broker.settings["registerBrokerTimeoutMills"] = 600_000
        with broker.start(), broker.client() as client, broker.client() as second:
            assert client.send("Old", 0, b"x").code == 0
            hung = other.stop("namesrv")
            opaques = [
                each.post_send("New", 0, b"%d" % n) for n, each in enumerate((client, second))
            ]
            pipelined = client.post_send("New", 0, b"2")
            with broker.client() as third:
                assert third.send("Old", 0, b"x").code == 0
                assert third.pull("New", 0, 0).messages == []
            with pytest.raises(TimeoutError):
                client.take_send(opaques[0], timeout_s=0.2)
            os.kill(hung, signal.SIGCONT)
            assert second.take_send(opaques[1]).code == 0
            assert client.take_send(pipelined).code == 0
            wait_until(lambda: len(drain(client, "New", 0)) == 3)
            for each in (first, other):
                with routes_of(each) as routes:
                    assert routes.call(_ROUTE_OF_TOPIC, {"topic": "New"}).code == 0

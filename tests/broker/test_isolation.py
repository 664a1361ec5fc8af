"""A broker that starts isolated, as real processes: what is refused, what goes on, what is said.

The name server is scripted: it names a replica that never links, and keeps who registers.
"""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.remoting_command import RemotingCommand
from tests.broker.twin_requests import SEND
from tests.broker.wiring.test_closed_members import POPS, PUTS
from tests.remoting.fake_peer import FakePeer, PeerConnection
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker
from tests.support.pop_client import PopClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TOPIC = "T"
REGISTER, HEARTBEATS = 103, {322, 904}
DUE_S = 4.0
"""After which the timer and the delayed message of a test would have come out."""
ISOLATED = {"enableSlaveActingMaster": "true", "totalReplicas": 2, "preOnlineMaxWait": 0}


class Names:
    """A name server that knows one replica, at a closed port."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.members = {"1": "127.0.0.1:9"}
        self.peer = FakePeer(self._answer)

    def _answer(self, connection: PeerConnection, request: RemotingCommand) -> None:
        self.asked.append(request.code)
        if request.code != 105:
            connection.send(request.response(0, None, {}, b""))
            return
        topic = request.ext_fields["topic"]
        name = topic.removeprefix("rmq_sys_SYNC_BROKER_MEMBER_")
        group = {"cluster": "DefaultCluster", "brokerName": name, "brokerAddrs": self.members}
        body = json.dumps({"queueDatas": [], "brokerDatas": [group]}).encode()
        connection.send(request.response(0, None, {}, body))

    def registered(self) -> bool:
        return bool({REGISTER, *HEARTBEATS} & set(self.asked))


@pytest.fixture
def names() -> Iterator[Names]:
    names = Names()
    yield names
    names.peer.stop()


@pytest.fixture
def broker(names: Names, tmp_path: Path) -> Iterator[OurBroker]:
    broker = OurBroker(tmp_path, brokerName="a", namesrvAddr=names.peer.address, listenPort=0)
    try:
        yield broker
    finally:
        broker.crash()


def ready(broker: OurBroker) -> str:
    """What /readyz says."""
    url = f"http://127.0.0.1:{broker.ports['metrics']}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


def test_an_isolated_broker(broker: OurBroker, names: Names) -> None:
    """First one that would be, but for skipPreOnline: it registers at once."""
    broker.settings.update(ISOLATED, skipPreOnline="true")
    broker.start()
    assert names.registered()
    with broker.client() as client:
        assert client.send(TOPIC, 0, b"before").code == 0
    assert broker.terminate() == 0

    names.asked.clear()
    broker.settings.pop("skipPreOnline")
    broker.start()
    wait_until(lambda: "waits for broker id 1" in ready(broker))
    with broker.client() as client:
        refused = client.send(TOPIC, 0, b"isolated")
        assert (refused.code, "isolated" in refused.remark) == (14, True)
        assert [m.body for m in client.pull(TOPIC, 0, 0).messages] == [b"before"]
        assert client.call(15, queue("g") | {"commitOffset": 1}).code == 0
        assert PopClient(client, "g", "a").pop(TOPIC).code == 16
        assert "waits for broker id 1" in json.loads(client.call(907, {}).body)["isolated"]
        assert "waits for broker id 1" in json.loads(client.call(28, {}).body)["table"]["isolated"]
        assert client.call(43, {}).code == 1, "slaves copy nothing that is not known to be right"
        assert client.call(60, {}).code == 1
        assert client.call(17, NEW_TOPIC).code == 0
    wait_until(lambda: names.asked.count(105) > 3)
    assert not names.registered(), "not even for a new topic"

    names.members = {}
    wait_until(names.registered)
    wait_until(lambda: ready(broker).startswith("ready"))
    with broker.client() as client:
        assert client.send(TOPIC, 0, b"after").code == 0
        assert "isolated" not in json.loads(client.call(907, {}).body)
    assert broker.terminate() == 0


def test_a_stop_does_not_wait_for_the_group(broker: OurBroker, names: Names) -> None:
    broker.settings.update(ISOLATED)
    broker.start()
    assert broker.terminate() == 0
    assert not names.registered()


def log_end(broker: OurBroker) -> int:
    with broker.client() as client:
        return int(json.loads(client.call(28, {}).body)["table"]["commitLogMaxOffset"])


def test_nothing_is_stored_by_any_entrance_nor_by_a_broker_itself(
    broker: OurBroker, names: Names
) -> None:
    """Also where process `remoting` alone begins anew. What is due meanwhile comes out later."""
    switches = ("enableLmq", "enableMultiDispatch", "recallMessageEnable")
    broker.settings.update(dict.fromkeys(switches, "true"), brokerName="broker-a", **ISOLATED)
    members, names.members = names.members, {}
    broker.start()
    wait_until(names.registered)
    with broker.client() as client:
        for number in range(3):
            assert client.send(TOPIC, 0, b"kept", f"k{number}").code == 0
        halves = _put(client, "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U", f=4)
        timer = _put(client, "TIMER_DELAY_MS\x012500\x02UNIQ_KEY\x01V")
        _put(client, "DELAY\x011")
        due_s = time.monotonic() + DUE_S
        wait_until(lambda: client.offset(30, TOPIC, 0) >= 3)
        popped = PopClient(client, "G", "broker-a").pop(TOPIC, queueId=0, maxMsgNums=1)
        known = {
            "PLACE": "0",
            "HALF_ID": halves["msgId"],
            "HALF_PLACE": str(int(halves["msgId"][16:], 16)),
            "HALF_OFFSET": halves["queueOffset"],
            "RECALL": timer["recallHandle"],
            "HANDLE": popped.messages[0].handle,
            "POPPED": str(popped.messages[0].offset),
        }
    names.members = members
    wait_until(lambda: log_end(broker) > 0)
    os.kill(broker.children()["remoting"], signal.SIGKILL)
    wait_until(lambda: "isolated" in ready(broker), 30)
    end = log_end(broker)
    for name, ask in (PUTS | POPS).items():
        fields = {key: _named(value, known) for key, value in ask.fields.items()}
        with broker.client() as client:
            answer = client.call(ask.code, fields, ask.body)
        # What the pop buffer holds needs no record to be acknowledged.
        assert (name, answer.code != 0 or name in ACKS, log_end(broker)) == (name, True, end)
        assert ask.code != 37 or answer.code == 14, "at once: it waits for nothing"
    wait_until(lambda: time.monotonic() > due_s)
    assert log_end(broker) == end

    names.members = {}
    wait_until(lambda: ready(broker).startswith("ready"), 30)
    with broker.client() as client:
        wait_until(lambda: client.offset(30, TOPIC, 0) == 5, 30)


def _put(client: FrameClient, properties: str, f: int = 0) -> dict[str, str]:
    fields = SEND | {"i": properties, "f": f, "g": int(time.time() * 1000)}
    answer = client.call(310, fields, b"kept")
    assert answer.code == 0, answer
    return dict(answer.ext_fields)


def _named(value: object, known: dict[str, str]) -> object:
    return known[value[1:]] if isinstance(value, str) and value.startswith("@") else value


ACKS = POPS.keys() - {"a pop"}
NEW_TOPIC = {
    "topic": "N",
    "defaultTopic": "TBW102",
    "readQueueNums": 1,
    "writeQueueNums": 1,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
}


def queue(group: str) -> dict[str, object]:
    return {"consumerGroup": group, "topic": TOPIC, "queueId": 0}

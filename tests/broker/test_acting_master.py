"""A slave acts as master, as real processes: what clients find there, and what it delivers.

The slave runs the name server, so that it outlives the master; a second group takes what the acting
slave must not write. tests/interop/test_acting_master.py has the same with RocketMQ's peers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_group import ASYNC_MASTER, SLAVE, Group
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker
from tests.support.pop_client import PopClient
from tools.chaos.free_ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TOPIC = "T"
COUNT = 20
ACTING = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "totalReplicas": 2,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 60_000,
    "enablePopBufferMerge": "false",
}
DELAYS = {"messageDelayLevel": "6s 1s"}


class World:
    """broker-a: `master` and `slave` with the name server; `other`: the master of broker-b."""

    def __init__(self, root: Path) -> None:
        self.group = Group(root)
        self.slave, self.master = self.group.first, self.group.second
        self.namesrv = self.slave.settings["embeddedNamesrvPort"]
        self.other = OurBroker(
            root / "other",
            brokerName="broker-b",
            listenPort=free_port(-2, 1),
            namesrvAddr=f"127.0.0.1:{self.namesrv}",
        )

    def start_slave(self) -> None:
        own = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
        self.group.start(self.slave, SLAVE, **ACTING, **DELAYS, **own)

    def start(self) -> None:
        self.start_slave()
        self.other.start()
        self.start_master()

    def start_master(self) -> None:
        """It registers once the slave is linked."""
        self.group.start(self.master, ASYNC_MASTER, **ACTING, **DELAYS)
        wait_until(lambda: self.id_0() == address(self.master), 30)

    def id_0(self) -> object:
        """Who is shown as the master of broker-a."""
        with FrameClient(("127.0.0.1", int(str(self.namesrv)))) as client:
            answer = client.call(105, {"topic": "TBW102", "acceptStandardJsonOnly": "true"})
        groups = json.loads(answer.body)["brokerDatas"] if answer.code == 0 else ()
        return next((g["brokerAddrs"].get("0") for g in groups if g["brokerName"] == "broker-a"), 0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    with world.group.running():
        try:
            yield world
        finally:
            world.other.crash()


def address(broker: OurBroker) -> str:
    return f"127.0.0.1:{broker.ports['main']}"


def bodies(broker: OurBroker, queues: int = 8) -> list[bytes]:
    found: list[bytes] = []
    with broker.client() as client:
        for queue_id in range(queues):
            end, offset = client.offset(30, TOPIC, queue_id), 0
            while offset < end:
                messages = client.pull(TOPIC, queue_id, offset).messages
                found += [message.body for message in messages]
                offset += len(messages)
    return found


def call(broker: OurBroker, code: int, body: bytes = b"", **fields: object) -> tuple[int, bytes]:
    with broker.client() as client:
        answer = client.call(code, fields, body)
    return answer.code, answer.body or json.dumps(dict(answer.ext_fields)).encode()


def commit(broker: OurBroker, offset: int) -> None:
    queue = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0}
    assert call(broker, 15, **queue, commitOffset=offset)[0] == 0


def committed(broker: OurBroker) -> int:
    queue = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0}
    code, body = call(broker, 14, **queue)
    return int(json.loads(body)["offset"]) if code == 0 else -1


def lock(broker: OurBroker, client_id: str) -> int:
    """How many of one queue the client holds now."""
    queue = {"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}
    asked = {"consumerGroup": "g", "clientId": client_id, "mqSet": [queue]}
    code, body = call(broker, 41, json.dumps(asked).encode())
    assert code == 0
    return len(json.loads(body)["lockOKMQSet"])


def test_the_slave_stands_in_for_its_master(world: World) -> None:
    world.start()
    delayed = [b"delayed-%d" % number for number in range(COUNT)]
    with world.other.client() as client:
        assert client.send(TOPIC, 0, b"at once, elsewhere").code == 0
    with world.master.client() as client:
        assert client.send(TOPIC, 0, b"at once").code == 0
        for body in delayed:
            assert client.send(TOPIC, 0, body, "k\x02DELAY\x011").code == 0
    with world.slave.client() as client:
        wait_until(lambda: client.offset(30, "SCHEDULE_TOPIC_XXXX", 0) == COUNT, 30)
    wait_until(lambda: call(world.slave, 351, topic=TOPIC)[0] == 0, 30)
    world.master.crash()

    # Clients are sent to the slave: they read, lock queues and commit offsets there.
    wait_until(lambda: world.id_0() == address(world.slave), 30)
    wait_until(lambda: "this slave acts as master" in world.slave.log("remoting"), 30)
    assert b"at once" in bodies(world.slave)
    assert (lock(world.slave, "c1"), lock(world.slave, "c2")) == (1, 0)
    commit(world.slave, 1)
    with world.slave.client() as client:
        assert client.send(TOPIC, 0, b"refused").code == 14

    # What is due goes to the other group.
    own = set(bodies(world.slave))
    wait_until(lambda: {*bodies(world.other), *own} >= set(delayed), 60)

    # The master takes over what happened meanwhile.
    world.start_master()
    assert committed(world.master) == 1
    wait_until(lambda: b"{1:%d}" % COUNT in call(world.master, 45)[1], 30)
    with world.master.client() as client:
        assert client.send(TOPIC, 0, b"anew", "k\x02DELAY\x012").code == 0
    wait_until(lambda: b"anew" in bodies(world.master), 60)
    both = bodies(world.master) + bodies(world.other)
    assert sorted(body for body in both if body in delayed) == sorted(delayed)


TIMERS = [b"timer-%d" % number for number in range(COUNT)]
HALVES, RETRIES = "RMQ_SYS_TRANS_HALF_TOPIC", "%RETRY%pg_" + TOPIC


def end_of(broker: OurBroker, topic: str) -> int:
    with broker.client() as client:
        return client.offset(30, topic, 0)


def log_end(broker: OurBroker) -> str:
    table = json.loads(call(broker, 28)[1])["table"]
    return str(table["commitLogMaxOffset"])


def test_timers_transactions_and_pops_go_on_elsewhere(world: World) -> None:
    """What the master of a group kept for later is delivered, handed over or revived by its slave
    at another broker, once, and the returning master leaves it alone."""
    world.start()
    with world.other.client() as client:
        assert client.send(TOPIC, 0, b"elsewhere").code == 0
    with world.master.client() as client:
        assert client.send(TOPIC, 0, b"popped").code == 0
        assert client.send(TOPIC, 0, b"acked").code == 0
        wait_until(lambda: end_of(world.master, TOPIC) == 2)
        pops = PopClient(client, "pg", "broker-a")
        first, second = pops.pop(TOPIC, maxMsgNums=2, invisibleTime=10_000).messages
        acked = {each.message.body: each for each in (first, second)}[b"acked"]
        assert pops.ack(acked).code == 0
        half = "k\x02TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U"
        assert client.send(TOPIC, 0, b"undecided", half).code == 0
        for body in TIMERS:
            assert client.send(TOPIC, 0, body, "k\x02TIMER_DELAY_SEC\x0112").code == 0
    wait_until(lambda: log_end(world.slave) == log_end(world.master), 30)
    wait_until(lambda: call(world.slave, 351, topic=TOPIC)[0] == 0, 30)
    wait_until(lambda: b'"pg"' in call(world.slave, 201)[1], 30)
    world.master.crash()
    wait_until(lambda: "this slave acts as master" in world.slave.log("remoting"), 30)

    wait_until(lambda: set(bodies(world.other)) >= set(TIMERS), 60)
    wait_until(lambda: end_of(world.other, HALVES) == 1, 30)
    wait_until(lambda: end_of(world.other, RETRIES) == 1, 30)
    with world.other.client() as client:
        (revived,) = client.pull(RETRIES, 0, 0).messages
        assert (revived.body, revived.reconsume_times) == (b"popped", 1)
        (handed,) = client.pull(HALVES, 0, 0).messages
        assert handed.body == b"undecided"
        assert handed.find_property("REAL_TOPIC") == TOPIC

    world.start_master()
    wait_until(lambda: "delivering timers from" in world.master.log("remoting"), 30)
    with world.master.client() as client:
        # One that is due after all of theirs: when it is out, they would be, too.
        assert client.send(TOPIC, 0, b"anew", "k\x02TIMER_DELAY_SEC\x013").code == 0
    wait_until(lambda: b"anew" in bodies(world.master), 60)
    both = bodies(world.master) + bodies(world.other)
    assert sorted(body for body in both if body in TIMERS) == sorted(TIMERS)
    progress = {"consumerGroup": "CID_RMQ_SYS_TRANS", "topic": HALVES, "queueId": 0}
    assert json.loads(call(world.master, 14, **progress)[1])["offset"] == "1"
    assert end_of(world.master, RETRIES) == 0
    assert end_of(world.other, HALVES) == end_of(world.other, RETRIES) == 1


def test_the_flushed_offset_that_an_operator_sets_lasts(world: World) -> None:
    def shown(broker: OurBroker) -> int:
        info = json.loads(call(broker, 907)[1])["haClientRuntimeInfo"]
        return int(info["masterFlushOffset"])

    world.start_slave()
    assert call(world.slave, 908, masterFlushOffset=77)[0] == 0
    assert shown(world.slave) == 77
    assert world.slave.terminate() == 0
    world.start_slave()
    assert shown(world.slave) == 77

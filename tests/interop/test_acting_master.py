"""A slave acts as master: name servers, brokers and clients of RocketMQ 5.3.3 with ours.

The master is killed; its slave is shown in its place, and an orderly consumer, which locks its
queues at id 0, reads there and commits its offsets there. All of them start isolated
(totalReplicas=2): the master that returns is shown once its slave is linked and was asked. And:
what the two kinds of brokers answer to the codes of modes that are off
(tests/golden/default-modes-5.3.3.json).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remoting.remoting_serializable import loads_lenient
from tests.interop import harness
from tests.interop.clients import Client, Cluster
from tests.interop.driver import Driver, by_queue
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until
from tests.interop.replication import Group, start_all, wait_caught_up
from tests.support.our_broker import FrameClient

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

GOLDEN = Path(__file__).parents[1] / "golden" / "default-modes-5.3.3.json"
_COUNT = 100
_SOON = {"slaveSyncInterval": "500"}


class Acting:
    """A name server that supports acting masters, and a group of that kind."""

    def __init__(
        self, directory: Path, drivers: Callable[[str], Driver], namesrv_kind: str, *kinds: str
    ) -> None:
        """kinds: of the master and of its slave."""
        settings = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
        self.namesrv = harness.name_server(namesrv_kind, directory / "n", settings=settings)
        self.group = Group(
            directory,
            self.namesrv.address,
            kinds,
            conf={"enableSlaveActingMaster": "true", "totalReplicas": "2"}
            | (_SOON if kinds == ("ours", "ours") else {}),
        )
        self.slave = self.group.slaves[0]
        self.client = Client(drivers(CLIENT_5), Cluster(self.namesrv, self.group.master))

    def start(self) -> Acting:
        self.namesrv.start()
        start_all(self.group.members)
        wait_until(lambda: self.addresses("TBW102").keys() == {"0", "1"}, "both registered", 60)
        return self

    def end(self) -> None:
        self.client.end()
        for broker in (self.group.master, self.slave):
            broker.end()
        self.namesrv.stop()

    def addresses(self, topic: str) -> dict[str, str]:
        """{id: address} of the group in the topic's route."""
        host, _, port = self.namesrv.address.partition(":")
        with FrameClient((host, int(port))) as client:
            answer = client.call(105, {"topic": topic})
        if answer.code != 0:
            return {}
        (broker,) = loads_lenient(answer.body)["brokerDatas"]
        return {str(broker_id): addr for broker_id, addr in broker["brokerAddrs"].items()}


@pytest.fixture(
    params=[
        pytest.param(("ours", "ours", "ours"), marks=pytest.mark.long),
        pytest.param((harness.JAVA_5, "ours", "ours"), marks=pytest.mark.slow),
        pytest.param(("ours", harness.JAVA_5, harness.JAVA_5), marks=pytest.mark.long),
        pytest.param((harness.JAVA_5, harness.JAVA_5, "ours"), marks=pytest.mark.long),
        pytest.param((harness.JAVA_5, "ours", harness.JAVA_5), marks=pytest.mark.long),
    ],
    ids=lambda kinds: f"{kinds[0]}-namesrv-{kinds[1]}-master-{kinds[2]}-slave",
)
def acting(
    request: pytest.FixtureRequest, tmp_path: Path, drivers: Callable[[str], Driver]
) -> Iterator[Acting]:
    made = Acting(tmp_path, drivers, *request.param)
    try:
        yield made.start()
    finally:
        made.end()


def test_an_orderly_consumer_goes_on_at_the_acting_master(acting: Acting, tmp_path: Path) -> None:
    client, group = acting.client, acting.client.group()
    topic = client.topic()
    sent = client.producer().send(topic, "ordered", _COUNT)
    wait_caught_up(acting.group)
    wait_until(lambda: topic in topics_of(acting.slave), "the slave has the topic", 120)
    acting.group.master.kill()
    wait_until(lambda: acting.addresses(topic) == {"0": acting.slave.address}, "the slave acts", 60)

    consumer = client.push(topic, group, orderly=True)
    received = consumer.wait_for(_COUNT)
    consumer.stop()
    assert sorted(entry.seq for entry in received) == sorted(entry.seq for entry in sent)
    for entries in by_queue(received).values():
        assert [e.queue_offset for e in entries] == list(range(len(entries)))

    acting.group.master.start()
    both = {"0": acting.group.master.address, "1": acting.slave.address}
    wait_until(lambda: acting.addresses(topic) == both, "the master is back", 60)
    for said in (tmp_path / "master").glob("java-home/logs/rocketmqlogs/broker.log"):
        # A Java master comes online by its slave's answers, and not since that was given up.
        assert "preOnline complete" in said.read_text()
        assert "GetMetadataReverse Failed" not in said.read_text()
    if acting.slave.kind == "ours":
        # The master has taken over what was committed there: nothing comes a second time.
        consumer = client.push(topic, group, orderly=True)
        more = client.producer().send(topic, "ordered", 10)
        assert sorted(e.msg_id for e in consumer.wait_for(10)) == sorted(e.msg_id for e in more)


def topics_of(broker: harness.Broker) -> set[str]:
    with broker.client() as client:
        answer = loads_lenient(client.call(21, {}).body)
    return set(answer["topicConfigTable"])


@pytest.mark.long
@pytest.mark.parametrize("role", ["master", "slave"])
def test_codes_of_modes_that_are_off(tmp_path: Path, role: str) -> None:
    """Java's answers are the golden ones, and ours are Java's."""
    golden: list[dict[str, Any]] = json.loads(GOLDEN.read_text())[role]
    conf = {"brokerRole": "SLAVE", "brokerId": "1"} if role == "slave" else {}
    for kind in (harness.JAVA_5, "ours"):
        broker = harness.broker(kind, tmp_path / kind, None, conf=conf).start()
        try:
            with broker.client() as client:
                for row in golden:
                    answer = client.call(row["request"], row["fields"], row["sent"].encode())
                    assert_same(kind, row, answer.code, answer.remark, answer.body.decode())
        finally:
            broker.end()


def assert_same(kind: str, row: dict[str, Any], code: int, remark: str | None, body: str) -> None:
    wrong_number = "x" in row["fields"].values() and row["request"] != 354
    if kind == "ours" and (wrong_number or "Exception" in (row["remark"] or "")):
        assert (code, bool(remark)) == (1, True), row
    else:
        assert (code, remark, body) == (row["code"], row["remark"], row["body"]), row

"""mqadmin 5.3.3 with requests that 4.9 does not know: what makes sense here works, the rest is told
so in words (docs/compatibility.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from remoting.remoting_serializable import loads_lenient
from tests.interop.clients import Client
from tests.interop.java_peers import CLIENT_5

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture
def client(clients: Callable[[str], Client]) -> Client:
    client = clients(CLIENT_5)
    if client.cluster.broker.kind != "ours":
        pytest.skip("about our broker")
    return client


def mqadmin(client: Client, *arguments: str) -> str:
    """Everything that a command prints."""
    return "".join(client.driver.mqadmin_texts(*arguments))


def test_several_topics_at_once(client: Client, tmp_path: Path) -> None:
    """updateTopicList (18)."""
    file = tmp_path / "topics.json"
    names = ["topics-of-5x-1", "topics-of-5x-2"]
    queues = {"readQueueNums": 3, "writeQueueNums": 2, "perm": 6}
    file.write_text(json.dumps([{"topicName": name, **queues} for name in names]))
    address = client.cluster.broker.address
    told = mqadmin(client, "updateTopicList", "-b", address, "-f", str(file))
    assert told.strip() == (
        f"submit batch of topic config to {address} success, please check the result later."
    )
    with client.cluster.broker.client() as broker:
        for name in names:
            answer = loads_lenient(broker.call(351, {"topic": name}).body)
            assert {key: answer[key] for key in queues} == queues


def test_several_groups_at_once(client: Client, tmp_path: Path) -> None:
    """updateSubGroupList (225)."""
    file = tmp_path / "groups.json"
    tries = {"groups-of-5x-1": 3, "groups-of-5x-2": 16}
    file.write_text(
        json.dumps([{"groupName": name, "retryMaxTimes": count} for name, count in tries.items()])
    )
    address = client.cluster.broker.address
    told = mqadmin(client, "updateSubGroupList", "-b", address, "-f", str(file))
    assert told.strip() == (
        f"submit batch of group config to {address} success, please check the result later."
    )
    with client.cluster.broker.client() as broker:
        for name, count in tries.items():
            answer = loads_lenient(broker.call(352, {"group": name}).body)
            assert answer["retryMaxTimes"] == count


def test_attributes_of_a_topic(client: Client) -> None:
    """updateTopic -a (17)."""
    address = client.cluster.broker.address
    topic = ("updateTopic", "-b", address, "-t", "attributes-of-5x")
    told = mqadmin(client, *topic, "-a", "+message.type=FIFO")
    assert f"create topic to {address} success." in told
    for change, words in (
        ("+message.type=BOGUS", "value is not in set: [UNSPECIFIED, MIXED, TRANSACTION, PRIORITY"),
        ("+cleanup.policy=DELETE", "attempt to update an unchangeable attribute"),
        ("+bogus=1", "unsupported key: bogus"),
    ):
        assert words in mqadmin(client, *topic, "-a", change)
    with client.cluster.broker.client() as broker:
        answer = loads_lenient(broker.call(351, {"topic": "attributes-of-5x"}).body)
        assert answer["attributes"] == {"message.type": "FIFO"}


@pytest.mark.parametrize(
    ("code", "command"),
    [
        (902, "addBroker -c {address} -b broker.conf"),
        (903, "removeBroker -c {address} -b DefaultCluster:broker:0"),
    ],
    ids=lambda value: str(value).partition(" ")[0],
)
def test_what_a_container_answers_is_named(client: Client, code: int, command: str) -> None:
    broker = client.cluster.broker
    words = command.format(address=broker.address, name=broker.name).split()
    told = mqadmin(client, *words, "-n", client.namesrv)
    assert f"CODE: 3  DESC:  request type {code} not supported" in told


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("resetMasterFlushOffset -b {address} -o 7", "reset master flush offset to 7 success"),
        ("getBrokerEpoch -b {name}", "CODE: 1  DESC: this request only for controllerMode"),
        ("exportPopRecord -b {address}", "Export broker records, brokerName="),
    ],
    ids=lambda value: str(value).partition(" ")[0],
)
def test_modes_that_a_default_broker_does_not_have(
    client: Client, command: str, words: str
) -> None:
    """908, 1007, 200056: what mqadmin prints of a Java broker with default settings, too."""
    broker = client.cluster.broker
    asked = command.format(address=broker.address, name=broker.name).split()
    assert words in mqadmin(client, *asked, "-n", client.namesrv)

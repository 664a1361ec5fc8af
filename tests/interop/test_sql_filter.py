"""MessageSelector.bySql: RocketMQ's example, the language's edges, refusals, the file.

Each expression has its own group. The same scenarios pass with a Java broker (README.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop import harness
from tests.interop.clients import (
    AnotherBroker,
    Client,
    Cluster,
    mostly_with,
    wait_registered,
)
from tests.interop.driver import Consumer, Driver, DriverError
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until
from tools.chaos.free_ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

EXAMPLE = (
    "(TAGS is not null and TAGS in ('TagA', 'TagB')) and (a is not null and a between 0 and 3)"
)
"""Of RocketMQ's SqlFilterConsumer: messages 0 to 9 have the number as `a`, tags in turn."""
_ON = {"enablePropertyFilter": "true"}
_LAST = 99
"""Number of the message that every expression of ours wants: when it is there, all is there."""


@pytest.fixture(scope="module")
def sql_broker(another_broker: AnotherBroker) -> harness.Broker:
    """A broker that filters by properties."""
    return another_broker("sql", _ON)


@pytest.fixture
def topic(client: Client, sql_broker: harness.Broker) -> str:
    return client.topic(queues=1, broker=sql_broker)


def send(client: Client, topic: str, *messages: dict[str, Any]) -> None:
    """Each with these properties; `seq` is its number, `tags` its tag."""
    producer = client.producer()
    for message in messages:
        properties = {name: str(value) for name, value in message.items()}
        properties["u_seq"] = properties.pop("seq")
        client.driver.call(
            "send.one",
            producer=producer.name,
            topic=topic,
            tags=properties.pop("tags", "TagA"),
            keys="",
            body="body",
            properties=properties,
        )


def last(**properties: Any) -> dict[str, Any]:
    return {"seq": _LAST, **properties}


def received(consumer: Consumer) -> list[int]:
    """The numbers that came before the last one."""
    wait_until(
        lambda: _LAST in [entry.seq for entry in consumer.received()],
        f"the last message at {consumer.name}",
    )
    return sorted(entry.seq for entry in consumer.received() if entry.seq != _LAST)


@pytest.mark.parametrize("family", ["push", "lite"])
def test_the_example_of_rocketmq(client: Client, topic: str, family: str) -> None:
    tags = ["TagA", "TagB", "TagC"]
    consumer = getattr(client, family)(topic, sql=EXAMPLE)
    send(client, topic, *({"seq": n, "a": n, "tags": tags[n % 3]} for n in range(10)))
    send(client, topic, last(a=0))
    assert received(consumer) == [0, 1, 3]


MESSAGES: list[dict[str, Any]] = [
    {"seq": 0},
    {"seq": 1, "a": "5"},
    {"seq": 2, "a": "6"},
    {"seq": 3, "a": "6.5"},
    {"seq": 4, "a": "3000000000"},
    {"seq": 5, "a": "it's"},
    {"seq": 6, "a": "true"},
    {"seq": 7, "a": "5", "b": "5"},
    {"seq": 8, "b": "x"},
]


@mostly_with(CLIENT_5)
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a > 5", [2]),
        ("a > 5.0", [2, 3, 4]),
        ("a > 5000000000 OR a > 2147483648", [4]),
        ("a = 'it''s'", [5]),
        ("a = TRUE", [6]),
        ("a <> FALSE AND a IS NOT NULL", [6]),
        ("a = b", [0, 7]),
        ("a <> '5'", [2, 3, 4, 5, 6]),
        ("a IS NULL AND b IS NOT NULL", [8]),
        ("NOT (a IS NULL)", [1, 2, 3, 4, 5, 6, 7]),
        ("a NOT IN ('5', '6')", [3, 4, 5, 6]),
        ("a BETWEEN 5 AND 6", [1, 2, 7]),
        ("a NOT BETWEEN 1.5 AND 5.5", [2, 3, 4]),
        ("b = 'x' OR a > 5", [2, 8]),
        ("a > 5 LIKE 'nobody looks at this'", [2]),
        ("/* one */ a = -- two\n '6'", [2]),
    ],
)
def test_the_language(client: Client, topic: str, expression: str, expected: list[int]) -> None:
    send(client, topic, *MESSAGES)
    send(client, topic, last(z="z"))
    if "LIKE" in expression:
        # Brackets would make the rest part of the expression, and wrong.
        send(client, topic, last(a="6"))
        assert received(client.push(topic, sql=expression)) == expected
    else:
        assert received(client.push(topic, sql=f"z = 'z' OR ({expression})")) == expected


def test_a_waiting_consumer_is_woken_by_what_it_wants(client: Client, topic: str) -> None:
    consumer = client.push(topic, sql="a > 5")
    wait_until(lambda: consumer.queues() == [0], "its queue")
    for number in range(5):
        send(client, topic, {"seq": number, "a": number}, {"seq": 10 + number, "a": 6})
        consumer.wait_for(number + 1)
    send(client, topic, last(a=9))
    assert received(consumer) == [10, 11, 12, 13, 14]


@mostly_with("4.9.8")
@pytest.mark.parametrize("family", ["push", "lite"])
@pytest.mark.parametrize(
    "expression", ["a >", "a > 'x'", "a BETWEEN 10 AND 0", "a = NULL", "a > 0.0", "5", "a = 5 ;"]
)
def test_a_wrong_expression_is_refused_when_subscribing(
    client: Client, topic: str, family: str, expression: str
) -> None:
    with pytest.raises(DriverError, match="CODE: 23 "):
        getattr(client, family)(topic, sql=expression)


@pytest.mark.parametrize("family", ["push", "lite"])
def test_a_broker_that_does_not_filter_refuses(client: Client, family: str) -> None:
    topic = client.topic(queues=1)
    text = r"CODE: 1 .*The broker does not support consumer to filter message by SQL92"
    with pytest.raises(DriverError, match=text):
        getattr(client, family)(topic, sql="a > 5")


@pytest.mark.slow
@pytest.mark.parametrize(
    "java_first",
    [True, pytest.param(False, marks=pytest.mark.long)],
    ids=["java-writes", "java-opens"],
)
def test_the_groups_expressions_change_hands(
    cluster: Cluster,
    broker_kind: str,
    drivers: Callable[[str], Driver],
    tmp_path: Path,
    java_first: bool,
) -> None:
    """What one broker saved, the other loads, and saves again at its own stop."""
    kinds = ("java-4.9", broker_kind) if java_first else (broker_kind, "java-4.9")
    store, port, driver = tmp_path / "store", free_port(-2, 1), drivers("4.9.8")
    group = ""
    rows = []
    for kind in kinds:
        broker = harness.broker(
            kind,
            tmp_path / kind,
            cluster.address,
            name="broker-hands",
            port=port,
            store_dir=store,
            conf=_ON,
        ).start()
        if not group:
            wait_registered(driver, cluster.address, broker)
            client = Client(driver, Cluster(cluster.namesrv, broker))
            topic, group = client.topic(queues=1), client.group()
            consumer = client.push(topic, group, sql="a > 5")
            send(client, topic, last(a=6))
            assert received(consumer) == []
            consumer.stop()
        broker.stop()
        saved = json.loads((store / "config" / "consumerFilter.json").read_text())
        rows.append(saved["filterDataByTopic"][topic]["groupFilterData"][group])
    assert rows[0] == rows[1]
    assert (rows[0]["expression"], rows[0]["expressionType"]) == ("a > 5", "SQL92")
    assert (rows[0]["dead"], rows[0]["bloomFilterData"]["bitNum"]) == (True, 112)

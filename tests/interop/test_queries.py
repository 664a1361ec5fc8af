"""Queries by key, by unique id and by offset id."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.interop.clients import Client
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def query_key(client: Client, producer: str, topic: str, key: str) -> list[dict[str, Any]]:
    """What the broker finds, once its index has caught up."""
    found: list[dict[str, Any]] = []

    def is_found() -> bool:
        try:
            found[:] = client.driver.call(
                "query.key", producer=producer, topic=topic, key=key, max=32
            )
        except Exception as error:
            if "no message" not in str(error).lower():
                raise
        return bool(found)

    wait_until(is_found, f"key {key} found")
    return found


@pytest.mark.parametrize("key", ["key-{}", "ключ-{}"])
def test_by_key(client: Client, key: str) -> None:
    topic = client.topic()
    producer = client.producer()
    sent = {entry.seq: entry for entry in producer.send(topic, "sync", 60)}
    for seq in (0, 7, 59):
        found = query_key(client, producer.name, topic, key.format(seq))
        assert [(one["seq"], one["digest"]) for one in found] == [(seq, sent[seq].digest)]


def test_one_key_of_many_messages(client: Client) -> None:
    topic = client.topic()
    producer = client.producer()
    for number in range(5):
        arguments = {"body": f"body {number}", "tags": "T", "keys": f"shared own-{number}"}
        client.driver.call("send.one", producer=producer.name, topic=topic, **arguments)
    wait_until(lambda: len(query_key(client, producer.name, topic, "shared")) == 5, "all five")
    bodies = {one["body_text"] for one in query_key(client, producer.name, topic, "shared")}
    assert bodies == {f"body {number}" for number in range(5)}


@pytest.mark.skipif(CLIENT_5 < "5.5", reason="tags are asked for since 5.5")
@pytest.mark.parametrize("client", [CLIENT_5], indirect=True)
def test_by_tags(client: Client) -> None:
    """As mqadmin of 5.5 asks, for which the broker's index has a key of its own."""
    topic = client.topic()
    producer = client.producer()
    for tags in ("TagA", "TagB", "TagA"):
        arguments = {"body": "x", "tags": tags, "keys": f"TagA-{tags}"}
        client.driver.call("send.one", producer=producer.name, topic=topic, **arguments)
    asked = ("queryMsgByKey", "-n", client.namesrv, "-t", topic, "-k", "TagA", "-p", "T")

    def found() -> int:
        return len(re.findall(r"^[0-9A-F]{32}", client.driver.mqadmin(*asked), re.MULTILINE))

    wait_until(lambda: found() == 2, "both messages with TagA", poll_s=0.2)


@pytest.mark.parametrize("kind", ["sync", "batch"])
def test_by_unique_id_and_by_offset_id(client: Client, kind: str) -> None:
    """The messages of a 5.3.3 batch share the id of the batch on a 4.9 broker."""
    topic = client.topic()
    producer = client.producer()
    sent = producer.send(topic, kind, 40)
    query_key(client, producer.name, topic, "key-39")
    shared_ids = kind == "batch" and client.driver.version.startswith("5")
    for entry in (sent[0], sent[20], sent[39]):
        for msg_id in (entry.offset_msg_id, entry.msg_id)[: 1 if shared_ids else 2]:
            asked = {"producer": producer.name, "topic": topic, "msg_id": msg_id}
            found = client.driver.call("query.id", **asked)
            assert (found["seq"], found["digest"]) == (entry.seq, entry.digest)
            assert found["queue_offset"] == entry.queue_offset


def test_unknown_ids_are_an_error(client: Client) -> None:
    topic = client.topic()
    producer = client.producer()
    producer.send(topic, "sync", 1)
    unknown = {
        "producer": producer.name,
        "topic": topic,
        "msg_id": "7F000001000000000000000000000000",
    }
    assert client.driver.submit("query.id", **unknown).exception(30) is not None

"""DefaultMQProducer in all its ways to send: all is there once, equal, where the answer said."""

from __future__ import annotations

import pytest

from tests.interop.clients import Client
from tests.interop.driver import Entry, by_queue
from tests.interop.processes import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def content(entries: list[Entry]) -> list[tuple[int, str]]:
    return sorted((entry.seq, entry.digest) for entry in entries)


def places(entries: list[Entry]) -> list[tuple[int, int, int, str]]:
    return sorted((e.seq, e.queue_id, e.queue_offset, e.offset_msg_id) for e in entries)


def ids(entries: list[Entry]) -> list[tuple[int, str]]:
    return sorted((entry.seq, entry.msg_id) for entry in entries)


@pytest.mark.parametrize("kind", ["sync", "async", "batch", "selector"])
def test_answers_say_where_the_messages_are(client: Client, kind: str) -> None:
    """A 5.3.3 batch carries an id of its own, which 4.9 brokers give to each of its messages."""
    topic = client.topic()
    sent = client.producer().send(topic, kind, 300)
    assert {entry.note for entry in sent} == {"SEND_OK"}
    received = client.drain(topic, 300)
    assert content(received) == content(sent)
    assert places(received) == places(sent)
    if not (kind == "batch" and client.driver.version.startswith("5")):
        assert ids(received) == ids(sent)
    for entries in by_queue(received).values():
        assert [entry.queue_offset for entry in entries] == list(range(len(entries)))


def test_selector_puts_each_number_into_its_queue(client: Client) -> None:
    sent = client.producer().send(client.topic(queues=4), "selector", 40)
    assert all(entry.queue_id == entry.seq % 4 for entry in sent)


def test_oneway_sends_arrive(client: Client) -> None:
    topic = client.topic()
    sent = client.producer().send(topic, "oneway", 300)
    received = client.drain(topic, 300)
    assert content(received) == content(sent)


def test_first_send_creates_the_topic(client: Client) -> None:
    topic = client.group().replace("group", "auto")
    producer = client.producer()
    sent = producer.send(topic, "sync", 8)

    def ends() -> dict[str, int]:
        asked = {"producer": producer.name, "topic": topic}
        offsets = client.driver.call("topic.offsets", **asked)
        return {queue: high for queue, (_low, high) in offsets.items()}

    assert sorted(ends()) == ["0", "1", "2", "3"]
    wait_until(lambda: sum(ends().values()) == len(sent), "all dispatched")


def test_text_is_kept_to_the_letter(client: Client) -> None:
    """Unlike the digests of the other tests, this one looks at the text itself."""
    topic = client.topic()
    producer = client.producer()
    text = {
        "body": 'Grüße, мир, 世界 🚀 ﷺ "quoted" \\ {json: 1}\n\t',
        "tags": "标签",
        "keys": "ключ-1 κλειδί",
        "properties": {"имя": "значение 🚀", "plain": "a,b;c=d%25"},
    }
    result = producer.driver.call("send.one", producer=producer.name, topic=topic, queue=2, **text)
    assert (result["status"], result["queue"], result["queue_offset"]) == ("SEND_OK", 2, 0)
    found = client.driver.call(
        "query.id", producer=producer.name, topic=topic, msg_id=result["offset_msg_id"]
    )
    assert found["body_text"] == text["body"]
    assert (found["tags"], found["keys"]) == (text["tags"], text["keys"])
    assert text["properties"].items() <= found["properties"].items()  # type: ignore[attr-defined]

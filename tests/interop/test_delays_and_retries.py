"""Delay levels, retries and dead letters with real clients: once, in time, across restarts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop import harness
from tests.interop.clients import AnotherBroker, Client, mostly_with
from tests.interop.driver import Entry
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until
from tools.admin_client import AdminClient, NameServers
from tools.command_line import wall_clock_ms
from tools.dead_letter_resend import ResendOrder, ResendStep, resend
from tools.dead_letters import scan
from tools.resend_audit import ResendAudit

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

LEVELS = "1s 5s 1s 2s 2s"
"""Level 3 is the first retry's."""


@pytest.fixture(scope="module")
def quick(another_broker: AnotherBroker) -> harness.Broker:
    """A broker with short delays."""
    settings = {"messageDelayLevel": LEVELS, "registerBrokerTimeoutMills": "12000"}
    return another_broker("quick", settings)


def content(entries: list[Entry]) -> list[tuple[int, str]]:
    return sorted((entry.seq, entry.digest) for entry in entries)


def test_delayed_messages_come_once_and_as_they_were(client: Client, quick: harness.Broker) -> None:
    topic = client.topic(broker=quick)
    producer = client.producer()
    consumer = client.push(topic)
    late = producer.send(topic, "sync", 20, delay_level=2)
    soon = producer.send(topic, "sync", 60, first=100, delay_level=1)
    now = producer.send(topic, "sync", 20, first=200)
    assert {entry.note for entry in [*late, *soon, *now]} == {"SEND_OK"}
    consumer.wait_for(100)
    received = consumer.stop()
    assert content(received) == content([*late, *soon, *now])
    order = [entry.seq // 100 for entry in received]
    assert order[-20:] == [0] * 20, "the longest delay last"
    queues = {entry.seq: entry.queue_id for entry in [*late, *soon, *now]}
    assert {entry.seq: entry.queue_id for entry in received} == queues


@mostly_with("4.9.8")
def test_delayed_messages_survive_a_restart(client: Client, quick: harness.Broker) -> None:
    topic = client.topic(broker=quick)
    producer = client.producer()
    sent = producer.send(topic, "sync", 60, delay_level=1)
    sent += producer.send(topic, "sync", 60, first=100, delay_level=2)
    quick.stop()
    quick.start()
    consumer = client.push(topic)
    consumer.wait_for(120)
    later = producer.send(topic, "sync", 1, first=300, delay_level=2)
    consumer.wait_for(121)
    assert content(consumer.stop()) == content([*sent, *later]), "each of them once"


def test_a_refused_message_comes_back_by_its_levels(client: Client, quick: harness.Broker) -> None:
    topic = client.topic(broker=quick)
    consumer = client.push(topic, refuse=[3, 17])
    sent = client.producer().send(topic, "sync", 40)
    consumer.wait_for(40)
    received = consumer.stop()
    assert content(received) == content(sent)
    tags = {entry.seq: entry.note for entry in received}
    assert (tags[3], tags[17], tags[4]) == ("标签#1", "TagB#1", "TagA")


@mostly_with(CLIENT_5)
def test_what_is_never_consumed_becomes_a_dead_letter(
    client: Client, quick: harness.Broker, tmp_path: Path
) -> None:
    """And is consumed after all, once it is resent: to its topic, or to the group's retry topic."""
    topic, group = client.topic(broker=quick), client.group()
    consumer = client.push(topic, group, refuse_always=[2, 5], max_reconsume=2)
    sent = client.producer().send(topic, "sync", 8)
    consumer.wait_for(8 + 2 * 2)
    letters = client.push(f"%DLQ%{group}")
    dead = letters.wait_for(2)
    assert content(dead) == content([entry for entry in sent if entry.seq in (2, 5)])
    assert {entry.note for entry in dead} == {"TagC#3", "TagB#3"}
    tries = sorted(entry.note for entry in consumer.stop() if entry.seq == 5)
    assert tries == ["TagB", "TagB#1", "TagB#2"]
    cured = client.push(topic, group)
    order = ResendOrder(group=group, who="operator", origin="here")
    for resends, to_topic in enumerate((None, f"%RETRY%{group}"), 1):
        steps = resent(client.namesrv, replace(order, to_topic=to_topic, again=True), tmp_path)
        assert [(step.result, step.topic) for step in steps] == [("SEND_OK", to_topic or topic)] * 2
        again = cured.wait_for(2 * resends)
    assert content(again) == content(dead * 2)
    assert {entry.note for entry in again} == {"TagC", "TagB"}, "their retries begin anew"


def resent(namesrv: str, order: ResendOrder, directory: Path) -> list[ResendStep]:
    """All dead letters of a group, sent again."""
    with (
        AdminClient(NameServers.parse(namesrv), wall_clock_ms) as admin,
        ResendAudit(directory / "audit") as audit,
    ):
        found = scan(admin, order.group)
        return list(resend(admin, found, order, audit, wait=lambda _seconds: False))


def test_the_retry_topic_is_the_groups_own(client: Client, quick: harness.Broker) -> None:
    """Two groups of one topic: what one gives back comes to that one only."""
    topic = client.topic(broker=quick)
    giving = client.push(topic, refuse=[1])
    other = client.push(topic)
    sent = client.producer().send(topic, "sync", 4)
    giving.wait_for(4)
    wait_until(lambda: other.count() >= 4, "the other group's messages")
    assert content(giving.stop()) == content(sent)
    assert [entry.note for entry in other.stop() if entry.seq == 1] == ["TagB"]


@pytest.mark.long
def test_a_send_back_that_is_answered_late_is_one_letter_of_the_broker(
    client: Client, quick: harness.Broker
) -> None:
    """The client waits five seconds, then sends the message itself: its letter is the second."""
    topic, group = client.topic(broker=quick), client.group()
    consumer = client.push(topic, group, refuse_always=[1], max_reconsume=0)
    producer = client.producer()
    producer.send(topic, "sync", 1)
    consumer.wait_for(1)
    client.cluster.namesrv.pause()  # the topic of the letters is registered before one is stored
    try:
        producer.send(topic, "sync", 1, first=1)
        with quick.client() as frames:
            wait_until(lambda: frames.offset(30, f"%DLQ%{group}", 0) == 2, "two letters", 60)
            letters = frames.pull(f"%DLQ%{group}", 0, 0).messages
    finally:
        client.cluster.namesrv.resume()
    by_client = ["MAX_RECONSUME_TIMES" in letter.property_map() for letter in letters]
    assert sorted(by_client) == [False, True]
    assert len({(each.body, each.reconsume_times) for each in letters}) == 1

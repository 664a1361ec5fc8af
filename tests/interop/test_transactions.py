"""Transactions with the real TransactionMQProducer: ends, checks, dead producers, restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop import harness
from tests.interop.clients import AnotherBroker, Client, mostly_with
from tests.interop.driver import Driver, Entry, read_ledger
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"
CHECK_MAX = 12
_DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"


@pytest.fixture(scope="module")
def checking(another_broker: AnotherBroker) -> harness.Broker:
    """A broker that asks soon and often."""
    return another_broker(
        "checking",
        {
            "transactionCheckInterval": "500",
            "transactionTimeOut": "1000",
            "transactionCheckMax": str(CHECK_MAX),
        },
    )


class TransactionProducer:
    """A running TransactionMQProducer; `answer` is what it says to whoever asks."""

    def __init__(self, client: Client, group: str, answer: str, driver: Driver | None = None):
        self.driver = driver or client.driver
        self.name = f"t-{client.group()}"
        where = {"namesrv": client.namesrv, "group": group, "poll_ms": 1_000}
        self.driver.call("transaction.start", name=self.name, answer=answer, **where)

    def send(self, topic: str, count: int, *states: str, **settings: Any) -> list[Entry]:
        """Send halves, number seq comes to states[seq % len(states)]; all must be stored."""
        path = self.driver.ledger_path("transactions")
        defaults = {"first": 0, "seed": 1, "profile": "small", "late_ms": 0, **settings}
        answer = self.driver.call(
            "transaction.send",
            producer=self.name,
            topic=topic,
            count=count,
            states=states,
            ledger=path,
            **defaults,
        )
        assert answer["errors"] == []
        sent = read_ledger(path)
        assert {entry.note for entry in sent} == {"SEND_OK"}
        return sent

    def answer(self, state: str) -> None:
        """From now on."""
        self.driver.call("transaction.answer", producer=self.name, answer=state)

    def checks(self) -> list[dict[str, Any]]:
        """Every question that came."""
        return list(self.driver.call("transaction.checks", producer=self.name))

    def wait_checked(self, entries: list[Entry], times: int = 1) -> None:
        """Until it was asked `times` times about each of these."""

        def is_done() -> bool:
            seen = {check["seq"] for check in self.checks() if check["times"] >= times}
            return seen >= {entry.seq for entry in entries}

        wait_until(is_done, f"{len(entries)} halves checked {times} times", 60)

    def stop(self) -> None:
        self.driver.call("transaction.stop", name=self.name)


def content(entries: list[Entry]) -> list[tuple[int, str]]:
    return sorted((entry.seq, entry.digest) for entry in entries)


def test_commits_come_and_rollbacks_do_not(client: Client, checking: harness.Broker) -> None:
    """Nobody is asked about either, however long it is waited."""
    topic = client.topic(broker=checking)
    producer = TransactionProducer(client, client.group(), UNKNOWN)
    consumer = client.push(topic)
    sent = producer.send(topic, 60, COMMIT, ROLLBACK)
    open_ = producer.send(topic, 1, UNKNOWN, first=100)
    producer.wait_checked(open_, 2)
    commits = [entry for entry in sent if entry.seq % 2 == 0]
    consumer.wait_for(len(commits))
    assert content(consumer.stop()) == content(commits)
    assert {check["seq"] for check in producer.checks()} == {100}
    producer.stop()


def test_who_does_not_know_is_asked(client: Client, checking: harness.Broker) -> None:
    topic = client.topic(broker=checking)
    producer = TransactionProducer(client, client.group(), UNKNOWN)
    consumer = client.push(topic)
    sent = producer.send(topic, 20, UNKNOWN)
    producer.wait_checked(sent, 2)
    assert consumer.count() == 0
    digests = {entry.seq: entry.digest for entry in sent}
    for check in producer.checks():
        assert (check["topic"], check["digest"]) == (topic, digests[check["seq"]])
    producer.answer(COMMIT)
    consumer.wait_for(20)
    rolled_back = producer.send(topic, 5, UNKNOWN, first=100)
    producer.answer(ROLLBACK)
    producer.wait_checked(rolled_back)
    marker = producer.send(topic, 1, COMMIT, first=200)
    consumer.wait_for(21)
    assert content(consumer.stop()) == content([*sent, *marker])
    producer.stop()


def test_a_dead_producer_s_halves_are_finished_by_another(
    client: Client, checking: harness.Broker, tmp_path: Path
) -> None:
    topic, group = client.topic(broker=checking), client.group()
    consumer = client.push(topic)
    other_jvm = Driver(client.driver.version, tmp_path / "mortal")
    dead = TransactionProducer(client, group, UNKNOWN, other_jvm)
    sent = dead.send(topic, 20, UNKNOWN)
    dead.wait_checked(sent)
    other_jvm.close()
    second = TransactionProducer(client, group, COMMIT)
    # A producer is known to a broker once it has sent something there.
    own = second.send(topic, 1, COMMIT, first=100)
    consumer.wait_for(21)
    assert content(consumer.stop()) == content([*sent, *own])
    assert {check["seq"] for check in second.checks()} == {entry.seq for entry in sent}
    second.stop()


@pytest.mark.slow
@mostly_with(CLIENT_5)
@pytest.mark.parametrize(
    "crash",
    [pytest.param(False, marks=pytest.mark.long), True],
    ids=["stopped", "killed"],
)
def test_a_broker_restarts_in_between(
    client: Client, checking: harness.Broker, crash: bool
) -> None:
    topic = client.topic(broker=checking)
    producer = TransactionProducer(client, client.group(), UNKNOWN)
    sent = producer.send(topic, 40, COMMIT, ROLLBACK, UNKNOWN, UNKNOWN)
    producer.wait_checked([entry for entry in sent if entry.seq % 4 > 1])
    consumer = client.push(topic, poll_ms=1000)
    consumer.wait_for(10)
    if crash:
        checking.kill()
    else:
        checking.stop()
    checking.start()
    producer.answer(COMMIT)
    expected = content([entry for entry in sent if entry.seq % 4 != 1])

    def is_all() -> bool:
        return sorted(set(content(consumer.received()))) == expected

    wait_until(is_all, "every commit", 60)
    checked = producer.send(topic, 1, UNKNOWN, first=100)
    producer.answer(UNKNOWN)
    producer.wait_checked(checked, 2)
    received = content(consumer.stop())
    received = [entry for entry in received if entry[0] != checked[0].seq]
    assert sorted(set(received)) == expected
    if not crash:
        assert received == expected
    producer.stop()


@mostly_with("4.9.8")
def test_a_slow_local_transaction(client: Client, checking: harness.Broker) -> None:
    """It is asked about while it runs; then its own commit comes. Java delivers such twice."""
    topic = client.topic(broker=checking)
    producer = TransactionProducer(client, client.group(), UNKNOWN)
    consumer = client.push(topic)
    # The producer is known to the broker when the slow one begins.
    first = producer.send(topic, 1, UNKNOWN, first=100)
    producer.wait_checked(first)
    sent = producer.send(topic, 1, COMMIT, late_ms=4_000)
    assert [check for check in producer.checks() if check["seq"] == 0] != []
    producer.answer(COMMIT)
    consumer.wait_for(2)
    again = producer.send(topic, 1, UNKNOWN, first=200)
    producer.wait_checked(again)
    consumer.wait_for(3)
    received = content(consumer.stop())
    if checking.kind == "ours":
        assert received == content([*sent, *first, *again])
    else:
        assert set(received) == set(content([*sent, *first, *again]))
    producer.stop()


@mostly_with(CLIENT_5)
def test_who_never_knows_is_asked_so_often_and_not_more(
    client: Client, checking: harness.Broker
) -> None:
    topic = client.topic(broker=checking)
    producer = TransactionProducer(client, client.group(), UNKNOWN)
    helper = client.producer()

    def discarded() -> int:
        asked = {"producer": helper.name, "topic": _DISCARDED}
        found = client.driver.submit("topic.offsets", **asked)
        if found.exception(30) is not None:
            return 0
        return sum(high for _low, high in found.result().values())

    before = discarded()
    consumer = client.push(topic)
    sent = producer.send(topic, 3, UNKNOWN)
    producer.wait_checked(sent, CHECK_MAX)
    wait_until(lambda: discarded() >= before + 3, "three discarded halves", 60)
    marker = producer.send(topic, 1, UNKNOWN, first=100)
    producer.wait_checked(marker, 2)
    assert max(check["times"] for check in producer.checks()) == CHECK_MAX
    assert consumer.stop() == []
    producer.stop()

"""A group of three 5.3.3 brokers in DLedger mode moves to a broker of ours: real clients of 5.3.3
send (one by one, in batches, large, delayed, transactions), the leader is killed, the best of the
three stores is imported, and the same clients go on where they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from store.dledger_import import DONE, main
from store.store_checker import check_store
from tests.interop import harness
from tests.interop.clients import Client, Cluster, registered
from tests.interop.driver import Driver, DriverError, Entry, by_queue
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until
from tests.interop.test_transactions import COMMIT, ROLLBACK, UNKNOWN, TransactionProducer
from tools.chaos.free_ports import free_port

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

NAME = "dledger-group"
SETTINGS = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "60000",
    "messageDelayLevel": "1s 60s 1s 2s",
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "3600000",
}
_WAIT_S = 120


class DledgerGroup:
    """Three 5.3.3 brokers of one name."""

    def __init__(self, directory: Path, namesrv: harness.NameServer, driver: Driver) -> None:
        self._namesrv = namesrv
        self._driver = driver
        ports = [free_port() for _ in range(3)]
        peers = ";".join(f"n{n}-127.0.0.1:{port}" for n, port in enumerate(ports))
        self.brokers = [
            harness.broker(
                harness.JAVA_5,
                directory / f"n{n}",
                namesrv.address,
                name=NAME,
                conf={
                    **SETTINGS,
                    "enableDLegerCommitLog": "true",
                    "dLegerGroup": NAME,
                    "dLegerPeers": peers,
                    "dLegerSelfId": f"n{n}",
                    "transactionOpBatchInterval": "100",
                    # A busy machine is no reason to refuse.
                    "waitTimeMillsInSendQueue": "60000",
                    "osPageCacheBusyTimeOutMills": "60000",
                },
                jvm=("-Xms128m", "-Xmx256m"),
            )
            for n in range(3)
        ]

    def start(self) -> None:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda broker: broker.process.start(), self.brokers))
        self.leader()

    def leader(self, *, other_than: str = "") -> harness.Broker:
        """Once the name server names it."""
        found: list[harness.Broker] = []

        def is_there() -> bool:
            try:
                table = registered(self._driver, self._namesrv.address)
            except DriverError:
                return False  # A machine that starts three brokers is busy.
            address = table.get(NAME, {}).get("0")
            found[:] = [each for each in self.brokers if each.address == address]
            return bool(found) and address != other_than

        wait_until(is_there, f"a leader\n{self.logs()}", _WAIT_S, poll_s=0.5)
        return found[0]

    def logs(self) -> str:
        return "\n".join(broker.log_tail() for broker in self.brokers)

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()


@pytest.fixture
def group(
    tmp_path: Path, namesrv: harness.NameServer, drivers: Callable[[str], Driver]
) -> Iterator[DledgerGroup]:
    made = DledgerGroup(tmp_path, namesrv, drivers(CLIENT_5))
    yield made
    made.kill()


def content(entries: list[Entry]) -> dict[tuple[str, int], list[tuple[int, int, str, str]]]:
    """Of each queue, in its order: queue offset, number, digest of the body, unique id."""
    return {
        queue: sorted((e.queue_offset, e.seq, e.digest, e.msg_id) for e in found)
        for queue, found in by_queue(entries).items()
    }


def import_words(group: DledgerGroup, source: harness.Broker) -> list[str]:
    """Source and others, as the command wants them."""
    others = [broker.store_dir for broker in group.brokers if broker is not source]
    return [str(source.store_dir), *(word for root in others for word in ("--other", str(root)))]


def test_a_group_moves_to_a_broker_of_ours(
    group: DledgerGroup,
    tmp_path: Path,
    namesrv: harness.NameServer,
    drivers: Callable[[str], Driver],
    capsys: pytest.CaptureFixture[str],
) -> None:
    driver = drivers(CLIENT_5)
    group.start()
    leader = group.leader()
    client = Client(driver, Cluster(namesrv, leader))
    topic, late_topic, ended = client.topic(), client.topic(), client.topic()
    for name in (topic, late_topic, ended):
        driver.call("topic.route", namesrv=namesrv.address, topic=name)
    producer = client.producer()
    sent = producer.send(topic, "ordered", 400, profile="volume")
    reading = client.push(topic)
    reading.wait_for(len(sent))
    assert content(reading.stop()) == content(sent)
    # Before the others: Java keeps the ends of transactions in memory first, and a kill loses them.
    transactions = TransactionProducer(client, client.group(), UNKNOWN, driver)
    halves = transactions.send(ended, 30, COMMIT, ROLLBACK, UNKNOWN)
    after = producer.send(topic, "batch", 200, first=1000)
    after += producer.send(topic, "sync", 40, first=2000, profile="volume")
    late = producer.send(late_topic, "sync", 30, delay_level=2)
    leader.kill()
    second = group.leader(other_than=leader.address)
    # A new one, which asks for the route at once.
    producer = client.producer()
    after += producer.send(topic, "sync", 60, first=3000)
    # Java's new leader may lack the offsets: its tables are copied now and then. From here on it
    # has them.
    reading = client.push(topic, reading.group)
    unread = {each.seq for each in after}
    wait_until(
        lambda: unread <= {each.seq for each in reading.received()}, "all", _WAIT_S, poll_s=0.5
    )
    reading.stop()
    last = producer.send(topic, "sync", 60, first=3500)
    before = content(client.push(topic).wait_for(len(sent + after + last)))
    assert before == content(sent + after + last)
    second.stop()
    group.kill()

    target = tmp_path / "target"
    words = import_words(group, second)
    assert main([words[0], str(target), *words[1:]]) == DONE
    ours = harness.broker(
        "ours",
        tmp_path / "ours",
        namesrv.address,
        name=NAME,
        store_dir=target,
        conf={**SETTINGS, "transactionTimeOut": "2000"},
    ).start()
    try:
        new = Client(driver, Cluster(namesrv, ours))
        wait_until(
            lambda: registered(driver, namesrv.address)[NAME] == {"0": ours.address},
            "only ours is registered",
            _WAIT_S,
            poll_s=0.5,
        )
        # The group gets exactly what came after that which it had read.
        goes_on = new.push(topic, reading.group)
        goes_on.wait_for(len(last))
        # A new one reads all that Java's broker gave, at the same offsets.
        assert content(new.push(topic).wait_for(len(sent + after + last))) == before
        more = new.producer().send(topic, "sync", 40, first=4000)
        goes_on.wait_for(len(last) + len(more))
        assert content(goes_on.stop()) == content(last + more)
        # Delayed messages come once, transactions end as their producer says.
        assert sorted(e.digest for e in new.push(late_topic).wait_for(30, _WAIT_S)) == sorted(
            e.digest for e in late
        )
        unknown = [e for e in halves if e.seq % 3 == 2]
        transactions.answer(COMMIT)
        transactions.wait_checked(unknown)
        committed = [e.digest for e in halves if e.seq % 3 != 1]
        ends = new.push(ended).wait_for(len(committed), _WAIT_S)
        assert sorted(e.digest for e in ends) == sorted(committed)
    finally:
        ours.stop()
    capsys.readouterr()
    assert main([words[0], str(target), *words[1:], "--verify"]) == DONE
    assert "messages are the same" in capsys.readouterr().out
    assert check_store(target, hash_slots=None).errors == []

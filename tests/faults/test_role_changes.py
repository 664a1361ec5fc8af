"""Real brokers that change roles: ours as master, as slave, and back; logs that part and join."""

from __future__ import annotations

import re

import pytest

from broker.slave.promotion import read_state
from ha.control_slots import HA_REFUSALS
from ha.refusals import RefusalReason
from tests.support.broker_group import ASYNC_MASTER, SLAVE, TOPIC, Group, counters_of, log_of
from tests.support.deadline import wait_until
from tests.support.our_broker import BrokerDiedError, OurBroker


def send(broker: OurBroker, count: int, text: str, queue_id: int = 0) -> None:
    with broker.client() as client:
        for number in range(count):
            client.send(TOPIC, queue_id, f"{text}-{number}".encode() * (1 + number % 9))


def follows(slave: OurBroker, master: OurBroker) -> bool:
    return log_of(slave) == log_of(master)


def max_offset(broker: OurBroker, queue_id: int = 0) -> int:
    with broker.client() as client:
        return client.offset(30, TOPIC, queue_id)


def test_a_slave_that_lags_is_not_promoted_and_one_that_does_not_is(group: Group) -> None:
    first, second = group.first, group.second
    group.start(first, ASYNC_MASTER)
    group.start(second, SLAVE)
    send(first, 50, "one")
    with first.client() as client:
        assert client.send("Young", 3, b"young").code == 0
    wait_until(lambda: follows(second, first), 20)
    record = second.store_dir / "replica.json"

    def may_be_promoted() -> bool:
        state = read_state(record)
        # Its tables, too, which may come after the log.
        return state is not None and state.inSync and state.tablesCopiedAt > 0

    wait_until(may_be_promoted, 20)
    assert first.terminate() == second.terminate() == 0
    # As if the topic had been made after the last metadata synchronization.
    table = second.store_dir / "config" / "topics.json"
    table.parent.mkdir(exist_ok=True)
    table.write_text('{"topicConfigTable":{}}')
    group.start(second, ASYNC_MASTER)
    assert not record.exists()
    with second.client() as client:
        assert [message.body for message in client.pull("Young", 3, 0).messages] == [b"young"]
    send(second, 5, "two")
    wait_until(lambda: max_offset(second) == 55, 20)


@pytest.mark.fault(12)
def test_logs_that_parted_are_joined_again(group: Group) -> None:
    """Refused as long as the operator has not said so; then truncated, with a backup."""
    first, second = group.first, group.second
    group.start(first, ASYNC_MASTER)
    group.start(second, SLAVE)
    send(first, 50, "common")
    wait_until(lambda: follows(second, first), 20)
    common = len(log_of(first))
    assert second.terminate() == first.terminate() == 0
    group.start(second, ASYNC_MASTER, haPromoteUnclean="true")
    send(second, 7, "lost")
    send(second, 3, "lost elsewhere", queue_id=3)
    lost = log_of(second)
    assert second.terminate() == 0
    group.start(first, ASYNC_MASTER)
    send(first, 40, "kept")
    group.start(second, SLAVE)
    wait_until(lambda: "nothing is replicated" in second.log("ha"), 20)
    assert log_of(second) == lost
    assert second.terminate() == 0
    group.start(second, SLAVE, haTruncateDiverged="true")
    wait_until(lambda: follows(second, first), 30)
    wait_until(lambda: max_offset(second) == max_offset(first) == 90, 20)
    assert max_offset(second, 3) == 0
    assert second.output().count("boot success") == 1
    assert second.children().keys() == {"store", "ha", "remoting"}
    (backup,) = second.store_dir.glob("backup-*/commitlog")
    (tail,) = backup.glob(f"*.from-{common}")
    assert tail.read_bytes() == lost[common:]
    assert f"the log ends at {common} now" in second.log("store")
    send(first, 10, "more")
    wait_until(lambda: max_offset(second) == 100, 20)
    assert second.terminate() == 0
    assert second.check().is_clean


def commit(broker: OurBroker, offset: int) -> None:
    with broker.client() as client:
        fields = {"consumerGroup": "readers", "topic": TOPIC, "queueId": 0, "commitOffset": offset}
        assert client.call(15, fields).code == 0


def committed(broker: OurBroker) -> int:
    with broker.client() as client:
        fields = {"consumerGroup": "readers", "topic": TOPIC, "queueId": 0}
        return int(client.call(14, fields).ext_fields["offset"])


def test_offsets_of_a_log_that_was_cut_go_with_it(group: Group) -> None:
    """The group has read what was cut off, and not what the other broker stored there instead:
    when this broker is the master again, it goes on where the other one was."""
    first, second = group.first, group.second
    group.start(first, ASYNC_MASTER)
    group.start(second, SLAVE)
    send(first, 50, "common")
    commit(first, 45)
    wait_until(lambda: follows(second, first), 20)
    assert second.terminate() == first.terminate() == 0
    group.start(second, ASYNC_MASTER, haPromoteUnclean="true")
    send(second, 7, "lost")
    commit(second, 57)
    assert second.terminate() == 0
    group.start(first, ASYNC_MASTER)
    send(first, 10, "kept")
    commit(first, 52)
    group.start(second, SLAVE, haTruncateDiverged="true")
    wait_until(lambda: follows(second, first), 30)
    wait_until(lambda: committed(second) == 52, 20)
    mark = second.store_dir / "resync.json.done"
    wait_until(lambda: not mark.exists(), 20)
    # From here on the larger one stays: consumers may go on here while the master is down.
    commit(second, 53)
    assert second.terminate() == first.terminate() == 0
    group.start(second, ASYNC_MASTER)
    assert committed(second) == 53


@pytest.mark.fault(13)
def test_a_slave_below_the_masters_min_starts_over(group: Group) -> None:
    first, second = group.first, group.second
    group.start(first, ASYNC_MASTER)
    group.start(second, SLAVE)
    send(first, 5, "old")
    wait_until(lambda: follows(second, first), 20)
    assert second.terminate() == 0
    with first.client() as client:
        for _ in range(30):
            client.send(TOPIC, 1, bytes(60_000))
    assert first.terminate() == 0
    (first.store_dir / "commitlog" / f"{0:020d}").unlink()
    group.start(first, ASYNC_MASTER)
    group.start(second, SLAVE)
    wait_until(lambda: bool(list(second.store_dir.glob("backup-*"))), 30)
    wait_until(lambda: max_offset(second, 1) == max_offset(first, 1) > 0, 30)
    files = sorted(path.name for path in (second.store_dir / "commitlog").glob("[0-9]*"))
    assert files[0] == f"{1 << 20:020d}"
    assert log_of(second) == log_of(first)
    assert second.output().count("boot success") == 1
    # What is missing is said, and counted.
    said = second.log("ha") + second.log("remoting") + second.log("store")
    assert re.search(r"\d+ bytes between the local log and the master's are deleted", said)
    with counters_of(second) as counters:
        assert counters[HA_REFUSALS + RefusalReason.BEHIND_MASTER_MIN] > 0


def test_a_first_copy_that_was_not_finished_is_not_promoted(group: Group) -> None:
    first, second = group.first, group.second
    group.start(first, ASYNC_MASTER)
    with first.client() as client:
        for _ in range(30):
            client.send(TOPIC, 1, bytes(60_000))
    (second.store_dir).mkdir(parents=True)
    group.start(second, SLAVE)
    record = second.store_dir / "replica.json"
    wait_until(record.exists, 20)
    # On a busy machine the copy has ended by now: this is what a kill just before leaves.
    text = re.sub('"firstCopyDone": (true|false)', '"firstCopyDone": false', record.read_text())
    assert '"firstCopyDone": false' in text
    second.crash()
    record.write_text(text)
    with pytest.raises(BrokerDiedError, match="first copy was not finished"):
        group.start(second, ASYNC_MASTER)

"""One flipped bit in the commit log and an unclean stop: what is behind it stays, and comes back.

Real brokers. The truth is the client's list of SEND_OK: every message but the damaged one is pulled
at its queue offset, no queue offset is used twice, and the replica's copy puts the damage right.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

from store.control_slots import FENCE_COUNT
from tests.support.broker_group import (
    ASYNC_MASTER,
    SLAVE,
    SYNC_MASTER,
    TOPIC,
    Group,
    counters_of,
    log_of,
)
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker, Sent

SEND_OK = 0
QUEUES = 4
MESSAGES = 600
DAMAGED = 20
MAGIC_AT = 4
PULL_RETRY_IMMEDIATELY = 20


def body_of(number: int) -> bytes:
    return b"%06d" % number * 30


def send_all(client: FrameClient, numbers: range) -> dict[int, Sent]:
    sent = {number: client.send(TOPIC, number % QUEUES, body_of(number)) for number in numbers}
    assert {answer.code for answer in sent.values()} == {SEND_OK}
    return sent


def flip(broker: OurBroker, phy_offset: int) -> None:
    """One bit of the file that holds this byte of the log."""
    size = int(str(broker.settings["mappedFileSizeCommitLog"]))
    path = broker.store_dir / "commitlog" / f"{phy_offset - phy_offset % size:020d}"
    with path.open("r+b") as file:
        file.seek(phy_offset % size)
        (byte,) = file.read(1)
        file.seek(phy_offset % size)
        file.write(bytes((byte ^ 0x10,)))


def pulled(client: FrameClient, queue_id: int) -> Iterator[tuple[int, bytes]]:
    """(queue offset, body) of all that a consumer gets that goes where it is told to."""
    at, end = 0, client.offset(30, TOPIC, queue_id)
    while at < end:
        found = client.pull(TOPIC, queue_id, at)
        assert found.code in (0, PULL_RETRY_IMMEDIATELY), found
        for message in found.messages:
            yield message.queue_offset, message.body
        assert found.next_offset > at
        at = found.next_offset


def assert_pulled(client: FrameClient, sent: dict[int, Sent], missing: set[int]) -> None:
    for queue_id in range(QUEUES):
        expected = [
            (answer.queue_offset, body_of(number))
            for number, answer in sent.items()
            if number % QUEUES == queue_id and number not in missing
        ]
        assert list(pulled(client, queue_id)) == expected


def ready_text(broker: OurBroker) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.ports['metrics']}/readyz") as found:
        return str(found.read(), "utf-8")


def test_what_is_behind_a_flipped_bit_stays_and_no_queue_offset_is_used_twice(
    tmp_path: Path,
) -> None:
    with OurBroker(tmp_path) as broker:
        broker.start()
        with broker.client() as client:
            sent = send_all(client, range(MESSAGES))
        broker.crash()
        damaged = {DAMAGED, 300, MESSAGES - 2}
        for number in damaged:
            flip(broker, sent[number].phy_offset + MAGIC_AT)
        for _ in range(2):
            broker.start()
            with broker.client() as client:
                assert_pulled(client, sent, damaged)
                first = len(sent)
                sent |= send_all(client, range(first, first + 8))
                places = {(n % QUEUES, answer.queue_offset) for n, answer in sent.items()}
                assert len(places) == len(sent)
            assert "3 damaged ranges" in ready_text(broker)
            broker.crash()


def test_a_pair_loses_nothing_and_the_slave_repairs_its_master(tmp_path: Path) -> None:
    with Group(tmp_path).running() as group:
        group.start(group.first, SYNC_MASTER, slaveTimeout=20_000)
        group.start(group.second, SLAVE)
        with group.first.client() as client:
            wait_until(lambda: client.send(TOPIC, 0, b"").code == SEND_OK, 20)
            empty = client.offset(30, TOPIC, 0)
            sent = send_all(client, range(MESSAGES))
        group.first.crash()
        wait_until(lambda: log_of(group.second) == log_of(group.first), 20)
        group.second.crash()
        for number in (DAMAGED, DAMAGED + 1, 300):
            flip(group.first, sent[number].phy_offset + MAGIC_AT)
        group.start(group.first, ASYNC_MASTER)
        with counters_of(group.first) as counters:
            assert counters[FENCE_COUNT] == 2
            group.start(group.second, SLAVE)
            wait_until(lambda: counters[FENCE_COUNT] == 0, 30)
        with group.first.client() as client:
            for queue_id in range(QUEUES):
                found = [each for each in pulled(client, queue_id) if each[1]]
                assert found == [
                    (answer.queue_offset, body_of(number))
                    for number, answer in sent.items()
                    if number % QUEUES == queue_id
                ]
            assert empty <= client.offset(30, TOPIC, 0)
        assert ready_text(group.first).strip() == "ready"
        assert log_of(group.first) == log_of(group.second)
        assert len(list(group.first.store_dir.glob("commitlog-damaged-*"))) == 2
        assert group.first.terminate() == 0
        assert group.first.check().is_clean


def test_a_slave_gets_what_is_behind_damage_that_nobody_else_has(tmp_path: Path) -> None:
    """Without that, replication ends there for good: mqchaos, seed 17000."""
    with Group(tmp_path).running() as group:
        group.start(group.first, ASYNC_MASTER)
        with group.first.client() as client:
            sent = send_all(client, range(MESSAGES))
        group.first.crash()
        flip(group.first, sent[DAMAGED].phy_offset + MAGIC_AT)
        group.start(group.first, ASYNC_MASTER)
        with counters_of(group.first) as counters:
            assert counters[FENCE_COUNT] == 1
            group.start(group.second, SLAVE)
            wait_until(lambda: counters[FENCE_COUNT] == 0, 60)
        wait_until(lambda: log_of(group.second) == log_of(group.first), 20)
        assert len(list(group.first.store_dir.glob("commitlog-damaged-*"))) == 1
        with group.first.client() as client:
            assert_pulled(client, sent, {DAMAGED})
            sent |= send_all(client, range(MESSAGES, MESSAGES + 8))
        wait_until(lambda: log_of(group.second) == log_of(group.first), 20)
        with group.second.client() as client:
            assert_pulled(client, sent, {DAMAGED})
        for broker in (group.second, group.first):
            assert broker.terminate() == 0
            assert broker.check().is_clean

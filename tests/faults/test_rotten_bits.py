"""Bits that flip on disk in closed log files: verifyReplica finds every one, and a pair repairs it.

Real brokers. The truth is from outside: copies of the files that the test takes before it flips
bits, the places that it flips, and what a client pulls.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from store.control_slots import DISPATCHED_OFFSET, FENCE_COUNT, FLUSHED_OFFSET
from tests.support.broker_group import ASYNC_MASTER, SLAVE, TOPIC, Group, counters_of, log_of
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker, Sent

FILE_SIZE = 64 << 10
MESSAGES = 900
QUEUES = 4
BODY_AT = 88
VIEW_MESSAGE = 33
VERIFY_LOG = 28910
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))]
SMALL = {"mappedFileSizeCommitLog": FILE_SIZE, "scrubIntervalHours": 10_000}

KINDS: dict[str, Callable[[bytes], tuple[int, int]]] = {
    "size": lambda record: (0, 4),
    "magic": lambda record: (4, 8),
    "body CRC": lambda record: (8, 12),
    "queue id": lambda record: (12, 16),
    "flag": lambda record: (16, 20),
    "queue offset": lambda record: (20, 28),
    "place": lambda record: (28, 36),
    "system flag": lambda record: (36, 40),
    "time of birth": lambda record: (40, 48),
    "host of birth": lambda record: (48, 56),
    "store time": lambda record: (56, 64),
    "store host": lambda record: (64, 72),
    "reconsume times": lambda record: (72, 76),
    "prepared offset": lambda record: (76, 84),
    "body size": lambda record: (84, 88),
    "body": lambda record: (BODY_AT, topic_at(record)),
    "topic size": lambda record: (topic_at(record), topic_at(record) + 1),
    "topic": lambda record: (topic_at(record) + 1, topic_at(record) + 1 + len(TOPIC)),
    "size of properties": lambda record: (properties_at(record) - 2, properties_at(record)),
    "properties": lambda record: (properties_at(record), len(record)),
}
"""Field to its bytes in a record, by RocketMQ's layout."""


def topic_at(record: bytes) -> int:
    return BODY_AT + int.from_bytes(record[84:88], "big")


def properties_at(record: bytes) -> int:
    return topic_at(record) + 1 + len(TOPIC) + 2


@dataclass(frozen=True)
class Flip:
    broker: OurBroker
    kind: str
    place: int
    before: int
    after: int


def body_of(number: int) -> bytes:
    return b"%06d" % number * (20 + number % 30)


def file_of(broker: OurBroker, place: int) -> Path:
    return broker.store_dir / "commitlog" / f"{place - place % FILE_SIZE:020d}"


def flip(broker: OurBroker, record_at: int, kind: str, dice: random.Random) -> Flip:
    """One bit of one field of the record at that place of the log."""
    with file_of(broker, record_at).open("r+b") as file:
        file.seek(record_at % FILE_SIZE)
        size = int.from_bytes(file.read(4), "big")
        file.seek(record_at % FILE_SIZE)
        first, end = KINDS[kind](file.read(size))
        place = record_at + dice.randrange(first, end)
        file.seek(place % FILE_SIZE)
        (byte,) = file.read(1)
        file.seek(place % FILE_SIZE)
        wrong = byte ^ (1 << dice.randrange(8))
        file.write(bytes((wrong,)))
    return Flip(broker, kind, place, byte, wrong)


def closed_files(broker: OurBroker) -> dict[str, bytes]:
    """All log files but the last that has something."""
    files = sorted((broker.store_dir / "commitlog").glob("[0-9]*"))
    written = {path.name: data for path in files if any(data := path.read_bytes())}
    return dict(list(written.items())[:-1])


def verify(group_server: str, *options: str) -> tuple[int, list[dict[str, Any]], str]:
    """mqadmin verifyReplica: exit code, what it says of each broker, what it complains of."""
    command = [sys.executable, "-m", "tools.mqadmin", "verifyReplica", "-n", group_server, "--json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def server_of(broker: OurBroker) -> str:
    return f"127.0.0.1:{broker.ports['namesrv']}"


def send_all(client: FrameClient) -> dict[int, Sent]:
    sent = {
        number: client.send(TOPIC, number % QUEUES, body_of(number), f"key{number}")
        for number in range(MESSAGES)
    }
    assert {answer.code for answer in sent.values()} == {0}
    return sent


def wait_all_closed(broker: OurBroker, end: int) -> None:
    with counters_of(broker) as counters:
        wait_until(lambda: min(counters[FLUSHED_OFFSET], counters[DISPATCHED_OFFSET]) >= end, 20)


def bodies(client: FrameClient, queue_id: int) -> dict[int, bytes]:
    """Queue offset to body, of all that a consumer gets."""
    found, at, end = {}, 0, client.offset(30, TOPIC, queue_id)
    while at < end:
        pulled = client.pull(TOPIC, queue_id, at)
        found.update({message.queue_offset: message.body for message in pulled.messages})
        assert pulled.next_offset > at
        at = pulled.next_offset
    return found


def assert_all_are_pulled(broker: OurBroker, sent: dict[int, Sent], missing: set[int]) -> None:
    with broker.client() as client:
        for queue_id in range(QUEUES):
            assert bodies(client, queue_id) == {
                answer.queue_offset: body_of(number)
                for number, answer in sent.items()
                if number % QUEUES == queue_id and number not in missing
            }


def start_pair(group: Group, **settings: object) -> dict[int, Sent]:
    """Both run, with the same closed files."""
    group.start(group.first, ASYNC_MASTER, **SMALL, **settings)
    group.start(group.second, SLAVE, **SMALL, **settings)
    with group.first.client() as client:
        sent = send_all(client)
    wait_until(lambda: log_of(group.second) == log_of(group.first), 30)
    for broker in (group.first, group.second):
        wait_all_closed(broker, max(answer.phy_offset for answer in sent.values()))
    return sent


def wait_registered(group: Group) -> None:
    def both() -> bool:
        return len(verify(server_of(group.first))[1]) == 2

    wait_until(both, 60)


def records_of(sent: dict[int, Sent], files: dict[str, bytes]) -> list[int]:
    """Places of the records in closed files."""
    end = (int(max(files)) // FILE_SIZE + 1) * FILE_SIZE
    return [answer.phy_offset for answer in sent.values() if answer.phy_offset < end]


def kept_copies(broker: OurBroker) -> dict[tuple[int, int], bytes]:
    """Range of the log to the bytes that were there before a repair."""
    found = {}
    for path in broker.store_dir.glob("commitlog-damaged-*"):
        start, end = map(int, path.name.split("-")[2:])
        found[start, end] = path.read_bytes()
    return found


@pytest.mark.fault(23)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_flipped_bit_of_a_pair_is_found_and_repaired(
    tmp_path: Path, seed: int, proved: Callable[[str], None]
) -> None:
    dice = random.Random(seed)
    with Group(tmp_path).running() as group:
        sent = start_pair(group)
        wait_registered(group)
        code, _, complaints = verify(server_of(group.first))
        assert (code, complaints) == (0, "")
        brokers = (group.first, group.second)
        before = {broker.store_dir: closed_files(broker) for broker in brokers}
        assert before[group.first.store_dir] == before[group.second.store_dir]
        places = records_of(sent, before[group.first.store_dir])
        flips = []
        for kind in KINDS:
            place = places.pop(dice.randrange(len(places)))
            # A file rots on one side: were it both, nobody could know what it was.
            broker = brokers[place // FILE_SIZE % 2]
            flips.append(flip(broker, place, kind, dice))
        code, said, complaints = verify(server_of(group.first))
        assert (code, complaints) == (0, ""), said
        for broker in brokers:
            assert closed_files(broker) == before[broker.store_dir]
        for each in flips:
            copies = kept_copies(each.broker)
            rotten = [
                data[each.place - start]
                for (start, end), data in copies.items()
                if start <= each.place < end
            ]
            assert each.after in rotten, each
        assert_all_are_pulled(group.first, sent, set())
        assert_all_are_pulled(group.second, sent, set())
        assert verify(server_of(group.first))[0] == 0
    proved(f"{len(flips)} flipped bits of {len(KINDS)} fields found and repaired, seed {seed}")


@pytest.mark.fault(23)
def test_what_two_copies_cannot_decide_is_reported_and_left_alone(tmp_path: Path) -> None:
    with Group(tmp_path).running() as group:
        sent = start_pair(group, scrubBytesPerSecond=0)
        before = closed_files(group.second)
        (place, *_) = records_of(sent, before)
        flip(group.first, place, "store host", random.Random(1))
        rotten = closed_files(group.first)

        def differs() -> bool:
            code, said, complaints = verify(server_of(group.first))
            if len(said) < 2:
                return False
            assert code == 1
            assert "1 chunks differ" in complaints
            rows = [row for broker in said for row in broker["replicas"]]
            assert [(row["different"], row["firstDifference"]) for row in rows] == [(1, 0)] * 2
            return True

        wait_until(differs, 60)
        assert closed_files(group.first) == rotten
        assert closed_files(group.second) == before


@pytest.mark.fault(23)
def test_without_a_replica_damage_is_fenced_and_never_served(tmp_path: Path) -> None:
    with OurBroker(tmp_path, **SMALL) as broker:
        broker.start()
        with broker.client() as client:
            sent = send_all(client)
        wait_all_closed(broker, max(answer.phy_offset for answer in sent.values()))
        assert verify(server_of(broker))[0] == 0
        closed = closed_files(broker)
        with broker.client() as client:
            status = {"action": "scrub", "bytesPerSecond": 1}
            number = json.loads(client.call(VERIFY_LOG, status).body)["passNumber"]
            assert_all_are_pulled(broker, sent, set())
            found = json.loads(client.call(VERIFY_LOG, {"action": "status"}).body)
            assert (found["passNumber"], found["passesEnded"]) == (number, number - 1)
        dice = random.Random(3)
        damaged = {5: "body", 20: "magic", 100: "size", 301: "properties", 450: "body CRC"}
        for number, kind in damaged.items():
            flip(broker, sent[number].phy_offset, kind, dice)
        code, (said,), complaints = verify(server_of(broker))
        assert code == 1
        assert "4 damaged ranges cannot be read" in complaints
        assert "1 chunks have changed since they were read first" in complaints
        assert (said["damagedRanges"], said["changedChunks"]) == (4, 1)
        del damaged[301]
        with counters_of(broker) as counters:
            assert counters[FENCE_COUNT] == 4
        assert_all_are_pulled(broker, sent, set(damaged))
        with broker.client() as client:
            for number in damaged:
                answer = client.call(VIEW_MESSAGE, {"offset": sent[number].phy_offset})
                assert answer.code != 0
                assert not answer.body
        changed = {name for name, data in closed_files(broker).items() if data != closed[name]}
        assert len(changed) == len({sent[n].phy_offset // FILE_SIZE for n in (*damaged, 301)})

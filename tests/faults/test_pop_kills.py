"""kill -9 of each process while 20 consumers pop, acknowledge, change invisible times and fail.

What each consumer was answered is compared with the log after an orderly stop: what is pending
there is what Java's revive would hand out again. Nothing is lost, nothing whose ack was answered is
pending, and nothing is handed out twice before its time. Seeded: a failure names its seed.
"""

from __future__ import annotations

import itertools
import random
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.pop.ack_msg import AckMsg, BatchAckMsg
from broker.pop.check_point import CheckPointKey
from broker.pop.pop_check_point import PopCheckPoint
from broker.supervisor.child_state import QUICK_DEATHS
from store.message import Message
from store.message_codec import RecordKind, check_record, decode_record
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tests.support.pop_client import PopClient, PoppedMessage
from tools.chaos.free_ports import free_port

NAME, TOPIC, GROUP, QUEUES = "broker-a", "PopKills", "GPopKills", 4
CONSUMERS = 20
COUNT_OF_ORDERED = 60
INVISIBLE_MS = 600_000
"""No message becomes visible again while a test runs, however busy the machine."""
PROCESSES = ("remoting", "store", "ha", "all")

Place = tuple[int, int]
"""Queue id and queue offset of a message."""


@dataclass
class Ledger:
    """What the consumers know. Guarded by its lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    popped: Counter[Place] = field(default_factory=Counter)
    acked: set[Place] = field(default_factory=set)
    """Their acks were answered with 0."""
    in_doubt: set[Place] = field(default_factory=set)
    """Their acks were sent; no answer came."""
    failures: list[str] = field(default_factory=list)


class Consumer(threading.Thread):
    """Pops and does one of the three things to each message, until told to end."""

    def __init__(self, broker: OurBroker, ledger: Ledger, seed: int, end: threading.Event) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._ledger = ledger
        self._random = random.Random(seed)
        self._end = end

    def run(self) -> None:
        while not self._end.is_set():
            try:
                with self._broker.client(timeout_s=5) as frames:
                    self._consume(PopClient(frames, GROUP, NAME))
            except (OSError, EOFError):
                time.sleep(0.02)
            except AssertionError as error:
                self._ledger.failures.append(repr(error))
                return

    def _consume(self, client: PopClient) -> None:
        while not self._end.is_set():
            count = self._random.choice((1, 8, 32))
            answer = client.pop(TOPIC, maxMsgNums=count, invisibleTime=INVISIBLE_MS)
            if answer.code != 0:
                time.sleep(0.02)
                continue
            with self._ledger.lock:
                self._ledger.popped.update((one.queue_id, one.offset) for one in answer.messages)
            for one in answer.messages:
                self._handle_popped(client, one)

    def _handle_popped(self, client: PopClient, popped: PoppedMessage) -> None:
        chance = self._random.random()
        if chance < 0.1:
            return
        if chance < 0.25:
            popped = client.change(popped, INVISIBLE_MS)
            if chance < 0.15:
                return
        if chance > 0.99:
            time.sleep(0.1)
        place = (popped.queue_id, popped.offset)
        with self._ledger.lock:
            self._ledger.in_doubt.add(place)
        answer = client.ack(popped)
        assert answer.code == 0, answer.remark
        with self._ledger.lock:
            self._ledger.in_doubt.discard(place)
            self._ledger.acked.add(place)


class Producer(threading.Thread):
    """Sends without a pause to speak of, until told to end; what arrived is in the log."""

    def __init__(self, broker: OurBroker, end: threading.Event) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._end = end

    def run(self) -> None:
        while not self._end.is_set():
            try:
                with self._broker.client(timeout_s=5) as frames:
                    while not self._end.is_set():
                        opaques = [frames.post_send(TOPIC, n % QUEUES, b"x") for n in range(24)]
                        for opaque in opaques:
                            frames.take_send(opaque)
                        time.sleep(0.1)
            except (OSError, EOFError):
                time.sleep(0.02)


def records(store_dir: Path) -> list[Message]:
    """Everything in the commit log."""
    found = []
    for path in sorted((store_dir / "commitlog").glob("[0-9]*")):
        data, position, base = path.read_bytes(), 0, int(path.name)
        while True:
            check = check_record(data, position, len(data), base + position, check_crc=True)
            if check.kind is not RecordKind.MESSAGE:
                break
            found.append(decode_record(data, position)[0])
            position += check.size
    return found


def pending(stored: list[Message]) -> set[Place]:
    """What a revive would hand out again: of all check points, what no ack names."""
    left: dict[CheckPointKey, set[Place]] = {}
    acks: list[AckMsg] = []
    for record in stored:
        tag = record.find_property("TAGS")
        if tag == "ck":
            point = PopCheckPoint.from_json_bytes(record.body)
            places = {(point.queue_id, offset) for offset in point.check_point(0).offsets}
            left.setdefault(point.key, set()).update(places)
        elif tag == "ack":
            acks.append(AckMsg.from_json_bytes(record.body))
        elif tag == "bAck":
            acks.append(BatchAckMsg.from_json_bytes(record.body))
    for ack in acks:
        offsets = ack.ack_offset_list if isinstance(ack, BatchAckMsg) else [ack.ack_offset]
        places = left.get(ack.key, set())
        places.difference_update((ack.queue_id, offset) for offset in offsets)
    return set().union(*left.values())


def kill(broker: OurBroker, name: str) -> None:
    if name == "all":
        broker.crash()
        broker.start()
    else:
        broker.restart_by_kill(name)


def run(root: Path, seed: int, kills: tuple[str, ...]) -> None:
    ledger, chance = Ledger(), random.Random(seed)
    sent, end = threading.Event(), threading.Event()
    with OurBroker(
        root, brokerName=NAME, listenPort=free_port(-2, 1), popCkStayBufferTime=400
    ) as broker:
        broker.start()
        producer = Producer(broker, sent)
        producer.start()
        wait_until(lambda: is_there(broker))
        consumers = [Consumer(broker, ledger, seed * 100 + n, end) for n in range(CONSUMERS)]
        for consumer in consumers:
            consumer.start()
        for name in kills:
            time.sleep(chance.uniform(0.2, 0.6))
            kill(broker, name)
        sent.set()
        producer.join(10)
        await_drained(broker)
        end.set()
        for consumer in consumers:
            consumer.join(10)
        broker.terminate()
        judge(broker.store_dir, ledger, seed)


def is_there(broker: OurBroker) -> bool:
    """Whether the topic is."""
    with broker.client() as frames:
        return frames.offset(30, TOPIC, 0) > 0


def await_drained(broker: OurBroker) -> None:
    """Until a pop finds nothing any more, twice a second: consumers are busy or done."""

    def is_drained() -> bool:
        try:
            with broker.client() as frames:
                answer = PopClient(frames, GROUP, NAME).pop(TOPIC, maxMsgNums=0)
                return answer.code == 210 and answer.rest == 0
        except OSError:
            return False

    wait_until(is_drained, 60)
    time.sleep(1)


def judge(store_dir: Path, ledger: Ledger, seed: int) -> None:
    assert not ledger.failures, f"seed {seed}: {ledger.failures[:3]}"
    stored = records(store_dir)
    left = pending(stored)
    places = {(one.queue_id, one.queue_offset) for one in stored if one.topic == TOPIC}
    twice = [place for place, times in ledger.popped.items() if times > 1]
    assert not twice, f"seed {seed}: handed out twice before their time: {twice[:5]}"
    back = ledger.acked & left
    assert not back, f"seed {seed}: acknowledged and pending: {sorted(back)[:5]}"
    lost = places - ledger.acked - ledger.in_doubt - left
    assert not lost, f"seed {seed}: {len(lost)} lost: {sorted(lost)[:5]}"
    # Each kill leaves what twenty consumers hold: on a busy machine more than half of a short run.
    assert len(ledger.acked) > len(places) // 4


def test_kills_under_twenty_consumers(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    kills = ["remoting", "store", "all"]
    random.Random(seed).shuffle(kills)
    run(tmp_path, seed, tuple(kills))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_many_kills_under_twenty_consumers(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, many_kills(random.Random(seed)))


def many_kills(chance: random.Random) -> tuple[str, ...]:
    """Twelve; no supervisor sees so many ends of one process that it gives up."""
    kills: list[str] = []
    seen: Counter[str] = Counter()
    for name in chance.choices(PROCESSES, k=12):
        if name == "all" or seen[name] == QUICK_DEATHS - 1:
            name = "all"
            seen.clear()
        seen[name] += 1
        kills.append(name)
    return tuple(kills)


@pytest.mark.slow
def test_an_ordered_group_goes_on_after_kills(tmp_path: Path) -> None:
    """Pops of any queue, as a proxy's, wait while a batch is acknowledged by another connection;
    processes are killed between batches. Nothing is lost or comes before what was sent earlier, and
    no batch waits for a pop's time (20 s)."""
    count, kills = COUNT_OF_ORDERED, {12: "remoting", 24: "store", 36: "all"}
    with OurBroker(tmp_path, brokerName=NAME, listenPort=free_port()) as broker:
        broker.start()
        with broker.client() as frames:
            for number in range(count):
                assert frames.send(TOPIC, 0, b"%d" % number).code == 0
            wait_until(lambda: frames.offset(30, TOPIC, 0) == count)
        first_seen: dict[int, float] = {}
        while len(first_seen) < count:
            try:
                _pop_in_order(broker, first_seen, kills)
            except (OSError, EOFError):
                time.sleep(0.02)
        assert not kills
        assert list(first_seen) == list(range(count))
        times = list(first_seen.values())
        assert max(b - a for a, b in itertools.pairwise(times)) < 10.0


def _pop_in_order(broker: OurBroker, first_seen: dict[int, float], kills: dict[int, str]) -> None:
    """Until all were seen, or the connection is lost. Each batch is asked for before the one before
    it is acknowledged."""
    fields = {"order": "true", "maxMsgNums": 4, "pollTime": 20_000, "invisibleTime": 3_000}
    with broker.client(timeout_s=25) as pops, broker.client() as acks:
        group, acking = PopClient(pops, GROUP, NAME), PopClient(acks, GROUP, NAME)
        batch: list[PoppedMessage] = []
        while len(first_seen) < COUNT_OF_ORDERED:
            waiting = group.post_pop(TOPIC, attemptId=f"{time.monotonic_ns()}", **fields)
            for one in batch:
                assert acking.ack(one).code == 0
            batch = group.take_pop(waiting, TOPIC).messages
            for one in batch:
                first_seen.setdefault(int(one.message.body), time.monotonic())
            name = kills.pop(len(first_seen), None)
            if name == "all":
                broker.crash()
                broker.start()
            elif name is not None:
                broker.kill(name)


@pytest.mark.slow
def test_an_offset_that_was_set_back_counts_after_a_kill(tmp_path: Path) -> None:
    """Nobody has popped in between. The journal brought its own offset back, which was further."""
    broker = OurBroker(
        tmp_path, brokerName=NAME, listenPort=free_port(), flushConsumerOffsetInterval=200
    )
    path = tmp_path / "store" / "config" / "consumerOffset.json"
    saved = re.compile(rf'"{TOPIC}@{GROUP}":\s*{{\s*0:\s*2\b')
    with broker:
        broker.start()
        with broker.client() as frames:
            client = PopClient(frames, GROUP, NAME)
            for number in range(5):
                assert frames.send(TOPIC, 0, b"%d" % number).code == 0
            wait_until(lambda: frames.offset(30, TOPIC, 0) == 5)
            for one in client.pop(TOPIC, queueId=0).messages:
                assert client.ack(one).code == 0
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
            wait_until(lambda: frames.call(14, fields).ext_fields["offset"] == "5")
            assert frames.call(15, {**fields, "commitOffset": 2}).code == 0
        wait_until(lambda: path.exists() and saved.search(path.read_text()) is not None)
        broker.crash()
        broker.start()
        with broker.client() as frames:
            found = PopClient(frames, GROUP, NAME).pop(TOPIC, queueId=0).messages
            assert [one.message.body for one in found] == [b"2", b"3", b"4"]

"""What is counted of transactions, beside what their producers know that they did.

Nothing of what is expected is read from the broker: it is the producer's own list of halves sent,
ended, and asked about. Both roads: a fast commit of a young half, and the general path.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.metrics import metrics_table as table
from broker.topic.system_topics import TRANS_CHECK_MAX_TIME_TOPIC
from remoting.errors import RequestError
from remoting.request_code import RequestCode
from store.message_codec import encode_message_id
from tests.broker.broker_fakes import request_of
from tests.broker.hot_path_world import send_request
from tests.broker.transaction.test_end_transaction_route import PROPERTIES, Side
from tests.broker.transaction_world import (
    CHECK_MAX,
    COMMIT,
    GROUP,
    ROLLBACK,
    UNKNOWN,
    Half,
    TransactionWorld,
    asked,
    end_request,
)

T = ("T", GROUP)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TransactionWorld]:
    made = TransactionWorld(tmp_path)
    yield made
    made.hot.close()


class Producer:
    """What a producer knows of its transactions."""

    def __init__(self, world: TransactionWorld) -> None:
        self.world = world
        self.open: list[Half] = []
        self.did: Counter[int] = Counter()
        self.asked = self.sent = 0

    def send(self) -> Half:
        self.sent += 1
        half = self.world.prepare(properties=f"\x02UNIQ_KEY\x01{self.sent}")
        self.open.append(half)
        return half

    def end(self, half: Half, decision: int) -> None:
        answer = self.world.end(half, decision)
        if half in self.open and decision != UNKNOWN:
            assert answer is not None
            assert answer.code == 0, answer.remark
            self.open.remove(half)
            self.did[decision] += 1

    def check(self) -> None:
        """What the broker is to show."""
        world = self.world
        assert world.waiting() == ({T: len(self.open)} if self.open else {})
        counted = {COMMIT: table.COMMIT_MESSAGES, ROLLBACK: table.ROLLBACK_MESSAGES}
        for decision, metric in counted.items():
            assert world.counted(metric) == ({"T": n} if (n := self.did[decision]) else {})
        assert sum(world.counted(table.TRANSACTION_FINISH).values()) == self.did.total()
        assert world.counted(table.TRANSACTION_CHECKS).get("T", 0) == self.asked


def test_ends_of_all_kinds(world: TransactionWorld) -> None:
    producer = Producer(world)
    halves = [producer.send() for _ in range(6)]
    producer.check()
    producer.end(halves[0], COMMIT)
    producer.end(halves[1], ROLLBACK)
    producer.end(halves[2], UNKNOWN)
    for again in (COMMIT, ROLLBACK):
        producer.end(halves[0], again)
        producer.end(halves[1], again)
    producer.check()
    forged = Half(halves[3].phy_offset, halves[4].queue_offset)
    for half, group in ((forged, GROUP), (halves[3], "Q"), (Half(1 << 40, 3), GROUP)):
        with pytest.raises(RequestError):
            world.end(half, COMMIT, producerGroup=group)
    producer.check()


def test_halves_that_are_checked_stay_one(world: TransactionWorld) -> None:
    """Asked about again and again, then ended by the name of any of its records."""
    producer, connection = Producer(world), world.connect()
    first, second, third = (producer.send() for _ in range(3))
    for number in (1, 2):
        world.round()
        copies = asked(connection)
        producer.asked += len(copies)
        assert len(copies) == 3
        producer.check()
        assert world.oldest_ms() == number * 60_000
    producer.end(first, COMMIT)
    producer.open.remove(second)
    producer.open.append(copies[1])
    producer.end(copies[1], ROLLBACK)
    producer.check()
    producer.end(copies[0], COMMIT)
    world.round()
    producer.asked += len(asked(connection))
    producer.check()
    assert third in producer.open


def test_what_is_given_up_waits_no_more(world: TransactionWorld) -> None:
    producer = Producer(world)
    producer.send()
    for _ in range(CHECK_MAX + 1):
        producer.check()
        assert world.counted(table.HALVES_GIVEN_UP) == {}
        world.round()
    assert world.waiting() == {}
    assert world.counted(table.HALVES_GIVEN_UP) == {"T": 1}
    world.round()
    assert world.counted(table.HALVES_GIVEN_UP) == {"T": 1}


@pytest.mark.parametrize("checks", [0, 1, 2])
@pytest.mark.parametrize("lost_progress", [False, True])
def test_a_restart_and_a_takeover_know_what_waits(
    world: TransactionWorld, checks: int, lost_progress: bool
) -> None:
    """lost_progress: as a slave that takes over with older offsets, or after a crash."""
    producer, connection = Producer(world), world.connect()
    halves = [producer.send() for _ in range(4)]
    producer.end(halves[1], COMMIT)
    world.offsets.persist()
    if not checks:
        producer.end(halves[2], ROLLBACK)
    for number in range(checks):
        world.round()
        asked(connection)
        if number == 0:
            producer.end(halves[2], ROLLBACK)
    if not lost_progress:
        world.offsets.persist()
    since_ms = world.oldest_ms()
    world.restart()
    assert world.waiting() == {T: 2}
    assert world.oldest_ms() == since_ms
    world.round()
    for half in asked(connection):
        world.end(half, COMMIT, fromTransactionCheck="true")
    world.round()
    assert world.waiting() == {}, "whoever was asked has answered"


def test_what_lies_behind_the_checks_is_theirs_no_more(world: TransactionWorld) -> None:
    """A slave that acted has handed the halves over: the master takes over how far it came (43)."""
    producer = Producer(world)
    producer.send()
    producer.send()
    world.offsets.commit_own_offset("x", "CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 1)
    world.round()
    assert world.waiting() == {T: 1}


def test_a_half_that_is_asked_about_again_after_all(world: TransactionWorld) -> None:
    producer, connection = Producer(world), world.connect()
    half = producer.send()
    world.round()
    asked(connection)
    assert world.waiting() == {T: 1}
    producer.end(half, COMMIT)
    assert world.waiting() == {}


def test_a_half_that_was_given_up_and_is_resumed_waits_again(world: TransactionWorld) -> None:
    producer, connection = Producer(world), world.connect()
    producer.send()
    for _ in range(CHECK_MAX + 1):
        world.round()
    asked(connection)
    assert world.waiting() == {}
    (given_up,) = world.messages(TRANS_CHECK_MAX_TIME_TOPIC)
    message_id = encode_message_id(given_up.store_host, given_up.phy_offset)
    resumed = request_of(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=message_id)
    assert world.processor.process_request(world.connection, resumed) is None
    world.turn()
    assert world.waiting() == {T: 1}
    world.round()
    (copy,) = asked(connection)
    assert world.waiting() == {T: 1}
    producer.open = [copy]
    producer.end(copy, COMMIT)
    assert world.waiting() == {}


def test_a_half_that_ends_while_a_start_reads_what_waits(world: TransactionWorld) -> None:
    """What the thread of the checks has found comes to the loop a little later."""
    producer = Producer(world)
    ending, waiting = producer.send(), producer.send()
    later: list[Callable[[], None]] = []
    world.on_loop = later.append
    world.restart()
    world.on_loop = lambda function: function()
    producer.end(ending, COMMIT)
    for function in later:
        function()
    assert producer.open == [waiting]
    assert world.waiting() == {T: 1}


def test_only_halves_without_an_end_are_read_at_a_start(world: TransactionWorld) -> None:
    producer = Producer(world)
    halves = [producer.send() for _ in range(5)]
    for half in halves[1:4]:
        producer.end(half, COMMIT)
    world.restart()
    found = [half.queue_offset for half in world.bridge.halves_without_end(lambda: False)]
    assert found == [halves[0].queue_offset, halves[4].queue_offset]
    assert list(world.bridge.halves_without_end(lambda: True)) == []


def test_groups_of_a_hostile_client(world: TransactionWorld) -> None:
    halves = [
        world.prepare(properties=f"\x02PGROUP\x01{'x' * 20_000}{number}") for number in range(3)
    ]
    assert {(topic, len(group)) for topic, group in world.waiting()} == {("T", 255)}
    assert sum(world.waiting().values()) == len(halves)


@pytest.mark.parametrize("seed", range(4))
def test_any_history(world: TransactionWorld, seed: int) -> None:
    """Without checks: those give each half another name."""
    chance, producer = random.Random(seed), Producer(world)
    sent: list[Half] = []
    for _ in range(60):
        if not sent or chance.random() < 0.5:
            sent.append(producer.send())
        else:
            producer.end(chance.choice(sent), chance.choice((COMMIT, ROLLBACK, UNKNOWN)))
        if chance.random() < 0.05:
            world.restart()
        assert world.waiting() == ({T: len(producer.open)} if producer.open else {})


@pytest.mark.interpreted
def test_the_fast_road_counts_what_the_general_one_counts(tmp_path: Path) -> None:
    sides = Side(tmp_path / "hot"), Side(tmp_path / "general")
    with contextlib.ExitStack() as stack:
        for side in sides:
            stack.callback(side.hot.close)
        hot, general = sides
        before = [side.world.counted(table.COMMIT_MESSAGES).get("T", 0) for side in sides]
        assert before == [1, 1], "the first of each kind"
        hot.forbid_general()
        for side in sides:
            for number in range(5):
                (answer,) = side.ask(send_request(properties=PROPERTIES))
                assert answer.code == 0
                if number < 3:
                    side.hot.clock.advance(7)
                    half = Half(*side.last_half())
                    if side is general:
                        side.young.clear()
                    (answer,) = side.ask(end_request(half, COMMIT))
                    assert answer.code == 0
        for side in sides:
            world = side.world
            assert world.waiting() == {T: 2}
            assert world.counted(table.COMMIT_MESSAGES) == {"T": 4}
            assert world.counted(table.FINISH_MESSAGE_LATENCY) == {"T": 4}
        slots = [side.hot.stats.slots for side in sides]
        name, size = table.TRANSACTION_FINISH.name, table.TRANSACTION_FINISH.size
        shown = [one.values[one.find(name, ("commit",), size) :][:size] for one in slots]
        assert shown[0] == shown[1]


@pytest.mark.parametrize("mark", ["", "\x02TRAN_MSG\x01false", "\x02TRAN_MSG\x01"])
def test_ordinary_sends_are_no_halves(world: TransactionWorld, mark: str) -> None:
    client = world.hot.client()
    request = send_request(b"x", properties=f"PGROUP\x01{GROUP}\x02UNIQ_KEY\x01U{mark}")
    assert world.hot.send_processor.process_request(client.connection, request) is None
    world.turn()
    (answer,) = client.answers()
    assert answer.code == 0, answer.remark
    assert world.waiting() == {}
    assert world.messages("T")


@pytest.mark.interpreted
@pytest.mark.parametrize("text", [f"PGROUP\x01{GROUP}", "DELAY\x011", "__SHARDINGKEY\x01s"])
def test_ordinary_sends_of_the_fast_road_are_no_halves(tmp_path: Path, text: str) -> None:
    side = Side(tmp_path)
    with contextlib.closing(side.hot):
        side.young.find(0)  # Somebody commits: halves are kept from now on.
        side.forbid_general()
        for properties, halves in ((text, 0), (PROPERTIES, 1), (text, 1)):
            (answer,) = side.ask(send_request(properties=properties))
            assert answer.code == 0
            assert side.world.waiting() == ({T: halves} if halves else {})
            assert len(side.young) == halves

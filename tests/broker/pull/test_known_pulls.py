"""KnownPulls: the same bytes and the same notes as the general path, whatever changes between two
pulls; and that the pulls it is for take it. And that what TaggedUnits kept for a pull is what it
would have found without."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.filter.subscription_filter import MOST_KEPT
from ipc.queue_table import QueueTableWriter
from remoting.body.heartbeat import SubscriptionData
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand, SerializeType
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.java_hash import string_hash
from tests.broker.hot_path_world import HotPathWorld, pull_request, send_request

QUEUES = 2
FILE_SIZE = 1 << 17
UNITS_PER_FILE = 120
GROUPS = ("G", "H", "K")
READS = (0, 19, 20, 21)
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4


def pulled(world: HotPathWorld) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Pulls, messages and bytes by group and topic: one pull or several count alike."""
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for group, topic, count, size in world.stats.gets:
        old = found.get((group, topic), (0, 0, 0))
        found[group, topic] = (old[0] + (not count), old[1] + count, old[2] + size)
    return found


def answered(world: HotPathWorld) -> dict[tuple[int, int], int]:
    return {key: count for key, count in world.stats.answers.items() if key[1] in READS}


class Pair:
    """Two worlds to which the same happens; pulls of the second take the general path, and look for
    tags each by itself."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.chance = chance
        self.fast, self.general = self.worlds = tuple(
            HotPathWorld(
                root / name,
                fast=name == "fast",
                file_size=FILE_SIZE,
                files=12,
                units_per_file=UNITS_PER_FILE,
            )
            for name in ("fast", "general")
        )
        self.clients = [world.client(port=4711) for world in self.worlds]
        self.next: dict[tuple[str, int], int] = {}
        """Where a consumer that does as it is told goes on, by group and queue."""
        self.opaque = 0
        for world in self.worlds:
            world.topic("T", QUEUES)
            # No check of a block takes long, however busy this machine is.
            world.checked_units._thread_time_ns = lambda: 0

    def on_each(self, action: Callable[[HotPathWorld], object]) -> None:
        for world in self.worlds:
            action(world)

    def send(self, count: int) -> None:
        sends = [
            send_request(
                bytes(self.chance.choice([0, 40, 300])),
                queue_id=self.chance.randrange(QUEUES),
                properties=f"TAGS\x01{self.chance.choice('AB')}",
            )
            for _ in range(count)
        ]
        for number, send in enumerate(sends):
            send.opaque = number
        data = b"".join(map(encode_command, sends))

        def store(world: HotPathWorld) -> None:
            sender = world.client(port=4712)
            sender.send(data)
            world.turn()
            world.dispatch()
            world.turn()

        self.on_each(store)

    def pull(self, **fields: Any) -> RemotingCommand | None:
        """The answer, the same in both worlds; None: it is held."""
        self.opaque += 1
        form = self.chance.choice([SerializeType.JSON, SerializeType.ROCKETMQ])
        request = pull_request(serialize=form, **fields)
        request.opaque = self.opaque
        for world, client in zip(self.worlds, self.clients, strict=True):
            client.send(request)
            world.turn()
        self.general.pull_processor._reader._tagged._blocks.clear()
        return self.compare(request.opaque)

    def compare(self, opaque: int) -> RemotingCommand | None:
        fast, general = (bytes(client.sock.written) for client in self.clients)
        assert fast == general
        answers = self.clients[0].answers()
        self.clients[1].answers()
        self.on_each(lambda world: world.stats.publish())
        one, other = self.worlds
        assert pulled(one) == pulled(other)
        # What the general path refuses is counted by the dispatcher.
        assert answered(one) == answered(other)
        assert one.stats.late_answers == other.stats.late_answers
        assert one.commits.seen == other.commits.seen
        assert one.commits.pulled == other.commits.pulled
        assert one.damaged == other.damaged
        for world in self.worlds:
            world.stats.gets.clear()
            world.commits.seen.clear()
        return next((answer for answer in answers if answer.opaque == opaque), None)

    def pull_on(self, group: str, queue_id: int, **fields: Any) -> None:
        """As a consumer does: from where it was told, mostly."""
        chance, key = self.chance, (group, queue_id)
        offset = self.next.get(key, 0)
        if not chance.randrange(8):
            offset += chance.choice([-40, -3, -1, 1, 2, 50, 10_000, -10_000])
        answer = self.pull(consumerGroup=group, queueId=queue_id, queueOffset=offset, **fields)
        if answer is not None and "nextBeginOffset" in answer.ext_fields:
            following = int(answer.ext_fields["nextBeginOffset"])
            self.next[key] = following if following != offset else chance.choice([0, following])


def subscribe(world: HotPathWorld, group: str, **fields: Any) -> None:
    """As a heartbeat."""
    world.consumers.groups.add(group)
    world.consumers.subscriptions[group, "T"] = SubscriptionData(
        topic="T", **{"sub_string": "*", "sub_version": 1, **fields}
    )


def change_group(world: HotPathWorld, group: str, **fields: Any) -> None:
    config = world.groups.find(group) or SubscriptionGroupConfig(group_name=group)
    world.groups.update(replace(config, **fields))


def delete_queues(world: HotPathWorld) -> None:
    world.send_processor.block_topic("T")
    world.queues.delete_topic("T")
    world.send_processor.unblock_topic("T", deleted=True)


def renew_queue(world: HotPathWorld) -> None:
    writer = QueueTableWriter(world.table_fd)
    writer.renew(writer.row("T", 0))


def lose_first_file(world: HotPathWorld) -> None:
    low = world.counters[MIN_PHY_OFFSET]
    if low + FILE_SIZE < world.counters[MAX_PHY_OFFSET] - FILE_SIZE:
        world.counters[MIN_PHY_OFFSET] = low + FILE_SIZE


def use(world: HotPathWorld, **settings: Any) -> None:
    old = world.pull_processor._settings
    world.pull_processor.use(msgspec.structs.replace(old, **settings))


def restore(world: HotPathWorld) -> None:
    """All is well again, so that pulls find messages mostly."""
    limits = {"count_in_memory": 32, "bytes_in_memory": 262_144, "memory_limit": 1 << 40}
    use(world, readable=True, **limits)
    world.topic("T", QUEUES)
    for group in GROUPS:
        change_group(world, group, consume_enable=True, consume_broadcast_enable=True)
        world.groups.update_readable(group, "T", readable=True)
        world.consumers.broadcasting.discard(group)
    subscribe(world, "H", sub_version=4)
    subscribe(world, "K", sub_version=4, sub_string="A", code_set=[string_hash("A")])


def changes(pair: Pair) -> list[Callable[[], None]]:
    """What may happen between two pulls."""
    chance = pair.chance
    group = chance.choice(GROUPS)
    whether = bool(chance.randrange(2))
    number = chance.randrange(3)

    def each(function: Callable[..., None], *values: Any, **named: Any) -> Callable[[], None]:
        return lambda: pair.on_each(lambda world: function(world, *values, **named))

    def recreate(world: HotPathWorld) -> None:
        world.topics.delete("T")
        delete_queues(world)
        world.topic("T", QUEUES)

    return [
        lambda: pair.send(chance.choice([1, 5, 80])),
        lambda: pair.send(chance.choice([1, 30])),
        each(subscribe, group, sub_version=number),
        each(subscribe, group, sub_string="A", code_set=[string_hash("A")], sub_version=number + 1),
        each(lambda world: world.consumers.groups.discard(group)),
        each(
            lambda world: (
                world.consumers.broadcasting.add(group)
                if whether
                else world.consumers.broadcasting.discard(group)
            )
        ),
        each(change_group, group, consume_enable=whether),
        each(change_group, group, consume_broadcast_enable=whether),
        each(change_group, group, broker_id=number, which_broker_when_consume_slowly=number + 3),
        each(lambda world: world.groups.delete(group)),
        each(lambda world: world.groups.update_readable(group, "T", readable=whether)),
        each(lambda world: world.topic("T", QUEUES, perm=6 if whether else 2)),
        each(lambda world: world.topic("T", number)),
        each(lambda world: world.topics.delete("T")),
        each(recreate),
        each(renew_queue),
        each(lose_first_file),
        each(lambda world: world.checked_units._blocks.clear()),
        each(
            use,
            readable=chance.randrange(4) > 0,
            slave_read_enable=whether,
            commits_offsets=bool(chance.randrange(2)),
            count_in_memory=chance.choice([1, 7, 32]),
            bytes_in_memory=chance.choice([300, 3_000, 262_144]),
            count_in_disk=chance.choice([1, 8]),
            bytes_in_disk=chance.choice([500, 65_536]),
            memory_limit=chance.choice([0, FILE_SIZE, 1 << 40]),
        ),
    ]


BY_PULL = {"consumerGroup": "G", "sysFlag": SUBSCRIPTION}
BY_HEARTBEAT = {"consumerGroup": "H", "sysFlag": 0, "subscription": "A", "subVersion": 4}
"""Without flag 4 nobody looks at the expression."""
TAG_BY_PULL = BY_PULL | {"subscription": "A"}
TAG_BY_HEARTBEAT = BY_HEARTBEAT | {"consumerGroup": "K", "subscription": None}
USUAL = [BY_PULL, BY_HEARTBEAT, TAG_BY_PULL, TAG_BY_HEARTBEAT]
Change = Callable[[HotPathWorld], object]

CHANGES: dict[str, tuple[Change, int | None]] = {
    "nothing": (lambda _world: None, 0),
    "no reading": (lambda world: use(world, readable=False), 16),
    "no messages of a byte": (lambda world: use(world, bytes_in_memory=1), 0),
    "disk": (lambda world: use(world, memory_limit=0, count_in_disk=3), 0),
    "slaves": (lambda world: use(world, slave_read_enable=True), 0),
    "no group may": (lambda world: both(world, consume_enable=False), 16),
    "other broker": (lambda world: other_broker(world, 1 << 40), 0),
    "other broker, disk": (lambda world: other_broker(world, 0), 0),
    "no topic": (lambda world: world.topics.delete("T"), 17),
    "no queue": (lambda world: world.topic("T", 0), 1),
    "write only": (lambda world: world.topic("T", QUEUES, perm=2), 16),
    "compared anew": (lambda world: world.topic("T", QUEUES), 0),
    "emptied": (delete_queues, 21),
    "rebuilt": (renew_queue, 0),
    "no blocks": (lambda world: world.checked_units._blocks.clear(), 0),
    "records gone": (lambda world: lose(world, 100), 20),
    "unreadable": (lambda world: forbid(world), None),
    "unsubscribed": (lambda world: world.consumers.groups.clear(), None),
    "tags": (lambda world: both_subscribe(world, sub_string="A", code_set=[65]), None),
    "all tags": (lambda world: both_subscribe(world, sub_version=4), 0),
    "other tags": (
        lambda world: both_subscribe(
            world, sub_version=4, sub_string="B", code_set=[string_hash("B")]
        ),
        0,
    ),
    "seconds later": (lambda world: world.clock.advance(6_000), 0),
    "broadcasts": (lambda world: broadcast(world), None),
}
"""With the code that follows; None: another one for each way to subscribe."""


def both(world: HotPathWorld, **fields: Any) -> None:
    for group in GROUPS:
        change_group(world, group, **fields)


def both_subscribe(world: HotPathWorld, **fields: Any) -> None:
    for group in ("H", "K"):
        subscribe(world, group, **fields)


def other_broker(world: HotPathWorld, memory_limit: int) -> None:
    both(world, broker_id=5, which_broker_when_consume_slowly=7)
    use(world, slave_read_enable=True, memory_limit=memory_limit)


def lose(world: HotPathWorld, messages: int) -> None:
    """The records of the first messages of queue 0 are gone, the queue does not know yet."""
    records = world.raw_records()
    at = [number for number, raw in enumerate(records) if raw[15] == 0][messages]
    world.counters[MIN_PHY_OFFSET] = sum(map(len, records[:at]))


def forbid(world: HotPathWorld) -> None:
    for group in ("H", "K"):
        world.groups.update_readable(group, "T", readable=False)


def broadcast(world: HotPathWorld) -> None:
    both(world, consume_broadcast_enable=False)
    world.consumers.broadcasting.update({"H", "K"})


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    pair = Pair(tmp_path, random.Random(1))
    pair.send(400)
    pair.on_each(restore)
    return pair


def warm_up(pair: Pair, usual: dict[str, Any]) -> int:
    """The pulls of a consumer until it is known, and two that are; where the next one begins. The
    second one with tags is the first for which more is looked at than it needs."""
    offset = 0
    for _ in range(4 if usual in (TAG_BY_PULL, TAG_BY_HEARTBEAT) else 3):
        answer = pair.pull(queueOffset=offset, maxMsgNums=8, **usual)
        assert answer is not None
        assert answer.code == 0
        offset = int(answer.ext_fields["nextBeginOffset"])
    assert pair.fast.stats.fast_pulls == 2
    assert pair.general.stats.fast_pulls == 0
    return offset


@pytest.mark.parametrize("usual", USUAL)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_two_pulls(pair: Pair, name: str, usual: dict[str, Any]) -> None:
    offset = warm_up(pair, usual)
    change, code = CHANGES[name]
    pair.on_each(change)
    answer = pair.pull(queueOffset=offset, maxMsgNums=8, **usual)
    assert answer is not None
    if code is not None:
        assert answer.code == code
    fast_pulls = {"nothing": 3, "seconds later": 2}
    if name in fast_pulls:
        assert pair.fast.stats.fast_pulls == fast_pulls[name]
    pair.pull(queueOffset=offset + 8, maxMsgNums=8, **usual)
    pair.on_each(restore)
    pair.pull(queueOffset=offset + 16, maxMsgNums=8, **usual)


@pytest.mark.parametrize("usual", USUAL)
def test_a_topic_that_is_made_anew(pair: Pair, usual: dict[str, Any]) -> None:
    """What was found in the queue of the old one is not given to anybody."""
    offset = warm_up(pair, usual)

    def make_anew(world: HotPathWorld) -> None:
        world.topics.delete("T")
        delete_queues(world)
        world.topic("T", QUEUES)

    pair.on_each(make_anew)
    pair.send(300)
    for step in range(3):
        answer = pair.pull(queueOffset=offset + 4 * step, maxMsgNums=4, **usual)
        assert answer is not None
        assert answer.code == 0


ODD: list[dict[str, Any]] = [
    {"sysFlag": 0, "subVersion": 0},
    {"sysFlag": SUBSCRIPTION},
    {"subscription": "B"},
    {"expressionType": "SQL92", "subscription": "A"},
    {"expressionType": "SQL92", "subscription": "*"},
    {"expressionType": None},
    {"subVersion": 5},
    {"sysFlag": SUBSCRIPTION | COMMIT, "commitOffset": 9},
    {"sysFlag": COMMIT, "commitOffset": 9},
    {"queueOffset": 399},
    {"subscription": "A || B"},
    {"queueOffset": -1},
    {"maxMsgNums": 0},
    {"maxMsgNums": 300},
    {"queueId": 1},
    {"queueId": 7},
]


@pytest.mark.parametrize("usual", USUAL)
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_a_pull_unlike_the_one_before(
    pair: Pair, odd: dict[str, Any], usual: dict[str, Any]
) -> None:
    offset = warm_up(pair, usual)
    assert pair.pull(**{"queueOffset": offset, "maxMsgNums": 8, **usual, **odd}) is not None


def test_a_long_expression_is_not_kept(pair: Pair) -> None:
    """Nor one that nobody looks at: a peer may send 1 MB of it for each queue and group."""
    long = "A || " + "x" * MOST_KEPT
    known = pair.fast.pull_processor._known._pulls

    def read_on(expression: str) -> None:
        offset = 0
        for _ in range(3):
            fields = BY_PULL | {"subscription": expression}
            answer = pair.pull(queueOffset=offset, maxMsgNums=8, **fields)
            assert answer is not None
            offset = int(answer.ext_fields["nextBeginOffset"])

    read_on(long)
    assert not known
    for _ in range(2):
        pair.pull(
            queueOffset=0,
            maxMsgNums=8,
            **BY_HEARTBEAT | {"subscription": long, "expressionType": long},
        )
    assert [(each.expression, each.expression_type) for each in known.values()] == [(None, None)]
    read_on(long[:MOST_KEPT])
    assert known["G", "T", 0].expression == long[:MOST_KEPT]


def test_what_was_found_for_very_many_tags_is_not_kept(pair: Pair) -> None:
    tags = [f"t{number}" for number in range(300)]
    kept = pair.fast.pull_processor._reader._tagged._blocks
    for most, is_kept in ((300, False), (200, True)):
        fields = BY_PULL | {"subscription": "||".join(["A", *tags[:most]])}
        offset = 0
        for _ in range(3):
            answer = pair.pull(queueOffset=offset, maxMsgNums=8, **fields)
            assert answer is not None
            assert answer.code == 0
            offset = int(answer.ext_fields["nextBeginOffset"])
        assert bool(kept) == is_kept


def test_a_proxy_that_pulls_for_a_broadcasting_client(pair: Pair) -> None:
    """Where it begins is PullStart's: not known. What it pulls for others is."""
    warm_up(pair, BY_PULL)
    pair.pull(queueOffset=24, maxMsgNums=8, requestSource=1, **BY_PULL)
    assert pair.fast.stats.fast_pulls == 2
    pair.pull(queueOffset=24, maxMsgNums=8, requestSource=2, **BY_PULL)
    assert pair.fast.stats.fast_pulls == 3


def test_lite_pulls_are_counted_as_such(pair: Pair) -> None:
    warm_up(pair, BY_PULL)
    request = pull_request(queueOffset=24, maxMsgNums=8, **BY_PULL)
    request.code = 361
    for world, client in zip(pair.worlds, pair.clients, strict=True):
        client.send(request)
        world.turn()
    pair.compare(request.opaque)
    assert pair.fast.stats.answers[361, 0] == 1


def test_the_answer_is_sent_before_the_turn_is_over(pair: Pair) -> None:
    """But never before an answer that has to wait for the turn's end."""
    warm_up(pair, BY_PULL)
    client = pair.clients[0]
    large, small = {"queueOffset": 24, "maxMsgNums": 30}, {"queueOffset": 24, "maxMsgNums": 1}
    client.send(pull_request(**large, **BY_PULL))
    assert [len(answer.body) > 4096 for answer in client.answers()] == [True]
    client.send(pull_request(**small, **BY_PULL))
    assert client.answers() == []
    send = send_request(b"body")
    client.send(send, pull_request(**large, **BY_PULL))
    assert client.answers() == []
    pair.fast.turn()
    first, second, third = client.answers()
    assert (first.code, second.opaque) == (0, send.opaque)
    assert len(third.body) > 4096


def odd_fields(chance: random.Random, usual: int) -> dict[str, Any]:
    """usual: the group's sysFlag."""
    return chance.choice(
        [
            {"sysFlag": SUBSCRIPTION - usual},
            {"sysFlag": usual | SUSPEND, "suspendTimeoutMillis": 20},
            {"subscription": "A"},
            {"subscription": "||"},
            {"expressionType": None},
            {"expressionType": "SQL92", "subscription": "a > 1"},
            {"subVersion": 9},
            {"maxMsgNums": chance.choice([-1, 0, 1, 5, 400, 2**31 - 1])},
            {"requestSource": chance.choice([-1, 0, 1, 2])},
            {"topic": "unknown"},
            {"queueId": chance.choice([-1, QUEUES, 2**31 - 1])},
            {"commitOffset": 2**63 - 1, "sysFlag": usual | COMMIT},
        ]
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_same_as_the_general_path(tmp_path: Path, seed: int) -> None:
    """G brings its expression, H and K have subscribed."""
    chance = random.Random(seed)
    pair = Pair(tmp_path, chance)
    pair.send(200)
    pair.on_each(restore)
    tags = chance.choice(["*", "A", "A || C"])
    for number in range(300):
        if not chance.randrange(5):
            chance.choice(changes(pair))()
        if number % 8 == 7:
            pair.on_each(restore)
            pair.send(chance.choice([0, 0, 0, 120]))
        group = chance.choice(GROUPS)
        usual = SUBSCRIPTION if group == "G" else 0
        fields: dict[str, Any] = {"sysFlag": usual | chance.choice([0, 0, COMMIT])}
        if usual:
            fields["subscription"] = tags
        fields["maxMsgNums"] = chance.choice([8, 32])
        if not usual:
            fields["subscription"] = None
            fields["subVersion"] = chance.choice([0, 1, 3])
        if not chance.randrange(6):
            fields |= odd_fields(chance, usual)
        pair.pull_on(group, fields.pop("queueId", chance.randrange(QUEUES)), **fields)
        if not chance.randrange(20):
            for world in pair.worlds:
                world.clock.advance(30)
                world.hold.scan(world.clock.monotonic_ms())
                world.turn()
            pair.compare(-1)
    assert pair.fast.stats.fast_pulls > 8
    assert pair.general.stats.fast_pulls == 0

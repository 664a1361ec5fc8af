"""broker.pull.pull_message_reader: what is taken at once is what a look at one unit after the
other would give, over a real log with small files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.pull.pull_settings import PullSettings
from broker.store_access.tagged_units import TaggedUnits
from broker.store_access.unit_block import TaggedBlock, UnitBlock
from remoting.remoting_command import RemotingCommand
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.java_hash import string_hash
from store.message import Message
from store.message_codec import decode_record
from store.stored_units import CQ_UNIT_SIZE
from tests.broker.hot_path_world import HotPathWorld, properties_of, pull_request, send_request

FILE_SIZE = 16_384
UNITS_PER_FILE = 70
QUEUES = 2


@dataclass(frozen=True)
class Stored:
    """One message of the log."""

    message: Message
    raw: bytes

    @property
    def phy_offset(self) -> int:
        return self.message.phy_offset


def make_world(
    root: Path, chance: random.Random, messages: int, *, alike: bool = False
) -> HotPathWorld:
    """alike: all records are of one size."""
    world = HotPathWorld(
        root,
        file_size=FILE_SIZE,
        files=8,
        units_per_file=UNITS_PER_FILE,
        pull={"enable_property_filter": True},
    )
    world.topic(queues=QUEUES)
    sender = world.client()
    for _ in range(messages):
        tag = chance.choice("ABC")
        level = chance.choice(["1", "2", "x"] if alike else ["1", "2", "30", "x", ""])
        properties = f"level\x01{level}\x02TAGS\x01{tag}\x02n\x01{chance.randrange(5)}"
        body = bytes(90 if alike else chance.choice([0, 5, 90, 700]))
        queue_id = chance.choice([0, 0, 0, 1])
        sender.send(send_request(body, queue_id=queue_id, properties=properties))
        world.turn()
    assert {answer.code for answer in sender.answers()} == {0}
    world.dispatch()
    return world


def stored(world: HotPathWorld, queue_id: int) -> list[Stored]:
    every = [Stored(decode_record(raw, 0)[0], raw) for raw in world.raw_records()]
    return [each for each in every if each.message.queue_id == queue_id]


EXPRESSIONS: dict[str, Any] = {
    "*": lambda _p: True,
    "A": lambda p: p["TAGS"] == "A",
    "A || C": lambda p: p["TAGS"] in "AC",
    "none": lambda _p: False,
    "level < 20": lambda p: p.get("level") in ("1", "2"),
    "TAGS = 'B' AND n BETWEEN 1 AND 3": lambda p: p["TAGS"] == "B" and p["n"] in "123",
    "level IS NULL": lambda p: "level" not in p,
    "TRUE": lambda _p: True,
}


def is_sql(expression: str) -> bool:
    return expression not in ("*", "A", "A || C", "none")


def expected(
    world: HotPathWorld, queue: list[Stored], offset: int, most: int, expression: str
) -> tuple[int, str, int, int, bytes]:
    """getMessage, one after the other: code, status, next offset, suggested broker, body. Of
    what is filtered no more is looked for than is wanted; what is gone counts for that. A read ends
    with the queue's file."""
    settings: PullSettings = world.pull_processor._settings
    end, low = world.counters[MAX_PHY_OFFSET], world.counters[MIN_PHY_OFFSET]
    by_properties = is_sql(expression)
    by_tags = not by_properties and expression != "*"
    file_end = offset - offset % UNITS_PER_FILE + UNITS_PER_FILE
    scan = queue[offset : min(file_end, offset + most) if expression == "*" else file_end]
    count_limit, byte_limit = min(most, settings.count_in_memory), settings.bytes_in_memory
    most = min(most, settings.count_in_memory)
    found: list[bytes] = []
    scanned, last, removed = 0, end, 0
    for each in scan:
        is_gone = each.phy_offset < low
        matches = EXPRESSIONS[expression](properties_of(each.message.properties))
        if not matches and not (is_gone and by_properties):
            scanned, last = scanned + 1, each.phy_offset
            continue
        if by_tags and len(found) + removed >= most:
            break
        if is_gone:
            scanned, removed = scanned + 1, removed + 1
        else:
            size = sum(map(len, found)) + len(each.raw)
            if found and (size > byte_limit or len(found) >= count_limit):
                break
            if each.phy_offset < end - settings.memory_limit:
                count_limit = min(count_limit, settings.count_in_disk)
                byte_limit = settings.bytes_in_disk
            found.append(each.raw)
            scanned, last = scanned + 1, each.phy_offset
            if len(found) >= count_limit:
                break
        if by_properties and len(found) + removed >= most:
            break
    suggested = 1 if end - last > settings.memory_limit else 0
    status = "MESSAGE_WAS_REMOVING" if removed else "NO_MATCHED_MESSAGE"
    code, status = (0, "FOUND") if found else (20, status)
    return code, status, offset + scanned, suggested, b"".join(found)


def seen(answer: RemotingCommand) -> tuple[int, str | None, int, int, bytes]:
    ext = answer.ext_fields
    suggested = int(ext["suggestWhichBrokerId"])
    return answer.code, answer.remark, int(ext["nextBeginOffset"]), suggested, answer.body


@pytest.mark.parametrize("seed", range(6))
def test_the_same_as_unit_by_unit(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = make_world(tmp_path, chance, 150, alike=seed % 2 == 1)
    queues = [stored(world, queue_id) for queue_id in range(QUEUES)]
    log_end, client = world.counters[MAX_PHY_OFFSET], world.client()
    assert log_end > 2 * FILE_SIZE
    ended: dict[tuple[int, str], int] = {}
    for _ in range(240):
        if not chance.randrange(10):
            world.checked_units._blocks.clear()
            least = queues[0][chance.randrange(len(queues[0]) // 2)].phy_offset
            if not chance.randrange(3):
                world.counters[MIN_PHY_OFFSET] = max(least, world.counters[MIN_PHY_OFFSET])
            limits = {
                "count_in_memory": chance.choice([1, 7, 32]),
                "bytes_in_memory": chance.choice([300, 3_000, 262_144]),
                "count_in_disk": chance.choice([1, 8]),
                "bytes_in_disk": chance.choice([500, 65_536]),
                "memory_limit": chance.choice([0, log_end // 2, 1 << 40]),
                "slave_read_enable": True,
            }
            old = world.pull_processor._settings
            world.pull_processor.use(msgspec.structs.replace(old, **limits))
        queue_id, most = chance.randrange(QUEUES), chance.choice([1, 5, 32, 400])
        expression = chance.choice(list(EXPRESSIONS))
        offset = ended.get((queue_id, expression), len(queues[queue_id]))
        if offset >= len(queues[queue_id]) or not chance.randrange(4):
            offset = chance.randrange(len(queues[queue_id]))
        request = pull_request(
            queueId=queue_id,
            queueOffset=offset,
            maxMsgNums=most,
            subscription=expression,
            expressionType="SQL92" if is_sql(expression) else "TAG",
        )
        wanted = expected(world, queues[queue_id], offset, most, expression)
        ended[queue_id, expression] = wanted[2]
        assert seen(client.call(request)) == wanted, (expression, queue_id, offset, most)
    assert world.damaged == []


@pytest.mark.parametrize("expression", ["*", "a > 5"])
def test_groups_at_different_places_keep_their_blocks(tmp_path: Path, expression: str) -> None:
    world = HotPathWorld(tmp_path, file_size=1 << 20, pull={"enable_property_filter": True})
    world.topic()
    sender = world.client()
    sender.send(*[send_request(properties="a\x016", body=b"") for _ in range(3_000)])
    world.turn()
    world.dispatch()
    reads: list[int] = []
    read = world.checked_units._read_units

    def counted(topic: str, queue_id: int, queue_offset: int, count: int) -> bytes:
        reads.append(queue_offset)
        return read(topic, queue_id, queue_offset, count)

    world.checked_units._read_units = counted
    world.checked_units._thread_time_ns = lambda: 0
    kind = "TAG" if expression == "*" else "SQL92"
    client = world.client()
    for step in range(0, 320, 32):
        for start in (0, 1_000, 2_000):
            answer = client.call(
                pull_request(queueOffset=start + step, subscription=expression, expressionType=kind)
            )
            assert int(answer.ext_fields["nextBeginOffset"]) == start + step + 32
    assert len(reads) <= 3
    assert len(world.checked_units._blocks["T", 0]) == len(reads)


def test_tags_are_looked_for_once_for_many_pulls(tmp_path: Path) -> None:
    """And what is found does not depend on it, where the tags become rare and then end."""
    world = HotPathWorld(tmp_path, file_size=1 << 20, units_per_file=4_000)
    world.topic()
    sender = world.client()
    tags = ["A" if (n < 900 and n % 3 == 0) or n % 70 == 0 else "B" for n in range(3_600)]
    sender.send(*[send_request(properties=f"TAGS\x01{tag}", body=b"") for tag in tags])
    world.turn()
    world.dispatch()
    reads: list[int] = []
    read = world.checked_units._read_units

    def counted(topic: str, queue_id: int, queue_offset: int, count: int) -> bytes:
        reads.append(queue_offset)
        return read(topic, queue_id, queue_offset, count)

    world.checked_units._read_units = counted
    client = world.client()
    offset, answers = 0, []
    while offset < len(tags):
        asked = {"queueOffset": offset, "maxMsgNums": 16, "subscription": "A"}
        answers.append(client.call(pull_request(consumerGroup="reads-on", **asked)))
        found = seen(answers[-1])
        assert found == seen(client.call(pull_request(consumerGroup=f"at-{offset}", **asked)))
        offset = found[2]
    own = len(reads) - len(answers)
    assert own < len(answers) / 2, "of the group that reads on"
    assert b"".join(answer.body for answer in answers) == b"".join(
        raw for raw, tag in zip(world.raw_records(), tags, strict=True) if tag == "A"
    )


class CountedUnits:
    """Stands for CheckedUnits: counts how often much is looked at."""

    def __init__(self) -> None:
        self.generation = 1
        self.looks = 0

    def generation_of(self, _topic: str, _queue_id: int) -> int:
        return self.generation

    def believes(self, _block: UnitBlock, _generation: int) -> bool:
        return False

    def tagged(self, _topic: str, _queue_id: int, offset: int, *asked: Any) -> TaggedBlock:
        self.looks += 1
        nothing = UnitBlock(0, self.generation, b"", believed_until_s=0, ends_file=False)
        return TaggedBlock(offset, offset, asked[1], memoryview(b"").cast("q"), nothing)


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("offset", "code", "generation", "looks"),
    [(8, 1, 1, 1), (7, 1, 1, 0), (9, 1, 1, 0), (8, 2, 1, 0), (8, 1, 2, 0)],
)
def test_much_is_looked_at_for_who_reads_on_only(
    offset: int, code: int, generation: int, looks: int
) -> None:
    """Elsewhere, with other tags, or in a queue that was made anew, a pull pays for itself."""
    units = CountedUnits()
    tagged = TaggedUnits(units)  # type: ignore[arg-type]
    reader = "G", "T", 0
    tagged.note(reader, 8, frozenset({1}))
    units.generation = generation
    codes = frozenset({code})
    assert tagged.read_on(reader, offset, 1, 800, codes, 5_000, None) is None
    assert units.looks == looks


def test_what_was_found_for_pulls_by_tags_is_kept_for_few(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, file_size=1 << 20)
    world.topic()
    sender = world.client()
    sender.send(*[send_request(properties="TAGS\x01A", body=b"") for _ in range(8)])
    world.turn()
    world.dispatch()
    client = world.client()
    for number in range(260):
        asked = {"consumerGroup": f"G{number}", "maxMsgNums": 1, "subscription": "A"}
        client.call(pull_request(**asked))
        client.call(pull_request(queueOffset=1, **asked))
    kept = world.pull_processor._reader._tagged._blocks
    assert list(kept) == [(f"G{number}", "T", 0) for number in range(4, 260)]


class Unlooped(frozenset[int]):
    """A set in which values are looked up only."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("it may have a million values")


@pytest.mark.interpreted
def test_many_tags_are_not_looked_at_one_after_the_other(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, file_size=1 << 20)
    world.topic()
    sender = world.client()
    chance = random.Random(1)
    tags = [chance.choice("ABCD") for _ in range(200)]
    sender.send(*[send_request(properties=f"TAGS\x01{tag}", body=b"") for tag in tags])
    world.turn()
    world.dispatch()
    for kind, most in ((frozenset, 40), (Unlooped, 1_000)):
        codes = kind({string_hash("A"), string_hash("C"), *range(1_000, 1_000 + most)})
        _raw, numbers = world.checked_units.choose("T", 0, 0, 200, codes, 200)
        assert numbers.tolist() == [number for number, tag in enumerate(tags) if tag in "AC"]


def test_blocks_are_few(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, file_size=1 << 20)
    world.topic()
    sender = world.client()
    sender.send(*[send_request(body=b"") for _ in range(100)])
    world.turn()
    world.dispatch()
    for offset in range(20):
        world.checked_units.read("T", 0, 20 - offset, 1, 100 - offset)
    (blocks,) = world.checked_units._blocks.values()
    assert len(blocks) == 4
    assert all(len(block.raw) == CQ_UNIT_SIZE * 80 for block in blocks)


@pytest.mark.parametrize("expression", ["a > 5", "*"])
def test_records_of_rare_forms(tmp_path: Path, expression: str) -> None:
    """Born at an IPv6 address: their properties are further behind."""
    world = HotPathWorld(tmp_path, file_size=1 << 20, pull={"enable_property_filter": True})
    world.topic()
    for host in ("127.0.0.1", "::1", "127.0.0.1"):
        sender = world.client(host)
        sender.send(*[send_request(properties=f"a\x01{a}") for a in (9, 1, 7)])
        world.turn()
        assert {answer.code for answer in sender.answers()} == {0}
    world.dispatch()
    kind = "TAG" if expression == "*" else "SQL92"
    answer = world.client().call(pull_request(subscription=expression, expressionType=kind))
    raw = world.raw_records()
    assert len({len(each) for each in raw}) == 2
    wanted = raw if expression == "*" else [each for n, each in enumerate(raw) if n % 3 != 1]
    assert answer.body == b"".join(wanted)


def test_blocks_are_short_where_their_checks_take_long(tmp_path: Path) -> None:
    """Nobody else is served meanwhile."""
    world = HotPathWorld(tmp_path, file_size=1 << 20)
    world.topic()
    sender = world.client()
    sender.send(*[send_request(body=b"") for _ in range(3_000)])
    world.turn()
    world.dispatch()
    asked: list[int] = []
    calls, now_ns, unit_ns = 0, 0, 8_000

    def count_time() -> int:
        """Asked before and after each check, of the block that was read last."""
        nonlocal calls, now_ns
        calls += 1
        now_ns += asked[-1] * unit_ns if calls % 2 == 0 else 0
        return now_ns

    read = world.checked_units._read_units

    def counted(topic: str, queue_id: int, queue_offset: int, count: int) -> bytes:
        asked.append(count)
        return read(topic, queue_id, queue_offset, count)

    world.checked_units._read_units = counted
    world.checked_units._thread_time_ns = count_time
    client = world.client()
    for offset in range(0, 1_600, 32):
        assert client.call(pull_request(queueOffset=offset)).code == 0
    assert asked[0] == 1_024
    assert max(asked[1:]) * unit_ns <= 350_000
    unit_ns = 50
    for offset in range(0, 3_000, 32):
        world.checked_units._blocks.clear()
        assert client.call(pull_request(queueOffset=offset)).code == 0
    assert max(asked[2:]) == 1_024

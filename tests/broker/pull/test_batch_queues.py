"""Topics with batch consume queues: what is stored, where its units are, what a pull gets."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from store.batch_codec import iterate_batch
from store.boundary_type import BoundaryType
from store.inner_batch import INNER_BATCH_FLAG, LARGEST_BASE_PAIR
from store.message import Message
from store.message_codec import decode_record
from store.message_properties import PROPERTIES_LIMIT
from store.record import Record
from tests.broker.hot_path_world import (
    Client,
    HotPathWorld,
    properties_of,
    pull_request,
    record,
    send_request,
)
from tests.broker.send.test_send_message_processor import batch_body

UNIT = struct.Struct(">qiqqqhii")
BATCH_CQ = {"+queue.type": "BatchCQ"}


@pytest.fixture
def world(tmp_path: Path) -> HotPathWorld:
    world = HotPathWorld(tmp_path, file_size=65_536, units_per_file=4)
    world.topic(attributes=BATCH_CQ)
    return world


@pytest.fixture
def client(world: HotPathWorld) -> Client:
    return world.client()


def send_batch(client: Client, *bodies: bytes, key: str = "K1") -> RemotingCommand:
    """A batch as a 5.3.3 client sends it: with an id of its own."""
    body = batch_body(*((7, each, b"TAGS\x01a") for each in bodies))
    properties = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02"
    return client.call(send_request(body, code=320, batch="true", properties=properties))


def pulled(client: Client, offset: int, **fields: object) -> tuple[RemotingCommand, list[Message]]:
    answer = client.call(pull_request(queueOffset=offset, **fields))
    return answer, list(_records(answer.body))


def _records(body: bytes) -> Iterator[Message]:
    at = 0
    while at < len(body):
        record, size = decode_record(memoryview(body), at)
        yield record
        at += size


def inner_batch() -> Record:
    """Five messages, from a master."""
    made = record(b"", b"INNER_NUM\x015")
    return msgspec.structs.replace(made, sys_flag=192)


def units(world: HotPathWorld, topic: str = "T") -> list[tuple[int, ...]]:
    """Of queue 0, as its files have them."""
    found = []
    for path in sorted((world.queue_path.parent / f"batchconsumequeue/{topic}/0").iterdir()):
        found += [unit for unit in UNIT.iter_unpack(path.read_bytes()) if unit[1]]
    return found


def test_a_batch_is_one_record(world: HotPathWorld, client: Client) -> None:
    answer = send_batch(client, b"one", b"two", b"three")
    assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "0")
    assert answer.ext_fields["batchUniqId"] == answer.ext_fields["transactionId"] == "K1"
    assert "," not in answer.ext_fields["msgId"]
    assert send_batch(client, b"four").ext_fields["queueOffset"] == "3"
    assert client.call(send_request(b"five", properties="")).ext_fields["queueOffset"] == "4"
    first, second, plain = world.records()
    assert (first.queue_offset, second.queue_offset, plain.queue_offset) == (0, 3, 4)
    assert (first.sys_flag, second.sys_flag, plain.sys_flag) == (192, 192, 0)
    assert properties_of(first.properties) == {
        "UNIQ_KEY": "K1",
        "WAIT": "true",
        "CLUSTER": "GoldenCluster",
        "INNER_NUM": "3",
        "INNER_BASE": "0",
    }
    items = list(iterate_batch(first.body))
    assert [(item.flag, bytes(item.body)) for item in items] == [
        (7, b"one"),
        (7, b"two"),
        (7, b"three"),
    ]
    assert world.stats.puts["T"][0] == 5


def test_units_lie_in_files_of_their_own(world: HotPathWorld, client: Client) -> None:
    for number in range(3):
        send_batch(client, b"one", b"two", key=f"K{number}")
        client.call(send_request(b"plain", properties="TAGS\x01a"))
    world.dispatch()
    records = world.records()
    sizes = [len(raw) for raw in world.raw_records()]
    tag = ord("a")
    assert units(world) == [
        (
            record.phy_offset,
            size,
            0 if record.sys_flag else tag,
            record.store_timestamp,
            record.queue_offset,
            2 if record.sys_flag else 1,
            -1,
            0,
        )
        for record, size in zip(records, sizes, strict=True)
    ]
    names = sorted(path.name for path in world.queue_path.parent.glob("batchconsumequeue/T/0/*"))
    assert names == [f"{0:020}", f"{4 * 46:020}"]
    assert not list(world.queue_path.iterdir())
    assert world.table.offsets("T", 0) == (0, 9)


def test_a_pull_gets_whole_records(world: HotPathWorld, client: Client) -> None:
    send_batch(client, b"one", b"two", b"three")
    client.call(send_request(b"plain", properties="TAGS\x01a"))
    send_batch(client, b"five", b"six")
    world.dispatch()
    records = world.raw_records()
    for offset in (0, 1, 2):
        answer, got = pulled(client, offset)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert answer.body == b"".join(records)
        assert [record.queue_offset for record in got] == [0, 3, 4]
        assert answer.ext_fields["nextBeginOffset"] == answer.ext_fields["maxOffset"] == "6"
    answer, got = pulled(client, 3)
    assert [record.queue_offset for record in got] == [3, 4]
    answer, got = pulled(client, 5)
    assert ([record.queue_offset for record in got], answer.code) == ([4], 0)
    answer, _ = pulled(client, 6)
    assert (answer.code, answer.remark) == (19, "OFFSET_OVERFLOW_ONE")
    answer, _ = pulled(client, 7)
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (21, "6")


def test_a_unit_counts_as_its_messages(world: HotPathWorld, client: Client) -> None:
    for number in range(4):
        send_batch(client, b"one", b"two", key=f"K{number}")
    world.dispatch()
    for most, offsets, following in ((1, [0], 2), (3, [0], 2), (4, [0, 2], 4), (7, [0, 2, 4], 6)):
        answer, got = pulled(client, 0, maxMsgNums=most)
        assert [record.queue_offset for record in got] == offsets
        assert answer.ext_fields["nextBeginOffset"] == str(following)


def test_a_read_ends_with_its_file(world: HotPathWorld, client: Client) -> None:
    """As in RocketMQ: the next pull begins in the next one."""
    for number in range(6):
        send_batch(client, b"one", b"two", key=f"K{number}")
    world.dispatch()
    answer, got = pulled(client, 1)
    assert [record.queue_offset for record in got] == [0, 2, 4, 6]
    answer, got = pulled(client, int(answer.ext_fields["nextBeginOffset"]))
    assert [record.queue_offset for record in got] == [8, 10]


def test_tags_are_those_of_the_record(world: HotPathWorld, client: Client) -> None:
    """A batch of Java's producer has none: whoever wants a tag does not get it."""
    send_batch(client, b"one", b"two")
    client.call(send_request(b"plain", properties="TAGS\x01a"))
    send_batch(client, b"three")
    world.dispatch()
    answer, got = pulled(client, 0, subscription="a")
    assert [record.body for record in got] == [b"plain"]
    assert answer.ext_fields["nextBeginOffset"] == "4"
    answer, got = pulled(client, 3, subscription="a")
    assert (answer.code, answer.remark, got) == (20, "NO_MATCHED_MESSAGE", [])
    assert answer.ext_fields["nextBeginOffset"] == "4"


def test_an_empty_queue_begins_at_minus_one(world: HotPathWorld, client: Client) -> None:
    """As RocketMQ says it."""
    answer, _ = pulled(client, 0)
    assert (answer.code, answer.remark) == (19, "NO_MESSAGE_IN_QUEUE")
    assert (answer.ext_fields["minOffset"], answer.ext_fields["maxOffset"]) == ("-1", "0")


def test_a_held_pull_is_answered_when_a_batch_comes(world: HotPathWorld, client: Client) -> None:
    client.send(pull_request(sysFlag=6))
    assert client.answers() == []
    other = world.client()
    send_batch(other, b"one", b"two")
    world.dispatch()
    world.turn()
    [answer] = client.answers()
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (0, "2")


def test_a_batch_without_an_id_becomes_single_records(world: HotPathWorld, client: Client) -> None:
    """So do batches of 4.9 clients, which have no UNIQ_KEY."""
    body = batch_body((0, b"one", b"KEYS\x01k"), (0, b"two", b""))
    answer = client.call(send_request(body, code=320, batch="true"))
    assert (answer.code, answer.ext_fields["msgId"].count(",")) == (0, 1)
    world.dispatch()
    assert [record.body for record in world.records()] == [b"one", b"two"]
    assert [unit[4:6] for unit in units(world)] == [(0, 1), (1, 1)]


def test_a_client_may_send_an_inner_batch_itself(world: HotPathWorld, client: Client) -> None:
    """It counts as many messages as it holds; its INNER_BASE is not believed."""
    send_batch(client, b"one", b"two")
    text = "INNER_BASE\x0177\x02KEYS\x01k\x02INNER_NUM\x014\x02"
    body = batch_body(*((0, b"item", b"") for _ in range(4)))
    answer = client.call(send_request(body, sys_flag=128, properties=text))
    assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "2")
    world.dispatch()
    record = world.records()[-1]
    assert properties_of(record.properties)["INNER_BASE"] == "2"
    assert [unit[4:6] for unit in units(world)] == [(0, 2), (2, 4)]
    assert world.table.offsets("T", 0) == (0, 6)


@pytest.mark.parametrize("more", ["", "\x02INNER_NUM\x01"])
@pytest.mark.parametrize("number", [1, 3, 32_767])
def test_a_number_that_is_not_that_of_its_messages(
    world: HotPathWorld, client: Client, number: int, more: str
) -> None:
    """One send of a byte would take 32,767 queue offsets."""
    body = batch_body((0, b"one", b""), (0, b"two", b""))
    text = f"INNER_NUM\x01{number}{more}"
    answer = client.call(send_request(body, sys_flag=128, properties=text))
    assert (answer.code, world.records()) == (13, [])
    assert answer.remark == (
        f"the message is illegal: its property INNER_NUM is {number}, it holds 2 messages"
    )


def test_an_inner_batch_without_a_number(world: HotPathWorld, client: Client) -> None:
    """It is one of one message, and holds nothing that only a broker writes."""
    body = batch_body((3, b"one", b"POP_CK\x01x\x02A\x01b"))
    answer = client.call(send_request(body, sys_flag=128, properties="KEYS\x01k"))
    assert answer.code == 0
    (record,) = world.records()
    assert record.body == batch_body((3, b"one", b"A\x01b"))
    for body in (batch_body((0, b"one", b""), (0, b"two", b"")), b"no batch"):
        answer = client.call(send_request(body, sys_flag=128, properties="KEYS\x01k"))
        assert (answer.code, len(world.records())) == (13, 1)


def test_a_number_for_each_message_of_a_batch(world: HotPathWorld, client: Client) -> None:
    body = batch_body((0, b"one", b""), (0, b"two", b""))
    text = "INNER_NUM\x01300"
    answer = client.call(send_request(body, code=320, batch="true", sys_flag=128, properties=text))
    assert (answer.code, world.records()) == (13, [])
    assert answer.remark == (
        "the message is illegal: a batch without UNIQ_KEY has the property INNER_NUM"
    )


@pytest.mark.parametrize("number", ["0", "-1", "x", "32768", "99999999999999999999"])
def test_a_number_that_cannot_be(world: HotPathWorld, client: Client, number: str) -> None:
    text = f"INNER_NUM\x01{number}"
    answer = client.call(send_request(b"one", sys_flag=128, properties=text))
    assert answer.code == 13
    assert "INNER_NUM of an inner batch is no number from 1 to 32767" in (answer.remark or "")


@pytest.mark.parametrize(
    ("bodies", "words"),
    [
        (batch_body((0, b"one", b""))[:-1], "claims a body of 3 bytes"),
        (b"", "the batch holds no message"),
        (batch_body((0, b"one", b"DELAY\x013")), "a batch cannot hold delayed messages"),
        (batch_body((0, b"", b"")) * 32_768, "a batch of 32768 messages (limit 32767"),
    ],
    ids=["cut", "empty", "delayed", "too-many"],
)
def test_batches_that_are_refused(
    world: HotPathWorld, client: Client, bodies: bytes, words: str
) -> None:
    request = send_request(bodies, code=320, batch="true", properties="UNIQ_KEY\x01K")
    answer = client.call(request)
    assert (answer.code, world.records()) == (13, [])
    assert words in (answer.remark or "")


@pytest.mark.parametrize("room", [0, LARGEST_BASE_PAIR - 1])
def test_single_records_with_the_flag_of_an_inner_batch_have_room_for_their_place(
    tmp_path: Path, room: int
) -> None:
    """Whatever a client sends, the loop goes on: each of them gets an INNER_BASE."""
    world = HotPathWorld(tmp_path, file_size=1 << 20, units_per_file=4)
    world.topic(attributes=BATCH_CQ)
    client = world.client()
    common = "\x02CLUSTER\x01GoldenCluster"
    full = b"K\x01" + b"k" * (PROPERTIES_LIMIT - 2 - len(common) - room)
    body = batch_body((0, b"a", full), (0, b"b", full))
    request = send_request(body, code=320, batch="true", sys_flag=INNER_BATCH_FLAG, properties="")
    answer = client.call(request)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "properties of" in (answer.remark or "")
    assert world.records() == []


def test_single_records_keep_no_place_that_their_sender_names(
    world: HotPathWorld, client: Client
) -> None:
    body = batch_body(*((0, text, b"INNER_BASE\x0177\x02K\x01v") for text in (b"a", b"b")))
    request = send_request(body, code=320, batch="true", sys_flag=INNER_BATCH_FLAG, properties="")
    assert client.call(request).code == 0
    bases = [found.properties.split(b"INNER_BASE\x01")[1:] for found in world.records()]
    assert bases == [[b"0"], [b"1"]]


def test_offsets_by_time(world: HotPathWorld, client: Client) -> None:
    times = []
    for number in range(6):
        world.clock.advance(1000)
        world.turn()
        times.append(world.clock.now_ms())
        send_batch(client, b"one", b"two", key=f"K{number}")
    world.dispatch()

    def found(time_ms: int) -> int:
        return world.batch_queues.offset_by_timestamp("T", 0, time_ms, 0, 12)

    assert [found(time) for time in times] == [0, 2, 4, 6, 8, 10]
    assert [found(time - 1) for time in times] == [0, 2, 4, 6, 6, 10]
    assert (found(0), found(times[-1] + 1)) == (0, 10)


def test_the_last_of_equal_times(world: HotPathWorld, client: Client) -> None:
    """LOWER is the first, UPPER the last record of exactly a time; otherwise they are the same."""
    world.clock.advance(1000)
    world.turn()
    for number in range(3):
        send_batch(client, b"one", b"two", key=f"K{number}")
    time_ms = world.clock.now_ms()
    world.clock.advance(1000)
    world.turn()
    send_batch(client, b"one", b"two", key="L")
    world.dispatch()

    def found(at_ms: int, boundary: BoundaryType) -> int:
        return world.batch_queues.offset_by_timestamp("T", 0, at_ms, 0, 8, boundary)

    for at_ms, lower, upper in ((0, 0, 0), (time_ms, 0, 4), (time_ms + 1, 6, 6), (10**13, 6, 6)):
        assert found(at_ms, BoundaryType.LOWER) == lower
        assert found(at_ms, BoundaryType.UPPER) == upper


def test_a_deleted_topic_begins_again(world: HotPathWorld, client: Client) -> None:
    send_batch(client, b"one", b"two")
    world.dispatch()
    world.send_processor.block_topic("T")
    assert world.batch_table.delete_topic("T") == 1
    world.topics.delete("T")
    world.send_processor.unblock_topic("T", deleted=True)
    assert world.table.offsets("T", 0) == (0, 0)
    world.topic()
    client.call(send_request(b"simple"))
    world.dispatch()
    assert not (world.queue_path.parent / "batchconsumequeue" / "T").exists()
    assert (world.queue_path / "T" / "0").is_dir()
    assert [record.body for record in pulled(client, 0)[1]] == [b"simple"]


def test_a_topic_that_turns_out_to_have_batch_queues(world: HotPathWorld, client: Client) -> None:
    """So on a slave, which knows records before their topic: the queues are built anew, and readers
    see no other offsets meanwhile."""
    world.topic("U")
    for _ in range(3):
        client.call(send_request(b"plain", topic="U"))
    world.log.append(world.log.topic("U"), [inner_batch()])
    world.log.commit()
    client.call(send_request(b"plain", topic="U"))
    world.dispatch()
    assert (world.queue_path / "U" / "0").is_dir()
    world.topics.delete("U")
    world.topic("U", attributes=BATCH_CQ)
    world.clock.advance(1001)
    client.call(send_request(b"plain", topic="U"))
    world.dispatch()
    assert not (world.queue_path / "U").exists()
    assert [unit[4:6] for unit in units(world, "U")] == [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 5),
        (8, 1),
        (9, 1),
    ]
    assert world.table.offsets("U", 0) == (0, 10)
    assert len(pulled(client, 0, topic="U")[1]) == 4, "a read ends with its file"

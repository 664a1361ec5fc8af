"""PullMessageProcessor: every status, limit and filter over a real log and consumequeue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.longpolling.hold_quota import MAX_PULLS_OF_A_QUEUE
from broker.store_access.pages_ahead import PagesMissingError
from ipc.queue_table import RING_SIZE, QueueTableWriter
from remoting.body.heartbeat import SubscriptionData
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.headers.pull_message import ForbiddenType
from remoting.remoting_command import ONEWAY_FLAG, RemotingCommand, SerializeType
from remoting.request_code import RequestCode as Code
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.java_hash import string_hash
from store.mapped_file import file_name
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE
from tests.broker.broker_fakes import CONFIG
from tests.broker.hot_path_world import (
    Client,
    HotPathWorld,
    pull_request,
    send_request,
)
from tests.remoting.golden_frames import GOLDEN, GoldenFrame

JSON, BINARY = SerializeType.JSON, SerializeType.ROCKETMQ
NEGATIVE_TAG = "polygenelubricants"
"""Its Java hash code is -2^31."""
FIELDS = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")
FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21


def make_world(tmp_path: Path, **options: Any) -> HotPathWorld:
    world = HotPathWorld(tmp_path, **{"file_size": 1 << 20, **options})
    world.topic()
    return world


@pytest.fixture
def world(tmp_path: Path) -> HotPathWorld:
    return make_world(tmp_path)


@pytest.fixture
def client(world: HotPathWorld) -> Client:
    return world.client()


def fill(
    world: HotPathWorld, count: int, *, tag: str = "", body: bytes = b"body", **f: Any
) -> None:
    """`count` messages into queue 0, dispatched."""
    sender = world.client()
    text = f"TAGS\x01{tag}" if tag else "KEYS\x01k"
    sender.send(*[send_request(body, properties=text, **f) for _ in range(count)])
    world.turn()
    assert {a.code for a in sender.answers()} == {0}
    world.dispatch()


def numbers(answer: RemotingCommand) -> tuple[int, str | None, int, int, int]:
    """(code, remark, next, min, max)."""
    ext = answer.ext_fields
    assert tuple(sorted(ext)) == tuple(sorted(FIELDS))
    return (
        answer.code,
        answer.remark,
        int(ext["nextBeginOffset"]),
        int(ext["minOffset"]),
        int(ext["maxOffset"]),
    )


@pytest.fixture(params=["fast", "general", "binary"])
def ask(request: pytest.FixtureRequest) -> Any:
    """A pull in each of its forms."""

    def call(client: Client, **changes: Any) -> RemotingCommand:
        if request.param == "binary":
            answer = client.call(pull_request(serialize=BINARY, **changes))
            assert answer.serialize_type is BINARY
            return answer
        if request.param == "general":
            changes.setdefault("maxMsgNums", "+32")
        return client.call(pull_request(**changes))

    return call


# -- statuses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "code", "remark", "following"),
    [
        (-1, MOVED, "OFFSET_TOO_SMALL", 0),
        (0, FOUND, "FOUND", 3),
        (2, FOUND, "FOUND", 3),
        (3, NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (4, MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (2**63 - 1, MOVED, "OFFSET_OVERFLOW_BADLY", 3),
    ],
)
def test_status_by_offset(
    world: HotPathWorld,
    client: Client,
    ask: Any,
    offset: int,
    code: int,
    remark: str,
    following: int,
) -> None:
    fill(world, 3)
    answer = ask(client, queueOffset=offset)
    assert numbers(answer) == (code, remark, following, 0, 3)
    assert answer.body == b"".join(world.raw_records()[offset:] if code == FOUND else [])


@pytest.mark.parametrize(("offset", "code"), [(0, NOT_FOUND), (1, MOVED), (-1, MOVED)])
def test_an_empty_queue(client: Client, ask: Any, offset: int, code: int) -> None:
    assert numbers(ask(client, queueOffset=offset)) == (code, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)


@pytest.mark.parametrize(
    ("offset", "code", "remark", "following"),
    [
        (-5, RETRY, "OFFSET_TOO_SMALL", -5),
        (3, NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (9, RETRY, "OFFSET_OVERFLOW_BADLY", 9),
        (0, FOUND, "FOUND", 3),
    ],
)
@pytest.mark.parametrize("checks", [False, True])
def test_a_slave_does_not_correct_unless_told(
    tmp_path: Path, offset: int, code: int, remark: str, following: int, checks: bool
) -> None:
    pull = {"is_slave": True, "offset_check_in_slave": checks}
    world = make_world(tmp_path, pull=pull)
    fill(world, 3)
    if checks and code == RETRY:
        code, following = MOVED, 0 if offset < 0 else 3
    answer = world.client().call(pull_request(queueOffset=offset))
    assert numbers(answer) == (code, remark, following, 0, 3)


def test_the_answer_has_the_golden_shape(world: HotPathWorld, client: Client) -> None:
    fill(world, 1)
    seen = set()
    for path in sorted((GOLDEN / "wire-json" / "011-PULL_MESSAGE").glob("*.resp.bin")):
        java = GoldenFrame(path, "response").command()
        if java.code not in (FOUND, NOT_FOUND, MOVED):
            continue
        ours = client.call(pull_request(queueOffset={FOUND: 0, NOT_FOUND: 1}.get(java.code, 5)))
        assert ours.ext_fields.keys() == java.ext_fields.keys()
        assert (ours.code, ours.flag) == (java.code, java.flag)
        assert java.code != FOUND or ours.remark == java.remark
        seen.add(java.code)
    assert FOUND in seen


@pytest.mark.parametrize("serialize", [JSON, BINARY])
def test_lite_pulls_are_served_alike(
    world: HotPathWorld, client: Client, serialize: SerializeType
) -> None:
    fill(world, 3)
    request = pull_request(serialize=serialize, queueOffset=1)
    request.code = Code.LITE_PULL_MESSAGE
    answer = client.call(request)
    assert numbers(answer) == (FOUND, "FOUND", 3, 0, 3)
    assert answer.body == b"".join(world.raw_records()[1:])


@pytest.mark.interpreted
def test_the_fast_path_is_really_taken(world: HotPathWorld, client: Client) -> None:
    def refuse(connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand | None:
        pytest.fail("the general path was taken")

    world.pull_processor.process_request = refuse  # type: ignore[method-assign]
    fill(world, 1)
    for code in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE):
        request = pull_request()
        request.code = code
        assert client.call(request).code == FOUND


# -- checks --------------------------------------------------------------------------------------


def refused(
    answer: RemotingCommand, code: int, words: str, forbidden: ForbiddenType | None = None
) -> None:
    assert answer.code == code
    assert words in (answer.remark or "")
    why = {} if forbidden is None else {"forbiddenType": str(int(forbidden))}
    assert (answer.ext_fields or {}) == why


def test_check_1_a_broker_that_may_not_be_read(tmp_path: Path, ask: Any) -> None:
    world = make_world(tmp_path, pull={"readable": False})
    refused(
        ask(world.client(), topic="unknown"), 16, "pulling message is forbidden", ForbiddenType(1)
    )


def test_check_2_an_unknown_group(tmp_path: Path, ask: Any) -> None:
    config = replace(CONFIG, auto_create_subscription_group=False)
    world = make_world(tmp_path, config=config)
    refused(ask(world.client(), topic="unknown"), 26, "subscription group [G] does not exist")
    assert ask(world.client(), consumerGroup="CID_RMQ_SYS_X").code == NOT_FOUND


def test_check_3_a_group_that_may_not_consume(
    world: HotPathWorld, client: Client, ask: Any
) -> None:
    world.groups.update(SubscriptionGroupConfig(group_name="G", consume_enable=False))
    refused(
        ask(client, topic="unknown"), 16, "subscription group no permission, G", ForbiddenType(2)
    )


def test_check_4_to_6_the_topic(world: HotPathWorld, client: Client, ask: Any) -> None:
    refused(ask(client, topic="unknown", queueId=9), 17, "topic[unknown] not exist")
    world.topic("Closed", perm=2)
    refused(
        ask(client, topic="Closed", queueId=9),
        16,
        "topic[Closed] pulling message",
        ForbiddenType(3),
    )
    world.topic("Wide", read_queue_nums=2, write_queue_nums=8)
    for queue_id in (2, -1, 10**9):
        refused(ask(client, topic="Wide", queueId=queue_id), 1, f"queueId[{queue_id}] is illegal")


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"subscription": "||"}, 23, "parse the consumer's subscription failed"),
        ({"subscription": "a > 1", "expressionType": "SQL92"}, 1, "SQL92"),
        ({"sysFlag": 0}, 24, "group info not exist"),
    ],
)
def test_check_7_and_8_the_subscription(
    client: Client, ask: Any, fields: dict[str, Any], code: int, words: str
) -> None:
    refused(ask(client, **fields), code, words)


def test_check_7_the_heartbeats_subscription(world: HotPathWorld, client: Client, ask: Any) -> None:
    fill(world, 2, tag="A")
    consumers = world.consumers
    consumers.groups.add("G")
    refused(ask(client, sysFlag=0), 24, "subscription not exist")
    sub = SubscriptionData(topic="T", sub_string="*", sub_version=7)
    consumers.subscriptions["G", "T"] = sub
    refused(ask(client, sysFlag=0, subVersion=8), 25, "not latest")
    assert ask(client, sysFlag=0, subVersion=7).code == FOUND
    assert ask(client, sysFlag=0, subVersion=6).code == FOUND
    consumers.broadcasting.add("G")
    assert ask(client, sysFlag=0).code == FOUND
    world.groups.update(SubscriptionGroupConfig(group_name="G", consume_broadcast_enable=False))
    refused(ask(client, sysFlag=0), 16, "can not consume by broadcast way", ForbiddenType(4))
    world.groups.update_readable("G", "T", False)
    refused(ask(client, sysFlag=0), 16, "can not consume by broadcast way", ForbiddenType(4))
    consumers.broadcasting.clear()
    words = "the consumer group[G] is forbidden for topic[T]"
    refused(ask(client, sysFlag=0, subVersion=8), 16, words, ForbiddenType(5))
    assert ask(client).code == FOUND, "5.3.3 does not look where the pull brings its expression"
    world.groups.update_readable("G", "T", True)
    consumers.subscriptions["G", "T"] = replace(sub, expression_type="SQL92")
    refused(ask(client, sysFlag=0), 27, "group G has no filter for topic T: its expression")


@pytest.mark.parametrize(
    "name",
    ["consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset"],
)
@pytest.mark.parametrize("serialize", [JSON, BINARY])
def test_a_missing_field_is_named(client: Client, name: str, serialize: SerializeType) -> None:
    fields: dict[str, Any] = {name: None}
    answer = client.call(pull_request(serialize=serialize, **fields))
    refused(answer, 1, f"PullMessageRequestHeader.{name}: is missing")


@pytest.mark.parametrize("name", ["queueId", "queueOffset", "commitOffset", "suspendTimeoutMillis"])
@pytest.mark.parametrize("text", ["x", "1" * 5000, str(2**64), "", "٣"])
def test_a_number_that_is_none(client: Client, name: str, text: str) -> None:
    fields: dict[str, Any] = {name: text}
    refused(client.call(pull_request(**fields)), 1, name)


def test_a_number_behind_64_bits_is_never_committed(world: HotPathWorld, client: Client) -> None:
    answer = client.call(pull_request(sysFlag=5, commitOffset=2**63))
    refused(answer, 1, "commitOffset")
    assert world.commits.seen == []


@pytest.mark.parametrize(("offset", "text"), [(0, "00"), (1, "+1"), (2, "02")])
def test_numbers_as_java_reads_them(
    world: HotPathWorld, client: Client, offset: int, text: str
) -> None:
    fill(world, 3)
    answer = client.call(pull_request(queueOffset=text))
    assert answer.body == b"".join(world.raw_records()[offset:])


def test_a_oneway_pull_is_never_answered(world: HotPathWorld, client: Client) -> None:
    fill(world, 1)
    kinds: list[dict[str, Any]] = [{}, {"topic": "unknown"}, {"queueOffset": 1, "sysFlag": 6}]
    for changes in kinds:
        request = pull_request(**changes)
        request.flag = ONEWAY_FLAG
        client.send(request)
    world.turn()
    assert client.answers() == []
    assert world.hold.is_empty


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "given_count"), [(1, 1), (5, 5), (32, 32), (33, 32), (10**9, 32), (0, 1), (-7, 1)]
)
@pytest.mark.parametrize("subscription", ["*", "A"])
def test_message_count(
    world: HotPathWorld, client: Client, wanted: int, given_count: int, subscription: str
) -> None:
    fill(world, 40, tag="A")
    answer = client.call(pull_request(maxMsgNums=wanted, subscription=subscription))
    assert numbers(answer) == (FOUND, "FOUND", given_count, 0, 40)
    assert answer.body == b"".join(world.raw_records()[:given_count])


@pytest.mark.parametrize(
    ("body_size", "given_count"), [(100_000, 2), (262_144, 1), (300_000, 1), (60_000, 4)]
)
def test_bytes_in_memory(
    world: HotPathWorld, client: Client, body_size: int, given_count: int
) -> None:
    """256 KiB a pull, but the first message always."""
    fill(world, 5, body=bytes(body_size))
    answer = client.call(pull_request())
    assert answer.body == b"".join(world.raw_records()[:given_count])
    assert numbers(answer)[2] == given_count


@pytest.mark.parametrize(
    ("body_size", "count", "given_count"), [(10, 20, 8), (30_000, 5, 2), (70_000, 3, 1)]
)
def test_limits_on_disk(tmp_path: Path, body_size: int, count: int, given_count: int) -> None:
    world = make_world(tmp_path, pull={"memory_limit": 0})
    fill(world, count, body=bytes(body_size))
    answer = world.client().call(pull_request())
    assert answer.body == b"".join(world.raw_records()[:given_count])


def test_the_scan_ends_after_800_units(world: HotPathWorld, client: Client) -> None:
    fill(world, 850, tag="A", body=b"")
    fill(world, 1, tag="B")
    answer = client.call(pull_request(subscription="B"))
    assert numbers(answer) == (RETRY, "NO_MATCHED_MESSAGE", 800, 0, 851)
    answer = client.call(pull_request(subscription="B", queueOffset=800))
    assert numbers(answer) == (FOUND, "FOUND", 851, 0, 851)
    answer = client.call(pull_request(subscription="B", maxMsgNums=900))
    assert numbers(answer) == (FOUND, "FOUND", 851, 0, 851)


@pytest.mark.parametrize(
    ("slave_read", "limit", "offset", "suggested"),
    [(False, 0, 0, 0), (True, 1 << 40, 0, 0), (True, 1000, 0, 1), (True, 1000, 29, 0)],
)
def test_suggested_broker(
    tmp_path: Path, slave_read: bool, limit: int, offset: int, suggested: int
) -> None:
    pull = {"slave_read_enable": slave_read, "memory_limit": limit, "count_in_disk": 2}
    world = make_world(tmp_path, pull=pull)
    fill(world, 30)
    answer = world.client().call(pull_request(queueOffset=offset))
    assert answer.ext_fields["suggestWhichBrokerId"] == str(suggested)


def test_a_filtered_message_counts_for_the_suggestion(tmp_path: Path) -> None:
    world = make_world(tmp_path, pull={"slave_read_enable": True, "memory_limit": 500})
    fill(world, 1, tag="A")
    fill(world, 20, tag="B")
    answer = world.client().call(pull_request(subscription="A"))
    assert (answer.code, answer.ext_fields["suggestWhichBrokerId"]) == (FOUND, "0")


# -- filters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("*", [0, 1, 2, 3, 4]),
        (None, [0, 1, 2, 3, 4]),
        ("", [0, 1, 2, 3, 4]),
        ("A", [0]),
        ("A||B", [0, 1]),
        (" A || B ||", [0, 1]),
        (NEGATIVE_TAG, [2]),
        ("метка", [3]),
        ("none||A", [0]),
        ("A || ", [0]),
    ],
)
def test_tags(
    world: HotPathWorld, client: Client, ask: Any, expression: str | None, wanted: list[int]
) -> None:
    assert string_hash(NEGATIVE_TAG) == -(2**31)
    for tag in ("A", "B", NEGATIVE_TAG, "метка", ""):
        fill(world, 1, tag=tag)
    answer = ask(client, subscription=expression)
    raw = world.raw_records()
    assert answer.body == b"".join(raw[n] for n in wanted)
    assert numbers(answer)[2] == 5


def test_tags_of_the_heartbeat(world: HotPathWorld, client: Client) -> None:
    for tag in ("A", NEGATIVE_TAG, "B"):
        fill(world, 1, tag=tag)
    world.consumers.groups.add("G")
    sub = SubscriptionData(
        topic="T", sub_string="x", code_set=[string_hash(NEGATIVE_TAG), string_hash("B")]
    )
    world.consumers.subscriptions["G", "T"] = sub
    raw = world.raw_records()
    request: dict[str, Any] = {"sysFlag": 0, "subVersion": 0, "subscription": "A"}
    assert client.call(pull_request(**request)).body == raw[1] + raw[2]
    world.consumers.subscriptions["G", "T"] = replace(sub, class_filter_mode=True)
    assert client.call(pull_request(**request)).body == b"".join(raw)


@given(
    tags=st.lists(st.sampled_from(["A", "B", "C", NEGATIVE_TAG, ""]), min_size=1, max_size=50),
    wanted=st.frozensets(st.sampled_from(["A", "B", NEGATIVE_TAG]), min_size=1),
    batch=st.integers(1, 40),
    offset=st.integers(0, 49),
)
def test_pulling_on_gives_exactly_the_wanted_messages(
    tmp_path_factory: pytest.TempPathFactory,
    tags: list[str],
    wanted: frozenset[str],
    batch: int,
    offset: int,
) -> None:
    """Against the plain list as model, over small log and queue files."""
    world = make_world(tmp_path_factory.mktemp("pull"), file_size=2048, files=8, units_per_file=7)
    for tag in tags:
        fill(world, 1, tag=tag)
    client = world.client()
    found, at = b"", min(offset, len(tags))
    start = at
    while at < len(tags):
        request = pull_request(queueOffset=at, maxMsgNums=batch, subscription="||".join(wanted))
        answer = client.call(request)
        assert answer.code in (FOUND, RETRY)
        assert int(answer.ext_fields["nextBeginOffset"]) > at
        found, at = found + answer.body, int(answer.ext_fields["nextBeginOffset"])
    raw = world.raw_records()
    assert found == b"".join(r for n, r in enumerate(raw) if n >= start and tags[n] in wanted)
    world.close()


# -- files ---------------------------------------------------------------------------------------


def test_bodies_run_across_file_boundaries(tmp_path: Path) -> None:
    world = make_world(tmp_path, file_size=4096, files=6)
    fill(world, 12, body=bytes(range(256)) * 4)
    assert world.counters[MAX_PHY_OFFSET] > 3 * 4096
    answer = world.client().call(pull_request())
    assert answer.body == b"".join(world.raw_records())
    assert numbers(answer)[2] == 12


def test_records_of_other_queues_between_are_left_out(world: HotPathWorld, client: Client) -> None:
    for queue_id in (0, 1, 0, 0, 2, 0):
        fill(world, 1, queue_id=queue_id)
    raw = world.raw_records()
    assert client.call(pull_request()).body == raw[0] + raw[2] + raw[3] + raw[5]


def write_units(world: HotPathWorld, queue_id: int, units: list[tuple[int, int, int]]) -> None:
    """A queue's file by hand."""
    directory = world.queue_path / "T" / str(queue_id)
    directory.mkdir(parents=True, exist_ok=True)
    data = b"".join(CQ_UNIT.pack(*unit) for unit in units)
    (directory / file_name(0)).write_bytes(data.ljust(20_000, b"\0"))
    writer = QueueTableWriter(world.table_fd)
    row = writer.row("T", queue_id)
    writer.set_offsets(row, 0, len(units))
    writer.mark_moved(row)


@pytest.mark.parametrize("expression", ["*", "A"])
def test_blank_units_are_skipped(world: HotPathWorld, client: Client, expression: str) -> None:
    world.log.topic("T").next_offsets[1] = 2
    fill(world, 1, tag="A", queue_id=1)
    world.log.topic("T").next_offsets[1] = 4
    fill(world, 1, tag="A", queue_id=1)
    first, second = world.raw_records()
    blank, tag = (0, 0x7FFFFFFF, 0), string_hash("A")
    write_units(
        world,
        1,
        [blank, blank, (0, len(first), tag), blank, (len(first), len(second), tag), blank],
    )
    answer = client.call(pull_request(queueId=1, subscription=expression))
    assert answer.body == first + second
    only_blanks = client.call(pull_request(queueId=1, maxMsgNums=2))
    assert numbers(only_blanks) == (RETRY, "MESSAGE_WAS_REMOVING", 2, 0, 6)


def test_a_log_file_deleted_under_the_reader(tmp_path: Path) -> None:
    world = make_world(tmp_path, file_size=4096, files=6)
    fill(world, 10, body=bytes(1000))
    raw = world.raw_records()
    (world.directory / file_name(0)).unlink()
    client = world.client()
    answer = client.call(pull_request(maxMsgNums=2))
    assert numbers(answer) == (RETRY, "MESSAGE_WAS_REMOVING", 2, 0, 10)
    assert client.call(pull_request()).body == b"".join(raw[3:])
    world.counters[MIN_PHY_OFFSET] = 2 * 4096
    assert client.call(pull_request()).body == b"".join(raw[6:])


def test_a_lent_view_outlives_its_file(tmp_path: Path) -> None:
    """The answer was queued before retention took the file away."""
    world = make_world(tmp_path, file_size=4096, files=6)
    fill(world, 6, body=bytes(1000))
    raw = world.raw_records()
    client, other = world.client(), world.client()
    client.send(pull_request())
    (world.directory / file_name(0)).unlink()
    world.counters[MIN_PHY_OFFSET] = 4096
    other.send(pull_request())
    world.turn()
    assert client.answers()[0].body == b"".join(raw)
    assert other.answers()[0].body == b"".join(raw[3:])


def test_a_queue_file_that_is_gone(tmp_path: Path) -> None:
    world = make_world(tmp_path, units_per_file=5)
    fill(world, 12)
    (world.queue_path / "T" / "0" / file_name(0)).unlink()
    client = world.client()
    lost = client.call(pull_request(queueOffset=1))
    assert numbers(lost)[:2] == (NOT_FOUND, "OFFSET_FOUND_NULL")
    assert lost.ext_fields["nextBeginOffset"] == "1"
    assert world.damaged == [("T", 0, 1)]
    assert client.call(pull_request(queueOffset=5)).code == FOUND


def flip(world: HotPathWorld, unit: int, at: int) -> None:
    """One bit of a unit of queue 0: bytes 0 to 7 phy_offset, 8 to 11 size, 12 to 19 tags code."""
    path = world.queue_path / "T" / "0" / file_name(0)
    data = bytearray(path.read_bytes())
    data[unit * CQ_UNIT_SIZE + at] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("at", [0, 3, 6, 7, 8, 10, 11])
@pytest.mark.parametrize("expression", ["*", "A", "A || B"])
@pytest.mark.parametrize("many", [3, 40])
def test_an_answer_ends_before_a_wrong_unit(
    world: HotPathWorld, client: Client, at: int, expression: str, many: int
) -> None:
    fill(world, many, tag="A")
    raw = world.raw_records()
    flip(world, 2, at)
    answer = client.call(pull_request(subscription=expression))
    assert answer.body == raw[0] + raw[1]
    assert numbers(answer) == (FOUND, "FOUND", 2, 0, many)
    assert world.damaged == [("T", 0, 2)]
    waits = client.call(pull_request(queueOffset=2, subscription=expression))
    assert numbers(waits) == (NOT_FOUND, "OFFSET_FOUND_NULL", 2, 0, many)
    client.send(pull_request(queueOffset=2, subscription=expression, sysFlag=6))
    assert client.answers() == []
    flip(world, 2, at)
    writer = QueueTableWriter(world.table_fd)
    writer.renew(writer.row("T", 0))
    writer.mark_moved(writer.row("T", 0))
    world.turn()
    assert client.answers()[0].body == b"".join(raw[2:34])


def test_what_was_read_ahead_is_not_believed_for_long(world: HotPathWorld, client: Client) -> None:
    """A record whose page comes from the disk again, rotten, is seen, though its unit was checked
    before and served pulls since, by the known way, too."""
    fill(world, 100)
    raw = world.raw_records()
    for _ in range(3):
        assert client.call(pull_request(queueOffset=32)).body == b"".join(raw[32:64])
    path = world.directory / file_name(0)
    data = bytearray(path.read_bytes())
    data[len(b"".join(raw[:40])) + 4] ^= 1
    path.write_bytes(data)
    world.clock.advance(5_000)
    for _ in range(3):
        assert client.call(pull_request(queueOffset=32)).body == b"".join(raw[32:40])
    assert client.call(pull_request(queueOffset=41)).body == b"".join(raw[41:73])
    assert world.damaged[0] == ("T", 0, 40)


@pytest.mark.parametrize("bit", range(32))
@pytest.mark.parametrize("expression", ["*", "A"])
@pytest.mark.parametrize("many", [3, 40])
def test_an_answer_ends_before_a_record_with_a_wrong_magic(
    world: HotPathWorld, client: Client, bit: int, expression: str, many: int
) -> None:
    """A client stops decoding there, and would never see what is behind it."""
    fill(world, many, tag="A")
    raw = world.raw_records()
    path = world.directory / file_name(0)
    data = bytearray(path.read_bytes())
    data[len(raw[0]) + len(raw[1]) + 4 + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    answer = client.call(pull_request(subscription=expression))
    assert answer.body == raw[0] + raw[1]
    assert numbers(answer) == (FOUND, "FOUND", 2, 0, many)
    assert world.damaged == [("T", 0, 2)]
    waits = client.call(pull_request(queueOffset=2, subscription=expression))
    assert numbers(waits) == (NOT_FOUND, "OFFSET_FOUND_NULL", 2, 0, many)


@pytest.mark.parametrize("expression", ["*", "A"])
@pytest.mark.parametrize("many", [4, 40])
def test_units_of_another_queue_are_not_sent(
    world: HotPathWorld, client: Client, expression: str, many: int
) -> None:
    """Same queue id, same queue offsets: only the topic tells them apart."""
    world.topic("U")
    fill(world, many, tag="A")
    fill(world, many, tag="A", topic="U")
    (world.queue_path / "T" / "0" / file_name(0)).write_bytes(
        (world.queue_path / "U" / "0" / file_name(0)).read_bytes()
    )
    answer = client.call(pull_request(subscription=expression))
    assert numbers(answer) == (NOT_FOUND, "OFFSET_FOUND_NULL", 0, 0, many)
    assert world.damaged == [("T", 0, 0)]


def test_units_ahead_are_not_kept_beyond_a_rebuild(world: HotPathWorld, client: Client) -> None:
    """Units that were read ahead serve the next pulls, until the queue's files are others."""
    fill(world, 100)
    assert client.call(pull_request()).code == FOUND
    flip(world, 50, 7)
    assert numbers(client.call(pull_request(queueOffset=32)))[2] == 64
    writer = QueueTableWriter(world.table_fd)
    writer.renew(writer.row("T", 0))
    assert numbers(client.call(pull_request(queueOffset=32)))[2] == 50


def test_a_queue_made_again_is_not_read_from_its_old_files(
    world: HotPathWorld, client: Client
) -> None:
    fill(world, 3, body=b"old")
    assert client.call(pull_request()).code == FOUND
    world.send_processor.block_topic("T")
    world.queues.delete_topic("T")
    world.send_processor.unblock_topic("T", deleted=True)
    assert numbers(client.call(pull_request()))[1] == "NO_MESSAGE_IN_QUEUE"
    fill(world, 1, body=b"new")
    assert client.call(pull_request()).body == world.raw_records()[-1]


# -- offsets and counts --------------------------------------------------------------------------


def test_the_commit_offset_is_stored_with_flag_1_only(world: HotPathWorld, client: Client) -> None:
    client.call(pull_request(sysFlag=4, commitOffset=5))
    client.call(pull_request(sysFlag=5, commitOffset=6, queueId=2))
    client.call(pull_request(sysFlag=5, commitOffset=7, topic="unknown"))
    assert world.commits.seen == [("G", "T", 2, 6)]


def test_a_slave_stores_no_offset(tmp_path: Path) -> None:
    world = make_world(tmp_path, pull={"is_slave": True, "commits_offsets": False})
    world.client().call(pull_request(sysFlag=5, commitOffset=6))
    assert world.commits.seen == []


def test_a_slave_of_a_group_whose_slaves_act_as_master_stores_offsets(tmp_path: Path) -> None:
    world = make_world(tmp_path, pull={"is_slave": True})
    world.client().call(pull_request(sysFlag=5, commitOffset=6))
    assert world.commits.seen == [("G", "T", 0, 6)]


def test_a_held_pull_commits_once(world: HotPathWorld, client: Client) -> None:
    client.send(pull_request(sysFlag=7, commitOffset=6))
    world.turn()
    fill(world, 1)
    world.turn()
    assert [a.code for a in client.answers()] == [FOUND]
    assert world.commits.seen == [("G", "T", 0, 6)]


def test_gets_are_counted(world: HotPathWorld, client: Client) -> None:
    fill(world, 2)
    client.call(pull_request())
    client.call(pull_request(queueOffset=2))
    size = sum(map(len, world.raw_records()))
    assert world.stats.gets == [("G", "T", 2, size), ("G", "T", 0, 0)]


# -- long polling --------------------------------------------------------------------------------


@pytest.mark.parametrize("serialize", [JSON, BINARY])
def test_a_held_pull_is_answered_when_its_queue_moves(
    world: HotPathWorld, client: Client, serialize: SerializeType
) -> None:
    request = pull_request(sysFlag=6, serialize=serialize)
    client.send(request)
    world.turn()
    assert (client.answers(), world.hold.figures().pulls) == ([], 1)
    fill(world, 1, queue_id=1)
    world.turn()
    assert client.answers() == []
    fill(world, 2)
    world.turn()
    (answer,) = client.answers()
    assert (answer.opaque, answer.serialize_type) == (request.opaque, serialize)
    assert numbers(answer) == (FOUND, "FOUND", 2, 0, 2)
    assert answer.body == b"".join(world.raw_records()[1:])
    assert world.hold.is_empty


@pytest.mark.parametrize("sys_flag", [4, 5])
def test_without_the_suspend_flag_nothing_is_held(client: Client, sys_flag: int) -> None:
    assert client.call(pull_request(sysFlag=sys_flag)).code == NOT_FOUND


@pytest.mark.parametrize("offset", [5, -1])
def test_a_moved_offset_is_answered_at_once(
    world: HotPathWorld, client: Client, offset: int
) -> None:
    fill(world, 1)
    assert client.call(pull_request(sysFlag=6, queueOffset=offset)).code == MOVED


def test_messages_that_do_not_match_keep_it_waiting(world: HotPathWorld, client: Client) -> None:
    client.send(pull_request(sysFlag=6, subscription="B"))
    for _ in range(3):
        fill(world, 2, tag="A")
        world.turn()
        assert client.answers() == []
    fill(world, 1, tag="B")
    world.turn()
    (answer,) = client.answers()
    assert numbers(answer) == (FOUND, "FOUND", 7, 0, 7)
    assert answer.body == world.raw_records()[-1]


def test_pulls_that_want_none_of_what_came_share_one_look(
    world: HotPathWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world, 3, tag="A")
    clients = [world.client() for _ in range(30)]
    for number, client in enumerate(clients):
        client.send(pull_request(sysFlag=6, queueOffset=3, subscription=f"B{number}"))
    world.turn()
    reads: list[int] = []
    read = world.unit_reader.read_units

    def counted(topic: str, queue_id: int, queue_offset: int, count: int) -> bytes:
        reads.append(queue_offset)
        return read(topic, queue_id, queue_offset, count)

    monkeypatch.setattr(world.unit_reader, "read_units", counted)
    fill(world, 2, tag="A")
    world.turn()
    assert [client.answers() for client in clients] == [[]] * 30
    assert reads == [3]
    fill(world, 1, tag="B7")
    world.turn()
    answered = {number: client.answers() for number, client in enumerate(clients)}
    assert numbers(answered.pop(7)[0]) == (FOUND, "FOUND", 6, 0, 6)
    assert not any(answered.values())
    # Once for all, and once more for the one that gets something.
    assert reads == [3, 5, 5]


def test_tags_behind_a_wrong_unit_are_not_believed(world: HotPathWorld, client: Client) -> None:
    client.send(pull_request(sysFlag=6, subscription="B"))
    fill(world, 3, tag="A")
    flip(world, 1, 0)
    world.turn()
    (answer,) = client.answers()
    # What unit 1 says is far behind what unit 2 says: one of them is wrong.
    assert numbers(answer)[2:] == (2, 0, 3)
    assert world.damaged[0] == ("T", 0, 2)


@pytest.mark.parametrize(("long_polling", "wait_ms"), [(True, 15_000), (False, 1_000)])
def test_the_time_out_answer(tmp_path: Path, long_polling: bool, wait_ms: int) -> None:
    world = make_world(tmp_path, pull={"long_polling_enable": long_polling})
    fill(world, 2, tag="A")
    client = world.client()
    client.send(pull_request(sysFlag=6, queueOffset=2, subscription="B"))
    fill(world, 3, tag="A")
    world.turn()
    world.clock.advance(wait_ms - 1)
    world.hold.scan(world.clock.monotonic_ms())
    world.turn()
    assert client.answers() == []
    world.clock.advance(1)
    world.hold.scan(world.clock.monotonic_ms())
    world.turn()
    (answer,) = client.answers()
    assert numbers(answer) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE", 5, 0, 5)
    assert world.hold.is_empty


def test_a_negative_suspend_time_is_answered_by_the_next_scan(
    world: HotPathWorld, client: Client
) -> None:
    client.send(pull_request(sysFlag=6, suspendTimeoutMillis=-5))
    world.hold.scan(world.clock.monotonic_ms())
    world.turn()
    assert [a.code for a in client.answers()] == [NOT_FOUND]


def test_a_closed_connection_is_forgotten(world: HotPathWorld, client: Client) -> None:
    client.send(pull_request(sysFlag=6))
    client.connection.close("gone")
    world.hold.forget(client.connection)
    assert world.hold.is_empty
    assert client.answers() == []


@pytest.mark.parametrize("serialize", [JSON, BINARY])
def test_what_is_forbidden_meanwhile_is_refused(
    world: HotPathWorld, client: Client, serialize: SerializeType
) -> None:
    request = pull_request(sysFlag=6, serialize=serialize)
    client.send(request)
    world.topics.delete("T")
    fill(world, 1, topic="T", default_topic="TBW102")
    world.topics.delete("T")
    world.hold.wake(("T", 0))
    world.server.flush()
    (answer,) = client.answers()
    assert (answer.code, answer.opaque, answer.serialize_type) == (17, request.opaque, serialize)


def test_a_ring_overrun_wakes_everybody(world: HotPathWorld) -> None:
    """More queues moved than the ring can name."""
    fill(world, 1)
    clients = [world.client() for _ in range(4)]
    for queue_id, client in enumerate(clients):
        client.send(pull_request(sysFlag=6, queueId=queue_id, queueOffset=int(queue_id == 0)))
    writer = QueueTableWriter(world.table_fd)
    row = writer.row("Elsewhere", 0)
    for queue_id in range(4):
        fill(world, 1, queue_id=queue_id)
    for _ in range(RING_SIZE):
        writer.mark_moved(row)
    world.turn()
    assert [[a.code for a in client.answers()] for client in clients] == [[FOUND]] * 4


def test_many_pulls_of_one_queue_are_all_answered(world: HotPathWorld) -> None:
    clients = [world.client() for _ in range(20)]
    for client in clients:
        client.send(pull_request(sysFlag=6), pull_request(sysFlag=6, subscription="none"))
    fill(world, 1, tag="A")
    world.turn()
    assert all([a.code for a in client.answers()] == [FOUND] for client in clients)
    assert world.hold.figures().pulls == 20


def test_a_connection_has_so_many_pulls_held_and_the_others_answered(world: HotPathWorld) -> None:
    client = world.client()
    wanted = {"queueOffset": 0, "sysFlag": 6, "suspendTimeoutMillis": 2**62}
    client.send(*[pull_request(**wanted) for _ in range(MAX_PULLS_OF_A_QUEUE + 3)])
    world.turn()
    assert [answer.code for answer in client.answers()] == [NOT_FOUND] * 3
    assert world.hold.figures().pulls == MAX_PULLS_OF_A_QUEUE
    fill(world, 1)
    world.turn()
    assert [a.code for a in client.answers()] == [FOUND] * MAX_PULLS_OF_A_QUEUE
    assert world.hold.is_empty


# -- records that are on disk only -----------------------------------------------------------------


class Disk:
    """PagesAhead and their threads: what is missing comes when it is told to."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.waiting: list[Callable[[], None]] = []
        self.has_all = False

    def check(self, units: bytes) -> None:
        self.asked.append(units)
        if not self.has_all:
            raise PagesMissingError(units)

    def bring(self, units: bytes, then: Callable[[], None]) -> None:
        assert units == self.asked[-1]
        self.waiting.append(then)


@pytest.fixture
def disk(world: HotPathWorld) -> Disk:
    found = Disk()
    world.pull_processor._pages = found  # type: ignore[assignment]
    return found


SQL = {"expressionType": "SQL92", "subscription": "a = 1"}
TAGS = {"subscription": "t"}


@pytest.mark.parametrize("wanted", [{}, TAGS, SQL])
def test_the_answer_comes_when_the_records_are_in_memory(
    tmp_path: Path, wanted: dict[str, Any]
) -> None:
    world = make_world(tmp_path, pull={"enable_property_filter": True})
    client, disk = world.client(), Disk()
    world.pull_processor._pages = disk  # type: ignore[assignment]
    fill(world, 5, tag="t")
    disk.has_all = True
    expected = client.call(pull_request(**wanted))
    world.checked_units._blocks.clear()
    disk.has_all = False
    client.send(pull_request(**wanted, commitOffset=3, sysFlag=5))
    world.turn()
    assert client.answers() == []
    others = world.client()
    others.send(send_request())
    world.turn()
    assert [answer.code for answer in others.answers()] == [0], "nobody waits with it"
    (go_on,) = disk.waiting
    go_on()
    world.turn()
    (answer,) = client.answers()
    assert (answer.code, answer.body) == (expected.code, expected.body)
    assert len(disk.waiting) == 1, "it does not wait twice"


def test_records_of_the_same_block_are_looked_at_once(
    world: HotPathWorld, client: Client, disk: Disk
) -> None:
    fill(world, 100)
    disk.has_all = True
    for offset in (0, 32, 64):
        assert client.call(pull_request(queueOffset=offset)).code == FOUND
    assert len(disk.asked) == 1
    assert len(disk.asked[0]) == 100 * CQ_UNIT_SIZE


def test_of_a_queue_with_few_messages_no_more_is_looked_at_than_is_wanted(
    world: HotPathWorld, client: Client, disk: Disk
) -> None:
    fill(world, 100)
    disk.has_all = True
    read = world.checked_units._read_units

    def far_apart(*place: Any) -> bytes:
        units = bytearray(read(*place))
        if len(units) > CQ_UNIT_SIZE:
            CQ_UNIT.pack_into(units, len(units) - CQ_UNIT_SIZE, 1 << 30, 100, 0)
        return bytes(units)

    world.checked_units._read_units = far_apart
    assert client.call(pull_request(maxMsgNums=10)).code == FOUND
    assert len(disk.asked[0]) == 10 * CQ_UNIT_SIZE


def test_who_closed_meanwhile_gets_nothing_and_commits_nothing(
    world: HotPathWorld, client: Client, disk: Disk
) -> None:
    fill(world, 5)
    client.send(pull_request(commitOffset=3, sysFlag=5))
    world.turn()
    client.connection.close("gone")
    (go_on,) = disk.waiting
    go_on()
    assert world.commits.seen == []


def test_a_topic_that_went_meanwhile_is_told(
    world: HotPathWorld, client: Client, disk: Disk
) -> None:
    fill(world, 5)
    client.send(pull_request())
    world.turn()
    world.topics.delete("T")
    (go_on,) = disk.waiting
    go_on()
    world.turn()
    (answer,) = client.answers()
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST

"""Placement: delayed and half messages of the fast path, beside what the general path makes of
the same requests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.remoting_command import RemotingCommand
from remoting.request_processor import ConnectionLike
from store.control_slots import MAX_PHY_OFFSET, RUNNING_FLAGS
from store.reserved_properties import RESERVED
from tests.broker.hot_path_world import TIMERS, Client, HotPathWorld, send_request
from tests.remoting.golden_frames import GOLDEN, GoldenFrame

HALF = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U\x02WAIT\x01true"
DELAYED = "KEYS\x01k\x02UNIQ_KEY\x01U\x02WAIT\x01true\x02DELAY\x013"


def world_of(root: Path, **kinds: Any) -> HotPathWorld:
    """A world whose fast path knows its topic and the half topic."""
    world = HotPathWorld(root, **{"file_size": 1 << 20, **kinds})
    world.topic()
    client = world.client("10.1.2.3", 4710)
    for text in ("", HALF):
        client.send(send_request(properties=text))
        world.turn()
    return world


def queue_sizes(world: HotPathWorld) -> dict[tuple[str, int], int]:
    """Bytes that were put, by topic and queue that has its own counter."""
    sizes: dict[tuple[str, int], int] = {}
    for topic, queue_id, size in world.stats.queue_puts:
        sizes[topic, queue_id] = sizes.get((topic, queue_id), 0) + size
    return sizes


class Twins:
    """One broker with the fast path, one without it, fed with the same frames."""

    def __init__(self, root: Path, **kinds: Any) -> None:
        self.worlds = [
            world_of(root / str(fast), fast=fast, store_host="127.0.0.2", **kinds)
            for fast in (True, False)
        ]
        self.clients = [world.client("10.1.2.3", 4711) for world in self.worlds]
        self.compared = 0
        """The log up to there is the same."""

    def check(self, *requests: RemotingCommand) -> RemotingCommand | None:
        """What both answer to requests that arrive together, and store, is the same; the first
        answer."""
        for client in self.clients:
            client.send(*requests)
            client.world.turn()
        fast, general = self.worlds
        assert fast.log.position == general.log.position
        assert fast.log_bytes(self.compared) == general.log_bytes(self.compared)
        self.compared = fast.counters[MAX_PHY_OFFSET]
        for name in ("puts", "types", "answers", "oneways", "failed"):
            assert getattr(fast.stats, name) == getattr(general.stats, name), name
        # Those of a turn are counted together.
        assert queue_sizes(fast) == queue_sizes(general)
        answers = [sorted(client.answers(), key=lambda a: a.opaque) for client in self.clients]
        assert answers[0] == answers[1]
        return answers[0][0] if answers[0] else None

    def close(self) -> None:
        for world in self.worlds:
            world.close()


EVERYTHING_ON: dict[str, Any] = {"light_queues": 50, "timers": replace(TIMERS, enabled=True)}


@pytest.fixture(scope="module", params=[{}, EVERYTHING_ON], ids=["plain", "light-queues-timers"])
def twins(request: pytest.FixtureRequest) -> Iterator[Twins]:
    with tempfile.TemporaryDirectory() as root:
        twins = Twins(Path(root), **request.param)
        yield twins
        twins.close()


_text = st.text(
    st.characters(blacklist_characters="\x00\x01\x02", blacklist_categories=["Cs"]), max_size=6
)
_names = st.one_of(
    st.sampled_from(["WAIT", "CLUSTER", "TAGS", "KEYS", "UNIQ_KEY", "PGROUP", "XDELAY", "DELAY "]),
    st.sampled_from(
        ["REAL_TOPIC", "REAL_QID", "XREAL_QID", "XTRAN_MSG", "TIMER_DELAY_SEC", "WAIT"]
    ),
    st.sampled_from(["DELAY", "TRAN_MSG", "INNER_MULTI_DISPATCH", "TIMER_DELIVER_MS"]),
    st.sampled_from(sorted(RESERVED)),
    _text,
)
_values = st.one_of(
    st.sampled_from(["true", "false", "", "1", "5", "TRUE", "%LMQ%a", "9" * 20]),
    _text,
)
_levels = st.sampled_from(
    ["1", "3", "17", "18", "19", "0", "-1", "+2", "03", "", "x", " 1", "\u0663", "999999999"]
)
_special = st.one_of(
    st.tuples(st.just("DELAY"), _levels),
    st.tuples(st.just("TRAN_MSG"), st.sampled_from(["true", "TRUE", "false", "", "truex"])),
)
_ends = st.sampled_from(["", "", "\x02", "\x02\x02"])
_properties = st.tuples(
    st.lists(st.tuples(_names, _values), max_size=4),
    _special,
    st.lists(st.one_of(_special, st.tuples(_names, _values)), max_size=2),
    _ends,
    st.booleans(),
).map(
    lambda made: (
        "\x02".join(
            f"{name}\x01{value}"
            for name, value in (*made[0], made[1], *(made[2] if made[4] else ()))
        )
        + made[3]
    )
)
_requests = st.fixed_dictionaries(
    {
        "queue_id": st.sampled_from(["0", "1", "3", "03"]),
        "sys_flag": st.sampled_from([0, 0, 4, 4, 1, 5, 0x10, 0x34, 8, 12, 0x80]),
        "born_timestamp": st.sampled_from([0, -1, 1_795_177_732_426]),
        "flag": st.integers(-(2**31), 2**31 - 1),
        "properties": _properties,
        "reconsume_times": st.one_of(st.none(), st.integers(0, 20)),
    }
)


@given(fields=_requests, body=st.binary(max_size=20), oneway=st.integers(0, 9).map(lambda n: not n))
def test_both_paths_store_and_answer_the_same(
    twins: Twins, fields: dict[str, Any], body: bytes, oneway: bool
) -> None:
    twins.check(send_request(body, oneway=oneway, **fields))


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "text", [HALF, DELAYED, DELAYED + "\x02", "DELAY\x0118", "TRAN_MSG\x01true"]
)
@pytest.mark.parametrize("flags", [0, 1])
def test_the_fast_path_is_really_taken(tmp_path: Path, text: str, flags: int) -> None:
    """Else the comparison above compares nothing."""
    world = world_of(tmp_path)
    count = len(world.records())
    forbid_general(world)
    sys_flag = flags | (4 if "TRAN" in text else 0)
    answer = world.client().call(send_request(properties=text, sys_flag=sys_flag, queue_id=2))
    assert (answer.code, answer.ext_fields["queueId"]) == (0, "2")
    assert len(world.records()) == count + 1
    assert world.records()[-1].sys_flag == flags


@pytest.mark.interpreted
@pytest.mark.parametrize("number", [8, 9, 10])
def test_golden_half_messages_take_it(tmp_path: Path, number: int) -> None:
    """Those of a Java client; what the general path stores of them is compared with Java's log."""
    world = HotPathWorld(tmp_path)
    path = GOLDEN / "wire-json" / "310-SEND_MESSAGE_V2" / f"{number:02d}.req.bin"
    frame = GoldenFrame(path, "request").frame
    client = world.client("10.1.2.3", 4711)
    first = client.call(frame)
    forbid_general(world)
    second = client.call(frame)
    stored, again = world.records()
    assert again == replace(stored, phy_offset=again.phy_offset, queue_offset=1)
    assert second.ext_fields.keys() == first.ext_fields.keys()
    assert second.ext_fields["queueOffset"] == "1"


def forbid_general(world: HotPathWorld) -> None:
    def refuse(connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand | None:
        pytest.fail("the general path was taken")

    world.send_processor.process_request = refuse  # type: ignore[method-assign]


def general_calls(world: HotPathWorld, client: Client, text: str) -> int:
    """How often the general path serves one send with these properties."""
    calls = []
    ordinary = world.send_processor._serve

    def serve(*args: Any) -> RemotingCommand | None:
        calls.append(args)
        return ordinary(*args)

    world.send_processor._serve = serve  # type: ignore[method-assign]
    try:
        assert client.call(send_request(properties=text)).code == 0
    finally:
        world.send_processor._serve = ordinary  # type: ignore[method-assign]
    return len(calls)


@pytest.mark.interpreted
def test_the_half_topic_is_made_and_announced_on_the_general_path(tmp_path: Path) -> None:
    """As after each change of topics: it may be gone."""
    world = HotPathWorld(tmp_path)
    world.topic()
    client = world.client()
    assert client.call(send_request()).code == 0
    assert [general_calls(world, client, HALF) for _ in range(3)] == [1, 0, 0]
    world.send_processor.on_topics_changed()
    assert client.call(send_request()).code == 0
    assert [general_calls(world, client, HALF) for _ in range(3)] == [1, 0, 0]


def test_each_level_is_counted_for_its_queue(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    client = world.client()
    before = world.log.position
    for level in (3, 3, 18):
        client.send(send_request(properties=f"DELAY\x01{level}"))
    size = (world.log.position - before) // 3
    world.turn()
    assert [answer.code for answer in client.answers()] == [0, 0, 0]
    assert sorted(world.stats.queue_puts) == [
        ("SCHEDULE_TOPIC_XXXX", 2, 2 * size),
        ("SCHEDULE_TOPIC_XXXX", 17, size + 1),
    ]


@pytest.mark.parametrize("text", [HALF, DELAYED])
def test_who_waits_for_the_flush_gets_the_same_answer(tmp_path: Path, text: str) -> None:
    twins = Twins(tmp_path, waits_for_flush=True)
    assert twins.check(send_request(properties=text)) is None
    for world in twins.worlds:
        world.clock.advance(5_001)
        world.turn()
    answers = [client.answers() for client in twins.clients]
    assert answers[0] == answers[1]
    assert [answer.code for answer in answers[0]] == [10]


@pytest.mark.parametrize("text", [HALF, DELAYED])
def test_what_cannot_be_stored_is_refused_in_the_same_words(tmp_path: Path, text: str) -> None:
    twins = Twins(tmp_path)
    long = twins.check(send_request(properties=text + "\x02X\x01" + "x" * 32_700))
    assert long is not None
    assert long.code == 13
    large = twins.check(send_request(b"x" * (4 << 20) + b"x", properties=text))
    assert large is not None
    assert large.code == 13
    for world in twins.worlds:
        world.counters[RUNNING_FLAGS] = 1
    full = twins.check(send_request(properties=text))
    assert full is not None
    assert full.code == 14


def test_the_next_file_is_waited_for(tmp_path: Path) -> None:
    twins = Twins(tmp_path, file_size=4096, files=1)
    for text in (HALF, DELAYED) * 8:
        twins.check(send_request(b"x" * 200, properties=text))
    assert all(world.send_processor.holds_sends for world in twins.worlds)
    for world in twins.worlds:
        world.allocate(1)
    for client in twins.clients:
        client.world.turn()
    assert twins.worlds[0].raw_records() == twins.worlds[1].raw_records()

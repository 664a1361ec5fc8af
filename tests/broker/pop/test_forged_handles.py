"""Handles that this broker has not handed out: refused before anything is stored or allocated, on
the fast route and the general one, single, in batches, and for a new invisible time."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remoting.body.batch_ack import MAX_BITS, MAX_BITS_SET, MAX_ENTRIES
from tests.broker.pop.handle_world import (
    END,
    GROUP,
    MAX_INVISIBLE_MS,
    NAME,
    NOW_MS,
    OTHER,
    REVIVE_QUEUES,
    HandleWorld,
    entry,
    handle,
)

pytestmark = pytest.mark.interpreted

MOST_LONG, MOST_INT = (1 << 63) - 1, (1 << 31) - 1


@pytest.fixture
def world(tmp_path: Path) -> HandleWorld:
    return HandleWorld(tmp_path / "popjournal")


def look(world: HandleWorld) -> object:
    """What a refused request must leave as it was."""
    return (
        list(world.timers.records),
        world.used_rows,
        world.buffer.check_point_count,
        world.buffer.offset_count,
        world.buffer.has_work,
        dict(world.offsets.table),
    )


FORGED = [
    {"start": -1},
    {"start": 1},
    {"start": -(1 << 31), "offset": 0},
    {"pop_time": 0},
    {"pop_time": -1},
    {"pop_time": NOW_MS + MAX_INVISIBLE_MS},
    {"pop_time": MOST_LONG},
    {"pop_time": 1 << 62},
    {"invisible": -1},
    {"invisible": MAX_INVISIBLE_MS + 1},
    {"invisible": MOST_LONG},
    {"revive": -1},
    {"revive": REVIVE_QUEUES},
    {"revive": 1000},
    {"revive": MOST_INT},
    {"broker": "broker-b"},
    {"broker": "x\x02REAL_TOPIC\x01stolen"},
    {"broker": "b" * 60_000},
]


@pytest.mark.parametrize("parts", FORGED, ids=[str(parts)[:40] for parts in FORGED])
@pytest.mark.parametrize("way", ["fast", "general", "change", "batch"])
def test_a_forged_number_is_refused_and_named(
    world: HandleWorld, parts: dict[str, object], way: str
) -> None:
    before = look(world)
    if way == "batch":
        names = {"start": "so", "pop_time": "pt", "invisible": "it", "revive": "rq"}
        fields = {names[name]: value for name, value in parts.items() if name in names}
        broker = str(parts.get("broker", NAME))
        if fields == {"so": 1}:
            return  # Its offsets begin there.
        answer = world.ask_batch(entry(), entry(**fields), broker_name=broker)
    elif way == "change":
        answer = world.ask_change(extraInfo=handle(**parts))
    else:
        answer = world.ask_ack(extraInfo=handle(**parts), is_fast=way == "fast")
    assert answer.code == 13
    remark = answer.remark or ""
    assert "this broker has handed out none like it" in remark
    assert len(remark) < 250
    assert look(world) == before


@pytest.mark.parametrize("group", ["", "g b", "g\x02REAL_TOPIC\x01stolen", "g" * 256, "g\n"])
@pytest.mark.parametrize("way", ["fast", "general", "change", "batch"])
def test_a_name_that_no_group_has_is_refused(world: HandleWorld, group: str, way: str) -> None:
    """It would become a part of the stored record's properties."""
    before = look(world)
    if way == "batch":
        answer = world.ask_batch(entry(c=group))
    elif way == "change":
        answer = world.ask_change(consumerGroup=group)
    else:
        answer = world.ask_ack(consumerGroup=group, is_fast=way == "fast")
    assert (answer.code, "consumerGroup" in (answer.remark or "")) == (13, True)
    assert look(world) == before


@pytest.mark.parametrize("is_fast", [True, False])
def test_what_the_broker_handed_out_is_taken(world: HandleWorld, is_fast: bool) -> None:
    world.pop()
    for offset in range(3):
        text = handle(offset=offset)
        assert world.ask_ack(extraInfo=text, offset=offset, is_fast=is_fast).code == 0
    assert world.offsets.table == {(GROUP, "T", 0): 3}
    assert not world.timers.records


def test_after_the_clock_was_set_back_handles_stay_good(world: HandleWorld) -> None:
    popped = world.pop()
    world.now_ms -= 7_200_000
    assert world.ask_ack().code == 0
    answer = world.ask_change(extraInfo=handle(offset=1), offset=1)
    assert answer.code == 0
    assert int(answer.ext_fields["popTime"]) > popped.pop_time_ms
    world.flush(20_000)
    assert len(world.timers.records) == 1, "the new one is stored in its time, by the new clock"


def test_an_ordered_handle_on_the_fast_route_is_never_stored(world: HandleWorld) -> None:
    """ "+999" is Java's 999, too."""
    before = look(world)
    for revive in ("999", "+999", "0999"):
        answer = world.ask_ack(extraInfo=handle(revive=revive), is_fast=True)
        assert (answer.code, answer.remark) == (13, "this broker has no ordered pops")
    assert look(world) == before


@pytest.mark.parametrize("is_fast", [True, False])
def test_an_ordered_message_may_be_renewed_for_long(world: HandleWorld, is_fast: bool) -> None:
    """Its invisible time counts from its pop."""
    days_ms = 10 * 86_400_000
    text = handle(pop_time=NOW_MS - days_ms, invisible=days_ms + 60_000, revive=999)
    answer = world.ask_ack(extraInfo=text, is_fast=is_fast)
    assert answer.remark == "this broker has no ordered pops", "and not that the handle is illegal"


# -- new invisible times ---------------------------------------------------------------------------


@pytest.mark.parametrize("invisible_ms", [-1, MAX_INVISIBLE_MS + 1, MOST_LONG, -MOST_LONG])
@pytest.mark.parametrize("revive", [5, 999])
def test_a_new_invisible_time_that_cannot_be_is_refused(
    world: HandleWorld, invisible_ms: int, revive: int
) -> None:
    world.pop()
    before = look(world)
    answer = world.ask_change(invisibleTime=invisible_ms, extraInfo=handle(revive=revive))
    assert answer.code == 1
    assert look(world) == before


def test_a_pop_time_to_come_cannot_make_the_new_time_longer(world: HandleWorld) -> None:
    text = handle(pop_time=NOW_MS + 1_000_000)
    assert world.ask_change(extraInfo=text, invisibleTime=MAX_INVISIBLE_MS).code == 1
    assert world.ask_change(extraInfo=text, invisibleTime=MAX_INVISIBLE_MS - 1_000_000).code == 0


def test_forged_pop_times_leave_no_row_and_freeze_no_offset(world: HandleWorld) -> None:
    """The rows leaked until nobody could pop; after a kill no group's offset moved any more."""
    for _ in range(100):
        world.ask_change(extraInfo=handle(pop_time=MOST_LONG))
        world.ask_change(extraInfo=handle(pop_time=MOST_LONG - 1_000))
        world.ask_change(extraInfo=handle(pop_time=NOW_MS + MAX_INVISIBLE_MS - 60_000))
        world.flush(20)
    assert world.used_rows == 0
    popped = world.pop(group=OTHER)
    world.start()
    world.flush(20)
    assert world.buffer.ack(("T", OTHER, 0, 0, popped.pop_time_ms), [0, 1, 2])
    world.flush(20)
    assert world.offsets.table[OTHER, "T", 0] == 3


def test_a_pop_time_to_come_keeps_nothing_in_memory(world: HandleWorld) -> None:
    for _ in range(50):
        text = handle(pop_time=NOW_MS + MAX_INVISIBLE_MS - 60_000)
        assert world.ask_change(extraInfo=text, invisibleTime=0).code == 0
    world.flush(0)
    world.flush(20_000)
    assert not world.buffer.has_work


# -- batches ---------------------------------------------------------------------------------------


def test_a_batch_of_one_pop_is_taken(world: HandleWorld) -> None:
    world.pop(count=3)
    assert world.ask_batch(entry(b"\x05"), entry(b"\x02")).code == 0
    assert world.offsets.table == {(GROUP, "T", 0): 3}


@pytest.mark.parametrize("size", [1 << 10, 1 << 16, 1 << 20])
def test_a_bit_set_of_more_than_a_pop_is_refused_at_once(world: HandleWorld, size: int) -> None:
    before = look(world)
    since = time.thread_time()
    answer = world.ask_batch(entry(b"\xff" * size))
    took_s = time.thread_time() - since
    assert answer.code == 1
    assert "limit" in (answer.remark or "")
    assert took_s < 0.1
    assert look(world) == before


def test_the_limits_of_a_bit_set_are_what_they_say(world: HandleWorld) -> None:
    assert world.ask_batch(entry(b"\xff" * (MAX_BITS_SET // 8))).code == 0
    [record] = world.timers.records
    assert record.body.count(b",") - b'"aol":[0]'.count(b",") >= MAX_BITS_SET - 1
    assert world.ask_batch(entry(b"\xff" * (MAX_BITS_SET // 8) + b"\x01")).code == 1
    assert world.ask_batch(entry(bytes(MAX_BITS // 8 - 1) + b"\x80")).code == 0
    assert world.ask_batch(entry(bytes(MAX_BITS // 8 + 3) + b"\x80")).code == 1


def test_more_entries_than_pops_can_have_given_are_refused_at_once(world: HandleWorld) -> None:
    before = look(world)
    since = time.thread_time()
    answer = world.ask_batch(*[entry()] * 10_000)
    took_s = time.thread_time() - since
    assert (answer.code, str(MAX_ENTRIES) in (answer.remark or "")) == (1, True)
    assert took_s < 0.1
    assert look(world) == before
    assert world.ask_batch(*[entry()] * MAX_ENTRIES).code == 0


def test_an_entry_of_what_does_not_exist_stores_nothing(world: HandleWorld) -> None:
    """A record for offset 0 of a topic or queue that nobody ever wrote."""
    for fields in ({"t": "TNone"}, {"q": -1}, {"q": 3}, {"q": MOST_INT}, {"t": ""}):
        assert world.ask_batch(entry(**fields)).code == 0
    assert not world.timers.records


# -- anything --------------------------------------------------------------------------------------

LIMITS = sorted(
    {
        limit + step
        for limit in (0, 1, END, NOW_MS, NOW_MS + MAX_INVISIBLE_MS, MAX_INVISIBLE_MS, 999,
                      REVIVE_QUEUES, 60_000, MOST_INT, MOST_LONG, -MOST_INT, -MOST_LONG)
        for step in (-1, 0, 1)
    }
)  # fmt: skip
NUMBER = st.sampled_from(LIMITS) | st.integers(-MOST_LONG, MOST_LONG)
HANDLES = st.fixed_dictionaries(
    {},
    optional={
        "start": NUMBER | st.integers(0, END),
        "pop_time": NUMBER | st.integers(NOW_MS - 100_000, NOW_MS + 100_000),
        "invisible": NUMBER | st.integers(0, 100_000),
        "revive": NUMBER | st.integers(0, REVIVE_QUEUES),
        "broker": st.sampled_from([NAME, "", "another", "x\x02y"]) | st.text(max_size=4),
    },
)
REQUESTS = st.tuples(
    st.sampled_from(["fast", "general", "change", "batch"]),
    HANDLES,
    st.integers(0, END) | NUMBER,
    st.integers(0, 100_000) | NUMBER,
    st.sampled_from([GROUP, "unknown", "", "g\x01\x02"]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests=st.lists(REQUESTS, max_size=6), is_killed=st.booleans())
def test_whatever_is_forged_other_groups_go_on(
    tmp_path_factory: pytest.TempPathFactory,
    requests: list[tuple[str, dict[str, object], int, int, str]],
    is_killed: bool,
) -> None:
    """What is taken is what an honest client could have asked for: in a queue of the revive topic,
    due within timerMaxDelaySec, three properties; after it, other groups pop and acknowledge, also
    when everything was killed in between."""
    world = HandleWorld(tmp_path_factory.mktemp("forged") / "popjournal", capacity=16)
    popped = world.pop(group=OTHER)
    for way, parts, offset, invisible_ms, group in requests:
        before = look(world)
        fields = {"extraInfo": handle(**parts), "offset": offset, "consumerGroup": group}
        if way == "change":
            answer = world.ask_change(**fields, invisibleTime=invisible_ms)
        elif way == "batch":
            names = {"start": "so", "pop_time": "pt", "invisible": "it", "revive": "rq"}
            batch = {names[name]: value for name, value in parts.items() if name in names}
            answer = world.ask_batch(entry(c=group, **batch))
        else:
            answer = world.ask_ack(**fields, is_fast=way == "fast")
        if answer.code:
            assert look(world) == before, (way, parts, answer.remark)
        for _ in range(2):
            world.flush(20)
    for record in world.timers.records:
        pairs = [pair.split("\x01") for pair in record.properties.split("\x02")]
        assert [name for name, _ in pairs] == ["TIMER_DELIVER_MS", "UNIQ_KEY", "TAGS"]
        assert int(pairs[0][1]) <= world.now_ms + MAX_INVISIBLE_MS
        assert 0 <= record.queue_id < REVIVE_QUEUES
    if is_killed:
        world.start()
        world.flush(20)
    assert world.buffer.ack(("T", OTHER, 0, 0, popped.pop_time_ms), [0, 1, 2])
    world.flush(20)
    assert world.offsets.table[OTHER, "T", 0] == 3
    world.flush(20_000)
    assert world.used_rows == 0
    assert len(list(itertools.islice(world.journal._free_rows, 17))) <= 16

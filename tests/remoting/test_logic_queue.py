"""remoting.logic_queue: offsets of logic queues, and which changes of a mapping are allowed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remoting.body.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from remoting.errors import RequestError
from remoting.logic_queue import (
    MAX_OFFSET,
    LogicPull,
    MappingError,
    PullPlace,
    block_seq_round_up,
    check_items,
    end_of,
    find_item,
    find_next,
    item_of,
    led_items,
    merged_hosted,
    mock_broker_name,
)

OLD = LogicQueueMappingItem(bname="a", queue_id=2, gen=0, logic_offset=0)
MIDDLE = LogicQueueMappingItem(bname="b", queue_id=0, gen=1, logic_offset=10_000)
LEADER = LogicQueueMappingItem(bname="a", queue_id=3, gen=2, logic_offset=20_000)
UNDECIDED = replace(LEADER, logic_offset=-1)
ITEMS = [OLD, MIDDLE, LEADER]
FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21


def test_the_offset_formulas_of_java() -> None:
    item = LogicQueueMappingItem(logic_offset=1_000, start_offset=100, end_offset=150)
    assert [item.static_offset(n) for n in (0, 100, 120, 150, 170)] == [
        *(1_000, 1_000, 1_020, 1_050, 1_070)
    ]
    assert [item.static_offset_loosely(n) for n in (0, 120, 150, 170)] == [
        *(1_000, 1_020, 1_050, 1_050)
    ]
    assert item.physical_offset(1_020) == 120
    assert item.max_static_offset == 1_050
    assert item.offset_delta == 900
    assert UNDECIDED.static_offset_loosely(7) == -1
    assert LEADER.max_static_offset == 20_000
    assert mock_broker_name("__global__") == "__syslo__global__"
    assert mock_broker_name("mine") == "__syslo__mine"


@pytest.mark.parametrize(
    ("offset", "rounded"),
    [(0, 10_000), (4_999, 10_000), (5_000, 20_000), (9_999, 20_000), (10_000, 20_000)],
)
def test_a_new_leader_begins_at_a_block(offset: int, rounded: int) -> None:
    assert block_seq_round_up(offset) == rounded


def test_which_item_holds_an_offset() -> None:
    assert [find_item(ITEMS, n) for n in (-1, 0, 9_999, 10_000, 19_999, MAX_OFFSET)] == [
        *(OLD, OLD, OLD, MIDDLE, MIDDLE, LEADER)
    ]
    assert find_item([MIDDLE, UNDECIDED], MAX_OFFSET) == MIDDLE
    assert find_item([MIDDLE, LEADER], 5) == MIDDLE, "the earliest was removed"
    assert find_item([UNDECIDED], 5) is None
    with pytest.raises(RequestError, match="not decided"):
        item_of([UNDECIDED], "T", 5)
    assert find_next(ITEMS, OLD) == MIDDLE
    assert find_next(ITEMS, LEADER) is None
    assert find_next([MIDDLE, UNDECIDED], MIDDLE) is None


def test_only_the_leader_serves() -> None:
    detail = TopicQueueMappingDetail(topic="T", bname="a", hosted_queues={0: ITEMS, 1: ITEMS[:2]})
    assert led_items(detail, "T", 0) == ITEMS
    for global_id in (1, 2, -1):
        with pytest.raises(RequestError) as error:
            led_items(detail, "T", global_id)
        assert error.value.code == 501
        assert error.value.remark == (
            f"T-{global_id} does not exit in request process of current broker a"
        )


@pytest.mark.parametrize(
    ("current", "asked", "place", "code", "following", "delta"),
    [
        (OLD, 3, (FOUND, 8, 0, 20), FOUND, 8, 0),
        (MIDDLE, 3, (FOUND, 8, 0, 20), FOUND, 10_008, 10_000),
        (LEADER, 3, (FOUND, 8, 0, 20), FOUND, 20_008, 20_000),
        # Nothing more in the newest one: it waits there.
        (LEADER, 20, (NOT_FOUND, 20, 0, 20), NOT_FOUND, 20_020, 20_000),
        (LEADER, 30, (MOVED, 20, 0, 20), MOVED, 20_020, 20_000),
        (LEADER, 1, (MOVED, 5, 5, 20), RETRY, 20_005, 20_000),
        # At the end of an older one the next one begins.
        (OLD, 20, (NOT_FOUND, 20, 0, 20), RETRY, 10_000, 10_000),
        (MIDDLE, 20, (NOT_FOUND, 20, 0, 20), RETRY, 20_000, 20_000),
        (OLD, 30, (MOVED, 20, 0, 20), RETRY, 10_000, 10_000),
        # Messages that came late have filled more than the room that was left: the next one counts.
        (OLD, 9_990, (FOUND, 10_020, 0, 12_000), FOUND, 10_000, 0),
        (MIDDLE, 9_000, (RETRY, 10_700, 0, 12_000), RETRY, 20_000, 10_000),
        # What was deleted: the beginning of all, or of an item between.
        (OLD, 1, (MOVED, 5, 5, 20), MOVED, 5, 0),
        (MIDDLE, 1, (MOVED, 5, 5, 20), RETRY, 10_005, 10_000),
        # A filter that matched nothing yet.
        (OLD, 1, (RETRY, 15, 0, 20), RETRY, 15, 0),
    ],
)
def test_the_answer_to_a_pull(
    current: LogicQueueMappingItem,
    asked: int,
    place: tuple[int, int, int, int],
    code: int,
    following: int,
    delta: int,
) -> None:
    detail = TopicQueueMappingDetail(topic="T", bname="a", hosted_queues={0: ITEMS})
    pull = LogicPull(detail, ITEMS, current)
    shown, item = pull.translate(asked, PullPlace(*place))
    assert (shown.code, shown.next_offset, item.offset_delta) == (code, following, delta)
    assert shown.max_offset >= 20_000, "the newest item is known to begin there"
    assert pull.waits(asked, PullPlace(*place)) == (code == NOT_FOUND)


def test_a_queue_that_was_never_remapped_answers_as_java_does() -> None:
    """Captured from a 5.3.3 broker: offset 9 of a queue with one message is answered with 19."""
    detail = TopicQueueMappingDetail(topic="T", bname="a", hosted_queues={0: [OLD]})
    pull = LogicPull(detail, [OLD], OLD)
    assert pull.translate(9, PullPlace(MOVED, 1, 0, 1))[0] == PullPlace(NOT_FOUND, 1, 0, 1)
    assert pull.translate(0, PullPlace(FOUND, 1, 0, 1))[0] == PullPlace(FOUND, 1, 0, 1)


def test_the_end_of_an_item_and_a_next_one_that_is_not_decided() -> None:
    ended = replace(OLD, end_offset=10)
    detail = TopicQueueMappingDetail(topic="T", bname="a", hosted_queues={0: [ended, UNDECIDED]})
    pull = LogicPull(detail, [ended, UNDECIDED], ended)
    assert pull.translate(5, PullPlace(FOUND, 13, 0, 20))[0].next_offset == 10
    assert pull.waits(20, PullPlace(NOT_FOUND, 20, 0, 20))


def test_a_pull_does_not_read_beyond_where_the_next_item_begins() -> None:
    detail = TopicQueueMappingDetail(topic="T", bname="a", hosted_queues={0: ITEMS})
    assert [end_of(ITEMS, item) for item in ITEMS] == [10_000, 10_000, MAX_OFFSET]
    assert end_of([OLD, UNDECIDED], OLD) == MAX_OFFSET
    pull = LogicPull(detail, ITEMS, OLD)
    assert [pull.limited_count(asked, 32) for asked in (0, 9_968, 9_990)] == [32, 32, 10]
    assert LogicPull(detail, ITEMS, LEADER).limited_count(50_000, 32) == 32
    ended = [replace(OLD, end_offset=10), MIDDLE]
    assert LogicPull(detail, ended, ended[0]).limited_count(4, 32) == 6


@pytest.mark.parametrize(
    ("items", "remark"),
    [
        ([replace(OLD, queue_id=-1)], "The field is illegal, should not be negative"),
        ([replace(OLD, gen=-1)], "The field is illegal, should not be negative"),
        ([UNDECIDED, LEADER], "The non-latest item has negative logic offset"),
        ([LEADER, MIDDLE], "The gen does not increase monotonically"),
        ([replace(OLD, start_offset=5, end_offset=4)], "The endOffset is smaller"),
        ([OLD, replace(MIDDLE, logic_offset=0)], "The base logic offset does not increase"),
        ([replace(OLD, end_offset=10_000), MIDDLE], "The max logic offset does not increase"),
    ],
)
def test_items_that_contradict_each_other(items: list[LogicQueueMappingItem], remark: str) -> None:
    with pytest.raises(MappingError, match=remark):
        check_items(items)
    check_items(ITEMS)
    check_items([MIDDLE, UNDECIDED])


def detail_of(epoch: int, **queues: list[LogicQueueMappingItem]) -> TopicQueueMappingDetail:
    hosted = {int(name[1:]): items for name, items in queues.items()}
    return TopicQueueMappingDetail(topic="T", bname="a", epoch=epoch, hosted_queues=hosted)


def test_what_a_new_mapping_keeps() -> None:
    old = detail_of(5, q0=[OLD], q1=[MIDDLE, UNDECIDED])
    later = merged_hosted(old, detail_of(6, q1=[MIDDLE, LEADER]), force=False)
    assert later == {0: [OLD], 1: [MIDDLE, LEADER]}
    same = merged_hosted(old, detail_of(5, q0=[OLD], q1=[MIDDLE, LEADER]), force=False)
    assert same == later, "the place of the leader is decided, with the same epoch"
    without_earliest = merged_hosted(old, detail_of(6, q0=[OLD], q1=[LEADER]), force=False)
    assert without_earliest[1] == [LEADER]
    moved = replace(OLD, queue_id=9)
    assert merged_hosted(old, detail_of(1, q0=[moved]), force=True)[0] == [moved]


@pytest.mark.parametrize(
    ("new", "remark"),
    [
        (detail_of(4, q0=[OLD]), r"Can't accept data with small epoch 4 < 5"),
        (replace(detail_of(6, q0=[OLD]), scope="x"), "unmatched scope x != __global__"),
        (detail_of(5), "Cannot accept equal epoch with null data"),
        (detail_of(5, q0=[OLD, MIDDLE]), "The new leader is different but epoch equal"),
        (detail_of(6, q0=[replace(OLD, queue_id=9)]), "The item of gen 0 was changed"),
        (detail_of(6, q0=[replace(OLD, logic_offset=9)]), "The item of gen 0 was changed"),
        (detail_of(6, q0=[]), "The new item list is null or empty"),
    ],
)
def test_what_a_new_mapping_must_not_change(new: TopicQueueMappingDetail, remark: str) -> None:
    with pytest.raises(MappingError, match=remark):
        merged_hosted(detail_of(5, q0=[OLD]), new, force=False)

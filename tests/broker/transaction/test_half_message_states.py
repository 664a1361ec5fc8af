"""HalfMessageStates: ends, families of copies, and where the ops begin that are still needed."""

from __future__ import annotations

import logging
import tracemalloc

import pytest

from broker.transaction.half_message_states import HalfMessageStates


@pytest.fixture
def halves() -> HalfMessageStates:
    return HalfMessageStates()


@pytest.mark.parametrize("half", [0, 1, 7, 8, 65_535, 65_536, 1 << 40])
def test_an_end_is_remembered(halves: HalfMessageStates, half: int) -> None:
    assert not halves.is_ended(half)
    assert halves.begin_end(half)
    assert (halves.is_ending(half), halves.is_ended(half)) == (True, False)
    assert not halves.begin_end(half)
    assert halves.end(half) == (half,)
    assert (halves.is_ending(half), halves.is_ended(half)) == (False, True)
    assert not halves.begin_end(half)
    assert not any(
        halves.is_ended(other) for other in (half - 1, half + 1, half + 8, half + 65_536)
    )


def test_an_end_that_failed_may_come_again(halves: HalfMessageStates) -> None:
    halves.begin_end(3)
    halves.cancel_end(3)
    assert halves.begin_end(3)


def test_a_family_ends_together(halves: HalfMessageStates) -> None:
    halves.add_copy(1, 5)
    halves.add_copy(5, 9)
    assert halves.begin_end(5)
    assert [halves.is_ending(half) for half in (1, 5, 9, 2)] == [True, True, True, False]
    assert halves.end(5) == (5, 9)
    assert [half for half in range(12) if halves.is_ended(half)] == [1, 5, 9]
    assert halves.forget(9) == [9]


def test_the_newest_copy_needs_one_op_only(halves: HalfMessageStates) -> None:
    halves.add_copy(1, 5)
    assert halves.end(5) == (5,)


def test_copies_that_say_whose_they_are(halves: HalfMessageStates) -> None:
    """A start forgets families; the property of an immune half's copy tells of one."""
    halves.link(5, 1)
    halves.link(5, 1)
    halves.add_copy(5, 9)
    halves.link(9, 1)
    assert halves.forget(1) == [1, 5, 9]
    assert halves.end(1) == (1,)


def test_who_is_forgotten_has_no_copies(halves: HalfMessageStates) -> None:
    halves.add_copy(1, 5)
    assert halves.forget(5) == [1, 5]
    assert halves.end(1) == (1,)
    assert not halves.is_ended(5)


def test_an_end_survives_a_copy_that_came_in_between(halves: HalfMessageStates) -> None:
    halves.begin_end(1)
    halves.add_copy(1, 5)
    assert halves.is_ending(5)
    assert halves.end(1) == (1, 5)
    assert not halves.is_ending(1)


def test_no_end_is_forgotten_before_its_half_has_left_the_log(halves: HalfMessageStates) -> None:
    """With 257 runs of halves the oldest were: a commit that came again was stored twice."""
    ended = [chunk << 16 for chunk in range(1_000)]
    for half in ended:
        halves.end(half)
    assert all(map(halves.is_ended, ended))
    assert not any(halves.begin_end(half) for half in ended)
    halves.forget_before((500 << 16) + 1)
    assert [half for half in ended if halves.is_ended(half)] == ended[500:]


def test_runs_of_halves_that_have_all_ended_take_no_memory(halves: HalfMessageStates) -> None:
    """What a client can make the broker remember costs it 65,536 halves for each 8 KiB."""
    runs = 2
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for half in range(runs << 16):
        halves.mark_stored(half)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken < 8_192 + 4_096
    assert all(map(halves.is_ended, range(0, runs << 16, 4_099)))
    halves.mark_stored(5)
    assert halves.is_ended(5)
    assert not halves.is_ended(runs << 16)


def test_copies_about_which_nobody_is_asked_take_no_memory(halves: HalfMessageStates) -> None:
    """An immune half is stored again every round, for days if its sender says so."""
    halves.replace_copy(1, 2)
    for half in range(2, 5_000):
        halves.replace_copy(half, half + 1)
    assert not any(map(halves.is_ended, (1, 5_000)))
    assert all(map(halves.is_ended, range(2, 5_000)))
    assert not halves.begin_end(77)
    halves.begin_end(1)
    assert halves.is_ending(5_000)
    halves.cancel_end(1)
    assert halves.end(1) == (1, 5_000)
    halves.replace_copy(6_000, 6_001)
    halves.replace_copy(6_001, 6_002)
    assert halves.forget(6_002) == [6_000, 6_002]


def test_a_copy_whose_end_waits_is_not_replaced(halves: HalfMessageStates) -> None:
    halves.replace_copy(1, 2)
    assert halves.begin_end(2)
    halves.replace_copy(2, 3)
    assert halves.end(2) == (2, 3)
    assert not any(map(halves.is_ending, (1, 2, 3)))
    assert all(map(halves.is_ended, (1, 2, 3)))


def test_what_is_single(halves: HalfMessageStates) -> None:
    """Only then may a commit be put without asking anything else."""
    assert halves.is_single(3)
    halves.begin_end(3)
    assert not halves.is_single(3)
    halves.cancel_end(3)
    assert halves.is_single(3)
    halves.add_copy(3, 5)
    assert not halves.is_single(3)
    assert not halves.is_single(5)
    halves.end(3)
    assert not halves.is_single(3)
    assert not halves.is_single(5)
    halves.mark_stored(9)
    assert not halves.is_single(9)


def test_copies_are_known(halves: HalfMessageStates) -> None:
    halves.add_copy(1, 5)
    halves.add_copy(2, 6)
    assert halves.are_copies(5, 1)
    assert not halves.are_copies(5, 2)
    assert not halves.are_copies(3, 3)
    halves.end(1)
    assert not halves.are_copies(5, 1)


def test_the_newest_copy_gets_the_op_whatever_the_order(halves: HalfMessageStates) -> None:
    """A start may hear of an older copy after a newer one was made."""
    halves.add_copy(1, 9)
    halves.link(5, 1)
    assert halves.end(1) == (1, 9)


def test_ops_are_passed_in_their_order(halves: HalfMessageStates) -> None:
    halves.start_ops(10)
    assert halves.advance_ops(100) == 10
    for halves_of_op in ([4], [2, 6], []):
        halves.add_stored_op(halves_of_op)
    halves.add_op(13, 5)
    assert [halves.advance_ops(half) for half in (4, 5, 6, 7)] == [10, 11, 11, 14]
    halves.add_op(14, 7)
    assert halves.advance_ops(7) == 14
    assert halves.advance_ops(8) == 15


def test_an_op_queue_that_was_made_anew(
    halves: HalfMessageStates, caplog: pytest.LogCaptureFixture
) -> None:
    halves.start_ops(10)
    halves.add_op(10, 4)
    with caplog.at_level(logging.ERROR):
        halves.add_op(0, 5)
    assert caplog.messages == ["op queue: offset 0, expected 11: the queue was recreated"]
    assert halves.advance_ops(5) == 0
    halves.add_op(1, 6)
    assert halves.advance_ops(7) == 2

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from store.offset_waiters import OffsetWaiters


def test_released_by_offset_expired_by_deadline_each_once() -> None:
    waiters: OffsetWaiters[str] = OffsetWaiters()
    waiters.add(100, 50, "a")
    waiters.add(90, 70, "b")
    waiters.add(200, 40, "c")
    waiters.add(90, 70, "d")
    assert len(waiters) == 4
    assert (waiters.min_required_offset(), waiters.next_deadline_ms()) == (90, 40)
    assert waiters.release(89) == []
    assert waiters.release(100) == ["b", "d", "a"]
    assert waiters.next_deadline_ms() == 40
    assert waiters.expire(39) == []
    assert waiters.expire(40) == ["c"]
    assert waiters.release(1000) == []
    assert (len(waiters), waiters.min_required_offset(), waiters.next_deadline_ms()) == (
        0,
        None,
        None,
    )


def test_cancelling_takes_all() -> None:
    waiters: OffsetWaiters[int] = OffsetWaiters()
    for token in range(3):
        waiters.add(10 - token, 5, token)
    assert waiters.cancel_all() == [0, 1, 2]
    assert waiters.release(100) == []
    assert waiters.expire(100) == []


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20), st.integers(0, 20)),
        st.tuples(st.just("release"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("expire"), st.integers(0, 20), st.just(0)),
    )
)


@given(ACTIONS)
def test_against_a_plain_list(actions: list[tuple[str, int, int]]) -> None:
    waiters: OffsetWaiters[int] = OffsetWaiters()
    model: list[tuple[int, int, int]] = []
    for token, (action, first, second) in enumerate(actions):
        if action == "add":
            waiters.add(first, second, token)
            model.append((first, second, token))
            continue
        which = 0 if action == "release" else 1
        expected = sorted(entry for entry in model if entry[which] <= first)
        model = [entry for entry in model if entry[which] > first]
        found = waiters.release(first) if action == "release" else waiters.expire(first)
        assert sorted(found) == sorted(entry[2] for entry in expected)
        assert len(waiters) == len(model)
        assert waiters.min_required_offset() == min((e[0] for e in model), default=None)
        assert waiters.next_deadline_ms() == min((e[1] for e in model), default=None)

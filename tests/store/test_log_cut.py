"""A follower's log is cut while its store is open. The truth is the list of records that the test
has written: those of the first master up to the cut, those of the second one behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ha.control_slots import MemberRole
from store.control_slots import (
    ALLOCATED_END,
    APPEND_END,
    CONFIRM_OFFSET,
    DISPATCHED_OFFSET,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
)
from store.errors import StoreError
from store.log_cut import TailCut
from store.resync_request import REQUEST_NAME, ResyncAction, ResyncRequest, write_request
from tests.store.test_controlled_store import ControlledLife, again, kill
from tests.store.test_slave_message_store import SIZE, MasterBytes, check
from tests.support.deadline import wait_until

CONFIRMED, KEPT, ALL = 4, 6, 10


@pytest.fixture
def life(tmp_path: Path) -> Iterator[ControlledLife]:
    life = ControlledLife(tmp_path / "store")
    life.start()
    yield life
    if not life.is_stopped:
        life.stop()


def _followed(life: ControlledLife, size: int = 100) -> MasterBytes:
    """Ten records, of which consumers see four."""
    life.begin(0)
    life.order(MemberRole.FOLLOW)
    first = MasterBytes().add(ALL, size, store_timestamp=9_000)
    life.receive(bytes(first.data))
    life.confirm(first.ends[CONFIRMED - 1])
    life.wait_dispatched(first.ends[CONFIRMED - 1])
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == first.end)
    return first


def _other(first: MasterBytes, kept: int = KEPT) -> MasterBytes:
    """The second master's log: the same up to the cut, and then older records, as its clock is
    behind."""
    second = MasterBytes().add(kept, 100, store_timestamp=9_000)
    assert bytes(first.data).startswith(bytes(second.data))
    return second.add(3, 77, store_timestamp=5_000)


def _cut(life: ControlledLife, offset: int, forget: Callable[[int], None] | None = None) -> bool:
    """As process `ha` does it: the link touches the log no more."""
    request = ResyncRequest(action=ResyncAction.TRUNCATE, offset=offset, reason="a test")
    write_request(life.config.root, request)
    forget = forget or life.store.flushed_end.end_at
    done = TailCut(life.config, life.page, forget, life.log.discard).cut(offset)
    life.log.open()
    return done


def _log_of(life: ControlledLife) -> bytes:
    data = b"".join(path.read_bytes() for path in sorted(life.config.commit_log_path.glob("0*")))
    return data.rstrip(b"\0")


@pytest.mark.parametrize("how", ["stop", "kill", "on"])
def test_the_tail_gives_way_to_another_master_s_records(life: ControlledLife, how: str) -> None:
    first = _followed(life)
    cut_to = first.ends[KEPT - 1]
    assert _cut(life, cut_to)
    counters = life.counters
    assert counters[MAX_PHY_OFFSET] == counters[APPEND_END] == counters[FLUSHED_OFFSET] == cut_to
    assert _log_of(life) == bytes(first.data[:cut_to])
    (kept,) = life.config.root.glob(f"backup-*/commitlog/*.from-{cut_to}")
    assert kept.read_bytes() == bytes(first.data[cut_to:])
    assert not (life.config.root / REQUEST_NAME).exists()
    second = _other(first)
    life.receive(bytes(second.data[cut_to:]))
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == second.end)
    if how != "on":
        if how == "stop":
            life.stop()
        else:
            kill(life)
        life = again(life)
        assert life.counters[MAX_PHY_OFFSET] == second.end
        life.order(MemberRole.FOLLOW)
    life.confirm(second.end)
    life.wait_dispatched(second.end)
    assert life.seen(second) == KEPT + 3
    life.stop()
    assert _log_of(life) == bytes(second.data)
    check(life)


def test_what_comes_in_place_of_the_tail_is_flushed_again(tmp_path: Path) -> None:
    """Nothing of it counts as flushed before it is: with nobody to flush, FLUSHED_OFFSET stays."""
    quiet = {"flush_interval_commit_log": 3_600_000}
    life = ControlledLife(tmp_path / "store", **quiet)
    life.start()
    try:
        life.begin(0)
        life.order(MemberRole.FOLLOW)
        first = MasterBytes().add(ALL, store_timestamp=9_000)
        life.receive(bytes(first.data))
        life.counters[FLUSHED_OFFSET] = first.end
        cut_to = first.ends[KEPT - 1]
        life.store._flusher.flushed_offset = first.end
        assert _cut(life, cut_to)
        life.receive(bytes(_other(first).data[cut_to:]))
        assert life.counters[FLUSHED_OFFSET] == cut_to
    finally:
        life.stop()


def test_the_check_point_says_no_more_than_is_there(life: ControlledLife) -> None:
    """Its time of the log is no later than that of the last record consumers see: what comes in
    place of the rest may be older than that was."""
    first = _followed(life)
    life.store._progress.checkpoint.physic_msg_timestamp = 20_000
    assert _cut(life, first.ends[KEPT - 1])
    raw = life.config.checkpoint_path.read_bytes()
    assert int.from_bytes(raw[:8], "big") <= 9_000


def _in_last_file(first: MasterBytes) -> int:
    return next(end for end in first.ends if end > SIZE)


@pytest.mark.parametrize(
    "why", ["shown", "may be shown", "within a record", "another file", "at a file's start", "all"]
)
def test_what_an_open_store_does_not_allow(life: ControlledLife, why: str) -> None:
    """Nothing has changed, and the request stays for the next start."""
    first = _followed(life, 3_000)
    offset = first.ends[KEPT]
    match why:
        case "shown":
            life.confirm(first.ends[KEPT + 1])
            life.wait_dispatched(first.ends[KEPT + 1])
            life.counters[CONFIRM_OFFSET] = 0
        case "may be shown":
            life.counters[CONFIRM_OFFSET] = offset + 1
        case "within a record":
            offset += 1
        case "another file":
            offset = first.ends[CONFIRMED]
            assert offset < SIZE < first.end
        case "at a file's start":
            offset = SIZE
        case "all":
            offset = 0
    assert why in ("another file", "at a file's start", "all") or offset > SIZE
    assert not _cut(life, offset)
    assert life.counters[MAX_PHY_OFFSET] == first.end
    assert life.counters[FLUSHED_OFFSET] == first.end
    assert (life.config.root / REQUEST_NAME).exists()
    (life.config.root / REQUEST_NAME).unlink()


def test_a_cut_that_stops_in_the_middle_is_the_next_start_s(life: ControlledLife) -> None:
    """Process `store` does not answer, and the whole broker is killed."""

    def silent(_offset: int) -> None:
        raise StoreError("no answer")

    first = _followed(life)
    cut_to = first.ends[KEPT - 1]
    assert not _cut(life, cut_to, silent)
    kill(life)
    new = again(life)
    assert new.counters[MAX_PHY_OFFSET] == cut_to
    assert new.counters[FLUSHED_OFFSET] == cut_to
    assert new.counters[ALLOCATED_END] >= cut_to
    assert new.counters[DISPATCHED_OFFSET] <= cut_to
    new.stop()
    assert _log_of(new) == bytes(first.data[:cut_to])
    check(new)


def test_a_leader_s_log_is_not_cut(life: ControlledLife) -> None:
    first = _followed(life)
    life.order(MemberRole.LEAD)
    assert life.counters[MAX_PHY_OFFSET] == first.end
    with pytest.raises(StoreError):
        life.store.flushed_end.end_at(first.end)

"""Epoch lists: where two logs part is judged by the logs themselves, byte for byte."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ha.epoch_file import EpochFileError, decode_epochs, encode_epochs, read_epochs
from ha.epochs import (
    CUT_STEPS,
    MAX_ENTRIES,
    EpochList,
    EpochOrderError,
    StaleMasterError,
    UnknownEpochsError,
    adopted,
    clamped_consumer_offsets,
    epoch_list,
    find_consistent_point,
    frame_label,
    greeted,
    greeting_of,
    master_confirm_offset,
    plan_truncation,
    recovered_bounds,
    resumed_truncation,
    slave_confirm_offset,
)
from tests.ha.java_slave import JavaSlave
from tests.support.every_row import every_row

GOLDEN = Path(__file__).parents[1] / "golden" / "controller-5.3.3"
FILES = sorted(GOLDEN.glob("*epochFileCheckpoint*"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_of_java_come_back_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    assert encode_epochs(decode_epochs(data)) == data


def test_there_are_files_of_java() -> None:
    assert decode_epochs((GOLDEN / "cb0-epochFileCheckpoint").read_bytes()) == epoch_list(
        [(1, 0), (2, 693), (3, 1386)]
    )
    assert len(FILES) == 5


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"1\n", b"x\n0\n", b"2\n0\n1-0\n", b"1\n1\n1-0\n", b"1\n0\n-1-0\n"),
        *(b"2\n0\n2-0\n1-5\n", b"2\n0\n1-5\n2-5\n", b"1\n0\n1-\xd9\xa1\n", b"1\n0\n1-0"[:-1]),
        *(b"1\n0\n1-69", b"2\n0\n1-0\n2-69"),
        *(b"1\n0\n4294967296-0\n", b"1\n0\n1-9223372036854775808\n", b"0\n0\n" + b"\n" * 70_000),
        *(
            b"0\n" + b" " * 70_000 + b"0\n",
            b"1001\n0\n" + b"".join(b"%d-%d\n" % (n, n) for n in range(1_001)),
        ),
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(EpochFileError):
        decode_epochs(data)


def test_a_checksum_of_zero_is_not_checked_and_the_backup_stands_in() -> None:
    whole = b"1\n0\n1-7\n"
    assert read_epochs(whole, None) == epoch_list([(1, 7)])
    assert read_epochs(b"torn", whole) == epoch_list([(1, 7)])
    assert read_epochs(None, b"torn") is None


def test_an_empty_list_is_written_and_wins_over_the_backup() -> None:
    data = encode_epochs(EpochList())
    assert data == b"0\n0\n"
    assert read_epochs(data, b"1\n0\n1-7\n") == EpochList()


def test_an_epoch_without_a_message_is_replaced() -> None:
    """P2: Java refuses the second entry, and lists of two replicas share nothing in the end."""
    epochs = epoch_list([(1, 0), (2, 100)])
    assert epochs.begun(3, 100) == epoch_list([(1, 0), (3, 100)])
    assert epochs.begun(3, 60) == epoch_list([(1, 0), (3, 60)])
    with pytest.raises(EpochOrderError, match="epoch 2 cannot begin"):
        epochs.begun(2, 200)


@pytest.mark.parametrize("crc", [None, 0])
def test_a_torn_file_is_no_list_at_any_byte(crc: int | None) -> None:
    """What is left of it is refused, or says all that it said."""
    whole = epoch_list([(1, 0), (2, 693), (30, 1386), (2**31 - 1, 2**63 - 1)])
    data = encode_epochs(whole)
    if crc is not None:
        data = b"\n".join([b"4", b"0", *data.split(b"\n")[2:]])
    for size in range(len(data)):
        with pytest.raises(EpochFileError):
            decode_epochs(data[:size])
        assert read_epochs(data[:size], data) == whole


def test_a_list_is_never_longer_than_what_can_be_read_again() -> None:
    """With 1,001 elections in a log its file was refused by the next start, and every slave of that
    broker started over."""
    master = slave = EpochList()
    for epoch in range(1, 1_101):
        master = master.begun(epoch, 10 * (epoch - 1))
        if epoch == 100:
            slave = master
    slave = adopted(slave, master)
    assert len(master.entries) == len(slave.entries) == 1_000
    assert master.last_epoch == slave.last_epoch == 1_100
    assert decode_epochs(encode_epochs(master)) == decode_epochs(encode_epochs(slave)) == master


def test_a_log_without_a_list_does_not_lead() -> None:
    """Its list began at its end: no slave had an entry of it, and each threw its own log away."""
    with pytest.raises(UnknownEpochsError, match="400 bytes"):
        EpochList().begun(5, 400)
    assert EpochList().begun(5, 0) == epoch_list([(5, 0)])


def test_a_masters_older_word_cuts_nothing_of_its_own_epoch() -> None:
    """An answer to a handshake that came twice took back what was acknowledged in between."""
    epochs = epoch_list([(1, 0), (2, 50)])
    with pytest.raises(StaleMasterError, match="100 bytes of epoch 2, its master 60"):
        plan_truncation(epochs, 100, epochs, 60, master_epoch=2)
    assert plan_truncation(epochs, 60, epochs, 60, master_epoch=2).steps == ()
    assert plan_truncation(epochs, 100, epochs, 60, master_epoch=3).cut_to == 60
    with pytest.raises(StaleMasterError, match="ends at -5"):
        plan_truncation(epochs, 100, epochs, -5, master_epoch=3)


def test_entries_that_fall_are_named() -> None:
    with pytest.raises(EpochOrderError, match="epoch 2 from 5 cannot follow epoch 3 from 4"):
        epoch_list([(3, 4), (2, 5)])


def test_what_a_log_has_reached() -> None:
    epochs = epoch_list([(1, 0), (2, 100), (3, 200)])
    assert [epochs.epoch_at(end) for end in (0, 99, 100, 150, 200)] == [1, 1, 2, 2, 3]
    assert EpochList().epoch_at(5) == -1


def test_a_frame_has_the_label_of_its_first_byte() -> None:
    """P24."""
    epochs = epoch_list([(1, 0), (2, 693)])
    assert frame_label(epochs, 0) == (1, 0)
    assert frame_label(epochs, 693) == (2, 693)
    assert frame_label(epoch_list([(2, 693), (3, 900)]), 0) == (2, 693), "a list was shortened"
    with pytest.raises(EpochOrderError):
        frame_label(EpochList(), 0)


class Replica:
    """A log whose bytes are (epoch, number): truth for every comparison of lists."""

    def __init__(self) -> None:
        self.log: list[tuple[int, int]] = []
        self.epochs = EpochList()

    def lead(self, epoch: int, records: int) -> None:
        self.epochs = self.epochs.begun(epoch, len(self.log))
        self.log += [(epoch, number) for number in range(records)]

    def follow(self, master: Replica, master_epoch: int, up_to: int) -> None:
        plan = plan_truncation(
            self.epochs, len(self.log), master.epochs, len(master.log), master_epoch=master_epoch
        )
        assert self.log[: plan.cut_to] == master.log[: plan.cut_to], "what stays is the master's"
        del self.log[plan.cut_to :]
        self.epochs = adopted(plan.epochs, master.epochs)
        self.log += master.log[len(self.log) : max(up_to, len(self.log))]


def _equal_up_to(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    for at, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return at
    return min(len(one), len(other))


@every_row("seed", range(60))
def test_the_consistent_point_is_where_the_logs_part(seed: int) -> None:
    """Random masters and followers, some of them far behind: nothing that differs stays, and
    nothing is cut that is the same."""
    rng = random.Random(seed)
    replicas = [Replica() for _ in range(4)]
    for epoch in range(1, 15):
        master = rng.choice(replicas)
        master.lead(epoch, rng.choice([0, 0, 1, 5]))
        for slave in rng.sample(replicas, 3):
            if slave is not master:
                before = list(slave.log)
                slave.follow(master, epoch, rng.randint(0, len(master.log)))
                same = _equal_up_to(before, master.log)
                assert slave.log[:same] == before[:same], "nothing equal was cut"
                assert slave.log == master.log[: len(slave.log)]


@every_row("seed", range(60))
def test_a_java_slave_follows_masters_of_ours(seed: int) -> None:
    """P2: it joins before the first message, masters are elected meanwhile, connections end early.
    It always finds where the logs part, cuts nothing that is the same, and knows the epoch of each
    record."""
    rng = random.Random(seed)
    ours, javas = [Replica() for _ in range(3)], [JavaSlave() for _ in range(3)]
    for epoch in range(1, 20):
        master = rng.choice(ours)
        master.lead(epoch, rng.choice([0, 0, 1, 5]) if epoch > 4 else 0)
        for slave in ours:
            if slave is not master:
                slave.follow(master, epoch, rng.randint(0, len(master.log)))
        for java in rng.sample(javas, 2):
            java.change_role()
            before = list(java.log)
            for _ in range(rng.randint(1, 3)):
                if not java.log:
                    java.change_role()  # An epoch that it drops at 0 it never takes again.
                has = max(
                    master.epochs.entries[-1].start_offset, _equal_up_to(java.log, master.log)
                )
                end = rng.randint(has, len(master.log))
                java.follow(master.epochs, master.log, end, rng.randint(0, 8))
                assert java.log == master.log[: len(java.log)]
                assert [*java.labels()] == [each for each, _ in java.log]
            same = _equal_up_to(before, master.log)
            assert java.log[:same] == before[:same], "nothing equal was cut"


def test_what_slaves_are_told_of_empty_epochs() -> None:
    epochs = epoch_list([(4, 0), (6, 100)])
    told = greeting_of(epochs)
    assert told.entries == ((1, 0), (2, 0), (3, 0), (4, 0), (6, 100))
    assert greeted(told.entries) == greeted(epochs.entries) == epochs
    for same in (EpochList(), epoch_list([(1, 0)]), epoch_list([(0, 0)]), epoch_list([(4, 100)])):
        assert greeting_of(same) == same
    long = epoch_list((10_000 + n, 10 * n) for n in range(MAX_ENTRIES - 2))
    told = greeting_of(long)
    assert told.entries == ((9_998, 0), (9_999, 0), *long.entries)
    assert greeted(told.entries) == long


@pytest.mark.parametrize(
    "lies",
    [
        ((2, 0), (1, 0)),
        ((1, 0), (1, 0)),
        ((-1, 0), (1, 0)),
        ((1, 5), (2, 5)),
        ((1, 0), (2, 5), (3, 5)),
        ((1, 0), (2, 5), (3, 0)),
    ],
)
def test_no_other_entries_may_begin_at_the_same_offset(lies: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(EpochOrderError):
        greeted(lies)


def test_lists_without_a_common_entry_start_over_loudly() -> None:
    plan = plan_truncation(epoch_list([(1, 0)]), 400, epoch_list([(5, 1000)]), 2000, master_epoch=5)
    assert (plan.cut_to, plan.starts_over, plan.steps) == (0, True, CUT_STEPS)
    plan = plan_truncation(
        epoch_list([(2, 100)]), 400, epoch_list([(3, 100)]), 2000, master_epoch=3
    )
    assert (plan.cut_to, plan.starts_over) == (100, True)


def test_an_older_master_cuts_nothing() -> None:
    own, master = epoch_list([(1, 0), (2, 100)]), epoch_list([(1, 0)])
    with pytest.raises(StaleMasterError, match="epoch 2, the master only 1"):
        plan_truncation(own, 150, master, 300, master_epoch=1)
    plan = plan_truncation(own, 150, master, 300, master_epoch=3)
    assert plan.cut_to == 100, "a Java master's list may lack its own epoch"


def test_a_log_without_a_list_is_not_taken_for_an_empty_one() -> None:
    """P25: Java compares as if nothing were there, and goes on behind the old bytes."""
    with pytest.raises(UnknownEpochsError, match="400 bytes"):
        plan_truncation(EpochList(), 400, epoch_list([(1, 0)]), 500, master_epoch=1)
    assert plan_truncation(EpochList(), 0, epoch_list([(1, 0)]), 500, master_epoch=1).steps == ()


def test_an_unfinished_cut_is_done_again() -> None:
    plan = resumed_truncation(120, epoch_list([(1, 0), (2, 100), (3, 120)]))
    assert (plan.epochs, plan.steps) == (epoch_list([(1, 0), (2, 100)]), CUT_STEPS)


def test_the_list_of_the_handshake_is_kept_behind_what_only_the_slave_still_has() -> None:
    own, master = epoch_list([(1, 0), (2, 50)]), epoch_list([(2, 50), (4, 90)])
    assert adopted(own, master) == epoch_list([(1, 0), (2, 50), (4, 90)])
    assert adopted(own, EpochList()) == own
    assert find_consistent_point(own, 60, EpochList(), 0) is None


def test_confirm_offset_of_a_master() -> None:
    assert master_confirm_offset(100, {}, set(), 20) == 100
    assert master_confirm_offset(100, {2: 70}, {2, 3}, 20) == 20, "3 has not reported"
    assert master_confirm_offset(100, {2: 70, 3: 40}, {2, 3}, 20) == 40
    assert master_confirm_offset(100, {2: 10}, {2}, 20) == 20, "it was read up to there"


def test_confirm_offset_of_a_slave_and_of_a_start() -> None:
    assert slave_confirm_offset(80, 60, 10) == 60
    assert slave_confirm_offset(5, 60, 10) == 10
    assert slave_confirm_offset(5, 8, 10) == 8
    assert recovered_bounds(900, 100, 700) == (700, 700)
    assert recovered_bounds(300, 100, 700) == (300, 700), "P3: queue offsets up to the end"
    assert recovered_bounds(0, 100, 700) == (100, 700)


def test_consumers_offsets_after_a_cut() -> None:
    """P8."""
    offsets = {("T", 0): 90, ("T", 1): 5, ("U", 0): 7}
    assert clamped_consumer_offsets(offsets, {("T", 0): 60, ("T", 1): 10}) == {
        ("T", 0): 60,
        ("T", 1): 5,
        ("U", 0): 7,
    }

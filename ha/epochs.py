"""The epochs of a log: which master wrote what, where logs part, what is cut and what confirmed.

Pure: no socket, clock or file; any thread. One epoch is the time of one elected master. A log's
list says at which offset each epoch begins; an epoch ends where the next begins, the last one at
the log's end. Two logs that have an entry (epoch, start) in common are equal up to the smaller of
both ends of that epoch, since only one broker ever writes in an epoch. Offsets are bytes of the
commit log. Differences to RocketMQ 5.3.3, each for a way in which it loses messages or hangs:

- the list comes whole from the master's handshake, never from the labels of frames (`adopted`);
- an epoch without a message is replaced by the next one, instead of the next one being refused
  (slaves of RocketMQ, which keep it, are told of it: `greeting_of`);
- entries may lie beyond the log's end (the bytes come later); `epoch_at` is what it has reached;
- a log without a list is not taken for an empty one, and nothing is cut on the word of a master
  whose epoch is older than the log's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

MAX_ENTRIES: Final = 1_000
"""Entries that a handshake of RocketMQ can carry."""
NO_EPOCH: Final = -1
"""What a log without epochs reports as its epoch (Java: 904's field `epoch`)."""
_FIRST_EPOCH: Final = 1
"""Of a controller."""
_MAX_EPOCH: Final = 2**31 - 1
_MAX_OFFSET: Final = 2**63 - 1


class EpochOrderError(ValueError):
    """An epoch or an offset that falls, or is out of range; the message names it."""


class StaleMasterError(ValueError):
    """A master of an older epoch than the log's own last one, or than its own list, one whose list
    is none yet, or an old word of this one: it cuts nothing."""


class UnknownEpochsError(ValueError):
    """A log that has bytes but no list of epochs: nobody knows whose bytes these are."""


class EpochEntry(NamedTuple):
    """`epoch` (1 …) begins at `start_offset` (bytes of the log)."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class EpochList:
    """Entries with rising epochs and rising starts. Immutable."""

    entries: tuple[EpochEntry, ...] = ()

    @property
    def last_epoch(self) -> int:
        """The newest epoch listed; NO_EPOCH without any."""
        return self.entries[-1].epoch if self.entries else NO_EPOCH

    def epoch_at(self, log_end: int) -> int:
        """The newest epoch that a log up to `log_end` has reached; NO_EPOCH: none."""
        for entry in reversed(self.entries):
            if entry.start_offset <= log_end:
                return entry.epoch
        return NO_EPOCH

    def find(self, offset: int) -> EpochEntry | None:
        """The entry of the epoch that the byte at `offset` is of."""
        for entry in reversed(self.entries):
            if entry.start_offset <= offset:
                return entry
        return None

    def end_of(self, epoch: int, log_end: int) -> int:
        """Where `epoch`, which is in the list, ends in a log up to `log_end`."""
        for entry in self.entries:
            if entry.epoch > epoch:
                return min(entry.start_offset, log_end)
        return log_end

    def appended(self, epoch: int, start_offset: int) -> EpochList:
        """With one more entry; one that begins at the same offset is replaced, as it has no bytes.

        Raises EpochOrderError for an epoch that is not newer, or a start before the last one.
        """
        kept = self.entries
        if kept and kept[-1].start_offset == start_offset and epoch > kept[-1].epoch:
            kept = kept[:-1]
        return epoch_list((*kept, EpochEntry(epoch, start_offset)))

    def begun(self, epoch: int, log_end: int) -> EpochList:
        """The list of a log up to `log_end` whose broker becomes master of `epoch`.

        Raises EpochOrderError if the log knows that epoch or a newer one already, and
        UnknownEpochsError for a log without list: its slaves would share no entry with it, and
        start over.
        """
        if epoch <= self.last_epoch:
            raise EpochOrderError(f"epoch {epoch} cannot begin after epoch {self.last_epoch}")
        if log_end > 0 and not self.entries:
            raise UnknownEpochsError(f"a log of {log_end} bytes without a list of epochs")
        return self.cut(log_end).appended(epoch, log_end).shortened()

    def shortened(self) -> EpochList:
        """The newest MAX_ENTRIES: a longer list cannot be read again, nor sent."""
        return EpochList(self.entries[-MAX_ENTRIES:])

    def cut(self, offset: int) -> EpochList:
        """Without what begins at `offset` or behind (Java: truncateSuffixByOffset)."""
        return EpochList(tuple(entry for entry in self.entries if entry.start_offset < offset))


def epoch_list(entries: Iterable[tuple[int, int]]) -> EpochList:
    """The list of these (epoch, start offset). Raises EpochOrderError, which names the entry."""
    found = tuple(EpochEntry(*entry) for entry in entries)
    last = EpochEntry(NO_EPOCH, -1)
    for entry in found:
        in_range = 0 <= entry.epoch <= _MAX_EPOCH and 0 <= entry.start_offset <= _MAX_OFFSET
        if not in_range or entry.epoch <= last.epoch or entry.start_offset <= last.start_offset:
            raise EpochOrderError(
                f"epoch {entry.epoch} from {entry.start_offset} cannot follow "
                f"epoch {last.epoch} from {last.start_offset}"
            )
        last = entry
    return EpochList(found)


def greeting_of(epochs: EpochList) -> EpochList:
    """What a master greets its slaves with: a list that begins at 0, behind the epochs before it,
    as many as fit in. None of them has a byte in this log.

    Java keeps an epoch without a message, in which it had joined; ours replaces it. A slave that
    has nothing else would find no common entry, and connect again for ever (P2). So it finds that
    both logs are equal up to 0. Of what was before a list that begins later nothing is known.
    """
    if not epochs.entries or epochs.entries[0].start_offset != 0:
        return epochs
    first, room = epochs.entries[0].epoch, MAX_ENTRIES - len(epochs.entries)
    before = range(max(_FIRST_EPOCH, first - room), first)
    return EpochList((*(EpochEntry(epoch, 0) for epoch in before), *epochs.entries))


def greeted(entries: Iterable[tuple[int, int]]) -> EpochList:
    """The list of a master who greets with these: without what `greeting_of` has added. Raises
    EpochOrderError, which names the entry."""
    found = [EpochEntry(*entry) for entry in entries]
    added = 0
    for entry, after in pairwise(found):
        if entry.start_offset or after.start_offset or not 0 <= entry.epoch < after.epoch:
            break
        added += 1
    return epoch_list(found[added:])


def find_consistent_point(
    own: EpochList, own_end: int, master: EpochList, master_end: int
) -> int | None:
    """Up to where both logs are equal for certain (bytes): in the newest epoch that both have with
    the same start, the smaller of its ends. None: no entry in common."""
    others = {entry.epoch: entry.start_offset for entry in master.entries}
    for epoch, start in reversed(own.entries):
        if others.get(epoch) == start:
            return min(own.end_of(epoch, own_end), master.end_of(epoch, master_end))
    return None


class CutStep(Enum):
    """The steps of a cut, in the order of `CUT_STEPS`; each is durable before the next begins."""

    WRITE_MARKER = "a file that says: this log is being cut to X"
    WRITE_EPOCHS = "the shorter list of epochs, by temporary file, fsync and rename"
    ZERO_TAIL = "zeroes behind the cut in the file that stays, later files removed, fsync"
    CUT_QUEUES = "queue files, timers, committed consumer offsets: nothing points behind the cut"
    REMOVE_MARKER = "the file of the first step goes; only now may bytes be appended"


CUT_STEPS: Final = tuple(CutStep)
"""Zeroes before the first new byte: a recovery walks on through whatever lies behind the end and
has a good checksum, so that stale records would come back behind new ones."""


@dataclass(frozen=True, slots=True)
class TruncationPlan:
    """What a slave does to its log before it takes its master's bytes."""

    cut_to: int
    """Bytes of the log that stay."""
    epochs: EpochList
    """What CutStep.WRITE_EPOCHS writes."""
    steps: tuple[CutStep, ...]
    """CUT_STEPS, or nothing if nothing lies behind the cut."""
    starts_over: bool = False
    """The lists have no entry in common: an operator is told, with both lists."""


def plan_truncation(
    own: EpochList, own_end: int, master: EpochList, master_end: int, *, master_epoch: int
) -> TruncationPlan:
    """What to cut off a log up to `own_end` so that it is the beginning of its master's.

    master_epoch: the epoch in which the controller named that master; a Java master's list may lack
    it. Without an entry in common the log starts over, at the offset where both lists begin if that
    is the same one. What was got from this master in this epoch is not cut, as its log only grows
    in it: an answer that knows less has been overtaken. Nor is a list newer than its master taken
    over: no election would be new enough for this log; nor an empty one, as of a Java broker that
    is asked before it leads: the log would start over, and could not be opened again. Raises
    StaleMasterError, and UnknownEpochsError for a log without list.
    """
    if not master.entries:
        raise StaleMasterError(
            f"the master of epoch {master_epoch} has no list of epochs: it has not begun to lead, "
            "and nothing is taken from it"
        )
    if master.entries[-1].start_offset > master_end:
        raise StaleMasterError(
            f"the master's log ends at {master_end}, and its list of epochs goes up to "
            f"{master.entries[-1].start_offset}: nothing is taken from it"
        )
    if master.last_epoch > master_epoch:
        raise StaleMasterError(
            f"the master of epoch {master_epoch} has a list of epochs up to {master.last_epoch}: "
            "nothing is taken from it"
        )
    if master_epoch < own.last_epoch:
        raise StaleMasterError(
            f"the log has epoch {own.last_epoch}, the master only {master_epoch}: nothing is cut"
        )
    if not own.entries:
        if own_end > 0:
            raise UnknownEpochsError(f"a log of {own_end} bytes without a list of epochs")
        return TruncationPlan(0, own, ())
    point = find_consistent_point(own, own_end, master, master_end)
    if point is not None and point < own_end and own.last_epoch == master_epoch:
        begun_at = own.entries[-1].start_offset
        if own.entries[-1] in master.entries and begun_at < own_end:
            raise StaleMasterError(
                f"the log has {own_end} bytes of epoch {master_epoch}, its master {master_end}"
            )
    starts_over = point is None
    if point is None:
        point = _common_beginning(own, master)
    steps = CUT_STEPS if point < own_end else ()
    return TruncationPlan(point, own.cut(point), steps, starts_over and own_end > 0)


def _common_beginning(own: EpochList, master: EpochList) -> int:
    first = own.entries[0].start_offset
    return first if master.entries and master.entries[0].start_offset == first else 0


def resumed_truncation(marker_offset: int, own: EpochList) -> TruncationPlan:
    """The plan of a start that finds the marker of an unfinished cut: all of it again."""
    return TruncationPlan(marker_offset, own.cut(marker_offset), CUT_STEPS)


def adopted(own: EpochList, master: EpochList) -> EpochList:
    """The list of a slave whose log is the beginning of its master's, written before the first
    frame: the master's, behind what only this log still has the bytes of."""
    if not master.entries:
        return own
    first = master.entries[0]
    older = tuple(
        entry
        for entry in own.entries
        if entry.epoch < first.epoch and entry.start_offset < first.start_offset
    )
    return EpochList(older + master.entries).shortened()


def frame_label(epochs: EpochList, offset: int) -> EpochEntry:
    """What a master writes on a frame: the epoch of its first byte at `offset` (Java: often the
    epoch behind it); of bytes that are older than its list, the list's first, which Java's slaves
    take. Raises EpochOrderError without any."""
    if not epochs.entries:
        raise EpochOrderError(f"no epoch holds {offset}, the list is empty")
    return epochs.find(offset) or epochs.entries[0]


def master_confirm_offset(
    own_end: int, acks: Mapping[int, int], others: Set[int], previous: int
) -> int:
    """Up to where a master's consumers may read, with allAckInSyncStateSet (bytes).

    others: everyone but the master in the SyncStateSet, the known one and a wanted one together.
    acks: by broker id, what each has reported in this epoch. One who has not: nothing moves. It
    never falls, since it has been read up to there.
    """
    confirmed = own_end
    for broker_id in others:
        ack = acks.get(broker_id)
        if ack is None:
            return previous
        confirmed = min(confirmed, ack)
    return max(previous, confirmed)


def slave_confirm_offset(frame_confirm_offset: int, own_end: int, previous: int) -> int:
    """The same on a slave, from a frame: nothing beyond its own end, and it does not fall."""
    return max(min(previous, own_end), min(frame_confirm_offset, own_end))


class RecoveredBounds(NamedTuple):
    """What a start builds from a log that it found again."""

    confirm_offset: int
    """Readers see up to here (bytes), no further: what is behind may be cut yet."""
    queue_offsets_to: int
    """The next queue offsets are counted up to here, the log's end: records behind the confirm
    offset have theirs already."""


def recovered_bounds(stored_confirm: int, min_offset: int, log_end: int) -> RecoveredBounds:
    """stored_confirm: of the check point (byte 32)."""
    return RecoveredBounds(max(min_offset, min(stored_confirm, log_end)), log_end)


def clamped_consumer_offsets(
    offsets: Mapping[tuple[str, int], int], max_offsets: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    """Committed offsets by (topic, queue id) after a cut: none is beyond its queue's max offset."""
    return {
        queue: min(offset, max_offsets[queue]) if queue in max_offsets else offset
        for queue, offset in offsets.items()
    }

"""The records of a DLedger node in order, with what is damaged between them, and where they end.

One thread; a generator that holds one file mapped. First the commit log from before DLedger, then
the entries, as DLedger's own recovery takes them (DLedgerMmapFileStore.recover): each at its place,
its index one more, its term not lower. Where that recovery stops and cuts the rest, this one looks
whether an entry follows, or the index knows of one: then it is damage, never an end. What follows
the last entry was never whole, or is left of a tail that a newer leader has cut off.

Tested by tests/store/test_dledger_import.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from store.dledger.entry import ENTRY_HEAD_SIZE, Blank, EntryHead, HeadProblem
from store.dledger.node_files import NodeFiles, check_entry, self_naming
from store.message_codec import PHY_OFFSET_AT, RecordKind, check_record


@dataclass(frozen=True, slots=True)
class Stored:
    """A whole record. `phy_offset`: where the source has it, which the record says, too; `head`:
    None in the old commit log."""

    head: EntryHead | None
    phy_offset: int
    record: bytes


@dataclass(frozen=True, slots=True)
class Damage:
    """[start, end) of the source's log cannot be read. `head`: what its own head, or the index,
    says of the one entry that it is; else `behind`: the head of the next entry. Both are None in
    the old commit log."""

    start: int
    end: int
    reason: str
    head: EntryHead | None = None
    behind: EntryHead | None = None


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Behind the last entry, always the last piece. `last`: None without one; `reason`: what lies
    there, empty for nothing."""

    pos: int
    last: EntryHead | None
    reason: str


Piece = Stored | Damage | LogEnd


def read_log(files: NodeFiles) -> Iterator[Piece]:
    """All pieces: Stored and Damage in order, one LogEnd."""
    if files.old_files:
        yield from _read_old_log(files)
    yield from read_entries(files, files.data_files[0].start_offset, None)


def _read_old_log(files: NodeFiles) -> Iterator[Piece]:
    """It was closed with a blank when DLedger took over: everything up to there is its own."""
    at = files.start
    while at < files.old_end:
        found = files.view_of_file(at)
        assert found is not None, "the files have no gap"
        view, start = found
        with view:
            check = check_record(view, at - start, len(view), at, check_crc=True)
            if check.kind is RecordKind.MESSAGE:
                piece = Stored(None, at, bytes(view[at - start : at - start + check.size]))
            following = at + check.size if check.size else _find_record(view, at, start)
            following = start + len(view) if check.kind is RecordKind.BLANK else following
        if check.kind is RecordKind.MESSAGE:
            yield piece
        elif check.kind is not RecordKind.BLANK:
            yield Damage(at, following, check.reason or check.kind.name.lower())
        at = following


def _find_record(view: memoryview, at: int, start: int) -> int:
    """The next place in the file at which a whole record lies; the file's end without one."""
    for position in self_naming(view, at + 1 - start, start, PHY_OFFSET_AT):
        pos = start + position
        found = check_record(view, position, len(view), pos, check_crc=True)
        if found.kind is RecordKind.MESSAGE:
            return pos
    return start + len(view)


def read_entries(files: NodeFiles, at: int, last: EntryHead | None) -> Iterator[Piece]:
    """From `at` on, where the entry after `last` begins. Linear: once no entry lies behind a place,
    none lies behind any later one."""
    may_follow = True
    while True:
        found = files.head_at(at)
        if isinstance(found, Blank):
            at += files.file_size - at % files.file_size
            continue
        problem = (
            found.reason if isinstance(found, HeadProblem) else _out_of_order(files, found, last)
        )
        if isinstance(found, EntryHead) and not problem:
            record = files.record_of(found)
            check = check_entry(found, record)
            if check.kind is RecordKind.MESSAGE:
                yield Stored(found, at + ENTRY_HEAD_SIZE, record)
            else:
                reason = check.reason or check.kind.name.lower()
                yield Damage(at, at + found.size, reason, head=found)
            last, at = found, at + found.size
            continue
        behind = _find_next(files, at + 1, last) if may_follow else None
        may_follow = behind is not None
        if behind is not None:
            yield Damage(at, behind.pos, problem, behind=behind)
            last = EntryHead(behind.index - 1, 0 if last is None else last.term, at, 0)
            at = behind.pos
            continue
        lost = _known_to_index(files, at, last)
        if lost is not None:
            reason = f"{problem}; the index has entry {lost.index} here"
            yield Damage(at, at + lost.size, reason, head=lost)
            at, last = at + lost.size, lost
            continue
        is_empty = isinstance(found, HeadProblem) and found.is_empty
        yield LogEnd(at, last, "" if is_empty else problem)
        return


def _out_of_order(files: NodeFiles, head: EntryHead, last: EntryHead | None) -> str:
    """Why this is not the entry after `last`, or the first one; empty if it is.

    An index or a term that is too high by damage would make all that follows look like the rest of
    an older log: the index, which has both, too, has to say the same, unless the entry is whole and
    in its turn: then the index is damaged, as Java's recovery takes it. A unit that was never
    written is no objection: the machine may have stopped before.
    """
    known = files.unit_of(head.index)
    is_doubted = known not in (None, head)
    if last is None:
        behind = files.head_at(head.pos + head.size)
        if not isinstance(behind, EntryHead):
            return "the index says otherwise" if is_doubted else ""
        if is_doubted and not (_follows(behind, head) and _is_whole(files, head)):
            return "the index says otherwise"
        if known is None and behind.index != head.index + 1:
            return f"index {head.index} before {behind.index}"
        return ""
    if is_doubted:
        is_next = _follows(head, last) or (known is not None and known.term == head.term)
        if not (is_next and _is_whole(files, head)):
            return "the index says otherwise"
    if head.index != last.index + 1:
        return f"index {head.index} after {last.index}"
    if head.term < last.term:
        return f"term {head.term} after {last.term}"
    return ""


def _follows(head: EntryHead, last: EntryHead) -> bool:
    """Whether it is the next one, of the same term: by damage no entry looks so."""
    return head.index == last.index + 1 and head.term == last.term


def _is_whole(files: NodeFiles, head: EntryHead) -> bool:
    return check_entry(head, files.record_of(head)).kind is RecordKind.MESSAGE


def _find_next(files: NodeFiles, pos: int, last: EntryHead | None) -> EntryHead | None:
    """The next entry of this log from `pos` on: neither a message that looks like one, nor the rest
    of an older term."""
    for head in files.heads_from(pos):
        is_newer = last is None or (head.index > last.index and head.term >= last.term)
        if is_newer and files.unit_of(head.index) in (None, head):
            return head
    return None


def _known_to_index(files: NodeFiles, pos: int, last: EntryHead | None) -> EntryHead | None:
    """The entry that the index says to lie at `pos`, after `last`."""
    known = files.unit_of(0 if last is None else last.index + 1)
    if known is None or known.pos != pos or (last is not None and known.term < last.term):
        return None
    room = files.file_size - pos % files.file_size
    return known if ENTRY_HEAD_SIZE < known.size <= room else None

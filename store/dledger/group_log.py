"""GroupLog: one node's log, with what other nodes of its DLedger group say of it.

One thread. Entries of one index and term are the same on all nodes, and so is everything before
them (raft's log matching), at the same places. So an entry that is damaged here is taken from a
node that has it whole, one whose bytes differ from node to node is what most of them have, and how
far each node agrees says which entries a majority has. Of one node alone nobody can know that.

Tested by tests/store/test_dledger_import.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from store.dledger.entry import ENTRY_HEAD_SIZE, Blank, EntryHead
from store.dledger.node_files import NodeFiles, check_entry
from store.dledger.node_log import Damage, LogEnd, Piece, Stored, read_entries, read_log
from store.errors import StoreError
from store.message_codec import RecordKind


@dataclass(slots=True)
class Agreement:
    """How far another node has the same entries; `matched`: the last of them, None so far for
    none."""

    files: NodeFiles
    matched: EntryHead | None = None


class GroupLog:
    """See the module. `healed` and `agreements` are those of the last complete `pieces`."""

    def __init__(self, source: NodeFiles, others: Sequence[NodeFiles]) -> None:
        self._source: Final = source
        self.agreements: Final = [Agreement(each) for each in others]
        self.healed = 0
        """Entries that were taken from another node."""
        self.last: EntryHead | None = None
        """The source's last entry."""

    def pieces(self) -> Iterator[Piece]:
        """As `read_log` of the source, mended as far as the other nodes can."""
        self.healed, self.last = 0, None
        for each in self.agreements:
            each.matched = None
        for piece in read_log(self._source):
            if isinstance(piece, Damage):
                yield from self._heal(piece)
            elif isinstance(piece, Stored) and piece.head is not None:
                yield self._compare(piece, piece.head)
            else:
                if isinstance(piece, LogEnd):
                    self.last = piece.last
                yield piece

    def _compare(self, own: Stored, head: EntryHead) -> Piece:
        versions = [own.record]
        for each in self.agreements:
            if each.files.head_at(head.pos) == head:
                each.matched = head
                record = each.files.record_of(head)
                if check_entry(head, record).kind is RecordKind.MESSAGE:
                    versions.append(record)
        if versions.count(own.record) * 2 > len(versions):
            return own
        return self._most_common(versions, head) or Damage(
            head.pos,
            head.pos + head.size,
            f"entry {head.index}: the nodes have different bytes, and no majority has the same",
            head=head,
        )

    def _most_common(self, versions: list[bytes], head: EntryHead) -> Stored | None:
        """What more than half of the nodes have."""
        for record in versions:
            if versions.count(record) * 2 > len(versions):
                self.healed += 1
                return Stored(head, head.pos + ENTRY_HEAD_SIZE, record)
        return None

    # -- healing -------------------------------------------------------------------------------

    def _heal(self, damage: Damage) -> Iterator[Piece]:
        """What the nodes have that have the same entry, or the same one behind the damage."""
        sure = damage.head or damage.behind
        nodes = [each for each in self.agreements if sure and each.files.head_at(sure.pos) == sure]
        at = damage.start
        while at < damage.end:
            tried = (_whole_at(each.files, at, damage.end) for each in nodes)
            found = next((each for each in tried if each is not None), None)
            if found is None:
                break
            if isinstance(found, Stored):
                self.healed += 1
                yield found
                at += len(found.record) + ENTRY_HEAD_SIZE
            else:
                at += self._source.file_size - at % self._source.file_size
        if damage.head is not None:
            for each in nodes:
                each.matched = damage.head
        if at < damage.end:
            yield Damage(at, damage.end, damage.reason, damage.head, damage.behind)

    # -- who has what --------------------------------------------------------------------------

    def check_newest(self) -> None:
        """After `pieces`. Raises StoreError: another node has a newer log, as an election would
        judge, or none of this log's entries."""
        for each in self.agreements:
            if each.matched is None:
                raise StoreError(
                    f"{each.files.root}: it has no entry in common with {self._source.root}; "
                    "is it a node of the same group?"
                )
            if _age(_last_entry(each)) > _age(self.last):
                raise StoreError(
                    f"{each.files.root}: its log is newer than that of {self._source.root} "
                    f"(it ends with {_say(_last_entry(each))}, not {_say(self.last)}): "
                    "import from it, and name this one with --other"
                )

    def find_majority_end(self, members: int) -> EntryHead | None:
        """After `pieces`: the last entry that a majority of `members` nodes has; None: the nodes
        that were named are too few to say."""
        ends = [self.last, *(each.matched for each in self.agreements)]
        need = members // 2 + 1
        if len(ends) < need:
            return None
        known = sorted((head for head in ends if head is not None), key=lambda head: -head.index)
        return known[need - 1] if len(known) >= need else None


def _whole_at(files: NodeFiles, pos: int, end: int) -> Stored | Blank | None:
    head = files.head_at(pos)
    if isinstance(head, Blank):
        return head
    if not isinstance(head, EntryHead) or pos + head.size > end:
        return None
    record = files.record_of(head)
    if check_entry(head, record).kind is not RecordKind.MESSAGE:
        return None
    return Stored(head, pos + ENTRY_HEAD_SIZE, record)


def _last_entry(node: Agreement) -> EntryHead | None:
    """Of a node's whole log; reads what follows the last entry that is the same."""
    last = node.matched
    if last is None:
        return None
    for piece in read_entries(node.files, last.pos + last.size, last):
        if isinstance(piece, LogEnd):
            return piece.last
    raise AssertionError("a log has an end")


def _age(last: EntryHead | None) -> tuple[int, int]:
    """What raft compares in an election."""
    return (-1, -1) if last is None else (last.term, last.index)


def _say(last: EntryHead | None) -> str:
    return "nothing" if last is None else f"entry {last.index} of term {last.term}"


def open_nodes(roots: Sequence[Path]) -> list[NodeFiles]:
    """The files of each. Raises StoreError: also where two are of one node."""
    opened: list[NodeFiles] = []
    by_node: dict[str, Path] = {}
    try:
        for root in roots:
            opened.append(NodeFiles(root))
            same = by_node.setdefault(opened[-1].node, root)
            if same != root:
                raise StoreError(
                    f"{root}: it is of node {opened[-1].node}, as {same}: one node's store and a "
                    "copy of it are no two nodes of a majority; name each node once"
                )
    except StoreError:
        for each in opened:
            each.close()
        raise
    return opened

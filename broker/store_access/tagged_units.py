"""TaggedUnits: the units with certain tags, looked for once for several pulls of a consumer.

Runs on the loop thread. A pull by tags that found all it wanted is likely to be followed by another
one where it ended. For that one the tags of some thousand units are looked at together, and what it
does not need is kept for those behind it. They are given what CheckedUnits.choose would give:
wherever that might be less than they want, they are given nothing here. It knows no requests.

Tested by tests/broker/pull/test_known_pulls.py and test_pull_message_reader.py.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import numpy as np

from broker.store_access.checked_units import CheckedUnits
from broker.store_access.pages_ahead import PagesAhead
from broker.store_access.unit_block import TaggedBlock, UnitBlock

_BLOCKS: Final = 256
"""That are kept, up to 30 KB each."""
_MOST_CODES: Final = 256
"""For a pull with more, which a peer may send, nothing is kept."""
_NONE: Final = np.zeros(0, np.int64).data

Reader = tuple[str, str, int]
"""Who reads on: (group, topic, queue id)."""
Found = tuple[TaggedBlock, int]
"""A block, and the number in it of the first unit that is wanted."""


class TaggedUnits:
    """See the module. Owned by: the loop thread."""

    def __init__(self, units: CheckedUnits) -> None:
        self._units = units
        self._blocks: OrderedDict[Reader, TaggedBlock] = OrderedDict()

    def find(
        self,
        reader: Reader,
        queue_offset: int,
        count: int,
        scan: int,
        codes: frozenset[int],
        generation: int,
    ) -> Found | None:
        """`count` units with these tags among the `scan` from `queue_offset` on, if that many were
        found for this reader before. generation: of the queue now."""
        block = self._blocks.get(reader)
        if block is None:
            return None
        first = block.find(queue_offset, count, scan)
        if (
            first is None
            or block.codes != codes
            or not self._units.believes(block.units, generation)
        ):
            return None
        return block, first

    def read_on(
        self,
        reader: Reader,
        queue_offset: int,
        count: int,
        scan: int,
        codes: frozenset[int],
        high: int,
        pages: PagesAhead | None,
    ) -> Found | None:
        """The same; looks for them if what was found last for this reader ends here. high: the
        queue's max offset. pages: as CheckedUnits.choose takes it."""
        _, topic, queue_id = reader
        generation = self._units.generation_of(topic, queue_id)
        found = self.find(reader, queue_offset, count, scan, codes, generation)
        if found is not None:
            return found
        block = self._blocks.get(reader)
        if (
            block is None
            or not block.begin <= queue_offset <= block.end
            or block.codes != codes
            or block.units.generation != generation
        ):
            return None
        del self._blocks[reader]
        block = self._units.tagged(topic, queue_id, queue_offset, high, codes, pages)
        first = block.find(queue_offset, count, scan)
        if first is None:
            return None
        self._keep(reader, block)
        return block, first

    def note(self, reader: Reader, queue_offset: int, codes: frozenset[int]) -> None:
        """A pull found all it wanted, and ended before `queue_offset`."""
        if len(codes) > _MOST_CODES:
            return
        generation = self._units.generation_of(reader[1], reader[2])
        nothing = UnitBlock(0, generation, b"", believed_until_s=0, ends_file=False)
        self._keep(reader, TaggedBlock(queue_offset, queue_offset, codes, _NONE, nothing))

    def _keep(self, reader: Reader, block: TaggedBlock) -> None:
        self._blocks[reader] = block
        self._blocks.move_to_end(reader)
        if len(self._blocks) > _BLOCKS:
            self._blocks.popitem(last=False)

"""What Pops wants done, by who feeds it: words of the journal, offsets, records.

Pure data, loop thread of `remoting`. Not among the modules that are compiled, which may define no
msgspec.Struct.

Tested by tests/broker/pop/test_pops.py.
"""

from __future__ import annotations

import msgspec

from broker.pop.buffered_pops import OffsetQueue, PopCheckPointWrapper
from broker.pop.check_point import CheckPoint


class SetBits(msgspec.Struct, gc=False):
    """The row of the journal says which messages are acknowledged."""

    row: int
    bits: int


class SetStored(msgspec.Struct, gc=False):
    """The row says where the log ended behind its record; 0: it has none."""

    row: int
    end: int


class FreeRow(msgspec.Struct, gc=False):
    """The row is not needed any more."""

    row: int


class FreeQueue(msgspec.Struct, gc=False):
    """The journal forgets the queue of this number, and so what its rows say."""

    number: int


class Commit(msgspec.Struct, gc=False):
    """The group's offset moves, in the journal, then in the offset table: never back, as consumers
    that pull may have committed more. `queue.committed` is what it is then. Then the rows that the
    offset waited for are free."""

    queue: OffsetQueue
    offset: int
    rows: list[int]


class Store(msgspec.Struct, gc=False):
    """What is left of a check point is stored in the revive topic: `Pops.stored` or `Pops.refused`
    follows."""

    wrapper: PopCheckPointWrapper
    left: CheckPoint


Effect = SetBits | SetStored | FreeRow | FreeQueue | Commit | Store

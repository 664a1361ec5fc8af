"""HeaderCut: takes a binary header apart as one before it, without reading it field by field.

The headers that a client writes differ mostly in their opaque and in the values of a few fields.
One that has been read shows where these are; another of the same size is cut in the same places, by
one call into C. If all that is between the cuts is the same, bytes with the lengths and names of
all fields included, then the values are what reading it would have found. Pure, any thread. Knows
no request.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from remoting.rocketmq_serializable import BLOCK_AT, INT16, INT32, OPAQUE_AT


def cut_of(header: bytes, names: Sequence[bytes]) -> Struct | None:
    """How to cut headers of this size: what is before the opaque, the opaque, then in turn what is
    up to the value of the next of `names`, and the value; at last what is after them. None: the
    header, which is plain (find_plain_header), does not have each of them once, in this order and
    with a value.
    """
    sizes: list[int] = []
    cut_to, position, end = OPAQUE_AT + INT32.size, BLOCK_AT, len(header)
    while position < end:
        name_at = position + INT16.size
        name_end = name_at + INT16.unpack_from(header, position)[0]
        start = name_end + INT32.size
        position = start + INT32.unpack_from(header, name_end)[0]
        if (name := header[name_at:name_end]) not in names:
            continue
        if len(sizes) == 2 * len(names) or name != names[len(sizes) // 2] or position == start:
            return None
        sizes += (start - cut_to, position - start)
        cut_to = position
    if len(sizes) < 2 * len(names):
        return None
    pieces = "".join(f"{size}s" for size in (*sizes, end - cut_to))
    return Struct(f">{OPAQUE_AT}si{pieces}")

"""The properties that only a broker writes: their names, and how a message loses them.

Pure, any thread. A broker keeps its own bookkeeping in the properties of records, beside what
clients write there, and reads it back: where a message belongs, how often it was checked, which
light queue holds it at which offset. So none of these may come from a client: every entrance asks
broker/append/admitted_properties.py, which drops or refuses them; this module is the list. It knows
no client and no answer. The names are those of RocketMQ's MessageConst.

tests/broker/append/test_reserved_properties.py finds every property that is read back from a
record, and fails for one that is neither in this list nor explained there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

DROPPED: Final = (
    # Timers: how far the message has come. Consumers get them, and send them on.
    *("TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"),
    # Where a message in a system topic belongs.
    *("REAL_TOPIC", "REAL_QID"),
    # Half messages: of which one this is a copy, and how often its producer was asked.
    *("TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"),
    # Pop: the handle, which is made when the message is handed out, and when that was first.
    *("POP_CK", "1ST_POP_TIME"),
    # Places: in light queues, and of an inner batch.
    *("INNER_MULTI_QUEUE_OFFSET", "INNER_BASE"),
    # 5.x's check sum of the properties.
    "__CRC32#",
)
"""Those that an honest client may carry along, since its consumer got them: taken out."""
REFUSED: Final = ("TIMER_DEL_UNIQKEY",)
"""Those that no consumer gets: without them the message would be another one than its sender
means. A recall, which request 370 makes."""
COUNTED: Final = ("INNER_NUM",)
"""Those that are compared with what the broker counts itself (SendRecords)."""
RESERVED: Final = frozenset(DROPPED + REFUSED + COUNTED)
DELAY_IS_OVER: Final = "TIMER_OUT_MS"
"""A message with it has been delivered from a timer: its TIMER_DELAYS mean nothing any more."""
TIMER_DELAYS: Final = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC")
"""What asks for a timer; a client's own."""

MARK: Final = "R"
OTHER_MARK: Final = "POP_"
"""Each name has one of both. Most messages have neither, which takes 0.05 us to see. Those with the
first have a part of a name, too: what is left is looked at in 0.3 us."""
_NAME_END: Final = "\x01"
_PAIR_END: Final = "\x02"
_NAMES: Final = "|".join(re.escape(name) for name in sorted(RESERVED))
_find: Final = re.compile(f"{_PAIR_END}(?:{_NAMES}){_NAME_END}").search
_find_raw: Final = re.compile(f"{_PAIR_END}(?:{_NAMES}){_NAME_END}".encode()).search
_find_dropped: Final = re.compile(
    f"(?:{'|'.join(re.escape(name) for name in sorted(DROPPED))}){_NAME_END}".encode()
).search
_UNDECIDED: Final = (b"TIMER_DEL", b"DELAY\x01", b"INNER_")
"""What may be refused, or mean something where it is not taken out."""
_RAW_MARK: Final = MARK.encode()
_RAW_OTHER_MARK: Final = OTHER_MARK.encode()
_RAW_PAIR_END: Final = _PAIR_END.encode()


def holds_reserved(text: str) -> bool:
    """Whether a property text has a reserved property, even an empty one."""
    if not (
        "ER_" in text or "REAL_" in text or "TRAN" in text or OTHER_MARK in text or "__CRC" in text
    ):
        return False
    return holds_reserved_pair(text)


def holds_reserved_pair(text: str) -> bool:
    """The same, for those who have looked for parts of the names themselves."""
    return _find(_PAIR_END + text) is not None


def any_holds_reserved(joined: bytes, texts: Sequence[bytes]) -> bool:
    """The same of several texts. joined: all of them, with nothing between."""
    # A mark that two neighbours make is none; one of a text is here, too. To see that a letter is
    # not there takes 0.06 us in 1 KiB, a word 0.7.
    if _RAW_MARK not in joined and not (b"P" in joined and _RAW_OTHER_MARK in joined):
        return False
    return _find_raw(_RAW_PAIR_END + _RAW_PAIR_END.join(texts)) is not None


def loses_some(data: bytes) -> bool:
    """Whether bytes that hold properties somewhere may lose some of them, and that is all that is
    to be decided about them."""
    return _find_dropped(data) is not None and not any(mark in data for mark in _UNDECIDED)


def reserved_in(text: str) -> frozenset[str]:
    """The names of the reserved properties of a text, also of empty ones."""
    pairs = text.split(_PAIR_END)
    return RESERVED & {pair.partition(_NAME_END)[0] for pair in pairs if _NAME_END in pair}


def without_properties(text: str, names: frozenset[str]) -> str:
    """`text` without the pairs of these names, in one pass; the others as they are."""
    return _pairs_of(names).sub("", _PAIR_END + text)[1:]


@lru_cache(8)
def _pairs_of(names: frozenset[str]) -> re.Pattern[str]:
    """The end of the pair before, and a pair of one of the names."""
    found = "|".join(re.escape(name) for name in sorted(names))
    return re.compile(f"{_PAIR_END}(?:{found}){_NAME_END}[^{_PAIR_END}]*+")

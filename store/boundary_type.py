"""BoundaryType: which of the messages around a time a search by time (29) is about. Pure data.

Java: org.apache.rocketmq.common.BoundaryType (5.x). A search that names none is one of 4.9, which
finds the nearest message.
"""

from __future__ import annotations

from enum import Enum, auto


class BoundaryType(Enum):
    """Of two that were stored at t1 and t3 LOWER of t2 is the second and UPPER the first."""

    LOWER = auto()
    """The first message that is not older; one behind the last, if all are older."""
    UPPER = auto()
    """The last message that is not younger; the first, if all are younger."""


def parse_boundary(text: str | None) -> BoundaryType | None:
    """As BoundaryType.getType: what is not "upper", in any case, is LOWER. None: not named."""
    if text is None:
        return None
    return BoundaryType.UPPER if text.lower() == "upper" else BoundaryType.LOWER

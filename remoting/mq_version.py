"""Version numbers of RocketMQ programs: the ordinal in a header and the name that tools print.

Pure data. Java's enum (MQVersion) lists every planned release in order, almost always as a pair
X_SNAPSHOT, X; the table is built from that rule, and the anchors that peers decide by are proved
at import. What a version allows is decided where it matters (broker, name server), not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_FIRST: Final = (
    "V3_0_0_SNAPSHOT",
    "V3_0_0_ALPHA1",
    "V3_0_0_BETA1",
    "V3_0_0_BETA2",
    "V3_0_0_BETA3",
    "V3_0_0_BETA4",
    "V3_0_0_BETA5",
    "V3_0_0_BETA6_SNAPSHOT",
    "V3_0_0_BETA6",
    "V3_0_0_BETA7_SNAPSHOT",
    "V3_0_0_BETA7",
    "V3_0_0_BETA8_SNAPSHOT",
    "V3_0_0_BETA8",
    "V3_0_0_BETA9_SNAPSHOT",
    "V3_0_0_BETA9",
    "V3_0_0_FINAL",
)
"""The part before the pairs begin."""


def _releases() -> Iterator[str]:
    yield from (f"V3_0_{patch}" for patch in range(1, 16))
    for minor in range(1, 10):
        first_patch = 0 if minor <= 2 else 1
        yield from (f"V3_{minor}_{patch}" for patch in range(first_patch, 10))
    for major in (4, 5):
        for minor in range(10):
            yield from (f"V{major}_{minor}_{patch}" for patch in range(10))


def _names() -> Iterator[str]:
    yield from _FIRST
    for release in _releases():
        yield f"{release}_SNAPSHOT"
        yield release
    yield "HIGHER_VERSION"


VERSION_NAMES: Final[tuple[str, ...]] = tuple(_names())
"""Name by ordinal."""

VERSION_ORDINALS: Final[dict[str, int]] = {name: i for i, name in enumerate(VERSION_NAMES)}
"""Ordinal by name."""

HIGHER_VERSION: Final = len(VERSION_NAMES) - 1
"""The ordinal that stands for "newer than this table"."""

V3_0_7_SNAPSHOT: Final = VERSION_ORDINALS["V3_0_7_SNAPSHOT"]
V3_0_11: Final = VERSION_ORDINALS["V3_0_11"]
V3_1_8_SNAPSHOT: Final = VERSION_ORDINALS["V3_1_8_SNAPSHOT"]
V3_4_9: Final = VERSION_ORDINALS["V3_4_9"]
V4_1_0_SNAPSHOT: Final = VERSION_ORDINALS["V4_1_0_SNAPSHOT"]
V4_9_3: Final = VERSION_ORDINALS["V4_9_3"]
V4_9_4: Final = VERSION_ORDINALS["V4_9_4"]
V4_9_8: Final = VERSION_ORDINALS["V4_9_8"]
V5_0_0: Final = VERSION_ORDINALS["V5_0_0"]
V5_3_1: Final = VERSION_ORDINALS["V5_3_1"]
V5_3_3: Final = VERSION_ORDINALS["V5_3_3"]

assert (V3_0_7_SNAPSHOT, V3_0_11, V3_1_8_SNAPSHOT, V3_4_9) == (28, 37, 62, 121)
assert (V4_1_0_SNAPSHOT, V4_9_4, V4_9_8, V5_0_0) == (232, 401, 409, 413)
assert (V5_3_1, V5_3_3) == (475, 479)
assert HIGHER_VERSION == 612

CURRENT_VERSION: Final = V4_9_8
"""What our own programs say they are."""


def version_name(ordinal: int) -> str:
    """The name of a version ordinal; HIGHER_VERSION for any that the table does not hold.

    A negative ordinal makes Java throw; we answer HIGHER_VERSION for it too.
    """
    if 0 <= ordinal < HIGHER_VERSION:
        return VERSION_NAMES[ordinal]
    return VERSION_NAMES[HIGHER_VERSION]

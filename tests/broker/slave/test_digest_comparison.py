"""Which copy of a chunk is right, by digests alone."""

from __future__ import annotations

import pytest

from broker.slave.digest_comparison import judge
from broker.slave.group_members import MemberAddress
from store.log_digests import FileDigests

A, B, C = (MemberAddress(number, f"10.0.0.{number}:10911") for number in (1, 2, 3))
GOOD, BAD, WORSE = "good", "bad", "worse"


def ours(expected: str, found: str | None = None, *, damaged: bool = False) -> FileDigests:
    return FileDigests(
        start=0,
        data_end=100,
        checked_ms=1,
        digests=(expected,),
        found={} if found is None else {0: found},
        damaged=frozenset({0} if damaged else ()),
    )


@pytest.mark.parametrize(
    ("mine", "seen", "proved", "target", "holders"),
    [
        # Ours has changed, another has what it was: nobody has to be proved.
        (ours(GOOD, BAD), {A: GOOD}, (), GOOD, (A,)),
        (ours(GOOD, BAD), {A: BAD, B: GOOD, C: BAD}, (A, B, C), GOOD, (B,)),
        # Two copies, and none has changed: nobody knows.
        (ours(BAD), {A: GOOD}, (A,), None, ()),
        (ours(GOOD, BAD), {A: WORSE}, (A,), None, ()),
        # Three: more than half decide, ours among them.
        (ours(BAD), {A: GOOD, B: GOOD}, (A, B), GOOD, (A, B)),
        (ours(GOOD), {A: GOOD, B: BAD}, (A, B), None, ()),
        (ours(BAD), {A: GOOD, B: WORSE}, (A, B), None, ()),
        (ours(BAD), {A: GOOD, B: GOOD, C: BAD}, (A, B, C), None, ()),
        # Strangers do not vote, and damaged copies have no voice.
        (ours(GOOD), {A: BAD, B: BAD, C: BAD}, (), None, ()),
        (ours(GOOD), {A: BAD, B: BAD, C: BAD}, (A,), None, ()),
        (ours(BAD), {A: GOOD, B: None}, (A, B), None, ()),
        # What is damaged is the fences' affair.
        (ours(GOOD, damaged=True), {A: GOOD, B: GOOD}, (A, B), None, ()),
    ],
)
def test_who_is_right(
    mine: FileDigests,
    seen: dict[MemberAddress, str | None],
    proved: tuple[MemberAddress, ...],
    target: str | None,
    holders: tuple[MemberAddress, ...],
) -> None:
    verdict = judge(mine, 0, seen, lambda member: member in proved)
    if target is None:
        assert verdict is None
    else:
        assert verdict is not None
        assert (verdict.target, verdict.holders) == (target, holders)

"""The judge of a run on a group with controllers: what its clients know against what is there.

Pure comparisons of the clients' own lists with queues and logs; each gives the violations that it
found, as sentences.

Tested by tests/tools/chaos/test_election_judge.py.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from tools.chaos import checks
from tools.chaos.election_options import FaultOutcome
from tools.chaos.history import Append, History

_PAUSE_S: Final = 0.25

Epochs = Sequence[tuple[int, int]]
"""Of a log: each epoch's number and where it begins, in the order of the log."""


def judge_history(
    history: History, seen: Mapping[tuple[int, int], bytes], queues: Mapping[int, Sequence[bytes]]
) -> list[str]:
    """What was answered and read, against the queues as they are in the end."""
    acks = [append.as_ack() for append in history.acknowledged()]
    found = []
    for violations in (
        checks.lost(acks, queues),
        checks.places_given_twice(acks),
        checks.invented(queues, history.sent()),
        checks.repeated(queues),
        checks.out_of_order(queues),
        read_otherwise(seen, queues),
    ):
        found += checks.shortened(violations)
    return found


def read_otherwise(
    seen: Mapping[tuple[int, int], bytes], queues: Mapping[int, Sequence[bytes]]
) -> list[str]:
    """Where a consumer saw what is not there in the end."""
    found = []
    for (queue_id, offset), body in sorted(seen.items()):
        now = queues.get(queue_id, ())[offset : offset + 1]
        if list(now) != [body]:
            is_now = f"{now[0][:24]!r}" if now else "nothing"
            found.append(
                f"read: {body[:24]!r} at queue {queue_id} offset {offset}, where {is_now} is now"
            )
    return found


def epoch_at(epochs: Epochs, phy_offset: int) -> int:
    """In which epoch the log's byte was written; -1 for one before all."""
    at = bisect.bisect_right([begin for _epoch, begin in epochs], phy_offset)
    return epochs[at - 1][0] if at else -1


def masters_of_epochs(acknowledged: Iterable[Append], epochs: Epochs) -> list[str]:
    """Epochs in which more than one broker has answered SEND_OK."""
    masters: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for append in acknowledged:
        masters[epoch_at(epochs, append.phy_offset)].add(append.peer)
    return [
        f"epoch {epoch}: {len(peers)} masters answered SEND_OK: {sorted(peers)}"
        for epoch, peers in sorted(masters.items())
        if len(peers) > 1
    ]


def different_epochs(lists: Mapping[str, Epochs]) -> list[str]:
    """Members whose lists of epochs are not the same."""
    (first, *others) = lists.items()
    return [
        f"the epochs of {first[0]} are {list(first[1])[-3:]}, those of {name} {list(epochs)[-3:]}"
        for name, epochs in others
        if list(epochs) != list(first[1])
    ]


def different_logs(files: Mapping[str, Sequence[Path]]) -> list[str]:
    """Members whose commit logs are not the same; zeros at the end of a log are none of it.

    files: of each member, in the order of their offsets. Raises OSError.
    """
    (first, *others) = files.items()
    found = []
    for name, paths in others:
        for text in checks.no_prefix_of_files(first[1], paths):
            found.append(f"{name} against {first[0]}: {text}")
        for text in checks.no_prefix_of_files(paths, first[1]):
            found.append(f"{first[0]} against {name}: {text}")
    return found


def measure_gaps(
    faults: Sequence[FaultOutcome], acknowledged: Sequence[Append], epochs: Epochs, began_s: float
) -> None:
    """Fill in for how long nobody was answered SEND_OK at each fault, and whether another master
    was elected. began_s: when the run began, by the clock of the answers."""
    ordered = sorted((a for a in acknowledged), key=lambda append: append.return_s or 0.0)
    times = [(append.return_s or 0.0) - began_s for append in ordered]
    for fault in faults:
        first = max(bisect.bisect_left(times, fault.begun_s) - 1, 0)
        pairs = list(pairwise(times[first:]))
        until = [(after - before, after) for before, after in pairs if before < fault.undone_s]
        later = [
            after - before
            for before, after in pairs
            if fault.undone_s <= before and after < fault.over_s
        ]
        fault.later_gap_s = round(max(later, default=0.0), 3)
        if not until:
            continue
        gap_s, ended_s = max(until)
        fault.gap_s = round(gap_s, 3)
        last = bisect.bisect_right(times, max(fault.undone_s, ended_s))
        found = [epoch_at(epochs, append.phy_offset) for append in ordered[first:last]]
        fault.has_elected = max(found) > found[0]


def rate_of(acknowledged: Sequence[Append]) -> float:
    """SEND_OK a second while somebody answers: pauses of more than a quarter second are left
    out."""
    times = sorted(append.return_s or 0.0 for append in acknowledged)
    seconds = sum(b - a for a, b in pairwise(times) if b - a <= _PAUSE_S)
    return len(times) / seconds if seconds else 0.0

"""What producers were answered: sends refused, late or unproved, in one sentence.

Called on the driver by spark/page/headlines.py for a day and for a window. A dump of version 2
counts the answers to all sends; an older one those that waited for a replica or the disk, and no
refused ones. It must not know Spark or HTML.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spark.figures import wording
from spark.figures.report_data import Row, finite

_WORDS: Final = {
    "refused": "refused",
    "flush_slave_timeout": "late at the replicas",
    "flush_disk_timeout": "late on the disk",
    "slave_not_available": "unproved (too few replicas)",
}
"""Of each answer that is not SEND_OK, in the order in which they are told."""


@dataclass(frozen=True)
class Sends:
    """Answers by result. `are_all`: of every send; else only of those that waited, and `refused`
    is not among them."""

    ok: int
    others: dict[str, int]
    are_all: bool

    @property
    def total(self) -> int:
        return self.ok + self.failed

    @property
    def failed(self) -> int:
        """Refused, late or unproved."""
        return sum(self.others.values())

    @property
    def brief(self) -> str:
        """`245 of 476,620 sends refused, late or unproved`."""
        how = "refused, late or unproved" if self.are_all else "late or unproved"
        return f"{self.failed:,} of {wording.plural(self.total, 'send', 'sends')} {how}"

    @property
    def sentence(self) -> str:
        """All that is known of them."""
        kind = "send" if self.are_all else "send that waited for replicas or the disk"
        kinds = "sends" if self.are_all else "sends that waited for replicas or the disk"
        rest = "" if self.are_all else " The dumps do not count refused ones."
        if not self.total:
            return f"There was no {kind}.{rest}"
        if not self.failed:
            how = "refused, late or unproved" if self.are_all else "late or unproved"
            return f"None of {wording.plural(self.total, kind, kinds)} was {how}.{rest}"
        parts = [
            f"{self.others[name]:,} {_WORDS[name]}" for name in _WORDS if self.others.get(name)
        ]
        return f"{self.failed:,} of {self.total:,} {kinds} went wrong: {', '.join(parts)}.{rest}"


def sends_of(rows: Iterable[Row]) -> Sends | None:
    """Of groups' days or windows; None where nothing is known of any group's sends."""
    ok, others, is_known, are_all = 0, dict.fromkeys(_WORDS, 0), False, True
    for row in rows:
        prefix = "sends" if row.get("sends_ok") is not None else "sync"
        counted = {name: finite(row.get(f"{prefix}_{name}")) for name in ("ok", *_WORDS)}
        if counted["ok"] is None:
            continue
        is_known, are_all = True, are_all and prefix == "sends"
        ok += int(counted.pop("ok") or 0)
        for name, count in counted.items():
            others[name] += int(count or 0)
    return Sends(ok, others, are_all) if is_known else None

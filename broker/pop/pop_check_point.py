"""PopCheckPoint: a check point as stored in the revive topic.

Pure data, any thread (Java: PopCheckPoint). The body is JSON in Java's order:

    {"bm":0,"bn":broker,"c":group,"d":[offsets - so],"it":ms,"n":count,"pt":ms,"q":queue,
     "reviveTime":pt + it,"ro":0,"rp":"put again, times","so":start offset,"sp":true,"t":topic}

bm is the bitmap of acknowledged messages, 0 as stored; ro is set when it is read; reviveTime is
written and ignored when read; rp is absent at first; sp (suspend) is of 5.5, which always writes
it: here it is absent when it says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from broker.pop.check_point import CheckPoint, CheckPointKey
from broker.pop.pop_names import ACK_TIME_INTERVAL_MS, CK_TAG
from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class PopCheckPoint(JsonBean):
    """One check point. Times in ms of the wall clock."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "bit_map": "bm",
        "broker_name": "bn",
        "group": "c",
        "queue_offset_diff": "d",
        "invisible_time": "it",
        "num": "n",
        "pop_time": "pt",
        "queue_id": "q",
        "revive_offset": "ro",
        "re_put_times": "rp",
        "start_offset": "so",
        "suspend": "sp",
        "topic": "t",
    }

    start_offset: Int64 = 0
    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    bit_map: Int32 = 0
    num: Int32 = 0
    queue_id: Int32 = 0
    topic: str | None = None
    """Of the messages: the retry topic's name if they are from there."""
    group: str | None = None
    revive_offset: Int64 = 0
    queue_offset_diff: list[Int32] = field(default_factory=list)
    broker_name: str | None = None
    re_put_times: str | None = None
    suspend: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """See JsonBean; with reviveTime, which Java writes because it has a getter. (Not `super()`:
        a class with slots is made twice.)"""
        tree = JsonBean.to_json(self)
        tree["reviveTime"] = self.revive_time
        return dict(sorted(tree.items()))

    @property
    def revive_time(self) -> int:
        """When the messages become visible again."""
        return self.pop_time + self.invisible_time

    @property
    def deliver_ms(self) -> int:
        """When the record is due in the revive topic: before the acks of the same pop."""
        return self.revive_time - ACK_TIME_INTERVAL_MS

    @property
    def key(self) -> CheckPointKey:
        """That of its acks, too, if they name the same broker."""
        topic, group = self.topic or "", self.group or ""
        return topic, group, self.queue_id, self.start_offset, self.pop_time

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY of the record."""
        return (
            f"{self.topic}@{self.queue_id}@{self.start_offset}@{self.group}@{self.pop_time}"
            f"@{self.broker_name}@{CK_TAG}"
        )

    def check_point(self, revive_queue_id: int) -> CheckPoint:
        """As it is in memory. revive_queue_id: where its record is. Its numbers are plausible
        (fault_of_stored)."""
        return CheckPoint(
            self.topic or "",
            self.group or "",
            self.queue_id,
            self.start_offset,
            tuple(self.queue_offset_diff or range(self.num))[: self.num],
            self.pop_time,
            self.invisible_time,
            revive_queue_id,
            suspends=bool(self.suspend),
        )

    def parse_re_put_times(self) -> int:
        """How often it was put again; 127, Java's largest byte, if that is more or no number."""
        if self.re_put_times is None:
            return 0
        try:
            return min(int(self.re_put_times), 127)
        except ValueError:
            return 127


def stored_point(
    point: CheckPoint, broker_name: str | None, re_put_times: int = 0
) -> PopCheckPoint:
    """As its record says it."""
    return PopCheckPoint(
        start_offset=point.start_offset,
        pop_time=point.pop_time_ms,
        invisible_time=point.invisible_time_ms,
        num=len(point.diffs),
        queue_id=point.queue_id,
        topic=point.topic,
        group=point.group,
        queue_offset_diff=list(point.diffs),
        broker_name=broker_name,
        re_put_times=str(re_put_times) if re_put_times else None,
        suspend=point.suspends or None,
    )

"""The rules of logic queues: which item holds an offset, which changes of a mapping are allowed.

Pure functions over the lists of items of remoting/body/topic_queue_mapping.py, used by brokers and
by mqadmin, any thread. Source: TopicQueueMappingUtils, and the pull part of PullMessageProcessor,
of RocketMQ 5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from remoting.body.topic_queue_mapping import (
    GLOBAL_SCOPE,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)
from remoting.errors import RequestError
from remoting.response_code import ResponseCode

MAX_OFFSET: Final = (1 << 63) - 1
BLOCK_SEQ_SIZE: Final = 10_000
"""A remapped queue goes on at a multiple of this."""
NOT_LEADER: Final = "{}-{} does not exit in request process of current broker {}"
"""RocketMQ's words (sic), and those of a pull and of 31."""
NOT_LEADER_IN_PULL: Final = "{}-{} cannot find mapping item in request process of current broker {}"
NOT_LEADER_IN_MIN: Final = "{}-{} is not leader in broker {}, request code 31"
_MOCK_BROKER_PREFIX: Final = "__syslo__"

Items = Sequence[LogicQueueMappingItem]


class MappingError(ValueError):
    """A mapping that contradicts itself or the one that it shall replace."""


def mock_broker_name(scope: str) -> str:
    """The broker name under which clients see the queues of a static topic."""
    return _MOCK_BROKER_PREFIX + (scope[2:] if scope == GLOBAL_SCOPE else scope)


def block_seq_round_up(offset: int, block: int = BLOCK_SEQ_SIZE) -> int:
    """Where a new leader begins: the next block, or the one behind it if that is near."""
    number, rest = divmod(offset, block)
    return (number + (1 if rest < block // 2 else 2)) * block


# -- looking up ----------------------------------------------------------------------------------


def find_item(items: Items, static_offset: int) -> LogicQueueMappingItem | None:
    """The decided item that holds an offset, the first for one before all of them; None: no item
    is decided."""
    decided = [item for item in items if item.is_decided]
    for item in reversed(decided):
        if static_offset >= item.logic_offset:
            return item
    return decided[0] if decided else None


def find_next(items: Items, current: LogicQueueMappingItem) -> LogicQueueMappingItem | None:
    """The decided item behind `current`."""
    for item, following in pairwise(items):
        if item.gen == current.gen:
            return following if following.is_decided else None
    return None


def end_of(items: Items, item: LogicQueueMappingItem) -> int:
    """The physical offset behind the last one that clients see as the item's: its end, or where
    the next item begins for them; MAX_OFFSET: it is open.

    (RocketMQ knows only the end, which nobody sets. Messages that reach an old queue late can fill
    more than the room that its new leader left: at the offsets behind it, the new leader counts.)
    """
    end = item.end_offset if item.is_end_decided else MAX_OFFSET
    following = find_next(items, item)
    return end if following is None else min(end, item.physical_offset(following.logic_offset))


def led_items(
    detail: TopicQueueMappingDetail, topic: str, global_id: int, remark: str = NOT_LEADER
) -> Items:
    """The items of a logic queue that the broker of `detail` leads. Raises RequestError
    (NOT_LEADER_FOR_QUEUE). remark: of topic, global id and broker name."""
    items = detail.hosted_queues.get(global_id)
    if not items or items[-1].bname != detail.bname:
        text = remark.format(topic, global_id, detail.bname)
        raise RequestError(ResponseCode.NOT_LEADER_FOR_QUEUE, text)
    return items


def item_of(items: Items, topic: str, static_offset: int) -> LogicQueueMappingItem:
    """As `find_item`. Raises RequestError if no item is decided."""
    item = find_item(items, static_offset)
    if item is None:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"topic[{topic}]: the logic offset is not decided yet"
        )
    return item


# -- pulls ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PullPlace:
    """Code and offsets of the answer to a pull: physical, or as the client sees them."""

    code: int
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class LogicPull:
    """One pull of a logic queue: which item it reads."""

    detail: TopicQueueMappingDetail
    items: Items
    current: LogicQueueMappingItem

    def translate(
        self, asked_offset: int, place: PullPlace
    ) -> tuple[PullPlace, LogicQueueMappingItem]:
        """The answer for the client, and the item whose `offset_delta` goes with it. asked_offset:
        the physical one (Java: rewriteResponseForStaticTopic)."""
        item = self.current
        if place.code != ResponseCode.SUCCESS:
            place, item = self._moved(asked_offset, place)
        next_offset = min(place.next_offset, end_of(self.items, item))
        return (
            PullPlace(
                place.code,
                item.static_offset(next_offset),
                item.static_offset(place.min_offset),
                max(item.static_offset(place.max_offset), self.items[-1].max_static_offset),
            ),
            item,
        )

    def limited_count(self, asked_offset: int, count: int) -> int:
        """maxMsgNums of a pull from the item: not beyond its end. asked_offset: physical."""
        return min(max(end_of(self.items, self.current) - asked_offset, 1), count)

    def waits(self, asked_offset: int, place: PullPlace) -> bool:
        """Whether a pull that found nothing stays where it is; at an old item's end it does not."""
        return self.translate(asked_offset, place)[0].code == ResponseCode.PULL_NOT_FOUND

    def _moved(
        self, asked_offset: int, place: PullPlace
    ) -> tuple[PullPlace, LogicQueueMappingItem]:
        """Nothing was found: at an old item's end the next one begins."""
        item = self.current
        is_leader = item.gen == self.items[-1].gen
        is_earliest = item.gen == self._earliest.gen
        if asked_offset < place.min_offset:
            moved = (
                ResponseCode.PULL_OFFSET_MOVED
                if is_earliest
                else ResponseCode.PULL_RETRY_IMMEDIATELY
            )
            return PullPlace(moved, place.min_offset, place.min_offset, place.max_offset), item
        if is_leader:
            code: int = place.code
            next_offset = place.next_offset
            if asked_offset > place.max_offset and code == ResponseCode.PULL_OFFSET_MOVED:
                next_offset = place.max_offset
            if is_earliest and asked_offset >= place.max_offset:
                code = ResponseCode.PULL_NOT_FOUND
            return PullPlace(code, next_offset, place.min_offset, place.max_offset), item
        if asked_offset < place.max_offset:
            return place, item
        following = find_next(self.items, item)
        if following is None:
            nothing = ResponseCode.PULL_NOT_FOUND
            return PullPlace(nothing, place.next_offset, place.min_offset, place.max_offset), item
        start = following.start_offset
        return PullPlace(ResponseCode.PULL_RETRY_IMMEDIATELY, start, start, start), following

    @property
    def _earliest(self) -> LogicQueueMappingItem:
        return next(item for item in self.items if item.is_decided)


# -- changes of a mapping ------------------------------------------------------------------------


def check_items(items: Items) -> None:
    """Raises MappingError for a list whose generations or offsets do not follow each other."""
    newer: LogicQueueMappingItem | None = None
    for item in reversed(items):
        if min(item.start_offset, item.gen, item.queue_id) < 0:
            raise MappingError("The field is illegal, should not be negative")
        if newer is not None and not item.is_decided:
            raise MappingError("The non-latest item has negative logic offset")
        if newer is not None and item.gen >= newer.gen:
            raise MappingError("The gen does not increase monotonically")
        if item.end_offset != -1 and item.end_offset < item.start_offset:
            raise MappingError("The endOffset is smaller than the start offset")
        if newer is not None and newer.logic_offset != -1:
            if item.logic_offset >= newer.logic_offset:
                raise MappingError("The base logic offset does not increase monotonically")
            if item.max_static_offset >= newer.logic_offset:
                raise MappingError("The max logic offset does not increase monotonically")
        newer = item


def check_immutable(old: Items, new: Items, *, epoch_equal: bool) -> None:
    """Raises MappingError if an item of a generation that both lists have was changed otherwise
    than by its end or by the one decision of its logic offset. (Java only asserts that, which is
    off there.) With an equal epoch the leader stays."""
    if not old:
        return
    if not new:
        raise MappingError("The new item list is null or empty")
    by_gen = {item.gen: item for item in old}
    for item in new:
        before = by_gen.get(item.gen)
        if before is None:
            continue
        is_moved = before.is_decided and before.logic_offset != item.logic_offset
        if is_moved or _place(before) != _place(item):
            raise MappingError(f"The item of gen {item.gen} was changed: {before} to {item}")
    if epoch_equal and (old[-1].gen != new[-1].gen or _place(old[-1]) != _place(new[-1])):
        raise MappingError("The new leader is different but epoch equal")


def _place(item: LogicQueueMappingItem) -> tuple[str, int, int]:
    return item.bname, item.queue_id, item.start_offset


def merged_hosted(
    old: TopicQueueMappingDetail, new: TopicQueueMappingDetail, *, force: bool
) -> Mapping[int, Items]:
    """The queues after `new` was sent (513) to a broker that has `old`.

    With force, whatever `new` does not name stays, and what it names replaces. Raises MappingError
    with RocketMQ's remarks.
    """
    if force:
        return {**old.hosted_queues, **new.hosted_queues}
    if new.epoch < old.epoch:
        raise MappingError(f"Can't accept data with small epoch {new.epoch} < {old.epoch}")
    if new.scope != old.scope:
        raise MappingError(f"Can't accept data with unmatched scope {new.scope} != {old.scope}")
    epoch_equal = new.epoch == old.epoch
    hosted: dict[int, Items] = dict(new.hosted_queues)
    for global_id, items in old.hosted_queues.items():
        if global_id in hosted:
            check_immutable(items, hosted[global_id], epoch_equal=epoch_equal)
        elif epoch_equal:
            raise MappingError("Cannot accept equal epoch with null data")
        else:
            hosted[global_id] = items
    return hosted

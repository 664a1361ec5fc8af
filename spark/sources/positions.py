"""Where a read starts and ends: what the options `start` and `end` mean for each queue.

Driver; once for a batch read and once at the first start of a stream. Times are searched by the
brokers, and checked, as brokers of 4.9 answer a time behind the last message with its offset.

Tested by tests/spark/sources/test_positions.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from remoting.body.message_queue import MessageQueue
from spark.sources.cluster import Cluster
from spark.sources.errors import OptionError
from spark.sources.limits import Limits
from spark.sources.rows import split_records

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
"""In the JSON of offsets, as in Spark's source of Kafka."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_TIMESTAMP: Final = "timestamp:"
_GROUP: Final = "group:"
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_FORMS: Final = (
    "earliest, latest, timestamp:<milliseconds or ISO 8601 with zone>, group:<name>, or JSON "
    '{"topic": {"broker": {"queue": offset}}}'
)


@dataclass(frozen=True, slots=True)
class Position:
    """A checked option. `value`: ms of a timestamp; `name`: a group; `offsets`: by topic, broker
    name and queue."""

    kind: str
    value: int = 0
    name: str = ""
    offsets: Mapping[tuple[str, str, int], int] = field(default_factory=dict)

    def says_offset(self, queue: MessageQueue) -> bool:
        """Whether it has the queue's offset from elsewhere than the queue."""
        place = queue.topic, queue.broker_name, queue.queue_id
        return self.kind == "group" or self.offsets.get(place, LATEST_OFFSET) >= 0


def parse_position(text: str, option: str) -> Position:
    """The position that a text names. OptionError."""
    if text.lower() in (EARLIEST, LATEST):
        return Position(text.lower())
    if text.startswith(_TIMESTAMP):
        return Position("timestamp", value=_milliseconds(text.removeprefix(_TIMESTAMP), option))
    if text.startswith(_GROUP) and (name := text.removeprefix(_GROUP).strip()):
        return Position("group", name=name)
    if text.startswith("{"):
        return Position("offsets", offsets=_offsets(text, option))
    raise OptionError(f"option {option}: {text!r} is none of {_FORMS}")


def _milliseconds(text: str, option: str) -> int:
    if _DIGITS.fullmatch(text):
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"option {option}: {text!r} is no time: give milliseconds since 1970 or ISO 8601"
        ) from None
    if time.tzinfo is None:
        raise OptionError(f"option {option}: {text!r} has no time zone: add one, as Z or +02:00")
    # Rounded up: the first whole millisecond that is not before the time.
    return max(-((_EPOCH - time) // _MILLISECOND), 0)


def _offsets(text: str, option: str) -> dict[tuple[str, str, int], int]:
    try:
        tree: Any = json.loads(text)
        return {
            (topic, broker, int(queue)): _offset(offset)
            for topic, brokers in tree.items()
            for broker, queues in brokers.items()
            for queue, offset in queues.items()
        }
    except (ValueError, AttributeError, RecursionError):
        raise OptionError(
            f'option {option}: not offsets as {{"topic": {{"broker": {{"0": 12}}}}}}, with -2 for '
            f"earliest and -1 for latest: {text[:200]!r}"
        ) from None


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST_OFFSET:
        raise ValueError
    return value


# -- resolved ----------------------------------------------------------------------------------


def resolve(
    cluster: Cluster,
    position: Position,
    limits: Mapping[MessageQueue, Limits],
    option: str,
    topics: Collection[str],
) -> dict[MessageQueue, int]:
    """The offset of each queue of a topic; one that was given, or that a group has, may lie outside
    the queue's limits. topics: all that are read. OptionError."""
    if position.kind == "offsets":
        return _given(position, limits, option, topics)
    if position.kind == "group":
        return _of_group(cluster, position.name, limits, option)
    if position.kind == "timestamp":
        return {
            queue: offset_at(cluster, queue, position.value, each) for queue, each in limits.items()
        }
    is_end = position.kind == LATEST
    return {queue: each.end if is_end else each.begin for queue, each in limits.items()}


def _given(
    position: Position,
    limits: Mapping[MessageQueue, Limits],
    option: str,
    topics: Collection[str],
) -> dict[MessageQueue, int]:
    """A queue that is not named: the first offset where a read starts, the last where it ends."""
    names = {(each.topic, each.broker_name, each.queue_id) for each in limits}
    here = {each.topic for each in limits}
    for topic, broker, queue_id in sorted(position.offsets.keys() - names):
        if topic in topics and topic not in here:
            continue
        raise OptionError(
            f"option {option}: topic {topic} has no queue {queue_id} at a broker {broker} now"
        )
    usual = LATEST_OFFSET if option == "end" else EARLIEST_OFFSET
    found = {}
    for queue, each in limits.items():
        offset = position.offsets.get((queue.topic, queue.broker_name, queue.queue_id), usual)
        words = {EARLIEST_OFFSET: each.begin, LATEST_OFFSET: each.end}
        found[queue] = words.get(offset, offset)
    return found


def _of_group(
    cluster: Cluster, group: str, limits: Mapping[MessageQueue, Limits], option: str
) -> dict[MessageQueue, int]:
    """A queue of which the group has read nothing counts from its first offset."""
    found = {queue: cluster.group_offset(group, queue) for queue in limits}
    topics = sorted({queue.topic for queue in limits})
    if all(offset is None for offset in found.values()):
        raise OptionError(
            f"option {option}: group {group} has no progress in {', '.join(topics)}: check its "
            "name with mqadmin consumerProgress"
        )
    return {
        queue: limits[queue].begin if offset is None else offset for queue, offset in found.items()
    }


def offset_at(cluster: Cluster, queue: MessageQueue, timestamp_ms: int, limits: Limits) -> int:
    """The offset of the first message that was stored at this time or later; the queue's end when
    there is none."""
    if limits.begin >= limits.end:
        return limits.end
    found = cluster.search_offset(queue, timestamp_ms)
    if found < limits.end - 1:
        return max(found, limits.begin)
    last = cluster.pull(queue, limits.end - 1, 1)
    records = [each for each in split_records(last.records) if not isinstance(each, str)]
    if records and records[-1].store_timestamp < timestamp_ms:
        return limits.end
    return min(max(found, limits.begin), limits.end)

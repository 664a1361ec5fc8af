"""Pop records of kvStore as check points of the revive topic.

Of a broker with popConsumerKVServiceEnable=true each message that is popped and not acknowledged is
a record in RocksDB; without it a broker keeps check points, as timer messages in the log. Messages
that one pop gave from one queue become one check point, so that handles that clients hold are still
good: an ack names the first message of its pop. (Where that one is acknowledged, the handles of the
others name a check point that does not exist; those messages come again.) Pure but for the reading;
one thread.

Tested by tests/adopt/test_pop_records.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from adopt.rocks_codec import DamagedEntryError, decode_pop_time
from adopt.rocks_database import RocksDatabase
from broker.pop.pop_check_point import PopCheckPoint
from broker.pop.pop_names import CK_TAG, MAX_POP_MESSAGES
from remoting.remoting_serializable import loads_lenient
from store.commit_log import is_storable

_FAMILY: Final = "popState"
_INT31: Final = 1 << 31
_INT63: Final = 1 << 63
REVIVE_QUEUE_ID: Final = 0
"""Which the answers of such a broker name, and therefore the acks."""


class PopRecord(NamedTuple):
    """One message that is popped. Times in ms."""

    group: str
    topic: str
    queue_id: int
    pop_time: int
    invisible_time: int
    offset: int
    attempts: int
    suspends: bool = False
    """5.5: it comes again without counting as an attempt."""


def read_pop_records(directory: Path) -> tuple[list[PopRecord], list[str]]:
    """All of kvStore, and what is damaged, for people. Raises StoreError."""
    found: list[PopRecord] = []
    damaged: list[str] = []
    with RocksDatabase(directory) as database:
        for key, value in database.entries(_FAMILY):
            try:
                found.append(_decode(key, value))
            except (ValueError, RecursionError) as error:
                damaged.append(f"{directory}: {error}"[:300])
    return found, damaged


def _decode(key: bytes, value: bytes) -> PopRecord:
    tree = loads_lenient(value)
    if not isinstance(tree, dict):
        raise DamagedEntryError(f"not a record of a pop: {value[:80]!a}")
    record = PopRecord(
        _name(tree.get("groupId")),
        _name(tree.get("topicId")),
        _number(tree.get("queueId"), _INT31),
        _number(tree.get("popTime"), _INT63),
        _number(tree.get("invisibleTime"), _INT63),
        _number(tree.get("offset"), _INT63),
        _number(tree.get("attemptTimes", 0), _INT31),
        tree.get("suspend") is True,
    )
    if decode_pop_time(key) != record.pop_time + record.invisible_time:
        raise DamagedEntryError(f"key and record of a pop differ: {value[:80]!a}")
    return record


def _name(value: object) -> str:
    if not isinstance(value, str) or not is_storable(value, writes_v2=True):
        raise DamagedEntryError(f"{value!a:.60} is not the name of a topic or group")
    return value


def _number(value: object, limit: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
        raise DamagedEntryError(f"{value!a:.40} is not a number of a pop")
    return value


def check_points(records: Iterable[PopRecord], broker_name: str) -> list[PopCheckPoint]:
    """One for each pop of a queue, in the order in which they become visible."""
    pops: dict[PopRecord, list[int]] = {}
    for record in records:
        pops.setdefault(record._replace(offset=0), []).append(record.offset)
    found = []
    for pop, offsets in pops.items():
        for part in _parts(sorted(set(offsets))):
            found.append(
                PopCheckPoint(
                    start_offset=part[0],
                    pop_time=pop.pop_time,
                    invisible_time=pop.invisible_time,
                    num=len(part),
                    queue_id=pop.queue_id,
                    topic=pop.topic,
                    group=pop.group,
                    queue_offset_diff=[offset - part[0] for offset in part],
                    broker_name=broker_name,
                    re_put_times=str(min(pop.attempts, 127)) if pop.attempts else None,
                    suspend=pop.suspends or None,
                )
            )
    return sorted(found, key=lambda point: (point.revive_time, point.key))


def _parts(offsets: list[int]) -> list[list[int]]:
    """At most as many as a check point can hold, none too far from the first."""
    parts: list[list[int]] = []
    for offset in offsets:
        last = parts[-1] if parts else None
        if last is None or len(last) == MAX_POP_MESSAGES or offset - last[0] >= _INT31:
            parts.append([offset])
        else:
            last.append(offset)
    return parts


def timer_properties(point: PopCheckPoint, revive_topic: str, precision_ms: int = 1000) -> bytes:
    """Of its record in the timer topic, in Java's order."""
    slot_ms = (point.deliver_ms - 1) // precision_ms * precision_ms
    pairs = {
        "REAL_TOPIC": revive_topic,
        "TIMER_DELIVER_MS": str(point.deliver_ms),
        "UNIQ_KEY": point.unique_key,
        "TAGS": CK_TAG,
        "TIMER_OUT_MS": str(slot_ms),
        "REAL_QID": str(REVIVE_QUEUE_ID),
    }
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()

"""Checks: what the clients know against what the brokers hold, after a run. Pure comparisons.

Each check gives the violations it found, as sentences; none means that it held. Nothing here knows
how a broker works: a queue is a list of bodies, a log is bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.chaos.ack_log import SEND_OK, Ack, read_body
from tools.chaos.queue_reading import GAP

_SHOWN: Final = 5

Queues = Mapping[int, Sequence[bytes]]
"""Bodies by queue id; the index is the queue offset."""


def lost(acks: Iterable[Ack], queues: Queues, *, only_ok: bool = False) -> list[str]:
    """Acknowledged messages that are not at the place that their answer named.

    only_ok: those answered SEND_OK, for a store that holds what was replicated.
    """
    found = []
    for ack in acks:
        if only_ok and ack.code != SEND_OK:
            continue
        bodies = queues.get(ack.queue_id, ())
        name = f"message {ack.sequence} of producer {ack.producer}, answered {ack.code}"
        place = f"queue {ack.queue_id} offset {ack.queue_offset}"
        if not 0 <= ack.queue_offset < len(bodies):
            found.append(f"lost: {name}: {place}, where the queue ends at {len(bodies)}")
        elif read_body(bodies[ack.queue_offset]) != (ack.producer, ack.sequence):
            other = bodies[ack.queue_offset][:24]
            found.append(f"lost: {name}: {place} holds {other!r}")
    return found


def held(acks: Iterable[Ack], queues: Queues) -> list[Ack]:
    """Those whose messages are at their places."""
    return [ack for ack in acks if not lost((ack,), queues)]


def places_given_twice(acks: Iterable[Ack]) -> list[str]:
    """Two answers that name the same queue offset."""
    places = Counter((ack.queue_id, ack.queue_offset) for ack in acks)
    return [
        f"queue {queue_id} offset {offset} was given to {count} messages"
        for (queue_id, offset), count in places.items()
        if count > 1
    ]


def invented(queues: Queues, sent: Mapping[int, int]) -> list[str]:
    """Stored messages that nobody sent, or whose bytes are not those that were sent."""
    found = []
    for queue_id, bodies in queues.items():
        for offset, body in enumerate(bodies):
            message = read_body(body)
            if body == GAP:
                continue
            if message is None:
                found.append(f"damaged: queue {queue_id} offset {offset}: {body[:24]!r}")
            elif message[1] >= sent.get(message[0], 0):
                found.append(f"invented: queue {queue_id} offset {offset}: {body[:24]!r}")
    return found


def repeated(queues: Queues) -> list[str]:
    """Messages that are stored more than once; no producer sends one again."""
    counted = Counter(read_body(body) for bodies in queues.values() for body in bodies)
    return [
        f"message {message[1]} of producer {message[0]} is stored {count} times"
        for message, count in counted.items()
        if message is not None and count > 1
    ]


def out_of_order(queues: Queues) -> list[str]:
    """Queues in which a message of a producer stands behind a later one of it."""
    found = []
    for queue_id, bodies in queues.items():
        last: dict[int, int] = {}
        for offset, body in enumerate(bodies):
            message = read_body(body)
            if message is None:
                continue
            producer, sequence = message
            if sequence <= last.get(producer, -1):
                found.append(
                    f"out of order: queue {queue_id} offset {offset} holds message {sequence} of "
                    f"producer {producer}, behind {last[producer]}"
                )
            last[producer] = sequence
    return found


def consumed_otherwise(seen: Queues, queues: Queues) -> list[str]:
    """Where a consumer that followed the run saw other bytes than there are now. A gap, then or
    now, says nothing: it is judged where it may not be."""
    found = []
    for queue_id, bodies in seen.items():
        now = queues.get(queue_id, ())
        if len(bodies) > len(now):
            found.append(f"consumed: queue {queue_id}: {len(bodies)} messages, now {len(now)}")
        found += [
            f"consumed: queue {queue_id} offset {offset}: {was[:24]!r}, now {is_now[:24]!r}"
            for offset, (was, is_now) in enumerate(zip(bodies, now, strict=False))
            if was != is_now and GAP not in (was, is_now)
        ]
    return found


def no_prefix(master: bytes, slave: bytes) -> list[str]:
    """Why the slave's log is not the master's, or the beginning of it."""
    if master.startswith(slave):
        return []
    if slave.startswith(master):
        return [f"the slave's log is longer: {len(slave)} bytes, the master's {len(master)}"]
    at = next(n for n, (a, b) in enumerate(zip(master, slave, strict=False)) if a != b)
    return [f"the logs part at byte {at} of {len(master)} and {len(slave)}"]


def no_prefix_of_files(master: Sequence[Path], slave: Sequence[Path]) -> list[str]:
    """The same for the logs' files, in order; zeros at the end of a log are none of it."""
    masters = {path.name: path for path in master}
    found: list[str] = []
    slaves = [path for path in slave if path.read_bytes().strip(b"\0")]
    for path in slaves:
        theirs = masters.get(path.name)
        data = path.read_bytes()
        if theirs is None:
            found.append(f"the slave has {path.name}, the master has not")
        elif path == slaves[-1]:
            found += no_prefix(theirs.read_bytes(), data.rstrip(b"\0"))
        elif data != theirs.read_bytes():
            found += no_prefix(theirs.read_bytes(), data) or [f"{path.name} differs"]
    return found


def shortened(violations: Sequence[str]) -> list[str]:
    """The first few, and how many more there are."""
    if len(violations) <= _SHOWN:
        return list(violations)
    return [*violations[:_SHOWN], f"... and {len(violations) - _SHOWN} more of this kind"]

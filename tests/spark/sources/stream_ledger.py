"""What streams that are killed must have read: the load on their topic, the sinks, and the judge.

The truth is the sender's own list of what was answered SEND_OK, and where. What was not answered
may be there or not, once at most. Used by the long tests of kills and of failovers.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from spark.sources.outgoing import ROW_ID
from tests.spark.sources.stream_program import PLACE
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, drain

TOPIC: Final = "Killed"
COPIES: Final = "Copies"
QUEUES: Final = 4


class Row(NamedTuple):
    """A message where the sink has it."""

    queue_id: int
    queue_offset: int
    body: bytes


# -- the load --------------------------------------------------------------------------------------


def body_of(number: int) -> bytes:
    return b"%d " % number * 50


def number_of(body: bytes) -> int:
    return int(body.partition(b" ")[0])


class Ledger:
    """What the sender knows. maybe: the numbers of messages that may be stored."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.maybe: set[int] = set()
        self.doubled: list[tuple[int, int]] = []
        self.next_number = 0

    def take(self, place: tuple[int, int], body: bytes) -> None:
        """It was answered SEND_OK."""
        if place in self.acknowledged:
            self.doubled.append(place)
        self.acknowledged[place] = body

    def ends(self) -> dict[int, int]:
        """Behind the last acknowledged message of each queue."""
        found: dict[int, int] = {}
        for queue, offset in list(self.acknowledged):
            found[queue] = max(found.get(queue, 0), offset + 1)
        return found


@contextmanager
def load(ports: Sequence[int], pause_s: float = 0.02) -> Iterator[Ledger]:
    """Sends until the end, on and on, to whichever of the brokers takes messages."""
    end, ledger = threading.Event(), Ledger()

    def run() -> None:
        for port in itertools.cycle(ports):
            if end.wait(0.1):
                return
            with suppress(OSError), FrameClient(("127.0.0.1", port), 5) as client:
                while not end.wait(pause_s) and send(client, ledger):
                    pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: len(ledger.ends()) == QUEUES, 60)
        yield ledger
    finally:
        end.set()
        thread.join()


def send(client: FrameClient, ledger: Ledger) -> bool:
    """The next message; whether it was taken. No number is ever sent twice."""
    number = ledger.next_number
    ledger.next_number += 1
    ledger.maybe.add(number)
    answer = client.send(TOPIC, number % QUEUES, body_of(number))
    if answer.code != 0:
        return False
    ledger.take((answer.queue_id, answer.queue_offset), body_of(number))
    ledger.maybe.discard(number)
    return True


# -- the judge -------------------------------------------------------------------------------------


def judge(rows: Iterable[Row], ledger: Ledger) -> None:
    """Each acknowledged message once at its place, in the order in which it was sent; of the others
    each at most once; no gap."""
    assert not ledger.doubled, "two messages were acknowledged at one place"
    found: dict[tuple[int, int], bytes] = {}
    for row in rows:
        assert (row.queue_id, row.queue_offset) not in found, f"twice: {row}"
        found[row.queue_id, row.queue_offset] = row.body
    lost = [place for place, body in ledger.acknowledged.items() if found.get(place) != body]
    assert not lost, f"{len(lost)} messages are lost or others: {sorted(lost)[:10]}"
    others = [number_of(body) for place, body in found.items() if place not in ledger.acknowledged]
    assert len(others) == len(set(others)), "an unanswered message is there twice"
    assert ledger.maybe.issuperset(others), "messages that nobody sent"
    for queue, group in itertools.groupby(sorted(found), key=lambda place: place[0]):
        offsets = [offset for _, offset in group]
        assert offsets == list(range(len(offsets))), f"a gap in queue {queue}"
        taken = [place for offset in offsets if (place := (queue, offset)) in ledger.acknowledged]
        numbers = [number_of(found[place]) for place in taken]
        assert numbers == sorted(numbers), f"queue {queue} is not in the order of the sender"


def assert_in_order(rows: Iterable[Row]) -> None:
    """Of each queue the offsets grow, in the order in which the sink was given them."""
    last: dict[int, int] = {}
    for row in rows:
        assert row.queue_offset > last.get(row.queue_id, -1), f"behind {last}: {row}"
        last[row.queue_id] = row.queue_offset


# -- the sinks -------------------------------------------------------------------------------------


def rows_of_files(out: Path) -> list[Row]:
    """What Spark's sink of files has committed, batch by batch; of a batch its tasks by their
    ranges, a file's rows as they stand in it."""
    files: dict[Path, int] = {}
    for log in sorted((out / "_spark_metadata").iterdir(), key=_batch_of):
        if log.name.startswith("."):
            continue
        for line in log.read_text("utf-8").splitlines()[1:]:
            files.setdefault(Path(unquote(urlparse(json.loads(line)["path"]).path)), _batch_of(log))
    batches: dict[int, list[list[Row]]] = defaultdict(list)
    for path, batch in files.items():
        table = pq.read_table(path, columns=list(Row._fields))
        batches[batch].append([Row(*each.values()) for each in table.to_pylist()])
    return [
        row
        for batch in sorted(batches)
        for task in sorted(filter(None, batches[batch]), key=min)
        for row in task
    ]


def _batch_of(log: Path) -> int:
    found = re.match(r"\d+", log.name)
    return int(found[0]) if found else -1


def rows_of_copies(client: FrameClient) -> tuple[list[Row], int]:
    """The messages of COPIES, each row id's first one, queue by queue; and how many there are."""
    seen: set[str] = set()
    rows, count = [], 0
    for queue in range(QUEUES):
        for message in drain(client, COPIES, queue):
            properties = message.property_map()
            row_id = properties.get(ROW_ID)
            if row_id is None:  # the first one, which made the topic
                continue
            count += 1
            if row_id not in seen:
                seen.add(row_id)
                source, offset = map(int, properties[PLACE].split("-"))
                rows.append(Row(source, offset, bytes(message.body)))
    return rows, count


def make_copies(client: FrameClient) -> None:
    """The topic, by a first message."""
    wait_until(lambda: client.send(COPIES, 0, b"first").code == 0, 30)

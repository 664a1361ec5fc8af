"""Many records at once, and one by one: the same rows, whatever is in them, and the same errors."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from remoting.request_code import RequestCode
from spark.sources.cluster import Cluster, Pulled
from spark.sources.errors import DataLossError, SourceError
from spark.sources.losses import LossRule
from spark.sources.pulled_rows import LEAST, pulled_batch
from spark.sources.queue_reader import RangeReader, ReadRules
from spark.sources.ranges import Range
from spark.sources.rows import SCHEMA, BatchMaker
from store.batch_codec import encode_item
from store.inner_batch import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from store.message import Message
from store.message_codec import encode_host, encode_record
from tests.spark.sources.fake_queues import FakeQueues
from tests.tools.stored_queues import Stored

TOPIC = "Ω" + "t" * 120
PART = Range(TOPIC, "broker-b", 7, 100, 1000)
MAKER = BatchMaker(SCHEMA)
FRAGMENTS = (b"KEYS", b"TAGS", b"UNIQ_KEY", b"a", b"\x01", b"\x01", b"\x02", b"\x02", b"\xff", b"")


def records(seed: int, count: int = 40, **fields: Any) -> list[bytes]:
    """At the offsets from 100 on."""
    dice = random.Random(seed)
    return [encode_record(message(dice, 100 + place, fields)) for place in range(count)]


def message(dice: random.Random, offset: int, fields: dict[str, Any]) -> Message:
    hosts = [encode_host(f"10.0.0.{dice.randrange(3)}", dice.randrange(70_000)) for _ in range(2)]
    made: dict[str, Any] = {
        "topic": TOPIC,
        "queue_id": PART.queue_id,
        "queue_offset": offset,
        "phy_offset": dice.randrange(2**62),
        "flag": dice.randrange(-5, 5),
        "sys_flag": dice.choice([0, 4, 8, 0x300]),
        "born_timestamp": dice.choice([0, 1795177732426, 2**63 - 1, -(2**63)]),
        "born_host": hosts[0],
        "store_timestamp": dice.randrange(2**41),
        "store_host": hosts[1],
        "reconsume_times": dice.randrange(9),
        "body": dice.randbytes(dice.choice([0, 3, 500])),
        "properties": b"".join(dice.choices(FRAGMENTS, k=dice.randrange(30))),
        **fields,
    }
    return Message(**made)


def pulls(found: list[bytes], size: int = 16, delta: int = 0) -> list[tuple[int, Pulled]]:
    """As a broker answers."""
    made = []
    for at in range(0, len(found), size):
        piece = found[at : at + size]
        offset = 100 + delta + at
        data = b"".join(piece)
        pulled = Pulled(0, offset + len(piece), 0, 2000, delta, data, "a:1", True)
        made.append((offset, pulled))
    return made


def one_by_one(client: Cluster, each: list[tuple[int, Pulled]], part: Range) -> list[Any]:
    reader = RangeReader(client, part, ReadRules(LossRule()))
    found = [message for one in each for message in reader._of_pull(one)]
    return rows(MAKER.batch(found))


def rows(batch: pa.RecordBatch) -> list[Any]:
    return [{**row, "properties": sorted(row["properties"])} for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(30))
def test_the_same_rows(client: Cluster, seed: int) -> None:
    each = pulls(records(seed))
    batch = pulled_batch(PART, each, MAKER.arrow_schema)
    assert batch is not None
    assert rows(batch) == one_by_one(client, each, PART)


def test_a_logic_queue(client: Cluster, stored: FakeQueues) -> None:
    """It has an id and offsets of its own."""
    stored.static(TOPIC)
    part = Range(TOPIC, "b", 7, 1000, 5000)
    each = pulls(records(1, queue_id=2), delta=1000)
    assert pulled_batch(part, each, MAKER.arrow_schema) is None
    batch = pulled_batch(part, each, MAKER.arrow_schema, is_static=True)
    assert batch is not None
    assert rows(batch) == one_by_one(client, each, part)
    assert batch["queue_offset"][0].as_py() == 1100


UNWRAPPED = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
INNER = {"sys_flag": UNWRAPPED, "properties": b"INNER_NUM\x013"}
BATCH = b"".join(encode_item(0, b"x", b"") for _ in range(3))
ODD: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "compressed": lambda r: [*r[:5], *records(1, 1, sys_flag=0x301, body=zlib.compress(b"x"))],
    "with a batch": lambda r: [*r[:5], *records(1, 1, **INNER, body=BATCH), *r[6:]],
    "of another topic": lambda r: [*r[:5], *records(1, 6, topic="T")[5:], *r[6:]],
    "of another queue": lambda r: [*r[:5], *records(1, 6, queue_id=8)[5:], *r[6:]],
    "of IPv6": lambda r: records(1, 20, sys_flag=0x10, born_host=encode_host("::1", 1)),
    "too few": lambda r: r[: LEAST - 1],
    "missing": lambda r: r[:5] + r[6:],
    "twice": lambda r: [*r[:5], r[4], *r[5:]],
    "in another order": lambda r: [r[1], r[0], *r[2:]],
    "damaged": lambda r: [*r[:5], r[5][:90] + b"\x07" + r[5][91:], *r[6:]],
    "cut short": lambda r: [*r[:-1], r[-1][:-1]],
    "of nothing": lambda r: [],
    "with zeros behind": lambda r: [*r[:-1], r[-1] + bytes(9)],
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_left_to_the_general_way(what: str) -> None:
    found = ODD[what](records(3, 40, body=b"y" * 30))
    assert pulled_batch(PART, pulls(found), MAKER.arrow_schema) is None


def test_of_different_logic_queues() -> None:
    """A static topic's queue that moved between two pulls."""
    found = records(1)
    first, second = pulls(found[:20], 20)[0], pulls(found[20:], 20, delta=20)[0]
    assert pulled_batch(PART, [first, second], MAKER.arrow_schema) is None


def test_no_further_than_the_range() -> None:
    """More than was asked for is left to the general way, which leaves it out."""
    part = Range(TOPIC, "b", 7, 100, 139)
    assert pulled_batch(part, pulls(records(1)), MAKER.arrow_schema) is None


class TestReaders:
    """A whole range, both ways."""

    def test_both_ways(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 200)
        part = Range("T", "broker-g", 0, 3, 170)
        for most_bytes in (1, 2_000, 1 << 20):
            reader = RangeReader(client, part, ReadRules(LossRule()))
            batches = list(reader.batches(MAKER, most_bytes))
            assert [row["queue_offset"] for b in batches for row in rows(b)] == list(range(3, 170))
        slow = RangeReader(client, part, ReadRules(LossRule())).messages()
        assert rows(MAKER.batch(list(slow))) == [row for b in batches for row in rows(b)]

    def test_many_at_once_are_used(
        self, client: Cluster, stored: FakeQueues, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stored.plain("T", 200)
        part = Range("T", "broker-g", 0, 0, 200)
        reader = RangeReader(client, part, ReadRules(LossRule()))
        monkeypatch.setattr(reader, "_of_pull", None)
        (batch,) = reader.batches(MAKER, 1 << 20)
        assert batch.num_rows == 200

    def test_rows_and_properties_count_in_a_batch(
        self, client: Cluster, stored: FakeQueues
    ) -> None:
        """As they do in the general way, within a pull: tiny messages need memory, too."""
        most_bytes = 400_000
        for pairs in (0, 100):
            properties = {f"n{number}": "v" for number in range(pairs)}
            stored.topic("T", [[Stored(properties, b"") for _ in range(2_000)]])
            part = Range("T", "broker-g", 0, 0, 2_000)
            reader = RangeReader(client, part, ReadRules(LossRule()))
            fast = [each.num_rows for each in reader.batches(MAKER, most_bytes)]
            reader = RangeReader(client, part, ReadRules(LossRule()))
            slow = [each.num_rows for each in MAKER.batches(reader.messages(), most_bytes)]
            assert slow[0] // 2 <= fast[0] <= slow[0] < 2_000

    def test_losses_are_told(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 100)
        stored.queues["T"][0][50] = b""
        part = Range("T", "broker-g", 0, 0, 100)
        with pytest.raises(DataLossError, match="offsets 50 to 50"):
            list(RangeReader(client, part, ReadRules(LossRule())).batches(MAKER, 1 << 20))

    def test_errors_of_pulls_end_a_read(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 100)
        stored.cluster.always(RequestCode.PULL_MESSAGE, 1, "a disk is broken")
        part = Range("T", "broker-g", 0, 0, 100)
        with pytest.raises(SourceError, match="a disk is broken"):
            list(RangeReader(client, part, ReadRules(LossRule())).batches(MAKER, 1 << 20))

"""Rows: records as bytes, and damaged stores that are opened."""

from __future__ import annotations

import contextlib
import functools
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from store.batch_codec import BATCH_ITEM_HEAD, iterate_batch
from store.batch_records import BatchCommon, BatchPlace, encode_batch
from store.control_slots import MAX_PHY_OFFSET
from store.errors import StoreError
from store.message_codec import decode_record, encode_record, is_blank_at
from store.message_properties import find_property, format_properties, parse_properties
from store.message_store_config import MessageStoreConfig
from store.record_arrays import parse_records
from store.record_properties import PropertyExtractor
from tests.faults.store_world import FILE_SIZE, TOPICS, StoreDesk, Writer, number_of, walk
from tests.faults.store_world import World as StoreFiles
from tests.fuzz.mutation import mutate_bytes, pack_patches, unpack_patches
from tests.fuzz.target import Stateless, Target

_GOLDEN = Path(__file__).parents[1] / "golden" / "store-G" / "master" / "commitlog"
_LEVELS = MessageStoreConfig().delay_level_ms
_COMMON = BatchCommon(
    queue_id=0,
    sys_flag=0,
    born_timestamp=0,
    born_host=bytes(8),
    reconsume_times=0,
    topic=b"\1T",
    properties=b"CLUSTER\1C",
)
MESSAGES = 60


# -- records ---------------------------------------------------------------------------------------


def _read_records(data: bytes) -> None:
    """As a chunk of the log (arrays), one by one, as a batch and as properties."""
    found = parse_records(memoryview(data), 0, PropertyExtractor(_LEVELS))
    at = 0
    for _ in range(found.count):
        message, size = decode_record(data, at)
        assert message.phy_offset == at
        at += size
    with contextlib.suppress(StoreError):
        message, size = decode_record(data, 0)
        # What is no UTF-8 was replaced.
        assert "\ufffd" in message.topic or len(encode_record(message)) == size
    with contextlib.suppress(StoreError):
        for item in iterate_batch(data):
            find_property(bytes(item.properties), b"TAGS")
    _encode_batch(data)
    with contextlib.suppress(StoreError):
        is_blank_at(data, 0)
    text = data.decode(errors="surrogateescape")
    parsed = parse_properties(text)
    assert parse_properties(format_properties(parsed)) == parsed
    find_property(data, b"KEYS")


def _encode_batch(data: bytes) -> None:
    """The records of a batch made together hold what its items hold."""
    place = BatchPlace(0, 0, 0, bytes(8), 1 << 30)
    made = encode_batch(memoryview(data), _COMMON, place, lambda _joined, _texts: True)
    if made is None:
        return
    records = [decode_record(made[0], at)[0] for at in made[1]]
    items = list(iterate_batch(data))
    assert [(r.flag, r.body) for r in records] == [(i.flag, bytes(i.body)) for i in items]
    assert [r.queue_offset for r in records] == list(range(len(items)))
    for record, item in zip(records, items, strict=True):
        assert record.properties.startswith(bytes(item.properties))


@functools.cache
def _record_seeds() -> Sequence[bytes]:
    raw = (_GOLDEN / f"{0:020d}").read_bytes()
    found, at = [], 0
    while at < 4000:
        _, size = decode_record(raw, at)
        found.append(raw[at : at + size])
        at += size
    batch = b"".join(
        len(item).to_bytes(4, "big") + item
        for item in (bytes(4) + bytes(8) + b"\0\0\0\4body\0\7TAGS\1a\2",) * 2
    )
    item = BATCH_ITEM_HEAD.pack(31, 0, 0, 1, 4) + b"body\0\5A\1bc\2"
    return [
        *found,
        raw[:1200],
        batch,
        item * 5,
        item + item[:3] + b"\x20",
        b"TAGS\x01a\x02KEYS\x01k k2\x02",
        bytes(100),
    ]


# -- stores ----------------------------------------------------------------------------------------


class _DamagedStore:
    """A store of MESSAGES messages; each input patches its files, then it is opened.

    Every record whose bytes no patch touched is still found afterwards, queue offsets are not used
    twice, and a message that is written then is read.
    """

    def __init__(self, root: Path, *, patched: str, is_clean: bool) -> None:
        self._root, self._patched = root, patched
        self._whole = root / "whole"
        world = StoreFiles(self._whole).boot()
        desk = StoreDesk(world).open()
        writer = Writer(world).open()
        for first in range(0, MESSAGES, 5):
            writer.write(range(first, first + 5))
            desk.allocate()
        desk.dispatch()
        desk.flush()
        self._records = [
            (message.phy_offset, end, number_of(message), message.topic, message.queue_id)
            for message, end in walk(world, world.counter(_MAX_PHY))
        ]
        assert len(self._records) == MESSAGES
        writer.close()
        if is_clean:
            desk.shutdown()
        else:
            desk.abandon()
        world.close()
        self._files = sorted(
            path.relative_to(self._whole)
            for path in self._whole.rglob("*")
            if path.is_file() and path.relative_to(self._whole).parts[0] in patched.split()
        )

    def run(self, data: bytes) -> None:
        """Patch a copy, open it, look."""
        copy = self._root / "copy"
        shutil.copytree(self._whole, copy)
        try:
            touched = self._patch(copy, data)
            self._open(copy, touched)
        finally:
            shutil.rmtree(copy)

    def _patch(self, copy: Path, data: bytes) -> list[tuple[int, int]]:
        """The changed stretches of the log. A place counts through all the files in order; a patch
        of no bytes cuts the file there."""
        touched = []
        sizes = [(copy / path).stat().st_size for path in self._files]
        for place, patch in unpack_patches(data):
            place %= sum(sizes)
            number = 0
            while place >= sizes[number]:
                place -= sizes[number]
                number += 1
            path = copy / self._files[number]
            if "commitlog" in self._patched:
                start = int(path.name) + place
                patch = patch[: sizes[number] - place]
                touched.append((start, start + len(patch)))
            if patch:
                with path.open("r+b") as file:
                    file.seek(place)
                    file.write(patch)
            elif "commitlog" not in self._patched:
                with path.open("r+b") as file:
                    file.truncate(place)
        return touched

    def _open(self, copy: Path, touched: Sequence[tuple[int, int]]) -> None:
        world = StoreFiles(copy).boot()
        desk = StoreDesk(world)
        writer: Writer | None = None
        try:
            try:
                desk.open()
            except StoreError:
                assert "commitlog" not in self._patched, "a damaged log was refused"
                return
            desk.dispatch()
            writer = Writer(world).open()
            self._judge(world, touched, writer)
            before = world.counter(_MAX_PHY)
            writer.write([MESSAGES])
            desk.dispatch()
            found = {number_of(message) for message, _ in walk(world, world.counter(_MAX_PHY))}
            assert MESSAGES in found
            assert world.counter(_MAX_PHY) > before
        finally:
            if writer is not None:
                writer.close()
            with contextlib.suppress(AttributeError):
                desk.abandon()
            world.close()

    def _judge(self, world: StoreFiles, touched: Sequence[tuple[int, int]], writer: Writer) -> None:
        untouched = [
            record
            for record in self._records
            if all(end <= record[0] or start >= record[1] for start, end in touched)
        ]
        found = {m.phy_offset: number_of(m) for m, _ in walk(world, world.counter(_MAX_PHY))}
        lost = [number for at, _, number, *_ in untouched if found.get(at) != number]
        assert not lost, f"whole records {lost} are gone"
        for topic in TOPICS:
            for queue_id in range(3):
                count = sum(r[3:] == (topic, queue_id) for r in untouched)
                following = writer.log.next_offset(topic, queue_id) or 0
                assert following >= count, f"{topic}/{queue_id}: {following} of {count}"

    def check(self) -> None:
        """Each input has a store of its own."""

    def close(self) -> None:
        """Only files."""


_MAX_PHY = MAX_PHY_OFFSET


def _patch_seeds(most: int) -> Sequence[bytes]:
    rng = random.Random(5)
    ones = [pack_patches((rng.randrange(most), rng.randbytes(n))) for n in (1, 2, 4, 8, 40)]
    zeros = [pack_patches((rng.randrange(most), bytes(n))) for n in (4, 20, 250)]
    return [*ones, *zeros, pack_patches((0, bytes(8))), pack_patches((4, b"\xda\xa3\x20\xa7"))]


def _mutate_patches(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    patches = unpack_patches(data)
    if not patches or rng.random() < 0.2:
        return mutate_bytes(rng, data, tokens)
    at = rng.randrange(len(patches))
    place, patch = patches[at]
    change = rng.random()
    if change < 0.3:
        patches[at] = (rng.randrange(FILE_SIZE * 4), patch)
    elif change < 0.5:
        patches[at] = (max(place + rng.choice((-4, -1, 1, 4, 20, 100)), 0), patch)
    elif change < 0.8:
        patches[at] = (place, mutate_bytes(rng, patch, tokens)[:255])
    else:
        patches.append((rng.randrange(FILE_SIZE * 4), rng.randbytes(rng.choice((1, 4, 20, 200)))))
    return pack_patches(*patches)


def _store_row(name: str, what: str, patched: str, *, is_clean: bool) -> Target:
    return Target(
        name=name,
        what=what,
        world=functools.partial(_DamagedStore, patched=patched, is_clean=is_clean),
        seeds=lambda: _patch_seeds(FILE_SIZE),
        rooms=("store",),
        mutate=_mutate_patches,
        tokens=lambda: [b"\xda\xa3\x20\xa7", b"\xcb\xd4\x31\x94", bytes(8), b"\xff\xff\xff\xff"],
        largest=1024,
        lives=100_000,
    )


ROWS = (
    Target(
        name="records",
        what="stored records, batches and properties",
        world=lambda _root: Stateless(_read_records),
        seeds=_record_seeds,
        rooms=("store",),
        tokens=lambda: [
            b"\xda\xa3\x20\xa7",
            b"\xcb\xd4\x31\x94",
            b"TAGS\x01",
            b"KEYS\x01",
            b"\x02",
        ],
    ),
    _store_row(
        "recovery", "a commit log with changed bytes, after a kill", "commitlog", is_clean=False
    ),
    _store_row(
        "queue-files",
        "consume queues and index with changed bytes, after an orderly stop",
        "consumequeue index",
        is_clean=True,
    ),
)

"""Tags codes and index key hashes of many records at once, out of their properties.

Used by record_arrays, on its caller's thread. Properties of one length become the rows of a byte
matrix. The first row is parsed as a template: its separators and names must be the same in the
other rows, whose values may differ; then TAGS, UNIQ_KEY, KEYS and DELAY are fixed columns, and a
Java hash is one matrix product with powers of 31. Rows that differ get templates of their own; the
rest (few of a kind, non-ASCII values) is read one by one, and its keys are hashed together. The
result does not depend on which way was taken. It knows properties, not records, queues or index
files.
Corresponds to RocketMQ's CommitLog.checkMessageAndReturnSize and IndexService.buildIndex.

Tested by tests/store/test_record_arrays.py.
"""

from __future__ import annotations

import functools
import logging
import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store.java_hash import TAG_KEY, index_key_hash, string_hash, tags_code
from store.message_properties import find_property
from store.property_template import DELAY, KEYS, TAGS, UNIQ_KEY, Bytes2D, PropertyTemplate

log = logging.getLogger(__name__)

Int64Array = NDArray[np.int64]

SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
_UNKNOWN_LEVEL_DELAY_MS: Final = 1000
_MASK: Final = 0xFFFFFFFF
_FEW_ROWS: Final = 16
"""Fewer records with properties of one length than this are read faster one by one."""
_FEW_OF_A_FORM: Final = 48
"""A template that fits fewer rows, and not all of its length, costs more than it saves; the more
rows there are, the more such misses are borne."""
_TAG_CACHE_LIMIT: Final = 10_000
_KNOWN_TOPICS: Final = 1 << 16
_POWERS: Final = np.cumprod(np.r_[1, np.full((1 << 15) - 1, 31)], dtype=np.uint32)
"""31 ** i modulo 2 ** 32; properties are shorter than that."""
_TAG_KEY: Final = TAG_KEY.encode()
_TAG_KEY_HASH: Final = np.uint32(string_hash(TAG_KEY))
_JAVA_INT: Final = re.compile(r"[+-]?\d{1,10}")


@dataclass(slots=True)
class _KeyPart:
    """Key hashes of the records `rows`: one matrix row for each, its keys from left to right."""

    rows: Int64Array
    hashes: NDArray[np.uint32]


@dataclass(slots=True)
class _Result:
    """Filled while the rows are processed."""

    tags_codes: Int64Array
    key_parts: list[_KeyPart] = field(default_factory=list)
    word_rows: list[int] = field(default_factory=list)
    words: list[bytes] = field(default_factory=list)
    """Keys that were found one by one, and the record of each; a record's keys are together."""


@dataclass(slots=True)
class _Topics:
    """The batch's topics as the key hashes and the delay rule need them."""

    ids: Int64Array
    hashes: NDArray[np.uint32]
    """Java hash of "topic#" for each topic id."""
    schedule_id: int
    """The schedule topic's id, -1 when no record has it."""


def _hash_columns(table: Bytes2D, first: int, end: int) -> NDArray[np.uint32]:
    """Java hash (unsigned) of the ASCII text in columns [first, end) of every row."""
    powers = _POWERS[: end - first][::-1]
    hashes: NDArray[np.uint32] = np.einsum("ij,j->i", table[:, first:end].astype(np.uint32), powers)
    return hashes


class PropertyExtractor:
    """Finds tags codes and key hashes. Owned by: the thread that dispatches."""

    def __init__(
        self, delay_levels: dict[int, int], *, with_keys: bool = True, with_lmq: bool = False
    ) -> None:
        """delay_levels: level -> ms (MessageStoreConfig.delay_level_ms).

        with_keys: there is an index. with_lmq: the records' places in light queues are wanted.
        """
        self.with_lmq: Final = with_lmq
        self._max_level = max(delay_levels, default=0)
        self._with_keys = with_keys
        self._tag_cache: dict[bytes, int] = {}
        delays = [delay_levels.get(i, _UNKNOWN_LEVEL_DELAY_MS) for i in range(self._max_level + 1)]
        self._delay_table = np.array(delays, np.int64)

    def extract(
        self,
        view: memoryview,
        properties_at: Int64Array,
        properties_sizes: Int64Array,
        topics: list[bytes],
        topic_ids: Int64Array,
        store_timestamps: Int64Array,
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """(tags codes, key hashes, record of each key); keys in the order of the records."""
        result = _Result(np.zeros(len(properties_at), np.int64))
        group = _Topics(
            topic_ids,
            np.array([_topic_hash(topic) for topic in topics], np.uint32),
            topics.index(SCHEDULE_TOPIC) if SCHEDULE_TOPIC in topics else -1,
        )
        few, groups = _rows_by_size(properties_sizes)
        self._take_one_by_one(
            _texts(view, properties_at[few], properties_sizes[few]),
            few,
            group,
            store_timestamps,
            result,
        )
        for size, rows in groups:
            table = _table(view, properties_at[rows], size)
            self._take_alike(table, rows, group, store_timestamps, result)
        hashes, records = _join_keys(len(properties_at), group, result)
        return result.tags_codes, hashes, records

    def delay_ms(self, level: int) -> int:
        """Of a delay level."""
        return int(self._delay_table[max(0, min(level, self._max_level))])

    def tags_code(self, properties: bytes) -> int:
        """The tags code of one record outside of the schedule topic."""
        tags = find_property(properties, TAGS)
        return 0 if tags is None else self._tags_code(tags)

    def _take_alike(
        self,
        table: Bytes2D,
        rows: Int64Array,
        topics: _Topics,
        times: Int64Array,
        result: _Result,
    ) -> None:
        """The records `rows`, whose properties all have one size."""
        misses = 0
        while len(rows) > misses * 2 * _FEW_OF_A_FORM:
            template = PropertyTemplate(table[0].tobytes())
            same = template.like(table)
            if same is None:
                self._take_columns(template, table, rows, topics, times, result)
                return
            if int(same.sum()) >= _FEW_OF_A_FORM:
                self._take_columns(template, table[same], rows[same], topics, times, result)
            else:
                misses += 1
                same[0] = True  # It may break its own form, with a \x01 in a value.
                self._take_table(table[same], rows[same], topics, times, result)
            table, rows = table[~same], rows[~same]
        self._take_table(table, rows, topics, times, result)

    def _take_columns(
        self,
        template: PropertyTemplate,
        table: Bytes2D,
        rows: Int64Array,
        topics: _Topics,
        times: Int64Array,
        result: _Result,
    ) -> None:
        """Rows of one form: hashes of whole columns."""
        spans = template.spans
        if TAGS in spans:
            hashes = _hash_columns(table, *spans[TAGS])
            result.tags_codes[rows] = hashes.view(np.int32)
        if topics.schedule_id >= 0 and DELAY in spans:
            delayed = np.flatnonzero(topics.ids[rows] == topics.schedule_id)
            self._delay_columns(
                table[delayed, slice(*spans[DELAY])], rows[delayed], times, result.tags_codes
            )
        if self._with_keys and (template.key_spans or TAGS in spans):
            found = np.empty((len(rows), len(template.key_spans) + (TAGS in spans)), np.uint32)
            prefix = topics.hashes[topics.ids[rows]]
            for column, (first, end) in enumerate(template.key_spans):
                found[:, column] = prefix * _POWERS[end - first] + _hash_columns(table, first, end)
            if TAGS in spans:
                first, end = spans[TAGS]
                prefix = prefix * _POWERS[len(_TAG_KEY)] + _TAG_KEY_HASH
                found[:, -1] = prefix * _POWERS[end - first] + hashes
            result.key_parts.append(_KeyPart(rows, found))

    def _delay_columns(
        self, digits: Bytes2D, rows: Int64Array, times: Int64Array, tags_codes: Int64Array
    ) -> None:
        """Delivery times of delayed records whose level is spelled in `digits`."""
        plain = digits.shape[1] <= 9 and bool(((digits >= 0x30) & (digits <= 0x39)).all())
        if not plain:
            for row, text in zip(rows.tolist(), digits, strict=True):
                self._delay_one(text.tobytes(), row, times, tags_codes)
            return
        powers = np.array([10**i for i in range(digits.shape[1])][::-1], np.int64)
        levels = np.minimum((digits.astype(np.int64) - 0x30) @ powers, self._max_level)
        delayed = levels > 0
        tags_codes[rows[delayed]] = times[rows[delayed]] + self._delay_table[levels[delayed]]

    # -- one by one ----------------------------------------------------------------------------

    def _take_table(
        self,
        table: Bytes2D,
        rows: Int64Array,
        topics: _Topics,
        times: Int64Array,
        result: _Result,
    ) -> None:
        self._take_one_by_one([row.tobytes() for row in table], rows, topics, times, result)

    def _take_one_by_one(
        self,
        texts: list[bytes],
        rows: Int64Array,
        topics: _Topics,
        times: Int64Array,
        result: _Result,
    ) -> None:
        """Records one by one, 2 us each."""
        tags_codes, with_keys = result.tags_codes, self._with_keys
        for text, row in zip(texts, rows.tolist(), strict=True):
            tags_codes[row] = self.tags_code(text)
            if topics.schedule_id >= 0 and topics.ids[row] == topics.schedule_id:
                delay = find_property(text, DELAY)
                if delay is not None:
                    self._delay_one(delay, row, times, tags_codes)
            if with_keys:
                words = _words(text)
                result.words += words
                result.word_rows += [row] * len(words)

    def _tags_code(self, tags: bytes) -> int:
        code = self._tag_cache.get(tags)
        if code is None:
            if len(self._tag_cache) >= _TAG_CACHE_LIMIT:
                self._tag_cache.clear()
            code = self._tag_cache[tags] = tags_code(tags.decode("utf-8", "replace"))
        return code

    def _delay_one(self, text: bytes, row: int, times: Int64Array, tags_codes: Int64Array) -> None:
        """Unlike RocketMQ, a level that is no number does not stop the dispatch."""
        spelled = text.decode("utf-8", "replace")
        if _JAVA_INT.fullmatch(spelled) is None:
            log.warning("delayed record with DELAY %r: not a level, keeping its tags", spelled)
            return
        level = min(int(spelled), self._max_level)
        if level > 0:
            tags_codes[row] = times[row] + self._delay_table[level]


@functools.lru_cache(_KNOWN_TOPICS)
def _topic_hash(topic: bytes) -> int:
    return string_hash(topic.decode("utf-8", "replace") + "#") & _MASK


def key_hashes(properties: bytes, topic: str) -> list[int]:
    """Index hashes of one record's keys, in the order of `PropertyExtractor.extract`."""
    words = _words(properties)
    return [index_key_hash(f"{topic}#{str(word, 'utf-8', 'replace')}") for word in words]


def _words(properties: bytes) -> list[bytes]:
    """The keys of one record: UNIQ_KEY, the words of KEYS, and its tags behind T#."""
    uniq_key = find_property(properties, UNIQ_KEY)
    keys = find_property(properties, KEYS)
    tags = find_property(properties, TAGS)
    words = [] if uniq_key is None else [uniq_key]
    if keys is not None:
        words += [word for word in keys.split(b" ") if word] if b" " in keys else [keys]
    if tags is not None:
        words.append(_TAG_KEY + tags)
    return words


def _hash_words(words: list[bytes], prefixes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Java hash (unsigned) of each word, none empty, behind a text whose hash is its prefix."""
    blob = b"".join(words)
    if blob.isascii():
        units = np.frombuffer(blob, np.uint8).astype(np.uint32)
        lengths = np.array([len(word) for word in words], np.int64)
    else:
        texts = [
            word.decode("utf-8", "replace").encode("utf-16-be", "surrogatepass") for word in words
        ]
        units = np.frombuffer(b"".join(texts), ">u2").astype(np.uint32)
        lengths = np.array([len(text) // 2 for text in texts], np.int64)
    ends = np.cumsum(lengths)
    units *= _POWERS[np.repeat(ends, lengths) - 1 - np.arange(len(units))]
    hashes: NDArray[np.uint32] = np.add.reduceat(units, ends - lengths, dtype=np.uint32)
    return hashes + prefixes * _POWERS[lengths]


def _texts(view: memoryview, at: Int64Array, sizes: Int64Array) -> list[bytes]:
    return [
        bytes(view[start : start + size])
        for start, size in zip(at.tolist(), sizes.tolist(), strict=True)
    ]


def _table(view: memoryview, at: Int64Array, size: int) -> Bytes2D:
    """`size` bytes at each place, a row each."""
    strided = np.ndarray((len(view) - size + 1,), f"V{size}", view, 0, (1,))
    return strided[at].view(np.uint8).reshape(len(at), size)


def _rows_by_size(sizes: Int64Array) -> tuple[Int64Array, list[tuple[int, Int64Array]]]:
    """(records whose size few others have, the rest grouped by size), each in order."""
    rows = np.arange(len(sizes), dtype=np.int64)
    if len(sizes) < _FEW_ROWS:
        return rows, []
    if (sizes == sizes[0]).all():
        return rows[:0], [(int(sizes[0]), rows)] if sizes[0] else []
    order = np.argsort(sizes.astype(np.uint16), kind="stable")
    ordered = sizes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    counts = np.diff(starts, append=len(sizes))
    is_few = np.repeat(counts, counts) < _FEW_ROWS
    groups = [
        (int(ordered[start]), order[start : start + count])
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
        if count >= _FEW_ROWS and ordered[start]
    ]
    return np.sort(order[is_few]), groups


def _join_keys(count: int, topics: _Topics, result: _Result) -> tuple[Int64Array, Int64Array]:
    """All keys in the order of their records, as index hashes, and the record of each."""
    parts = result.key_parts
    if len(parts) == 1 and len(parts[0].rows) == count:
        width = parts[0].hashes.shape[1]
        rows = np.arange(count, dtype=np.int64)
        return _index_hashes(parts[0].hashes.reshape(-1)), np.repeat(rows, width)
    of_words = np.array(result.word_rows, np.int64)
    widths = np.bincount(of_words, minlength=count)
    for part in parts:
        widths[part.rows] = part.hashes.shape[1]
    starts = np.cumsum(widths) - widths
    hashes = np.zeros(int(widths.sum()), np.uint32)
    for part in parts:
        columns = np.arange(part.hashes.shape[1])
        hashes[starts[part.rows][:, None] + columns] = part.hashes
    if len(of_words):
        prefixes = topics.hashes[topics.ids[of_words]]
        # Each word's number within its record.
        numbers = np.arange(len(of_words))
        is_first = np.diff(of_words, prepend=-1) != 0
        numbers -= np.maximum.accumulate(np.where(is_first, numbers, 0))
        hashes[starts[of_words] + numbers] = _hash_words(result.words, prefixes)
    return _index_hashes(hashes), np.repeat(np.arange(count, dtype=np.int64), widths)


def _index_hashes(hashes: NDArray[np.uint32]) -> Int64Array:
    """As IndexFile.indexKeyHashMethod: absolute value, Integer.MIN_VALUE is 0."""
    found = np.abs(hashes.view(np.int32).astype(np.int64))
    found[found == 1 << 31] = 0
    return found

"""PropertyTemplate: the form of one record's properties, compared with many others at once.

Used by record_properties, on its caller's thread. It knows properties of one length, not records or
hashes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Bytes2D = NDArray[np.uint8]

TAGS: Final = b"TAGS"
UNIQ_KEY: Final = b"UNIQ_KEY"
KEYS: Final = b"KEYS"
DELAY: Final = b"DELAY"
_NAMES: Final = (TAGS, UNIQ_KEY, KEYS, DELAY)
_PAIR_END: Final = 2
_BLANK: Final = 0x20


class PropertyTemplate:
    """The form of one properties text: which columns are fixed, which hold the wanted values."""

    __slots__ = ("fixed", "highest", "key_spans", "keys_span", "lowest", "spans", "text")

    def __init__(self, properties: bytes) -> None:
        """Reads the pairs; of equal names the last counts, a pair without value is none."""
        self.text = np.frombuffer(properties, np.uint8)
        self.spans: dict[bytes, tuple[int, int]] = {}
        self.fixed = np.zeros(len(properties), np.bool_)
        start = 0
        for pair in properties.split(b"\x02"):
            self._read_pair(pair, start)
            start += len(pair) + 1
        self.fixed |= self.text == _PAIR_END
        self.keys_span = self.spans.get(KEYS, (0, 0))
        self.key_spans = self._split_keys(properties)
        self.lowest = np.where(self.fixed, self.text, _PAIR_END + 1)
        self.highest = np.where(self.fixed, self.text, 0xFF)
        for first, end in self.spans.values():
            self.highest[first:end] = 0x7F

    def _read_pair(self, pair: bytes, start: int) -> None:
        name, separator, value = pair.partition(b"\x01")
        if not separator:
            return
        value_at = start + len(name) + 1
        self.fixed[start:value_at] = True
        if name in _NAMES and value:
            self.spans[name] = value_at, value_at + len(value)

    def _split_keys(self, properties: bytes) -> list[tuple[int, int]]:
        found = [self.spans[UNIQ_KEY]] if UNIQ_KEY in self.spans else []
        start, end = self.keys_span
        for word in properties[start:end].split(b" "):
            if word:
                found.append((start, start + len(word)))
            start += len(word) + 1
        return found

    def like(self, table: Bytes2D) -> NDArray[np.bool_] | None:
        """Which rows have this form; None = all have."""
        start, end = self.keys_span
        blanks = self.text[start:end] == _BLANK
        low, high = table.min(axis=0), table.max(axis=0)
        if (
            (low >= self.lowest).all()
            and (high <= self.highest).all()
            and not ((table[:, start:end] == _BLANK) != blanks).any()
        ):
            return None
        fits = np.all((table >= self.lowest) & (table <= self.highest), axis=1)
        return np.asarray(
            fits & np.all((table[:, start:end] == _BLANK) == blanks, axis=1), np.bool_
        )

"""How many bytes are read for CRCs: by BodyCrcs, and beside it by the codec."""

from __future__ import annotations

import pytest

from store import body_crcs, message_codec, record_walk
from store.crc32 import Crc32, crc32


class CountedCrcs:
    """From now on. `bytes`: that were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        monkeypatch.setattr(body_crcs, "crc32", self._crc)
        for module in (body_crcs, message_codec, record_walk):
            monkeypatch.setattr(module, "crc32_for", self._chosen)

    def _chosen(self, _size: int) -> Crc32:
        return self._crc

    def _crc(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int:
        self.bytes += len(data)
        return crc32(data, value)

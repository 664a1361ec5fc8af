"""AckBins: acknowledgements a quarter second, for the picture of a run. A thread of its own."""

from __future__ import annotations

import threading
from typing import Final

from tools.chaos.ack_log import AckLog

BIN_S: Final = 0.25


class AckBins:
    """Counts while it is entered."""

    def __init__(self, acks: AckLog, bins: list[int]) -> None:
        self._acks = acks
        self._bins = bins
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        before = len(self._acks.acks)
        while not self._end.wait(BIN_S):
            now = len(self._acks.acks)
            self._bins.append(now - before)
            before = now

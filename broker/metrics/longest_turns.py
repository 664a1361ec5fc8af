"""LongestTurns: the longest turn of the loop of `remoting` since its start, by request code.

Runs on the loop thread. One thread serves everybody: while a turn lasts nobody else is answered, so
the request that makes it long has to be found. The codes are those of all requests that the turn
served: of a turn with several the long one is not known. A turn without a request (timers,
dispatch) is counted under `none`. A turn's length is measured anyway (HotPathStats); short turns
end with one comparison. Knows no request.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.metrics import metrics_table as table
from ipc.metric_slots import MetricSlots
from remoting.request_code import RequestCode

LEAST_NS: Final = 1_000_000
"""Shorter turns are not noted: nobody notices them, and they are nearly all."""
_NS_PER_S: Final = 1_000_000_000
_NAMES: Final = {int(code): code.name.lower() for code in RequestCode}
_NONE: Final = "none"
_UNKNOWN: Final = "unknown"


class LongestTurns:
    """See the module. Owned by: the loop thread; `text` by any."""

    def __init__(self, slots: MetricSlots) -> None:
        self._slots = slots
        self._longest: dict[str, int] = {}
        """By name of the code; ns."""
        # What a process before this one measured is not true of this one.
        for labels in slots.series(table.LONGEST_TURN.name):
            slots.hide(table.LONGEST_TURN.name, labels, is_gauge=True)

    def note(self, elapsed_ns: int, codes: Collection[int]) -> None:
        """A turn that served requests of `codes` took `elapsed_ns`."""
        for name in {_NAMES.get(code, _UNKNOWN) for code in codes} or (_NONE,):
            if elapsed_ns > self._longest.get(name, 0):
                self._longest[name] = elapsed_ns
                slot = self._slots.find(table.LONGEST_TURN.name, (name,))
                self._slots.values[slot] = elapsed_ns / _NS_PER_S

    def text(self) -> str:
        """The longest, as mqadmin shows it: `12.3 ms (send_message_v2)`; empty before there was
        one."""
        longest = dict(self._longest)
        if not longest:
            return ""
        name = max(longest, key=longest.__getitem__)
        return f"{longest[name] / 1_000_000:.1f} ms ({name})"

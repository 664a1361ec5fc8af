"""UncomparedEnd: where our log ended when it went on without a comparison with its master's.

With haMasterAddress, or where access control refuses the questions, a slave follows a master whose
log it cannot compare with its own. If ours held records that this master has lost, what is received
then hides it: the last record is the master's from then on. So the next comparison asks about the
place at which we went on, until an answer says that the logs belong together there. Owned by
HAClient's thread; forgotten when the process ends.
"""

from __future__ import annotations

from typing import Final

from ha.inspection import Inspection, Verdict

_TOO_LATE: Final = frozenset((Verdict.BELOW_MIN, Verdict.START_AT))


class UncomparedEnd:
    """See the module."""

    def __init__(self) -> None:
        self._offset: int | None = None

    def question(self, end: int) -> int:
        """Which end of ours the next inspection is about; `end` is the real one."""
        return end if self._offset is None else min(self._offset, end)

    def note(self, found: Inspection, asked: int, end: int) -> bool:
        """What an inspection about `asked` has found. True: it says nothing about our real end, ask
        about that."""
        if found.verdict is Verdict.GO and found.master_max < 0:
            self._offset = self.question(asked)
            return False
        is_answered = found.verdict is Verdict.GO or (found.verdict in _TOO_LATE and asked < end)
        if is_answered:
            self._offset = None
        return is_answered and asked < end

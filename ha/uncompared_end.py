"""UncomparedEnd: where our log ended when it went on without a comparison with its master's.

With haMasterAddress, or where access control refuses the questions, a slave follows a master whose
log it cannot compare with its own. If ours held records that this master has lost, what is received
then hides it: the last record is the master's from then on. So the next comparison asks about the
place at which we went on, until an answer says that the logs belong together there. The place is
kept in `commitlog-uncompared.json` beside the log, written before the link that goes on there is
opened: a restart would forget it otherwise, and take the end for all. Owned by HAClient's thread.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final

from ha.inspection import Inspection, Verdict
from store.atomic_write import atomic_write

log = logging.getLogger(__name__)

_TOO_LATE: Final = frozenset((Verdict.BELOW_MIN, Verdict.START_AT))
_OFFSET: Final = "phyOffset"


def uncompared_path(commit_log: Path) -> Path:
    """commit_log: the log's directory, of several the first."""
    return commit_log.with_name(f"{commit_log.name}-uncompared.json")


class UncomparedEnd:
    """See the module."""

    def __init__(self, path: Path) -> None:
        """A file that cannot be understood is told of, and counts for nothing."""
        self._path = path
        self._offset = _read(path)

    def question(self, end: int) -> int:
        """Which end of ours the next inspection is about; `end` is the real one."""
        return end if self._offset is None else min(self._offset, end)

    def note(self, found: Inspection, asked: int, end: int) -> bool:
        """What an inspection about `asked` has found. True: it says nothing about our real end, ask
        about that."""
        if found.verdict is Verdict.GO and found.master_max < 0:
            self._keep(self.question(asked))
            return False
        is_answered = found.verdict is Verdict.GO or (found.verdict in _TOO_LATE and asked < end)
        if is_answered:
            self._keep(None)
        return is_answered and asked < end

    def _keep(self, offset: int | None) -> None:
        if offset == self._offset:
            return
        self._offset = offset
        try:
            if offset is None:
                self._path.unlink(missing_ok=True)
            else:
                atomic_write(self._path, json.dumps({_OFFSET: offset}).encode())
        except OSError as error:
            log.error(
                "%s: cannot be written: %s; after a restart the log may be compared with the "
                "master's at its end only",
                self._path,
                error.strerror or error,
            )


def _read(path: Path) -> int | None:
    try:
        offset = json.loads(path.read_bytes())[_OFFSET]
        if type(offset) is int and offset >= 0:
            return offset
        problem = f"{_OFFSET} is {offset!r:.100}"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        problem = str(error)
    log.error("%s: %s; the log is compared with the master's at its end only", path, problem)
    return None

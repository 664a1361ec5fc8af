"""CutLog: whether a slave's log was cut, or begun anew, since it copied its master's tables.

A former master whose log has parted from the new master's gives up what the other one lacks
(haTruncateDiverged). Its offsets of consumers and delay levels rest on records that are gone, or
that others have taken the place of: kept, groups would pass over messages once it is the master
again. So from the cut on, until all four tables were copied from a master, its offsets are replaced
instead of merged (slave_synchronize.py), no master may adopt them (43, 45), and the broker is not
promoted (promotion.py). The mark is the request that was performed, which process `store` leaves
(store/resync_request.py): it outlives processes and machines. Used in process `remoting` of a
slave, by one thread at a time but for `objection`.
"""

from __future__ import annotations

import logging
from pathlib import Path

from broker.slave.sync_kind import SyncKind
from store.resync_request import find_done, forget_done

log = logging.getLogger(__name__)


class CutLog:
    """The mark of one store."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._objection: str | None = None
        self._copied: set[SyncKind] = set()
        self.look()

    def look(self) -> None:
        """Look for the mark. To be called once the store is open: until then a cut may go on, for
        as long as the copy of what is cut off takes, while the other processes start."""
        self._objection = find_done(self._root)

    @property
    def objection(self) -> str | None:
        """Why the offsets in this broker's tables are not to be used, naming the mark; None: they
        are. Any thread."""
        return self._objection

    def begin_copy(self) -> None:
        """Another master is followed: its tables count together only."""
        self._copied.clear()

    def copied(self, kind: SyncKind) -> None:
        """A table was copied and saved: the last one ends it. A mark that cannot be removed is
        tried again with the next table."""
        self._copied.add(kind)
        if self._objection is None or len(self._copied) < len(SyncKind):
            return
        try:
            forget_done(self._root)
        except OSError as error:
            log.error("%s; the master's tables were copied, but: %s", self._objection, error)
            return
        log.info("%s; the master's tables were copied since", self._objection)
        self._objection = None

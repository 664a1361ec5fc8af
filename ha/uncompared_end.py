"""UncomparedEnd: where our log went on without a comparison with its master's.

With haMasterAddress and no name server, or where access control refuses the questions, a slave
follows a master whose log it cannot compare with its own. If ours held records that this master has
lost, what is received then hides it: the last record is the master's from then on. So the next
comparisons ask about the places at which we went on, from the lowest up, until an answer for each
says that the logs belong together there. Only the master of the link counts, which its hello names:
where somebody else answered (a slave of a slave, a stranger that is registered) nothing was
compared. Each place counts: between two of them this broker may
have been a master itself, or have followed another one. They are kept in
`commitlog-uncompared.json` beside the log ({"phyOffsets": [...]}, ascending; older versions wrote
the lowest as "phyOffset"), written before the link that goes on there is opened: a restart would
forget them otherwise, and take the end for all. Owned by HAClient's thread.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final

from conf.atomic_file import replace_file
from ha.inspection import Inspection, Verdict

log = logging.getLogger(__name__)

_TOO_LATE: Final = frozenset((Verdict.BELOW_MIN, Verdict.START_AT))
_OFFSETS: Final = "phyOffsets"
_OFFSET: Final = "phyOffset"
_MOST_PLACES: Final = 1_000
"""A slave that reconnects blindly for days; beyond it the newest place takes the last one's."""


def uncompared_path(commit_log: Path) -> Path:
    """commit_log: the log's directory, of several the first."""
    return commit_log.with_name(f"{commit_log.name}-uncompared.json")


class UncomparedEnd:
    """See the module."""

    def __init__(self, path: Path) -> None:
        """A file that cannot be understood is told of, and counts for nothing."""
        self._path = path
        self._places = _read(path)
        self._kept = self._places
        """Those in the file."""
        self._low = 0

    def begin(self) -> None:
        """A new round before a link: what answers of the last one found is forgotten, unless
        `settle` said whose they were."""
        self._places = self._kept

    def settle(self, end: int, *, is_masters_word: bool) -> None:
        """The master of the link that goes on at `end` has said who it is. False: the answers were
        somebody else's, and compared nothing."""
        if is_masters_word:
            self._write()
        else:
            self._keep([*(place for place in self._kept if place < end), end])

    def question(self, end: int, low: int) -> int:
        """Which end of ours the next inspection is about; `end` is the real one. low: where our log
        begins: at a place up to there nothing of ours is left to be compared, and an inspection
        about it would take us for empty."""
        self._low = low
        return self._lowest(end)

    def _lowest(self, end: int) -> int:
        return next((place for place in self._places if self._low < place < end), end)

    def note(self, found: Inspection, asked: int, end: int, *, goes_on: bool) -> bool:
        """What an inspection about `asked` has found. True: that was one of the places and says
        nothing about our real end, ask again. (An end from before our log grew is no such place:
        asking again at once would never come to an end.)

        goes_on: before a link. If nothing was compared it goes on at `end`; else the file stays as
        it is until `settle`.
        """
        if found.verdict is Verdict.GO and found.master_max < 0:
            if goes_on:
                self._keep([*(place for place in self._kept if place < end), end])
            return False
        is_place = asked < end and asked == self._lowest(end)
        if found.verdict is Verdict.GO or (found.verdict in _TOO_LATE and is_place):
            self._places = [place for place in self._places if asked < place < end]
            if not goes_on:
                self._write()
            return is_place
        return False

    def _keep(self, places: list[int]) -> None:
        if len(places) > _MOST_PLACES:
            log.error(
                "%s: more than %s places to compare; dropping the middle ones",
                self._path,
                _MOST_PLACES,
            )
            del places[_MOST_PLACES - 1 : -1]
        self._places = places
        self._write()

    def _write(self) -> None:
        places = self._places
        if places == self._kept:
            return
        self._kept = places
        try:
            if places:
                text = json.dumps({_OFFSETS: places, _OFFSET: places[0]})
                replace_file(self._path, text.encode())
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            log.error(
                "%s: cannot be written: %s; after a restart the log may be compared with the "
                "master's at its end only",
                self._path,
                error.strerror or error,
            )


def _read(path: Path) -> list[int]:
    try:
        tree = json.loads(path.read_bytes())
        places = tree[_OFFSETS] if _OFFSETS in tree else [tree[_OFFSET]]
        if type(places) is list and all(type(each) is int and each >= 0 for each in places):
            return sorted(places)[:_MOST_PLACES]
        problem = f"{_OFFSETS} are {places!r:.100}"
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        problem = str(error)
    log.error("%s: %s; the log is compared with the master's at its end only", path, problem)
    return []

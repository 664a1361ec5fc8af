"""AdoptionState: how far an adoption is, and what was counted before it began.

Kept in the target as adoption.unfinished, replaced as a whole after each step. One thread. It is
read again after a kill: what it does not say, an adoption does not know.

Tested by tests/adopt/test_adoption.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from adopt.config_tables import ConfigTables
from adopt.plain_files import read_plain
from adopt.pop_records import check_points
from adopt.store_survey import ConfigPlace, Kind, StoreFacts
from conf.atomic_file import replace_file
from store.dledger.unfinished_import import ADOPTION_NAME
from store.errors import StoreError

STEPS: Final = ("copy", "keep", "tables", "tail", "pops", "ends", "aside", "compare")
OURS: Final = "ours"
ROCKSDB: Final = "rocksdb"
_FORMAT: Final = 1
_MAX_FILE: Final = 1 << 30
_ASIDE_NAME: Final = re.compile(r"adopt\.aside\.[0-9]{1,9}", re.ASCII)
"""Never a path out of the store: things are moved there."""
QueueState = tuple[str, int, int, int, int]
"""Topic, queue id, messages in the log, the queue offset behind the last of them, and the one that
comes next by the queue itself."""


class AdoptionState(msgspec.Struct, kw_only=True):
    """See the module."""

    format: int = _FORMAT
    direction: str
    """ours, or rocksdb (way_back.py)."""
    source: str
    in_place: bool
    step: str = STEPS[0]
    """The one to be done next."""
    config: str
    """Where the tables are read from."""
    aside: str
    """Name of the directory for what is replaced."""
    log_end: int
    log_records: int
    log_newest_ms: int
    file_size: int
    queues: list[QueueState]
    rocks_units: dict[str, int]
    """"topic/queue id" to units in RocksDB, where the log has another number of them."""
    tables: dict[str, int]
    pops: int
    """Popped messages."""
    check_points: int
    """What they become."""
    broker_name: str
    cluster: str
    now_ms: int
    """The time that check points are stored with."""

    def is_done(self, step: str) -> bool:
        """Whether `step` was finished."""
        return STEPS.index(step) < STEPS.index(self.step)

    def same_source(self, other: AdoptionState) -> bool:
        """Whether both were begun on the same bytes, as far as counts tell."""
        return (
            (self.source, self.direction) == (other.source, other.direction)
            and self.in_place == other.in_place
            and (self.log_end, self.log_records) == (other.log_end, other.log_records)
            and self.queues == other.queues
            and (self.tables, self.pops) == (other.tables, other.pops)
        )


_read: Final = msgspec.json.Decoder(AdoptionState).decode


def new_state(
    facts: StoreFacts,
    direction: str,
    *,
    in_place: bool,
    names: tuple[str, str],
    aside: str,
    now_ms: int,
) -> AdoptionState:
    """Before the first step. direction: OURS or ROCKSDB; names: of the broker and the cluster."""
    assert facts.log is not None, "walked"
    log, known = facts.log, facts.queues
    queues: list[QueueState] = []
    unlike = {}
    ends = dict(known.ends) if known is not None else {}
    for name in sorted({*log.queues, *ends}):
        found = log.queues.get(name)
        count, end = (found.count, found.end) if found is not None else (0, 0)
        queues.append((*name, count, end, max(end, ends.get(name, 0))))
        if known is None or facts.kind is not Kind.ROCKSDB:
            continue  # what is written twice need not be whole: nobody reads it
        seen = known.units.get(name, 0)
        is_deleted = not seen and name[0] not in (facts.tables or ConfigTables()).topics
        if seen != (found.known if found is not None else 0) and not is_deleted:
            unlike[f"{name[0]}/{name[1]}"] = seen
    return AdoptionState(
        direction=direction,
        source=str(facts.root.resolve()),
        in_place=in_place,
        config=str(facts.config),
        aside=aside,
        log_end=log.end_offset,
        log_records=log.records,
        log_newest_ms=log.newest_ms,
        file_size=log.file_size,
        queues=queues,
        rocks_units=unlike,
        tables=(facts.tables or ConfigTables()).counts(),
        pops=len(facts.pops),
        check_points=len(check_points(facts.pops, names[0])) if direction == OURS else 0,
        broker_name=names[0],
        cluster=names[1],
        now_ms=now_ms,
    )


def load_state(target: Path) -> AdoptionState | None:
    """None: nothing was begun. Raises StoreError."""
    path = target / ADOPTION_NAME
    try:
        state = _read(read_plain(path, _MAX_FILE))
    except FileNotFoundError:
        return None
    except (UnicodeError, RecursionError, msgspec.DecodeError) as error:
        raise StoreError(
            f"{path}: not valid ({error}): nobody knows how far this adoption came; begin again "
            "with another --to"
        ) from error
    is_known = state.step in STEPS and state.config in set(ConfigPlace)
    if state.format != _FORMAT or not is_known or not _ASIDE_NAME.fullmatch(state.aside):
        raise StoreError(f"{path}: of another version: finish with the one that began")
    return state


def save_state(target: Path, state: AdoptionState) -> None:
    """On disk when it returns. Raises OSError."""
    replace_file(target / ADOPTION_NAME, msgspec.json.encode(state))

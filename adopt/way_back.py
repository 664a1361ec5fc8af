"""WayBack: a store of ours as a Java broker with storeType=defaultRocksDB goes on with it.

    copy     (--to) all files but consume queues and JSON tables
    tables   topics, groups and offsets as the databases of config v1
    queues   a database with where those queues go on that have no message any more; Java's start
             builds the units from the log, all of it as the checkpoint says
    aside    (--in-place) consume queues and JSON tables, moved to adopt.aside.<n>: Java merges JSON
             that is newer than its databases, and reads nothing of ours
    compare  what the databases say with what was counted

Like adoption.py, with the same state file; a database is made beside its place and renamed, so each
step may be done again after a kill at any byte. The store was stopped in order: what a kill leaves,
a broker of ours recovers first. One thread, which holds the locks.

Tested by tests/adopt/test_way_back.py; with Java's broker by tests/interop/test_adoption.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from adopt.adoption import Comparison, Step, Work
from adopt.config_tables import JSON_NAMES, V1_NAMES, read_json, read_v1, v1_databases
from adopt.log_survey import survey_log
from adopt.rocks_codec import CHECKPOINT_TOPIC, Bound, encode_bound
from adopt.rocks_database import Entry, is_database, write_database
from adopt.rocks_queues import read_bounds
from adopt.state import AdoptionState
from adopt.store_survey import ConfigPlace, Kind, StoreFacts
from store.dledger.source_queues import read_queue_ends
from store.dledger.unfinished_import import QUEUES_NAME
from store.mapped_file import sync_directory

_QUEUES: Final = "consumequeue"
_MADE: Final = ".mqadopt.part"
_NAMED: Final = 5
_FILES_OF_55: Final = 10
"""commitLogRecoverMaxNum, if nobody sets it; 5.3 has no such bound."""


def problems_back(facts: StoreFacts) -> Iterator[str]:
    """Why a store cannot go back, each with its way out."""
    if facts.kind is not Kind.FILES or facts.config_places != [ConfigPlace.JSON]:
        yield f"{facts.root}: {facts.kind}: not a file store of ours; Java opens it as it is"
    if facts.tables is not None and facts.tables.damaged:
        found = facts.tables.damaged
        yield (
            f"{len(found)} entries of {facts.root / 'config'} cannot be read: "
            f"{'; '.join(found[:_NAMED])}; correct or remove them"
        )
    for name in V1_NAMES:
        if (facts.root / "config" / name).exists():
            yield f"{facts.root / 'config' / name}: in the way of a database; move it elsewhere"
    if facts.killed:
        yield (
            f"{facts.root}: it was not stopped in an orderly way: start bin/mqbroker on it once "
            "and stop it with mqshutdown, so that all that it had in memory is in the log"
        )
    if list(facts.root.glob("commitlog-fences.json")):
        yield (
            f"{facts.root / 'commitlog-fences.json'}: parts of the log are damaged, and Java ends "
            "a log at its damage: have them repaired from a replica first (docs/operations.md)"
        )
    if (facts.root / QUEUES_NAME).exists():
        yield f"{facts.root / QUEUES_NAME}: start bin/mqbroker on it once, which takes that over"
    if facts.locked:
        yield f"{facts.root}: a broker has it open; stop it (mqshutdown broker), or name a copy"


def notes_back(facts: StoreFacts) -> Iterator[str]:
    """What the operator should know."""
    if (facts.root / "batchconsumequeue").is_dir():
        yield "topics with batch queues get plain units: Java's RocksDB queues know no others"
    if facts.log is not None and facts.log.files > _FILES_OF_55:
        yield (
            f"5.5 builds queues from the last {_FILES_OF_55} files of a log only: set "
            f"commitLogRecoverMaxNum={facts.log.files} for its first start, else messages of the "
            "older files are in no queue"
        )
    yield (
        "set storeType=defaultRocksDB, leave configManagerVersion at v1, and leave "
        "enableAcceleratedRecovery out until Java has been started and stopped once"
    )


class WayBack(Work):
    """See the module."""

    def steps(self) -> dict[str, Step]:
        """By name, in order; those of an adoption that have no part here do nothing."""
        return {
            "copy": self.copy,
            "keep": _nothing,
            "tables": self._write_tables,
            "tail": _nothing,
            "pops": _nothing,
            "ends": self._write_bounds,
            "aside": self._move_aside,
        }

    def is_left_out(self, state: AdoptionState, path: Path) -> bool:
        """Of the copy."""
        is_table = path.parent == Path("config") and path.name.removesuffix(".bak") in JSON_NAMES
        return is_table or path == Path(_QUEUES)

    def _write_tables(self, _state: AdoptionState) -> None:
        tables = read_json(self.source / "config")
        for name, families in v1_databases(tables).items():
            _make(self.target / "config" / name, dict(families))

    def _write_bounds(self, state: AdoptionState) -> None:
        """Before the first place of the log: Java takes none of these for a unit of today."""
        ends = {(topic, queue_id): end for topic, queue_id, _, end, _ in state.queues}
        bounds = [
            Bound(topic, queue_id, True, 0, following - 1)
            for topic, queue_id, following in self._queue_ends(state)
            if following > ends.get((topic, queue_id), 0)
        ]
        # Java dispatches what is behind this place, and takes 0 where nothing is said: it would
        # pass over the first record of a log that begins there.
        bounds.append(Bound(CHECKPOINT_TOPIC, 0, True, -1, 0))
        families: dict[str, list[Entry]] = {
            "default": [],
            "offset": sorted(encode_bound(bound) for bound in bounds),
        }
        self._keep_queues(state)
        _make(self.target / _QUEUES, families)

    def _queue_ends(self, state: AdoptionState) -> list[tuple[str, int, int]]:
        kept = self.target / state.aside / _QUEUES
        return list(read_queue_ends(kept if kept.is_dir() else self.source / _QUEUES))

    def _keep_queues(self, state: AdoptionState) -> None:
        """In place, the database takes the name of the queues."""
        if self.in_place and not is_database(self.target / _QUEUES):
            self.keep(state, self.target / _QUEUES, moves=True)

    def _move_aside(self, state: AdoptionState) -> None:
        if self.in_place:
            for name in JSON_NAMES:
                for each in (name, f"{name}.bak"):
                    self.keep(state, self.target / "config" / each, moves=True)

    def compare(self, state: AdoptionState) -> Comparison:
        """See Comparison."""
        log = survey_log(
            self.target / "commitlog", check_crc=True, progress=self.progress("comparing")
        )
        tables = read_v1(self.target / "config")
        bounds = read_bounds(self.target / _QUEUES)
        differences = []
        if (log.records, log.end_offset) != (state.log_records, state.log_end):
            differences.append(f"{state.log_records} messages before, {log.records} now")
        if tables.counts() != state.tables or tables.damaged:
            differences.append(f"tables: {state.tables} before, {tables.counts()} now")
        ends = {name: max(end, bounds.ends.get(name, 0)) for name, end in log.ends().items()}
        ends = {**bounds.ends, **ends}
        for topic, queue_id, following in self._queue_ends(state):
            if ends.get((topic, queue_id), 0) != following:
                differences.append(
                    f"{topic} {queue_id}: next queue offset {following} before, "
                    f"{ends.get((topic, queue_id), 0)} now"
                )
        return Comparison(
            messages=(state.log_records, log.records),
            queues=(sum(each[2] > 0 for each in state.queues), len(log.queues)),
            tables=(state.tables, tables.counts()),
            pops=0,
            check_points=0,
            differences=differences,
        )


def _nothing(_state: AdoptionState) -> None:
    """An adoption has such a step, the way back has not."""


def _remove(directory: Path) -> None:
    """Of an earlier try."""
    shutil.rmtree(directory)


def _make(directory: Path, families: dict[str, list[Entry]]) -> None:
    """A database that is whole when it has its name; one that is there is of an earlier try."""
    made = directory.with_name(directory.name + _MADE)
    for each in (made, directory):
        if each.exists():
            _remove(each)
    write_database(made, dict(families))
    made.rename(directory)
    sync_directory(directory.parent)

"""WayBack: a store of ours as a Java broker with storeType=defaultRocksDB goes on with it.

    copy     (--to) all files but consume queues and JSON tables
    tables   topics, groups and offsets as the databases of config v1
    queues   a database with all units of the consume queues, and where each goes on: Java's start
             builds none (5.5 would look at the last ten files of the log only; 5.3 reads its timers
             meanwhile, and delivered those twice that were waiting)
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
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from adopt.adoption import Comparison, Step, Work
from adopt.config_tables import JSON_NAMES, V1_NAMES, read_json, read_v1, v1_databases
from adopt.log_survey import LogSurvey, survey_log
from adopt.plan import in_use
from adopt.queue_units import BATCH_QUEUES, QueueUnits
from adopt.rocks_codec import (
    CHECKPOINT_TOPIC,
    Bound,
    encode_bound,
    encode_unit,
    encode_unit_key,
)
from adopt.rocks_database import Entry, is_database, write_database
from adopt.rocks_queues import count_units, read_bounds
from adopt.state import AdoptionState
from adopt.store_survey import ConfigPlace, Kind, StoreFacts
from store.dledger.unfinished_import import QUEUES_NAME
from store.mapped_file import sync_directory

_QUEUES: Final = "consumequeue"
_MADE: Final = ".mqadopt.part"
_NAMED: Final = 5
_UNIT: Final = 64
"""Bytes of a unit in a database, besides its topic."""


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
    if facts.killed and not facts.locked:
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
        yield in_use(facts.root)


def notes_back(facts: StoreFacts) -> Iterator[str]:
    """What the operator should know."""
    if (facts.root / BATCH_QUEUES).is_dir():
        yield "topics with batch queues get plain units: Java's RocksDB queues know no others"
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
            "ends": self._write_queues,
            "aside": self._move_aside,
        }

    def is_left_out(self, state: AdoptionState, path: Path) -> bool:
        """Of the copy."""
        is_table = path.parent == Path("config") and path.name.removesuffix(".bak") in JSON_NAMES
        return is_table or path == Path(_QUEUES)

    def needs(self, state: AdoptionState) -> int:
        """See Work: units, and again while RocksDB merges them."""
        return sum(
            2 * count * (_UNIT + len(topic.encode())) for topic, _, count, _, _ in state.queues
        )

    def _write_tables(self, _state: AdoptionState) -> None:
        tables = read_json(self.source / "config")
        for name, families in v1_databases(tables).items():
            _make(self.target / "config" / name, dict(families))

    def _write_queues(self, state: AdoptionState) -> None:
        self._keep_queues(state)
        queues = self._queue_units(state)
        families: dict[str, Iterable[Entry]] = {
            "default": (
                (encode_unit_key(key), encode_unit(unit))
                for key, unit in queues.units(state.log_end, self.progress("writing the queues"))
            ),
            "offset": _bounds(queues, state.log_end),
        }
        _make(self.target / _QUEUES, families)

    def _queue_units(self, state: AdoptionState) -> QueueUnits:
        kept = self.target / state.aside / _QUEUES
        return QueueUnits(self.source, kept if kept.is_dir() else self.source / _QUEUES)

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
        differences = []
        if (log.records, log.end_offset) != (state.log_records, state.log_end):
            differences.append(f"{state.log_records} messages before, {log.records} now")
        if tables.counts() != state.tables or tables.damaged:
            differences.append(f"tables: {state.tables} before, {tables.counts()} now")
        differences += self._queue_differences(state, log)
        return Comparison(
            messages=(state.log_records, log.records),
            queues=(sum(each[2] > 0 for each in state.queues), len(log.queues)),
            tables=(state.tables, tables.counts()),
            pops=0,
            check_points=0,
            differences=differences,
        )

    def _queue_differences(self, state: AdoptionState, log: LogSurvey) -> Iterator[str]:
        """Of each queue: units and end, by its files, or by the log, and as the database says."""
        found, known = read_bounds(self.target / _QUEUES), self._queue_units(state)
        show = self.progress("comparing the queues")
        count_units(
            self.target / _QUEUES, found, log.min_offset, log.end_offset, lambda: show(0, 0)
        )
        before = {
            name: (count, known.ends[name])
            for name, count in known.count(log.min_offset, log.end_offset)
        }
        for name, each in log.queues.items():
            if name not in before and known.is_batch(name):
                before[name] = (each.count, each.end)
        now = {name: (found.units.get(name, 0), end) for name, end in found.ends.items()}
        for name in sorted({*before, *now}):
            if before.get(name) != now.get(name):
                yield (
                    f"{name[0]} {name[1]}: units and next queue offset before: {before.get(name)}, "
                    f"now: {now.get(name)}"
                )


def _bounds(queues: QueueUnits, log_end: int) -> Iterator[Entry]:
    """Once all units are written. Of a queue without any: before the first place of the log, so
    that Java takes none of them for a unit of today."""
    last = {**dict.fromkeys(queues.ends, (0, 0)), **queues.bounds}
    bounds = [
        Bound(*name, True, place, queues.ends.get(name, following) - 1)
        for name, (place, following) in last.items()
    ]
    bounds.append(Bound(CHECKPOINT_TOPIC, 0, True, log_end, 0))
    yield from sorted(encode_bound(bound) for bound in bounds)


def _nothing(_state: AdoptionState) -> None:
    """An adoption has such a step, the way back has not."""


def _remove(directory: Path) -> None:
    """Of an earlier try."""
    shutil.rmtree(directory)


def _make(directory: Path, families: Mapping[str, Iterable[Entry]]) -> None:
    """A database that is whole when it has its name; one that is there is of an earlier try."""
    made = directory.with_name(directory.name + _MADE)
    for each in (made, directory):
        if each.exists():
            _remove(each)
    write_database(made, dict(families))
    made.rename(directory)
    sync_directory(directory.parent)

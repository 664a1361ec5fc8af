"""Adoption: makes a store directory one of ours, in steps that may be cut off and done again.

    copy    (--to) all files but the databases of RocksDB
    keep    (--in-place) JSON tables that are replaced, in adopt.aside.<n>
    tables  RocksDB's topics, groups and offsets as config/*.json
    tail    what a kill left behind the log's last record, kept and made zero, if pops follow
    pops    popped messages as check points, behind the log's last record
    ends    where queues go on whose messages have expired, for the broker's first start
    aside   (--in-place) databases that nothing reads any more, moved to adopt.aside.<n>
    compare what is there now with what was counted at the beginning

The state file, adoption.unfinished in the target, names the step, and what was counted before the
first one; no broker starts on a directory that has it. Each step may be done again after a kill at
any byte: files are replaced as a whole, and the check points are written again at the same place.
One thread, which holds the locks of both directories. What it is not for: DLedger's log
(store/dledger).

Tested by tests/adopt/test_adoption.py.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from adopt.config_tables import JSON_NAMES, V1_NAMES, V2_NAME, json_files, read_json
from adopt.copied_files import Copied, check_room, copy_files, files_below
from adopt.log_survey import LogSurvey, Progress, survey_log
from adopt.plain_files import read_tail
from adopt.pop_records import check_points, read_pop_records, timer_properties
from adopt.rocks_database import is_database
from adopt.state import STEPS, AdoptionState, load_state, save_state
from adopt.store_survey import (
    POP_DATABASE,
    QUEUE_DATABASES,
    SHARED_DATABASE,
    ConfigPlace,
    read_tables,
)
from conf.atomic_file import replace_file, write_atomic
from store.consume_queue_files import is_safe_topic
from store.dledger.source_queues import read_queue_ends
from store.dledger.target_log import TargetLog
from store.dledger.unfinished_import import ADOPTION_NAME, REPORT_NAME, write_queue_ends
from store.errors import StoreError
from store.mapped_file import make_directory, sync_directory, zero_range
from store.mapped_file_queue import list_store_files
from store.message import Message
from store.message_codec import encode_host, encode_record
from store.store_lock import StoreLock

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
Step = Callable[[AdoptionState], None]
_ASIDE: Final = "adopt.aside."
_LONGEST_NAME: Final = 255
_HOST: Final = encode_host("127.0.0.1", 10911)
_REPLACED: Final = tuple(name for each in JSON_NAMES for name in (each, f"{each}.bak"))
_DATABASES: Final = (
    *(f"config/{name}" for name in (*V1_NAMES, V2_NAME)),
    *QUEUE_DATABASES,
    POP_DATABASE,
    SHARED_DATABASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What was there before and what is there now. No `differences` (for people): all is equal."""

    messages: tuple[int, int]
    queues: tuple[int, int]
    tables: tuple[dict[str, int], dict[str, int]]
    pops: int
    check_points: int
    differences: list[str]


class Work(ABC):
    """The steps of one store, done in their order, and what they share. Use: `check_target`, then
    `run`, which gives the comparison."""

    def __init__(self, source: Path, target: Path, progress: Callable[[str], Progress]) -> None:
        """source and target are the same for work in place."""
        self.source: Final = source
        self.target: Final = target
        self.progress: Final = progress
        self.in_place: Final = source == target

    @abstractmethod
    def steps(self) -> dict[str, Step]:
        """By the names of state.STEPS, but for the last."""

    @abstractmethod
    def is_left_out(self, state: AdoptionState, path: Path) -> bool:
        """Whether a path below the source is not copied."""

    def needs(self, _state: AdoptionState) -> int:
        """Bytes that the steps write, besides copies."""
        return 0

    @abstractmethod
    def compare(self, state: AdoptionState) -> Comparison:
        """The last step."""

    def check_target(self) -> None:
        """Raises StoreError: something else is there."""
        if self.in_place:
            return
        one, other = self.source.resolve(), self.target.resolve()
        if one == other or one in other.parents or other in one.parents:
            raise StoreError(f"{one} and {other}: one is in the other; name a directory beside it")
        if load_state(self.target) is not None or not self.target.exists():
            return
        found = [path.name for path in self.target.iterdir() if path.name != "lock"]
        if REPORT_NAME in found:
            raise StoreError(
                f"{self.target}: an adoption was finished here ({REPORT_NAME} says what came of "
                "it): start a broker on it, or name another directory"
            )
        if found:
            raise StoreError(
                f"{self.target}: not empty ({', '.join(sorted(found)[:5])}): name a directory that "
                "does not exist, or is empty"
            )

    def run(self, begun: AdoptionState | None) -> Comparison:
        """Go on where the last one ended, or begin with `begun` (None: only go on). Raises
        StoreError, OSError."""
        with ExitStack() as locks:
            make_directory(self.target)
            for root in {self.source, self.target}:
                # On a mount that is read-only nobody can have it open.
                if root == self.target or os.access(root, os.W_OK):
                    locks.enter_context(StoreLock(root))
            state = load_state(self.target)
            if state is None:
                if begun is None:
                    raise StoreError(f"{self.target}: nothing was begun here")
                state = begun
                needs = self.needs(state)
                if needs or not self.in_place:
                    files = [] if self.in_place else self._files(state)
                    check_room(files, self.target, needs)
                save_state(self.target, state)
            elif begun is not None and not state.same_source(begun):
                raise StoreError(
                    f"{self.target}: an adoption of {state.source} was begun here, and that has "
                    "changed since, or is another: name another directory"
                )
            return self._finish(state)

    def _finish(self, state: AdoptionState) -> Comparison:
        for name, step in self.steps().items():
            if not state.is_done(name):
                step(state)
                state.step = STEPS[STEPS.index(name) + 1]
                save_state(self.target, state)
        found = self.compare(state)
        self._write_report(state, found)
        if not found.differences:
            (self.target / ADOPTION_NAME).unlink()
            sync_directory(self.target)
        return found

    def _files(self, state: AdoptionState) -> list[Copied]:
        ours = ("lock", ADOPTION_NAME, REPORT_NAME)

        def is_left_out(path: Path) -> bool:
            is_ours = str(path) in ours or path.parts[0].startswith(_ASIDE)
            return is_ours or self.is_left_out(state, path)

        return files_below(self.source, is_left_out)

    def copy(self, state: AdoptionState) -> None:
        """The first step."""
        if not self.in_place:
            copy_files(self.source, self._files(state), self.target, self.progress("copying"))

    def keep(self, state: AdoptionState, path: Path, *, moves: bool) -> None:
        """A copy of what is replaced, or the thing itself, in the directory aside; once."""
        kept = self.target / state.aside / path.relative_to(self.target)
        if not path.exists() or kept.exists():
            return
        make_directory(kept.parent)
        if moves:
            path.rename(kept)
            sync_directory(path.parent)
            sync_directory(kept.parent)
        else:
            replace_file(kept, path.read_bytes())

    def _write_report(self, state: AdoptionState, found: Comparison) -> None:
        report: dict[str, Any] = {
            "source": state.source,
            "aside": state.aside if (self.target / state.aside).is_dir() else None,
            "messages": found.messages,
            "queues": found.queues,
            "tables": found.tables,
            "poppedMessages": found.pops,
            "checkPoints": found.check_points,
            "differences": found.differences,
        }
        replace_file(self.target / REPORT_NAME, msgspec.json.format(msgspec.json.encode(report)))


class Adoption(Work):
    """See the module."""

    # -- steps ---------------------------------------------------------------------------------

    def steps(self) -> dict[str, Step]:
        """See Work."""
        return {
            "copy": self.copy,
            "keep": self._keep_tables,
            "tables": self._write_tables,
            "tail": self._clear_behind,
            "pops": self._append_pops,
            "ends": self._write_ends,
            "aside": self._move_aside,
        }

    def is_left_out(self, state: AdoptionState, path: Path) -> bool:
        """What a broker of ours does not read, or what is written anew."""
        if path.parent == Path("config") and path.name in _REPLACED:
            return state.config != ConfigPlace.JSON
        if str(path) in _DATABASES and is_database(self.source / path):
            return str(path) not in QUEUE_DATABASES or not _has_topics(self.source / path)
        return str(path.parent) in QUEUE_DATABASES and not (self.source / path).is_dir()

    def _keep_tables(self, state: AdoptionState) -> None:
        """A step of its own: after the next one, what is there may be ours."""
        if ConfigPlace(state.config) is not ConfigPlace.JSON:
            for name in _REPLACED:
                self.keep(state, self.target / "config" / name, moves=name.endswith(".bak"))

    def _write_tables(self, state: AdoptionState) -> None:
        place = ConfigPlace(state.config)
        if place is ConfigPlace.JSON:
            return
        tables = read_tables(self.source / "config", place)
        for name, data in json_files(tables).items():
            write_atomic(self.target / "config" / name, data)

    def _append_pops(self, state: AdoptionState) -> None:
        """Again after a kill, the same bytes come to the same places."""
        if not state.pops:
            return
        records, _ = read_pop_records(self.source / POP_DATABASE)
        points = check_points(records, state.broker_name)
        queue_offset = self._following_timer(state)
        topic = f"rmq_sys_REVIVE_LOG_{state.cluster}"
        place = self.target / "commitlog"
        with TargetLog(place, state.file_size, state.log_end) as log:
            for number, point in enumerate(points):
                message = Message(
                    topic=TIMER_TOPIC,
                    queue_id=0,
                    queue_offset=queue_offset + number,
                    born_timestamp=state.now_ms,
                    born_host=_HOST,
                    store_timestamp=max(state.now_ms, state.log_newest_ms),
                    store_host=_HOST,
                    body=point.to_json_bytes(),
                    properties=timer_properties(point, topic),
                )
                at = log.place_for(len(encode_record(message)))
                log.append(encode_record(replace(message, phy_offset=at)))

    def _clear_behind(self, state: AdoptionState) -> None:
        if not state.pops:
            return
        for file in list_store_files(self.target / "commitlog"):
            start = max(state.log_end - file.start_offset, 0)
            if start >= file.size:
                continue
            tail = read_tail(file.path, start)
            if not tail:
                continue
            kept = self.target / state.aside / f"log-behind-{file.start_offset + start:020d}"
            if not kept.exists():
                make_directory(kept.parent)
                replace_file(kept, tail)
            zero_range(file.path, start, file.size)

    def _following_timer(self, state: AdoptionState) -> int:
        """The timer queue's next offset, by log, database and files."""
        known = [end for topic, qid, _, _, end in state.queues if (topic, qid) == (TIMER_TOPIC, 0)]
        files = read_queue_ends(self.source / "consumequeue")
        known += [end for topic, qid, end in files if (topic, qid) == (TIMER_TOPIC, 0)]
        return max(known, default=0)

    def _write_ends(self, state: AdoptionState) -> None:
        ends = [
            (topic, queue_id, following)
            for topic, queue_id, _, end, following in state.queues
            if following > end and is_safe_topic(topic) and len(topic.encode()) <= _LONGEST_NAME
        ]
        if ends:
            write_queue_ends(self.target, ends)

    def _move_aside(self, state: AdoptionState) -> None:
        if not self.in_place:
            return
        for name in _DATABASES:
            path = self.target / name
            if not is_database(path):
                continue
            if name in QUEUE_DATABASES and _has_topics(path):
                for file in sorted(path.iterdir()):
                    if not file.is_dir():
                        self.keep(state, file, moves=True)
            else:
                self.keep(state, path, moves=True)

    # -- comparing -----------------------------------------------------------------------------

    def compare(self, state: AdoptionState) -> Comparison:
        """See Work."""
        log = survey_log(
            self.target / "commitlog", check_crc=True, progress=self.progress("comparing")
        )
        tables = read_json(self.target / "config")
        added = log.records - state.log_records
        points = 0
        if state.pops:
            end = log.queues.get((TIMER_TOPIC, 0))
            points = end.end - self._following_timer(state) if end is not None else 0
        differences = list(_queue_differences(state, log, points))
        if added != points:
            differences.append(
                f"{state.log_records} messages and {points} check points were to be there, "
                f"{log.records} records are"
            )
        if points != state.check_points:
            differences.append(
                f"{state.pops} popped messages: {state.check_points} check points were to be "
                f"there, {points} are"
            )
        if tables.counts() != state.tables:
            differences.append(f"tables: {state.tables} before, {tables.counts()} now")
        return Comparison(
            messages=(state.log_records, log.records - points),
            queues=(sum(each[2] > 0 for each in state.queues), len(log.queues)),
            tables=(state.tables, tables.counts()),
            pops=state.pops,
            check_points=points,
            differences=differences,
        )


def _queue_differences(state: AdoptionState, log: LogSurvey, points: int) -> list[str]:
    """Of each queue: the messages of the log before and now; before: those that RocksDB knew."""
    found = [
        f"{name}: RocksDB had {count} entries of what the log has; the log counts"
        for name, count in state.rocks_units.items()
    ]
    before = {(topic, qid): (count, end) for topic, qid, count, end, _ in state.queues if count}
    now = {name: (each.count, each.end) for name, each in log.queues.items()}
    timer = (TIMER_TOPIC, 0)
    if points and timer in now:
        count, end = now[timer]
        now[timer] = (count - points, end - points)
        if timer not in before or not now[timer][0]:
            before.pop(timer, None)
            now.pop(timer)
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            found.append(
                f"{name[0]} {name[1]}: messages and end before: {before.get(name)}, "
                f"now: {now.get(name)}"
            )
    return found


def _has_topics(directory: Path) -> bool:
    """Whether file queues lie beside a database."""
    return any(path.is_dir() for path in directory.iterdir())


def name_aside(target: Path) -> str:
    """A name that nothing has yet."""
    number = 1
    while (target / f"{_ASIDE}{number}").exists():
        number += 1
    return f"{_ASIDE}{number}"


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000

"""StoreFacts: what a store directory is, found by looking at it; nothing is written.

One thread. It says what is there; what follows from that is plan.py's matter. RocksDB is opened
only where there are databases. Files may come from anywhere: sizes are bounded, links within
databases are refused, names are shown escaped.

Tested by tests/adopt/test_store_survey.py.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from adopt.config_tables import (
    JSON_NAMES,
    V1_NAMES,
    V2_NAME,
    ConfigTables,
    read_json,
    read_v1,
    read_v2,
)
from adopt.log_survey import HALF_TOPICS, LogSurvey, Progress, QueueName, survey_log
from adopt.plain_files import read_plain
from adopt.pop_records import PopRecord, read_pop_records
from adopt.rocks_database import RocksDatabase, is_database
from adopt.rocks_queues import RocksQueues, count_units, read_bounds
from remoting.remoting_serializable import loads_lenient
from store.errors import StoreError
from store.lmq_places import LMQ_PREFIX
from store.mapped_file_queue import list_store_files
from store.store_lock import is_locked

QUEUE_DATABASES: Final = ("consumequeue", "consumequeue_rocksdb", "consumequeue_r")
POP_DATABASE: Final = "kvStore"
SHARED_DATABASE: Final = "rocksdbstore"
"""Of 5.5: timers, transactions and index; made at every start, used only if settings say so."""
MOVED: Final = (*QUEUE_DATABASES, POP_DATABASE, SHARED_DATABASE, "config/*")
"""Among these is what work in place moves aside."""
_MAX_SMALL: Final = 16 << 20
"""Bytes of a file that is only looked at."""
_AUTH: Final = ("users", "acls")
_OURS: Final = ("clean.exit", "queues.exit", "delay_clock.json", "commitlog-scrub.json")
"""Files that a broker of ours writes, the latter two while it runs, and no other."""
_KNOWN_CONFIG: Final = (*V1_NAMES, V2_NAME, *_AUTH)
_ROCKS_VERSION: Final = re.compile(rb"rocksdb_version=([0-9.]{1,20})")
_TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
_DELAYS: Final = "SCHEDULE_TOPIC_XXXX"
_REVIVE: Final = "rmq_sys_REVIVE_LOG_"


def no_progress(_what: str) -> Progress:
    """Shows nothing."""
    return lambda _done, _all: None


class Kind(enum.StrEnum):
    """How the log, and the queues, are kept."""

    FILES = "file store"
    ROCKSDB = "RocksDB consume queues"
    DOUBLE = "file store, consume queues also in RocksDB (double write)"
    DLEDGER = "DLedger"


class ConfigPlace(enum.StrEnum):
    """Where topics, groups and offsets are."""

    JSON = "json"
    V1 = "v1"
    V2 = "v2"


@dataclass(slots=True, kw_only=True)
class StoreFacts:
    """See the module."""

    root: Path
    kind: Kind
    locked: bool
    killed: bool
    """An abort file is there: the broker was not stopped in an orderly way."""
    is_ours: bool
    config_places: list[ConfigPlace]
    tables: ConfigTables | None = None
    """None: more than one place, and nobody said which counts."""
    config: ConfigPlace | None = None
    log: LogSurvey | None = None
    """None: not walked, or of DLedger."""
    queues: RocksQueues | None = None
    pops: list[PopRecord] = field(default_factory=list)
    damaged_pops: list[str] = field(default_factory=list)
    epochs: list[str] = field(default_factory=list)
    written_by: str = ""
    in_shared: dict[str, int] = field(default_factory=dict)
    """Entries of timers and transactions that 5.5 keeps in rocksdbstore."""
    unknown_databases: list[Path] = field(default_factory=list)
    auth_databases: list[Path] = field(default_factory=list)
    features: dict[str, int] = field(default_factory=dict)

    @property
    def queue_database(self) -> Path | None:
        """Where RocksDB has the consume queues."""
        found = [self.root / name for name in QUEUE_DATABASES if is_database(self.root / name)]
        return found[0] if found else None


def survey_store(
    root: Path,
    *,
    config: ConfigPlace | None = None,
    walk: bool = True,
    progress: Callable[[str], Progress] = no_progress,
) -> StoreFacts:
    """Look. config: which place of tables counts, if there are several. Raises StoreError: it is no
    store, or cannot be read."""
    facts = _find_kind(root)
    if facts.kind is Kind.DLEDGER:
        facts.written_by = "RocketMQ with enableDLegerCommitLog=true"
        return facts
    _read_config(facts, config)
    if facts.queue_database is not None:
        facts.queues = read_bounds(facts.queue_database)
    if is_database(root / POP_DATABASE):
        facts.pops, facts.damaged_pops = read_pop_records(root / POP_DATABASE)
    if is_database(root / SHARED_DATABASE):
        facts.in_shared = _count_shared(root / SHARED_DATABASE)
    if walk:
        _walk(facts, progress)
    facts.written_by = _find_writer(facts)
    facts.features = _find_features(facts)
    return facts


def _find_kind(root: Path) -> StoreFacts:
    if not root.is_dir():
        what = "not a directory" if root.exists() else "there is no such directory"
        raise StoreError(f"{root}: {what}; name a broker's storePathRootDir")
    is_dledger = any((path / "data").is_dir() for path in root.glob("dledger-*"))
    if not is_dledger and not list_store_files(root / "commitlog"):
        raise StoreError(
            f"{root}: not the store of a broker: no files in commitlog/, no dledger-<id>/data; "
            "name its storePathRootDir (with storePathCommitLog set, link that to commitlog)"
        )
    return StoreFacts(
        root=root,
        kind=Kind.DLEDGER if is_dledger else _queue_kind(root),
        locked=is_locked(root),
        killed=(root / "abort").exists(),
        is_ours=any((root / name).exists() for name in _OURS),
        config_places=_config_places(root / "config"),
        epochs=_read_epochs(root / "epochFileCheckpoint"),
        unknown_databases=_unknown_databases(root),
        auth_databases=[p for n in _AUTH for p in root.glob(f"config/**/{n}") if is_database(p)],
    )


def _queue_kind(root: Path) -> Kind:
    if not any(is_database(root / name) for name in QUEUE_DATABASES):
        return Kind.FILES
    for queue in root.glob("consumequeue/*/*"):
        if queue.is_dir() and list_store_files(queue):
            return Kind.DOUBLE
    return Kind.ROCKSDB


def _config_places(config: Path) -> list[ConfigPlace]:
    found = []
    if any((config / each).exists() for name in JSON_NAMES[:1] for each in (name, f"{name}.bak")):
        found.append(ConfigPlace.JSON)
    if any(is_database(config / name) for name in V1_NAMES):
        found.append(ConfigPlace.V1)
    if is_database(config / V2_NAME):
        found.append(ConfigPlace.V2)
    return found


def _read_config(facts: StoreFacts, wanted: ConfigPlace | None) -> None:
    places = facts.config_places
    if wanted is not None and wanted not in places:
        raise StoreError(
            f"--config {wanted}: {facts.root / 'config'} has {', '.join(places) or 'no tables'}"
        )
    chosen = wanted or (places[0] if len(places) == 1 else None)
    config = facts.root / "config"
    if not places:
        facts.tables, facts.config = ConfigTables(), ConfigPlace.JSON
    elif chosen is not None:
        facts.tables, facts.config = read_tables(config, chosen), chosen


def read_tables(config: Path, place: ConfigPlace) -> ConfigTables:
    """From the directory config/. Raises StoreError."""
    if place is ConfigPlace.V2:
        return read_v2(config / V2_NAME)
    return read_v1(config) if place is ConfigPlace.V1 else read_json(config)


def _unknown_databases(root: Path) -> list[Path]:
    known = {root / name for name in (*QUEUE_DATABASES, POP_DATABASE, SHARED_DATABASE)}
    known |= {root / "config" / name for name in _KNOWN_CONFIG}
    found = []
    for pattern in ("*", "config/*", "config/*/*"):
        for path in root.glob(pattern):
            is_auth = path.name in _AUTH
            if path not in known and not is_auth and path.is_dir() and is_database(path):
                found.append(path)
    return sorted(found)


def _read_epochs(path: Path) -> list[str]:
    """Of controller mode: "epoch-start offset" lines behind a count and a checksum."""
    try:
        lines = read_plain(path, _MAX_SMALL).decode("ascii", "replace").splitlines()
    except (OSError, StoreError):
        return []
    return [line for line in lines[2:10_000] if re.fullmatch(r"[0-9]{1,10}-[0-9]{1,19}", line)]


def _count_shared(directory: Path) -> dict[str, int]:
    """Of keys that begin with a time or place; the others are the broker's own marks."""
    with RocksDatabase(directory) as database:
        return {
            name: sum(key[:1] == b"\0" and len(key) > 8 for key, _ in database.entries(name))
            for name in ("timer", "trans")
        }


def _walk(facts: StoreFacts, progress: Callable[[str], Progress]) -> None:
    queues, database = facts.queues, facts.queue_database
    facts.log = survey_log(
        facts.root / "commitlog",
        dispatched_to=queues.checkpoint if queues is not None else 1 << 62,
        progress=progress("reading the log"),
    )
    if queues is not None and database is not None:
        show = progress("reading the queues")
        log = facts.log
        count_units(database, queues, log.min_offset, log.end_offset, lambda: show(0, 0))


# -- what it was written by and uses -----------------------------------------------------------


def _find_writer(facts: StoreFacts) -> str:
    """As far as files tell."""
    topics = facts.tables.topics if facts.tables is not None else {}
    version = next(iter((facts.tables or ConfigTables()).versions.values()), {})
    if facts.is_ours:
        return "a broker of ours, now or before"
    if (facts.root / SHARED_DATABASE).is_dir() or HALF_TOPICS[1] in topics:
        text = "RocketMQ 5.4 or 5.5"
    elif ConfigPlace.V2 in facts.config_places or (facts.root / POP_DATABASE).is_dir():
        text = "RocketMQ 5.3 or later"
    elif (
        ConfigPlace.V1 in facts.config_places
        or "stateVersion" in version
        or (facts.root / "timerwheel").exists()
        or any(name.startswith(_REVIVE) for name in topics)
    ):
        text = "RocketMQ 5.x"
    else:
        text = "RocketMQ 4.x, or 5.x" if not topics else "RocketMQ 4.x"
    rocks = _rocks_version(facts)
    return f"{text} (RocksDB {rocks})" if rocks else text


def _rocks_version(facts: StoreFacts) -> str:
    places = [facts.queue_database, facts.root / "config" / V2_NAME, facts.root / POP_DATABASE]
    for place in [each for each in places if each is not None and each.is_dir()]:
        for path in sorted(place.glob("OPTIONS-*")):
            found = _ROCKS_VERSION.search(_options_text(path))
            if found:
                return found[1].decode()
    return ""


def _options_text(path: Path) -> bytes:
    try:
        return read_plain(path, _MAX_SMALL)
    except (OSError, StoreError):
        return b""


def _find_features(facts: StoreFacts) -> dict[str, int]:
    """What is in use, with how many of it wait."""
    found: dict[str, int] = {}
    if facts.pops:
        found["popped messages in kvStore"] = len(facts.pops)
    timers = _waiting_timers(facts.root / "config" / "timermetrics")
    if timers:
        found["timers waiting"] = timers
    for name, count in facts.in_shared.items():
        if count:
            found[f"{name} entries in {SHARED_DATABASE}"] = count
    if facts.log is None:
        return found
    ends = facts.log.ends()
    waiting = _waiting_delays(facts.root / "config" / "delayOffset.json", ends)
    if waiting:
        found["delayed messages waiting"] = waiting
    halves = sum(open_halves(facts).values())
    if halves:
        found["open transactions"] = halves
    points = sum(end for (topic, _), end in ends.items() if topic.startswith(_REVIVE))
    if points:
        found["records of pops"] = points
    light = sum(topic.startswith(LMQ_PREFIX) for topic, _ in ends)
    if light:
        found["light queues"] = light
    return found


def open_halves(facts: StoreFacts) -> dict[str, int]:
    """Transactions that are neither committed nor rolled back, by the topic of their halves: what a
    broker has checked and put again lies before the offset of its own group."""
    found: dict[str, int] = {}
    if facts.log is None or facts.tables is None:
        return found
    for topic in HALF_TOPICS:
        start = facts.tables.offsets.get(f"{topic}@{_TRANSACTION_GROUP}", {}).get(0, 0)
        count = sum(t == topic and offset >= start for t, offset in facts.log.open_halves)
        if count:
            found[topic] = count
    return found


def _waiting_delays(path: Path, ends: dict[QueueName, int]) -> int:
    value = _load(path).get("offsetTable")
    done = value if isinstance(value, dict) else {}
    waiting = 0
    for (topic, queue_id), end in ends.items():
        if topic == _DELAYS:
            offset = done.get(str(queue_id + 1), 0)
            waiting += max(0, end - offset) if isinstance(offset, int) else 0
    return waiting


def _waiting_timers(path: Path) -> int:
    table = _load(path).get("timingCount")
    rows = table.values() if isinstance(table, dict) else ()
    counts = [each.get("count") for each in rows if isinstance(each, dict)]
    return sum(each for each in counts if isinstance(each, int) and each > 0)


def _load(path: Path) -> dict[str, object]:
    try:
        value = loads_lenient(read_plain(path, _MAX_SMALL))
    except (OSError, StoreError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}

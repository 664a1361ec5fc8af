"""ConfigTables: topics, groups and consumer offsets, wherever a broker keeps them.

Three places: config/*.json, RocksDB v1 (a database each) and RocksDB v2 (config/rdb). Read from
all, written as the first (the form of Java 5.3.3, which ours reads, too) and the second (the way
back). Entries are kept as the JSON that was found: a member that this version does not know stays.
One thread. What an entry must look like is TopicConfig's and SubscriptionGroupConfig's matter.

Tested by tests/adopt/test_config_tables.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from adopt.plain_files import read_plain
from adopt.rocks_codec import (
    DamagedEntryError,
    StoredOffset,
    StoredText,
    StoredVersion,
    Table,
    decode_v2,
)
from adopt.rocks_database import Entry, RocksDatabase
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig
from remoting.remoting_serializable import (
    IntKeyMap,
    dumps_java,
    dumps_java_pretty,
    loads_lenient,
)
from store.errors import StoreError

Json = dict[str, Any]
V1_NAMES: Final = ("topics", "subscriptionGroups", "consumerOffsets")
V2_NAME: Final = "rdb"
JSON_NAMES: Final = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")
_VERSION_KEY: Final = b"kvDataVersionKey"
_NO_VERSION: Final[Json] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
_INT64: Final = 1 << 63
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})", re.ASCII)
"""In one form only, so that no two names of a queue are the same."""
_MAX_FILE: Final = 1 << 30


@dataclass(slots=True)
class ConfigTables:
    """See the module. `offsets`: queue id to offset, by "topic@group"."""

    topics: dict[str, Json] = field(default_factory=dict)
    groups: dict[str, Json] = field(default_factory=dict)
    forbidden: dict[str, Json] = field(default_factory=dict)
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    pull_offsets: int = 0
    """How many v2 has; no other place keeps them, a broker finds them again."""
    versions: dict[str, Json] = field(default_factory=dict)
    """Data version by the name of the JSON file."""
    damaged: list[str] = field(default_factory=list)
    """What could not be read, for people."""

    def counts(self) -> dict[str, int]:
        """For the report."""
        return {
            "topics": len(self.topics),
            "groups": len(self.groups),
            "forbidden": sum(len(each) for each in self.forbidden.values()),
            "offsets": sum(len(each) for each in self.offsets.values()),
        }

    def same_as(self, other: ConfigTables) -> bool:
        """Whether both say the same."""
        mine = (self.topics, self.groups, self.forbidden, self.offsets)
        return mine == (other.topics, other.groups, other.forbidden, other.offsets)

    def add_named(self, kind: str, key: bytes, text: bytes) -> None:
        """The same by its key of RocksDB. Two keys that are no text would become one name."""
        try:
            name = key.decode()
        except UnicodeDecodeError:
            self.damaged.append(f"{kind} {key!a}: the name is not UTF-8"[:300])
        else:
            self.add(kind, name, text)

    def add(self, kind: str, name: str, text: bytes) -> None:
        """One entry: kind is topics, groups, forbidden or offsets."""
        try:
            value = loads_lenient(text)
            if not isinstance(value, dict):
                raise ValueError("not a JSON object")
            if kind == "topics":
                TopicConfig.from_json(value)
                self.topics[name] = value
            elif kind == "groups":
                SubscriptionGroupConfig.from_json(value)
                self.groups[name] = value
            elif kind == "forbidden":
                self.forbidden[name] = {key: _int64(each) for key, each in value.items()}
            else:
                self.offsets[name] = _offsets(value.get("offsetTable"))
        except (ValueError, RecursionError) as error:
            self.damaged.append(f"{kind} {name!a}: {error}"[:300])


# -- reading -----------------------------------------------------------------------------------


def read_v1(config: Path) -> ConfigTables:
    """config/topics, subscriptionGroups, consumerOffsets; one that is not there is empty. Raises
    StoreError."""
    tables = ConfigTables()
    for name, kind, file in zip(V1_NAMES, ("topics", "groups", "offsets"), JSON_NAMES, strict=True):
        if not (config / name).is_dir():
            continue
        with RocksDatabase(config / name) as database:
            for key, value in database.entries("default"):
                tables.add_named(kind, key, value)
            for key, value in database.entries("kvDataVersion"):
                if key == _VERSION_KEY:
                    tables.versions[file] = _version(value)
            if kind == "groups":
                for key, value in database.entries("forbidden"):
                    tables.add_named("forbidden", key, value)
    return tables


def read_v2(directory: Path) -> ConfigTables:
    """config/rdb. Raises StoreError."""
    tables = ConfigTables()
    with RocksDatabase(directory) as database:
        for key, value in database.entries("default"):
            try:
                _add_v2(tables, key, value)
            except DamagedEntryError as error:
                tables.damaged.append(str(error))
    return tables


def _add_v2(tables: ConfigTables, key: bytes, value: bytes) -> None:
    entry = decode_v2(key, value)
    if isinstance(entry, StoredText):
        tables.add("topics" if entry.table is Table.TOPIC else "groups", entry.name, entry.text)
    elif isinstance(entry, StoredOffset) and entry.table is Table.PULL_OFFSET:
        tables.pull_offsets += 1
    elif isinstance(entry, StoredOffset):
        queues = tables.offsets.setdefault(f"{entry.topic}@{entry.group}", {})
        queues[entry.queue_id] = entry.offset
    elif isinstance(entry, StoredVersion) and entry.table is not Table.PULL_OFFSET:
        names = {Table.TOPIC: 0, Table.SUBSCRIPTION_GROUP: 1, Table.CONSUMER_OFFSET: 2}
        tables.versions[JSON_NAMES[names[entry.table]]] = {
            "counter": entry.counter,
            "stateVersion": entry.state_version,
            "timestamp": entry.timestamp,
        }
    elif entry is None:
        tables.damaged.append(f"config v2: an entry of a kind that 5.3.3 does not know: {key!a}")


def read_json(config: Path) -> ConfigTables:
    """config/*.json, or what the .bak says. Raises StoreError."""
    tables = ConfigTables()
    members = ("topicConfigTable", "subscriptionGroupTable", "offsetTable")
    for file, member in zip(JSON_NAMES, members, strict=True):
        value = _read_file(config / file)
        if value is None:
            continue
        for name, entry in _objects(value.get(member)):
            if member == "offsetTable":
                tables.add("offsets", name, dumps_java({"offsetTable": entry}))
            else:
                kind = "topics" if member == "topicConfigTable" else "groups"
                tables.add(kind, name, dumps_java(entry))
        for name, entry in _objects(value.get("forbiddenTable")):
            tables.add("forbidden", name, dumps_java(entry))
        if isinstance(version := value.get("dataVersion"), dict):
            tables.versions[file] = version
    return tables


def _objects(value: object) -> Iterator[tuple[str, object]]:
    yield from value.items() if isinstance(value, dict) else ()


def _read_file(path: Path) -> Json | None:
    problems = []
    for each in (path, path.with_name(path.name + ".bak")):
        try:
            value = loads_lenient(read_plain(each, _MAX_FILE))
            if isinstance(value, dict):
                return value
            raise ValueError("not a JSON object")
        except FileNotFoundError:
            continue
        except (StoreError, ValueError, RecursionError) as error:
            problems.append(f"{each}: {error}")
    if problems:
        raise StoreError(
            f"{'; '.join(problems)}: restore one of the two from a copy or a dump of mqadmin, or "
            "move both away to go on without"
        )
    return None


def _version(text: bytes) -> Json:
    try:
        value = loads_lenient(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else dict(_NO_VERSION)


def _offsets(value: object) -> dict[int, int]:
    if not isinstance(value, dict):
        raise ValueError("no offsetTable")
    return {_int64(queue_id): _int64(offset) for queue_id, offset in value.items()}


def _int64(value: object) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -_INT64 <= value < _INT64:
        raise ValueError(f"{value!a:.40} is not an offset or number of a queue")
    return value


# -- writing -----------------------------------------------------------------------------------


def json_files(tables: ConfigTables) -> dict[str, bytes]:
    """The files of config/ that say the same, by name."""
    offsets = {
        key: IntKeyMap(dict(sorted(queues.items())))
        for key, queues in sorted(tables.offsets.items())
    }
    bodies: tuple[Json, ...] = (
        {"topicConfigTable": dict(sorted(tables.topics.items()))},
        {
            "forbiddenTable": dict(sorted(tables.forbidden.items())),
            "subscriptionGroupTable": dict(sorted(tables.groups.items())),
        },
        {"offsetTable": offsets},
    )
    return {
        name: dumps_java_pretty(
            {"dataVersion": {**_NO_VERSION, **tables.versions.get(name, {})}, **body}
        )
        for name, body in zip(JSON_NAMES, bodies, strict=True)
    }


def v1_databases(tables: ConfigTables) -> dict[str, dict[str, list[Entry]]]:
    """Column families and their entries, by the name of the database below config/."""
    forbidden = [(name.encode(), dumps_java(value)) for name, value in tables.forbidden.items()]
    offsets = [
        (key.encode(), dumps_java({"offsetTable": {str(q): o for q, o in queues.items()}}))
        for key, queues in tables.offsets.items()
    ]
    return {
        "topics": _families(tables, JSON_NAMES[0], _texts(tables.topics), []),
        "subscriptionGroups": _families(tables, JSON_NAMES[1], _texts(tables.groups), forbidden),
        "consumerOffsets": _families(tables, JSON_NAMES[2], offsets, []),
    }


def _texts(entries: dict[str, Json]) -> list[Entry]:
    return [(name.encode(), dumps_java(value)) for name, value in entries.items()]


def _families(
    tables: ConfigTables, file: str, entries: list[Entry], forbidden: list[Entry]
) -> dict[str, list[Entry]]:
    version = {**_NO_VERSION, **tables.versions.get(file, {})}
    return {
        "default": entries,
        "forbidden": forbidden,
        "kvDataVersion": [(_VERSION_KEY, dumps_java(version))],
    }

"""Writes the tables of docs/settings.md from the declarations of the settings.

`.venv/bin/python -m tests.broker.settings_document` writes them again, below the marker; the text
above it is written by hand. The test of it compares the whole document.

A line of a table stays within MAX_COLUMNS, so that it can be read in a diff: the table shows as
much of a long meaning as fits, a list below it the whole.
"""

from __future__ import annotations

import enum
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from broker import broker_startup
from broker.container import container_startup
from broker.container.container_config import BrokerContainerConfig
from broker.settings.auth_config import AuthConfig
from broker.settings.broker_config import BrokerConfig
from broker.settings.controller_mode_config import ControllerModeConfig
from broker.settings.supervisor_config import SupervisorConfig
from conf.config_fields import FieldSpec, field_specs
from conf.config_loader import KeySpace
from conf.file_permissions import FilePermissionConfig
from conf.ignored_keys import (
    ALIASES,
    IGNORED_BROKER_GROUPS,
    IGNORED_CONTAINER_KEYS,
    IGNORED_CONTROLLER_KEYS,
    IGNORED_NAMESRV_KEYS,
    REFUSED,
)
from conf.logging_setup import LoggingConfig
from controller import controller_startup
from controller.controller_config import ControllerConfig
from controller.etcd_config import EtcdConfig
from ha.ha_config import HaConfig
from namesrv import namesrv_startup
from namesrv.namesrv_config import NamesrvConfig
from remoting.remoting_config import RemotingClientConfig, RemotingServerConfig
from remoting.tls_config import TlsConfig
from store.message_store_config import MessageStoreConfig

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = ROOT / "docs" / "settings.md"
COMMAND: Final = ".venv/bin/python -m tests.broker.settings_document"
MARKER: Final = f"<!-- Everything below is generated: {COMMAND} -->\n"
KEYS_FILE: Final = ROOT / "tests" / "conf" / "original_keys.txt"

TITLES: Final[Mapping[type, str]] = {
    BrokerConfig: "Broker",
    RemotingServerConfig: "Server",
    RemotingClientConfig: "Outgoing connections",
    MessageStoreConfig: "Store",
    AuthConfig: "Users and ACLs of 5.x",
    HaConfig: "Replication",
    ControllerModeConfig: "Member of a group with a controller",
    SupervisorConfig: "Processes, metrics and dumps",
    LoggingConfig: "Log files",
    FilePermissionConfig: "Files",
    TlsConfig: "TLS",
    NamesrvConfig: "Name server",
    BrokerContainerConfig: "Broker container",
    ControllerConfig: "Controller",
    EtcdConfig: "The etcd of several controllers",
}
MAX_COLUMNS: Final = 200
"""Of a line of a table (tests/test_documents.py)."""
LIST_COLUMNS: Final = 100
_KIND_WORDS: Final = {bool: "true, false", int: "whole number", float: "number", str: "text"}


def known_keys() -> dict[str, frozenset[str]]:
    """The sections of tests/conf/original_keys.txt: program and version to RocketMQ's keys."""
    text = KEYS_FILE.read_text(encoding="utf-8")
    sections = re.findall(r"^\[([^\]]+)\]\n([^\[]*)", text, re.MULTILINE)
    return {name: frozenset(keys.split()) for name, keys in sections}


def document(head: str) -> str:
    """The whole text: `head` is what was written by hand, up to the marker."""
    keys = known_keys()
    broker = {
        "4.9.8": keys["broker 4.9.8"],
        "5.3.3": keys["broker 5.3.3"],
        "5.5": keys["broker 5.5.0, what 5.3.3 has not"] | keys["broker 5.5.1, what 5.5.0 has not"],
    }
    namesrv = {"yes": keys["namesrv 4.9.8 and 5.3.3"]}
    broker_tables = _tables(broker_startup.KEYS, broker_startup.PROGRAM_DEFAULTS, broker)
    namesrv_tables = _tables(namesrv_startup.KEYS, namesrv_startup.PROGRAM_DEFAULTS, namesrv)
    container_tables = _tables(
        container_startup.KEYS,
        container_startup.PROGRAM_DEFAULTS,
        {"5.3.3": keys["container 5.3.3"]},
    )
    controller_tables = _tables(
        controller_startup.KEYS,
        controller_startup.PROGRAM_DEFAULTS,
        {"5.3.3": keys["controller 5.3.3"]},
    )
    parts = (
        head + MARKER,
        _legend(),
        "## All settings of the broker",
        *broker_tables,
        "## All settings of the name server",
        *namesrv_tables,
        "## All settings of the broker container",
        *container_tables,
        "## All settings of the controller",
        *controller_tables,
        _aliases(),
        _refused(),
        _ignored(),
    )
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def hand_written(text: str) -> str:
    """What stands above the marker of the document `text`."""
    head, marker, _ = text.partition(MARKER)
    if not marker:
        raise ValueError(f"{DOCUMENT}: there is no line {MARKER!r}")
    return head


def _legend() -> str:
    return """\
## How to read the tables

- `-p` prints all settings but those of TLS, `-m` only the **bold** ones.
- *Values*: the inclusive range and the unit. A value outside it stops the start.
- *Changeable*: whether `updateBrokerConfig` or `updateNamesrvConfig` may change it, and when the
  new value takes effect.
- *RocketMQ*: whether 4.9.8 has the key, or only 5.3.3, or only 5.5 ("yes": one of them); – if it
  exists only here, and "property" for a system property (`-D`)."""


def _tables(
    space: KeySpace, program_defaults: Mapping[str, str], versions: Mapping[str, frozenset[str]]
) -> Iterator[str]:
    """One table for each settings class; a key that two classes share is in the first."""
    shown: set[str] = set()
    for cls in space.classes:
        specs = [spec for spec in field_specs(cls) if spec.key not in shown]
        shown.update(spec.key for spec in specs)
        rows = [_row(spec, program_defaults, versions) for spec in specs]
        head = (
            "| key | default | values | changeable | RocketMQ | meaning |",
            "|---|---|---|---|---|---|",
        )
        long = [
            (spec.key, _escaped(_meaning(spec)))
            for spec, row in zip(specs, rows, strict=True)
            if row.endswith(f"{_MORE} |")
        ]
        below = ("", "In full:", "", *bullets(long)) if long else ()
        yield "\n".join((f"### {TITLES[cls]}", "", *head, *rows, *below))


_MORE: Final = " …"


def _meaning(spec: FieldSpec) -> str:
    return f"{spec.doc} (environment: {spec.env})" if spec.env else spec.doc


def bullets(items: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Lines of a list: each item's name, and what there is to say of it."""
    for name, text in items:
        yield from textwrap.wrap(
            f"- {name}: {text}",
            LIST_COLUMNS,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def _row(
    spec: FieldSpec, program_defaults: Mapping[str, str], versions: Mapping[str, frozenset[str]]
) -> str:
    """A line of the table, with as many clauses of the meaning as it has room for."""
    for meaning in _shorter_and_shorter(_meaning(spec)):
        row = _cells(spec, meaning, program_defaults, versions)
        if len(row) <= MAX_COLUMNS:
            return row
    raise ValueError(f"{spec.key}: its row has more than {MAX_COLUMNS} columns")


def _shorter_and_shorter(meaning: str) -> Iterator[str]:
    """The whole first, then what stands before one of its semicolons, then before a comma."""
    yield meaning
    for mark in (";", ","):
        clauses = meaning.split(f"{mark} ")
        for count in range(len(clauses) - 1, 0, -1):
            yield f"{mark} ".join(clauses[:count]) + _MORE


def _cells(
    spec: FieldSpec,
    meaning: str,
    program_defaults: Mapping[str, str],
    versions: Mapping[str, frozenset[str]],
) -> str:
    key = f"**{spec.key}**" if spec.important else spec.key
    cells = (
        program_defaults.get(spec.key, spec.shown_default) or "unset",
        values(spec),
        spec.changeable.value if spec.changeable else "no",
        _version(spec.key, versions),
        meaning,
    )
    return f"| {key} {_line(cells)}"


def values(spec: FieldSpec) -> str:
    """What is accepted, shorter than in an error: "1..65535 ms", "A, B", "text"."""
    if issubclass(spec.kind, enum.Enum):
        return ", ".join(spec.kind.__members__)
    range_and_unit = f"{_range(spec.minimum, spec.maximum)} {spec.unit}".strip()
    return range_and_unit or _KIND_WORDS[spec.kind]


def _range(minimum: float | None, maximum: float | None) -> str:
    if minimum is None:
        return "" if maximum is None else f"≤ {maximum}"
    return f"≥ {minimum}" if maximum is None else f"{minimum}..{maximum}"


def _version(key: str, versions: Mapping[str, frozenset[str]]) -> str:
    if key.startswith("tls."):
        return "property"
    return next((version for version, keys in versions.items() if key in keys), "–")


def _table(title: str, words: str, head: str, rows: Iterable[Sequence[str]]) -> str:
    line = re.sub(r"[^|]+", "---", head)
    return "\n".join((f"## {title}", "", words, "", head, line, *(_line(row) for row in rows)))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """`text` so that Markdown shows it unchanged."""
    return re.sub(r"([*<|]|__)", r"\\\1", text)


def _aliases() -> str:
    return _table(
        "Aliases",
        "Other names that a settings file may use (4.3 and older, 5.x, system properties).",
        "| alias | key |",
        sorted(ALIASES.items()),
    )


def _refused() -> str:
    rows = (
        (key, ", ".join(sorted(refusal.harmless)) or "empty", refusal.reason.partition(";")[0])
        for key, refusal in sorted(REFUSED.items())
    )
    return _table(
        "Refused keys of RocketMQ",
        "Ignoring these would break what the file promises: any other value stops the start.",
        "| key | accepted value | why |",
        rows,
    )


def _ignored() -> str:
    groups = {
        **IGNORED_BROKER_GROUPS,
        "name server": IGNORED_NAMESRV_KEYS,
        "broker container": IGNORED_CONTAINER_KEYS,
        "controller": IGNORED_CONTROLLER_KEYS,
    }
    lists = ((reason, sorted(keys - REFUSED.keys())) for reason, keys in groups.items())
    return f"""\
## Keys of RocketMQ without effect

All keys of 4.9.8, 5.3.3 and 5.5 that are not in a table above. A start names those that it finds in
one warning, and those since 5.5 in a line each, with the reason.

{ignored_lists(lists)}"""


def ignored_lists(groups: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Keys without effect by the reason: "- **reason** (how many)", then the keys."""
    return "\n".join(
        line
        for reason, keys in groups
        for line in bullets([(f"**{reason}** ({len(keys)})", ", ".join(keys))])
    )


def main() -> None:
    """Write the tables again."""
    head = hand_written(DOCUMENT.read_text(encoding="utf-8"))
    DOCUMENT.write_text(document(head), encoding="utf-8")
    print(f"written: {os.path.relpath(DOCUMENT)}")


if __name__ == "__main__":
    main()

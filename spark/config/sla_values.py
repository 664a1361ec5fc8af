"""One value of sla.yaml: numbers, texts, times, addresses; what cannot be used becomes a problem.

Parsers of YAML nodes for spark/config/sla_config.py, which knows what the keys mean. On the driver,
before Spark is started.

Tested by tests/spark/config/test_sla_config.py.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from spark.config.exclusions import WEEKDAYS
from spark.config.objectives import STEP_EXIT_CODES
from spark.vocabulary import DAY_MS

_MAX_COPIES: Final = 100
_MAX_BYTES: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_STR_TAG: Final = "tag:yaml.org,2002:str"
_BOOL_TAG: Final = "tag:yaml.org,2002:bool"
_NULL_TAG: Final = "tag:yaml.org,2002:null"
_CLOCK_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_WEEKLY: Final = re.compile(rf"(\w+) ({_CLOCK_TIME})-({_CLOCK_TIME}|24:00)")
SWITCHED_OFF: Final = "off"
_MAX_LABEL: Final = 80


class ValueReader:
    """Collects every mistake of one file with its line."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.problems: list[tuple[int, str]] = []

    def problem(self, node: yaml.Node, text: str) -> None:
        """Notes a mistake at the line where `node` begins."""
        self.problems.append((node.start_mark.line + 1, text))

    def number(self, key: str, node: yaml.Node, unit: str) -> float | None:
        """A number, as written; None (and a problem) for anything else."""
        plain = isinstance(node, yaml.ScalarNode) and node.style is None
        if not plain or not _NUMBER.fullmatch(node.value):
            self.problem(
                node,
                f"{key} is {shown(node)}: write a plain number of {unit}, without a unit or quotes",
            )
            return None
        return float(node.value)

    def text(self, key: str, node: yaml.Node) -> str | None:
        """A text that is not empty; None (and a problem) for anything else."""
        if isinstance(node, yaml.ScalarNode) and node.tag == _STR_TAG and node.value.strip():
            return str(node.value)
        is_scalar = isinstance(node, yaml.ScalarNode) and node.tag not in (_STR_TAG, _NULL_TAG)
        way_out = f'write it in quotes: "{node.value}"' if is_scalar else "write a text"
        self.problem(node, f"{key} is {shown(node)}: {way_out}")
        return None

    def pairs(
        self, node: yaml.Node, known: Sequence[str], where: str
    ) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Key and value nodes of a mapping by key; unknown and repeated keys are problems."""
        if not isinstance(node, yaml.MappingNode):
            expected = ", ".join(f"{key}:" for key in known)
            self.problem(node, f"{where}{shown(node)} is not a mapping; expected keys: {expected}")
            return {}
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key_node, value in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else shown(key_node)
            if key not in known:
                self.problem(key_node, f"{where}unknown key {key!r}{_nearest(key, known)}")
            elif key in found:
                first = found[key][0].start_mark.line + 1
                self.problem(
                    key_node,
                    f"{where}{key} is given twice, first in line {first}; remove one of them",
                )
            else:
                found[key] = (key_node, value)
        return found


def _nearest(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key.lower(), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


Parser = Callable[["ValueReader", str, yaml.Node], Any]
"""Gives None, and notes a problem, for what cannot be used."""


def number(low: float, high: float, unit: str, *, open_end: str = "") -> Parser:
    """Parser of a number within [low, high]; `open_end` "low", "high" or "both" leaves it out."""

    def parse(reader: ValueReader, key: str, node: yaml.Node) -> float | None:
        value = reader.number(key, node, unit)
        if value is None:
            return None
        too_low = value < low or (value == low and open_end in ("low", "both"))
        if too_low or value > high or (value == high and open_end in ("high", "both")):
            first = "above" if open_end in ("low", "both") else "at least"
            last = "below" if open_end in ("high", "both") else "at most"
            limits = f"{first} {low:,.0f} and {last} {high:,.0f} {unit}"
            reader.problem(node, f"{key} is {node.value}: it must be {limits}")
            return None
        return value

    return parse


def whole_bytes(reader: ValueReader, key: str, node: yaml.Node) -> int | None:
    """A number of bytes."""
    value = reader.number(key, node, "bytes")
    if value is None:
        return None
    # int() comes last: 1e999 is a number, too.
    if not 0 <= value < _MAX_BYTES or value != int(value):
        limits = f"a whole number of bytes, >= 0 and below {_MAX_BYTES:,}"
        reader.problem(node, f"{key} is {node.value}: it must be {limits}")
        return None
    return int(value)


def copies(reader: ValueReader, key: str, node: yaml.Node) -> int | None:
    """A number of copies, the master's own included: with 1 no replica is needed."""
    value = reader.number(key, node, "copies")
    if value is None:
        return None
    if not 2 <= value <= _MAX_COPIES or value != int(value):
        limits = (
            f"a whole number, at least 2 (the master and one replica) and at most {_MAX_COPIES}"
        )
        reader.problem(node, f"{key} is {node.value}: it must be {limits}")
        return None
    return int(value)


def mapping(
    make: Callable[..., Any],
    parsers: Mapping[str, Parser],
    *,
    required: Sequence[str],
    words: Mapping[str, Any] | None = None,
) -> Parser:
    """Parser of a mapping with these keys, of which `make` makes a value; or one of some words."""
    known = words or {}

    def parse(reader: ValueReader, key: str, node: yaml.Node) -> Any:
        if isinstance(node, yaml.ScalarNode) and node.value in known:
            return known[node.value]
        example = "{" + ", ".join(f"{name}: …" for name in parsers) + "}"
        if not isinstance(node, yaml.MappingNode):
            ways = " or ".join([*known, example])
            reader.problem(node, f"{key} is {shown(node)}: write {ways}")
            return None
        pairs = reader.pairs(node, tuple(parsers), f"{key}: ")
        if missing := [name for name in required if name not in pairs]:
            reader.problem(node, f"{key} lacks {' and '.join(missing)}: write {example}")
            return None
        values = {name: parsers[name](reader, name, value) for name, (_, value) in pairs.items()}
        return None if None in values.values() else make(**values)

    return parse


def entries(
    make: Callable[..., Any],
    parsers: Mapping[str, Parser],
    *,
    required: Sequence[str],
    one_of: Sequence[str],
) -> Parser:
    """Parser of a list of mappings with these keys, at least one of `one_of` among them: a tuple of
    what `make` makes of each."""
    of_entry = mapping(make, parsers, required=required)

    def parse(reader: ValueReader, key: str, node: yaml.Node) -> Any:
        if not isinstance(node, yaml.SequenceNode):
            example = "{" + ", ".join(f"{name}: …" for name in parsers) + "}"
            text = f"write a list of entries like {example}; each begins with a dash"
            reader.problem(node, f"{key} is {shown(node)}: {text}")
            return None
        found = [of_entry(reader, key, entry) for entry in node.value]
        for entry, value in zip(node.value, found, strict=True):
            if value is not None and all(getattr(value, name) is None for name in one_of):
                reader.problem(entry, f"{key} lacks {' or '.join(one_of)}: write one of them")
        return None if None in found else tuple(found)

    return parse


def bound(known: Sequence[int], unit: str) -> Parser:
    """One of the bounds by which brokers count; any other one could not be proved."""

    def parse(reader: ValueReader, key: str, node: yaml.Node) -> int | None:
        value = reader.number(key, node, unit)
        if value is None:
            return None
        if value not in known:
            place = bisect_left(known, value)
            near = " or ".join(str(each) for each in known[max(0, place - 1) : place + 1])
            text = f"is no bound by which brokers count {unit}, so it could never be proved"
            reader.problem(node, f"{key} is {node.value}: it {text}; write {near}")
            return None
        return int(value)

    return parse


def text(reader: ValueReader, key: str, node: yaml.Node) -> str | None:
    """A text that is not empty."""
    return reader.text(key, node)


def label(reader: ValueReader, key: str, node: yaml.Node) -> str | None:
    """A short text that can be printed, for a line."""
    label = reader.text(key, node)
    if label is not None and not (len(label) <= _MAX_LABEL and label.isprintable()):
        limits = f"one line of at most {_MAX_LABEL} printable characters"
        reader.problem(node, f"{key} is {label!r}: it must be {limits}")
        return None
    return label


def step_exit_code(reader: ValueReader, key: str, node: yaml.Node) -> int | None:
    """One of STEP_EXIT_CODES."""
    text = node.value if isinstance(node, yaml.ScalarNode) and node.style is None else ""
    if text not in map(str, STEP_EXIT_CODES):
        known = "1, 2, or a code of its own from 10 to 99"
        reader.problem(node, f"{key} is {shown(node)}: it must be {known}")
        return None
    return int(text)


def exact_name(reader: ValueReader, key: str, node: yaml.Node) -> str | None:
    """A name without wildcards."""
    name = reader.text(key, node)
    if name is not None and re.search(r"[*?|]", name):
        reader.problem(node, f"{key} is {name!r}: expect needs exact names, not patterns")
        return None
    return name


def pattern(reader: ValueReader, key: str, node: yaml.Node) -> str | None:
    """See `objectives.pattern_regex`."""
    pattern = reader.text(key, node)
    if pattern is not None and "" in pattern.split("|"):
        reader.problem(node, f"{key} is {pattern!r}: an empty alternative; remove the |")
        return None
    return pattern


def flag(reader: ValueReader, key: str, node: yaml.Node) -> bool | None:
    """True or false."""
    if not isinstance(node, yaml.ScalarNode) or node.tag != _BOOL_TAG:
        reader.problem(node, f"{key} is {shown(node)}: write true or false")
        return None
    return str(node.value).lower() in ("true", "yes", "on")


def sync_ok(reader: ValueReader, key: str, node: yaml.Node) -> float | str | None:
    """A share, or `off`: an entry that is left out means the default instead."""
    if isinstance(node, yaml.ScalarNode) and node.value.lower() in (SWITCHED_OFF, "null"):
        return SWITCHED_OFF
    if is_empty(node):
        reader.problem(node, f"{key} is empty: write a plain number of percent, or off")
        return None
    share: float | None = number(0, 100, "percent", open_end="low")(reader, key, node)
    return share


def web_address(reader: ValueReader, key: str, node: yaml.Node) -> str | None:
    """An http or https URL."""
    address = reader.text(key, node)
    if address is None:
        return None
    if not is_web_address(address):
        reader.problem(node, f"{key} is {address!r}: write a whole address, https://host/path")
        return None
    return address


def is_web_address(text: str) -> bool:
    """Whether it is an http or https URL of a host: a page may link to it."""
    try:
        parts = urlsplit(text)
        is_ours = parts.scheme in ("http", "https") and bool(parts.hostname)
        return is_ours and parts.port != 0 and text.isprintable() and " " not in text
    except ValueError:  # a port that is no number, a bracket too many
        return False


def moment(reader: ValueReader, key: str, node: yaml.Node) -> int | None:
    """Epoch ms of a timestamp; without a zone it is UTC."""
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        reader.problem(node, f"{key} is {shown(node)}: write a time in UTC, 2026-12-01T22:00:00Z")
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def weekly(reader: ValueReader, key: str, node: yaml.Node) -> tuple[int, int] | None:
    """Ms since Monday 00:00 UTC; an end before its begin is the next day's."""
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    match = _WEEKLY.fullmatch(text)
    days = [day for day in WEEKDAYS if match and day == match[1].lower()]
    if match is None or not days:
        example = 'write a day and its times in UTC: "sunday 02:00-04:00"'
        reader.problem(node, f"{key} is {shown(node)}: {example}")
        return None
    begin, end = _minutes(match[2]) * 60_000, _minutes(match[3]) * 60_000
    if begin == end:
        reader.problem(node, f"{key} is {text!r}: it begins and ends at the same time")
        return None
    midnight = WEEKDAYS.index(days[0]) * DAY_MS
    return midnight + begin, midnight + end + (DAY_MS if end < begin else 0)


def _minutes(clock_time: str) -> int:
    hours, minutes = clock_time.split(":")
    return int(hours) * 60 + int(minutes)


def is_empty(node: yaml.Node) -> bool:
    """Whether nothing is written there."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL_TAG


def shown(node: yaml.Node) -> str:
    """What is written there, for a message."""
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return repr(node.value) if node.value else "empty"

"""Reads sla.yaml: which objective a replica has, who is expected or retired, what does not count.

Run on the driver before Spark is started; knows YAML and nothing of Spark or dumps. All mistakes
are reported at once, each with file:line and the way out. What each value means for the verdict is
said in docs/sla_report.md.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from spark.config import calendar_periods, sla_values
from spark.config.calendar_periods import CALENDARS
from spark.config.exclusions import Exclusion
from spark.config.objective_values import OBJECTIVE, PATTERNS
from spark.config.objectives import (
    DEFAULT_WINDOWS,
    EXIT_POLICIES,
    Objective,
    PolicyStep,
    ReplicaName,
    ReplicaPattern,
    SlaConfig,
    alternatives,
    glob_regex,
)
from spark.config.sla_values import Parser, ValueReader, is_empty, shown
from spark.vocabulary import FIRST_COPY, IS_MASTER, NOT_YET

DEFAULT_NAME: Final = "default"
"""Name of the objective that is added when the file has none that matches everything."""
_MAX_WINDOWS: Final = 4
_MAX_WINDOW_DAYS: Final = 90


class SlaError(Exception):
    """An sla.yaml that cannot be used; `problems` holds one `file:line: text` for each mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def default_sla() -> SlaConfig:
    """What holds without a file: 99.9 %, 10 s, coverage 99 % for everything; 7 and 30 days."""
    return SlaConfig((Objective(DEFAULT_NAME),))


def read_sla(path: Path) -> SlaConfig:
    """The service levels of a file. Raises SlaError."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise SlaError([f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise SlaError(
            [f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})"]
        ) from error
    return dataclasses.replace(parse_sla(text, str(path)), text=content)


def parse_sla(text: str, source: str) -> SlaConfig:
    """The service levels of a text; `source` names it in errors. Raises SlaError."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        raise SlaError([f"{where}: not valid YAML: {error.problem or error.context}"]) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        shown = f"the character U+{error.character:04X} must not be in it"
        raise SlaError([f"{source}:{line}: not valid YAML: {shown}"]) from error
    except yaml.YAMLError as error:
        raise SlaError([f"{source}: not valid YAML: {' '.join(str(error).split())}"]) from error
    except RecursionError as error:
        raise SlaError([f"{source}: nested too deeply"]) from error
    reader = _Reader(source)
    config = reader.read(root)
    if reader.problems:
        raise SlaError([f"{source}:{line}: {problem}" for line, problem in sorted(reader.problems)])
    return config


_EXACT: Final[Mapping[str, Parser]] = dict.fromkeys(PATTERNS, sla_values.exact_name)
_MAINTENANCE: Final[Mapping[str, Parser]] = {
    "from": sla_values.moment,
    "to": sla_values.moment,
    "weekly": sla_values.weekly,
    **PATTERNS,
    "reason": sla_values.text,
}
_POLICY_STEP: Final[Mapping[str, Parser]] = {
    "at_percent": sla_values.number(0, 1000, "percent", open_end="low"),
    "label": sla_values.label,
    "exit_code": sla_values.step_exit_code,
    "notify": sla_values.flag,
}
_EVERYTHING: Final = ("*", "*", "*")
_SECTIONS: Final = (
    *("objectives", "windows", "timezone", "expect", "retired", "maintenance", "exit_on"),
    "error_budget_policy",
)


class _Reader(ValueReader):
    """Walks the YAML nodes of one file and collects every mistake with its line."""

    def read(self, root: yaml.Node | None) -> SlaConfig:
        """What the file says; of no use when there are problems."""
        if root is None:
            return dataclasses.replace(default_sla(), source=self._source)
        sections = {key: value for key, (_, value) in self.pairs(root, _SECTIONS, "").items()}
        objectives = self._objectives(sections.get("objectives"))
        retired = [
            (ReplicaPattern(**values), node)
            for values, node in self._entries("retired", sections.get("retired"), PATTERNS)
        ]
        for pattern, node in retired:
            if _covers(pattern.patterns, _EVERYTHING):
                self.problem(
                    node,
                    "retired: this entry matches every replica; name a cluster,"
                    " a broker or a replica",
                )
        expect = self._expected(sections.get("expect"), [pattern for pattern, _ in retired])
        windows, calendars = self._windows(sections.get("windows"))
        timezone = self._timezone(sections.get("timezone"), calendars)
        return SlaConfig(
            objectives,
            expect,
            tuple(pattern for pattern, _ in retired),
            windows,
            self._source,
            self._exclusions(sections.get("maintenance")),
            self._exit_policy(sections.get("exit_on")),
            calendars,
            timezone,
            budget_policy=self._budget_policy(sections.get("error_budget_policy")),
        )

    def _entries(
        self,
        section: str,
        node: yaml.Node | None,
        parsers: Mapping[str, Parser],
        required: Sequence[str] = (),
    ) -> Iterator[tuple[dict[str, Any], yaml.Node]]:
        """The entries of a list of mappings: parsed values by key (what is wrong left out)."""
        if node is None or is_empty(node):
            return
        if not isinstance(node, yaml.SequenceNode):
            self.problem(
                node, f"{section} is {shown(node)}: write a list; each entry begins with a dash"
            )
            return
        for entry in node.value:
            pairs = self.pairs(entry, tuple(parsers), f"{section}: ")
            if isinstance(entry, yaml.MappingNode):
                missing = [key for key in required if key not in pairs]
                if missing:
                    self.problem(entry, f"{section}: this entry lacks {' and '.join(missing)}")
                parsed = {k: parsers[k](self, k, value) for k, (_, value) in pairs.items()}
                yield {key: value for key, value in parsed.items() if value is not None}, entry

    def _objectives(self, node: yaml.Node | None) -> tuple[Objective, ...]:
        entries = list(self._entries("objectives", node, OBJECTIVE, required=["name"]))
        found = [(_objective(values), entry) for values, entry in entries]
        if not self.problems:  # a default in the place of what is wrong would blame the wrong line
            for index, (objective, entry) in enumerate(found):
                self._check_objective(objective, entry, found[:index])
        objectives = tuple(objective for objective, _ in found)
        if any(_covers(objective.patterns, _EVERYTHING) for objective in objectives):
            return objectives
        for objective, entry in found:
            if objective.name == DEFAULT_NAME:
                text = f"the name {DEFAULT_NAME!r} is reserved for the objective that matches"
                self.problem(entry, f"{text} everything; rename this one")
        return (*objectives, Objective(DEFAULT_NAME))

    def _check_objective(
        self,
        objective: Objective,
        entry: yaml.Node,
        before: Sequence[tuple[Objective, yaml.Node]],
    ) -> None:
        name = repr(objective.name)
        for other, node in before:
            line = node.start_mark.line + 1
            if other.name == objective.name:
                text = f"the name {name} is already used by the objective in line {line}"
                self.problem(entry, f"{text}; give each its own")
            if _covers(other.patterns, objective.patterns):
                text = f"objective {name} can never match: {other.name!r} in line {line} matches"
                self.problem(entry, f"{text} all of it; put this one before it")
        if objective.metadata_required and objective.metadata_age_seconds is None:
            text = "metadata_required: true has no effect without metadata_age_seconds"
            self.problem(entry, f"{text}; set it as well")

    def _windows(self, node: yaml.Node | None) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Days of each rolling window, ascending, and the calendar periods, shortest first."""
        if node is None or is_empty(node):
            return DEFAULT_WINDOWS, ()
        example = f"write a list of days, like [{', '.join(map(str, DEFAULT_WINDOWS))}]"
        if not isinstance(node, yaml.SequenceNode):
            self.problem(node, f"windows is {shown(node)}: {example}")
            return DEFAULT_WINDOWS, ()
        found: dict[int | str, int] = {}
        count = 0
        for item in node.value:
            is_calendar = isinstance(item, yaml.ScalarNode) and item.value in CALENDARS
            count += not is_calendar
            length = item.value if is_calendar else self._days(item)
            if length in found:
                text = f"windows has {length} twice, first in line {found[length]}"
                self.problem(item, f"{text}; remove one of them")
            elif length is not None:
                found[length] = item.start_mark.line + 1
        if not 1 <= count <= _MAX_WINDOWS:
            text = f"windows has {count} entries: it must have 1 to {_MAX_WINDOWS}"
            if count != len(node.value):
                text = f"windows has {count} numbers of days: it must have 1 to {_MAX_WINDOWS}"
            self.problem(node, f"{text}; {example}")
        days = sorted(length for length in found if isinstance(length, int))
        return tuple(days), tuple(name for name in CALENDARS if name in found)

    def _days(self, item: yaml.Node) -> int | None:
        if isinstance(item, yaml.ScalarNode) and item.value.isalpha():
            known = ", ".join(CALENDARS)
            self.problem(item, f"windows has {item.value!r}: write a number of days, or {known}")
            return None
        days = self.number("windows", item, "days")
        if days is None:
            return None
        if not 2 <= days <= _MAX_WINDOW_DAYS or days != int(days):
            limits = f"a whole number of days, at least 2 and at most {_MAX_WINDOW_DAYS}"
            self.problem(item, f"windows has {shown(item)[1:-1]}: it must be {limits}")
            return None
        return int(days)

    def _timezone(self, node: yaml.Node | None, calendars: Sequence[str]) -> str:
        """Of the calendar periods."""
        if node is None or is_empty(node):
            return calendar_periods.UTC
        name = self.text("timezone", node)
        if name is None:
            return calendar_periods.UTC
        if problem := calendar_periods.timezone_problem(name):
            self.problem(node, f"timezone is {name!r}: {problem}")
            return calendar_periods.UTC
        if not calendars and not self.problems:
            text = f"timezone has no effect without one of {', '.join(CALENDARS)} in windows"
            self.problem(node, f"{text}; add one, or remove it")
        return name

    def _exclusions(self, node: yaml.Node | None) -> tuple[Exclusion, ...]:
        found = []
        for values, entry in self._entries("maintenance", node, _MAINTENANCE, required=["reason"]):
            keys = {key.value for key, _ in entry.value} & {"from", "to", "weekly"}
            if keys not in ({"from", "to"}, {"weekly"}):
                self.problem(entry, "maintenance: this entry needs from and to, or weekly alone")
            once = (values["from"], values["to"]) if {"from", "to"} <= values.keys() else None
            if once and once[0] >= once[1]:
                self.problem(entry, "maintenance: from must be before to")
            cluster, broker, replica = (values.get(name, "*") for name in PATTERNS)
            patterns = (cluster, broker, replica)
            reason = values.get("reason", "")
            if reason in (FIRST_COPY, NOT_YET, IS_MASTER):
                node = next(value for key, value in entry.value if key.value == "reason")
                text = f"reason is {reason!r}: the report says so itself of new replicas"
                self.problem(node, f"{text}; say what was agreed")
            found.append(Exclusion(patterns, reason, once, values.get("weekly")))
        return tuple(found)

    def _exit_policy(self, node: yaml.Node | None) -> str:
        if node is None or is_empty(node):
            return EXIT_POLICIES[0]
        if isinstance(node, yaml.ScalarNode) and node.value in EXIT_POLICIES:
            return str(node.value)
        self.problem(node, f"exit_on is {shown(node)}: write {' or '.join(EXIT_POLICIES)}")
        return EXIT_POLICIES[0]

    def _budget_policy(self, node: yaml.Node | None) -> tuple[PolicyStep, ...]:
        """The steps, ascending."""
        required = ["at_percent", "label"]
        found: dict[float, tuple[PolicyStep, int]] = {}
        labels: dict[str, int] = {}
        for values, entry in self._entries("error_budget_policy", node, _POLICY_STEP, required):
            if not values.keys() >= set(required):
                continue
            step, line = PolicyStep(**values), entry.start_mark.line + 1
            if step.at_percent in found:
                first = found[step.at_percent][1]
                text = f"at_percent {step.at_percent:g} is already used by the step in line {first}"
                self.problem(entry, f"error_budget_policy: {text}; give each its own")
            elif step.label in labels:
                text = f"the label {step.label!r} is already used by the step in line"
                text = f"{text} {labels[step.label]}"
                self.problem(entry, f"error_budget_policy: {text}; give each its own")
            else:
                found[step.at_percent] = step, line
                labels[step.label] = line
        return tuple(found[percent][0] for percent in sorted(found))

    def _expected(
        self, node: yaml.Node | None, retired: Sequence[ReplicaPattern]
    ) -> tuple[ReplicaName, ...]:
        expected: dict[ReplicaName, None] = {}
        for values, entry in self._entries("expect", node, _EXACT, required=tuple(_EXACT)):
            if len(values) < len(_EXACT):
                continue
            name = ReplicaName(**values)
            if any(pattern.matches(**values) for pattern in retired):
                self.problem(
                    entry,
                    f"expect: {name.replica} of {name.cluster}/{name.broker} is"
                    " retired in this file; remove one of the two",
                )
            expected[name] = None
        return tuple(expected)


def _objective(values: Mapping[str, Any]) -> Objective:
    sync_ok = values.get("sync_ok_percent")
    changed = {
        "sync_ok_percent": None if sync_ok == sla_values.SWITCHED_OFF else sync_ok,
        "sync_ok_given": sync_ok is not None,
    }
    return Objective(**{"name": "", **values, **changed})


def _covers(earlier: Sequence[str], later: Sequence[str]) -> bool:
    """Whether `earlier` also matches everything that the patterns `later` match."""
    return all(
        any(_glob_covers(wide, narrow) for wide in alternatives(first))
        for first, second in zip(earlier, later, strict=True)
        for narrow in alternatives(second)
    )


def _glob_covers(wide: str, narrow: str) -> bool:
    # The narrow pattern read as a text: its * may only be taken by a * of the wide one, its ? by
    # a * or a ?.
    return re.fullmatch(glob_regex(wide, any_one="[^*]"), narrow, re.DOTALL) is not None

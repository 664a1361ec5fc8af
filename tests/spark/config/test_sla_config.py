"""sla.yaml: what is read, and that every mistake names its line and the way out."""

from __future__ import annotations

import pickle
import re
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.config.exclusions import Exclusion
from spark.config.objectives import (
    ConsumerLag,
    GroupAvailability,
    Objective,
    PolicyStep,
    ReplicaName,
    ReplicaPattern,
    SlaConfig,
    SlowSends,
    is_named_by,
    pattern_regex,
)
from spark.config.sla_config import SlaError, default_sla, parse_sla, read_sla
from tests.support.every_row import every_row

ROOT = Path(__file__).resolve().parents[3]


def problems(text: str) -> list[str]:
    with pytest.raises(SlaError) as caught:
        parse_sla(text, "sla.yaml")
    return list(caught.value.problems)


def ms(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def first_match(config: SlaConfig, *names: str) -> str:
    """The way Spark chooses: by the regular expressions, in order."""
    for objective in config.objectives:
        pairs = zip(objective.patterns, names, strict=True)
        if all(re.search(pattern_regex(pattern), name) for pattern, name in pairs):
            return objective.name
    raise AssertionError("nothing matches")


def test_the_shipped_file_is_the_default() -> None:
    shipped = read_sla(ROOT / "conf" / "sla.yaml")
    assert shipped.objectives == default_sla().objectives
    (objective,) = shipped.objectives
    assert (objective.availability_percent, objective.lag_seconds) == (99.9, 10)
    assert objective.min_coverage_percent == 99


def test_the_examples_in_the_shipped_file_are_right() -> None:
    """Every commented-out setting, with the comment sign taken away."""
    text = (ROOT / "conf" / "sla.yaml").read_text(encoding="utf-8")
    text = re.sub(r"^(\s*)# (?=\s*(- )?[a-z_0-9]+: )", r"\1", text, flags=re.MULTILINE)
    sections = "expect:|retired:|maintenance:|error_budget_policy:|  "
    text = re.sub(rf"^# (?={sections})", "", text, flags=re.MULTILINE)
    config = parse_sla(text, "x")
    orders = config.objectives[0]
    assert orders.name == "orders"
    assert orders.metadata_required
    assert orders.rpo_bytes == 1 << 20
    assert None not in (orders.lag_p99_seconds, orders.sync_ok_percent, orders.metadata_age_seconds)
    assert config.expect == (ReplicaName("prod-1", "orders-1", "orders-1:1"),)
    assert config.retired == (ReplicaPattern("prod-1", "old-*"),)
    assert "\nwindows: [7, 30, month, quarter]\n" in text
    assert (config.calendars, config.timezone) == (("month", "quarter"), "Europe/Berlin")
    assert orders.sends_ok_percent == 99.95
    assert orders.sends_slower_than == SlowSends(100, 1)
    assert orders.group_availability == GroupAvailability(2)
    promise = ConsumerLag("orders-*", "*", 60, 100_000, 99.5)
    assert orders.consumer_lag == (promise,)
    assert "\nexit_on: day\n" in text
    assert config.budget_policy == (
        PolicyStep(50, "slow down releases"),
        PolicyStep(100, "freeze", exit_code=1, notify=True),
    )
    assert (orders.first_copy_hours, orders.runbook_url) == (
        Objective("x").first_copy_hours,
        "https://wiki.example.com/replication",
    )
    once, weekly = config.exclusions
    assert (once.patterns, once.reason) == (("*", "orders-*", "*"), "new disks, CHG-1234")
    assert once.once_ms == (ms("2026-12-01T22:00:00+00:00"), ms("2026-12-02T02:00:00+00:00"))
    assert weekly.weekly_ms == (6 * 86_400_000 + 2 * 3_600_000, 6 * 86_400_000 + 4 * 3_600_000)


def test_every_value() -> None:
    config = parse_sla(
        """
objectives:
  - name: orders
    cluster: prod-?
    broker: "orders-*|payments"
    replica: "*:1"
    availability_percent: 99.95
    lag_seconds: .5
    min_coverage_percent: 100
    lag_p99_seconds: 1e1
    sync_ok_percent: 100
    rpo_bytes: 0
    metadata_age_seconds: 60
    metadata_required: yes
    first_copy_hours: 0
    runbook_url: http://wiki/x
expect: [{cluster: c, broker: b, replica: "b:1"}, {cluster: c, broker: b, replica: "b:1"}]
retired: [{broker: old}]
windows: [30, 90, 7]
exit_on: both
maintenance: [{from: 2026-12-01 00:00, to: 2026-12-01T02:00+01:00, cluster: c, reason: why}]
error_budget_policy:
- {at_percent: 100, label: freeze, exit_code: 10, notify: true}
- {at_percent: 12.5, label: look}
""",
        "sla.yaml",
    )
    assert config == SlaConfig(
        (
            Objective(
                "orders",
                "prod-?",
                "orders-*|payments",
                "*:1",
                99.95,
                0.5,
                100,
                10,
                100,
                0,
                60,
                True,
                0,
                True,
                "http://wiki/x",
            ),
            Objective("default"),
        ),
        (ReplicaName("c", "b", "b:1"),),
        (ReplicaPattern(broker="old"),),
        (7, 30, 90),
        "sla.yaml",
        (Exclusion(("c", "*", "*"), "why", (ms("2026-12-01T00:00Z"), ms("2026-12-01T01:00Z"))),),
        "both",
        budget_policy=(PolicyStep(12.5, "look"), PolicyStep(100, "freeze", 10, True)),
    )
    # Executors of Spark get it.
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("written", "value", "given", "of_sync_master", "of_others"),
    [
        ("", None, False, 99.9, None),
        ("sync_ok_percent: 99", 99, True, 99, 99),
        ("sync_ok_percent: off", None, True, None, None),
        ("sync_ok_percent: OFF", None, True, None, None),
        ("sync_ok_percent: null", None, True, None, None),
    ],
)
def test_sync_ok_has_a_default_for_a_sync_master_only(
    written: str,
    value: float | None,
    given: bool,
    of_sync_master: float | None,
    of_others: float | None,
) -> None:
    (objective,) = parse_sla(f"objectives:\n- name: a\n  {written}\n", "x").objectives
    assert (objective.sync_ok_percent, objective.sync_ok_given) == (value, given)
    assert objective.sync_ok_wanted(is_sync_master=True) == of_sync_master
    assert objective.sync_ok_wanted(is_sync_master=False) == of_others


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "objectives:\n", "objectives: []\nexpect:\nwindows:\n"]
)
def test_nothing_written_is_the_default(text: str) -> None:
    found = parse_sla(text, "x")
    assert found.objectives == default_sla().objectives
    assert found.windows == default_sla().windows == (7, 30)


def test_the_first_objective_that_matches_counts() -> None:
    config = parse_sla(
        """
objectives:
  - {name: one, broker: orders-1}
  - {name: orders, broker: "orders-*"}
  - {name: far, cluster: far, replica: "10.*"}
""",
        "x",
    )
    found = [
        first_match(config, *names)
        for names in [
            ("c", "orders-1", "r"),
            ("c", "orders-2", "r"),
            ("far", "x", "10.0.0.1"),
            ("far", "x", "x:1"),
            ("c", "Orders-2", "r"),
        ]
    ]
    assert found == ["one", "orders", "far", "default", "default"]


@every_row(
    ("text", "expected"),
    [
        ("objectivs: []", "sla.yaml:1: unknown key 'objectivs'; did you mean objectives?"),
        (
            "objectives:\n- name: a\n  broker: b\n  lag_second: 3",
            "sla.yaml:4: objectives: unknown key 'lag_second'; did you mean lag_seconds?",
        ),
        (
            "zzz: 1",
            "sla.yaml:1: unknown key 'zzz'; known are objectives, windows, timezone, expect",
        ),
        (
            "objectives:\n- name: a\n  broker: b\n\n  broker: c",
            "sla.yaml:5: objectives: broker is given twice, first in line 3; remove one of them",
        ),
        ("expect: []\nexpect: []", "sla.yaml:2: expect is given twice, first in line 1;"),
        (
            "objectives:\n- name: a\n  lag_seconds: 10s",
            "sla.yaml:3: lag_seconds is '10s': write a plain number of seconds, without a unit",
        ),
        ("objectives:\n- name: a\n  lag_seconds: '10'", "sla.yaml:3: lag_seconds is '10': write"),
        ("objectives:\n- name: a\n  lag_seconds: true", "sla.yaml:3: lag_seconds is 'true'"),
        ("objectives:\n- name: a\n  lag_seconds: 1:30", "sla.yaml:3: lag_seconds is '1:30'"),
        ("objectives:\n- name: a\n  lag_seconds: .nan", "sla.yaml:3: lag_seconds is '.nan'"),
        ("objectives:\n- name: a\n  lag_seconds: [1]", "sla.yaml:3: lag_seconds is a list"),
        ("objectives:\n- name: a\n  lag_seconds:", "sla.yaml:3: lag_seconds is empty"),
        (
            "objectives:\n- name: a\n  lag_seconds: 0",
            "sla.yaml:3: lag_seconds is 0: it must be above 0 and at most 2,678,400 seconds",
        ),
        (
            "objectives:\n- name: a\n  availability_percent: 100",
            "sla.yaml:3: availability_percent is 100: it must be above 0 and below 100 percent",
        ),
        (
            "objectives:\n- name: a\n  min_coverage_percent: 101",
            "sla.yaml:3: min_coverage_percent is 101: it must be above 0 and at most 100 percent",
        ),
        (
            "objectives:\n- name: a\n  rpo_bytes: 1.5",
            "sla.yaml:3: rpo_bytes is 1.5: it must be a whole number of bytes, >= 0 and below",
        ),
        *(
            (
                f"objectives:\n- name: a\n  rpo_bytes: {value}",
                f"sla.yaml:3: rpo_bytes is {value}: it must be a whole number of bytes, >= 0 and"
                " below 9,223,372,036,854,775,807",
            )
            for value in ("1e999", "1e30", "9223372036854775808")
        ),
        ("objectives:\n- name: a\n  rpo_bytes: -1", "sla.yaml:3: rpo_bytes is -1: it must be"),
        (
            "objectives:\n- name: a\n  broker: 007",
            "sla.yaml:3: broker is '007': write it in quotes: \"007\"",
        ),
        ("objectives:\n- name:", "sla.yaml:2: name is empty: write a text"),
        (
            "objectives:\n- name: a\n  broker: a|",
            "sla.yaml:3: broker is 'a|': an empty alternat",
        ),
        (
            "objectives:\n- name: a\n  metadata_age_seconds: 1\n  metadata_required: maybe",
            "sla.yaml:4: metadata_required is 'maybe': write true or false",
        ),
        (
            "objectives:\n- name: a\n  metadata_required: true",
            "sla.yaml:2: metadata_required: true has no effect without metadata_age_seconds",
        ),
        ("objectives:\n- broker: b", "sla.yaml:2: objectives: this entry lacks name"),
        ("objectives:\n- name", "sla.yaml:2: objectives: 'name' is not a mapping; expected keys"),
        ("objectives: {name: a}", "sla.yaml:1: objectives is a mapping: write a list"),
        ("- name: a", "sla.yaml:1: a list is not a mapping; expected keys: objectives:, windows:"),
        ("expect:\nwindows: 7", "sla.yaml:2: windows is '7': write a list of days, like [7, 30]"),
        ("windows: {7: 30}", "sla.yaml:1: windows is a mapping: write a list of days"),
        ("windows: []", "sla.yaml:1: windows has 0 entries: it must have 1 to 4; write a list"),
        ("windows: [2, 3, 4, 5, 6]", "sla.yaml:1: windows has 5 entries: it must have 1 to 4;"),
        *(
            (
                f"windows:\n- 7\n- {value}",
                f"sla.yaml:3: windows has {value}: it must be a whole number of days, at least 2"
                " and at most 90",
            )
            for value in ("1", "91", "-7", "7.5", "1e999")
        ),
        (
            "windows:\n- 7\n- year",
            "sla.yaml:3: windows has 'year': write a number of days, or week, month, quarter",
        ),
        ("windows:\n- 7d", "sla.yaml:2: windows is '7d': write a plain number of days"),
        ("windows:\n- 7\n- month\n- month", "sla.yaml:4: windows has month twice, first in line 3"),
        (
            "windows: [month]",
            "sla.yaml:1: windows has 0 numbers of days: it must have 1 to 4; write a list of days",
        ),
        (
            "windows: [7, month]\ntimezone: Europe/Berln",
            "sla.yaml:2: timezone is 'Europe/Berln': write the name of a time zone of the IANA"
            " database; did you mean Europe/Berlin?",
        ),
        (
            "windows: [7, month]\ntimezone: Asia/Kolkata",
            "sla.yaml:2: timezone is 'Asia/Kolkata': days of Asia/Kolkata do not begin at a whole",
        ),
        (
            "timezone: Europe/Berlin",
            "sla.yaml:1: timezone has no effect without one of week, month, quarter in windows",
        ),
        ("windows:\n- 7\n- 30\n- 7.0", "sla.yaml:4: windows has 7 twice, first in line 2;"),
        (
            "objectives:\n- name: all\n- name: orders\n  broker: o-*",
            "sla.yaml:3: objective 'orders' can never match: 'all' in line 2 matches all of it;",
        ),
        (
            "objectives:\n- {name: a, broker: 'o-*|p'}\n"
            "- {name: b, broker: 'o-1|p|o-?x', cluster: c}",
            "sla.yaml:3: objective 'b' can never match: 'a' in line 2",
        ),
        (
            "objectives:\n- {name: a, broker: x}\n- {name: a, broker: y}",
            "sla.yaml:3: the name 'a' is already used by the objective in line 2; give each",
        ),
        (
            "objectives:\n- {name: default, broker: x}",
            "sla.yaml:2: the name 'default' is reserved for the objective that matches everything;",
        ),
        (
            "expect:\n- cluster: c\n  broker: b-*\n  replica: r",
            "sla.yaml:3: broker is 'b-*': expect needs exact names, not patterns",
        ),
        ("expect:\n- cluster: c", "sla.yaml:2: expect: this entry lacks broker and replica"),
        ("retired:\n- replica: '*'", "sla.yaml:2: retired: this entry matches every replica;"),
        (
            "expect:\n- {cluster: c, broker: b, replica: r}\nretired:\n- {broker: 'b*'}",
            "sla.yaml:2: expect: r of c/b is retired in this file; remove one of the two",
        ),
        (
            "objectives:\n- name: a\n  sync_ok_percent: '99'",
            "sla.yaml:3: sync_ok_percent is '99': write a plain number of percent",
        ),
        (
            "objectives:\n- name: a\n  sync_ok_percent:",
            "sla.yaml:3: sync_ok_percent is empty: write a plain number of percent, or off",
        ),
        (
            "objectives:\n- name: a\n  first_copy_hours: 745",
            "sla.yaml:3: first_copy_hours is 745: it must be at least 0 and at most 744 hours",
        ),
        *(
            (
                f"objectives:\n- name: a\n  runbook_url: {value}",
                f"sla.yaml:3: runbook_url is '{value}': write a whole address, https://host/path",
            )
            for value in ("wiki/x", "javascript:alert(1)", "ftp://h/x", "http://h:x/", "http://")
        ),
        *(
            (
                f"error_budget_policy:\n- {{at_percent: 50, label: slow}}\n- {step}",
                f"sla.yaml:3: {told}",
            )
            for step, told in (
                ("{at_percent: 100}", "error_budget_policy: this entry lacks label"),
                ("{label: x}", "error_budget_policy: this entry lacks at_percent"),
                (
                    "{at_percent: 0, label: x}",
                    "at_percent is 0: it must be above 0 and at most 1,000 percent",
                ),
                (
                    "{at_percent: 100%, label: x}",
                    "at_percent is '100%': write a plain number of percent, without a unit or"
                    " quotes",
                ),
                (
                    "{at_percent: 100, label: x, exit_code: 3}",
                    "exit_code is '3': it must be 1, 2, or a code of its own from 10 to 99",
                ),
                (
                    "{at_percent: 100, label: x, exit_code: 0}",
                    "exit_code is '0': it must be 1, 2, or a code of its own from 10 to 99",
                ),
                (
                    '{at_percent: 100, label: x, exit_code: "1"}',
                    "exit_code is '1': it must be 1, 2, or a code of its own from 10 to 99",
                ),
                (
                    "{at_percent: 100, label: x, notify: please}",
                    "notify is 'please': write true or false",
                ),
                (
                    '{at_percent: 100, label: "a\\nb"}',
                    "label is 'a\\nb': it must be one line of at most 80 printable characters",
                ),
                (
                    "{at_percent: 50.0, label: x}",
                    "error_budget_policy: at_percent 50 is already used by the step in line 2;"
                    " give each its own",
                ),
                (
                    "{at_percent: 100, label: slow}",
                    "error_budget_policy: the label 'slow' is already used by the step in line 2;"
                    " give each its own",
                ),
                (
                    "{at: 100, label: x, at_percent: 100}",
                    "error_budget_policy: unknown key 'at'; known are at_percent, label,"
                    " exit_code, notify",
                ),
            )
        ),
        ("exit_on: week", "sla.yaml:1: exit_on is 'week': write day or window or both"),
        ("exit_on: [day]", "sla.yaml:1: exit_on is a list: write day or window or both"),
        (
            "maintenance:\n- {weekly: sunday 02:00-04:00}",
            "sla.yaml:2: maintenance: this entry lacks reason",
        ),
        *(
            (
                f"maintenance:\n- reason: a{keys}",
                "sla.yaml:2: maintenance: this entry needs from and to, or weekly alone",
            )
            for keys in (
                "",
                "\n  from: 2026-12-01",
                "\n  to: 2026-12-01",
                "\n  weekly: sunday 02:00-04:00\n  to: 2026-12-01",
            )
        ),
        (
            "maintenance:\n- {reason: a, from: 2026-12-01T02:00Z, to: 2026-12-01T02:00Z}",
            "sla.yaml:2: maintenance: from must be before to",
        ),
        *(
            (
                f"maintenance:\n- reason: a\n  from: {value}\n  to: 2026-12-01",
                f"sla.yaml:3: from is {told}: write a time in UTC, 2026-12-01T22:00:00Z",
            )
            for value, told in (
                ("tonight", "'tonight'"),
                ("2026-02-30", "'2026-02-30'"),
                ("", "empty"),
            )
        ),
        *(
            (
                f"maintenance:\n- reason: a\n  weekly: {value}",
                f"sla.yaml:3: weekly is '{value}': write a day and its times in UTC: \"sunday",
            )
            for value in ("sunday", "sun 02:00-04:00", "sunday 2:00-04:00", "sunday 24:00-04:00")
        ),
        (
            "maintenance:\n- reason: a\n  weekly: sunday 02:00-02:00",
            "sla.yaml:3: weekly is 'sunday 02:00-02:00': it begins and ends at the same time",
        ),
        *(
            (
                f"maintenance:\n- weekly: sunday 02:00-04:00\n  reason: {reason}",
                f"sla.yaml:3: reason is '{reason}': the report says so itself of new replicas;"
                " say what was agreed",
            )
            for reason in ("did not exist yet", "first copy")
        ),
        ("objectives: [", "sla.yaml:1: not valid YAML"),
        ("a: 1\n\tb: 2", "sla.yaml:2: not valid YAML"),
        ("a: b: c", "sla.yaml:1: not valid YAML"),
        ("a: 1\n---\nb: 2", "sla.yaml:2: not valid YAML"),
        ("objectives: !!python/object:os.system x", "sla.yaml:1: objectives is 'x': write a list"),
        ("a: \x07", "sla.yaml:1: not valid YAML: the character U+0007 must not be in it"),
        ("# a\n\n# \x00", "sla.yaml:3: not valid YAML: the character U+0000 must not be in it"),
    ],
)
def test_mistakes(text: str, expected: str) -> None:
    found = problems(text)
    assert any(problem.startswith(expected) for problem in found), found


def test_all_mistakes_are_told_in_the_order_of_lines() -> None:
    found = problems("expct: 1\nobjectives:\n- name: a\n  lag_seconds: x\n  rpo_bytes: y\n")
    assert [problem.split(":")[1] for problem in found] == ["1", "4", "5"]


def test_a_wrong_pattern_blames_no_other_objective() -> None:
    found = problems("objectives:\n- {name: a, broker: 7}\n- {name: b, broker: x}\n")
    assert len(found) == 1
    assert "in quotes" in found[0]


def test_overlap_alone_is_no_mistake() -> None:
    config = parse_sla(
        "objectives:\n- {name: a, broker: 'a*'}\n- {name: b, broker: '*b'}\n"
        "- {name: c, broker: '?'}",
        "x",
    )
    assert [objective.name for objective in config.objectives] == ["a", "b", "c", "default"]


def test_files(tmp_path: Path) -> None:
    with pytest.raises(SlaError, match=r"none\.yaml: cannot be read: No such file"):
        read_sla(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"# \xe9\n")
    with pytest.raises(SlaError, match=r"latin\.yaml: is not UTF-8 text"):
        read_sla(tmp_path / "latin.yaml")
    (tmp_path / "bom.yaml").write_bytes("\ufeffobjectives: []\n".encode())
    assert read_sla(tmp_path / "bom.yaml").source == str(tmp_path / "bom.yaml")


NAMES = st.text("ab.-", max_size=4)
GLOBS = st.text("ab.-*?", min_size=1, max_size=4)


@given(GLOBS, NAMES)
def test_patterns_are_globs(glob: str, name: str) -> None:
    def matches(glob: str, name: str) -> bool:
        if not glob:
            return not name
        if glob[0] == "*":
            return any(matches(glob[1:], name[i:]) for i in range(len(name) + 1))
        return bool(name) and glob[0] in ("?", name[0]) and matches(glob[1:], name[1:])

    assert (re.search(pattern_regex(glob), name) is not None) == matches(glob, name)


@given(GLOBS, GLOBS, st.lists(NAMES, max_size=20))
def test_what_is_refused_as_unreachable_is_unreachable(
    first: str, second: str, names: list[str]
) -> None:
    text = f"objectives:\n- {{name: a, broker: '{first}'}}\n- {{name: b, broker: '{second}'}}\n"
    try:
        parse_sla(text, "x")
    except SlaError:
        taken = [name for name in names if re.search(pattern_regex(second), name)]
        assert all(re.search(pattern_regex(first), name) for name in taken)


def test_a_star_is_any_text() -> None:
    """Names are the brokers': a line break in one must not leave its replica without objective."""
    assert is_named_by(("*", "a*b", "*"), ("", "a\nb", "x\n"))
    assert not is_named_by(("*", "a?b", "x"), ("", "a\nb", "y"))


def test_a_pattern_matches_the_whole_name() -> None:
    """`$` would let a line break pass at the end."""
    assert not is_named_by(("*", "a", "*"), ("", "a\n", ""))
    assert not is_named_by(("a|b", "*", "*"), ("b\n", "", ""))


def test_a_pattern_takes_no_more_than_the_length_of_the_name() -> None:
    """Who tries every place for each star needs 4,096 ** 12 steps for this: it does not end."""
    pattern = "*x" * 12 + "*y"
    assert not is_named_by((pattern, "*", "*"), ("x" * 4_096, "", ""))
    assert is_named_by((pattern, "*", "*"), ("x" * 4_096 + "y", "", ""))
    text = "objectives:\n- {{name: a, broker: '{}'}}\n- {{name: b, broker: '{}'}}\n"
    assert parse_sla(text.format(pattern, "x" * 4_096), "x").objectives[0].broker == pattern


def test_calendar_periods_beside_rolling_windows() -> None:
    config = parse_sla("windows: [quarter, 30, month]\ntimezone: Europe/Berlin", "sla.yaml")
    assert (config.windows, config.calendars) == ((30,), ("month", "quarter"))
    assert config.timezone == "Europe/Berlin"
    assert (default_sla().calendars, default_sla().timezone) == ((), "UTC")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("sends_ok_percent: 101", "sends_ok_percent is 101: it must be above 0 and at most 100"),
        ("sends_slower_than: 5", "sends_slower_than is '5': write {ms: …, percent: …}"),
        ("sends_slower_than: {ms: 5}", "sends_slower_than lacks percent: write {ms: …, percent: …"),
        ("sends_slower_than: {ms: 0, percent: 1}", "ms is 0: it must be above 0 and at most"),
        (
            "sends_slower_than: {ms: 5, per: 1}",
            "sends_slower_than: unknown key 'per'; did you mean",
        ),
        (
            "group_availability: all",
            "group_availability is 'all': write any or {in_sync_replicas: …, percent: …}",
        ),
        (
            "group_availability: {in_sync_replicas: 1}",
            "in_sync_replicas is 1: it must be a whole number, at least 2 (the master and one",
        ),
        ("group_availability: {percent: 99}", "group_availability lacks in_sync_replicas: write"),
        (
            "consumer_lag: {group: a, seconds: 10}",
            "consumer_lag is a mapping: write a list of entries like {group: …, topic: …, seconds:",
        ),
        ("consumer_lag: [{seconds: 10}]", "consumer_lag lacks group: write {group: …, topic: …,"),
        ("consumer_lag: [{group: a}]", "consumer_lag lacks seconds or messages: write one of"),
        (
            "consumer_lag: [{group: a, seconds: 45}]",
            "seconds is 45: it is no bound by which brokers count seconds, so it could never be"
            " proved; write 30 or 60",
        ),
        (
            "consumer_lag: [{group: a, messages: 1}]",
            "messages is 1: it is no bound by which brokers count messages, so it could never be"
            " proved; write 100",
        ),
        (
            "consumer_lag: [{group: a, messages: 1e9}]",
            "messages is 1e9: it is no bound by which brokers count messages, so it could never be"
            " proved; write 10000000",
        ),
        ("consumer_lag: [{group: a, seconds: x}]", "seconds is 'x'"),
        ("consumer_lag: [{group: a|, seconds: 10}]", "group is 'a|': an empty alternative"),
        ("consumer_lag: [{group: a, seconds: 10, percent: 0}]", "percent is 0: it must be"),
    ],
)
def test_mistakes_in_promises_of_contracts(entry: str, expected: str) -> None:
    with pytest.raises(SlaError) as caught:
        parse_sla(f"objectives:\n- name: a\n  {entry}", "sla.yaml")
    assert any(f"sla.yaml:3: {expected}" in problem for problem in caught.value.problems), (
        caught.value.problems
    )

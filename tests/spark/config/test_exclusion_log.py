"""The file of exclusions: entries are appended, withdrawn, and no earlier one can be edited."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from spark.command.arguments import UsageError, parse_arguments
from spark.command.command_line import main
from spark.config.exclusion_log import (
    LogError,
    entries_of,
    exclusions_before,
    exclusions_in_force,
    remarks_on,
)

NOW_MS = 1_774_000_000_500
TIMES = ["--from", "2026-03-10T10:00:00Z", "--to", "2026-03-10T12:00:00+01:00"]
WHO = ["--who", "Ann", "--ticket", "OPS-1"]
BEGIN_MS, END_MS = 1_773_136_800_000, 1_773_140_400_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "exclusions.jsonl"


def exclude(path: Path, action: str, *arguments: str) -> int:
    return main(["exclude", action, "--file", str(path), *arguments], lambda: NOW_MS)


def three_entries(path: Path) -> bytes:
    assert exclude(path, "add", *TIMES, *WHO, "--why", "moved", "--broker", "b-*") == 0
    assert exclude(path, "add", *TIMES, *WHO, "--why", "seen", "--annotation") == 0
    assert exclude(path, "withdraw", *WHO, "--number", "1", "--why", "mistaken") == 0
    return path.read_bytes()


def test_entries_in_force(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = three_entries(path)
    entries = entries_of(content, "x")
    assert [entry.kind for entry in entries] == ["exclusion", "annotation", "withdrawal"]
    (exclusion,) = exclusions_in_force(entries[:2])
    assert exclusion.patterns == ("*", "b-*", "*")
    assert exclusion.once_ms == (BEGIN_MS, END_MS)
    assert exclusion.reason == "moved (OPS-1; by Ann, 2026-03-20T09:46:40Z, after the event)"
    assert exclusions_in_force(entries) == (), "withdrawn; an annotation excludes nothing"
    assert [row["why"] for row in remarks_on(entries, BEGIN_MS, END_MS)] == ["seen"]
    assert remarks_on(entries, END_MS, END_MS + 1) == []
    assert remarks_on(entries, BEGIN_MS - 1, BEGIN_MS) == []
    capsys.readouterr()
    assert exclude(path, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:12] for line in lines] == ["1 withdrawn:", "2 annotation", "3 withdraws "]


def test_exclusions_of_the_windows_before_a_date(path: Path) -> None:
    entries = entries_of(three_entries(path), "x")[:2]
    (row,) = exclusions_before(entries, END_MS, END_MS - 1)
    assert (row["number"], row["kind"]) == (1, "exclusion")
    assert exclusions_before(entries, END_MS - 1, BEGIN_MS) == [], "the date itself has it"
    assert exclusions_before(entries, END_MS + 1, END_MS) == [], "no window reaches so far back"


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda lines: [lines[0].replace(b"moved", b"mived"), *lines[1:]], ":2: does not follow"),
        (lambda lines: lines[1:], ":1: names an entry before it"),
        (lambda lines: [lines[0], *lines[2:]], ":2: does not follow"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], ":1: names an entry before it"),
        (lambda lines: [lines[0] + b" ", *lines[1:]], ":1: is not written as"),
        (lambda lines: [*lines[:3], b"{}", b""], ":4: cannot be used"),
        (lambda lines: [*lines[:3], b"torn"], ":4: the last line has no end"),
    ],
)
def test_a_file_that_was_edited_is_refused(path: Path, edit: object, text: str) -> None:
    lines = three_entries(path).split(b"\n")
    assert callable(edit)
    path.write_bytes(b"\n".join(edit(lines)))
    with pytest.raises(UsageError, match=text):
        parse_arguments(["--dumps", "d", "--out", "o", "--exclusions", str(path)], {})
    assert exclude(path, "list") == 3
    assert exclude(path, "add", *TIMES, *WHO, "--why", "more") == 3


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["withdraw", *WHO, "--why", "x", "--number", "1"], "entry 1 is withdrawn already"),
        (["withdraw", *WHO, "--why", "x", "--number", "3"], "entry 3 is a withdrawal"),
        (["withdraw", *WHO, "--why", "x", "--number", "9"], "there is no entry 9"),
        (["add", *TIMES, *WHO, "--why", " "], "why is empty"),
        (["add", "--from", TIMES[3], "--to", TIMES[1], *WHO, "--why", "x"], "from must be before"),
        (["add", *TIMES, *WHO, "--why", "x", "--broker", "b|"], "an empty alternative"),
        (["add", *TIMES, *WHO, "--why", "x", "--cluster", ""], "an empty alternative"),
        (["add", "--from", "today", "--to", TIMES[1], *WHO, "--why", "x"], "write a time in UTC"),
    ],
)
def test_entries_that_cannot_be(
    path: Path, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = three_entries(path)
    assert exclude(path, *arguments) == 3
    assert text in capsys.readouterr().err
    assert path.read_bytes() == content


def test_they_count_before_maintenance_and_travel_with_the_objectives(
    path: Path, tmp_path: Path
) -> None:
    assert exclude(path, "add", *TIMES, *WHO, "--why", "moved") == 0
    sla = tmp_path / "sla.yaml"
    text = "maintenance:\n- {weekly: sunday 02:00-04:00, reason: weekly}\n"
    sla.write_text(text)
    given = ["--dumps", "d", "--out", "o", "--sla", str(sla), "--exclusions", str(path)]
    config = parse_arguments(given, {}).sla
    assert [one.reason[:6] for one in config.exclusions] == ["moved ", "weekly"]
    assert (config.text, config.exclusion_log) == (text.encode(), path.read_bytes())
    assert json.loads(path.read_bytes())["previous"] is None


def test_executors_get_the_exclusions_of_the_window_alone(path: Path, tmp_path: Path) -> None:
    """A file of years is read once, not matched with every replica of every night."""
    for hour in range(10, 14):
        times = ["--from", f"2026-03-10T{hour}:00:00Z", "--to", f"2026-03-10T{hour + 1}:00:00Z"]
        assert exclude(path, "add", *times, *WHO, "--why", f"at {hour} " + "x" * 1_000) == 0
    sla = tmp_path / "sla.yaml"
    in_it = "- {weekly: tuesday 11:30-12:00, reason: in it}"
    sla.write_text(f"maintenance:\n{in_it}\n- {{weekly: monday 01:00-02:00, reason: not}}\n")
    given = ["--dumps", "d", "--out", "o", "--sla", str(sla), "--exclusions", str(path)]
    config = parse_arguments(given, {}).sla
    begin_ms = BEGIN_MS + 2 * 3_600_000
    noon = config.within(begin_ms, begin_ms + 3_600_000)
    assert [one.reason[:5] for one in config.exclusions] == [
        *("at 10", "at 11", "at 12", "at 13"),
        *("in it", "not"),
    ]
    assert [one.reason[:5] for one in noon.exclusions] == ["at 12"]
    assert len(pickle.dumps(noon)) < 2_500
    before = config.within(begin_ms - 1, begin_ms)
    assert [one.reason[:5] for one in before.exclusions] == ["at 11", "in it"]
    assert noon.objectives == config.objectives


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        *(("0001-01-02T00:00:00Z", "2026-03-10T00:00:00Z"), ("2026-03-10", "9999-12-31T23:00-02")),
        *(("2026-03-10T10:00:00.2Z", "2026-03-10T10:00:00.9Z"), ("2026-03-11", "2026-03-10")),
        # The clock of Berlin is set back between these two: the later one is the earlier moment.
        ("2026-10-25T02:30:00+01:00", "2026-10-25T02:45:00+02:00"),
    ],
)
def test_times_that_cannot_be_written_back_and_spans_that_are_none(
    begin: str, end: str, path: Path
) -> None:
    times = ["--from", begin, "--to", end]
    assert exclude(path, "add", *times, *WHO, "--why", "x") == 3
    assert exclude(path, "add", *TIMES, *WHO, "--why", "the file can be used on") == 0
    assert len(entries_of(path.read_bytes(), "x")) == 1


def test_times_across_a_change_of_the_clock_are_those_of_utc(path: Path) -> None:
    times = ["--from", "2026-03-29T01:30:00+01:00", "--to", "2026-03-29T03:30:00+02:00"]
    assert exclude(path, "add", *times, *WHO, "--why", "x") == 0
    (entry,) = entries_of(path.read_bytes(), "x")
    assert entry.to_ms - entry.from_ms == 3_600_000


@pytest.mark.parametrize("name", ["cluster", "broker", "replica", "who", "kind", "withdraws"])
def test_a_field_of_another_type_is_refused_with_its_line(name: str, path: Path) -> None:
    """The digests have no secret: anybody can write a line that follows from the one before."""
    assert exclude(path, "add", *TIMES, *WHO, "--why", "x") == 0
    found = json.loads(path.read_bytes())
    for value in (5, None, ["*"], True):
        line = json.dumps(found | {name: value}, sort_keys=True).encode() + b"\n"
        with pytest.raises(LogError, match=r"^x:1: "):
            entries_of(line, "x")


def test_the_list_has_a_line_for_each_entry(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    why = "x\n2 exclusion 2026-01-01T00:00:00Z to 2027-01-01T00:00:00Z, * / * / *: y\x1b[2J"
    assert exclude(path, "add", *TIMES, "--who", "a\udcff", "--ticket", "t", "--why", why) == 0
    capsys.readouterr()
    assert exclude(path, "list") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "x\\u000a2 exclusion" in line
    assert "\x1b" not in line


def test_nothing_but_a_withdrawal_withdraws(path: Path) -> None:
    """An exclusion that did would take an earlier entry out of force, and no list would say so."""
    assert exclude(path, "add", *TIMES, *WHO, "--why", "first") == 0
    first = path.read_bytes()
    assert exclude(path, "add", *TIMES, *WHO, "--why", "second") == 0
    second = json.loads(path.read_bytes().splitlines()[1]) | {"withdraws": 1}
    content = first + json.dumps(second, sort_keys=True).encode() + b"\n"
    with pytest.raises(LogError, match="x:2: cannot be used: it withdraws entry 1, which only"):
        entries_of(content, "x")

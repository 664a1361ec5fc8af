"""docs/settings.md has every setting, as the settings classes declare it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from broker import broker_startup
from broker.container import container_startup
from broker.settings.changeable_keys import CHANGEABLE
from conf.config_fields import FieldSpec, field_specs, setting
from conf.config_loader import KeySpace
from conf.ignored_keys import ALIASES, IGNORED_BROKER_KEYS, IGNORED_NAMESRV_KEYS, REFUSED
from namesrv import namesrv_startup
from namesrv.config_manager import CHANGEABLE_KEYS
from tests.broker import settings_document
from tests.broker.settings_document import (
    COMMAND,
    DOCUMENT,
    MARKER,
    document,
    hand_written,
    known_keys,
    values,
)

TEXT = DOCUMENT.read_text(encoding="utf-8")
SPACES = {
    "broker": broker_startup.KEYS,
    "broker container": container_startup.KEYS,
    "name server": namesrv_startup.KEYS,
}


def section(title: str) -> str:
    """The text below the heading `## title`."""
    (found,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return str(found)


def rows(text: str) -> list[list[str]]:
    """The cells of all tables of `text`, without head lines, the key's marks removed."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [line.strip("| ").split(" | ") for line in lines]
    return [[row[0].strip("*"), *row[1:]] for row in cells if row[0] not in ("key", "alias")]


def test_the_document_is_up_to_date() -> None:
    assert document(hand_written(TEXT)) == TEXT, f"write the tables again: {COMMAND}"


@pytest.mark.parametrize("program", SPACES)
def test_every_setting_of_a_program_has_one_row(program: str) -> None:
    keys = [row[0] for row in rows(section(f"All settings of the {program}"))]
    declared = {spec.key for cls in SPACES[program].classes for spec in field_specs(cls)}
    assert len(keys) == len(declared)
    assert set(keys) == declared


def test_changeable_is_what_the_requests_take() -> None:
    """A class that request 25 or 318 does not change must not declare a key as changeable."""
    broker = {row[0]: row[3] for row in rows(section("All settings of the broker"))}
    namesrv = {row[0]: row[3] for row in rows(section("All settings of the name server"))}
    assert {key: word for key, word in broker.items() if word != "no"} == dict(CHANGEABLE)
    assert {key for key, word in namesrv.items() if word == "now"} == CHANGEABLE_KEYS
    assert set(namesrv.values()) == {"now", "no"}


@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
def test_two_declarations_of_a_key_agree(space: KeySpace) -> None:
    first: dict[str, FieldSpec] = {}
    for cls in space.classes:
        for spec in field_specs(cls):
            assert first.setdefault(spec.key, spec) == spec


def test_every_key_of_rocketmq_is_in_a_table() -> None:
    found = {key for row in rows(TEXT) for cell in row[:2] for key in re.findall(r"[\w.]+", cell)}
    without_effect = section("Keys of RocketMQ without effect")
    found |= set(re.findall(r"\w+", without_effect))
    assert set().union(*known_keys().values()) - found == set()
    tables = without_effect + section("Refused keys of RocketMQ")
    words = set(re.findall(r"\w+", tables))
    assert (IGNORED_BROKER_KEYS | IGNORED_NAMESRV_KEYS | REFUSED.keys()) - words == set()
    assert {row[0]: row[1] for row in rows(section("Aliases"))} == ALIASES


@pytest.mark.parametrize(
    "change",
    [
        {"doc": "something else"},
        {"shown_default": "17"},
        {"unit": "s"},
        {"minimum": 17},
        {"changeable": None},
        {"env": "ANOTHER"},
        {"important": False},
        {"key": "anotherKey"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_declaration_is_noticed(
    change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(cls: type) -> tuple[FieldSpec, ...]:
        return tuple(
            replace(spec, **change) if spec.key == "fileReservedTime" else spec  # type: ignore[arg-type]
            for spec in field_specs(cls)
        )

    monkeypatch.setattr(settings_document, "field_specs", changed)
    assert document(hand_written(TEXT)) != TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One field of each form."""

    both: int = setting(5, "a", unit="ms", ge=1, le=9)
    low: int = setting(5, "a", ge=1)
    high: float = setting(0.5, "a", le=1, unit="share")
    unit_only: int = setting(5, "a", unit="bytes")
    number: int = setting(5, "a")
    switch: bool = setting(True, "a")
    text: str | None = setting(None, "a")


@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
def test_every_meaning_is_there_in_full(space: KeySpace) -> None:
    """In the table, or in the list below it."""
    text = " ".join(re.sub(r"\\([*<|]|__)", r"\1", TEXT).split())
    for cls in space.classes:
        for spec in field_specs(cls):
            assert " ".join(spec.doc.split()) in text, spec.key


def test_what_is_said_of_values() -> None:
    assert [values(spec) for spec in field_specs(Sample)] == [
        "1..9 ms",
        "≥ 1",
        "≤ 1 share",
        "bytes",
        "whole number",
        "true, false",
        "text",
    ]


def test_a_document_without_the_marker_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "settings.md"
    target.write_text("# Settings\n")
    monkeypatch.setattr(settings_document, "DOCUMENT", target)
    with pytest.raises(ValueError, match="there is no line"):
        settings_document.main()
    assert target.read_text() == "# Settings\n"


def test_writing_it_anew_keeps_what_is_written_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "settings.md"
    target.write_text(f"# By hand\n\n{MARKER}\nold tables\n")
    monkeypatch.setattr(settings_document, "DOCUMENT", target)
    monkeypatch.chdir(tmp_path)
    settings_document.main()
    assert capsys.readouterr().out == "written: settings.md\n"
    assert target.read_text(encoding="utf-8") == document("# By hand\n\n")

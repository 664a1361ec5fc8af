"""conf.properties and conf.settings_file: syntax, line numbers, errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.errors import ConfigError
from conf.properties import dump_properties, parse_properties
from conf.setting import Setting
from conf.settings_file import parse_yaml, read_settings_file


def test_properties_keep_java_syntax_and_lines() -> None:
    text = "# c\n! c\n\nbrokerName = a\\\n   b\nlistenPort: 10911  \nname\\u0041 x\nempty=\n"
    assert parse_properties(text, "f") == [
        Setting("brokerName", "ab", "f:4"),
        Setting("listenPort", "10911", "f:6"),
        Setting("nameA", "x", "f:7"),
        Setting("empty", "", "f:8"),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_numbers_with_every_line_end(end: str) -> None:
    settings = parse_properties(end.join(["a=1", "", "# c", "b=2"]), "f")
    assert [setting.source for setting in settings] == ["f:1", "f:4"]


@pytest.mark.parametrize("line", ["a=\\ud800", "\\udfff=1", "a=\\ude00\\ud83d"])
def test_half_a_character_names_its_line(line: str) -> None:
    """A brokerName of it ended the start with a traceback."""
    with pytest.raises(ConfigError, match=r"f:2: a .u escape of half a character"):
        parse_properties(f"b=2\n{line}\n", "f")


def test_a_pair_of_escapes_is_one_character() -> None:
    assert parse_properties("a=\\ud83d\\ude00", "f")[0].text == "\U0001f600"


def test_bad_escape_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"f:2: bad .u escape"):
        parse_properties("a=1\nb=\\uZZ\n", "f")


def test_missing_key_names_its_line() -> None:
    with pytest.raises(ConfigError, match="f:2: the key is missing"):
        parse_properties("a=1\n=5\n", "f")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=\\\\\nb=1", [("a", "\\", "f:1"), ("b", "1", "f:2")]),
        ("a=\\\\\\\nb=1", [("a", "\\b=1", "f:1")]),
        ("\\\n#a=1\nb=2", [("#a", "1", "f:1"), ("b", "2", "f:3")]),
        ("\\\n!a=1", [("!a", "1", "f:1")]),
        ("a=x\\\n\f\t y\n\f# c\n \f\nb=2", [("a", "xy", "f:1"), ("b", "2", "f:5")]),
        ("# c\\\nb=2", [("b", "2", "f:2")]),
        ("a=\\u00\\\n41", [("a", "A", "f:1")]),
        ("a=x\x85y\u2028z\nb=2", [("a", "x\x85y\u2028z", "f:1"), ("b", "2", "f:2")]),
        ("a=1\\", [("a", "1", "f:1")]),
    ],
)
def test_where_a_line_goes_on(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert parse_properties(text, "f") == [Setting(*each) for each in expected]
    whole = [
        each for each in javaproperties.parse(text) if isinstance(each, javaproperties.KeyValue)
    ]
    assert [(each.key, each.value.strip()) for each in whole] == [each[:2] for each in expected]


@given(st.text("a#!=: \t\f\\\r\nu004\u00e9\u2028", max_size=60))
def test_continued_lines_are_those_of_the_library(text: str) -> None:
    """Joined here, since that takes its own time squared."""
    try:
        whole = [
            (each.key, each.value.strip())
            for each in javaproperties.parse(text)
            if isinstance(each, javaproperties.KeyValue)
        ]
    except javaproperties.InvalidUEscapeError:
        with pytest.raises(ConfigError):
            parse_properties(text, "f")
        return
    if not all(key for key, _value in whole):
        with pytest.raises(ConfigError, match="the key is missing"):
            parse_properties(text, "f")
        return
    assert [(each.key, each.text) for each in parse_properties(text, "f")] == whole


def test_each_line_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 MiB of them in a request cost 204 s."""
    lines: list[str] = []
    parse = javaproperties.parse

    def counting(line: str) -> Iterator[javaproperties.PropertiesElement]:
        lines.append(line)
        return parse(line)

    monkeypatch.setattr(javaproperties, "parse", counting)
    text = "b=" + ("b" * 250 + "\\\n") * 4_000 + "c\\\\\na=1\\\\\n"
    assert [each.source for each in parse_properties(text, "f")] == ["f:1", "f:4002"]
    assert [len(line) for line in lines] == [2 + 250 * 4_000 + 3, 5]
    assert not any("\n" in line for line in lines)


def test_dump_reads_back() -> None:
    values = {"a": "1", "path with space": "C:\\x = #y", "u": "\u4e2d", "e": ""}
    assert {s.key: s.text for s in parse_properties(dump_properties(values), "f")} == values


def test_yaml_keeps_texts_as_written() -> None:
    text = "deleteWhen: 04\nbrokerId: 0 # c\naclEnable: False\nempty:\nname: 'x y'\n"
    assert parse_yaml(text, "f") == [
        Setting("deleteWhen", "04", "f:1"),
        Setting("brokerId", "0", "f:2"),
        Setting("aclEnable", "False", "f:3"),
        Setting("empty", "", "f:4"),
        Setting("name", "x y", "f:5"),
    ]
    assert parse_yaml("# nothing\n", "f") == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: 1\nb: [1, 2]\n", "f:2: b: expected one plain value"),
        ("a: 1\nb: 'x\n", "f:3: not YAML"),
        ("- a\n", "f:1: expected lines"),
        ("a: !!python/object:os.system x\nb: {c: d}\n", "f:2: b: expected one"),
    ],
)
def test_yaml_errors_name_their_line(text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        parse_yaml(text, "f")


@pytest.mark.parametrize(
    ("name", "text"), [("x.conf", "a=1\nb=2\na=3\n"), ("x.yaml", "a: 1\na: 2")]
)
def test_a_key_given_twice_is_refused(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"key 'a' is already set at .*{name}:1"):
        read_settings_file(path)


def test_unreadable_file_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.conf: cannot read .*No such file"):
        read_settings_file(tmp_path / "no.conf")
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigError, match=r"not utf-8 text \(byte 3\)"):
        read_settings_file(bad)

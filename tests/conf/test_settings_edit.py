"""conf.settings_edit: the named keys change, every other byte stays."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.errors import ConfigError
from conf.properties import dump_properties, parse_properties
from conf.settings_edit import edit_properties, edit_yaml, save_changes

keys = st.sampled_from(["a", "b", "c"])
values = st.text(st.characters(codec="iso-8859-1", categories=("L", "N", "P", "Zs")), max_size=8)
lines = st.one_of(
    st.tuples(keys, values).map(lambda pair: dump_properties({pair[0]: pair[1]})),
    st.sampled_from(["\n", "# a=1\n", "!x\n", "a = 1\\\n  2\n", "b : 3\r\n", "  c\t4\n"]),
)


@given(st.lists(lines).map("".join), st.dictionaries(keys, values))
def test_an_edit_changes_the_named_keys_and_nothing_else(
    text: str, changes: dict[str, str]
) -> None:
    edited = edit_properties(text, changes)
    before = {s.key: s.text for s in parse_properties(text, "x")}
    after = {s.key: s.text for s in parse_properties(edited, "x")}
    stripped = {key: value.strip() for key, value in changes.items()}
    assert after == {**before, **stripped}
    for line in text.splitlines():
        if line.startswith(("#", "!")):
            assert line in edited.splitlines()


@pytest.mark.parametrize(
    ("name", "text", "edited"),
    [
        ("a.conf", "# c\nk = 1\r\nother=2\n", "# c\nk=9\nother=2\nnew=x\n"),
        ("a.conf", "other=2", "other=2\nk=9\nnew=x\n"),
        ("a.yaml", "# c\nk: 1 # gone\nother: 2\n", "# c\nk: 9\nother: 2\nnew: x\n"),
        ("a.yml", "", "k: 9\nnew: x\n"),
    ],
)
def test_a_file_of_each_kind(tmp_path: Path, name: str, text: str, edited: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    save_changes(path, {"k": "9", "new": "x"})
    assert path.read_bytes().decode() == edited
    assert path.with_name(f"{name}.bak").read_bytes().decode() == text


def test_a_file_is_made_where_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.conf"
    save_changes(path, {"k": "9"})
    assert path.read_text() == "k=9\n"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_keeps_its_permission_bits(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.conf"
    path.write_text("k=1\n")
    path.chmod(mode)
    save_changes(path, {"k": "9"})
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.conf").write_text("k=1\n")
    link = tmp_path / "link.conf"
    link.symlink_to("real.conf")
    save_changes(link, {"k": "9"})
    assert link.is_symlink()
    assert (tmp_path / "real.conf").read_text() == "k=9\n"


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        (
            "{k: 1, b: 2}",
            "9",
            "the settings file has a form that cannot be edited automatically; edit it by hand",
        ),
        ("k: 1\n", "a: b", "mapping values are not allowed here"),
        (
            "k: 1\n",
            "# none",
            "the settings file has a form that cannot be edited automatically; edit it by hand",
        ),
        ("k:\n  1\n", "9", "cannot be edited automatically|not YAML"),
    ],
)
def test_a_yaml_text_that_cannot_be_edited(text: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        edit_yaml(text, {"k": value})


def test_a_file_in_another_encoding_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"k: \xff\n")
    with pytest.raises(ConfigError, match=r"a\.yaml: not utf-8 text"):
        save_changes(path, {"k": "9"})
    assert path.read_bytes() == b"k: \xff\n"

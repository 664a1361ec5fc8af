"""broker.json_config_manager: which file counts, when a start is refused, how a save happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.json_config_manager import ConfigFileError, JsonConfigManager
from tests.broker.broker_fakes import FakeSubmit


class Numbers(JsonConfigManager):
    """A table of numbers."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.table: dict[str, int] = {}

    def decode(self, value: dict[str, Any]) -> None:
        if "numbers" not in value:
            raise ValueError("has no numbers")
        self.table = {key: int(number) for key, number in value["numbers"].items()}

    def snapshot(self) -> dict[str, Any]:
        return {"numbers": dict(self.table)}


GOOD = b'{"numbers":{"main":1}}'
GOOD_BACKUP = b'{"numbers":{"backup":2}}'
BAD = {
    "empty": b"",
    "blank": b" \n\t",
    "zeros": bytes(64),
    "cut off": b'{"numbers":{"ma',
    "no object": b"[1]",
    "another table": b'{"offsetTable":{}}',
    "wrong value": b'{"numbers":{"a":"x"}}',
    "not utf-8": b'{"numbers":{"\xff":1}}',
}


def manager(tmp_path: Path, main: bytes | None, backup: bytes | None) -> Numbers:
    path = tmp_path / "n.json"
    if main is not None:
        path.write_bytes(main)
    if backup is not None:
        (tmp_path / "n.json.bak").write_bytes(backup)
    return Numbers(path)


def test_a_first_start_is_empty(tmp_path: Path) -> None:
    numbers = manager(tmp_path, None, None)
    numbers.load()
    assert numbers.table == {}


def test_the_main_file_counts(tmp_path: Path) -> None:
    numbers = manager(tmp_path, GOOD, GOOD_BACKUP)
    numbers.load()
    assert numbers.table == {"main": 1}


@pytest.mark.parametrize("main", [None, *BAD.values()], ids=["absent", *BAD])
def test_the_backup_steps_in(tmp_path: Path, main: bytes | None) -> None:
    numbers = manager(tmp_path, main, GOOD_BACKUP)
    numbers.load()
    assert numbers.table == {"backup": 2}


@pytest.mark.parametrize("backup", [None, *BAD.values()], ids=["absent", *BAD])
@pytest.mark.parametrize("main", [None, *BAD.values()], ids=["absent", *BAD])
def test_never_empty_instead_of_broken(
    tmp_path: Path, main: bytes | None, backup: bytes | None
) -> None:
    if main is None and backup is None:
        return
    numbers = manager(tmp_path, main, backup)
    with pytest.raises(ConfigFileError) as caught:
        numbers.load()
    text = str(caught.value)
    assert str(numbers.path) in text
    assert str(numbers.backup_path) in text
    assert "move both away" in text
    assert numbers.table == {}


def test_the_refusal_names_a_leftover(tmp_path: Path) -> None:
    (tmp_path / "n.json.tmp").write_bytes(GOOD)
    numbers = manager(tmp_path, b"", None)
    with pytest.raises(ConfigFileError, match=r"n\.json\.tmp exists"):
        numbers.load()


def test_nothing_is_saved_before_a_load(tmp_path: Path) -> None:
    numbers = manager(tmp_path, b"{", None)
    numbers.mark_changed()
    with pytest.raises(ConfigFileError, match="never loaded"):
        numbers.persist()
    assert numbers.path.read_bytes() == b"{"


def test_save_keeps_the_text_before(tmp_path: Path) -> None:
    numbers = manager(tmp_path, GOOD, GOOD_BACKUP)
    numbers.load()
    numbers.table["more"] = 3
    numbers.persist()
    assert numbers.path.read_bytes() == b'{\n\t"numbers":{\n\t\t"main":1,\n\t\t"more":3\n\t}\n}'
    assert numbers.backup_path.read_bytes() == GOOD


def test_a_broken_main_file_does_not_become_the_backup(tmp_path: Path) -> None:
    numbers = manager(tmp_path, b"{", GOOD_BACKUP)
    numbers.load()
    numbers.persist()
    assert numbers.backup_path.read_bytes() == GOOD_BACKUP
    numbers.persist()
    assert numbers.backup_path.read_bytes() == b'{\n\t"numbers":{\n\t\t"backup":2\n\t}\n}'


def test_save_only_what_changed(tmp_path: Path) -> None:
    numbers = manager(tmp_path, None, None)
    numbers.load()
    assert numbers.save_if_changed()
    assert not numbers.path.exists()
    numbers.mark_changed()
    assert numbers.save_if_changed()
    numbers.path.unlink()
    assert numbers.save_if_changed()
    assert not numbers.path.exists()


def test_a_failed_save_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocker = tmp_path / "config"
    blocker.write_bytes(b"a file where a directory should be")
    numbers = Numbers(blocker / "n.json")
    numbers._loaded = True
    numbers.mark_changed()
    assert not numbers.save_if_changed()
    assert "save failed, will retry" in caplog.text
    blocker.unlink()
    assert numbers.save_if_changed()
    assert numbers.path.exists()


def test_background_saves_collapse(tmp_path: Path) -> None:
    numbers = manager(tmp_path, None, None)
    numbers.load()
    submit = FakeSubmit()
    numbers.save_in_background(submit)
    for _ in range(3):
        numbers.save_soon()
    assert not numbers.path.exists()
    assert submit.run_all() == ["save n.json"] * 3
    assert numbers.path.exists()
    assert not numbers.backup_path.exists(), "the second and third found nothing to do"


@given(st.dictionaries(st.text(max_size=20), st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_what_is_saved_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, int]
) -> None:
    path = tmp_path_factory.mktemp("json") / "n.json"
    first, second = Numbers(path), Numbers(path)
    first.load()
    first.table = table
    first.persist()
    second.load()
    assert second.table == table


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b'{"numbers":{\n"a":1,\n  "b" 2}}', "(line 3, column 8)"),
        (b'{"numbers":{"ma', "(line 1, column "),
        (b'{"numbers":\n{"\xc3\xbc\xff":1}}', "(line 2, column 4)"),
    ],
)
def test_a_refusal_says_where(tmp_path: Path, text: bytes, place: str) -> None:
    with pytest.raises(ConfigFileError) as caught:
        manager(tmp_path, text, None).load()
    assert f"{tmp_path / 'n.json'}: " in str(caught.value)
    assert place in str(caught.value)


@pytest.mark.parametrize("backup", [None, GOOD_BACKUP])
def test_what_cannot_be_read_is_not_replaced_by_an_older_copy(
    tmp_path: Path, backup: bytes | None
) -> None:
    (tmp_path / "n.json").mkdir()
    with pytest.raises(
        ConfigFileError, match=r"cannot read .*n\.json: Is a directory\. It must be"
    ):
        manager(tmp_path, None, backup).load()


def test_a_table_knows_that_it_was_missing(tmp_path: Path) -> None:
    found = manager(tmp_path, GOOD, None)
    found.load()
    missing = manager(tmp_path / "elsewhere", None, None)
    missing.load()
    assert (found.was_missing, missing.was_missing) == (False, True)

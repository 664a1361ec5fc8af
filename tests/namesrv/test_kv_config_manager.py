"""KVConfigManager: Java's file, atomic, and nothing served that is not on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from namesrv import kv_config_manager
from namesrv.kv_config_manager import KVConfigError, KVConfigManager

JAVA_TEXT = '{\n\t"configTable":{\n\t\t"NS1":{\n\t\t\t"k1":"v1"\n\t\t}\n\t}\n}'


def test_the_file_has_the_pretty_form_of_java(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kvConfig.json"
    KVConfigManager(path).put_kv_config("NS1", "k1", "v1")
    assert path.read_text() == JAVA_TEXT


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(JAVA_TEXT)
    first = KVConfigManager(path)
    first.load()
    first.put_kv_config("NS1", "ключ", "a\nb")
    first.put_kv_config("NS2", "k", "")
    first.delete_kv_config("NS1", "k1")
    first.delete_kv_config("NS1", "nobody")
    first.delete_kv_config("nobody", "k")
    second = KVConfigManager(path)
    second.load()
    assert second.get_kv_config("NS1", "ключ") == "a\nb"
    assert second.get_kv_config("NS1", "k1") is None
    assert second.find_kv_list_by_namespace("NS2") == {"k": ""}
    assert second.find_kv_list_by_namespace("NS3") is None


@pytest.mark.parametrize("text", ["", " \n", "{}"])
def test_no_file_and_an_empty_one_are_an_empty_table(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    manager = KVConfigManager(path)
    manager.load()
    KVConfigManager(tmp_path / "absent").load()
    assert manager.find_kv_list_by_namespace("n") is None


@pytest.mark.parametrize("text", ["{", '{"configTable":[]}', '{"configTable":{"a":1}}', "[1]"])
def test_a_damaged_file_stops_the_start_with_the_way_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(text)
    with pytest.raises(KVConfigError, match=r"kvConfig\.json: not a valid KV file.*\.bak"):
        KVConfigManager(path).load()


def test_damaged_bytes_are_not_read_into_names(tmp_path: Path) -> None:
    """A body of the wire would be taken, as Java takes it; a file would be saved that way."""
    path = tmp_path / "kvConfig.json"
    path.write_bytes(b'{"configTable":{"n":{"k\xff":"v"}}}')
    with pytest.raises(KVConfigError, match="not UTF-8"):
        KVConfigManager(path).load()


def test_a_write_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = KVConfigManager(tmp_path / "kvConfig.json")
    manager.put_kv_config("n", "k", "old")

    def fail(*_args: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kv_config_manager, "write_atomic", fail)
    with pytest.raises(OSError, match="No space"):
        manager.put_kv_config("n", "k", "new")
    with pytest.raises(OSError, match="No space"):
        manager.delete_kv_config("n", "k")
    assert manager.get_kv_config("n", "k") == "old"

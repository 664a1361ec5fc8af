"""The store of a lone controller: one file, durable, never taken for empty."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from controller.embedded_store import FILE_NAME, ControllerStoreError, EmbeddedStore
from controller.events import Outcome, Stored, Swap
from controller.group_state import GroupState, Replica

ONE = GroupState("C", "b").with_replica(1, Replica("h:1", "h:1;5"))
LED = ONE.with_master(1)


def opened(directory: Path) -> tuple[EmbeddedStore, dict[str, Stored]]:
    store = EmbeddedStore(directory)
    return store, store.open()


def write(store: EmbeddedStore, version: int, group: GroupState) -> Outcome:
    return store.swap(Swap("b", 1, version, 1, group)).outcome


def test_what_was_swapped_is_there_at_the_next_start(tmp_path: Path) -> None:
    store, groups = opened(tmp_path / "store")
    assert groups == {}
    assert write(store, 0, ONE) is Outcome.DONE
    assert write(store, 0, LED) is Outcome.CONFLICT
    assert write(store, 1, LED) is Outcome.DONE
    assert store.load("b") == Stored(2, LED)
    assert store.load("nobody") == Stored(0, None)
    store.close()
    again, groups = opened(tmp_path / "store")
    assert groups == {"b": Stored(2, LED)}
    again.close()


def test_two_controllers_do_not_share_a_directory(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    with pytest.raises(ControllerStoreError, match=r"another controller.*controllerStorePath"):
        EmbeddedStore(tmp_path).open()
    store.close()
    again, _ = opened(tmp_path)
    again.close()


@pytest.mark.parametrize("data", [b"", b"{}", b"garbage\ncrc32 00000000\n"])
def test_a_damaged_file_is_never_an_empty_one(tmp_path: Path, data: bytes) -> None:
    store, _ = opened(tmp_path)
    write(store, 0, ONE)
    store.close()
    path = tmp_path / FILE_NAME
    path.write_bytes(data)
    with pytest.raises(ControllerStoreError, match=str(path)):
        EmbeddedStore(tmp_path).open()
    assert path.read_bytes() == data, "it is left for the operator"


def test_a_file_that_is_missing_beside_its_copy_is_not_a_first_start(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    write(store, 0, ONE)
    write(store, 1, LED)
    store.close()
    (tmp_path / FILE_NAME).unlink()
    with pytest.raises(ControllerStoreError, match="missing"):
        EmbeddedStore(tmp_path).open()
    os.replace(tmp_path / f"{FILE_NAME}.bak", tmp_path / FILE_NAME)
    again, groups = opened(tmp_path)
    assert groups == {"b": Stored(1, ONE)}, "the state before the last change"
    again.close()


def test_groups_are_not_forgotten_with_the_files(tmp_path: Path) -> None:
    """Somebody removes the directory of a running controller: the next write fails. That is no
    first start; when there is a directory again, all groups are in its file."""
    directory = tmp_path / "store"
    store, _ = opened(directory)
    write(store, 0, ONE)
    write(store, 1, LED)
    shutil.rmtree(directory)
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            store.swap(Swap("other", 1, 0, 1, ONE))
        assert store.load("b") == Stored(2, LED)
    directory.mkdir()
    assert store.swap(Swap("other", 1, 0, 1, None)).outcome is Outcome.DONE
    store.close()
    again, groups = opened(directory)
    assert groups == {"b": Stored(2, LED), "other": Stored(1, None)}
    again.close()


def test_after_a_write_that_failed_the_file_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename came through, and the sync of the directory failed: that is not known as not
    written."""
    store, _ = opened(tmp_path)
    write(store, 0, ONE)

    def fail(_directory: Path, sync: object = None) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("conf.atomic_file.sync_directory", fail)
        with pytest.raises(OSError, match="Input/output"):
            write(store, 1, LED)
    assert store.load("b") == Stored(2, LED)
    assert write(store, 1, ONE) is Outcome.CONFLICT
    store.close()

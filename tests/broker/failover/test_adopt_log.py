"""`python -m broker.failover.adopt_log`: whose log gets a list, and which one."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.failover.adopt_log import REFUSED, WRITTEN, main
from ha.epoch_file import decode_epochs
from ha.epochs import epoch_list
from store.mapped_file import file_name
from store.store_lock import StoreLock

SIZE = 4096


class Store:
    """A store of a stopped broker, with log files that begin at these offsets."""

    def __init__(self, root: Path, *starts: int) -> None:
        self.root = root / "store"
        self.conf = root / "broker.conf"
        self.conf.write_text(f"storePathRootDir={self.root}\nmappedFileSizeCommitLog={SIZE}\n")
        self.epochs = self.root / "epochFileCheckpoint"
        for start in starts:
            path = self.root / "commitlog" / file_name(start)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(SIZE))

    def adopt(self) -> int:
        return main(["-c", str(self.conf)])


@pytest.mark.parametrize("starts", [(0,), (8_192, 12_288)])
def test_all_of_the_log_is_of_the_epoch_before_all(tmp_path: Path, starts: tuple[int, ...]) -> None:
    store = Store(tmp_path, *starts)
    assert store.adopt() == WRITTEN
    assert decode_epochs(store.epochs.read_bytes()) == epoch_list([(0, starts[0])])


def test_a_list_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever it says: a damaged one is an operator's to judge, not to write over."""
    store = Store(tmp_path, 0)
    for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
        (store.root / name).write_bytes(b"damaged")
        assert store.adopt() == REFUSED
        assert "there is a list already" in capsys.readouterr().out
        (store.root / name).unlink()
    assert store.adopt() == WRITTEN


def test_without_a_log_there_is_nothing_to_adopt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Store(tmp_path).adopt() == REFUSED
    assert "there is no store" in capsys.readouterr().out
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert Store(tmp_path).adopt() == REFUSED
    assert "its log is empty" in capsys.readouterr().out


def test_a_broker_that_runs_is_not_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path, 0)
    with StoreLock(store.root):
        assert store.adopt() == REFUSED
    assert not store.epochs.exists()
    assert str(store.root) in capsys.readouterr().out


def test_settings_that_cannot_be_read(tmp_path: Path) -> None:
    assert main(["-c", str(tmp_path / "none.conf")]) == REFUSED

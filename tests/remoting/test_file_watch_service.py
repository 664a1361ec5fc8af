"""FileWatchService: what counts as a change."""

from __future__ import annotations

import os
from pathlib import Path

from remoting.file_watch_service import FileWatchService
from tests.support.deadline import wait_until


def test_changes_of_every_kind(tmp_path: Path) -> None:
    found: list[frozenset[str]] = []
    first, second, link = (tmp_path / name for name in ("first", "second", "link"))
    first.write_text("1")
    link.symlink_to(first)
    paths = [str(first), str(second), str(link)]
    watch = FileWatchService(paths, found.append)
    watch.look()
    assert found == []
    second.write_text("came")
    watch.look()
    assert found.pop() == {str(second)}
    second.unlink()
    watch.look()
    assert found.pop() == {str(second)}
    os.utime(first, ns=(1, 1))
    watch.look()
    assert found.pop() == {str(first), str(link)}
    other = tmp_path / "other"
    other.write_text("1")
    os.utime(other, ns=(1, 1))
    link.unlink()
    link.symlink_to(other)
    watch.look()
    assert found.pop() == {str(link)}
    watch.look()
    assert found == []


def test_it_looks_by_itself_until_it_is_stopped(tmp_path: Path) -> None:
    found: list[frozenset[str]] = []
    path = tmp_path / "file"
    watch = FileWatchService([str(path)], found.append, interval_s=0.005)
    watch.shutdown()  # not started: nothing to wait for
    watch = FileWatchService([str(path)], found.append, interval_s=0.005)
    watch.start()
    path.write_text("now")
    wait_until(lambda: found)
    watch.shutdown()
    watch.shutdown()
    assert found[0] == {str(path)}

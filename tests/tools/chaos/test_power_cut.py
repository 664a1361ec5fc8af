"""tools.chaos.power_cut: what was synced is there, of the rest what the seed says."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from store.disk_fault_hooks import VARIABLE, DiskFaults
from tools.chaos.power_cut import PAGE, SECTOR, cut_power, torn_page
from tools.chaos.scratch_disk import ScratchDisk

BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
OLD, NEW = b"o" * PAGE, b"n" * PAGE


class Rig:
    """A store's directory and hooks that are called directly."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "store"
        self.root.mkdir()
        self.disk = ScratchDisk(directory / "control", self.root)
        self.hooks = DiskFaults(Path(self.disk.environment[VARIABLE]))

    def sync(self, name: str = "") -> None:
        fd = os.open(self.root / name, os.O_RDONLY)
        self.hooks.fsync(fd)
        os.close(fd)

    def cut(self, draw: Callable[[], float]) -> None:
        cut_power(self.root, self.disk.durable, draw)

    def names(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*")}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def nothing_more() -> float:
    """Draws that keep nothing of what was not synced."""
    return 0.0


def everything() -> Callable[[], float]:
    """Draws that keep nearly everything: the largest share, and lots below it."""
    draws = iter([0.99])
    return lambda: next(draws, 0.4)


def test_what_was_synced_stays_and_the_rest_goes(rig: Rig) -> None:
    (rig.root / "log").write_bytes(OLD * 3)
    rig.sync("log")
    rig.sync()
    with (rig.root / "log").open("r+b") as file:
        file.write(NEW)
    rig.cut(nothing_more)
    assert (rig.root / "log").read_bytes() == OLD * 3


def test_it_may_all_have_been_written_back(rig: Rig) -> None:
    (rig.root / "log").write_bytes(OLD * 3)
    rig.sync("log")
    (rig.root / "log").write_bytes(NEW * 4)
    rig.cut(everything())
    assert (rig.root / "log").read_bytes() == NEW * 4


def test_names_that_were_not_synced(rig: Rig) -> None:
    """New ones vanish, with all that is in them, deleted ones come back, renamed ones go back."""
    (rig.root / "config.json").write_bytes(b"old")
    (rig.root / "deleted").write_bytes(b"deleted")
    for name in ("config.json", "deleted"):
        rig.sync(name)
    rig.sync()
    (rig.root / "deleted").unlink()
    (rig.root / "new").mkdir()
    (rig.root / "new" / "file").touch()
    rig.sync("new")
    (rig.root / "config.json.tmp").write_bytes(b"new")
    rig.sync("config.json.tmp")
    (rig.root / "config.json.tmp").rename(rig.root / "config.json")
    rig.cut(nothing_more)
    assert rig.names() == {"config.json", "deleted"}
    assert (rig.root / "config.json").read_bytes() == b"old"
    assert (rig.root / "deleted").read_bytes() == b"deleted"


def test_names_that_were_synced(rig: Rig) -> None:
    (rig.root / "kept").write_bytes(b"kept")
    rig.sync("kept")
    rig.sync()
    (rig.root / "kept").rename(rig.root / "renamed")
    (rig.root / "new").mkdir()
    (rig.root / "new" / "file").touch()
    rig.sync("new")
    rig.sync()
    rig.cut(nothing_more)
    assert rig.names() == {"renamed", "new", "new/file"}
    assert (rig.root / "renamed").read_bytes() == b"kept"


def test_a_moved_file_is_at_one_of_its_places(rig: Rig) -> None:
    (rig.root / "here").mkdir()
    (rig.root / "there").mkdir()
    (rig.root / "here" / "file").write_bytes(b"content")
    rig.sync("here/file")
    for name in ("here", "there", ""):
        rig.sync(name)
    (rig.root / "here" / "file").rename(rig.root / "there" / "file")
    rig.sync("there")
    rig.cut(nothing_more)
    assert rig.names() == {"here", "there", "there/file"}


def test_after_a_cut_everything_is_on_disk_until_it_is_changed(rig: Rig) -> None:
    (rig.root / "log").write_bytes(OLD)
    rig.cut(everything())
    (rig.root / "log").write_bytes(NEW)
    (rig.root / "other").touch()
    rig.cut(nothing_more)
    assert rig.names() == {"log"}
    assert (rig.root / "log").read_bytes() == OLD


def test_the_machine_has_booted(rig: Rig) -> None:
    (rig.root / "abort").write_text(BOOT_ID)
    rig.sync("abort")
    rig.sync()
    rig.cut(nothing_more)
    text = (rig.root / "abort").read_text()
    assert len(text) == len(BOOT_ID)
    assert text != BOOT_ID


def test_every_page_is_old_or_new_or_torn_at_a_sector(rig: Rig) -> None:
    """Over many seeds each of the three comes up, and nothing else."""
    kinds = set()
    for seed in range(60):
        (rig.root / "log").write_bytes(OLD * 20)
        rig.sync("log")
        rig.sync()
        with (rig.root / "log").open("r+b") as file:
            file.write(NEW * 20)
        rig.cut(random.Random(seed).random)
        data = (rig.root / "log").read_bytes()
        assert len(data) == 20 * PAGE
        for at in range(0, len(data), PAGE):
            page = data[at : at + PAGE]
            sectors = [page[n : n + SECTOR] for n in range(0, PAGE, SECTOR)]
            assert set(sectors) <= {OLD[:SECTOR], NEW[:SECTOR]}
            kinds.add("old" if page == OLD else "new" if page == NEW else "torn")
    assert kinds == {"old", "new", "torn"}


def test_in_order_a_file_has_its_first_pages(rig: Rig) -> None:
    lengths = set()
    for seed in range(60):
        (rig.root / "log").write_bytes(OLD * 20)
        rig.sync("log")
        rig.sync()
        with (rig.root / "log").open("r+b") as file:
            file.write(NEW * 20)
        cut_power(rig.root, rig.disk.durable, random.Random(seed).random, is_scattered=False)
        data = (rig.root / "log").read_bytes()
        pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]
        kept = next((number for number, page in enumerate(pages) if page != NEW), 20)
        assert all(page == OLD for page in pages[kept + 1 :])
        lengths.add(kept)
    assert len(lengths) > 5


def test_a_torn_page_has_both_parts() -> None:
    for seed in range(50):
        page = torn_page(OLD, NEW, random.Random(seed).random, is_scattered=True)
        assert len(page) == PAGE
        assert set(page) == {OLD[0], NEW[0]}
        page = torn_page(OLD, NEW, random.Random(seed).random, is_scattered=False)
        assert page == NEW[: page.count(NEW[:1])] + OLD[page.count(NEW[:1]) :]

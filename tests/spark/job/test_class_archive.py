"""The archive of Spark's classes: made by the second run, used by the third, in nobody's way."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from spark.job.class_archive import ClassArchive


@pytest.fixture
def java_home(tmp_path: Path) -> Path:
    """A Java with an archive of its own classes; Spark's jars are in it, too."""
    home = tmp_path / "java"
    (home / "jars").mkdir(parents=True)
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").write_bytes(b"classes")
    return home


def written_to(options: str) -> Path:
    (path,) = re.findall(r'"-XX:ArchiveClassesAtExit=([^"]+)"', options)
    return Path(path)


def make(java_home: Path, cache: Path) -> None:
    """Two runs."""
    assert ClassArchive(java_home, java_home, cache).java_options() == ""
    second = ClassArchive(java_home, java_home, cache)
    written_to(second.java_options()).write_bytes(b"archive")
    second.after_exit(is_whole=True)


def test_the_second_run_makes_it_and_the_third_uses_it(java_home: Path, tmp_path: Path) -> None:
    """Who runs only once, in a container that is thrown away, does not pay for it."""
    cache = tmp_path / "my cache"
    first = ClassArchive(java_home, java_home, cache)
    assert first.java_options() == ""
    assert not first.is_being_made
    second = ClassArchive(java_home, java_home, cache)
    path = written_to(second.java_options())
    assert second.is_being_made
    path.write_bytes(b"archive")
    second.after_exit(is_whole=True)
    third = ClassArchive(java_home, java_home, cache)
    (used,) = re.findall(r'"-XX:SharedArchiveFile=([^"]+)"', third.java_options())
    assert Path(used).read_bytes() == b"archive"
    assert not third.is_being_made
    assert not path.exists()


@pytest.mark.parametrize("is_written", [False, True])
def test_a_run_without_a_report_leaves_none(
    java_home: Path, tmp_path: Path, is_written: bool
) -> None:
    """It has not loaded what a report needs; or Java could not write it."""
    ClassArchive(java_home, java_home, tmp_path).java_options()
    archive = ClassArchive(java_home, java_home, tmp_path)
    path = written_to(archive.java_options())
    if is_written:
        path.write_bytes(b"archive")
    archive.after_exit(is_whole=not is_written)
    assert list((tmp_path / "classes").glob("*.jsa")) == []
    assert not path.exists()


@pytest.mark.parametrize("updated", ["lib/server/classes.jsa", "jars"])
def test_another_java_or_spark_has_another_archive(
    java_home: Path, tmp_path: Path, updated: str
) -> None:
    """Also one of the same version: Java would refuse what is made of files of another time."""
    make(java_home, tmp_path)
    os.utime(java_home / updated, (0, 0))
    assert ClassArchive(java_home, java_home, tmp_path).java_options() == ""


def test_what_nobody_used_for_long_goes_when_one_is_made(java_home: Path, tmp_path: Path) -> None:
    (tmp_path / "classes").mkdir()
    old, recent = tmp_path / "classes" / "old.jsa", tmp_path / "classes" / "recent.jsa"
    for path in (old, recent):
        path.write_bytes(b"archive")
    os.utime(old, (0, 0))
    make(java_home, tmp_path)
    assert (old.exists(), recent.exists()) == (False, True)


def test_a_java_that_has_no_archive_of_its_own(tmp_path: Path) -> None:
    """Java could not add to it."""
    for _ in range(2):
        archive = ClassArchive(tmp_path / "none", tmp_path, tmp_path / "cache")
        assert archive.java_options() == ""
        archive.after_exit(is_whole=True)
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written(java_home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):
        assert ClassArchive(java_home, java_home, tmp_path / "file").java_options() == ""

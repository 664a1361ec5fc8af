"""conf.compiled_modules: used only with the sources that they were made of, else it is said."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from conf import compiled_modules
from conf.compiled_modules import (
    LIBRARY,
    LIBRARY_SUFFIX,
    MANIFEST,
    VARIABLE,
    CompiledModulesError,
    ModulesInUse,
    compiled_directory,
    count_usable,
    file_digests,
    find_staleness,
    log_modules_in_use,
    modules_in_use,
    source_digests,
    use_compiled_modules,
)

NAMES = ["store.no_such_module"]
FILES = [*NAMES, LIBRARY]


@pytest.fixture(autouse=True)
def as_a_fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(compiled_modules, "_in_use", ModulesInUse())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two sources, and what may have been made of them."""
    for name in ("store/one.py", "remoting/two.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(f"# {name}\n")
    directory = compiled_directory(tmp_path)
    directory.mkdir(parents=True)
    for name in FILES:
        (directory / f"{name}{LIBRARY_SUFFIX}").write_bytes(b"not really one")
    manifest = {
        "modules": NAMES,
        "sources": source_digests(tmp_path),
        "files": file_digests(directory),
    }
    (directory / MANIFEST).write_text(json.dumps(manifest))
    return tmp_path


def library(home: Path) -> Path:
    return compiled_directory(home) / f"{LIBRARY}{LIBRARY_SUFFIX}"


def change_manifest(home: Path, key: str, value: object) -> None:
    """None: without the key."""
    path = compiled_directory(home) / MANIFEST
    manifest = json.loads(path.read_text()) | {key: value}
    if value is None:
        del manifest[key]
    path.write_text(json.dumps(manifest))


@pytest.fixture
def loadable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was loaded at once; the files are none that could be."""
    loaded: list[str] = []
    monkeypatch.setattr(compiled_modules.importlib, "import_module", loaded.append)
    return loaded


def test_they_are_found_while_the_sources_are_the_same(home: Path, loadable: list[str]) -> None:
    before = len(sys.meta_path)
    assert count_usable({}, home) == 1
    assert count_usable({VARIABLE: "off"}, home) == 0
    assert use_compiled_modules({}, home) == ModulesInUse(compiled=1)
    assert modules_in_use().text == "1 modules are compiled ones"
    finder = sys.meta_path[0]
    for name in FILES:
        spec = finder.find_spec(name, None)
        assert spec is not None
        assert spec.origin == str(compiled_directory(home) / f"{name}{LIBRARY_SUFFIX}")
    assert finder.find_spec("store.one", None) is None
    assert use_compiled_modules({}, home).compiled == 1
    assert len(sys.meta_path) == before + 1, "once"
    assert loadable == [LIBRARY]


def test_a_library_that_cannot_be_loaded_is_not_used(home: Path) -> None:
    before = list(sys.meta_path)
    found = use_compiled_modules({}, home)
    assert (found.compiled, found.is_stale) == (0, True)
    assert f"{LIBRARY}{LIBRARY_SUFFIX} cannot be loaded: " in found.text
    assert sys.meta_path == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda home: (home / "store/one.py").write_text("# 1\n"), "store/one.py is not what"),
        (lambda home: (home / "store/new.py").write_text(""), "store/new.py is not what"),
        (lambda home: (home / "remoting/two.py").unlink(), "remoting/two.py is not what"),
        (
            lambda home: (compiled_directory(home) / f"{NAMES[0]}{LIBRARY_SUFFIX}").unlink(),
            f"{NAMES[0]}{LIBRARY_SUFFIX} is missing",
        ),
        *(
            (lambda home, cut=cut: cut(library(home)), f"{LIBRARY}{LIBRARY_SUFFIX} is not what was")
            for cut in (
                lambda path: path.write_bytes(path.read_bytes()[:7]),
                lambda path: path.write_bytes(b""),
                lambda path: path.write_bytes(path.read_bytes() + b"\0"),
                lambda path: path.write_bytes(b"not really onf"),
            )
        ),
        (lambda home: change_manifest(home, "files", None), "does not say what its files held"),
        (lambda home: change_manifest(home, "files", {}), "does not say what its files held"),
        (lambda home: change_manifest(home, "files", 7), "cannot be read"),
        (lambda home: (compiled_directory(home) / MANIFEST).write_text("{}"), "cannot be read"),
        (lambda home: (compiled_directory(home) / MANIFEST).write_text("["), "cannot be read"),
        (lambda home: (compiled_directory(home) / MANIFEST).unlink(), "cannot be read"),
    ],
)
def test_those_of_other_sources_are_not_used_and_that_is_a_warning(
    home: Path, caplog: pytest.LogCaptureFixture, change: object, words: str
) -> None:
    assert callable(change)
    change(home)
    assert words in (find_staleness(home) or "")
    assert count_usable({}, home) == 0
    found = use_compiled_modules({}, home)
    assert (found.compiled, found.is_stale) == (0, True)
    with caplog.at_level(logging.INFO):
        log_modules_in_use()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert words in record.getMessage()
    assert "run mqcompile again" in record.getMessage()


def test_where_there_are_none_nobody_is_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = use_compiled_modules({}, tmp_path)
    assert (found.compiled, found.is_stale) == (0, False)
    assert "mqcompile makes them" in found.text
    with caplog.at_level(logging.INFO):
        log_modules_in_use()
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def test_none_is_used_once_one_of_them_was_imported(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, NAMES[0], compiled_modules)
    found = use_compiled_modules({}, home)
    assert found.compiled == 0
    assert f"{NAMES[0]} was imported" in found.text


def test_the_variable_turns_them_off_or_requires_them(home: Path) -> None:
    assert use_compiled_modules({VARIABLE: "off"}, home).text.endswith(f"{VARIABLE}=off")
    with pytest.raises(CompiledModulesError, match="ROCKETMQ_COMPILED=on: must be off, required"):
        use_compiled_modules({VARIABLE: "on"}, home)
    (home / "store/one.py").write_text("")
    with pytest.raises(CompiledModulesError, match=r"required, but no module .* store/one\.py"):
        use_compiled_modules({VARIABLE: "required"}, home)

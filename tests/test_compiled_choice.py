"""Which programs of the tests run compiled modules, and who makes these."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conf.compiled_modules import OFF, REQUIRED, VARIABLE, compiled_directory
from tests.support import compiled_modules
from tests.support.compiled_modules import KEPT, ON_COMPILED, WANTED, choice, make_compiled, tell
from tools.mqcompile import CompileError

TESTS = Path(__file__).resolve().parent
Making = Callable[[int], list[object]]


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Iterator[Making]:
    """A run of bin/test --slow in which compiling fails, or does not (0), nothing compiled yet."""
    monkeypatch.setenv(WANTED, "wanted")
    monkeypatch.setenv(VARIABLE, OFF)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv(KEPT, raising=False)
    monkeypatch.setattr(compiled_modules, "find_need", lambda _home: "there is none")
    calls: list[object] = []

    def ends(code: int) -> list[object]:
        def compile_there(home: Path, optimize: str) -> str:
            calls.append((home, optimize))
            if code:
                raise CompileError("it did not compile")
            return "compiled"

        monkeypatch.setattr(compiled_modules, "compile_there", compile_there)
        return calls

    make_compiled.cache_clear()
    yield ends
    make_compiled.cache_clear()


def chosen(file: str, *, is_interpreted: bool = False) -> str:
    return choice(file, is_interpreted=is_interpreted)


@pytest.mark.parametrize(("code", "modules"), [(0, REQUIRED), (1, OFF)], ids=["made", "not made"])
def test_the_programs_of_four_rooms_are_compiled_if_it_compiles(
    making: Making, code: int, modules: str
) -> None:
    calls = making(code)
    for file in ("broker/test_twins.py", "tools/test_mqadmin.py", "test_program.py", "faults.py"):
        assert chosen(file) == OFF
    assert chosen("interop/test_producers.py", is_interpreted=True) == OFF
    assert calls == [], "nobody has wanted them"
    for room in ("interop", "faults", "tools/chaos", "linearizability"):
        assert chosen(f"{room}/test_timers.py") == modules
    assert calls == [(TESTS.parent, "2")]


def test_ci_fails_without_them(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has them sooner: less optimized."""
    calls = making(1)
    monkeypatch.setenv("CI", "true")
    assert chosen("faults/test_timers.py") == REQUIRED
    assert calls == [(TESTS.parent, "g")]


def test_a_run_takes_what_an_earlier_one_compiled_of_the_same_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The fake's manifest is the text of the sources."""
    source, compiled = tmp_path / "source", compiled_directory(tmp_path)
    calls: list[str] = []

    def find_need(_home: Path) -> str | None:
        manifest = compiled / "manifest"
        is_so = manifest.exists() and manifest.read_text() == source.read_text()
        return None if is_so else "the sources are others"

    def compile_there(_home: Path, _optimize: int) -> str:
        calls.append(source.read_text())
        compiled.mkdir(exist_ok=True)
        (compiled / "manifest").write_text(source.read_text())
        return "compiled"

    def of_a_new_checkout(text: str) -> bool:
        source.write_text(text)
        shutil.rmtree(compiled, ignore_errors=True)
        make_compiled.cache_clear()
        return make_compiled()

    monkeypatch.setenv(WANTED, "wanted")
    monkeypatch.setenv(KEPT, str(tmp_path / "cache" / "kept"))
    monkeypatch.setattr(compiled_modules, "_ROOT", tmp_path)
    monkeypatch.setattr(compiled_modules, "find_need", find_need)
    monkeypatch.setattr(compiled_modules, "compile_there", compile_there)
    assert [of_a_new_checkout(text) for text in ("a", "a", "b", "b", "a")] == [True] * 5
    assert calls == ["a", "b", "a"]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["kept"]
    make_compiled.cache_clear()


def test_what_is_there_is_not_made_again(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = making(0)
    monkeypatch.setattr(compiled_modules, "find_need", lambda _home: None)
    assert chosen("faults/test_timers.py") == REQUIRED
    assert calls == []


def test_without_a_run_of_bin_test_all_is_as_the_variable_says(
    making: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = making(0)
    monkeypatch.delenv(WANTED)
    assert chosen("faults/test_timers.py") == OFF
    monkeypatch.setenv(VARIABLE, REQUIRED)
    assert chosen("broker/test_twins.py") == REQUIRED
    assert calls == []


def test_the_rooms_are_there_and_have_tests() -> None:
    assert [room for room in ON_COMPILED if not any((TESTS / room).glob("test_*.py"))] == []


def test_a_run_tells_what_ran_on_what(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    making(0)
    assert tell({}).startswith("sources: all tests; nothing could be compiled")
    assert tell({"interop": 2, "faults": 3}) == (
        "compiled modules: programs of tests, 3 in faults, 2 in interop; sources: all else"
    )
    monkeypatch.delenv(WANTED)
    assert tell({}) == "sources: all tests"
    monkeypatch.setitem(os.environ, VARIABLE, REQUIRED)
    assert tell({}) == "compiled modules: all tests"

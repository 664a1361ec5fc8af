"""Which programs of the tests run compiled modules, and that they wait until there are some."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from conf.compiled_modules import OFF, REQUIRED, VARIABLE
from tests.support import compiled_modules
from tests.support.compiled_modules import ENDED, ON_COMPILED, choice, tell, wait_compiled
from tests.support.deadline import wait_until

TESTS = Path(__file__).resolve().parent


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a run of bin/test tells; none has compiled here before."""
    path = tmp_path / "ended"
    path.touch()
    monkeypatch.setenv(ENDED, str(path))
    monkeypatch.setenv(VARIABLE, OFF)
    wait_compiled.cache_clear()
    yield path
    wait_compiled.cache_clear()


def chosen(file: str, *, is_interpreted: bool = False) -> str:
    return choice(file, is_interpreted=is_interpreted)


@pytest.mark.parametrize(("code", "modules"), [("0\n", REQUIRED), ("1\n", OFF)])
def test_the_programs_of_four_rooms_are_compiled_if_it_compiled(
    ended: Path, code: str, modules: str
) -> None:
    ended.write_text(code)
    assert chosen("interop/test_producers.py") == modules
    assert chosen("faults/test_timers.py") == modules
    assert chosen("tools/chaos/test_mqchaos.py") == modules
    assert chosen("interop/test_producers.py", is_interpreted=True) == OFF
    for file in ("broker/test_twins.py", "tools/test_mqadmin.py", "test_program.py", "faults.py"):
        assert chosen(file) == OFF


def test_only_they_wait_for_it(ended: Path) -> None:
    assert chosen("broker/test_twins.py") == OFF
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(chosen("faults/test_timers.py")))
    waiting.start()
    waiting.join(3 * compiled_modules._LOOK_S)
    assert found == []
    ended.write_text("0\n")
    wait_until(lambda: found == [REQUIRED])
    waiting.join()


def test_without_a_run_of_bin_test_all_is_as_the_variable_says(
    ended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDED, "")
    assert chosen("faults/test_timers.py") == OFF
    monkeypatch.setenv(VARIABLE, REQUIRED)
    assert chosen("broker/test_twins.py") == REQUIRED


def test_the_rooms_are_there_and_have_tests() -> None:
    assert [room for room in ON_COMPILED if not any((TESTS / room).glob("test_*.py"))] == []


def test_a_run_tells_what_ran_on_what(ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.environ[VARIABLE] == OFF
    assert tell({}) == "sources: all tests"
    assert tell({"interop": 2, "faults": 3}) == (
        "compiled modules: programs of tests, 3 in faults, 2 in interop; sources: all else"
    )
    monkeypatch.setenv(VARIABLE, REQUIRED)
    assert tell({}) == "compiled modules: all tests"

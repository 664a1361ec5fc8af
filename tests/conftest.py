"""What holds for every test: a home of its own, no interop test skipped in silence, a second
chance, never a silent one, for tests whose peers are processes, and order and limits for workers
that share a machine (docs/testing.md)."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support.stolen_time import WORKERS

# No example has a deadline of its own: a busy host would fail what is right.
hypothesis.settings.register_profile("house", deadline=None)
hypothesis.settings.load_profile("house")

_HERE = Path(__file__).resolve().parent
_SKIPPED_INTEROP: list[str] = []
_SECOND_CHANCES: list[pytest.TestReport] = []
_MOST_SECOND_CHANCES = 5


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Logs, stores and pid files of this run stay out of the user's home."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("ROCKETMQ_RUN_DIR", str(home / "run"))
        for name in ("ROCKETMQ_HOME", "NAMESRV_ADDR", "JAVA_OPT_EXT"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def hangup_as_usual() -> None:
    """Under nohup our children would ignore SIGHUP; what we catch, they get with its default."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test against real processes may fail for the machine's reasons: it is run once more.

    Workers that share the machine have their limits multiplied.
    """
    if WORKERS > 1:
        items[:] = _in_turn(items)
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit_s = float(marker.args[0] if marker else config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(limit_s * WORKERS), append=False)
        if "interop" in item.keywords or "tests/faults/" in item.path.as_posix():
            item.add_marker(pytest.mark.flaky(reruns=1))


def _in_turn(items: list[pytest.Item]) -> list[pytest.Item]:
    """For several workers: files that compute and files that wait for processes take turns, so that
    workers seldom want the same; the scale test, which takes longest, is first."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)

    def of(*rooms: str) -> list[Path]:
        return [path for path in files if path.relative_to(_HERE).parts[0] in rooms]

    turns = itertools.zip_longest(of("spark"), of("interop", "faults"))
    order = [*of("bench"), *(path for turn in turns for path in turn if path), *files]
    return [item for path in dict.fromkeys(order) for item in files[path]]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes interop tests that did not run, and those that failed and run again."""
    if report.skipped and "interop" in report.keywords:
        _SKIPPED_INTEROP.append(report.nodeid)
    if report.outcome == "rerun":
        _SECOND_CHANCES.append(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped interop test is a failure: there the Java peers must be there.

    So are more second chances than a machine's mood explains.
    """
    skipped = _SKIPPED_INTEROP and os.environ.get("CI") == "true"
    if skipped or len(_SECOND_CHANCES) > _MOST_SECOND_CHANCES:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says why the run failed, and what failed first in those that got a second chance."""
    for report in _SECOND_CHANCES:
        terminalreporter.write_sep("_", f"run again: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
    if len(_SECOND_CHANCES) > _MOST_SECOND_CHANCES:
        terminalreporter.write_line(
            f"{len(_SECOND_CHANCES)} tests had to run again, {_MOST_SECOND_CHANCES} may: "
            "the run fails",
            red=True,
        )
    if _SKIPPED_INTEROP and os.environ.get("CI") == "true":
        terminalreporter.write_line(
            f"CI=true and {len(_SKIPPED_INTEROP)} interop tests were skipped: install java and mvn",
            red=True,
        )

"""What holds for every test: a home of its own, and no interop test skipped in silence."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

_SKIPPED_INTEROP: list[str] = []


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


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes interop tests that did not run."""
    if report.skipped and "interop" in report.keywords:
        _SKIPPED_INTEROP.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped interop test is a failure: there the Java peers must be there."""
    if _SKIPPED_INTEROP and os.environ.get("CI") == "true":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says why the run failed."""
    if _SKIPPED_INTEROP and os.environ.get("CI") == "true":
        terminalreporter.write_line(
            f"CI=true and {len(_SKIPPED_INTEROP)} interop tests were skipped: install java and mvn",
            red=True,
        )

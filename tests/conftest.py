"""What holds for every test: a home of its own, no interop test skipped in silence, order and
limits for workers that share a machine, and what a run tells at its end (docs/testing.md)."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from conf.compiled_modules import REQUIRED, VARIABLE
from tests.support import compiled_modules  # before package broker
from tests.support.garbage import not_searched, search_seldom
from tests.support.program import Forking
from tests.support.run_results import PROVED_KEY, ResultsFile
from tests.support.stolen_time import WORKERS
from tests.support.work_order import in_turn

# No example has a deadline of its own: a busy host would fail what is right. The small profile
# has the same examples in every run; bin/test --long takes the large one, with new ones each time.
_SMALL, _LARGE = "small", "large"
hypothesis.settings.register_profile(
    _SMALL, deadline=None, max_examples=30, derandomize=True, database=None
)
hypothesis.settings.register_profile(
    _LARGE, deadline=None, max_examples=1_000, derandomize=False, database=None
)
hypothesis.settings.load_profile(_SMALL)

_HERE = Path(__file__).resolve().parent
_SKIPPED_INTEROP: list[str] = []
# None of pytest's own: bin/test has to know it from failed tests.
_EXIT_SKIPPED = 9
_PROVED: list[str] = []
_LEFT_OUT: set[str] = set()
_LEFT_OUT_KEY = "left_out"
_COMPILED_KEY = "compiled"
"""User property of a test whose programs ran compiled modules: its directory."""
_COMPILED: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    """See tests/support/run_results.py."""
    parser.addoption("--results", type=Path, metavar="FILE", help="write how each test ended")


def pytest_configure(config: pytest.Config) -> None:
    """Programs are forked; the results are written where the reports of all workers come
    together."""
    Forking.allowed = True
    search_seldom()
    path = config.getoption("results")
    if path is not None and not hasattr(config, "workerinput"):
        results = ResultsFile(path, config.invocation_params.args)
        config.pluginmanager.register(results, "results file")


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Logs, stores and pid files of this run stay out of the user's home."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("ROCKETMQ_RUN_DIR", str(home / "run"))
        for name in ("ROCKETMQ_HOME", "NAMESRV_ADDR", "JAVA_OPT_EXT"):
            patch.delenv(name, raising=False)
        # A broker is five processes: without compiled files each start takes four times as long.
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def signals_as_usual() -> None:
    """Under nohup our children would ignore SIGHUP, in the background of a script SIGINT; what we
    catch, they get with its default."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Programs that a test and its fixtures start are on the modules that its room is for. Around
    the test's limit: the first compiles them."""
    interpreted = item.get_closest_marker("interpreted") is not None
    file = str(item.path.relative_to(_HERE))
    modules = compiled_modules.choice(file, is_interpreted=interpreted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, modules)
        if modules == REQUIRED:
            item.user_properties.append((_COMPILED_KEY, file.rpartition("/")[0]))
        return (yield)


@pytest.fixture
def proved(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes a sentence on what the test has shown; the run tells it at its end if it passes."""
    return lambda text: request.node.user_properties.append((PROVED_KEY, text))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Some million objects come to stay: looking through them for garbage, again and again, is two
    fifths of what collecting takes, and more whenever tests leave garbage later."""
    with not_searched():
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Files that use Spark share a worker; with another --dist nothing is changed."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.support.one_session import OneSession

    return OneSession(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Workers that share the machine have longer limits: those are for what hangs."""
    if WORKERS > 1:
        items[:] = _in_turn(items)
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit_s = float(marker.args[0] if marker else config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(limit_s * (1 + WORKERS) / 2), append=False)


def _in_turn(items: list[pytest.Item]) -> list[pytest.Item]:
    """By file, in the order for several workers."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(str(item.path.relative_to(_HERE)), []).append(item)
    return [item for name in in_turn(files) for item in files[name]]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes interop tests that did not run, and what the others have proved."""
    if report.skipped and "interop" in report.keywords:
        _SKIPPED_INTEROP.append(report.nodeid)
    if report.when == "call":
        _COMPILED.update(
            str(room) for name, room in report.user_properties if name == _COMPILED_KEY
        )
    if report.when == "call" and report.passed:
        _PROVED.extend(str(text) for name, text in report.user_properties if name == PROVED_KEY)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Notes which of the long tests are left out."""
    long = (item for item in items if item.get_closest_marker("long"))
    _LEFT_OUT.update(item.nodeid.partition("[")[0] for item in long)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped interop test is a failure: there the Java peers must be there."""
    if _SKIPPED_INTEROP and os.environ.get("CI") == "true":
        session.exitstatus = _EXIT_SKIPPED
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_LEFT_OUT_KEY] = sorted(_LEFT_OUT)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of xdist has ended: only workers know what they left out."""
    _LEFT_OUT.update(getattr(node, "workeroutput", {}).get(_LEFT_OUT_KEY, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was proved by what a test counted itself, what was left out, and why the run failed."""
    terminalreporter.section("modules")
    terminalreporter.write_line(compiled_modules.tell(_COMPILED))
    for title, lines in (
        ("proved", sorted(_PROVED)),
        ("left out: bin/test --long runs these", sorted(_LEFT_OUT)),
    ):
        if lines:
            terminalreporter.section(title)
            for line in lines:
                terminalreporter.write_line(line)
    if _SKIPPED_INTEROP and os.environ.get("CI") == "true":
        terminalreporter.write_line(
            f"CI=true and {len(_SKIPPED_INTEROP)} interop tests were skipped: install java and mvn",
            red=True,
        )

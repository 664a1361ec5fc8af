"""README's way from a running pair to a report: its commands, as a shell understands them.

Nothing is started but the shell. `date` is a script that tells the moment that the test sets: the
minutes after midnight (UTC) are part of a day, too.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from datetime import date, datetime
from pathlib import Path

import pytest

from broker.broker_startup import load_startup_options
from spark.command.arguments import Options, find_sla, parse_arguments
from spark.command.days import parse_date, window
from spark.command.first_and_last import resolved
from spark.command.preflight import check_paths
from spark.reported_day import InputError
from tests.spark.core_tables import core_tables
from tests.spark.dump_lines_builder import Life, write_dump
from tests.spark.story import Story

ROOT = Path(__file__).resolve().parents[2]
SECTION = "## From the pair to a report in three commands\n"
_DATE = """#!/bin/sh
# date -u [-d OFFSET] +FORMAT
[ "$1" = -u ] && shift
offset=
[ "$1" = -d ] && offset=$2 && shift 2
exec {date} -u -d "1970-01-01 UTC $NOW seconds $offset" "$1"
"""


def commands() -> list[str]:
    """Those of the section, continued lines joined."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition(SECTION)[2]
    block = text.partition("```console\n")[2].partition("```")[0].replace("\\\n", " ")
    return [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]


class Shell:
    """Gives the words of a command at a moment, its substitutions made."""

    def __init__(self, directory: Path, clock: str) -> None:
        self.now = datetime.fromisoformat(f"2026-11-20T{clock}+00:00")
        self._directory = directory
        date = subprocess.check_output(["sh", "-c", "command -v date"], text=True).strip()
        (directory / "date").write_text(_DATE.format(date=date))
        (directory / "date").chmod(0o755)

    def words(self, command: str) -> list[str]:
        surroundings = {
            "HOME": str(self._directory),
            "NOW": str(int(self.now.timestamp())),
            "PATH": f"{self._directory}:{os.environ['PATH']}",
        }
        printed = subprocess.check_output(
            ["sh", "-ec", f"printf '%s\\n' {command}"], env=surroundings, text=True
        )
        return printed.splitlines()


def asked(shell: Shell) -> Options:
    launcher, *arguments = shell.words(commands()[0])
    assert launcher == "bin/mqreport"
    return parse_arguments(arguments, {})


def test_there_are_three() -> None:
    assert [command.split()[0] for command in commands()] == ["bin/mqreport", "xdg-open", "pkill"]


class Pair:
    """A minute of the pair, told by both: the slave comes 9 s after the master's first line, copies
    for 2 s, and is in sync from then on, but for a stop of its process `ha`."""

    def __init__(self, begin_ms: int) -> None:
        self.begin_ms = begin_ms
        self.story = Story(begin_ms, Life(start_ms=begin_ms, broker="pair"), "pair:1")
        self.story.goes("catching_up", begin_ms + 9_000).goes("in_sync", begin_ms + 11_000)

    def dump(self, root: Path, seconds: int) -> Path:
        """All lines so far; the last one was written within the last interval."""
        last_ms = self.begin_ms + seconds * 1000
        write_dump(root, self.story.lines(self.begin_ms + 5_000, last_ms))
        return root


@pytest.mark.parametrize("clock", ["00:00:10", "12:34:56", "23:57:00"])
@pytest.mark.parametrize("seconds", [60, 170])
def test_the_page_is_green_and_red_after_the_stop(tmp_path: Path, clock: str, seconds: int) -> None:
    """Within three minutes of the pair's start, whenever that is."""
    begin_ms = int(datetime.fromisoformat(f"2026-11-20T{clock}+00:00").timestamp() * 1000)
    shell = Shell(tmp_path, clock)
    pair = Pair(begin_ms)
    root = pair.dump(tmp_path / "dumps", seconds)
    now_ms = begin_ms + seconds * 1000 + 4_999
    options = dataclasses.replace(asked(shell), dumps=(str(root),))
    date = parse_date(options.date, now_ms)
    assert check_paths(options, date, {}) is None

    def report() -> tuple[str, float]:
        between = resolved(options, date).between
        day = window(date, between, now_ms)
        tables = core_tables([root], day, find_sla(str(ROOT / "conf" / "sla.yaml"), {}))
        (row,) = tables["replica_days"]
        (of_window,) = [row for row in tables["windows"] if row["days"] == 30]
        assert row["verdict"] == of_window["verdict"]
        return row["verdict"], row["bad_s"]

    assert report() == ("met", 0)
    stop_ms = begin_ms + seconds * 1000 + 2_000
    pair.story.goes("disconnected", stop_ms).goes("in_sync", stop_ms + 20_000)
    if clock != "23:57:00" or seconds == 60:  # else the stop would be tomorrow's
        pair = Pair(begin_ms)
        pair.story.goes("disconnected", stop_ms).goes("in_sync", stop_ms + 20_000)
        pair.dump(root, seconds + 60)
        now_ms += 60_000
        assert report() == ("breached", 20)
    page = shell.words(commands()[1])
    assert page == ["xdg-open", f"{options.out}/index.html"]


def test_a_date_that_has_no_two_lines_yet(tmp_path: Path) -> None:
    begin_ms = int(datetime.fromisoformat("2026-11-20T12:00:00+00:00").timestamp() * 1000)
    root = Pair(begin_ms).dump(tmp_path / "dumps", 10)
    options = dataclasses.replace(asked(Shell(tmp_path, "12:00:10")), dumps=(str(root),))
    with pytest.raises(InputError, match=r"no two lines of 2026-11-20 in .* mention a replica"):
        resolved(options, date(2026, 11, 20))


def test_the_dumps_are_those_of_the_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    dumps = []
    for name in ("master", "slave"):
        settings = ROOT / "conf" / "sync-pair" / f"{name}.properties"
        options = load_startup_options(["-c", str(settings)], {"ROCKETMQ_HOME": str(ROOT)})
        store_root = Path(options.store.store_path_root_dir).expanduser()
        dumps.append(str(options.supervisor.dump_directory(store_root)))
    assert list(asked(Shell(tmp_path, "12:00:00")).dumps) == dumps


def test_what_is_stopped_runs_again() -> None:
    """The same process, by the title that a broker's process gives itself."""
    stopped, resumed = re.findall(r"-f '([^']+)'", commands()[2])
    source = (ROOT / "broker" / "processes" / "child.py").read_text(encoding="utf-8")
    assert 'setproctitle(f"mqbroker: {self.boot.name}")' in source
    assert stopped == resumed == "mqbroker: ha"


_BROKERS = """
start() {{ bash -c '(exec -a "mqbroker: ha" sleep 60) & echo $! > {directory}/$0; wait' "$1" & }}
state() {{ sed 's/.*) //; s/ .*//; s/[^T]/-/' /proc/$(cat {directory}/$1)/stat; }}
wait_for() {{ until [ -s {directory}/$1 ] && grep -qa mqbroker /proc/$(cat {directory}/$1)/cmdline
  do sleep 0.01; done; }}
wait_until() {{ until [ $(state slave) = $1 ]; do sleep 0.01; done; }}
trap 'kill -KILL $(cat {directory}/master {directory}/slave {directory}/other)' EXIT
start master; start slave; wait_for master; wait_for slave
( start other ); wait_for other          # a broker that another shell starts afterwards
{stop}; wait_until T; echo $(state master) $(state slave) $(state other)
{resume}; wait_until -; echo $(state master) $(state slave) $(state other)
"""


def test_the_slave_is_stopped_however_many_brokers_there_are(tmp_path: Path) -> None:
    """The pair's slave was started last in this shell; other brokers' processes have its title."""
    stop, sleep, resume = commands()[2].split("; ")
    # Less than what a hung process has until the watchdog restarts it.
    assert sleep == "sleep 20"
    settings = ROOT / "conf" / "sync-pair" / "slave.properties"
    options = load_startup_options(["-c", str(settings)], {"ROCKETMQ_HOME": str(ROOT)})
    assert int(sleep.split()[1]) * 1000 < options.supervisor.process_hang_timeout_millis
    script = _BROKERS.format(directory=tmp_path, stop=stop, resume=resume)
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines() == ["- T -", "- - -"], done.stderr

"""README's way from a running pair to a report: its commands, as a shell understands them.

Nothing is started but the shell. `date` is a script that tells the moment that the test sets: the
minutes after midnight (UTC) are part of a day, too.
"""

from __future__ import annotations

import os
import re
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from broker.broker_startup import load_startup_options
from spark.command.arguments import Options, parse_arguments
from spark.command.days import parse_date, window

ROOT = Path(__file__).resolve().parents[2]
SECTION = "## From the pair to a report in three commands\n"
MOMENTS = ["00:00:00", "00:00:59", "00:09:59", "00:10:00", "12:34:56", "23:59:59"]
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


@pytest.fixture(params=MOMENTS)
def shell(tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    return Shell(tmp_path, request.param)


def asked(shell: Shell) -> Options:
    launcher, *arguments = shell.words(commands()[1])
    assert launcher == "bin/mqreport"
    return parse_arguments(arguments, {})


def test_there_are_three() -> None:
    assert [command.split()[0] for command in commands()] == ["pkill", "bin/mqreport", "xdg-open"]


def test_the_window_is_of_the_last_minutes_at_any_time(shell: Shell) -> None:
    options = asked(shell)
    now_ms = int(shell.now.timestamp() * 1000)
    day = window(parse_date(options.date, now_ms), options.between, now_ms)
    assert 0 < day.w1_ms - day.w0_ms <= 11 * 60_000
    assert now_ms - day.w1_ms < 10 * 60_000
    page = f"{options.out}/report/dt={day.date}/report.html"
    assert shell.words(commands()[2]) == ["xdg-open", page]


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
    stopped, resumed = re.findall(r"-f '([^']+)'", commands()[0])
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
    stop, sleep, resume = commands()[0].split("; ")
    assert sleep == "sleep 30"
    script = _BROKERS.format(directory=tmp_path, stop=stop, resume=resume)
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines() == ["- T -", "- - -"], done.stderr

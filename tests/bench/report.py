"""What the nightly report costs: `bin/bench report` (or `python -m tests.bench.report`).

Writes dumps with tests/spark/generate_dumps.py, a line every --interval seconds (5), and runs
`bin/mqreport`'s program on them with local[2]: first ten minutes of one pair, three times, as the
second run on a machine keeps Spark's classes for the later ones (spark/job/class_archive.py); then
a day of each of --groups (25 100 200) broker groups with --replicas replicas (2). With --checkout
DIR the same is done with the program of another checkout, such as `git worktree add DIR main`, on
the same dumps: before and after, on one machine. Printed for each run: seconds of the whole
command, processor seconds of all processes, jobs and queries of Spark, the share of this machine
that its host gave to others, largest resident memory of all processes at one moment and of the JVM,
from Spark's event log the bytes read, shuffled and spilled, and the seconds of the start and of
each of the report's stages: together they are the whole time. Figures also go to --json. Dumps of
200 groups take 0.4 GB of disk; they are removed unless --dir names a directory for them: what is
there already is used again.

--past 0 30 300 measures something else instead: the report of a day of each of --groups with so
many days before it in the stored results (tests/bench/report_history.py).
--groups 1000 --interval 60 is the large run, --groups 3 --interval 300 that of a busy machine.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.measuring import MIB, OUT_DIR
from tests.bench.report_history import growth, with_past_days
from tests.interop.processes import process_tree
from tests.spark.generate_dumps import Shape, Written, generate
from tests.support.stolen_time import StolenTime

ROOT: Final = Path(__file__).resolve().parents[2]
FIRST_DATE: Final = datetime.date(2026, 1, 15)
_STAGE: Final = re.compile(r"\b\d+/\d+ ")
_QUERY: Final = "SparkListenerSQLExecutionStart"
TEN_O_CLOCK: Final = ("10:00", "10:10")
_RESIDENT: Final = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)
_HIGH_WATER: Final = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)
_HEAP: Final = re.compile(r" -Xmx(\d+)([kmg])\b", re.IGNORECASE)
_HEAP_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
START: Final = "start: Python, Java, Spark, until the first stage"


@dataclass
class EventFigures:
    """Sums over all tasks of a run, from the event log; bytes and seconds."""

    jobs: int = 0
    queries: int = 0
    tasks: int = 0
    failed_tasks: int = 0
    input_bytes: int = 0
    shuffle_write_bytes: int = 0
    shuffle_write_records: int = 0
    shuffle_read_bytes: int = 0
    spilled_bytes: int = 0
    output_bytes: int = 0
    cpu_s: float = 0.0
    gc_s: float = 0.0


@dataclass
class Run:
    """One run of the report; `stages` are the start and the report's own, with their seconds,
    `heap_bytes` is the limit that the JVM was given, `peak` of all processes together."""

    name: str
    written: Written
    seconds: float
    exit_code: int
    cpu_s: float
    stolen: float
    heap_bytes: int
    jvm_peak: int
    peak: int
    stages: list[tuple[float, str]]
    events: EventFigures
    result_bytes: int

    @property
    def rows_per_s(self) -> float:
        return self.written.rows / self.seconds


class ProcessWatch:
    """Processor time and resident memory of a process and its children: the most that the JVM had,
    and that all of them had at one moment."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ProcessWatch", daemon=True)
        self._cpu_s: dict[int, float] = {}
        self.jvm = self.all = self.heap = 0

    @property
    def cpu_s(self) -> float:
        """Of those that have ended, until they were seen last (four times a second)."""
        return sum(self._cpu_s.values())

    def __enter__(self) -> ProcessWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(0.25):
            resident = 0
            for process in process_tree(self._pid):
                resident += _memory(process.pid, _RESIDENT)
                self._cpu_s[process.pid] = process.cpu_s
                if "java" in process.title.partition(" ")[0]:
                    self.jvm = max(self.jvm, _memory(process.pid, _HIGH_WATER))
                    self.heap = max(self.heap, heap_limit(process.title))
            self.all = max(self.all, resident)


def heap_limit(command: str) -> int:
    """Bytes of -Xmx in a JVM's command line; 0 without. The last one counts, as for Java."""
    found = _HEAP.findall(command)
    return int(found[-1][0]) * _HEAP_UNITS[found[-1][1].lower()] if found else 0


def _memory(pid: int, line: re.Pattern[str]) -> int:
    try:
        found = line.search(Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found.group(1)) * 1024 if found else 0


def main(arguments: list[str]) -> int:
    """Measures; 1 when a report could not be computed."""
    given = _parse(arguments)
    checkouts = {"": ROOT} | ({" of the other checkout": given.checkout} if given.checkout else {})
    if given.past:
        return history(given)
    runs = []
    with tempfile.TemporaryDirectory(prefix="bench-report-") as scratch:
        root = given.dir or Path(scratch)
        cache = root / "cache"
        pair = ten_minutes(given, root / "pair" / "dumps")
        for whose, checkout in checkouts.items():
            for run_number in ("first", "second", "third"):
                name = f"pair, ten minutes, {run_number} run{whose}"
                command = Command(given.master, given.memory, checkout, cache, TEN_O_CLOCK)
                runs.append(measure(root / "pair", pair, FIRST_DATE, command, name))
                show(runs[-1])
        for groups in given.groups:
            directory = root / str(groups)
            written = dumps(_shape(given, groups, directory / "dumps"))
            date = FIRST_DATE + datetime.timedelta(days=given.days - 1)
            for whose, checkout in checkouts.items():
                command = Command(given.master, given.memory, checkout, cache)
                name = f"{groups} groups{whose}"
                runs.append(measure(directory, written, date, command, name))
                show(runs[-1])
            if given.dir is None:
                shutil.rmtree(directory)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps([asdict(run) for run in runs], indent=1), encoding="utf-8")
    return 0 if all(run.exit_code in (0, 1, 2) for run in runs) else 1


def history(given: argparse.Namespace) -> int:
    """The runs of --past; 1 when a report could not be computed."""
    with tempfile.TemporaryDirectory(prefix="bench-report-") as scratch:
        root = given.dir or Path(scratch)
        codes = {code for groups in given.groups for code in _history(given, groups, root)}
    return 0 if codes <= {0, 1, 2} else 1


def _history(given: argparse.Namespace, groups: int, root: Path) -> set[int]:
    """Those of so many groups; their exit codes."""
    directory, command = root / f"history-{groups}", Command(given.master, given.memory)
    written = dumps(_shape(given, groups, directory / "dumps", days=1))
    first = measure(directory, written, FIRST_DATE, command, f"{groups} groups, first")
    show(first)
    codes = {first.exit_code}

    def report(days: int) -> float:
        with_past_days(directory / "out", FIRST_DATE, days)
        name = f"{groups} groups, {days} days before"
        run = measure(directory, written, FIRST_DATE, command, name, keeps_results=True)
        codes.add(run.exit_code)
        show(run)
        return run.cpu_s

    print(f"{groups} groups:", *growth(report, given.past), sep="\n", flush=True)
    return codes


def ten_minutes(given: argparse.Namespace, out: Path) -> Written:
    """Dumps of one pair from shortly before TEN_O_CLOCK to shortly after it."""
    whole = out.parent / "whole"
    shutil.rmtree(out, ignore_errors=True)
    generate(_shape(given, 1, whole, replicas=1, days=1))
    midnight = datetime.datetime.combine(FIRST_DATE, datetime.time(), datetime.UTC)
    written = Written()
    around = datetime.timedelta(seconds=2 * given.interval)
    first = midnight + datetime.timedelta(hours=10) - around
    last = midnight + datetime.timedelta(hours=10, minutes=10) + around
    for file in sorted(whole.rglob("*.gz")):
        lines = [
            line
            for line in gzip.decompress(file.read_bytes()).splitlines(keepends=True)
            if first.timestamp() * 1000 <= json.loads(line)["ts"] <= last.timestamp() * 1000
        ]
        if lines:
            place = out / file.relative_to(whole)
            place.parent.mkdir(parents=True, exist_ok=True)
            text = b"".join(lines)
            place.write_bytes(gzip.compress(text, mtime=0))
            size = place.stat().st_size
            written.add(Written(len(lines), len(lines), 1, size, len(text)))
    shutil.rmtree(whole)
    return written


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--groups", type=int, nargs="*", default=[25, 100, 200])
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--days", type=int, default=1, help="the last one is reported")
    parser.add_argument("--interval", type=int, default=5, help="seconds between lines (5)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--past", type=int, nargs="+", help="days of stored results before it")
    parser.add_argument("--checkout", type=Path, help="another checkout to measure, too")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", help="of the driver, such as 4g (the report's own default)")
    parser.add_argument("--dir", type=Path, help="where dumps and results stay")
    parser.add_argument("--json", type=Path, default=OUT_DIR / "report.json")
    return parser.parse_args(arguments)


def _shape(
    given: argparse.Namespace, groups: int, out: Path, replicas: int = 0, days: int = 0
) -> Shape:
    return Shape(
        out=out,
        date=FIRST_DATE,
        groups=groups,
        replicas=replicas or given.replicas,
        days=days or given.days,
        interval_s=given.interval,
        seed=given.seed,
    )


def dumps(shape: Shape) -> Written:
    """Writes the dumps, unless they are there."""
    out = shape.out
    note = out / "written.json"
    asked = repr(shape)
    if note.exists():
        known = json.loads(note.read_text(encoding="utf-8"))
        if known["shape"] != asked:
            sys.exit(f"bench: {out} holds other dumps ({known['shape']}): remove it")
        return Written(**known["written"])
    began = time.monotonic()
    written = generate(shape)
    print(f"{shape.groups} groups written in {time.monotonic() - began:.0f} s", flush=True)
    note.write_text(json.dumps({"shape": asked, "written": asdict(written)}), encoding="utf-8")
    return written


@dataclass(frozen=True)
class Command:
    """How the report is run. `cache`: where it keeps Spark's classes; `between`: a part of the
    date."""

    master: str = "local[2]"
    memory: str | None = None
    checkout: Path = ROOT
    cache: Path | None = None
    between: tuple[str, str] | None = None

    def words(self, date: datetime.date, dumps: Path, out: Path, events: Path) -> list[str]:
        """The command line."""
        words = [sys.executable, "-m", "spark", "--date", str(date), "--master", self.master]
        words += ["--dumps", str(dumps), "--out", str(out)]
        words += ["--between", *self.between] if self.between else []
        settings = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": events.resolve().as_uri(),
        }
        settings |= {"spark.driver.memory": self.memory} if self.memory else {}
        return [*words, *(f"--conf={name}={value}" for name, value in settings.items())]

    def environment(self) -> dict[str, str]:
        """Of its process."""
        cache = {"XDG_CACHE_HOME": str(self.cache.resolve())} if self.cache else {}
        return os.environ | cache | {"PYTHONPATH": str(self.checkout), "PYTHONSAFEPATH": "1"}


def measure(
    directory: Path,
    written: Written,
    date: datetime.date,
    command: Command,
    name: str,
    *,
    keeps_results: bool = False,
) -> Run:
    """The report of `date` from directory/dumps into directory/out, as the command does it."""
    out, events = directory / "out", directory / "events"
    for fresh in (events,) if keeps_results else (out, events):
        shutil.rmtree(fresh, ignore_errors=True)
    events.mkdir(parents=True)
    words = command.words(date, directory / "dumps", out, events)
    began, stolen = time.monotonic(), StolenTime()
    with subprocess.Popen(
        words,
        cwd=command.checkout,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=command.environment(),
    ) as process:
        assert process.stderr is not None
        with ProcessWatch(process.pid) as watch:
            told = [(time.monotonic(), line.decode(errors="replace")) for line in process.stderr]
            exit_code = process.wait()
    ended = time.monotonic()
    log = "".join(text for _, text in told)
    (directory / "report.log").write_text(log, encoding="utf-8")
    if exit_code not in (0, 1, 2):
        print(log, file=sys.stderr)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return Run(
        name,
        written,
        ended - began,
        exit_code,
        watch.cpu_s,
        stolen.share(),
        watch.heap,
        watch.jvm,
        watch.all,
        stages(began, told, ended),
        _events(events),
        size,
    )


def stages(began: float, told: list[tuple[float, str]], ended: float) -> list[tuple[float, str]]:
    """The start and what the report says of its progress: seconds until the next stage, of the last
    one until the end. `told` are stderr's lines with their moments."""
    begun = [(began, START), *((at, text.strip()) for at, text in told if _STAGE.search(text))]
    ends = [*(at for at, _ in begun[1:]), ended]
    return [(end - at, text) for (at, text), end in zip(begun, ends, strict=True)]


def _events(directory: Path) -> EventFigures:
    figures = EventFigures()
    for file in directory.iterdir():
        with file.open(encoding="utf-8") as log:
            for line in log:
                figures.jobs += line.startswith('{"Event":"SparkListenerJobStart"')
                figures.queries += _QUERY in line[:100]
                if '"SparkListenerTaskEnd"' in line:
                    event = json.loads(line)
                    figures.failed_tasks += event["Task End Reason"]["Reason"] != "Success"
                    _add_task(figures, event.get("Task Metrics") or {})
    return figures


def _add_task(figures: EventFigures, metrics: dict[str, Any]) -> None:
    if not metrics:
        return
    read, write = metrics["Shuffle Read Metrics"], metrics["Shuffle Write Metrics"]
    figures.tasks += 1
    figures.input_bytes += metrics["Input Metrics"]["Bytes Read"]
    figures.output_bytes += metrics["Output Metrics"]["Bytes Written"]
    figures.shuffle_write_bytes += write["Shuffle Bytes Written"]
    figures.shuffle_write_records += write["Shuffle Records Written"]
    figures.shuffle_read_bytes += read["Remote Bytes Read"] + read["Local Bytes Read"]
    figures.spilled_bytes += metrics["Disk Bytes Spilled"]
    figures.cpu_s += metrics["Executor CPU Time"] / 1e9
    figures.gc_s += metrics["JVM GC Time"] / 1e3


def show(run: Run) -> None:
    """Prints the figures of a run."""
    written, events = run.written, run.events
    print(
        f"{run.name}: {written.lines:,} lines, {written.rows:,} replica rows, "
        f"{written.files:,} files, {written.bytes_ / 1e6:,.0f} MB "
        f"({written.text_bytes / 1e6:,.0f} MB of text, "
        f"{written.bytes_ / written.rows:.1f} bytes a row)"
    )
    print(
        f"    {run.seconds:.1f} s, {run.rows_per_s:,.0f} rows/s, exit code {run.exit_code}; "
        f"{run.cpu_s:.0f} s of processor time in all, {events.jobs} jobs, "
        f"{events.queries} queries; {run.stolen:.0%} of the machine stolen by its host, peak of "
        f"all {run.peak / MIB:,.0f} MB, of the JVM {run.jvm_peak / MIB:,.0f} MB "
        f"(heap {run.heap_bytes / MIB:,.0f})"
    )
    print(
        f"    read {events.input_bytes / 1e6:,.0f} MB, "
        f"shuffled {events.shuffle_write_bytes / 1e6:,.0f} MB "
        f"({events.shuffle_write_bytes / written.rows:.1f} bytes a row), "
        f"spilled {events.spilled_bytes / 1e6:,.0f} MB, results {run.result_bytes / 1e6:,.1f} MB"
    )
    print(
        f"    {events.tasks:,} tasks ({events.failed_tasks} failed), "
        f"{events.cpu_s:.0f} s of processor time in them, "
        f"{events.gc_s:.0f} s of garbage collection"
    )
    for seconds, text in run.stages:
        print(f"    {seconds:8.1f} s  {text}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

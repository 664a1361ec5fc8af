"""What more cores bring, measured on two: `bin/bench cores` (or `python -m tests.bench.cores`).

A container of ours (bin/mqbrokercontainer) with one broker group or with two, whose processes and
load generators may run on both cores or are pinned to one (sched_setaffinity); beside it Java's 4.9
broker on one core and on two. For each layout and load, sends of 1 KiB and pulls of these: messages
a second of all groups together, processor time a message of each process, and how many cores each
kept busy. Layouts take turns, --rounds times, each time on fresh stores; printed are medians.

Beneath it what would follow for hosts with more cores, by the formula of cores_model.py. The load
generators run on the same two cores as the brokers: that is why processor time, not speed, is what
the formula takes. --groups 1,2,4,8 measures as many groups instead (cores_groups.py).
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from broker.container.auto_brokers import NAMES
from broker.container.container_startup import AUTO
from tests.bench.broker_figures import Process, look_at
from tests.bench.cores_model import (
    HOSTS,
    JAVA_ON_ONE,
    JAVA_ON_TWO,
    ONE_CORE,
    ONE_GROUP,
    PINNED_GROUP,
    PINNED_GROUPS,
    PINNED_LOAD,
    RECORD_KB,
    TWO_GROUPS,
    java_at_best,
    models,
)
from tests.bench.machine import describe_machine
from tests.bench.measuring import OUT_DIR, quiet_cpu_s, run_load, side_broker
from tests.broker.container.container_world import OurContainer, broker_file
from tests.interop.java_peers import server_version

Cores = tuple[int, ...]
"""Places among the usable cores, from 0."""

_BOTH: Final[Cores] = (0, 1)
_FIRST: Final[Cores] = (0,)
_SECOND: Final[Cores] = (1,)
_LARGE_FILES: Final = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}
Loads = Mapping[str, tuple[int, int] | None]
"""By name: a group's connections and requests in flight on each; pulls drain what the first load
sent."""
LOADS: Final[dict[str, tuple[int, int] | None]] = {
    "send 4x64": (4, 64),
    "send 64x1": (64, 1),
    "pull 32": None,
}
_BODY: Final = 1024
_WARM_UP: Final = 50_000
_JAVA_WARM_UP: Final = 800_000
"""A quarter of it with --quick, after which Java's cost a message still falls a little."""
_COUNT: Final = 200_000
_QUEUES: Final = 4


@dataclass(frozen=True, slots=True)
class Group:
    """Where the processes of a broker group, and those who load it, may run."""

    remoting: Cores = _BOTH
    others: Cores = _BOTH
    load: Cores = _BOTH


@dataclass(frozen=True, slots=True)
class Layout:
    """The groups of one container, or a Java broker."""

    name: str
    groups: tuple[Group, ...]
    side: str = "ours"
    loads: Loads = field(default_factory=lambda: LOADS)
    parts: int = 1
    """Each group is sent this part of the messages."""


LAYOUTS: tuple[Layout, ...] = (
    Layout(ONE_CORE, (Group(_FIRST, _FIRST, _SECOND),)),
    Layout(ONE_GROUP, (Group(),)),
    Layout(PINNED_LOAD, (Group(load=_SECOND),)),
    Layout(PINNED_GROUP, (Group(_FIRST, _SECOND, _SECOND),)),
    Layout(TWO_GROUPS, (Group(), Group())),
    Layout(PINNED_GROUPS, (Group(_FIRST, _FIRST), Group(_SECOND, _SECOND))),
    Layout(JAVA_ON_ONE, (Group(_FIRST, _FIRST, _SECOND),), "java"),
    Layout(JAVA_ON_TWO, (Group(),), "java"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """A broker under load, as the load generator needs it."""

    port: int
    log_tail: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Host:
    """What runs: the processes of all groups, by their roots, and where they are reached."""

    roots: Sequence[int]
    targets: Sequence[Target]

    def processes(self) -> list[Process]:
        """All that live now."""
        return [one for pid in self.roots for one in look_at(pid)]

    def wait_quiet(self) -> None:
        """Until all have worked off what they had to do."""
        with ThreadPoolExecutor(len(self.roots)) as pool:
            list(pool.map(quiet_cpu_s, self.roots))


@contextlib.contextmanager
def container_of(root: Path, groups: int) -> Iterator[Host]:
    """A container of ours, with --auto, on fresh stores; it ends in order."""
    names = NAMES[:groups]
    for name in names:
        broker_file(root, name, **_LARGE_FILES)
    container = OurContainer(root, autoBrokerDirectory=root, autoBrokerCount=groups)

    def log_tail() -> str:
        return container.output()[-3000:]

    try:
        container.start(options=(f"--{AUTO.long}",))
        addresses = container.wait_registered(*names)
        supervisors = container.supervisors()
        ports = [int(addresses[name].rpartition(":")[2]) for name in names]
        yield Host(
            [supervisors[name] for name in names], [Target(port, log_tail) for port in ports]
        )
    finally:
        if container.is_alive:
            container.terminate()
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def java_broker(root: Path) -> Iterator[Host]:
    """Java's, on a fresh store."""
    broker = side_broker("java", root)
    try:
        broker.start()
        yield Host([broker.process.pid], [Target(broker.port, broker.log_tail)])
    finally:
        broker.kill()
        shutil.rmtree(root, ignore_errors=True)


@dataclass(slots=True)
class Run:
    """One load in one layout, all groups together; the fields are those of cores_model.py."""

    msg_per_s: float
    p50_us: float
    p99_us: float
    load_us: float
    cpu_us: dict[str, float] = field(default_factory=dict)
    cores: dict[str, float] = field(default_factory=dict)


class Bench:
    """Starts one container at a time. Used by one thread."""

    def __init__(self, directory: Path, factor: float) -> None:
        self._directory = directory
        self._factor = factor
        self._cores = sorted(os.sched_getaffinity(0))

    def measure(self, layout: Layout) -> dict[str, Run]:
        """A fresh start; every load, each in all groups at once."""
        is_java = layout.side == "java"
        root = self._directory / "host"
        with java_broker(root) if is_java else container_of(root, len(layout.groups)) as host:
            for pid, group in zip(host.roots, layout.groups, strict=True):
                self._pin(pid, group)
            warm_up = (4, 64, self._count(layout, _JAVA_WARM_UP if is_java else _WARM_UP))
            self._together(layout, host, "warm-up", "send", warm_up)
            self._together(layout, host, "warm-up", "pull", ("warm-up", _QUEUES, 32))
            return {load: self._run(layout, host, load) for load in layout.loads}

    def _count(self, layout: Layout, full: int) -> int:
        return max(64, int(full * self._factor / layout.parts))

    def _pin(self, root: int, group: Group) -> None:
        """All threads of the group; what it starts later stays with who starts it."""
        for process in look_at(root):
            cores = group.remoting if process.name == "remoting" else group.others
            for task in Path(f"/proc/{process.pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), self._own(cores))

    def _own(self, cores: Cores) -> list[int]:
        return [self._cores[at] for at in cores]

    def _run(self, layout: Layout, host: Host, load: str) -> Run:
        shape = layout.loads[load]
        topic = f"cores-{0 if shape is None else list(layout.loads).index(load)}"
        host.wait_quiet()
        before, used_s, began = host.processes(), _children_s(), time.perf_counter()
        if shape is None:
            done = self._together(layout, host, topic, "pull", ("cores", _QUEUES, 32))
        else:
            done = self._together(
                layout, host, topic, "send", (*shape, self._count(layout, _COUNT))
            )
        passed_s, loads_s = time.perf_counter() - began, _children_s() - used_s
        meanwhile = host.processes()
        host.wait_quiet()
        return figures(
            done,
            passed_s,
            loads_s,
            _spent(before, meanwhile),
            _spent(before, host.processes()),
        )

    def _together(
        self,
        layout: Layout,
        host: Host,
        topic: str,
        mode: str,
        arguments: tuple[object, ...],
    ) -> list[dict[str, float]]:
        """The same load in every group at once; each from a thread that is pinned as it is."""
        more = (_BODY,) if mode == "send" else ()

        def load(target: Target, group: Group) -> dict[str, float]:
            os.sched_setaffinity(0, self._own(group.load))
            return run_load(mode, target, topic, *arguments, *more)

        with ThreadPoolExecutor(len(host.targets)) as pool:
            return list(pool.map(load, host.targets, layout.groups))


def _children_s() -> float:
    """Processor time of the load generators that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _spent(before: Sequence[Process], after: Sequence[Process]) -> dict[str, float]:
    """Seconds by name of a process, all groups together."""
    spent: dict[str, float] = {}
    earlier = {one.pid: one.cpu_s for one in before}
    for one in after:
        name = "supervisor" if one.name.startswith("supervisor") else one.name
        name = "java" if name == "broker" else name
        spent[name] = spent.get(name, 0.0) + one.cpu_s - earlier.get(one.pid, 0.0)
    return spent


def figures(
    done: Sequence[Mapping[str, float]],
    passed_s: float,
    loads_s: float,
    meanwhile_s: Mapping[str, float],
    spent_s: Mapping[str, float],
) -> Run:
    """Of the loads of all groups. meanwhile_s: what each process used while they ran; spent_s:
    until it was quiet again. Sends that were refused (a Java broker in haste) are no messages."""
    counts = [one.get("total", one.get("msgs", 0.0)) for one in done]
    longest_s = max(count / one["msg_per_s"] for count, one in zip(counts, done, strict=True))
    messages = sum(counts) - sum(one.get("not_success", 0.0) for one in done)
    return Run(
        msg_per_s=messages / longest_s,
        p50_us=max(one.get("p50_us", 0.0) for one in done),
        p99_us=max(one.get("p99_us", 0.0) for one in done),
        load_us=loads_s * 1e6 / messages,
        cpu_us={name: used * 1e6 / messages for name, used in spent_s.items()},
        cores={
            **{name: used / passed_s for name, used in meanwhile_s.items()},
            "loadgen": loads_s / passed_s,
        },
    )


def medians(runs: Sequence[Run]) -> dict[str, Any]:
    """Of the rounds, as JSON data."""

    def of(values: Iterable[float]) -> float:
        return statistics.median(values)

    def each(name: str) -> dict[str, float]:
        maps = [getattr(run, name) for run in runs]
        return {key: of(one[key] for one in maps) for key in maps[0]}

    numbers = ("msg_per_s", "p50_us", "p99_us", "load_us")
    return {
        **{name: of(getattr(run, name) for run in runs) for name in numbers},
        **{name: each(name) for name in ("cpu_us", "cores")},
    }


def report(
    runs: Mapping[str, Mapping[str, Sequence[Run]]],
    machine: Mapping[str, Any],
    rounds: int,
    java: str,
) -> dict[str, Any]:
    """As it is kept. runs: by layout and load, the rounds. java: the release of Java's broker."""
    return {
        "run": {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "rounds": rounds,
        },
        "java_version": java,
        "machine": machine,
        "layouts": [
            {"name": name, "loads": {load: medians(of_it) for load, of_it in loads.items()}}
            for name, loads in runs.items()
        ],
    }


def lines(data: Mapping[str, Any]) -> list[str]:
    """The tables, for people."""
    found = [f"{'layout':32}{'load':12}{'msg/s':>10}{'p99 us':>9}  us a message; cores busy"]
    for layout in data["layouts"]:
        for load, one in layout["loads"].items():
            costs = ", ".join(f"{name} {us:.1f}" for name, us in one["cpu_us"].items() if us >= 0.1)
            busy = ", ".join(f"{name} {part:.2f}" for name, part in one["cores"].items())
            head = f"{layout['name']:32}{load:12}{one['msg_per_s']:>10,.0f}{one['p99_us']:>9,.0f}"
            found.append(f"{head}  {costs}, loadgen {one['load_us']:.1f}; {busy}")
    for load, model in models(data).items():
        found.append(
            f"{load}: remoting {model.remoting_us:.1f}, others {model.others_us:.1f} us; two groups"
            f" keep {model.kept:.2f} of what one's figures promise"
        )
        java = java_at_best(data, load)
        if java:
            found.append(f"  Java {java:.1f} us: on N cores at best N * {1e6 / java:,.0f}")
        for cores in HOSTS:
            most = model.on_each(cores)
            found.append(
                f"  {cores:3} cores, extrapolated: {model.on_pairs(cores):>12,.0f} a group for two"
                f" cores, {most:>12,.0f} a group for one ({most * RECORD_KB / 1e3:,.0f} MB/s)"
            )
    return found


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="cores", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, help="of each layout (3)")
    parser.add_argument("--quick", action="store_true", help="one round, a quarter of the messages")
    parser.add_argument("--factor", type=float, help="on all counts, for a trial")
    parser.add_argument("--groups", metavar="1,2,4,8", help="so many groups, one after the other")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--dir", type=Path, help="where the stores live while it runs")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.factor = options.factor or (0.25 if options.quick else 1.0)
    options.json = options.json or OUT_DIR / f"cores{'-groups' if options.groups else ''}.json"
    return options


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if len(os.sched_getaffinity(0)) < len(_BOTH):
        raise SystemExit("cores: two cores are needed, this process may use one")
    # So that SIGTERM ends the brokers and deletes the stores, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("cores: ended by SIGTERM"))
    layouts, show = LAYOUTS, lines
    if options.groups:
        from tests.bench.cores_groups import group_layouts, group_lines

        layouts, show = group_layouts(options.groups), group_lines
    directory = Path(tempfile.mkdtemp(prefix="cores-", dir=options.dir))
    machine = describe_machine(directory)
    runs: dict[str, dict[str, list[Run]]] = {}
    try:
        bench = Bench(directory, options.factor)
        for number in range(options.rounds):
            for layout in layouts:
                print(f"round {number + 1} of {options.rounds}: {layout.name}", file=sys.stderr)
                for load, run in bench.measure(layout).items():
                    runs.setdefault(layout.name, {}).setdefault(load, []).append(run)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    data = report(runs, machine, options.rounds, server_version("4.9"))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(data, indent=1))
    print("\n".join(show(data)))
    print(f"written: {options.json}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

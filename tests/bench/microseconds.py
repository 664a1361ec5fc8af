"""Where each microsecond of a message goes: `bin/bench microseconds`, a profile of `remoting`.

A compiled broker is warmed up, then loaded with sends of 4 x 64 and after that with pulls of 32,
while perf samples its process `remoting`, the one whose loop is the limit. The samples are grouped
by what the processor did: a sample in the kernel by the system call that it belongs to, one in
compiled modules by its module, one in a library by the library. Printed are microseconds of
processor time a message for each group: its share of the samples times what the process used.
Groups that any broker in Python has are marked. Needs `perf` and the right to use it; a virtual
machine without hardware counters has samples by time, which is enough for this.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.broker_figures import look_at
from tests.bench.measuring import COMPILED, KINDS, quiet_cpu_s, run_load, side_broker
from tests.interop import harness

_WARM_UP: Final = 200_000
_SENDS: Final = 1_000_000
_TOPIC: Final = "bench-microseconds"
_HERTZ: Final = 1_999
_BODY: Final = 128
_CALLS: Final = (
    ("pwrite", "pwrite to the log (kernel)"),
    ("recv", "receiving (kernel)"),
    ("read", "receiving (kernel)"),
    ("send", "sending (kernel)"),
    ("write", "sending (kernel)"),
    ("epoll", "waiting for sockets (kernel)"),
    ("futex", "waking other processes (kernel)"),
)
"""Of names of system calls, the first that is in one, and its group."""
_BYTECODE: Final = "Python: modules that are not compiled"
_ALLOCATION: Final = "Python: making and freeing objects"
_TEXT: Final = "Python: text and bytes"
_TABLES: Final = "Python: tables and attributes"
_NUMBERS: Final = "Python: numbers, fixed records"
_CALLING: Final = "Python: calls and the rest"
_TABLES_OF_NUMBERS: Final = "numpy: units of a queue"
_KERNEL: Final = "kernel, the rest: interrupts, page faults"
_LIBRARIES: Final = (
    ("/msgspec/", "header decoding (msgspec)"),
    ("zlib", "CRC-32 (zlib-ng)"),
    ("libz", "CRC-32 (zlib-ng)"),
    ("/numpy/", _TABLES_OF_NUMBERS),
    ("_struct.", _NUMBERS),
    ("/libc.", "C library: copies, allocation"),
)
_OF_PYTHON: Final = (
    *(("EvalFrame", _BYTECODE), ("alloc", _ALLOCATION), ("Alloc", _ALLOCATION)),
    *(("Free", _ALLOCATION), ("free", _ALLOCATION), ("GC_", _ALLOCATION), ("gc_", _ALLOCATION)),
    *(("nicode", _TEXT), ("ytes", _TEXT), ("find", _TEXT), ("memory", _TEXT), ("uffer", _TEXT)),
    *(("utf8", _TEXT), ("ascii", _TEXT), ("join", _TEXT), ("fastsearch", _TEXT)),
    *(("ict", _TABLES), ("ookup", _TABLES), ("hash", _TABLES), ("ttr", _TABLES), ("set_", _TABLES)),
    *(("ong", _NUMBERS), ("pack", _NUMBERS), ("nt_", _NUMBERS)),
)
"""Of names of functions of the interpreter, likewise."""
_MODULES: Final = (
    *(("header_cut", "headers and frames"), ("connection", "headers and frames")),
    *(("frame", "headers and frames"), ("receive_buffer", "headers and frames")),
    *(("remoting_command", "headers and frames"), ("send_answers", "answers")),
    *(("pull_answer", "answers"), ("send_records", "making records"), ("marks", "making records")),
    *(("send_properties", "making records"), ("reserved_properties", "making records")),
    *(("commit_log", "making records"), ("append", "making records")),
    *(("pull", "choosing messages"), ("unit", "choosing messages")),
    *(("selector_loop", "the loop and its counts"), ("remoting_server", "the loop and its counts")),
    *(("stats", "the loop and its counts"), ("request_", "the loop and its counts")),
    *(("durability", "the loop and its counts"), ("bell", "the loop and its counts")),
    *(("placement", "checks and places"), ("send", "checks and places")),
    *(("rules", "checks and places"), ("queue_table", "checks and places")),
)
"""Of names of compiled functions, the first that is in one, and its group."""
_REST: Final = "compiled modules, the rest"
_UNKNOWN: Final = "elsewhere"
CANNOT_SAVE: Final = frozenset(
    {
        *(group for _, group in _CALLS),
        _KERNEL,
        "header decoding (msgspec)",
        "CRC-32 (zlib-ng)",
        *(_ALLOCATION, _TEXT, _TABLES, _NUMBERS, _CALLING),
        "C library: copies, allocation",
    }
)
"""Groups that are not our code: a broker in Python calls them as often, or has such objects."""
_FRAME: Final = re.compile(r"^\s+[0-9a-f]+ (.*?)(?:\+0x[0-9a-f]+)? \((.*)\)$")


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a sample's stack, the innermost first."""

    symbol: str
    library: str

    @property
    def is_kernel(self) -> bool:
        return self.library.startswith("[") and self.library != "[vdso]"


def samples_of(script: Iterable[str]) -> Iterator[list[Frame]]:
    """The stacks in what `perf script -F ip,sym,dso` prints; an empty line ends each."""
    stack: list[Frame] = []
    for line in script:
        if found := _FRAME.match(line):
            stack.append(Frame(found[1], found[2]))
        elif stack:
            yield stack
            stack = []
    if stack:
        yield stack


def group_of(stack: list[Frame]) -> str:
    """What the processor did, in words."""
    inner = stack[0]
    if inner.is_kernel:
        calls = [each.symbol for each in stack if "_sys_" in each.symbol]
        return _first(_CALLS, calls[-1] if calls else "", _KERNEL)
    name = Path(inner.library).name
    if name.startswith("rocketmq_compiled"):
        return _first(_MODULES, inner.symbol.removeprefix("CPyDef_"), _REST)
    if name.startswith(("python", "libpython")):
        return _first(_OF_PYTHON, inner.symbol, _CALLING)
    return _first(_LIBRARIES, inner.library, _UNKNOWN)


def _first(known: Iterable[tuple[str, str]], name: str, otherwise: str) -> str:
    return next((group for word, group in known if word in name), otherwise)


def grouped(script: Iterable[str]) -> Counter[str]:
    """Samples by group."""
    return Counter(map(group_of, samples_of(script)))


def lines(counts: Mapping[str, int], us: float) -> list[str]:
    """A line for each group, the largest first. us: processor time a message, all groups."""
    every = sum(counts.values())
    found = [f"{us:8.2f}  {'':5}  all, of {every} samples"]
    saved = 0.0
    for group, count in sorted(counts.items(), key=lambda item: -item[1]):
        share = count / every
        mark = "*" if group in CANNOT_SAVE else " "
        saved += share * us if mark == " " else 0.0
        found.append(f"{share * us:8.2f}  {share:5.0%}  {mark} {group}")
    return [*found, f"{saved:8.2f}         without *: what our own code does"]


class Profile:
    """A loaded broker, and perf on one of its processes."""

    def __init__(self, broker: harness.Broker, directory: Path) -> None:
        self._broker = broker
        self._data = directory / "perf.data"
        [self._pid] = [one.pid for one in look_at(broker.process.pid) if one.name == "remoting"]

    def take(self, mode: str, topic: str, *load: object) -> tuple[Counter[str], float]:
        """(samples by group, microseconds a message) while the load generator does `mode`."""
        quiet_cpu_s(self._broker.process.pid)
        command = ["perf", "record", "-q", "-g", "-e", "cpu-clock", "-F", str(_HERTZ)]
        command += ["-o", str(self._data), "-p", str(self._pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as perf:
            before_s = self._cpu_s()
            figures = run_load(mode, self._broker, topic, *load)
            used_s = self._cpu_s() - before_s
            perf.terminate()
            said = perf.communicate()[1]
        if not self._data.exists():
            raise SystemExit(f"microseconds: perf recorded nothing: {said}")
        script = ["perf", "script", "-i", str(self._data), "-F", "ip,sym,dso"]
        done = subprocess.run(script, capture_output=True, text=True, check=True)
        count = figures["msgs" if mode == "pull" else "total"]
        return grouped(done.stdout.splitlines()), 1e6 * used_s / count

    def _cpu_s(self) -> float:
        [one] = [one for one in look_at(self._broker.process.pid) if one.pid == self._pid]
        return one.cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sends", type=int, default=_SENDS)
    parser.add_argument("--body", type=int, default=_BODY)
    parser.add_argument("--side", choices=KINDS, default=COMPILED)
    options = parser.parse_args()
    if shutil.which("perf") is None:
        raise SystemExit("microseconds: there is no perf on the PATH")
    with tempfile.TemporaryDirectory(prefix="bench-microseconds-") as root:
        broker = side_broker(options.side, Path(root))
        broker.start()
        try:
            profile = Profile(broker, Path(root))
            run_load("send", broker, "bench-warm-up", 4, 64, _WARM_UP, _BODY)
            sends = profile.take("send", _TOPIC, 4, 64, options.sends, options.body)
            pulls = profile.take("pull", _TOPIC, "bench-microseconds", 4, 32)
        finally:
            broker.kill()
    for name, taken in (("a send of 4 x 64", sends), ("a message of a pull of 32", pulls)):
        print(f"us of `remoting` for {name}, {options.body} bytes:")
        print("\n".join(lines(*taken)), flush=True)


if __name__ == "__main__":
    main()

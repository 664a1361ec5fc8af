"""Writes the list of docs/faults.md: each of 46 faults and attacks, and the tests that prove it.

`.venv/bin/python -m tests.faults.faults_document` writes it anew, below the marker; the text
above it is written by hand. Which test proves which number is said at the test, by
`@pytest.mark.fault(n)`; it is read from the source, no test is run.
"""

from __future__ import annotations

import ast
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = ROOT / "docs" / "faults.md"
COMMAND: Final = ".venv/bin/python -m tests.faults.faults_document"
MARKER: Final = f"<!-- Everything below is generated: {COMMAND} -->\n"
NO_TEST: Final = "**no test**"
_MARK: Final = "pytest.mark.fault"

# number: (section, fault or attack, what is expected)
SECTIONS: Final = {
    "Processes and nodes": {
        1: (
            "SIGKILL of all processes, ASYNC_FLUSH, again and again",
            "Every acknowledged message is readable after the restart, no torn record is seen, the "
            "`abort` file leads to a recovery, and that takes at most 10 s for 10 GB.",
        ),
        2: (
            "a power cut under SYNC_FLUSH: files fall back to what was synced",
            "No acknowledged message is lost.",
        ),
        3: (
            "a power cut under ASYNC_FLUSH",
            "Only messages younger than the flush interval are lost, and they are counted. A sync "
            "under load may bring a page to disk and not the one before it: such a hole among the "
            "youngest is fenced, what is behind it stays at its offset.",
        ),
        4: (
            "SIGKILL of one process under load",
            "The others serve on, it is replaced within a second, clients connect again, nothing "
            "acknowledged is lost, no counter of the metrics goes back.",
        ),
        5: (
            "SIGKILL of the log's writer in the middle of a batch",
            "What was not acknowledged is there whole or not at all; queue offsets stay dense.",
        ),
        6: (
            "SIGKILL of the supervisor",
            "Its children end by themselves, the ports are free, nobody writes any more, and a "
            "second broker is refused as long as one of them holds the store's lock.",
        ),
        7: (
            "an orderly stop under load, then a power cut",
            "What was under way is answered, everything is synced, the routes are gone, no `abort` "
            "file, exit code 0 within 10 s; not even the power cut loses anything.",
        ),
        8: (
            "the slave stands still (SIGSTOP) under SYNC_MASTER",
            "Sends are answered FLUSH_SLAVE_TIMEOUT in time, SLAVE_NOT_AVAILABLE once housekeeping "
            "has dropped the link, never SEND_OK. The lag grows with the clock. Afterwards it "
            "returns to 0, and sends succeed.",
        ),
        9: (
            "the master stands still (SIGSTOP)",
            "The slave serves reads, connects again afterwards, and no byte comes twice.",
        ),
        10: (
            "SIGKILL of the slave within a segment, again and again",
            "Its log is always the beginning of the master's, and the same after each catch-up.",
        ),
        11: (
            "the master dies, the slave is promoted",
            "Every message that was answered SEND_OK is there, committed offsets are no older than "
            "the slave's synchronisation interval, and the time without service is printed.",
        ),
        12: (
            "the master comes back shorter than its slave (an old image)",
            "The slave says that it is ahead, cuts nothing, and is no replica: sends that wait for "
            "one fail visibly.",
        ),
        13: (
            "the slave asks for what the master has deleted",
            "It starts over at the master's beginning, keeps its old log aside, and says what is "
            "missing; it never just stands still.",
        ),
    },
    "Network": {
        14: (
            "master and slave cannot reach each other, then they can",
            "The statuses of 8; both close the dead link, connect again within 5 s of healing, and "
            "the logs are the same.",
        ),
        15: (
            "only the acknowledgements are lost",
            "As 14, and nothing is appended twice.",
        ),
        16: (
            "round trips of 2 ms and 20 ms",
            "The log is sent ahead of its acknowledgements: 2 ms cost at most a fifth of the rate. "
            "Lost packets are not played (no netem here); the kernel sends them again.",
        ),
    },
    "Hostile HA peers": {
        17: (
            "a report of 7fffffffffffffff, as the first and as a later one",
            "The connection is closed, the reason is counted, and no waiting send succeeds.",
        ),
        18: (
            "negative and decreasing reports, reports in pieces",
            "Wrong ones close the connection and are counted by reason, pieces are put together.",
        ),
        19: (
            "a peer that is not allowed",
            "It is closed before it gets a byte of the log, unless `haAllowAnyPeer=true`.",
        ),
        20: (
            "a replica that reports bytes it does not have",
            "More than was sent to it closes its connection. A report of what was sent and thrown "
            "away is believed: no protocol can tell, which is why membership is proved first.",
        ),
        21: (
            "1,000 idle HA connections, a slave that never reads",
            "Connections are bounded per address, unsent bytes too, and other replicas get theirs.",
        ),
        22: (
            "a hostile master: wrong offset, negative size, 2 GiB, no records",
            "The slave closes, says why and keeps its log.",
        ),
    },
    "Storage": {
        23: (
            "flipped bits in closed segments",
            "The scrub finds each, with a metric and the place; a pull gets no wrong bytes.",
        ),
        24: (
            "a last record torn at every byte",
            "Recovery ends the log behind the last whole record, each time.",
        ),
        25: (
            "whole records of an earlier time behind the end of the log",
            "They do not come back.",
        ),
        26: (
            "consume queues, index and checkpoint damaged or missing, each and together",
            "They are built again from the log, with the offsets of before. (A single flipped bit "
            "in the index hides a key: it has no checksum. `python -m store.check` finds it.)",
        ),
        27: (
            "config/*.json cut off, empty or garbage",
            "The `.bak` counts; where both are bad, the start is refused and names the file.",
        ),
        28: (
            "no space for the log, a flush, the queues, the tables",
            "Sends are refused with a code, no half record, pulls go on, and sends work again by "
            "themselves when there is space.",
        ),
        29: (
            "EIO from fdatasync",
            "No acknowledgement afterwards, a stop with an exit code of its own; the next start "
            "writes again what the kernel may have dropped.",
        ),
        30: (
            "fdatasync takes 2 s, or 10 s",
            "SYNC_FLUSH answers FLUSH_DISK_TIMEOUT after syncFlushTimeout; ASYNC_FLUSH and pulls "
            "are as quick as ever.",
        ),
        31: (
            "somebody truncates a log file that is mapped",
            "Processes that touch it end with a line that names the cause and are replaced; the "
            "file gets its length back within two seconds, what it lacks reads as damage, "
            "nothing else is lost, and no queue offset is given twice.",
        ),
        32: (
            "no descriptors left: many connections, many queues",
            "No crash and no busy loop: who is connected is served, it is said, and it ends with "
            "the shortage.",
        ),
    },
    "Time": {
        33: (
            "the clock jumps by −1 h, +1 h, +1 day under load",
            "Timeouts and long polls do not notice. Delayed messages come once, after their delay, "
            "however short the clock is wrong. "
            "Retention deletes nothing because of the jump.",
        ),
    },
    "Protocol input": {
        34: (
            "random bytes and mutated frames at every port",
            "An answer or a closed connection: no crash, no second of silence, no memory, and "
            "others are served.",
        ),
        35: (
            "wrong lengths, wrong header lengths, unknown serialize types",
            "The connection is closed with a line, and the announced size is never allocated.",
        ),
        36: (
            "binary headers whose lengths lie",
            "Refused in bounded time.",
        ),
        37: (
            "frames in single bytes, a thousand in one write, cut everywhere",
            "The same answers as to whole frames.",
        ),
        38: (
            "JSON headers without bounds: depth, keys, numbers, text that is none",
            "An answer or a closed connection, at most 50 ms of the processor for a frame.",
        ),
        39: (
            "names, properties and queue ids that are none",
            "Refused with RocketMQ's codes, and no file appears outside the store.",
        ),
        40: (
            "batches whose inner sizes lie, bodies that inflate",
            "A batch is stored whole or not at all, and the broker inflates no body.",
        ),
        41: (
            "slow loris, 10,000 connections, a reader that never reads",
            "The idle are closed, output and memory are bounded, others hardly notice.",
        ),
        42: (
            "many connections with large and half frames at once",
            "Each stored body is the one that its connection sent.",
        ),
    },
    "Administration and access": {
        43: (
            "updateBrokerConfig and updateNamesrvConfig of what may not be set",
            "Refused, the files stay as they are, and it is logged.",
        ),
        44: (
            "every request code from elsewhere, without an account",
            "Each code has a rule of its own, and the default is no.",
        ),
        45: (
            "forged signatures, addresses, batches, subscriptions, send-backs",
            "All refused.",
        ),
        46: (
            "names that would break metrics or logs, 100,000 client ids",
            "The page can be parsed, its size is bounded, a line stays a line.",
        ),
    },
}

NUMBERS: Final = [number for rows in SECTIONS.values() for number in rows]


@dataclass(frozen=True, slots=True)
class FaultTest:
    """A test that proves faults. `path` is relative to the checkout; is_long: with --long only."""

    path: str
    name: str
    numbers: tuple[int, ...]
    is_long: bool


def marked_tests() -> list[FaultTest]:
    """All tests that have the marker, by path and line."""
    found: list[FaultTest] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if f"{_MARK}(" in text:
            found += _tests_of(ast.parse(text), str(path.relative_to(ROOT)))
    return found


def _tests_of(tree: ast.Module, path: str) -> Iterator[FaultTest]:
    of_all = _module_marks(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            marks = [*of_all, *node.decorator_list]
            numbers = dict.fromkeys(n for mark in marks for n in _numbers_of(mark))
            is_long = "pytest.mark.long" in map(ast.unparse, marks)
            if numbers:
                yield FaultTest(path, node.name, tuple(numbers), is_long)


def _module_marks(tree: ast.Module) -> list[ast.expr]:
    """What `pytestmark` names: for all tests of the module."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            return node.value.elts if isinstance(node.value, ast.List) else [node.value]
    return []


def _numbers_of(decorator: ast.expr) -> list[int]:
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == _MARK:
        return [int(ast.literal_eval(argument)) for argument in decorator.args]
    return []


def marked_by_number() -> dict[int, list[FaultTest]]:
    """The tests of each number that has any."""
    found: dict[int, list[FaultTest]] = defaultdict(list)
    for test in marked_tests():
        for number in test.numbers:
            found[number].append(test)
    return found


def tables() -> str:
    """What stands below the marker."""
    tests = marked_by_number()
    return "".join(_section(title, rows, tests) for title, rows in SECTIONS.items())


def _section(
    title: str, rows: dict[int, tuple[str, str]], tests: dict[int, list[FaultTest]]
) -> str:
    items = [
        _item(number, fault, expected, tests.get(number, []))
        for number, (fault, expected) in rows.items()
    ]
    return f"\n## {title}\n\n" + "".join(items)


def _item(number: int, fault: str, expected: str, tests: list[FaultTest]) -> str:
    """One fault, what is expected, and a line for each test."""
    text = textwrap.wrap(
        f"**{number}: {fault}.** {expected}",
        100,
        initial_indent="- ",
        subsequent_indent="  ",
        break_on_hyphens=False,
    )
    named = [f"  - {test.path}::{test.name}{' (long)' if test.is_long else ''}" for test in tests]
    return "\n".join([*text, *(named or [f"  - {NO_TEST}"])]) + "\n"


def document(by_hand: str) -> str:
    """The whole page."""
    return by_hand + MARKER + tables()


def main() -> None:
    """Writes the page, and keeps what stands above the marker."""
    text = DOCUMENT.read_text(encoding="utf-8")
    by_hand, found, _ = text.partition(MARKER)
    if not found:
        raise ValueError(f"{DOCUMENT}: there is no line {MARKER!r}")
    DOCUMENT.write_text(document(by_hand), encoding="utf-8")
    print(f"written: {DOCUMENT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

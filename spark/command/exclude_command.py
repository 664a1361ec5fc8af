"""`mqreport exclude`: adds, lists and withdraws exclusions and annotations of a file.

Runs as its own command; starts no Spark. What an entry is, is the business of
spark/config/exclusion_log.py; the file is locked while it is appended to.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from spark.command.arguments import RaisingParser, UsageError
from spark.command.failures import exit_code_of
from spark.command.output import PROGRAM, say
from spark.config.exclusion_log import Entry, LogError, appended, entries_of, in_force, iso
from spark.config.exclusion_log import moment_ms as _moment_ms
from spark.dumps.durable_files import naming


def main(arguments: Sequence[str], now_ms: Callable[[], int]) -> int:
    """Runs `mqreport exclude`; returns its exit code, 0 or 3. Raises UsageError."""
    given = _parser().parse_args(list(arguments))
    path = Path(given.file)
    if given.action == "list":
        return exit_code_of(lambda: _list(path))
    return exit_code_of(lambda: _append(path, _entry(given, now_ms())))


def _entry(given: argparse.Namespace, at_ms: int) -> Entry:
    at_ms = at_ms // 1000 * 1000
    if given.action == "withdraw":
        return Entry(
            "withdrawal", at_ms, given.who, given.why, given.ticket, withdraws=given.number
        )
    return Entry(
        "annotation" if given.annotation else "exclusion",
        at_ms,
        given.who,
        given.why,
        given.ticket,
        given.begin,
        given.end,
        given.cluster,
        given.broker,
        given.replica,
    )


def _append(path: Path, entry: Entry) -> int:
    """Appends and syncs while nobody else does. Raises OSError that names the file, which is as it
    was then."""
    with naming(path), open(path, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        content = file.read()
        try:
            line = appended(content, entry, str(path))
        except LogError as error:
            raise UsageError(f"exclude: {error}") from error
        try:
            if os.write(file.fileno(), line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), len(content))  # a part of an entry is none
            raise
    number = content.count(b"\n") + 1
    say(sys.stdout, f"{path}: entry {number}: {_shown(number, entry)}")
    return 0


def _list(path: Path) -> int:
    entries = entries_of(path.read_bytes(), str(path))
    valid = in_force(entries)
    for number, entry in enumerate(entries, 1):
        state = "" if entry.kind == "withdrawal" or number in valid else "withdrawn: "
        say(sys.stdout, f"{number} {state}{_shown(number, entry)}")
    return 0


def _shown(number: int, entry: Entry) -> str:
    if entry.kind == "withdrawal":
        return f"withdraws {entry.withdraws}: {entry.reason}"
    names = " / ".join(entry.patterns)
    return f"{entry.kind} {iso(entry.from_ms)} to {iso(entry.to_ms)}, {names}: {entry.reason}"


def _moment(text: str) -> int:
    try:
        return _moment_ms(text)
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(
            f"{text}: write a time in UTC, 2026-12-01T22:00:00Z, from 1970 to 9999"
        ) from error


def _pattern(text: str) -> str:
    if "" in text.split("|"):
        raise argparse.ArgumentTypeError(f"{text!r}: an empty alternative, which no name matches")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = RaisingParser(
        prog=f"{PROGRAM} exclude",
        allow_abbrev=False,
        description="Exclusions and annotations after the event, as revisions in a file that the"
        " report reads (mqreport --exclusions FILE).",
        epilog="Exit codes: 0 done, 3 bad input or error. More: docs/evidence.md.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="time that is agreed not to count, or a remark")
    add.add_argument("--from", dest="begin", required=True, type=_moment, metavar="TIME")
    add.add_argument("--to", dest="end", required=True, type=_moment, metavar="TIME")
    for name in ("cluster", "broker", "replica"):
        add.add_argument(
            f"--{name}", default="*", type=_pattern, metavar="PATTERN", help="default: *"
        )
    add.add_argument("--annotation", action="store_true", help="a remark: the time counts")
    withdraw = actions.add_parser("withdraw", help="an entry does not hold any more")
    withdraw.add_argument("--number", required=True, type=int, metavar="N", help="see list")
    for action in (add, withdraw):
        action.add_argument("--who", required=True, help="who answers for it")
        action.add_argument("--why", required=True)
        action.add_argument("--ticket", required=True)
    for action in (add, withdraw, actions.add_parser("list", help="every entry")):
        action.add_argument("--file", required=True, metavar="FILE")
    return parser

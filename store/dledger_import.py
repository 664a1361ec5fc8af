"""`python -m store.dledger_import SOURCE TARGET`: a DLedger store's messages as a store of ours.

For the operator, while the brokers of both are stopped. SOURCE is the storePathRootDir of one node
of a group with enableDLegerCommitLog=true, and stays as it is; TARGET becomes that of a broker of
ours. What is taken, what is rewritten and what is not: docs/upgrading.md. Exit 0: done; 1: refused,
damaged or different, with a line that says why.

Tested by tests/store/test_dledger_import.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from store.dledger.import_run import DAMAGED_NAME, DledgerImport, ImportOptions
from store.dledger.report import report
from store.errors import StoreError

DONE: Final = 0
REFUSED: Final = 1
_FILE_SIZES: Final = (1_024, 2**31 - 1)
"""What mappedFileSizeCommitLog may be."""
_MEMBERS: Final = (1, 1_000)


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    options = _parser().parse_args(arguments)
    if options.target is None and not options.dry_run:
        _say("name the TARGET, or --dry-run")
        return REFUSED
    try:
        _run(options)
    except (StoreError, OSError) as error:
        _say(str(error))
        return REFUSED
    return DONE


def _run(options: argparse.Namespace) -> None:
    with DledgerImport(
        ImportOptions(
            source=options.source,
            others=tuple(options.other),
            members=options.members,
            majority_only=options.majority_only,
            skip_damaged=options.skip_damaged,
            again=options.again,
            file_size=options.file_size,
        )
    ) as run:
        run.look()
        for line in report(run):
            _say(line)
        target: Path = options.target
        if options.dry_run:
            return
        if not options.verify:
            run.write(target)
            if run.survey.damaged.count:
                _say(f"what is damaged was kept in {target / DAMAGED_NAME}")
            if run.moved.unknown_halves:
                _say(
                    f"{run.moved.unknown_halves} committed messages name a half message that is "
                    "not in the log, or far back: they name 0 now (preparedTransactionOffset)"
                )
        count, more_at = run.compare(target)
        _say(f"{count} messages are the same in {target}")
        if more_at is not None:
            _say(f"behind them, from {more_at} on, {target} has more: of a broker that ran on it")
        _say(
            f"start bin/mqbroker with storePathRootDir={target}, "
            f"mappedFileSizeCommitLog={run.file_size}, the same brokerName, and no line of "
            "storePathCommitLog, enableDLegerCommitLog and dLeger…"
        )


def _say(line: str) -> None:
    """One line: names come from files and messages."""
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)
    sys.stdout.write(f"{shown}\n")
    sys.stdout.flush()


def _within(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
        if not (is_number and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!a:.40}: expected {least} to {most}")
        return int(text)

    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m store.dledger_import",
        description="Writes the messages of a DLedger store (enableDLegerCommitLog=true) into a "
        "new store, and compares both. All brokers are stopped; the source is not changed.",
    )
    parser.add_argument("source", type=Path, help="storePathRootDir of the node to import from")
    parser.add_argument("target", type=Path, nargs="?", help="storePathRootDir to be made")
    parser.add_argument(
        "--other",
        type=Path,
        action="append",
        default=[],
        help="storePathRootDir of another node of the group, or a copy; once for each",
    )
    parser.add_argument(
        "--members", type=_within(*_MEMBERS), default=3, help="nodes of the group (default 3)"
    )
    parser.add_argument(
        "--majority-only",
        action="store_true",
        help="leave out what no majority of the nodes has; needs --other",
    )
    parser.add_argument(
        "--skip-damaged", action="store_true", help="leave out what cannot be read, keep it aside"
    )
    parser.add_argument(
        "--again", action="store_true", help="remove an unfinished import and begin anew"
    )
    parser.add_argument("--dry-run", action="store_true", help="read and judge only")
    parser.add_argument("--verify", action="store_true", help="only compare, message by message")
    parser.add_argument(
        "--file-size",
        type=_within(*_FILE_SIZES),
        help="mappedFileSizeCommitLog of the target; default: the source's",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())

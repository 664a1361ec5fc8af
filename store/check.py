"""`python -m store.check DIR`: is this store directory whole?

Prints a verdict with counts and the first errors. Exit 0: clean, 1: damaged, 2: not a store.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from store.errors import StoreError
from store.log_directories import LogDirectories
from store.store_checker import check_store

CLEAN = 0
DAMAGED = 1
NOT_A_STORE = 2


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    options = _parser().parse_args(arguments)
    try:
        directories = LogDirectories(tuple(options.commitlog)) if options.commitlog else None
        report = check_store(
            options.directory, commit_log=directories, hash_slots=options.hash_slots
        )
    except StoreError as error:
        sys.stdout.write(f"{error}\n")
        return NOT_A_STORE
    sys.stdout.write("\n".join(report.lines()) + "\n")
    return CLEAN if report.is_clean else DAMAGED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m store.check", description="Judges a store directory; changes nothing."
    )
    parser.add_argument("directory", type=Path, help="storePathRootDir of a stopped broker")
    parser.add_argument(
        "--commitlog",
        type=Path,
        action="append",
        help="a directory of the log, if storePathCommitLog is set; once for each, in its order",
    )
    parser.add_argument("--hash-slots", type=int, help="maxHashSlotNum, if it is set")
    return parser


if __name__ == "__main__":
    sys.exit(main())

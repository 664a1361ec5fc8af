"""Judges a store directory offline: `python -m store.check DIR` and the end of every store test.

One thread, read-only, no broker may run on the directory. It takes all sizes from the files. What
it must not do: repair.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from store.batch_queues_checker import check_batch_queues
from store.check_report import CheckReport
from store.clean_exit import read_clean_exit
from store.commit_log_checker import WalkedLog, check_commit_log
from store.derived_files_checker import DerivedFilesChecker
from store.dledger.unfinished_import import is_adoption_unfinished, is_unfinished
from store.errors import StoreError
from store.log_directories import LogDirectories
from store.store_checkpoint import CHECKPOINT_SIZE, TIMESTAMPS

_CLOCK_SLACK_MS: Final = 60_000
_STRING_OR_BARE_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(-?\d+)(?=\s*:)')
"""Fastjson writes numbers as keys without quotes."""


def check_store(
    root: Path,
    *,
    commit_log: Path | LogDirectories | None = None,
    hash_slots: int | None = None,
) -> CheckReport:
    """The findings on the store at `root`.

    commit_log: the log's directories where they are not `root`/commitlog. hash_slots:
    maxHashSlotNum, where it is not a quarter of maxIndexNum. Raises StoreError: no store.
    """
    directories = LogDirectories.of(commit_log or root / "commitlog")
    for path in directories:
        if not path.is_dir():
            raise StoreError(f"{root}: not a store directory, {path} is missing")
    report = CheckReport(str(root), unclean=(root / "abort").exists())
    if is_unfinished(root) or is_adoption_unfinished(root):
        report.error(f"{root}: an import into it was not finished: messages are missing")
    walked = check_commit_log(directories, report)
    word = None if report.unclean else read_clean_exit(root / "clean.exit")
    if word is not None and word.max_phy_offset == walked.end_offset:
        walked.dispatched_offset = word.dispatched_offset
    derived = DerivedFilesChecker(walked, report)
    batch_queues = check_batch_queues(root / "batchconsumequeue", walked, report)
    derived.check_consume_queues(root / "consumequeue", batch_queues)
    derived.check_index(root / "index", hash_slots)
    _check_checkpoint(root / "checkpoint", walked, report)
    _check_config(root / "config", report)
    return report


def _check_checkpoint(path: Path, walked: WalkedLog, report: CheckReport) -> None:
    if not path.exists():
        report.note(f"{path}: missing; an abnormal recovery would scan the whole log")
        return
    raw = path.read_bytes()
    if len(raw) != CHECKPOINT_SIZE:
        report.error(f"{path}: {len(raw)} bytes, expected {CHECKPOINT_SIZE}")
        return
    limit = walked.max_store_timestamp + _CLOCK_SLACK_MS
    for name, timestamp in zip(
        ("physic", "logics", "index"), TIMESTAMPS.unpack_from(raw), strict=True
    ):
        if timestamp < 0 or (walked.max_store_timestamp and timestamp > limit):
            report.error(
                f"{path}: {name}MsgTimestamp {timestamp}, the newest record was stored at "
                f"{walked.max_store_timestamp}"
            )


def _check_config(directory: Path, report: CheckReport) -> None:
    for path in sorted(directory.glob("*.json*")) if directory.is_dir() else []:
        problem = _json_problem(path)
        report.count("config files")
        if problem and path.suffix == ".json":
            report.error(f"{path}: {problem}")
        elif problem:
            report.note(f"{path}: {problem}")


def _json_problem(path: Path) -> str:
    try:
        text = path.read_text("utf-8")
        json.loads(_STRING_OR_BARE_KEY.sub(_quote_bare_key, text))
    except (OSError, ValueError, RecursionError) as error:
        return f"cannot be read as JSON: {error}"
    return ""


def _quote_bare_key(match: re.Match[str]) -> str:
    return f'"{match[1]}"' if match[1] else match[0]

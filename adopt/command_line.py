"""`mqadopt DIR`: looks at the store of another broker, and takes it over when told how.

The operator's program: one thread, while no broker runs on the directory. Without --to or
--in-place nothing is written. Exit 0: looked, and it can be adopted, or adopted and all counts are
equal; 1: it cannot, or was refused, with lines that say why and the way out; 2: a command line that
is wrong; 3: done, but counts differ. A DLedger store is handed to store.dledger_import.

Tested by tests/adopt/test_command_line.py.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from adopt.adoption import Adoption, Comparison, name_aside, now_ms
from adopt.copied_files import check_one_disk
from adopt.plan import Plan, as_json, facts_lines, in_use, make_plan, plan_lines
from adopt.progress import Bar
from adopt.state import OURS, ROCKSDB, AdoptionState, load_state, new_state
from adopt.store_survey import MOVED, ConfigPlace, Kind, StoreFacts, survey_store
from adopt.way_back import WayBack, notes_back, problems_back
from conf.installation import enter_program
from store import dledger_import
from store.dledger.unfinished_import import ADOPTION_NAME, refuse_unfinished
from store.errors import StoreError
from store.store_lock import is_locked

DONE: Final = 0
REFUSED: Final = 1
DIFFERENT: Final = 3
_NOT_WRITABLE: Final = (errno.EROFS, errno.EACCES, errno.EPERM)
_OF_DLEDGER: Final = ("other", "majority_only", "again")


def run() -> int:
    """The console script `mqadopt` of an installed wheel."""
    enter_program("mqadopt", sys.argv[1:], os.environ)
    return main(sys.argv[1:])


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.quick and (options.in_place or options.to is not None):
        parser.error("--quick only looks: what --to and --in-place do needs the log")
    if options.json and (options.in_place or options.to is not None or options.to_rocksdb):
        parser.error("--json only looks: what was done is in adoption.json of the new store")
    try:
        with Bar(sys.stderr) as bar:
            return _run(options, bar)
    except StoreError as error:
        _say(str(error))
        return REFUSED
    except OSError as error:
        place = options.to or options.directory
        _say(f"{error.filename or place}: {error.strerror or error}")
        if error.errno == errno.ENOSPC:
            _say(f"{place}: free some; the same command goes on then")
        elif error.errno in _NOT_WRITABLE:
            _say(f"{place}: a place is needed that this user may write to")
        return REFUSED
    except KeyboardInterrupt:
        _say("interrupted; the same command goes on where it was")
        return REFUSED


def _run(options: argparse.Namespace, bar: Bar) -> int:
    root: Path = options.directory
    if options.to is not None:
        _check_place(root, options.to)
    target: Path | None = root if options.in_place else options.to
    state = load_state(target) if target is not None else None
    if options.in_place and state is not None:
        _check_goes_on(options, state)
        return _finish(_work(state.direction)(root, root, bar).run(None), root, state.direction)
    refuse_unfinished(root)
    if state is not None:
        _check_goes_on(options, state)
    if target is not None and is_locked(root):  # before a long log is read
        raise StoreError(in_use(root))
    place = ConfigPlace(state.config) if state is not None else options.config
    facts = survey_store(root, config=place, walk=not options.quick, progress=bar)
    if facts.kind is not Kind.DLEDGER:
        _refuse_dledger_options(options, facts)
    if options.to_rocksdb:
        return _go_back(facts, target, bar)
    names = (options.broker_name or "", options.cluster or "")
    plan = make_plan(facts, *names, skip_damaged=options.skip_damaged)
    is_dledger = facts.kind is Kind.DLEDGER
    if plan.problems or (target is None and (options.json or options.quick or not is_dledger)):
        _show(facts, plan, as_json_text=options.json)
        return REFUSED if plan.problems else DONE
    if is_dledger:
        _show(facts, plan, as_json_text=False)
        return _import_dledger(options)
    assert target is not None, "shown only, without one"
    return _adopt(facts, plan, target, names, bar)


def _refuse_dledger_options(options: argparse.Namespace, facts: StoreFacts) -> None:
    """Raises StoreError: they would be passed over without a word."""
    given = [f"--{name.replace('_', '-')}" for name in _OF_DLEDGER if getattr(options, name)]
    if given:
        raise StoreError(
            f"{' and '.join(given)}: of DLedger stores alone ({facts.root}: {facts.kind}): "
            "leave it out, or name a node of the DLedger group"
        )


def _check_place(root: Path, target: Path) -> None:
    """Raises StoreError: --to is no place for a copy."""
    if root.resolve() == target.resolve():
        raise StoreError(f"{target}: the store itself; name a directory beside it, or --in-place")
    there = next(each for each in (target, *target.absolute().parents) if each.exists())
    if not there.is_dir():
        raise StoreError(f"{target}: {there} is not a directory; name one that does not exist")


def _check_goes_on(options: argparse.Namespace, state: AdoptionState) -> None:
    """What was begun is finished, and nothing else; names that are not said again stay. Raises
    StoreError."""
    said = {
        "--in-place": (options.in_place, state.in_place),
        "--to-rocksdb": (options.to_rocksdb, state.direction == ROCKSDB),
        "--config": (options.config or state.config, state.config),
        "--broker-name": (options.broker_name or state.broker_name, state.broker_name),
        "--cluster": (options.cluster or state.cluster, state.cluster),
    }
    wrong = [f"{name} (begun: {begun})" for name, (now, begun) in said.items() if now != begun]
    if wrong:
        raise StoreError(
            f"{ADOPTION_NAME}: begun with other options: {', '.join(wrong)}; say them as before, "
            "or begin again with another --to"
        )


def _adopt(facts: StoreFacts, plan: Plan, target: Path, names: tuple[str, str], bar: Bar) -> int:
    in_place = target == facts.root
    for line in (*facts_lines(facts), *plan_lines(plan)):
        _say(line)
    if in_place and not plan.is_needed:
        return DONE
    return _do(facts, target, OURS, names, bar)


def _go_back(facts: StoreFacts, target: Path | None, bar: Bar) -> int:
    problems = list(problems_back(facts))
    for line in (*facts_lines(facts), *(f"  note: {text}" for text in notes_back(facts))):
        _say(line)
    for text in problems:
        _say(f"cannot go back to RocksDB: {text}")
    if problems:
        return REFUSED
    if target is None:
        _say("it can go back to RocksDB: say --to DIRECTORY, or --in-place")
        return DONE
    return _do(facts, target, ROCKSDB, ("", ""), bar)


def _do(facts: StoreFacts, target: Path, direction: str, names: tuple[str, str], bar: Bar) -> int:
    work = _work(direction)(facts.root, target, bar)
    work.check_target()
    if work.in_place:
        check_one_disk(target, MOVED)
    begun = new_state(
        facts,
        direction,
        in_place=work.in_place,
        names=names,
        aside=name_aside(target),
        now_ms=now_ms(),
    )
    return _finish(work.run(begun), target, direction)


def _work(direction: str) -> type[Adoption] | type[WayBack]:
    return WayBack if direction == ROCKSDB else Adoption


def _finish(found: Comparison, target: Path, direction: str) -> int:
    before, now = found.tables
    _say(f"messages: {found.messages[0]} before, {found.messages[1]} now")
    _say(f"queues with messages: {found.queues[0]} before, {found.queues[1]} now")
    for name, count in before.items():
        _say(f"{name}: {count} before, {now[name]} now")
    if found.pops:
        _say(f"popped messages: {found.pops} before, in {found.check_points} check points now")
    for line in found.differences:
        _say(f"DIFFERENT: {line}")
    if found.differences:
        _say(f"{target}: not finished: counts differ, no broker starts on it")
        return DIFFERENT
    broker = "bin/mqbroker" if direction == OURS else "the Java broker, storeType=defaultRocksDB,"
    root = target.absolute()
    _say(f"{target}: done; start {broker} with storePathRootDir={root}, no storePathCommitLog")
    return DONE


def _import_dledger(options: argparse.Namespace) -> int:
    if options.in_place:
        raise StoreError(
            f"{options.directory}: a DLedger log cannot become ours in place: every offset in it "
            "is another; say --to a new directory"
        )
    words = [str(options.directory), "--dry-run" if options.to is None else str(options.to)]
    words += ["--members", str(options.members)]
    for other in options.other:
        words += ["--other", str(other)]
    for name in ("majority_only", "skip_damaged", "again"):
        if getattr(options, name):
            words.append("--" + name.replace("_", "-"))
    return dledger_import.main(words)


def _show(facts: StoreFacts, plan: Plan, *, as_json_text: bool) -> None:
    if as_json_text:
        sys.stdout.write(json.dumps(as_json(facts, plan), indent=2) + "\n")
        return
    for line in (*facts_lines(facts), *plan_lines(plan)):
        _say(line)


def _say(line: str) -> None:
    """One line: names come from files."""
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)
    sys.stdout.write(f"{shown}\n")
    sys.stdout.flush()


def _members(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:4]) <= 1000):
        raise argparse.ArgumentTypeError(f"{text!a:.40}: expected 1 to 1000")
    return int(text)


def _path(text: str) -> Path:
    """Path("") is the current directory, which an unset variable of a shell does not mean."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty: is a variable of the shell unset?")
    return Path(text)


def _config(text: str) -> ConfigPlace:
    if text not in list(ConfigPlace):
        raise argparse.ArgumentTypeError(f"{text!a:.40}: one of {', '.join(ConfigPlace)}")
    return ConfigPlace(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mqadopt",
        description="Looks at the store directory of another RocketMQ broker (file store, RocksDB, "
        "DLedger), says what it is and what will happen; with --to or --in-place, does it. Brokers "
        "are stopped.",
        epilog="docs/migrating.md has the whole way, from each kind of store, and back.",
    )
    parser.add_argument("directory", type=_path, help="storePathRootDir of the stopped broker")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--to", type=_path, help="make a copy there; the directory stays as it is")
    way.add_argument(
        "--in-place", action="store_true", help="change the directory; what is replaced is moved"
    )
    parser.add_argument(
        "--to-rocksdb",
        action="store_true",
        help="the way back: a store of ours for a Java broker with storeType=defaultRocksDB",
    )
    parser.add_argument("--json", action="store_true", help="what was found, for programs")
    parser.add_argument("--quick", action="store_true", help="look without reading the log")
    parser.add_argument(
        "--config",
        type=_config,
        choices=list(ConfigPlace),
        help="which topics, groups and offsets count, where they are there more than once",
    )
    parser.add_argument("--broker-name", help="brokerName, for check points of popped messages")
    parser.add_argument("--cluster", help="brokerClusterName, for the same")
    parser.add_argument(
        "--skip-damaged", action="store_true", help="leave out entries that cannot be read"
    )
    group = parser.add_argument_group("of a DLedger group")
    group.add_argument(
        "--other", type=_path, action="append", default=[], help="root of another node; once each"
    )
    group.add_argument("--members", type=_members, default=3, help="nodes of the group (3)")
    group.add_argument("--majority-only", action="store_true", help="only what a majority has")
    group.add_argument("--again", action="store_true", help="begin an unfinished import anew")
    return parser

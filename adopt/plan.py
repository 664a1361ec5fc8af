"""Plan: what will happen to a store, in plain words, and why it cannot.

Pure: from StoreFacts. `problems` stop an adoption, each with its way out; `steps` are what is done,
`notes` what the operator should know. The words are the interface: docs/migrating.md follows them.

Tested by tests/adopt/test_store_survey.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from adopt.log_survey import HALF_TOPICS
from adopt.store_survey import (
    POP_DATABASE,
    SHARED_DATABASE,
    ConfigPlace,
    Kind,
    StoreFacts,
    open_halves,
)

_NAMED: Final = 5
_ROLLBACK: Final = {
    "timer": "switch the timers back on the running broker (mqadmin switchTimerEngine, engine F), "
    "stop it, and come back",
    "trans": "start the Java broker with transRocksDBEnable=false until no transaction is open, "
    "stop it, and come back",
}


@dataclass(slots=True)
class Plan:
    """See the module."""

    problems: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    in_place: bool = True
    """Whether it can be done there."""

    @property
    def is_needed(self) -> bool:
        """Whether a broker of ours cannot open the directory as it is."""
        return bool(self.steps)


def make_plan(facts: StoreFacts, broker_name: str, cluster: str, *, skip_damaged: bool) -> Plan:
    """broker_name, cluster: empty where they are not known; pops need them."""
    plan = Plan()
    if facts.locked:
        plan.problems.append(in_use(facts.root))
    if facts.kind is Kind.DLEDGER:
        plan.in_place = False
        plan.steps.append(
            "the entries of DLedger are rewritten as a log of ours, with other places in it; "
            "queue offsets and consumer offsets stay as they are"
        )
        return plan
    plan.problems += _config_problems(facts)
    plan.problems += _other_problems(facts, skip_damaged=skip_damaged)
    if facts.pops and not (broker_name and cluster):
        plan.problems.append(
            f"{len(facts.pops)} popped messages become check points, which name the broker: say "
            "--broker-name and --cluster, as in its settings (brokerName, brokerClusterName)"
        )
    plan.steps += _steps(facts)
    plan.notes += _notes(facts)
    return plan


def in_use(root: Path) -> str:
    """Of a store whose broker runs."""
    return (
        f"{root}: a broker has it open; stop it (mqshutdown broker, Java's own for a Java "
        "broker) and wait until its process has ended, or name a copy"
    )


def _config_problems(facts: StoreFacts) -> Iterator[str]:
    if facts.tables is None:
        places = ", ".join(facts.config_places)
        yield (
            f"{facts.root / 'config'}: topics, groups and offsets are there more than once "
            f"({places}), and only the last is right: say --config "
            f"{'|'.join(facts.config_places)}, by the settings that the broker ran with last "
            "(configManagerVersion=v2: v2; storeType=defaultRocksDB: v1; else json)"
        )


def _other_problems(facts: StoreFacts, *, skip_damaged: bool) -> Iterator[str]:
    for path in facts.unknown_databases:
        yield f"{path}: a RocksDB database that this version does not know; nothing is done to it"
    for name, count in facts.in_shared.items():
        if count:
            yield f"{facts.root / SHARED_DATABASE}: {count} {name} entries: {_ROLLBACK[name]}"
    for topic, count in open_halves(facts).items():
        if topic == HALF_TOPICS[1]:
            way_out = _ROLLBACK["trans"]
            yield f"{count} open transactions in {topic}, which we never check: {way_out}"
    if facts.pops and facts.log is not None and facts.log.behind and not facts.killed:
        yield f"{facts.log.behind}: check points cannot be added: run `python -m store.check` on it"
    damaged = _damaged(facts)
    if damaged and not skip_damaged:
        yield (
            f"{len(damaged)} entries of RocksDB are damaged: {'; '.join(damaged[:_NAMED])}; "
            "--skip-damaged leaves them out"
        )


def _damaged(facts: StoreFacts) -> list[str]:
    return [
        *(facts.tables.damaged if facts.tables is not None else []),
        *facts.damaged_pops,
        *(facts.queues.damaged if facts.queues is not None else []),
    ]


def _steps(facts: StoreFacts) -> Iterator[str]:
    if facts.config in (ConfigPlace.V1, ConfigPlace.V2) and facts.tables is not None:
        counts = ", ".join(f"{count} {name}" for name, count in facts.tables.counts().items())
        yield f"RocksDB's tables ({facts.config}) are written as config/*.json: {counts}"
    if facts.pops:
        yield (
            f"{len(facts.pops)} popped messages of {POP_DATABASE} become check points at the end "
            "of the log: who holds them may still acknowledge, and none is lost"
        )
    if facts.queue_database is not None:
        name = facts.queue_database.name
        if facts.kind is Kind.DOUBLE:
            yield f"the consume queues' copy in RocksDB ({name}) is set aside; the files count"
        else:
            yield (
                f"the consume queues' database ({name}) is set aside: the broker's first start "
                "builds the queues from the log, at the same queue offsets"
            )


def _notes(facts: StoreFacts) -> Iterator[str]:
    if facts.killed and not facts.locked:
        yield "the broker was not stopped in an orderly way: the first start recovers the log"
    if facts.log is not None and facts.log.behind:
        yield f"{facts.log.behind}: what lies behind is not counted; the first start looks after it"
    if facts.queues is not None and facts.queues.lost:
        yield (
            f"RocksDB names {facts.queues.lost} messages behind the end of the log: they were lost "
            "before; their queue offsets are not given again"
        )
    if facts.tables is not None and facts.tables.pull_offsets:
        yield f"{facts.tables.pull_offsets} pull offsets are left out: brokers find them again"
    for path in facts.auth_databases:
        yield f"{path}: users and ACLs stay there: copyUser and copyAcl of mqadmin transfer them"
    if facts.epochs:
        yield (
            f"of controller mode, {len(facts.epochs)} epochs, the last from "
            f"{facts.epochs[-1].partition('-')[2]} on: docs/failover.md says how such a group moves"
        )
    if facts.features.get("light queues"):
        yield "it has light queues: set enableLmq=true and enableMultiDispatch=true, as before"


# -- for people, and for programs --------------------------------------------------------------


def facts_lines(facts: StoreFacts) -> Iterator[str]:
    """What it is."""
    yield f"{facts.root}: {facts.kind}, written by {facts.written_by}"
    if facts.config is not None:
        yield f"  topics, groups, offsets: {facts.config}"
    if facts.log is not None:
        log = facts.log
        yield (
            f"  {log.records} messages in {len(log.queues)} queues, the log from {log.min_offset} "
            f"to {log.end_offset} in {log.files} files of {log.file_size}"
        )
    for name, count in facts.features.items():
        yield f"  {name}: {count}"


def plan_lines(plan: Plan) -> Iterator[str]:
    """What will happen."""
    yield from (f"  note: {text}" for text in plan.notes)
    if plan.problems:
        yield from (f"cannot be adopted: {text}" for text in plan.problems)
    elif plan.is_needed:
        yield f"what --to DIRECTORY{' or --in-place' if plan.in_place else ''} will do:"
        yield from (f"  {text}" for text in plan.steps)
    else:
        yield "a broker of ours opens it as it is: start bin/mqbroker with the same settings"


def as_json(facts: StoreFacts, plan: Plan) -> dict[str, Any]:
    """The same for programs (--json)."""
    log, queues = facts.log, facts.queues
    return {
        "root": str(facts.root),
        "kind": facts.kind.name.lower(),
        "writtenBy": facts.written_by,
        "config": facts.config,
        "configPlaces": facts.config_places,
        "locked": facts.locked,
        "killed": facts.killed,
        "ours": facts.is_ours,
        "epochs": facts.epochs,
        "features": facts.features,
        "tables": facts.tables.counts() if facts.tables is not None else None,
        "log": None
        if log is None
        else {
            "minOffset": log.min_offset,
            "endOffset": log.end_offset,
            "fileSize": log.file_size,
            "messages": log.records,
            "queues": len(log.queues),
            "behind": log.behind,
        },
        "rocksdbQueues": None
        if queues is None
        else {"checkpoint": queues.checkpoint, "units": sum(queues.units.values())},
        "needed": plan.is_needed,
        "problems": plan.problems,
        "steps": plan.steps,
        "notes": plan.notes,
    }

"""Scrub and repair: what of each log is damaged, repaired, or differs; and verifying it now.

From the metrics of our brokers, and for the chosen ones from 28910, which only says what the broker
knows. Verifying has all members of a group read their logs again and compare them: a job with
progress that can be stopped, the same function as `mqadmin verifyReplica`.

Tested by tests/console/test_traffic_views.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from console import metric_names as names
from console.cells import whole
from console.errors import ConsoleError
from console.health import group_url
from console.jobs import Job
from console.kept_answers import Answer
from console.page import Action, Done, Field, Page, Query, Reader, View
from console.proof_questions import VERIFICATION
from console.replies import ask_all, without_metrics
from console.snapshot import BrokerSeen
from console.tables import Table, TableCell, link, moment
from remoting.body.log_verification import LogVerification
from tools.admin_client import BrokerAddress
from tools.commands.ha_status import size_text
from tools.commands.verify_replica import Verified, verified_text, verify
from tools.errors import AdminError
from tools.report import columns

MAX_AGE_MS: Final = 10_000
MOST_ASKED: Final = 6
DEFAULT_RATE: Final = 256 << 20
LOGS: Final = columns(
    "Broker broker | Damaged now fencedRanges > | In bytes fencedBytes > | "
    "Found damaged damagedRanges > | Repaired repairedRanges > | Changed chunks changedChunks > | "
    "Differing chunks differingChunks > | Put aside putAside > | Last pass ended passEnded"
)
PASSES: Final = columns(
    "Broker broker | Log from begin > | To end > | Pass pass > | Read read > | "
    "Unread repairs unreadRepairs > | Compared in(s) comparisonSeconds > | Error error"
)
COMPARED: Final = columns(
    "Broker broker | With with | Compared comparedBytes > | Equal equal > | "
    "Different different > | "
    "Damaged damaged > | Repaired repaired > | Missing missing > | Error error"
)
_METRICS: Final = (
    names.FENCED_RANGES,
    names.FENCED_BYTES,
    names.DAMAGED_RANGES,
    names.REPAIRED_RANGES,
    names.CHANGED_CHUNKS,
    names.DIFFERING_CHUNKS,
    names.PUT_ASIDE,
)


def damage(reader: Reader, query: Query) -> Page:
    """Every broker's log by its metrics; one group's passes and comparisons if it is chosen."""
    brokers = reader.snapshot.registered()
    name = query.text("broker")
    chosen = [broker for broker in brokers if broker.place.broker_name == name] if name else brokers
    asked = chosen[:MOST_ASKED]
    sentences = without_metrics(asked, "what of its log is damaged")
    if len(chosen) > len(asked):
        sentences.append(
            f"Passes are shown of the first {len(asked)} of {len(chosen)} brokers; choose one."
        )
    told = _verifications(reader, asked, sentences)
    return Page(
        context={
            "sentences": sentences,
            "names": sorted({broker.place.broker_name for broker in brokers}),
            "chosen": name,
            "may_change": reader.may_change,
        },
        tables=[
            Table("logs", "Logs", LOGS, [_log(b) for b in chosen], empty_text="No broker."),
            Table(
                "passes",
                "Scrub passes",
                PASSES,
                [_pass(broker, one) for broker, one in told],
                empty_text="No broker tells of them.",
            ),
            Table(
                "compared",
                "Compared with the group's other brokers",
                COMPARED,
                [row for broker, one in told for row in _compared(broker, one)],
                empty_text="No broker has compared its log since it was started.",
            ),
        ],
    )


def _verifications(
    reader: Reader, brokers: list[BrokerSeen], sentences: list[str]
) -> list[tuple[BrokerSeen, LogVerification]]:
    ours = [broker for broker in brokers if broker.is_ours is not False]
    asked = [(broker.place.address, VERIFICATION) for broker in ours]
    answers: list[Answer[LogVerification]] = ask_all(reader, asked, MAX_AGE_MS)
    found = []
    for broker, answer in zip(ours, answers, strict=True):
        if answer.error is not None:
            sentences.append(f"{broker.title} does not tell of its scrub: {answer.error}")
        if answer.value is not None:
            found.append((broker, answer.value))
    return found


def _log(broker: BrokerSeen) -> list[object]:
    place, metrics = broker.place, broker.metrics.value
    title = link(broker.title, group_url(place.cluster, place.broker_name))
    if metrics is None:
        return [title, *[None] * (len(LOGS) - 1)]
    values = [metrics.total(name) for name in _METRICS]
    shown: list[object] = [whole(value) for value in values]
    size = whole(values[1])
    shown[1] = None if size is None else TableCell(size_text(size), size)
    ended_s = metrics.total(names.SCRUB_PASS_END)
    return [title, *shown, moment(whole(ended_s * 1000)) if ended_s else None]


def _pass(broker: BrokerSeen, told: LogVerification) -> list[object]:
    size = max(told.closed_end - told.begin_offset, 0)
    running = told.pass_number > told.passes_ended
    read = min(max(told.position - told.begin_offset, 0), size) if running else size
    share = f" of {size_text(size)}" + (", running" if running else "")
    return [
        broker.title,
        told.begin_offset,
        told.closed_end,
        told.pass_number,
        TableCell(size_text(read) + share, read),
        told.unread_repairs,
        round(told.comparison_seconds, 3),
        told.comparison_error,
    ]


def _compared(broker: BrokerSeen, told: LogVerification) -> list[list[object]]:
    return [
        [
            broker.title,
            f"{row.broker_id} {row.broker_addr}",
            TableCell(size_text(row.compared_bytes), row.compared_bytes),
            row.equal_chunks,
            row.different_chunks,
            row.damaged_chunks,
            row.repaired_chunks,
            row.missing_chunks,
            row.error,
        ]
        for row in told.replicas
    ]


# -- verifying ---------------------------------------------------------------------------------


def _group(reader: Reader, query: Query) -> list[BrokerAddress]:
    name = query.needed("broker")
    cluster = query.text("cluster")
    found = [
        broker.place
        for broker in reader.snapshot.registered()
        if broker.place.broker_name == name and cluster in ("", broker.place.cluster)
    ]
    if not found:
        raise ConsoleError(f"no broker is called {name}", 404)
    if len({place.cluster for place in found}) > 1:
        raise ConsoleError(f"several clusters have a broker {name}: name the cluster")
    return found


def _rate(query: Query) -> int:
    return query.number("bytesPerSecond", DEFAULT_RATE, 1 << 20, 1 << 40)


def plan_verify(reader: Reader, query: Query) -> Sequence[str]:
    """Who reads how fast, and what may be changed."""
    places = _group(reader, query)
    whose = ", ".join(f"{place.broker_name}:{place.broker_id}" for place in places)
    said = [
        f"{whose}: each reads the closed files of its log again, {size_text(_rate(query))} a "
        "second at most, then compares them with the others'.",
        "What can be decided is repaired: damaged bytes are replaced by those of a broker whose "
        "copy is whole.",
        "A job shows how far it is, and can be stopped; brokers finish the pass that they began.",
    ]
    if len(places) == 1:
        said.append("There is no other broker of the group to compare with.")
    return said


def run_verify(reader: Reader, query: Query) -> Done:
    """Starts the job."""
    places, rate, client = _group(reader, query), _rate(query), reader.client()

    def work(job: Job) -> None:
        last = [""]

        def told(what: str, verified: list[Verified]) -> None:
            job.done, job.total = _progress(verified)
            if what != last[0]:
                last[0] = what
                job.say(f"Waiting until {what}.")

        try:
            verified = verify(client, places, rate, job.stop.wait, told)
        except AdminError as error:
            if not job.stop.is_set():
                raise
            job.say(f"{error}; the brokers finish what they began.")
            return
        for one in verified:
            job.say(verified_text(one))
            for problem in one.problems():
                job.say(f"{one.title}: {problem}")
        job.done, job.total = 1, 1

    job = reader.jobs.start(f"Verify {places[0].broker_name}", reader.account_key, work)
    return Done([f"{len(places)} brokers read and compare their logs."], f"/jobs/{job.id}")


def _progress(verified: list[Verified]) -> tuple[int, int]:
    """Bytes that are read, of those that all brokers together read."""
    done = total = 0
    for one in verified:
        if one.now is None or one.error is not None:
            continue
        size = max(one.now.closed_end - one.now.begin_offset, 0)
        running = one.now.pass_number > one.now.passes_ended
        read = one.now.position - one.now.begin_offset if running else size
        done += min(max(read, 0), size)
        total += size
    return done, total


VIEWS: Final = [View("/scrub", "Scrub and repair", "Replication", "damage.html.j2", damage)]
ACTIONS: Final = [
    Action(
        name="verifyReplica",
        title="Verify a group's logs",
        fields=[
            Field("broker", "Broker name"),
            Field("cluster", "Cluster", needed=False),
            Field(
                "bytesPerSecond",
                "Bytes a second and broker",
                "number",
                default=str(DEFAULT_RATE),
                needed=False,
            ),
        ],
        plan=plan_verify,
        run=run_verify,
    )
]

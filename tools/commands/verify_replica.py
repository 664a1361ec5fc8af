"""verifyReplica: have brokers read their commit logs again and compare them with their group's.

An extension: RocketMQ has no such command. All brokers of the groups read first, each from its own
disk, then each compares with the others, and repairs what can be decided.

Tested by tests/tools/test_mqadmin_every_command.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import click

from remoting.body.log_verification import LogVerification, ReplicaComparison
from remoting.errors import RemotingError
from remoting.headers.log_digests import VerifyLogRequestHeader
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import AdminClient, BrokerAddress
from tools.command_line import CommandContext, command, print_error
from tools.commands.ha_status import size_text
from tools.errors import AdminError, BrokerAnswerError
from tools.options import POSITIVE
from tools.report import Report, columns, safe_line, table
from tools.targets import Address

COLUMNS: Final = columns(
    "#Replica replica | #Begin begin > | #End end > | #Compared compared > | #Equal equal > | "
    "#Different different > | #Damaged damaged > | #Repaired repaired > | #Missing missing >"
)
_NAME: Final = "verifyReplica"
_POLL_S: Final = 0.2
_ROUNDS: Final = 3
"""What a broker repairs differs for the others until they compare again."""


@dataclass(slots=True)
class Verified:
    """One broker: what it said before, and says now."""

    broker: BrokerAddress
    before: LogVerification | None = None
    now: LogVerification | None = None
    error: str | None = None
    repaired: dict[str, int] = field(default_factory=dict)
    """Chunks of it that were repaired from the broker at an address."""

    @property
    def title(self) -> str:
        """How the broker is called in the output."""
        return f"{self.broker.broker_name}:{self.broker.broker_id} {self.broker.address}"

    def count_repaired(self) -> None:
        """After each round."""
        for row in self.now.replicas if self.now is not None and self.error is None else ():
            known = self.repaired.get(row.broker_addr, 0)
            self.repaired[row.broker_addr] = known + row.repaired_chunks

    def problems(self) -> list[str]:
        """What is not as it should be, at the end."""
        found, now = [], self.now
        if self.error is not None or now is None:
            return [self.error or "it did not answer"]
        if now.fenced_ranges:
            found.append(f"{now.fenced_ranges} damaged ranges cannot be read")
        if now.changed_chunks:
            found.append(f"{now.changed_chunks} chunks have changed since they were read first")
        if now.comparison_error:
            found.append(now.comparison_error)
        for row in now.replicas:
            if row.error:
                found.append(row.error)
            if row.different_chunks:
                found.append(f"{row.different_chunks} chunks differ from {row.broker_addr}")
            if row.damaged_chunks:
                found.append(
                    f"{row.damaged_chunks} chunks are damaged here or at {row.broker_addr}"
                )
        return found


Told = Callable[[str, list[Verified]], None]
"""Called with what is being done, and how far each broker is."""


@command(_NAME)
def verify_replica(
    admin: AdminClient,
    address: Address,
    cluster: Annotated[
        str | None, "-c --clusterName", "Brokers of this cluster [default: of all]."
    ],
    rate: Annotated[
        int | None,
        "-r --bytesPerSecond BYTES",
        "Each broker reads at most so much a second [default: 268435456].",
        POSITIVE,
    ],
) -> Iterator[Report]:
    """With -b the broker's whole group is read, and what that broker finds is shown."""
    if address is not None and cluster is not None:
        raise click.UsageError("-b ADDRESS and -c CLUSTER exclude each other")
    group, shown = _targets(admin, address, cluster)
    verified = verify(admin, group, rate, _waiting())
    compared = [one for one in verified if one.broker in shown]
    for one in compared:
        yield Report(verified_text(one), _data(one))
    failed = [one for one in compared if one.problems()]
    for one in failed:
        for problem in one.problems():
            print_error(_NAME, f"broker {one.title}: {problem}")
    if failed:
        raise AdminError(f"{len(failed)} of {len(compared)} brokers have problems")


def verify(
    admin: AdminClient,
    group: Sequence[BrokerAddress],
    rate: int | None,
    wait: Callable[[float], bool],
    told: Told = lambda _what, _verified: None,
) -> list[Verified]:
    """All of it. `wait(seconds)` says whether to stop; `told` is called while brokers work. Raises
    AdminError when it was stopped; a broker that fails is left out, and says why."""
    verified = [Verified(broker) for broker in group]
    for one in verified:
        _try(one, functools.partial(_begin, admin, one, rate))
    _finish(admin, verified, (wait, told), "the log is read", _is_read)
    for _ in range(_ROUNDS):
        for one in verified:
            _try(one, functools.partial(_ask, admin, one, "compare"))
        _finish(admin, verified, (wait, told), "the logs are compared", _is_compared)
        for one in verified:
            one.count_repaired()
        if not any(one.problems() for one in verified):
            break
    return verified


# -- whom to ask -------------------------------------------------------------------------------


def _targets(
    admin: AdminClient, address: str | None, cluster: str | None
) -> tuple[list[BrokerAddress], list[BrokerAddress]]:
    """Who reads, and whose findings are shown."""
    brokers = admin.brokers(cluster)
    if address is None:
        return brokers, brokers
    own = next((broker for broker in brokers if broker.address == address), None)
    if own is None:
        raise AdminError(f"the name server does not know a broker at {address}; see clusterList")
    key = own.cluster, own.broker_name
    return [each for each in brokers if (each.cluster, each.broker_name) == key], [own]


def _waiting() -> Callable[[float], bool]:
    context = click.get_current_context().find_object(CommandContext) or CommandContext()
    return context.wait


# -- asking ------------------------------------------------------------------------------------


def _ask(admin: AdminClient, one: Verified, action: str, rate: int | None = None) -> None:
    header = VerifyLogRequestHeader(action=action, bytes_per_second=rate)
    try:
        response = admin.call(one.broker.address, RequestCode.VERIFY_LOG, header)
    except BrokerAnswerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        raise AdminError("it keeps no digests of its log: not a broker of this project") from error
    one.now = LogVerification.from_json_bytes(response.body)


def _begin(admin: AdminClient, one: Verified, rate: int | None) -> None:
    _ask(admin, one, "status")
    one.before = one.now
    _ask(admin, one, "scrub", rate)


def _try(one: Verified, action: Callable[[], None]) -> None:
    """A broker that does not answer is left out, and said to be."""
    if one.error is not None:
        return
    try:
        action()
    except (RemotingError, AdminError) as error:
        one.error = str(error)


def _finish(
    admin: AdminClient,
    verified: list[Verified],
    ways: tuple[Callable[[float], bool], Told],
    what: str,
    is_done: Callable[[Verified], bool],
) -> None:
    """Ask until all are done."""
    wait, told = ways
    while waiting := [one for one in verified if one.error is None and not is_done(one)]:
        told(what, verified)
        if wait(_POLL_S):
            raise AdminError(f"interrupted while {what}")
        for one in waiting:
            number = one.now.pass_number if one.now is not None else 0
            _try(one, functools.partial(_ask, admin, one, "status"))
            if one.now is not None and one.now.pass_number < number:
                one.error = f"its process store was restarted while {what}; try again"


def _is_read(one: Verified) -> bool:
    now = one.now
    return now is not None and now.passes_ended >= now.pass_number and not now.unread_repairs


def _is_compared(one: Verified) -> bool:
    return one.now is not None and one.now.comparisons_ended >= one.now.comparison_number


# -- showing -----------------------------------------------------------------------------------


def _found(one: Verified) -> tuple[int, int]:
    """(damaged ranges that were found, ranges that were repaired) since the command began."""
    if one.now is None or one.before is None:
        return 0, 0
    damaged = one.now.damaged_ranges - one.before.damaged_ranges
    return damaged, one.now.repaired_ranges - one.before.repaired_ranges


def verified_text(one: Verified) -> str:
    """What is printed of one broker."""
    now = one.now
    if one.error is not None or now is None:
        return f"{one.title}: {safe_line(one.error or '')}"
    damaged, repaired = _found(one)
    head = (
        f"{one.title}: read {now.begin_offset} to {now.closed_end}, "
        f"{size_text(max(now.closed_end - now.begin_offset, 0))}: {damaged} damaged ranges found, "
        f"{repaired} repaired; compared in {now.comparison_seconds:.1f} s"
    )
    if not now.replicas:
        return f"{head}\nno other broker of the group to compare with"
    return f"{head}\n{table(COLUMNS, [_row(one, row) for row in now.replicas]).text}"


def _row(one: Verified, row: ReplicaComparison) -> list[object]:
    return [
        f"{row.broker_id} {row.broker_addr}",
        row.begin_offset,
        row.end_offset,
        size_text(row.compared_bytes),
        row.equal_chunks,
        row.different_chunks,
        row.damaged_chunks,
        one.repaired.get(row.broker_addr, 0),
        row.missing_chunks,
    ]


def _data(one: Verified) -> dict[str, Any]:
    data: dict[str, Any] = {
        "brokerName": one.broker.broker_name,
        "brokerId": one.broker.broker_id,
        "brokerAddr": one.broker.address,
        "problems": one.problems(),
    }
    now = one.now
    if now is None:
        return data
    damaged, repaired = _found(one)
    return data | {
        "begin": now.begin_offset,
        "end": now.closed_end,
        "damagedRanges": damaged,
        "repairedRanges": repaired,
        "fencedRanges": now.fenced_ranges,
        "changedChunks": now.changed_chunks,
        "seconds": now.comparison_seconds,
        "replicas": [
            {
                "brokerId": row.broker_id,
                "brokerAddr": row.broker_addr,
                "begin": row.begin_offset,
                "end": row.end_offset,
                "comparedBytes": row.compared_bytes,
                "equal": row.equal_chunks,
                "different": row.different_chunks,
                "damaged": row.damaged_chunks,
                "repaired": one.repaired.get(row.broker_addr, 0),
                "missing": row.missing_chunks,
                "firstDifference": row.first_difference,
                "error": row.error,
            }
            for row in now.replicas
        ],
    }

"""What happens to a member of a group, and what it wants done, as values.

Any thread. Offsets are bytes of the commit log, times milliseconds of the own monotonic clock.

Tested by tests/simulation/test_pitfalls.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ha.epochs import CutStep, EpochList
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode


class GroupView(NamedTuple):
    """What a controller says of the group, in an answer or in 1008."""

    master_broker_id: int | None
    master_address: str | None
    """host:port of its service port."""
    master_epoch: int
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int


class LogEnds(NamedTuple):
    """The own log, at the moment of an event."""

    end: int
    """Of the last whole record."""
    counted_end: int
    """Up to where the own copy counts for SEND_OK: `end`, or what is flushed (SYNC_FLUSH)."""


# Events


class Tick(NamedTuple):
    """Some time has passed; at least once a second."""


class Moved(NamedTuple):
    """The own log has grown, or was flushed."""


class LeaderNamed(NamedTuple):
    """A controller has named the leader (1005), or that it knows none."""

    address: str | None


class Answered(NamedTuple):
    """The controller's answer to the `Ask` of this ticket."""

    ticket: int
    code: ResponseCode
    view: GroupView | None = None
    next_broker_id: int = 0


class RoleNotified(NamedTuple):
    """1008."""

    view: GroupView


class NameServersAnswered(NamedTuple):
    """Every name server that can be reached has taken the registration with this version."""

    state_version: int


class Fitness(NamedTuple):
    """Whether this broker could lead has changed."""

    lacking: str
    """Which of its processes has ended or stands still, for operators; empty: none."""


class ReplicaConnected(NamedTuple):
    """A slave's handshake; `connection` is a number never used again."""

    connection: int
    broker_id: int
    async_learner: bool = False


class ReplicaReported(NamedTuple):
    """What a slave has got (and flushed, if its reports mean that)."""

    connection: int
    ack_offset: int


class ReplicaGone(NamedTuple):
    """A slave's connection has ended."""

    connection: int


class MasterHello(NamedTuple):
    """The master's answer to the own handshake."""

    master_epoch: int
    """In which it leads; of a Java master, which does not say, the controller's word."""
    epochs: EpochList
    max_offset: int


class FrameTaken(NamedTuple):
    """A frame of the master's has been appended."""

    confirm_offset: int


Event = (
    Tick
    | Moved
    | LeaderNamed
    | Answered
    | RoleNotified
    | NameServersAnswered
    | Fitness
    | ReplicaConnected
    | ReplicaReported
    | ReplicaGone
    | MasterHello
    | FrameTaken
)

# What to write


class WriteTemporaryIdentity(NamedTuple):
    """brokerIdentity-temp, before 1013 is sent."""

    data: bytes


class WriteIdentity(NamedTuple):
    """brokerIdentity; then the temporary one goes."""

    data: bytes


class StopReplication(NamedTuple):
    """Nothing is put any more; the connections to slaves and to the master are closed."""


class CutHalfRecord(NamedTuple):
    """What lies behind the last whole record is zeroed, durably."""


class FlushLog(NamedTuple):
    """All of the log is flushed."""


class WriteEpochs(NamedTuple):
    """The file of epochs: temporary file, fsync, rename, fsync of the folder."""

    epochs: EpochList


class CutLog(NamedTuple):
    """One step of a cut."""

    step: CutStep
    cut_to: int
    epochs: EpochList


Step = (
    WriteTemporaryIdentity
    | WriteIdentity
    | StopReplication
    | CutHalfRecord
    | FlushLog
    | WriteEpochs
    | CutLog
)

# Roles


class Lead(NamedTuple):
    """Open the log for puts and the HA port for slaves; brokerId 0, SYNC_MASTER."""

    master_epoch: int


class Follow(NamedTuple):
    """Replicate from this master; brokerId is the own id, SLAVE."""

    master_broker_id: int
    master_address: str
    master_epoch: int


class Fenced(NamedTuple):
    """No master is known: nothing is put, nothing replicated."""


class Transfer(NamedTuple):
    """The log is the beginning of the master's: report its end, take frames."""


class HangUp(NamedTuple):
    """That master is not the one to follow, or the logs cannot be joined."""


Role = Lead | Follow | Fenced | Transfer | HangUp


class Cause(StrEnum):
    """What made this broker take a role, as far as it can know."""

    START = "start"
    """The first one since process `ha` was started."""
    NOTIFIED = "notified"
    """Somebody said that an epoch had begun (1008), and the leader confirmed it."""
    POLLED = "polled"
    """The question of every syncBrokerMetadataPeriod (1004) found another epoch."""
    ASKED = "asked"
    """No master was known, and this broker asked for one (1002, 1003)."""
    DESIGNATED = "designated"
    """It was still recorded as master of an older epoch, and asked for a new one (1002)."""
    HANDED_OVER = "handed over"
    """It led, and could not go on: it had another one elected (1002)."""
    CUT_REFUSED = "cut refused"
    """The store did not allow a cut: no role until the next start."""


class Taken(NamedTuple):
    """A role in the making: what there was when it was decided. Offsets in bytes."""

    cause: Cause
    old_epoch: int
    """0: none in this process."""
    old_master: int | None
    sync_state_set: frozenset[int]
    """As the controller told it with this epoch."""
    confirm_offset: int
    log_end: int
    """What lies between these two nobody had confirmed: it was at risk."""


NOTHING_TAKEN = Taken(Cause.START, 0, None, frozenset(), 0, 0)

# What to send


class SendHeartbeat(NamedTuple):
    """904 to every controller."""

    broker_id: int
    epoch: int
    max_offset: int
    confirm_offset: int


class Ask(NamedTuple):
    """A request to the controller's leader; `code` says which fields count."""

    ticket: int
    code: RequestCode
    broker_id: int = 0
    register_check_code: str = ""
    designate_elect: bool = False
    master_epoch: int = 0
    sync_state_set: frozenset[int] = frozenset()
    sync_state_set_epoch: int = 0
    beat: SendHeartbeat | None = None
    """Sent before it, over the same connection: who answers has heard it."""


def cause_of(ask: Ask, own_id: int | None) -> Cause:
    """Of a role that the answer to it brings."""
    if ask.designate_elect:
        return Cause.DESIGNATED if ask.broker_id == own_id else Cause.HANDED_OVER
    is_poll = ask.code == RequestCode.CONTROLLER_GET_REPLICA_INFO
    return Cause.POLLED if is_poll else Cause.ASKED


class FindLeader(NamedTuple):
    """1005 to every controller."""


class RegisterAtNameServers(NamedTuple):
    """103 with an answer, repeated until NameServersAnswered."""

    broker_id: int
    """0 on the master."""
    state_version: int
    """Of every table's DataVersion: the master epoch, the name server's fence between masters."""


Send = Ask | FindLeader | SendHeartbeat | RegisterAtNameServers


@dataclass(frozen=True, slots=True)
class Ready:
    """What to do now, in this order: the steps, each durable before the next; then the role; then
    what is sent. All of it before the next event is given."""

    steps: tuple[Step, ...] = ()
    role: Role | None = None
    sends: tuple[Send, ...] = ()

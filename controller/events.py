"""What happens to a controller, and what it wants done, as values.

Any thread. Times are milliseconds of the controller's own monotonic clock.

Tested by tests/controller/test_unreadable_groups.py, tests/simulation/test_pitfalls.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from controller.group_state import GroupState
from controller.live_brokers import Heartbeat
from controller.requests import Answer, Request

NO_CHANNEL: Final = 0
"""No connection has this number."""


class Tick(NamedTuple):
    """Some time has passed; at least once a second."""


class Asked(NamedTuple):
    """A request has come in; `ticket` says later whose answer an answer is."""

    ticket: int
    request: Request
    channel: int = NO_CHANNEL
    """The number of the connection that it came over."""


class ChannelClosed(NamedTuple):
    """A peer's connection has ended."""

    channel: int


class Stored(NamedTuple):
    """One group as the store has it; `version` rises with each write of it."""

    version: int
    group: GroupState | None


class LeadershipGranted(NamedTuple):
    """The store took this controller for the leader, on a request that left at `sent_ms`."""

    fence: int
    """The store refuses a write with it once another has become leader."""
    sent_ms: int
    groups: Mapping[str, Stored]
    """Everything there is, read after the grant."""
    unreadable: Mapping[str, str] = {}
    """Groups that the store holds and that cannot be read, and why: they are not served."""


class LeadershipRenewed(NamedTuple):
    """The store has prolonged it, on a request that left at `sent_ms`."""

    sent_ms: int


class LeadershipLost(NamedTuple):
    """The store does not take this controller for the leader any more, or it has resigned."""


class Followed(NamedTuple):
    """What a controller that does not lead has read: of these brokers it takes heartbeats, so that
    it knows who is alive when it has to lead. Groups that were read before stay."""

    groups: Mapping[str, Stored]


class Outcome(Enum):
    """How a swap ended."""

    DONE = "stored"
    CONFLICT = "not stored: the version is another one"
    FENCED = "not stored: another controller is leader"
    UNKNOWN = "no answer: stored, or not, or only later"


class SwapEnded(NamedTuple):
    """The store has answered a swap, or did not in time."""

    broker_name: str
    number: int
    """Of the swap."""
    outcome: Outcome
    version: int = 0
    """The new one, if DONE."""


class Loaded(NamedTuple):
    """The store's answer to a load: a read that sees every write which ended before it. Given once
    for each load; the caller repeats a read that fails."""

    broker_name: str
    stored: Stored


class Unreadable(NamedTuple):
    """The store's answer to a load: the group is there, and nobody can say what it is. It is not
    served until another load finds it readable."""

    broker_name: str
    reason: str


Event = (
    Tick
    | Asked
    | Heartbeat
    | ChannelClosed
    | LeadershipGranted
    | LeadershipRenewed
    | LeadershipLost
    | Followed
    | SwapEnded
    | Loaded
    | Unreadable
)


class Swap(NamedTuple):
    """Write `group` if the stored version is still `version`, and the leader that of `fence`."""

    broker_name: str
    number: int
    """One for each swap of this controller's life, so that a late answer is known as such."""
    version: int
    fence: int
    group: GroupState | None


class Reply(NamedTuple):
    """The answer to `Asked` of this ticket."""

    ticket: int
    answer: Answer


class Notice(NamedTuple):
    """1008 to a broker, one way."""

    address: str
    group: GroupState


@dataclass(frozen=True, slots=True)
class Ready:
    """What to do now, in this order: swaps, loads, then what is sent.

    What depends on a swap is not in the same `Ready`, but in that of its `SwapEnded`: the store is
    another machine. So all of one `Ready` may be done at once.
    """

    swaps: tuple[Swap, ...] = ()
    loads: tuple[str, ...] = ()
    sends: tuple[Reply | Notice, ...] = ()

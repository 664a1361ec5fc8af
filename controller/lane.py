"""What waits for a group of a controller, in order. No clock, no store, no decision.

Part of ControllerCore (core.py), on its thread. Tested by tests/controller/test_given_up.py and
tests/controller/test_unreadable_groups.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from controller.events import NO_CHANNEL, Notice, Ready, Reply, Stored, Swap
from controller.requests import Answer, Request
from controller.state_machine import Decision
from remoting.response_code import ResponseCode

NO_TICKET: Final = -1
"""Of the controller's own requests: nobody waits for an answer."""
_NOTHING: Final = Ready()
_GIVEN_UP: Final = Answer(
    ResponseCode.SYSTEM_BUSY,
    remark="not carried out: it waited for the controllers' store longer than its sender waits for "
    "an answer; ask again",
)
_PERHAPS_DONE: Final = Answer(
    ResponseCode.SYSTEM_BUSY,
    remark="carried out or not: the controllers' store has not said so in time; look before you "
    "ask again",
)


class Doing:
    """A `Ready` in the making."""

    def __init__(self) -> None:
        self.swaps: list[Swap] = []
        self.loads: list[str] = []
        self.sends: list[Reply | Notice] = []

    def reply(self, ticket: int, answer: Answer) -> None:
        if ticket != NO_TICKET:
            self.sends.append(Reply(ticket, answer))

    def ready(self) -> Ready:
        if not (self.swaps or self.loads or self.sends):
            return _NOTHING
        return Ready(tuple(self.swaps), tuple(self.loads), tuple(self.sends))


class Waiting(NamedTuple):
    """A request in the order of its group."""

    ticket: int
    request: Request
    channel: int = NO_CHANNEL
    until_ms: int | None = None
    """Until when somebody waits for its answer; None: it is the controller's own."""
    was_tried: bool = False
    """Whether a write of it has ended unknown."""

    @property
    def last_word(self) -> Answer:
        """The answer to whoever waits no longer."""
        return _PERHAPS_DONE if self.was_tried else _GIVEN_UP

    def is_given_up(self, now_ms: int) -> bool:
        """Whether its asker waits no longer."""
        return self.until_ms is not None and now_ms >= self.until_ms


@dataclass(slots=True)
class Lane:
    """The requests about one group: one swap at a time, what comes meanwhile waits."""

    stored: Stored
    waiting: deque[Waiting]
    swapped: Decision | None = None
    """What the swap under way would make; its request is the first that waits."""
    swap_number: int = 0
    barred: bool = False
    """A write whose end is unknown may yet come: first the group is written as it is, under a newer
    version, which that one does not expect. Only then is anything answered."""
    loading: bool = False
    unreadable: str = ""
    """Why nobody can say what the store holds of the group; it is loaded again at each scan."""
    elects: bool = False
    """Whether the controller's own request is among those that wait."""

    def drop(self, is_unwanted: Callable[[Waiting], bool]) -> list[Waiting]:
        """Take out what is not wanted any more, but for the request whose swap is under way: that
        may be stored already."""
        waiting = list(self.waiting)
        undecided = waiting[0 if self.swapped is None else 1 :]
        dropped = [one for one in undecided if is_unwanted(one)]
        if dropped:
            gone = {one.ticket for one in dropped}
            self.waiting = deque(one for one in waiting if one.ticket not in gone)
        return dropped

    def take_first(self) -> Waiting:
        """It has been decided, or is not wanted any more."""
        first = self.waiting.popleft()
        if first.ticket == NO_TICKET:
            self.elects = False
        return first

    def refuse_all(self, doing: Doing) -> None:
        """Nothing can be decided of a group that nobody can read."""
        answer = Answer(ResponseCode.SYSTEM_ERROR, remark=self.unreadable)
        while self.waiting:
            doing.reply(self.take_first().ticket, answer)


def drop_unwanted(
    lanes: Iterable[Lane], is_unwanted: Callable[[Waiting], bool], doing: Doing
) -> None:
    """What waits and is not wanted any more is not carried out later, when nobody expects it: an
    election above all. Its answer says so, if anybody still listens."""
    for lane in lanes:
        for one in lane.drop(is_unwanted):
            doing.reply(one.ticket, one.last_word)

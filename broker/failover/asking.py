"""Which requests to the controller are under way: one of each code, each with its time."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.failover.messages import Ask
from remoting.request_code import RequestCode

MAX_AT_ONCE: Final = 16
"""Requests between two ticks. An answer may be the reason for the next request, and a controller
that refuses everything at once would be asked thousands of times a second."""


class _UnderWay(NamedTuple):
    ask: Ask
    sent_ms: int


class Asking:
    """Owned by the member. Tickets are never used again, so that a late answer is known as such."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._under_way: dict[int, _UnderWay] = {}
        self._last_ticket = 0
        self._since_tick = 0

    def next_ticket(self) -> int:
        """For one more request."""
        self._last_ticket += 1
        return self._last_ticket

    def sent(self, ask: Ask, now_ms: int) -> None:
        """This one leaves now."""
        self._since_tick += 1
        self._under_way[ask.ticket] = _UnderWay(ask, now_ms)

    def waits_for(self, code: RequestCode) -> bool:
        """Whether one of this code has no answer yet."""
        return any(one.ask.code == code for one in self._under_way.values())

    @property
    def has_to_wait(self) -> bool:
        """Whether nothing more is asked before the next tick."""
        return self._since_tick >= MAX_AT_ONCE

    def ticked(self) -> None:
        """Some time has passed."""
        self._since_tick = 0

    def knows(self, ticket: int) -> bool:
        """Whether somebody waits for this answer."""
        return ticket in self._under_way

    def take(self, ticket: int) -> tuple[Ask, int] | None:
        """What was asked, and when it left (ms); None for an answer that nobody waits for."""
        return self._under_way.pop(ticket, None)

    def forget_late(self, now_ms: int) -> bool:
        """Give up those whose time has passed; whether there were any."""
        late = [
            ticket
            for ticket, one in self._under_way.items()
            if now_ms - one.sent_ms >= self._timeout_ms
        ]
        for ticket in late:
            del self._under_way[ticket]
        return bool(late)

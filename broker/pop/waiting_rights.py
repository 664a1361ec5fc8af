"""Notes the rights of a pop or notification before it waits (broker/processor/held_rights.py).

Loop thread. Knows no account.
"""

from __future__ import annotations

from typing import Protocol

from broker.pop.pop_long_polling_service import WaitingRequest
from broker.processor.held_rights import CheckRights, HoldRights


class MayWait(WaitingRequest, Protocol):
    """A pop or notification."""

    check_rights: CheckRights | None


def note_rights(
    hold_rights: HoldRights,
    asked: MayWait,
    code: int,
    access_key: str | None,
    names: tuple[str, str],
) -> None:
    """Before it waits for the first time. names: its group and topic. Raises RequestError."""
    if asked.check_rights is None and asked.header.pollTime > 0:
        asked.check_rights = hold_rights(asked.connection, code, access_key, *names)

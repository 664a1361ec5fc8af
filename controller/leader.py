"""Leader: the controller that decides, as it names itself. A value; any thread."""

from __future__ import annotations

import msgspec


class Leader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Also the text of the leader key in a shared store, as JSON."""

    id: str
    address: str
    """host:port that brokers come to."""

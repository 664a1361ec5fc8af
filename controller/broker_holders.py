"""BrokerHolders: from which host each broker id speaks, so that no other host speaks for it.

Loop thread. A host becomes the holder of an id by a registration (1003) or a heartbeat (904) that
was let in, and stays it while the id is alive: nobody takes the id of a living broker, and only its
holder alters its set (1001) or asks to be elected (1002). After a start, until it is known who is
alive, only the host that an id is recorded at becomes its holder. So a stranger who may send
heartbeats of its own can become a broker of a group, but not another one. Brokers of one host are
not told apart.
"""

from __future__ import annotations

from controller.controller_service import GroupSeen


class BrokerHolders:
    """By broker name and id; only ids that a controller has given."""

    def __init__(self) -> None:
        self._origins: dict[str, dict[int, str]] = {}

    def note(self, broker_name: str, broker_id: int, origin: str) -> None:
        """It has spoken from there, and was let in."""
        self._origins.setdefault(broker_name, {})[broker_id] = origin

    def forget_but(self, seen: GroupSeen) -> None:
        """Of this group keep those that it still has."""
        held, kept = self._origins.get(seen.group.broker_name, {}), seen.group.replicas
        for broker_id in held.keys() - kept.keys():
            del held[broker_id]

    def is_taken(self, seen: GroupSeen, broker_id: int, origin: str) -> bool:
        """Whether the id lives, or may live, at another host that has spoken for it."""
        holder = self._find(seen.group.broker_name, broker_id)
        lives = seen.presumed_alive or broker_id in seen.alive
        return lives and holder is not None and holder != origin

    def is_unclaimed(self, seen: GroupSeen, broker_id: int) -> bool:
        """Whether the id may live somewhere, and nobody has spoken for it since this start."""
        return seen.presumed_alive and self._find(seen.group.broker_name, broker_id) is None

    def is_holder(self, broker_name: str, broker_id: int, origin: str) -> bool:
        """Whether this host is known to hold the id."""
        return self._find(broker_name, broker_id) == origin

    def _find(self, broker_name: str, broker_id: int) -> str | None:
        return self._origins.get(broker_name, {}).get(broker_id)

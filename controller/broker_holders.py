"""BrokerHolders: from which host each broker id speaks, so that no other host speaks for it.

Loop thread. A host becomes the holder of an id by a registration (1003) or a heartbeat (904) that
was let in, and stays it while the id is alive: nobody takes the id of a living broker, and only its
holder alters its set (1001) or asks to be elected (1002). So a stranger who may send heartbeats of
its own can become a broker of a group, but not another one. Brokers of one host are not told apart.
"""

from __future__ import annotations

from controller.controller_service import GroupSeen

_Key = tuple[str, int]


class BrokerHolders:
    """By broker name and id; only ids that a controller has given."""

    def __init__(self) -> None:
        self._origins: dict[_Key, str] = {}

    def note(self, broker_name: str, broker_id: int, origin: str) -> None:
        """It has spoken from there, and was let in."""
        self._origins[broker_name, broker_id] = origin

    def forget_but(self, seen: GroupSeen) -> None:
        """Of this group keep those that it still has."""
        name, kept = seen.group.broker_name, seen.group.replicas
        for key in [key for key in self._origins if key[0] == name and key[1] not in kept]:
            del self._origins[key]

    def is_taken(self, seen: GroupSeen, broker_id: int, origin: str) -> bool:
        """Whether the id lives at another host."""
        holder = self._origins.get((seen.group.broker_name, broker_id))
        return broker_id in seen.alive and holder is not None and holder != origin

    def is_holder(self, broker_name: str, broker_id: int, origin: str) -> bool:
        """Whether this host is known to hold the id."""
        return self._origins.get((broker_name, broker_id)) == origin

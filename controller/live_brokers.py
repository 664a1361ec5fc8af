"""Who is alive, from heartbeats (904), by the controller's own monotonic clock. One thread.

Kept in memory only: brokers send heartbeats to every controller, so that a new leader knows. Other
than RocketMQ 5.3.3, an entry belongs to the newest connection that it came over, and each
heartbeat's numbers count as they are, also when they fall (a log was cut).
"""

from __future__ import annotations

from typing import NamedTuple

from controller.election import LogReport


class Heartbeat(NamedTuple):
    """904, and over which connection it came."""

    broker_name: str
    broker_id: int
    address: str
    """host:port of the broker's service port, for 1008."""
    channel: int
    """A number of the connection, never used again."""
    timeout_ms: int
    report: LogReport


class LiveBrokers:
    """The table. Owned by the controller's thread."""

    def __init__(self) -> None:
        self._brokers: dict[str, dict[int, tuple[Heartbeat, int]]] = {}
        self._over: dict[int, dict[tuple[str, int], Heartbeat]] = {}
        """The same by channel: any connection may close, and most have no broker."""

    def heard(self, heartbeat: Heartbeat, now_ms: int) -> None:
        """Take a heartbeat."""
        name, broker_id = heartbeat.broker_name, heartbeat.broker_id
        group = self._brokers.setdefault(name, {})
        if broker_id in group:
            self._unbind(group[broker_id][0])
        group[broker_id] = heartbeat, now_ms + heartbeat.timeout_ms
        self._over.setdefault(heartbeat.channel, {})[name, broker_id] = heartbeat

    def _unbind(self, heartbeat: Heartbeat) -> None:
        bound = self._over[heartbeat.channel]
        del bound[heartbeat.broker_name, heartbeat.broker_id]
        if not bound:
            del self._over[heartbeat.channel]

    def closed(self, channel: int) -> list[Heartbeat]:
        """Forget whoever came over a connection that has closed, and say who that was."""
        gone = list(self._over.pop(channel, {}).values())
        for heartbeat in gone:
            del self._brokers[heartbeat.broker_name][heartbeat.broker_id]
        return gone

    def forget_silent(self, now_ms: int) -> None:
        """Forget whoever's timeout has passed."""
        for name, group in list(self._brokers.items()):
            for broker_id, (heartbeat, until) in list(group.items()):
                if now_ms >= until:
                    self._unbind(heartbeat)
                    del group[broker_id]
            if not group:
                del self._brokers[name]

    def alive(self, broker_name: str, now_ms: int) -> dict[int, LogReport]:
        """Of this group, by id, whoever's timeout has not passed."""
        group = self._brokers.get(broker_name, {})
        return {key: one.report for key, (one, until) in group.items() if now_ms < until}

    def addresses(self, broker_name: str, now_ms: int) -> dict[int, str]:
        """host:port of the same ones."""
        group = self._brokers.get(broker_name, {})
        return {key: one.address for key, (one, until) in group.items() if now_ms < until}

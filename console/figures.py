"""Figures: what the history keeps of each snapshot, by owner and name.

Pure; the poller's thread. Only what was told since the last look is kept, so that a broker that
says nothing leaves a gap and not a flat line.

Tested by tests/console/test_figures.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from console.history import Key
from console.snapshot import BrokerSeen, ClusterSnapshot
from tools.broker_numbers import first_number, out_tps_key
from tools.commands.ha_status import CATCHING_UP, DISCONNECTED, replica_state

CLUSTER: Final = ""
"""The owner of what is summed over all brokers."""
IN_TPS: Final = "in"
OUT_TPS: Final = "out"
LAG_BYTES: Final = "lag_bytes"
LAG_SECONDS: Final = "lag_seconds"
STATE: Final = "state"
"""Of a replica, as a number: its place in REPLICA_STATES, the worst last."""
REPLICA_STATES: Final = ("in_sync", CATCHING_UP, DISCONNECTED)


def figures(snapshot: ClusterSnapshot, since_ms: int) -> dict[Key, float]:
    """What brokers told after `since_ms` (monotonic)."""
    found: dict[Key, float] = {}
    for broker in snapshot.brokers:
        for name, value in _of_runtime(broker, since_ms):
            found[broker.place.address, name] = value
        found.update(_of_replicas(broker, since_ms))
    for name in (IN_TPS, OUT_TPS):
        told = [value for name_of, value in _newest(snapshot) if name_of == name]
        if told:
            found[CLUSTER, name] = sum(told)
    return {key: value for key, value in found.items() if math.isfinite(value)}


def _newest(snapshot: ClusterSnapshot) -> Iterator[tuple[str, float]]:
    for broker in snapshot.masters():
        if broker.runtime.error is None:
            yield from _of_runtime(broker, 0)


def _of_runtime(broker: BrokerSeen, since_ms: int) -> Iterator[tuple[str, float]]:
    runtime = broker.runtime.value
    if runtime is None or broker.runtime.at_ms <= since_ms:
        return
    yield IN_TPS, first_number(runtime.get("putTps"))
    yield OUT_TPS, first_number(runtime.get(out_tps_key(runtime)))


def _of_replicas(broker: BrokerSeen, since_ms: int) -> Iterator[tuple[Key, float]]:
    told = broker.ha.value
    if told is None or broker.ha.at_ms <= since_ms or not told.info.master:
        return
    for replica in told.info.ha_connection_info:
        owner = f"{broker.place.address} {replica.id or replica.addr}"
        yield (owner, LAG_BYTES), float(max(replica.diff, 0))
        if replica.lag_seconds is not None:
            yield (owner, LAG_SECONDS), replica.lag_seconds
        state = replica_state(replica)
        if state in REPLICA_STATES:
            yield (owner, STATE), float(REPLICA_STATES.index(state))

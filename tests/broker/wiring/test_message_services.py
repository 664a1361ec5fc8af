"""broker.wiring.message_services: whose acknowledgements a send waits for, by the settings."""

from __future__ import annotations

import pytest

from broker.settings.startup_options import StartupOptions
from broker.wiring.message_services import durability_waiters
from remoting.response_code import ResponseCode

FAR = 1 << 40


class NoStats:
    """Counts nothing."""

    def waited(self, *_: object, **__: object) -> None: ...


@pytest.mark.parametrize(
    ("role", "replicas", "flush", "waits_for"),
    [
        ("SYNC_MASTER", 2, "ASYNC_FLUSH", {"replicas"}),
        ("SYNC_MASTER", 3, "SYNC_FLUSH", {"replicas", "flush"}),
        ("SYNC_MASTER", 1, "ASYNC_FLUSH", set()),
        ("ASYNC_MASTER", 2, "ASYNC_FLUSH", set()),
        ("ASYNC_MASTER", 2, "SYNC_FLUSH", {"flush"}),
    ],
)
def test_what_a_send_waits_for(role: str, replicas: int, flush: str, waits_for: set[str]) -> None:
    settings = {"brokerRole": role, "inSyncReplicas": str(replicas), "flushDiskType": flush}
    waiters = durability_waiters(StartupOptions.from_settings(settings), NoStats())
    waiters.replicas_available = True
    answered: list[ResponseCode] = []
    assert waiters.active == bool(waits_for)
    waiters.add(100, answered.append, 310)
    for flushed, replicated, missing in ((FAR, 99, "replicas"), (99, FAR, "flush")):
        waiters.release(flushed, replicated, 0)
        assert bool(answered) == (missing not in waits_for)
        if answered:
            answered.clear()
            waiters.add(100, answered.append, 310)
    waiters.release(100, 100, 0)
    assert answered == [ResponseCode.SUCCESS]

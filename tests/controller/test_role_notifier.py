"""Which notices of a new master are sent: the newest to each broker, and not too many wait."""

from __future__ import annotations

import threading

import pytest

import controller.role_notifier as module
from controller.events import Notice
from controller.group_state import GroupState, Replica
from controller.role_notifier import RoleNotifier
from remoting.errors import RemotingConnectError
from remoting.remoting_command import RemotingCommand
from tests.controller.controller_peer import DEADLINE_S


class SlowClient:
    """As while names are looked up: nothing is sent until `goes_on`; nobody answers at "dead"."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.sent: list[tuple[str, int]] = []
        """Address and epoch."""
        self._begun = threading.Semaphore(0)

    def invoke_oneway(self, address: str, command: RemotingCommand, _timeout_ms: int) -> None:
        self._begun.release()
        assert self.goes_on.wait(DEADLINE_S)
        if address == "dead":
            raise RemotingConnectError(address, "refused")
        assert command.code == 1008
        self.sent.append((address, int(command.ext_fields["masterEpoch"])))

    def await_busy(self) -> None:
        """All threads of the notifier are at work."""
        for _ in range(3):
            assert self._begun.acquire(timeout=DEADLINE_S)


def notice(address: str, epoch: int) -> Notice:
    group = GroupState("C", "b", {1: Replica("h:1", "x")}, 2, 1, epoch, frozenset((1,)), 1)
    return Notice(address, group)


def notifier_of(client: SlowClient) -> RoleNotifier:
    notifier = RoleNotifier(client)  # type: ignore[arg-type]
    for number in range(3):
        notifier.notify(notice("dead" if number == 0 else f"slow{number}", 1))
    client.await_busy()
    return notifier


def drain(notifier: RoleNotifier, client: SlowClient) -> list[tuple[str, int]]:
    """What was sent, once all is."""
    client.goes_on.set()
    notifier._pool.shutdown()
    assert not notifier._newest, "nothing is kept of what was sent or has failed"
    return [one for one in client.sent if not one[0].startswith("slow")]


def test_an_older_notice_that_waits_is_not_sent() -> None:
    client = SlowClient()
    notifier = notifier_of(client)
    for epoch in (4, 5, 6):
        notifier.notify(notice("x", epoch))
    notifier.notify(notice("y", 5))
    assert sorted(drain(notifier, client)) == [("x", 6), ("y", 5)]


def test_not_too_many_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that waits already is still brought up to date."""
    monkeypatch.setattr(module, "MOST_WAITING", 5)
    client = SlowClient()
    notifier = notifier_of(client)
    for address in ("a", "b", "c", "d"):
        notifier.notify(notice(address, 2))
    notifier.notify(notice("a", 3))
    assert sorted(drain(notifier, client)) == [("a", 3), ("b", 2)]
    assert [record.args for record in caplog.records if "too many wait" in record.msg] == [
        ("c", "b"),
        ("d", "b"),
    ]


def test_a_stop_sends_nothing_more() -> None:
    client = SlowClient()
    notifier = notifier_of(client)
    notifier.notify(notice("x", 4))
    threading.Timer(0.1, client.goes_on.set).start()
    notifier.shutdown()
    assert sorted(client.sent) == [("slow1", 1), ("slow2", 1)]

"""A leader of three whose `remoting` or `store` is killed or stands still, while its `ha` lives:
another member leads. Real brokers under our controller, in the safe mode."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.deadline import wait_until
from tools.chaos.frame_client import FrameClient, send_request
from tools.chaos.group_view import GroupView, epochs_of
from tools.chaos.member_group import BROKERS, HEARTBEAT_TIMEOUT_S, GroupShape, MemberGroup
from tools.chaos.scratch_group import ScratchBroker

TOPIC = "Lamed"
_WAIT_S = 60.0


class Lamed:
    """The group, and a producer that goes where the name server says."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.group = MemberGroup(root, GroupShape(settings=settings))
        self.view = GroupView(self.group)
        self.taken: list[bytes] = []

    def __enter__(self) -> Lamed:
        self.group.start()
        self.view.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.view.stop()
        self.group.kill_everything()

    def wait_whole(self) -> ScratchBroker:
        """Everybody is in the set, and sends are answered SEND_OK; the master."""
        wait_until(lambda: len(self.view.in_sync()) == BROKERS, timeout_s=_WAIT_S)
        self.send_until_taken()
        return self.master()

    def master(self) -> ScratchBroker:
        (found,) = (one for one in self.group.brokers if one.address == self.view.master)
        return found

    def send_until_taken(self) -> None:
        """One message, again until it is answered SEND_OK."""
        body = b"%d" % len(self.taken)
        wait_until(lambda: self._send(body), timeout_s=_WAIT_S)
        self.taken.append(body)

    def _send(self, body: bytes) -> bool:
        address = self.view.master
        if address is None:
            return False
        try:
            with FrameClient(address, 0.5) as client:
                return client.ask(send_request(TOPIC, 0, body)).code == 0
        except OSError:
            return False

    def lame(self, process: str, number: signal.Signals) -> tuple[ScratchBroker, float]:
        """Whom it hit, and how long until the next SEND_OK (s), of another leader."""
        master = self.wait_whole()
        epoch = epochs_of(master.address)[-1][0]
        begun = time.monotonic()
        assert master.signal(process, number)
        wait_until(lambda: self._led_anew(epoch), timeout_s=_WAIT_S)
        return master, time.monotonic() - begun

    def _led_anew(self, epoch: int) -> bool:
        self.send_until_taken()
        address = self.view.master
        return address is not None and epochs_of(address)[-1][0] > epoch

    def stored(self) -> list[bytes]:
        master = self.wait_whole()
        found: list[bytes] = []

        def has_all() -> bool:
            with FrameClient(master.address, 5) as client:
                while (pulled := client.pull(TOPIC, 0, len(found))).messages:
                    found.extend(bytes(one.body) for one in pulled.messages)
            return set(self.taken) <= set(found)

        wait_until(has_all, timeout_s=_WAIT_S)
        return found


@pytest.fixture(scope="module")
def lamed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lamed]:
    with Lamed(tmp_path_factory.mktemp("lamed")) as lamed:
        yield lamed


@pytest.mark.slow
def test_killed(lamed: Lamed, proved: Callable[[str], None]) -> None:
    """Nothing that was answered is lost."""
    for process in ("remoting", "store"):
        _, gap_s = lamed.lame(process, signal.SIGKILL)
        proved(f"kill -9 of {process} of a leader: another one after {gap_s:.2f} s")
    assert set(lamed.taken) <= set(lamed.stored())


@pytest.mark.long
@pytest.mark.parametrize("process", ["remoting", "store"])
def test_standing_still(lamed: Lamed, process: str, proved: Callable[[str], None]) -> None:
    master, gap_s = lamed.lame(process, signal.SIGSTOP)
    master.signal(process, signal.SIGCONT)
    proved(f"SIGSTOP of {process} of a leader: another one after {gap_s:.2f} s")
    assert gap_s > HEARTBEAT_TIMEOUT_S - 0.5
    assert set(lamed.taken) <= set(lamed.stored())


@pytest.mark.long
def test_a_lone_leader_waits(tmp_path: Path, proved: Callable[[str], None]) -> None:
    """It goes on in its epoch, as soon as its process is there again."""
    with Lamed(tmp_path, minInSyncReplicas=1) as lamed:
        master = lamed.wait_whole()
        for broker in lamed.group.brokers:
            if broker is not master:
                broker.kill_all()
        wait_until(lambda: lamed.view.in_sync() == [master.address], timeout_s=_WAIT_S)
        epochs = epochs_of(master.address)
        for process in ("remoting", "store"):
            begun = time.monotonic()
            assert master.signal(process, signal.SIGKILL)
            lamed.send_until_taken()
            gap_s = time.monotonic() - begun
            proved(f"kill -9 of {process} of a lone leader: SEND_OK after {gap_s:.2f} s")
        assert epochs_of(master.address) == epochs

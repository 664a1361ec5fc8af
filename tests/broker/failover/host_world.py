"""A BrokerMemberHost whose other processes are a thread and a list of what was asked of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from broker.failover.member import Stage
from broker.failover.member_files import MemberFiles
from broker.failover.member_host import Actions, BrokerMemberHost, HostSettings
from broker.failover.member_orders import MemberOrders
from broker.failover.member_service import MemberStatus
from broker.failover.messages import NOTHING_TAKEN, RegisterAtNameServers, Taken
from broker.failover.puts import Puts
from broker.failover.role_log import RoleLog
from ha.control_slots import MEMBER_ORDER, ORDER_TAKEN, MemberRole, role_of
from ha.epochs import EpochList
from ipc.clock import SystemClock
from ipc.control_page import ControlPage
from store.errors import StoreError
from store.resync_request import ResyncAction


class Done(NamedTuple):
    """Something that was asked of another part of the broker, in its order."""

    what: str
    detail: object = None


class Remoting(threading.Thread):
    """Carries every order out as soon as it sees it, unless it hangs; notes the roles it had."""

    def __init__(self, counters: memoryview[int], done: list[Done]) -> None:
        super().__init__(daemon=True)
        self._counters = counters
        self._done = done
        self._over = threading.Event()
        self.hangs = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.001):
            order = self._counters[MEMBER_ORDER]
            if order != self._counters[ORDER_TAKEN] and not self.hangs.is_set():
                self._done.append(Done("taken", role_of(order)))
                self._counters[ORDER_TAKEN] = order

    def end(self) -> None:
        self._over.set()
        self.join(5)


class FakeReplication:
    """HA connections that only note what is asked of them."""

    def __init__(self, done: list[Done]) -> None:
        self._done = done
        self.sets: list[frozenset[int]] = []
        self.confirm: Callable[[], int] = lambda: -1

    def stop(self) -> None:
        self._done.append(Done("stop"))

    def cut_half_record(self) -> None:
        self._done.append(Done("cut half record"))

    def lead(
        self,
        epochs: EpochList,
        master_epoch: int,
        confirm: Callable[[], int],
        *,
        tells_growth: bool = True,
    ) -> None:
        self.confirm = confirm
        self._done.append(Done("lead", (epochs, master_epoch, tells_growth)))

    def follow(self, broker_id: int, master_epoch: int, master_ha_address: str | None) -> None:
        self._done.append(Done("follow", (broker_id, master_epoch, master_ha_address)))

    def transfer(self) -> None:
        self._done.append(Done("transfer"))

    def hang_up(self) -> None:
        self._done.append(Done("hang up"))

    def note_sync_state_set(self, broker_ids: frozenset[int]) -> None:
        self.sets.append(broker_ids)


class HostWorld:
    """See the module."""

    def __init__(
        self, root: Path, *, all_ack: bool = True, sync_flush: bool = False, hangs: bool = False
    ) -> None:
        self.page = ControlPage(ControlPage.create())
        self.counters = self.page.counters
        self.done: list[Done] = []
        self.rings: list[str] = []
        self.stopping = threading.Event()
        self.cuts_open_stores = self.refuses = False
        self.remoting = Remoting(self.counters, self.done)
        if hangs:
            self.remoting.hangs.set()
        self.remoting.start()
        clock = SystemClock()
        self.replication = FakeReplication(self.done)
        self.orders = MemberOrders(
            self.counters, lambda: self.rings.append("order"), clock, self.stopping
        )
        self.host = BrokerMemberHost(
            self.counters,
            self.orders,
            self.replication,
            MemberFiles(root / "brokerIdentity", root / "epochFileCheckpoint"),
            HostSettings(
                all_ack_in_sync_state_set=all_ack, in_sync_replicas=1, sync_flush=sync_flush
            ),
            Actions(
                ring_store=lambda: self.rings.append("store"),
                ring_remoting=lambda: self.rings.append("remoting"),
                sync_log=lambda start, end: self.done.append(Done("sync", (start, end))),
                request_resync=self._request_resync,
                cut_tail=self._cut_tail,
                reopen=lambda: self.done.append(Done("reopen")),
                register=self._register,
            ),
            RoleLog(root / "memberRoles.json", self.counters, clock),
        )

    def _request_resync(self, action: ResyncAction, offset: int, reason: str) -> None:
        if self.refuses:
            raise StoreError("refused before")
        self.done.append(Done(f"{action} to {offset}", reason))

    def _cut_tail(self, offset: int) -> bool:
        if self.cuts_open_stores:
            self.done.append(Done("cut", offset))
        return self.cuts_open_stores

    def _register(self, registration: RegisterAtNameServers, follows: str | None) -> None:
        self.done.append(Done("register", (registration, follows)))

    @property
    def order(self) -> MemberRole:
        return role_of(self.counters[MEMBER_ORDER])

    @property
    def whats(self) -> list[str]:
        return [done.what for done in self.done]

    def end(self) -> None:
        self.stopping.set()
        self.remoting.end()


def status(
    *,
    is_master: bool = False,
    confirm: int = 0,
    acknowledged: int = 0,
    puts: Puts | None = None,
    epochs: EpochList | None = None,
    members: frozenset[int] = frozenset(),
    taken: Taken | None = None,
    two_masters_seen: int = 0,
) -> MemberStatus:
    """Of broker 2 in epoch 7, whose master is 1 unless it is the master."""
    return MemberStatus(
        stage=Stage.RUNNING,
        broker_id=2,
        is_master=is_master,
        master_broker_id=2 if is_master else 1,
        master_epoch=7,
        sync_state_set=members,
        confirm_offset=confirm,
        acknowledged_offset=acknowledged,
        puts=Puts(None, None) if puts is None else puts,
        epochs=EpochList() if epochs is None else epochs,
        trouble=None,
        taken=NOTHING_TAKEN if taken is None else taken,
        two_masters_seen=two_masters_seen,
    )

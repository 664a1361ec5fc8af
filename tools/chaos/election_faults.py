"""ElectionFaults: does to a group of members what a seed has planned, and undoes it.

A fault begins, which says what was hit; then the run sees for how long nobody takes messages; and
it is undone: whatever was hit is started, continued and healed. Runs on the thread that leads a
run.

Tested by tests/tools/chaos/test_election_run.py.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from typing import Final

from tools.chaos.election_schedule import ElectionFault, PlannedFault
from tools.chaos.group_view import GroupView, leads_etcd
from tools.chaos.member_group import MemberGroup
from tools.chaos.network import Link, both_ways
from tools.chaos.scratch_group import ScratchBroker
from tools.chaos.scratch_process import ChaosError, wait_for
from tools.chaos.scratch_server import ScratchServer

_pause: Final = threading.Event().wait
_MASTER_S: Final = 30.0
_ORDER_S: Final = 8.0
_TAIL_S: Final = (0.05, 1.5)
_STOPS_SHARE: Final = 0.4
"""Of tails that are made by a process that stands still; the others by links that are cut."""
_LATER_S: Final = (0.0, 0.0, 0.01, 0.05, 0.2)
_MASTER_SHARE: Final = 0.6
_PROCESSES: Final = ("remoting", "store", "ha", "supervisor", "")
"""Of a broker; the last: all of it."""
_REFUSES: Final = 0.3
"""The share of cuts at which connections are reset; the others are silent."""


class FaultTargets:
    """Who is hit."""

    def __init__(self, group: MemberGroup, view: GroupView) -> None:
        self.group = group
        self.view = view

    def master(self) -> ScratchBroker:
        """Whom the name server named last, if it runs. Raises ChaosError: nobody."""
        found: list[ScratchBroker] = []

        def is_named() -> bool:
            address = self.view.master
            found[:] = [b for b in self.group.brokers if b.is_alive and b.address == address]
            return bool(found)

        wait_for(is_named, _MASTER_S, "a living master, named by the name server")
        return found[0]

    def slaves(self, fault: PlannedFault) -> list[ScratchBroker]:
        """Those that are not the master, in the fault's order."""
        master = self.master()
        slaves = [broker for broker in self.group.brokers if broker is not master]
        return slaves if fault.which < 0.5 else slaves[::-1]

    def member(self, fault: PlannedFault) -> ScratchBroker:
        """The master, or the slave, as the kind says."""
        return self.slaves(fault)[0] if "slave" in fault.kind else self.master()

    def any_member(self, fault: PlannedFault) -> ScratchBroker:
        """The master, or a slave."""
        return self.master() if fault.which < _MASTER_SHARE else self.slaves(fault)[0]

    def leader(self) -> ScratchServer:
        """The controller that leads, or any."""
        name = self.view.leader()
        found = [each for each in self.group.controllers if each.name == name]
        return found[0] if found else self.group.controllers[0]

    def leader_of_etcd(self) -> ScratchServer:
        """The node of etcd that leads, or any."""
        for server in self.group.etcd:
            if leads_etcd(server.address):
                return server
        return self.group.etcd[0]


class MemberFaults:
    """Faults of brokers' processes, and elections; each method is what ElectionFault says of it."""

    def __init__(self, targets: FaultTargets) -> None:
        self._targets = targets
        self.violations: list[str] = []

    def kill_master(self, _fault: PlannedFault) -> str:
        broker = self._targets.master()
        broker.kill_all()
        return broker.name

    def kill_slave(self, fault: PlannedFault) -> str:
        broker = self._targets.slaves(fault)[0]
        broker.kill_all()
        return broker.name

    def kill_slaves(self, fault: PlannedFault) -> str:
        slaves = self._targets.slaves(fault)
        for broker in slaves:
            broker.kill_all()
        return ", ".join(broker.name for broker in slaves)

    def kill_all(self, _fault: PlannedFault) -> str:
        for broker in self._targets.group.brokers:
            broker.kill_all()
        return "all"

    def kill_process(self, fault: PlannedFault) -> str:
        broker = self._targets.member(fault)
        _kill_one(broker, fault.process)
        return f"{fault.process} of {broker.name}"

    def stop_member(self, fault: PlannedFault) -> str:
        broker = self._targets.member(fault)
        self._targets.group.pause(broker)
        _pause(fault.lasts_s)
        self._targets.group.resume(broker)
        return broker.name

    def stop_process(self, fault: PlannedFault) -> str:
        broker = self._targets.member(fault)
        broker.signal(fault.process, signal.SIGSTOP)
        _pause(fault.lasts_s)
        broker.signal(fault.process, signal.SIGCONT)
        return f"{fault.process} of {broker.name}"

    def restart(self, fault: PlannedFault) -> str:
        broker = self._targets.member(fault)
        code = broker.stop()
        if code != 0:
            self.violations.append(f"{broker.name}: an orderly stop ended with {code}")
        return broker.name

    def kill_with_tail(self, fault: PlannedFault) -> str:
        broker = self._targets.master()
        stops = fault.which < _STOPS_SHARE
        slaves = [slave.name for slave in self._targets.slaves(fault)]
        links = both_ways(broker.name, slaves)
        if stops:
            broker.signal("ha", signal.SIGSTOP)
        else:
            self._targets.group.network.cut(links)
        _pause(_TAIL_S[0] + fault.part * (_TAIL_S[1] - _TAIL_S[0]))
        broker.kill_all()
        # What is still on its way from the dead is lost, too.
        self._targets.group.network.cut(links, refuses=True)
        self._targets.group.network.heal()
        return f"{broker.name}, {'its ha stood still' if stops else 'cut off from its slaves'}"

    # -- elections -----------------------------------------------------------------------------

    def elect(self, fault: PlannedFault) -> str:
        broker = self._targets.slaves(fault)[0]
        return f"{broker.name}: code {self._designate(broker)}"

    def _designate(self, broker: ScratchBroker) -> int:
        broker_id = self._targets.view.ids().get(broker.address)
        return -1 if broker_id is None else self._targets.view.elect(broker_id)

    def elect_and_kill(self, fault: PlannedFault) -> str:
        old, new = self._targets.master(), self._targets.slaves(fault)[0]
        who = old if fault.part < 0.5 else new
        process = _PROCESSES[int(fault.part * 1000) % len(_PROCESSES)]
        before = _orders(who)
        asking = threading.Thread(target=self._designate, args=(new,))
        asking.start()
        with contextlib.suppress(ChaosError):
            wait_for(lambda: _orders(who) > before, _ORDER_S, "an order", poll_s=0.001)
        _pause(_LATER_S[int(fault.which * 1000) % len(_LATER_S)])
        if process:
            _kill_one(who, process)
        else:
            who.kill_all()
        asking.join()
        role = "old" if who is old else "new"
        return f"{new.name}, then {process or 'all'} of the {role} master {who.name}"


class LinkFaults:
    """Links that are cut; each method is what ElectionFault says of it."""

    def __init__(self, targets: FaultTargets) -> None:
        self._targets = targets

    def cut(self, fault: PlannedFault, links: list[Link]) -> None:
        refuses = fault.part < _REFUSES
        self._targets.group.network.cut(links, refuses=refuses)
        _pause(fault.lasts_s)
        self._targets.group.network.heal()

    def others(self, name: str) -> list[str]:
        return [node for node in self._targets.group.nodes if node != name]

    def cut_member(self, fault: PlannedFault) -> str:
        broker = self._targets.member(fault)
        self.cut(fault, both_ways(broker.name, self.others(broker.name)))
        return broker.name

    def cut_controllers(self, fault: PlannedFault) -> str:
        broker = self._targets.master()
        names = [controller.name for controller in self._targets.group.controllers]
        self.cut(fault, both_ways(broker.name, names))
        return broker.name

    def cut_link(self, fault: PlannedFault) -> str:
        master, slave = self._targets.master(), self._targets.slaves(fault)[0]
        self.cut(fault, both_ways(master.name, [slave.name]))
        return f"{master.name} and {slave.name}"

    def cut_one_way(self, fault: PlannedFault) -> str:
        master, slave = self._targets.master(), self._targets.slaves(fault)[0]
        link = master.name, slave.name
        link = link if fault.part < 0.5 else link[::-1]
        self._targets.group.network.cut([link])
        _pause(fault.lasts_s)
        self._targets.group.network.heal()
        return f"{link[0]} to {link[1]}"


class ServerFaults:
    """Faults of controllers, name servers and etcd, clocks and disks, as ElectionFault says."""

    def __init__(self, targets: FaultTargets, links: LinkFaults) -> None:
        self._targets = targets
        self._links = links

    def kill_controller(self, fault: PlannedFault) -> str:
        return self._kill_server(self._targets.leader(), fault)

    def stop_controller(self, fault: PlannedFault) -> str:
        return self._stop_server(self._targets.leader(), fault)

    def cut_controller(self, fault: PlannedFault) -> str:
        return self._cut_server(self._targets.leader(), fault)

    def kill_etcd(self, fault: PlannedFault) -> str:
        return self._kill_server(self._targets.leader_of_etcd(), fault)

    def stop_etcd(self, fault: PlannedFault) -> str:
        return self._stop_server(self._targets.leader_of_etcd(), fault)

    def cut_etcd(self, fault: PlannedFault) -> str:
        return self._cut_server(self._targets.leader_of_etcd(), fault)

    def _kill_server(self, server: ScratchServer, fault: PlannedFault) -> str:
        server.kill_all()
        _pause(fault.lasts_s)
        server.start(self._targets.group.know_owners)
        return server.name

    def _stop_server(self, server: ScratchServer, fault: PlannedFault) -> str:
        server.pause()
        _pause(fault.lasts_s)
        server.resume()
        return server.name

    def _cut_server(self, server: ScratchServer, fault: PlannedFault) -> str:
        self._links.cut(fault, both_ways(server.name, self._links.others(server.name)))
        return server.name

    def kill_master_and_controller(self, fault: PlannedFault) -> str:
        broker, server = self._targets.master(), self._targets.leader()
        server.kill_all()
        broker.kill_all()
        _pause(fault.lasts_s)
        server.start(self._targets.group.know_owners)
        return f"{broker.name}, {server.name}"

    def restart_namesrv(self, _fault: PlannedFault) -> str:
        server = self._targets.group.namesrv
        server.kill_all()
        server.start(self._targets.group.know_owners)
        return server.name

    def fill_disk(self, fault: PlannedFault) -> str:
        broker = self._targets.any_member(fault)
        assert broker.disk is not None
        broker.disk.set_fault("full_disk")
        _pause(fault.lasts_s)
        broker.disk.heal()
        return broker.name

    def jump_clock(self, fault: PlannedFault) -> str:
        broker = self._targets.any_member(fault)
        broker.set_clock(fault.amount_ms)
        _pause(fault.lasts_s)
        broker.set_clock(0)
        return broker.name


class ElectionFaults:
    """See the module."""

    def __init__(self, group: MemberGroup, view: GroupView) -> None:
        self._group = group
        self.targets = FaultTargets(group, view)
        self._members = members = MemberFaults(self.targets)
        links = LinkFaults(self.targets)
        servers = ServerFaults(self.targets, links)
        self._begin: dict[ElectionFault, Callable[[PlannedFault], str]] = {
            ElectionFault.KILL_MASTER: members.kill_master,
            ElectionFault.KILL_SLAVE: members.kill_slave,
            ElectionFault.KILL_SLAVES: members.kill_slaves,
            ElectionFault.KILL_ALL: members.kill_all,
            ElectionFault.KILL_PROCESS: members.kill_process,
            ElectionFault.KILL_SLAVE_PROCESS: members.kill_process,
            ElectionFault.STOP_MASTER: members.stop_member,
            ElectionFault.STOP_SLAVE: members.stop_member,
            ElectionFault.STOP_PROCESS: members.stop_process,
            ElectionFault.STOP_SLAVE_PROCESS: members.stop_process,
            ElectionFault.RESTART_MASTER: members.restart,
            ElectionFault.RESTART_SLAVE: members.restart,
            ElectionFault.ELECT: members.elect,
            ElectionFault.ELECT_KILL: members.elect_and_kill,
            ElectionFault.TAIL_KILL: members.kill_with_tail,
            ElectionFault.CUT_MASTER: links.cut_member,
            ElectionFault.CUT_SLAVE: links.cut_member,
            ElectionFault.CUT_CONTROLLERS: links.cut_controllers,
            ElectionFault.CUT_LINK: links.cut_link,
            ElectionFault.ONE_WAY: links.cut_one_way,
            ElectionFault.KILL_CONTROLLER: servers.kill_controller,
            ElectionFault.STOP_CONTROLLER: servers.stop_controller,
            ElectionFault.CUT_CONTROLLER: servers.cut_controller,
            ElectionFault.KILL_MASTER_AND_CONTROLLER: servers.kill_master_and_controller,
            ElectionFault.KILL_ETCD: servers.kill_etcd,
            ElectionFault.STOP_ETCD: servers.stop_etcd,
            ElectionFault.CUT_ETCD: servers.cut_etcd,
            ElectionFault.RESTART_NAMESRV: servers.restart_namesrv,
            ElectionFault.FULL_DISK: servers.fill_disk,
            ElectionFault.CLOCK_JUMP: servers.jump_clock,
        }

    @property
    def violations(self) -> list[str]:
        """What was seen while something was done."""
        return self._members.violations

    def begin(self, fault: PlannedFault) -> str:
        """Do it; what was hit. Raises ChaosError: nobody can be hit."""
        return self._begin[fault.kind](fault)

    def undo(self) -> None:
        """Start, continue and heal whatever was hit. Raises ChaosError: a broker does not start."""
        group = self._group
        group.network.heal()
        for broker in group.brokers:
            broker.set_clock(0)
            if broker.disk is not None:
                broker.disk.heal()
            if broker.name in group.paused:
                group.resume(broker)
            for process in ("store", "remoting", "ha"):
                broker.signal(process, signal.SIGCONT)
        for server in group.servers:
            server.resume()
        group.start_these([server for server in group.servers if not server.is_alive])
        dead = [broker for broker in group.brokers if not broker.is_alive]
        for broker in dead:
            # What its supervisor left behind ends by itself, or now.
            broker.kill_all()
        group.start_these(dead)


def _kill_one(broker: ScratchBroker, process: str) -> None:
    if process == "supervisor":
        broker.kill_supervisor()
    else:
        broker.signal(process, signal.SIGKILL)


def _orders(broker: ScratchBroker) -> int:
    """How many orders its ha has given, by its log: only to hit the middle of an election."""
    total = 0
    for path in (broker.directory / "logs").rglob("ha.log"):
        with contextlib.suppress(OSError):
            total += path.read_bytes().count(b": order ")
    return total

"""Three members of an etcd, three controllers of ours and three brokers, and who watches them.

    python -m tests.interop.etcd_world --seed 3 --faults 6

The watcher knows only what controllers answer (1004, 1005) and what stands in etcd: one master in
an epoch, and no answer that began after another one had ended names an older epoch, whichever
controllers gave the two.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.interop import harness
from tests.interop.controller_faults import MEMBER, Faults, World, run, say
from tests.interop.processes import wait_until
from tests.support.etcd import Etcd, b64
from tests.support.our_broker import FrameClient
from tools.chaos.free_ports import free_port

LEASE_S: Final = 3
PREFIX: Final = "/rocketmq/controllers/group1"
SETTINGS: Final = {
    "controllerStore": "etcd",
    "etcdLeaseSeconds": str(LEASE_S),
    "leaderWarmUpMillis": "3000",
    "scanInactiveMasterInterval": "1000",
    "scanNotActiveBrokerInterval": "500",
}


class Controllers:
    """All of them, where a test of one controller has that one."""

    def __init__(self, root: Path, etcd: Etcd, settings: Mapping[str, str]) -> None:
        ports = [free_port() for _ in range(3)]
        peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self.all = [
            harness.controller(
                root / f"n{number}",
                {
                    **SETTINGS,
                    "etcdEndpoints": etcd.text,
                    "controllerDLegerPeers": peers,
                    "controllerDLegerSelfId": f"n{number}",
                    **settings,
                },
                kind="ours",
                port=ports[number],
            )
            for number in range(3)
        ]

    @property
    def address(self) -> str:
        """As controllerAddr."""
        return ";".join(self.addresses)

    def start(self) -> Controllers:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda one: None if one.process.is_alive() else one.start(), self.all))
        return self

    def kill(self) -> None:
        for one in self.all:
            one.kill()

    def find_leader(self) -> int | None:
        """Its place, as it says itself."""
        for number, address in enumerate(self.addresses):
            fields = ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
            if fields is not None and fields.ext_fields.get("isLeader") == "true":
                return number
        return None

    def leader(self, other_than: int | None = None) -> int:
        """Its place, once there is one."""
        found: list[int] = []

        def named() -> bool:
            one = self.find_leader()
            if one is not None and one != other_than:
                found.append(one)
            return bool(found)

        wait_until(named, "a controller that leads", 60)
        return found[0]


def ask(
    address: str, code: RequestCode, fields: Mapping[str, str] | None = None, timeout_s: float = 1
) -> RemotingCommand | None:
    """The answer; None: there was none."""
    host, _, port = address.rpartition(":")
    try:
        with FrameClient((host, int(port)), timeout_s) as client:
            return client.call(code, fields or {})
    except (OSError, AssertionError):
        return None


class Answered(NamedTuple):
    """What a controller said of the group."""

    begun: float
    ended: float
    who: int
    master: int
    master_epoch: int
    set_epoch: int


class Watcher:
    """Asks each controller all the time, and reads along what is written to etcd."""

    def __init__(self, controllers: Controllers, etcd: Etcd, name: str) -> None:
        self.controllers = controllers
        self.answers: list[Answered] = []
        self.masters: dict[int, set[int]] = {}
        """By epoch."""
        self._etcd = etcd
        self._name = name
        self._stop = threading.Event()
        self._lock = threading.Lock()
        runs = [lambda n=n: self._ask(n) for n in range(3)]
        self._threads = [threading.Thread(target=one, daemon=True) for one in (*runs, self._read)]
        for thread in self._threads:
            thread.start()

    def _ask(self, who: int) -> None:
        fields = {"brokerName": self._name}
        while not self._stop.wait(0.03):
            begun = time.monotonic()
            # A controller that stands still may answer when it goes on.
            address = self.controllers.addresses[who]
            code = RequestCode.CONTROLLER_GET_REPLICA_INFO
            answer = ask(address, code, fields, timeout_s=20)
            if answer is None or answer.code != 0 or "masterEpoch" not in answer.ext_fields:
                continue
            master_epoch = int(answer.ext_fields["masterEpoch"])
            master = int(answer.ext_fields.get("masterBrokerId", "0"))
            set_epoch = int(json.loads(answer.body)["syncStateSetEpoch"])
            with self._lock:
                self.answers.append(
                    Answered(begun, time.monotonic(), who, master, master_epoch, set_epoch)
                )

    def _read(self) -> None:
        """Every version of the group that the store has at a look at it."""
        key = b64(f"{PREFIX}/set/{self._name}")
        while not self._stop.wait(0.05):
            for member in self._etcd.members:
                try:
                    found = self._etcd.call("kv/range", {"key": key}, member.port)
                except Exception:  # noqa: BLE001 - a member that is killed or stands still
                    continue
                for one in found.get("kvs", []):
                    self._note(one["value"])
                break

    def _note(self, value: str) -> None:
        text = base64.b64decode(value).partition(b"\n")[0]
        group = json.loads(text)["groups"][self._name]["group"]
        if group is not None and group["masterBrokerId"] is not None:
            self.masters.setdefault(group["masterEpoch"], set()).add(group["masterBrokerId"])

    def stop(self) -> list[str]:
        """What was wrong."""
        self._stop.set()
        for thread in self._threads:
            thread.join(25)
        for one in self.answers:
            if one.master:
                self.masters.setdefault(one.master_epoch, set()).add(one.master)
        wrong = [
            f"epoch {epoch} has masters {sorted(ids)}"
            for epoch, ids in self.masters.items()
            if len(ids) > 1
        ]
        return wrong + older_answers(self.answers)


def older_answers(answers: list[Answered]) -> list[str]:
    """Those that name older epochs than one that had come before they were asked for."""
    wrong, best = [], (0, 0)
    by_end = sorted(answers, key=lambda one: one.ended)
    place = 0
    for one in sorted(answers, key=lambda one: one.begun):
        while place < len(by_end) and by_end[place].ended < one.begun:
            known = by_end[place]
            best = max(best[0], known.master_epoch), max(best[1], known.set_epoch)
            place += 1
        if one.master_epoch < best[0] or one.set_epoch < best[1]:
            wrong.append(f"controller {one.who} says {one}, when {best} was known")
    return wrong


class EtcdWorld(World):
    """See the module."""

    def __init__(self, root: Path, **conf: str) -> None:
        self.root = root
        self.etcd = Etcd(root / "etcd").start()
        self.controller = Controllers(root, self.etcd, {}).start()  # type: ignore[assignment]
        self.namesrv = harness.name_server("ours", root / "namesrv").start()
        self.brokers = {
            number: harness.broker(
                "ours",
                root / str(number),
                self.namesrv.address,
                name="group",
                conf={**MEMBER, "controllerAddr": self.controller.address, **conf},
            )
            for number in (1, 2, 3)
        }
        self.paused = []
        self.watcher = Watcher(self.controllers, self.etcd, "group")
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda one: one.start(), self.brokers.values()))

    @property
    def controllers(self) -> Controllers:
        found = self.controller
        assert isinstance(found, Controllers)
        return found

    @property
    def leader_address(self) -> str:
        return self.controllers.addresses[self.controllers.leader()]

    def wrong(self) -> list[str]:
        return self.watcher.stop()

    def revive(self) -> None:
        for member in self.etcd.members:
            if member.process is None:
                member.start()
        self.controllers.start()
        super().revive()

    def end(self) -> None:
        self.watcher.stop()
        super().end()
        self.etcd.stop()


class EtcdFaults(Faults):
    """Those of the group, and each role of etcd and of the controllers killed and stopped."""

    world: EtcdWorld

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        kept = ("kill-master", "stop-master", "kill-process", "elect", "all", "two-slaves")
        self.all = {name: self.all[name] for name in kept}
        self.all |= {
            "kill-controller": self.kill_controller_leader,
            "stop-controller": self.stop_controller_leader,
            "kill-controller-and-master": self.kill_controller_and_master,
            "kill-etcd-leader": lambda: self.hurt_etcd(leads=True, kills=True),
            "kill-etcd-follower": lambda: self.hurt_etcd(leads=False, kills=True),
            "stop-etcd-leader": lambda: self.hurt_etcd(leads=True, kills=False),
            "stop-etcd-follower": lambda: self.hurt_etcd(leads=False, kills=False),
            "no-quorum": self.stop_quorum,
        }

    def kill_controller_leader(self) -> str:
        number = self.world.controllers.leader()
        begun = time.monotonic()
        self.world.controllers.all[number].kill()
        next_one = self.world.controllers.leader(other_than=number)
        return f"{number}; {next_one} leads after {time.monotonic() - begun:.1f} s"

    def kill_controller_and_master(self) -> str:
        number, broker = self.world.controllers.leader(), self._master()
        self.world.controllers.all[number].kill()
        self.world.brokers[broker].kill()
        return f"controller {number}, broker {broker}"

    def stop_controller_leader(self) -> str:
        """Past its lease: it believes to lead when it goes on."""
        number = self.world.controllers.leader()
        process = self.world.controllers.all[number].process
        self.world.paused.append(process.pid)
        process.pause()
        next_one = self.world.controllers.leader(other_than=number)
        time.sleep(self.rng.uniform(0, 3))
        process.resume()
        self.world.paused.remove(process.pid)
        return f"{number}; {next_one} led meanwhile"

    def hurt_etcd(self, *, leads: bool, kills: bool) -> str:
        leader = self.world.etcd.leader()
        others = [one for one in self.world.etcd.members if one is not leader]
        member = leader if leads and leader is not None else self.rng.choice(others)
        how_long = self.rng.uniform(1, 6)
        if kills:
            member.kill()
        else:
            member.pause()
        time.sleep(how_long)
        if kills:
            member.start()
        else:
            member.resume()
        return f"{member.name} for {how_long:.1f} s"

    def stop_quorum(self) -> str:
        """Nobody can lead; brokers go on in their roles."""
        members = self.rng.sample(self.world.etcd.members, 2)
        how_long = self.rng.uniform(2, 8)
        for member in members:
            member.pause()
        time.sleep(how_long)
        for member in members:
            member.signal(signal.SIGCONT)
        return f"{how_long:.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=8)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="etcd-faults-"))
    kinds = (EtcdWorld, EtcdFaults)
    wrong = run(options.seed, options.faults, options.only, root, kinds=kinds)
    for each in wrong[:30]:
        say(f"WRONG {each}")
    say(f"seed {options.seed}: {len(wrong)} wrong; files in {root}")
    return 1 if wrong else 0


if __name__ == "__main__":
    random.seed()
    raise SystemExit(main())

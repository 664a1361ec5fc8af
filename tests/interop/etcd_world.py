"""Three members of an etcd, three controllers of ours and three brokers, and who watches them.

    python -m tests.interop.etcd_world --seed 3 --faults 6

The watcher knows only what controllers answer (1004, 1005) and what stands in etcd: one master in
an epoch, and no answer that began after another one had ended names an older epoch, whichever
controllers gave the two.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import random
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.interop import harness
from tests.interop.etcd_load import AGAIN_S, QUEUES, Load, say
from tests.interop.processes import PeerError, process_tree, wait_until
from tests.support.etcd import Etcd, b64
from tests.support.our_broker import FrameClient, drain
from tools.chaos.free_ports import free_port

SAFE: Final = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}
MEMBER: Final = {
    "enableControllerMode": "true",
    "mappedFileSizeCommitLog": str(1 << 20),
    "controllerHeartBeatTimeoutMills": "3000",
    "checkSyncStateSetPeriod": "500",
    "syncBrokerMetadataPeriod": "1000",
}
_MASTER: Final = re.compile(rb'[{,]"?0"?:"([0-9.]+:[0-9]+)"')
_PROCESSES: Final = ("remoting", "store", "ha")
_ALONE_S: Final = 15.0
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


class EtcdWorld:
    """See the module."""

    def __init__(self, root: Path, **conf: str) -> None:
        self.root = root
        self.etcd = Etcd(root / "etcd").start()
        self.controllers = Controllers(root, self.etcd, {}).start()
        self.namesrv = harness.name_server("ours", root / "namesrv").start()
        self.brokers = {
            number: harness.broker(
                "ours",
                root / str(number),
                self.namesrv.address,
                name="group",
                conf={**MEMBER, "controllerAddr": self.controllers.address, **conf},
            )
            for number in (1, 2, 3)
        }
        self.paused: list[int] = []
        """Processes that stand still."""
        self.watcher = Watcher(self.controllers, self.etcd, "group")
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda one: one.start(), self.brokers.values()))

    @property
    def leader_address(self) -> str:
        return self.controllers.addresses[self.controllers.leader()]

    def wrong(self) -> list[str]:
        """What else was seen that must not be."""
        return self.watcher.stop()

    def revive(self) -> None:
        """Start whoever has ended."""
        for member in self.etcd.members:
            if member.process is None:
                member.start()
        self.controllers.start()
        for number, broker in self.brokers.items():
            if broker.process.is_alive():
                continue
            for attempt in range(4):
                try:
                    broker.start()
                    break
                except PeerError as error:
                    say(f"FIND? broker {number} did not start ({attempt}): {str(error)[-1500:]}")
                    time.sleep(1)

    def end(self) -> None:
        self.watcher.stop()
        for pid in self.paused:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        for broker in self.brokers.values():
            broker.kill()
        self.namesrv.stop()
        self.controllers.kill()
        self.etcd.stop()

    def master(self) -> int:
        """Whom the name server names; 0: nobody."""
        host, _, port = self.namesrv.address.rpartition(":")
        try:
            with FrameClient((host, int(port)), 3) as client:
                body = client.call(RequestCode.GET_BROKER_CLUSTER_INFO, {}).body
        except OSError:
            return 0
        found = _MASTER.search(body)
        if found is None:
            return 0
        address = found[1].decode()
        return next((n for n, broker in self.brokers.items() if broker.address == address), 0)

    def admin(self, *arguments: str) -> str:
        try:
            return harness.our_admin(self.root, *arguments)
        except PeerError as error:
            return f"failed: {str(error)[-300:]}"

    def members(self) -> set[int]:
        text = self.admin("getSyncStateSet", "-a", self.leader_address, "-b", "group")
        head = text.partition("NotInSync")[0]
        return {int(number) for number in re.findall(r"[Bb]rokerId[=:]\s*(\d+)", head)} - {0}

    def elect(self, number: int) -> str:
        return self.admin(
            *("electMaster", "-a", self.leader_address, "-b", str(number)),
            *("-bn", "group", "-c", "InteropCluster"),
        )

    def child(self, number: int, name: str) -> int:
        """The pid of a process of a broker; 0: it is not there."""
        broker = self.brokers[number]
        if name == "supervisor":
            return broker.process.pid
        for each in process_tree(broker.process.pid):
            if each.title == f"mqbroker: {name}":
                return each.pid
        return 0

    def signal(self, number: int, name: str, which: signal.Signals) -> int:
        pid = self.child(number, name)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)
        return pid

    def log_bytes(self, number: int) -> bytes:
        directory = self.brokers[number].store_dir / "commitlog"
        data = b"".join(path.read_bytes() for path in sorted(directory.glob("[0-9]" * 20)))
        return data.rstrip(b"\0")


class EtcdFaults:
    """Those of the group, and each role of etcd and of the controllers killed and stopped."""

    def __init__(self, world: EtcdWorld, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.all: dict[str, Callable[[], str]] = {
            "kill-master": self.kill_master,
            "stop-master": self.stop_master,
            "kill-process": self.kill_process,
            "elect": self.elect,
            "all": self.kill_all,
            "two-slaves": self.kill_two_slaves,
            "kill-controller": self.kill_controller_leader,
            "stop-controller": self.stop_controller_leader,
            "kill-controller-and-master": self.kill_controller_and_master,
            "kill-etcd-leader": lambda: self.hurt_etcd(leads=True, kills=True),
            "kill-etcd-follower": lambda: self.hurt_etcd(leads=False, kills=True),
            "stop-etcd-leader": lambda: self.hurt_etcd(leads=True, kills=False),
            "stop-etcd-follower": lambda: self.hurt_etcd(leads=False, kills=False),
            "no-quorum": self.stop_quorum,
        }

    def _master(self) -> int:
        wait_until(lambda: self.world.master() != 0, "a master named")
        return self.world.master()

    def _slaves(self) -> list[int]:
        return [number for number in (1, 2, 3) if number != self._master()]

    def kill_master(self) -> str:
        number = self._master()
        self.world.brokers[number].kill()
        return f"{number}"

    def stop_master(self) -> str:
        number, how_long = self._master(), self.rng.uniform(2, 12)
        process = self.world.brokers[number].process
        process.pause()
        time.sleep(how_long)
        process.resume()
        return f"{number} for {how_long:.1f} s"

    def kill_process(self) -> str:
        number, name = self._master(), self.rng.choice((*_PROCESSES, "supervisor"))
        self.world.signal(number, name, signal.SIGKILL)
        return f"{name} of {number}"

    def elect(self) -> str:
        number = self.rng.choice(self._slaves())
        return f"{number}: {self.world.elect(number)[:40]!r}"

    def kill_all(self) -> str:
        for broker in self.world.brokers.values():
            broker.kill()
        self.world.revive()
        return ""

    def kill_two_slaves(self) -> str:
        for number in self._slaves():
            self.world.brokers[number].kill()
        time.sleep(self.rng.uniform(0.2, 5))
        self.world.revive()
        return ""

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


def run(seed: int, faults: int, only: list[str], root: Path) -> list[str]:
    """One run; what is wrong."""
    rng = random.Random(seed)
    flush = rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    world = EtcdWorld(root, flushDiskType=flush, **SAFE)
    wrong: list[str] = []
    try:
        load = Load(world, seed)
        menu = EtcdFaults(world, rng)
        say(f"seed {seed}, {flush}; SEND_OK {load.wait_ok(time.monotonic()):.2f} s after the start")
        time.sleep(2)
        for number in range(faults):
            name = rng.choice(only or list(menu.all))
            begun = time.monotonic()
            say(f"fault {number}: {name}")
            try:
                what = menu.all[name]()
            except PeerError as error:
                what = f"FIND? {str(error)[-1500:]}"
            done = time.monotonic()
            again = load.wait_ok(done, _ALONE_S)
            if again >= _ALONE_S:
                # A new master that was killed before a slave had caught up was alone in the set.
                say("  nobody leads before the killed ones are started")
                world.revive()
                again = load.wait_ok(done)
            say(f"  {what}: SEND_OK {again:.2f} s after its end; longest gap {load.gap(begun):.2f}")
            if again >= AGAIN_S:
                wrong.append(f"fault {number} {name}: nobody takes messages")
                say(f"  {wrong[-1]}")
                break
            world.revive()
            if rng.random() < 0.7:
                start = time.monotonic()
                with contextlib.suppress(PeerError):
                    wait_until(lambda: world.members() == {1, 2, 3}, "the set", 40, poll_s=0.3)
                say(f"  set {world.members()} after {time.monotonic() - start:.1f} s")
            time.sleep(rng.uniform(0.5, 2))
        world.revive()
        wrong += _judge(world, load) + world.wrong()
    finally:
        world.end()
    return wrong


def _judge(world: EtcdWorld, load: Load) -> list[str]:
    wrong = load.troubles
    load.stop_producing()
    try:
        wait_until(lambda: world.members() == {1, 2, 3}, "the set is whole", 60, poll_s=0.5)
        wait_until(lambda: world.master() != 0, "a master", 30)
        time.sleep(12)
        wait_until(
            lambda: world.log_bytes(1) == world.log_bytes(2) == world.log_bytes(3), "logs equal", 40
        )
    except PeerError as error:
        wrong.append(str(error))
    load.stop()
    master = world.master()
    found: dict[bytes, list[tuple[str, int, int]]] = {}
    with world.brokers[master].client() as client:
        for topic in ("T", "D"):
            for queue in range(QUEUES):
                try:
                    for message in drain(client, topic, queue):
                        place = (topic, queue, message.queue_offset)
                        found.setdefault(message.body, []).append(place)
                except AssertionError as error:
                    wrong.append(f"drain {topic}/{queue}: {error}")
    say(f"answers {load.codes}, {len(load.taken)} taken, {len(load.delayed)} delayed")
    for body, place in load.taken.items():
        if found.get(body) != [place]:
            wrong.append(f"{body[:12]!r} was taken at {place}, found at {found.get(body)}")
    twice = [body[:12] for body in load.delayed if len(found.get(body, [])) > 1]
    wrong += [f"delayed {body[:12]!r} is lost" for body in load.delayed if body not in found]
    say(f"delayed ones delivered twice: {len(twice)}")
    places = {place[1:]: body for body, all_ in found.items() for place in all_ if place[0] == "T"}
    for where, body in load.seen.items():
        if places.get(where) != body:
            wrong.append(f"{body[:12]!r} was read at {where}, {places.get(where, b'')[:12]!r} now")
    doubled = [
        b[:12]
        for b, at in found.items()
        if len(at) > 1 and b not in load.delayed and at[0][0] == "T"
    ]
    wrong += [f"{body!r} is there twice" for body in doubled]
    say(f"{len(load.seen)} records were read on the way")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=8)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="etcd-faults-"))
    wrong = run(options.seed, options.faults, options.only, root)
    for each in wrong[:30]:
        say(f"WRONG {each}")
    say(f"seed {options.seed}: {len(wrong)} wrong; files in {root}")
    return 1 if wrong else 0


if __name__ == "__main__":
    random.seed()
    raise SystemExit(main())

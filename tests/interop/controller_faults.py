"""Faults, drawn from a seed, on three real brokers of ours in the safe mode of controller mode.

    python -m tests.interop.controller_faults --seed 7 --faults 8

Producers keep lists of what was answered SEND_OK, and where it is said to stand; consumers read any
member while everything runs, and note what they saw at each queue offset. In the end the group is
healed, and all of that is compared with what the last master has, and the three logs with each
other. Prints each fault and for how long nobody took messages.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from remoting.request_code import RequestCode
from tests.faults.shim import compile_shim
from tests.interop import harness
from tests.interop.processes import PeerError, process_tree, wait_until
from tests.support.our_broker import FrameClient, drain

SAFE: Final = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}
MEMBER: Final = {
    "enableControllerMode": "true",
    "mappedFileSizeCommitLog": str(1 << 20),
    "controllerHeartBeatTimeoutMills": "3000",
    "checkSyncStateSetPeriod": "500",
    "syncBrokerMetadataPeriod": "1000",
}
QUEUES: Final = 4
_MASTER: Final = re.compile(rb'[{,]"?0"?:"([0-9.]+:[0-9]+)"')
_PROCESSES: Final = ("remoting", "store", "ha")
_AGAIN_S: Final = 60.0
_ALONE_S: Final = 15.0


class World:
    """The group, its controller and its name server."""

    def __init__(self, root: Path, **conf: str) -> None:
        settings = {
            "scanNotActiveBrokerInterval": "500",
            "scanInactiveMasterInterval": "1000",
            "leaderWarmUpMillis": "3000",
        }
        self.controller = harness.controller(root / "controller", settings, kind="ours").start()
        self.namesrv = harness.name_server("ours", root / "namesrv").start()
        shim = compile_shim(Path("tests/faults/full_disk.c"), root)
        self.full = {number: root / f"full-{number}" for number in (1, 2, 3)}
        self.root = root
        self.brokers = {
            number: harness.broker(
                "ours",
                root / str(number),
                self.namesrv.address,
                name="group",
                conf={**MEMBER, "controllerAddr": self.controller.address, **conf},
                env={"LD_PRELOAD": str(shim), "FULL_DISK": str(self.full[number])},
            )
            for number in (1, 2, 3)
        }
        for number, broker in self.brokers.items():
            broker.start()
            wait_until(lambda number=number: f"#{number}" in self.identity(number), "its id")  # type: ignore[misc]
        self.paused: list[int] = []

    def identity(self, number: int) -> str:
        path = self.brokers[number].store_dir / "brokerIdentity"
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        for pid in self.paused:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        for broker in self.brokers.values():
            broker.kill()
        self.namesrv.stop()
        self.controller.kill()

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

    @property
    def leader_address(self) -> str:
        """Of a controller that knows who leads."""
        return self.controller.address

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

    def wrong(self) -> list[str]:
        """What else was seen that must not be."""
        return []

    def revive(self) -> None:
        """Start whoever has ended."""
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


def say(text: str) -> None:
    print(f"{time.monotonic() - _BEGUN:8.2f} {text}", flush=True)


_BEGUN: Final = time.monotonic()


class Load:
    """Producers and consumers, and what they know."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.taken: dict[bytes, tuple[str, int, int]] = {}
        """Body to topic, queue and queue offset, by the answers."""
        self.tried: set[bytes] = set()
        self.delayed: set[bytes] = set()
        self.seen: dict[tuple[int, int], bytes] = {}
        self.troubles: list[str] = []
        self.ok_at: list[float] = []
        self.codes: dict[str, int] = {}
        self.master = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        runs: list[Callable[[], None]] = [
            self._watch,
            *(lambda n=n: self._produce(n) for n in range(10)),
            *(lambda n=n: self._consume(random.Random(seed + n)) for n in range(2)),
        ]
        self._producing = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in runs]
        for thread in self._threads:
            thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.master = self.world.master() or self.master

    def _produce(self, me: int) -> None:
        count, client, to = 0, None, 0
        while not self._stop.wait(0.015) and not self._producing.is_set():
            try:
                if client is None or to != self.master:
                    if client is not None:
                        client.close()
                    to, client = self.master, None
                    if not to:
                        continue
                    client = self.world.brokers[to].client(6)
                count += 1
                late = count % 20 == 0
                body = b"%d-%d-" % (me, count) + b"x" * 400
                self.tried.add(body)
                fields = {
                    "a": "p",
                    "b": "D" if late else "T",
                    "c": "TBW102",
                    "d": QUEUES,
                    "e": count % QUEUES,
                    "f": 0,
                    "g": int(time.time() * 1000),
                    "h": 0,
                    "i": "DELAY\x012\x02" if late else f"KEYS\x01{me}-{count}\x02",
                    "j": 0,
                    "k": "false",
                    "l": 16,
                    "m": "false",
                }
                sent = client.take_send(client.post(310, fields, body))
                with self._lock:
                    self.codes[str(sent.code)] = self.codes.get(str(sent.code), 0) + 1
                    if sent.code == 0:
                        self.ok_at.append(time.monotonic())
                        if late:
                            self.delayed.add(body)
                        else:
                            self.taken[body] = ("T", sent.queue_id, sent.queue_offset)
            except OSError as error:
                with self._lock:
                    name = type(error).__name__
                    self.codes[name] = self.codes.get(name, 0) + 1
                if client is not None:
                    client.close()
                client = None
                time.sleep(0.02)

    def _consume(self, rng: random.Random) -> None:
        at = dict.fromkeys(range(QUEUES), 0)
        while not self._stop.is_set():
            number = rng.choice((1, 2, 3))
            try:
                with self.world.brokers[number].client(3) as client:
                    for _ in range(rng.randrange(1, 40)):
                        queue = rng.randrange(QUEUES)
                        pulled = client.pull("T", queue, at[queue])
                        for message in pulled.messages:
                            self._see(number, queue, message.queue_offset, message.body)
                            at[queue] = max(at[queue], message.queue_offset + 1)
                        time.sleep(0.01)
            except OSError:
                time.sleep(0.05)

    def _see(self, number: int, queue: int, offset: int, body: bytes) -> None:
        with self._lock:
            known = self.seen.setdefault((queue, offset), body)
        if known != body:
            self.troubles.append(
                f"{number} shows {body[:20]!r} at {queue}/{offset}, where {known[:20]!r} was read"
            )

    def wait_ok(self, since: float, limit_s: float = _AGAIN_S) -> float:
        """Seconds from `since` to the first SEND_OK for a message ... after it."""
        while time.monotonic() - since < limit_s:
            with self._lock:
                later = [at for at in self.ok_at[-50:] if at > since + 0.3]
            if later:
                return later[0] - since
            time.sleep(0.02)
        return limit_s

    def gap(self, since: float) -> float:
        """The longest time without a SEND_OK from `since` on."""
        with self._lock:
            times = [since, *(at for at in self.ok_at if at > since), time.monotonic()]
        return max(b - a for a, b in itertools.pairwise(times))

    def stop_producing(self) -> None:
        self._producing.set()
        for thread in self._threads[1:11]:
            thread.join(15)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10)


class Faults:
    """What is done to the world."""

    def __init__(self, world: World, load: Load, rng: random.Random) -> None:
        self.world, self.load, self.rng = world, load, rng
        self.all: dict[str, Callable[[], str]] = {
            "kill-master": self.kill_master,
            "kill-process": self.kill_process,
            "kill-slave": self.kill_slave,
            "stop-master": self.stop_master,
            "stop-process": self.stop_process,
            "controller": self.kill_controller,
            "namesrv": self.restart_namesrv,
            "elect": self.elect,
            "elect-kill": self.elect_and_kill,
            "all": self.kill_all,
            "full": self.fill_disk,
            "slave-process": self.slave_process,
            "ha-then-kill": self.stop_ha_then_kill,
            "master-and-controller": self.kill_master_and_controller,
            "two-slaves": self.kill_two_slaves,
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

    def kill_process(self) -> str:
        number, name = self._master(), self.rng.choice((*_PROCESSES, "supervisor"))
        self.world.signal(number, name, signal.SIGKILL)
        return f"{name} of {number}"

    def slave_process(self) -> str:
        number, name = self.rng.choice(self._slaves()), self.rng.choice((*_PROCESSES, "supervisor"))
        which = self.rng.choice((signal.SIGKILL, signal.SIGSTOP))
        if which == signal.SIGSTOP and name != "supervisor":
            self._stand(number, name)
        else:
            self.world.signal(number, name, signal.SIGKILL)
        return f"{which.name} {name} of slave {number}"

    def kill_slave(self) -> str:
        number = self.rng.choice(self._slaves())
        self.world.brokers[number].kill()
        return f"{number}"

    def kill_two_slaves(self) -> str:
        for number in self._slaves():
            self.world.brokers[number].kill()
        time.sleep(self.rng.uniform(0.2, 5))
        self.world.revive()
        return ""

    def stop_master(self) -> str:
        number, how_long = self._master(), self.rng.uniform(2, 12)
        process = self.world.brokers[number].process
        process.pause()
        time.sleep(how_long)
        process.resume()
        return f"{number} for {how_long:.1f} s"

    def _stand(self, number: int, name: str) -> float:
        how_long = self.rng.uniform(2, 12)
        pid = self.world.signal(number, name, signal.SIGSTOP)
        self.world.paused.append(pid)
        time.sleep(how_long)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        self.world.paused.remove(pid)
        return how_long

    def stop_process(self) -> str:
        number, name = self._master(), self.rng.choice(_PROCESSES)
        how_long = self._stand(number, name)
        return f"{name} of {number} for {how_long:.1f} s"

    def stop_ha_then_kill(self) -> str:
        """A tail that only the master has."""
        number = self._master()
        self.world.signal(number, "ha", signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.05, 1))
        self.world.brokers[number].kill()
        return f"{number}"

    def kill_controller(self) -> str:
        self.world.controller.kill()
        time.sleep(self.rng.uniform(0, 4))
        self.world.controller.start()
        return ""

    def kill_master_and_controller(self) -> str:
        number = self._master()
        self.world.controller.kill()
        self.world.brokers[number].kill()
        time.sleep(self.rng.uniform(0, 4))
        self.world.controller.start()
        return f"{number}"

    def restart_namesrv(self) -> str:
        self.world.namesrv.stop()
        self.world.namesrv.start()
        return ""

    def elect(self) -> str:
        number = self.rng.choice(self._slaves())
        return f"{number}: {self.world.elect(number)[:40]!r}"

    def elect_and_kill(self) -> str:
        old, number = self._master(), self.rng.choice(self._slaves())
        who = self.rng.choice((old, number))
        name = self.rng.choice((*_PROCESSES, "supervisor", "all"))
        log_path = self.world.brokers[who].process.log_path.parent
        before = self._orders(log_path)
        asking = threading.Thread(target=self.world.elect, args=(number,))
        asking.start()
        deadline = time.monotonic() + 8
        while self._orders(log_path) == before and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(self.rng.choice((0, 0, 0.01, 0.05, 0.2)))
        if name == "all":
            self.world.brokers[who].kill()
        else:
            self.world.signal(who, name, signal.SIGKILL)
        asking.join()
        return f"{number}, then {name} of {who} ({'old' if who == old else 'new'})"

    def _orders(self, directory: Path) -> int:
        total = 0
        for path in directory.rglob("ha.log"):
            total += path.read_bytes().count(b": order ")
        return total

    def kill_all(self) -> str:
        for broker in self.world.brokers.values():
            broker.kill()
        self.world.revive()
        return ""

    def fill_disk(self) -> str:
        number = self.rng.choice((self._master(), self.rng.choice(self._slaves())))
        how_long = self.rng.uniform(2, 10)
        self.world.full[number].touch()
        time.sleep(how_long)
        self.world.full[number].unlink()
        return f"{number} for {how_long:.1f} s"


def run(
    seed: int,
    faults: int,
    only: list[str],
    root: Path,
    more: Mapping[str, str] | None = None,
    kinds: tuple[type[World], type[Faults]] | None = None,
) -> list[str]:
    """One run; what is wrong. more: settings of the brokers. kinds: of another world."""
    kind_of_world, kind_of_faults = kinds or (World, Faults)
    rng = random.Random(seed)
    flush = rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
    world = kind_of_world(root, **{"flushDiskType": flush, **SAFE, **(more or {})})
    wrong: list[str] = []
    try:
        load = Load(world, seed)
        menu = kind_of_faults(world, load, rng)
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
            if again >= _AGAIN_S:
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


def _judge(world: World, load: Load) -> list[str]:
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
    parser.add_argument("--conf", action="append", default=[], help="key=value")
    parser.add_argument("--root", type=Path, default=None)
    options = parser.parse_args()
    root = options.root or Path(tempfile.mkdtemp(prefix="controller-faults-"))
    root.mkdir(parents=True, exist_ok=True)
    more = dict(each.split("=", 1) for each in options.conf)
    wrong = run(options.seed, options.faults, options.only, root, more)
    for each in wrong[:30]:
        say(f"WRONG {each}")
    say(f"seed {options.seed}: {len(wrong)} wrong; files in {root}")
    if not wrong and options.root is None:
        shutil.rmtree(root)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

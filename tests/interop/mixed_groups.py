"""Groups of three brokers, Java's and ours in any mix, under controllers of either world: one node
or three, of the DLedger and the jRaft kind of 5.3.3, or ours.

A world is such a group with its controllers, its name server and one client, who keeps a list of
what it was answered SEND_OK and where that is said to stand. The judges below read the files of the
logs, whoever wrote them. Brokers reach the controllers through a network that can be cut
(tools/chaos/network.py); a jRaft controller names itself to them, so that there only what goes to
controllerAddr (heartbeats among it) passes the network. Used by one thread, but for its client.

P38, seen with 5.3.3 brokers: a follower whose new master is not registered yet when it asks the
name server is told the HA port of the old one. It connects to it if it lives, as that port stays
open, and only writes down what it is told later: it follows a follower for as long as the
connection lasts, and is in no set. P39, seen too: a 5.3.3 master that is replaced while it lives
may wait 90 s for its own TransactionalMessageCheckService before it follows.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from remoting.body.controller import BrokerReplicasInfo, ReplicasInfo
from remoting.command_custom_header import encode_header
from remoting.headers.controller import ElectMasterRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.remoting_serializable import dumps_java
from remoting.request_code import RequestCode
from tests.interop import harness
from tests.interop.processes import PeerError, wait_until
from tests.interop.replication import messages
from tests.support.etcd import Etcd
from tests.support.members import ids_in_sync, known_ids
from tests.support.our_broker import FrameClient, drain
from tools.chaos.free_ports import free_port
from tools.chaos.network import Network, both_ways

CLUSTER: Final = "InteropCluster"
TOPIC: Final = "T"
QUEUES: Final = 4
HEARTBEAT_S: Final = 3.0
"""A broker is dead to the controller when it has been silent for so long."""
KINDS: Final = {"J": harness.JAVA_5, "O": "ours"}
_WAIT_S: Final = 90.0
_ALL_S: Final = 150.0
_CHAINED_S: Final = 20.0
_SEND_S: Final = 4.0
_PAUSE_S: Final = 0.01
_MEMBER: Final = {
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    "minInSyncReplicas": "2",
    "brokerRole": "SLAVE",
    "brokerId": "-1",
    "mappedFileSizeCommitLog": str(1 << 20),
    "controllerHeartBeatTimeoutMills": str(int(HEARTBEAT_S * 1000)),
    "checkSyncStateSetPeriod": "500",
    "syncBrokerMetadataPeriod": "1000",
    "syncControllerMetadataPeriod": "1000",
    # A follower that comes too early is heard again soon.
    "haSendHeartbeatInterval": "1000",
    "haHousekeepingInterval": "5000",
}
_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms64m", "-Xmx256m")
_SCANS: Final = {"scanNotActiveBrokerInterval": "500", "scanInactiveMasterInterval": "1000"}


@dataclass(frozen=True, kw_only=True)
class Guard:
    """Whom a group lets in, and how those come who may."""

    servers: Mapping[str, str] = field(default_factory=dict)
    """Settings of name server and controllers of ours."""
    ours: Mapping[str, str] = field(default_factory=dict)
    """Of our brokers."""
    java: Mapping[str, str] = field(default_factory=dict)
    """Of Java's."""
    jvm: tuple[str, ...] = ()
    """Options of Java's brokers and controllers."""
    connect: harness.Connect = FrameClient


class Place(NamedTuple):
    """Where a message stands."""

    queue_id: int
    queue_offset: int


# -- the judges ------------------------------------------------------------------------------------


def log_differences(logs: Mapping[str, bytes]) -> list[str]:
    """What is wrong with logs that have to be the same, by the names of their owners."""
    (first, expected), *others = logs.items()
    found = [] if expected else [f"the log of {first} is empty"]
    for name, log in others:
        if log == expected:
            continue
        at = next(
            (n for n, (a, b) in enumerate(zip(expected, log, strict=False)) if a != b),
            min(len(expected), len(log)),
        )
        sizes = f"{len(expected)} and {len(log)} bytes"
        found.append(f"the logs of {first} and {name} differ from byte {at} on ({sizes})")
    return found


def list_differences(
    taken: Mapping[bytes, Place], found: Iterable[tuple[bytes, Place]]
) -> list[str]:
    """What of a client's list is not exactly once where the client was told; what was not answered
    may be there or not, but once at most."""
    places: dict[bytes, list[Place]] = {}
    for body, place in found:
        places.setdefault(body, []).append(place)
    wrong = [
        f"{body[:30]!r}: told {place}, found at {places.get(body, [])}"
        for body, place in taken.items()
        if places.get(body) != [place]
    ]
    doubled = [body for body, where in places.items() if len(where) > 1 and body not in taken]
    return wrong + [f"{body[:30]!r} is there {len(places[body])} times" for body in doubled]


# -- the controllers -------------------------------------------------------------------------------


class Controllers:
    """`nodes` of a kind: "dledger", "jraft" or "ours"; three of ours share an etcd."""

    def __init__(self, root: Path, kind: str, nodes: int, network: Network, guard: Guard) -> None:
        self.kind = kind
        self._connect = guard.connect
        self.addresses: list[str] = []
        """As brokers know them: through the network."""
        self._bound: dict[str, str] = {}
        """Address that 1005 may name to the one where a node listens."""
        self._etcd = Etcd(root / "etcd", 1) if kind == "ours" and nodes > 1 else None
        ports = [free_port() for _ in range(nodes)]
        hosts = [f"127.0.1.{number}" for number in range(1, nodes + 1)]
        make = self._jraft if kind == "jraft" else self._dledger
        confs = make(hosts, ports)
        self.all = [
            harness.controller(
                root / f"controller-{number}",
                {**_SCANS, **conf, **(guard.servers if kind == "ours" else {})},
                kind="ours" if kind == "ours" else harness.JAVA_5,
                port=ports[number],
                jvm=guard.jvm,
            )
            for number, conf in enumerate(confs)
        ]
        for host, port, name in zip(hosts, ports, self.names, strict=True):
            outside = free_port() if kind == "jraft" else port
            network.lead((host, outside), (_bound_host(kind), port), name)
            self.addresses.append(f"{host}:{outside}")
            inside = f"{_bound_host(kind)}:{port}"
            self._bound |= {f"{host}:{outside}": inside, inside: inside}

    @property
    def names(self) -> list[str]:
        """In the network."""
        return [f"controller-{number}" for number in range(len(self.all))]

    def _dledger(self, hosts: Sequence[str], ports: Sequence[int]) -> list[dict[str, str]]:
        pairs = enumerate(zip(hosts, ports, strict=True))
        peers = ";".join(f"n{number}-{host}:{port}" for number, (host, port) in pairs)
        shared = {"controllerDLegerPeers": peers, "bindAddress": _bound_host(self.kind)}
        if self.kind == "ours":
            shared["leaderWarmUpMillis"] = "1000"
        if self._etcd is not None:
            shared |= {"controllerStore": "etcd", "etcdEndpoints": self._etcd.text}
            shared["etcdLeaseSeconds"] = "3"
        return [{**shared, "controllerDLegerSelfId": f"n{n}"} for n in range(len(ports))]

    def _jraft(self, _hosts: Sequence[str], ports: Sequence[int]) -> list[dict[str, str]]:
        raft = [free_port() for _ in ports]
        shared = {
            "controllerType": "jRaft",
            "jRaftInitConf": ",".join(f"127.0.0.1:{port}" for port in raft),
            "jRaftControllerRPCAddr": ",".join(f"127.0.0.1:{port}" for port in ports),
        }
        return [{**shared, "jRaftServerId": f"127.0.0.1:{port}"} for port in raft]

    def start(self) -> None:
        """Until one of them leads."""
        if self._etcd is not None:
            self._etcd.start()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda one: one.start(), self.all))
        wait_until(lambda: self.find_leader() is not None, f"a leader\n{self.logs()}", _WAIT_S)

    def end(self) -> None:
        for one in self.all:
            one.kill()
        if self._etcd is not None:
            self._etcd.stop()

    def owners(self) -> dict[int, str]:
        """Pid to name of those that live."""
        living = zip(self.names, self.all, strict=True)
        return {one.process.pid: name for name, one in living if one.process.is_alive()}

    def find_leader(self) -> str | None:
        """Where it listens."""
        for one, address in zip(self.all, self.addresses, strict=True):
            if not one.process.is_alive():
                continue
            with contextlib.suppress(OSError):
                bound = self._bound[address]
                answer = self._asked(bound, RequestCode.CONTROLLER_GET_METADATA_INFO)
                named = answer.ext_fields.get("controllerLeaderAddress", "")
                if named in self._bound:
                    return self._bound[named]
        return None

    def kill_leader(self) -> harness.Controller:
        """Whoever leads now."""
        leader = self.find_leader()
        bound = [self._bound[address] for address in self.addresses]
        one = self.all[bound.index(str(leader))]
        one.kill()
        return one

    def ask(
        self, code: RequestCode, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """The leader's answer. Raises OSError where there is none."""
        leader = self.find_leader()
        if leader is None:
            raise ConnectionError("no controller leads")
        return self._asked(leader, code, fields, body)

    def _asked(
        self,
        address: str,
        code: RequestCode,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        host, _, port = address.rpartition(":")
        with self._connect((host, int(port)), 5) as client:
            return client.call(code, fields or {}, body)

    def logs(self) -> str:
        return "\n".join(one.log_tail() for one in self.all)


def _bound_host(kind: str) -> str:
    return "127.0.0.1" if kind == "jraft" else "127.0.0.2"


# -- the client ------------------------------------------------------------------------------------


class Sender:
    """Sends to whoever takes it, one message at a time, each of them once, and keeps the list."""

    def __init__(self, brokers: Callable[[], Sequence[harness.Broker]]) -> None:
        self.taken: dict[bytes, Place] = {}
        self._brokers = brokers
        self._sent = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns when nothing is on its way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(60)
            assert not self._thread.is_alive()

    def wait_for_more(self, count: int, what: str) -> None:
        """Until that many more were answered SEND_OK."""
        goal = len(self.taken) + count
        wait_until(lambda: len(self.taken) >= goal, f"{count} more SEND_OK: {what}", _WAIT_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            for broker in self._brokers():
                with contextlib.suppress(OSError), broker.client(_SEND_S) as client:
                    while self._send(client) and not self._stop.wait(_PAUSE_S):
                        pass
            self._stop.wait(0.1)

    def _send(self, client: FrameClient) -> bool:
        self._sent += 1
        body = b"%d " % self._sent + b"." * (self._sent * 37 % 3000)
        sent = client.send(TOPIC, self._sent % QUEUES, body)
        if sent.code == 0:
            self.taken[body] = Place(sent.queue_id, sent.queue_offset)
        return sent.code == 0


# -- the world -------------------------------------------------------------------------------------


class MixedGroup:
    """See the module; `mix` has a letter for each broker, by its id: J for Java's, O for ours."""

    def __init__(
        self, root: Path, mix: str, kind: str, nodes: int, guard: Guard | None = None
    ) -> None:
        guard = guard or Guard()
        self.name = f"{mix}-{kind}-{nodes}"
        self.mix = mix
        self.network = Network()
        self.controllers = Controllers(root, kind, nodes, self.network, guard)
        self.namesrv = harness.name_server("ours", root / "namesrv", settings=guard.servers)
        conf = {**_MEMBER, "controllerAddr": ";".join(self.controllers.addresses)}
        self.ha_ports = {number: free_port() for number in range(1, len(mix) + 1)}
        self.chained: list[int] = []
        """Who was seen to follow a master that had been replaced (P38)."""
        self.brokers = {
            number: harness.broker(
                KINDS[letter],
                root / f"broker-{number}",
                self.namesrv.address,
                name=self.name,
                conf={
                    **conf,
                    "haListenPort": str(self.ha_ports[number]),
                    **(guard.ours if letter == "O" else guard.java),
                },
                jvm=(*_JVM, *guard.jvm),
            )
            for number, letter in enumerate(mix, 1)
        }
        for broker in self.brokers.values():
            broker.connect = guard.connect
        self.sender = Sender(lambda: list(self.brokers.values()))

    def start(self) -> MixedGroup:
        """Until all three are in the set; they have their ids in the order of their letters."""
        self.namesrv.start()
        self.controllers.start()
        self.network.know(self.controllers.owners())
        with ThreadPoolExecutor() as pool:
            starting = []
            for number in self.brokers:
                starting.append(pool.submit(self.start_broker, number))
                wait_until(lambda n=number: n in self.known(), self._what(f"id {number}"), _WAIT_S)  # type: ignore[misc]
            for started in starting:
                started.result()
        self.wait_for_all()
        return self

    def end(self) -> None:
        self.sender.stop()
        for broker in self.brokers.values():
            broker.kill()
        self.namesrv.stop()
        self.controllers.end()
        self.network.close()

    def start_broker(self, number: int) -> None:
        """The network knows whose connections are the broker's before it makes the first one."""
        broker, told = self.brokers[number], 0
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(broker.start)
            while not starting.done():
                with contextlib.suppress(PeerError):
                    if broker.process.pid != told:
                        told = broker.process.pid
                        self.know_owners()
                threading.Event().wait(0.005)
            starting.result()

    def know_owners(self) -> None:
        """Whose processes are whose now."""
        owners = self.controllers.owners()
        for number, broker in self.brokers.items():
            with contextlib.suppress(PeerError):
                owners[broker.process.pid] = _node(number)
        self.network.know(owners)

    def cut(self, number: int) -> None:
        """The broker and the controllers hear nothing of each other; no connection ends."""
        self.network.cut(both_ways(_node(number), self.controllers.names))

    # What the controllers say

    def info(self) -> ReplicasInfo | None:
        """Of this group."""
        body = dumps_java([self.name])
        try:
            answer = self.controllers.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
        except OSError:
            return None
        if answer.code != 0:
            return None
        return BrokerReplicasInfo.from_json_bytes(answer.body).replicas_info_table.get(self.name)

    def members(self) -> set[int | None]:
        """The SyncStateSet."""
        return ids_in_sync(self.info())

    def known(self) -> set[int | None]:
        return known_ids(self.info())

    def master(self) -> tuple[int, int]:
        """Its id and epoch; 0, 0: nobody says."""
        found = self.info()
        if found is None:
            return 0, 0
        return found.master_broker_id or 0, found.master_epoch or 0

    def wait_for_all(self, *, demoted: int = 0) -> None:
        """Until all are in the set. demoted: who led until now, and lives. A Java follower may go
        on following it (P38, see the module); it is then restarted, as an operator has to do."""

        def are_in() -> bool:
            return self.members() == set(self.brokers)

        if demoted and self.brokers[demoted].kind != "ours":
            self.free_followers(demoted)
        wait_until(are_in, self._what("all in the set"), _ALL_S, poll_s=0.2)

    def free_followers(self, demoted: int) -> None:
        """Until all but that one are in the set. A Java follower that is not may follow it still
        (P38): it is restarted. Any other reason fails."""
        others = self.brokers.keys() - {demoted}
        with contextlib.suppress(PeerError):
            wait_until(lambda: others <= self.members(), "the set", _CHAINED_S, poll_s=0.2)
            return
        for number in sorted(others - self.members()):
            broker = self.brokers[number]
            assert broker.kind != "ours", self._what(f"{number} of ours does not follow")
            assert self.ha_ports[demoted] in ports_reached(broker.process.pid)
            self.chained.append(number)
            broker.kill()
            self.start_broker(number)

    def wait_for_master(self, *, other_than: int) -> int:
        """As the controllers say."""
        wait_until(
            lambda: self.master()[0] not in (0, other_than),
            self._what(f"another master than {other_than}"),
            _WAIT_S,
            poll_s=0.1,
        )
        return self.master()[0]

    def designate(self, number: int) -> None:
        """Until that one leads and all are in its set."""
        demoted = self.master()[0]
        if demoted == number:
            demoted = 0
        else:
            header = ElectMasterRequestHeader(
                cluster_name=CLUSTER,
                broker_name=self.name,
                broker_id=number,
                designate_elect=True,
                invoke_time=0,
            )
            answer = self.controllers.ask(
                RequestCode.CONTROLLER_ELECT_MASTER, encode_header(header)
            )
            assert answer.code == 0, answer.remark
        self.wait_for_all(demoted=demoted)

    # What is on the disks, and what is read

    def log_bytes(self, number: int) -> bytes:
        """All files of a commit log, without what is allocated ahead."""
        directory = self.brokers[number].store_dir / "commitlog"
        return b"".join(path.read_bytes() for path in sorted(directory.iterdir())).rstrip(b"\0")

    def judge(self) -> list[str]:
        """What is wrong now that nobody sends: the logs, and the client's list in each of them and
        in what a consumer reads of the master."""
        logs: dict[str, bytes] = {}

        def are_the_same() -> bool:
            logs.update({_node(number): self.log_bytes(number) for number in self.brokers})
            return log_differences(logs) == []

        with contextlib.suppress(PeerError):
            wait_until(are_the_same, "equal logs", 30, poll_s=0.2)
        wrong = log_differences(logs)
        for number in self.brokers:
            found = list_differences(self.sender.taken, self.stored(number))
            wrong += [f"in the log of {_node(number)}: {text}" for text in found]
        found = list_differences(self.sender.taken, self.read())
        return wrong + [f"read of the master: {text}" for text in found]

    def stored(self, number: int) -> list[tuple[bytes, Place]]:
        """The messages in the files of a log, in their order."""
        return [
            (bytes(each.body), Place(each.queue_id, each.queue_offset))
            for each in messages(self.brokers[number])
            if each.topic == TOPIC
        ]

    def read(self) -> list[tuple[bytes, Place]]:
        """What a consumer gets of the master, once the master shows all that it was answered."""
        read: list[tuple[bytes, Place]] = []

        def has_all() -> bool:
            with self.brokers[self.master()[0]].client() as client:
                read[:] = [
                    (bytes(each.body), Place(queue, each.queue_offset))
                    for queue in range(QUEUES)
                    for each in drain(client, TOPIC, queue)
                ]
            return self.sender.taken.keys() <= {body for body, _ in read}

        with contextlib.suppress(PeerError):
            wait_until(has_all, "all of them read", 15, poll_s=0.5)
        return read

    def _what(self, text: str) -> str:
        return f"{text} in {self.name}"

    def logs(self) -> str:
        tails = [broker.log_tail() for broker in self.brokers.values()]
        return "\n".join([*tails, self.controllers.logs()])


def ports_reached(pid: int) -> set[int]:
    """Of loopback, by a process's connections."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(entry.readlink().name)
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    mine = (fields[2] for fields in lines if f"socket:[{fields[9]}]" in inodes)
    return {int(remote.rpartition(":")[2], 16) for remote in mine}


def _node(number: int) -> str:
    return f"broker-{number}"

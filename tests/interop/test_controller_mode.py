"""Groups of real brokers of ours under a real 5.3.3 controller: elections, failover, role changes.
The long run has all of it under our own controller, too.

One controller and one name server for all tests. What counts is what a client was answered and what
it reads, what the controller says (1006), and the bytes of the commit logs. The brokers of a group
are numbered in the order of their first start, which is the order of their ids.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.failover.adopt_log import WRITTEN
from broker.failover.adopt_log import main as adopt_log
from remoting.body.controller import BrokerReplicasInfo, ReplicasInfo
from remoting.command_custom_header import encode_header
from remoting.headers.controller import ElectMasterRequestHeader
from remoting.remoting_client import RemotingClient
from remoting.remoting_command import RemotingCommand
from remoting.remoting_config import RemotingClientConfig
from remoting.remoting_serializable import dumps_java
from remoting.request_code import RequestCode
from tests.interop import harness
from tests.interop.processes import PeerError, process_tree, wait_until
from tests.support.members import ids_in_sync, known_ids
from tests.support.our_broker import FrameClient, Sent, drain, stands_still

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

CLUSTER = "InteropCluster"
SAFE = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}
MEMBER = {
    "enableControllerMode": "true",
    "brokerRole": "SLAVE",
    "brokerId": "-1",
    "mappedFileSizeCommitLog": str(1 << 20),
    "controllerHeartBeatTimeoutMills": "3000",
    "checkSyncStateSetPeriod": "500",
    "syncBrokerMetadataPeriod": "1000",
    "metricsDumpIntervalSeconds": "1",
}
_WAIT_S = 30


class Places:
    """What all groups share."""

    def __init__(self, root: Path, controller: str = harness.JAVA_5) -> None:
        settings = {"scanNotActiveBrokerInterval": "500", "scanInactiveMasterInterval": "1000"}
        if controller == "ours":
            settings["leaderWarmUpMillis"] = "1000"
        self.controller = harness.controller(root / "controller", settings, kind=controller).start()
        self.namesrv = harness.name_server("ours", root / "namesrv").start()
        self.asker = RemotingClient(RemotingClientConfig())
        self.asker.start()

    def end(self) -> None:
        self.asker.shutdown()
        self.namesrv.stop()
        self.controller.kill()


@pytest.fixture(
    scope="module", params=[harness.JAVA_5, pytest.param("ours", marks=pytest.mark.long)]
)
def places(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Places]:
    places = Places(tmp_path_factory.mktemp("places"), request.param)
    yield places
    places.end()


class Group:
    """The brokers of one broker name, by the ids that they get."""

    def __init__(self, places: Places, root: Path, name: str, **conf: str) -> None:
        self.places = places
        self.root = root
        self.name = name
        self.conf = {**MEMBER, "controllerAddr": places.controller.address, **conf}
        self.brokers: dict[int, harness.Broker] = {}

    def add(self, kind: str = "ours", **conf: str) -> harness.Broker:
        """One more broker; it has its id when this returns."""
        number = len(self.brokers) + 1
        broker = harness.broker(
            kind,
            self.root / str(number),
            self.places.namesrv.address,
            name=self.name,
            conf={**self.conf, **conf},
        ).start()
        self.brokers[number] = broker
        wait_until(lambda: number in self.known(), f"id {number} given", _WAIT_S)
        return broker

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    # What the controller says

    def ask(
        self, code: RequestCode, body: bytes = b"", fields: dict[str, str] | None = None
    ) -> RemotingCommand:
        command = RemotingCommand.request(code, fields, body)
        return self.places.asker.invoke_sync(self.places.controller.address, command, 5_000)

    def info(self) -> ReplicasInfo | None:
        answer = self.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, dumps_java([self.name]))
        found = BrokerReplicasInfo.from_json_bytes(answer.body)
        return found.replicas_info_table.get(self.name)

    def members(self) -> set[int | None]:
        return ids_in_sync(self.info())

    def known(self) -> set[int | None]:
        return known_ids(self.info())

    @property
    def master_id(self) -> int:
        found = self.info()
        return 0 if found is None else found.master_broker_id or 0

    def wait_for_set(self, *members: int) -> None:
        wait_until(
            lambda: self.members() == set(members),
            f"{members} in the set\n{self.logs()}",
            _WAIT_S,
            poll_s=0.05,
        )

    def elect(self, broker_id: int) -> None:
        """As `mqadmin electMaster`."""
        header = ElectMasterRequestHeader(
            cluster_name=CLUSTER,
            broker_name=self.name,
            broker_id=broker_id,
            designate_elect=True,
            invoke_time=int(time.time() * 1000),
        )
        answer = self.ask(RequestCode.CONTROLLER_ELECT_MASTER, fields=encode_header(header))
        assert answer.code == 0, answer.remark

    # What a client sees

    def wait_for_master(self, *, other_than: int = 0) -> int:
        """The id of a master that takes messages; other_than: the one that was there."""
        found: list[int] = []

        def is_there() -> bool:
            for number, broker in self.brokers.items():
                if number != other_than and broker.process.is_alive() and takes(broker):
                    found.append(number)
                    return True
            return False

        wait_until(is_there, f"a master that takes messages\n{self.logs()}", _WAIT_S)
        return found[0]

    def logs(self) -> str:
        return "\n".join(broker.log_tail() for broker in self.brokers.values())

    # What is on the disks

    def log_bytes(self, number: int) -> bytes:
        """All files of a commit log, without what is allocated ahead."""
        directory = self.brokers[number].store_dir / "commitlog"
        data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
        return data.rstrip(b"\0")


def takes(broker: harness.Broker) -> bool:
    """Whether a send is answered SEND_OK."""
    try:
        with broker.client(5) as client:
            return client.send("probe", 0, b"p").code == 0
    except OSError:
        return False


def send_all(client: FrameClient, bodies: Sequence[bytes]) -> list[Sent]:
    """All of them in flight at once; the answers, in their order."""
    opaques = [client.post_send("T", number % 4, body) for number, body in enumerate(bodies)]
    return [client.take_send(opaque) for opaque in opaques]


def read_all(broker: harness.Broker, topic: str = "T") -> list[bytes]:
    """What a consumer reads of four queues."""
    with broker.client() as client:
        return [each.body for queue in range(4) for each in drain(client, topic, queue)]


@pytest.fixture
def group(places: Places, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Group]:
    """Of the test's own name, in the safe mode."""
    group = Group(places, tmp_path, request.node.originalname.replace("test_", "")[:40], **SAFE)
    yield group
    group.end()


def test_one_broker_gets_an_id_and_leads(places: Places, tmp_path: Path) -> None:
    group = Group(places, tmp_path, "lonely")
    try:
        broker = group.add()
        assert group.wait_for_master() == 1
        assert group.members() == {1}
        with broker.client() as client:
            first, second = (client.send("T", 0, body) for body in (b"one", b"two"))
            assert (first.code, second.code) == (0, 0)
            wait_until(lambda: client.offset(30, "T", 0) == 2, "dispatched", _WAIT_S)
            assert [each.body for each in drain(client, "T", 0)] == [b"one", b"two"]
        assert (broker.store_dir / "brokerIdentity").read_text() == f"{CLUSTER}#lonely#1"
        shown = harness.our_admin(
            tmp_path, "getBrokerEpoch", "-b", "lonely", "-n", places.namesrv.address
        )
        assert "#Epoch: EpochEntry{epoch=1, startOffset=0, endOffset=" in shown
        shown = harness.our_admin(
            tmp_path, "haStatus", "-b", broker.address, "-n", places.namesrv.address
        )
        assert "master, log ends at" in shown
    finally:
        group.end()


def test_a_log_from_before_controller_mode_needs_a_list_of_epochs(
    places: Places, tmp_path: Path
) -> None:
    """Nobody knows whose bytes it has, until an operator says that the group goes on with them."""
    size = {"mappedFileSizeCommitLog": MEMBER["mappedFileSizeCommitLog"]}
    plain = harness.broker("ours", tmp_path / "1", places.namesrv.address, name="older", conf=size)
    with harness.served(plain) as client:
        assert client.send("T", 0, b"old").code == 0
    group = Group(places, tmp_path, "older")
    try:
        with pytest.raises(PeerError, match=r"broker\.failover\.adopt_log -c SETTINGS"):
            group.add()
        assert adopt_log(["-c", str(tmp_path / "1" / "broker.conf")]) == WRITTEN
        broker = group.add()
        assert group.wait_for_master() == 1
        with broker.client() as client:
            assert client.send("T", 0, b"new").code == 0
            wait_until(lambda: client.offset(30, "T", 0) == 2, "dispatched", _WAIT_S)
            assert [each.body for each in drain(client, "T", 0)] == [b"old", b"new"]
    finally:
        group.end()


def test_failover_in_the_safe_mode(group: Group, capsys: pytest.CaptureFixture[str]) -> None:
    """Three brokers, so that two are left. Whatever was answered SEND_OK is read once from the next
    master; a message that was sent back is not answered before it has a replica, as it would be
    forgotten then and lost; the old one comes back, loses the tail that nobody else had, keeps a
    copy of it, and its log is the new master's."""
    one = group.add()
    with one.client() as client:
        wait_until(lambda: client.send("T", 0, b"refused").code == 1, "it leads, and is alone")
    group.add()
    group.add()
    group.wait_for_set(1, 2, 3)
    bodies = [b"%d" % number for number in range(1_000)]
    with one.client() as client:
        sent = send_all(client, bodies)
    taken = [body for body, answer in zip(bodies, sent, strict=True) if answer.code == 0]
    assert len(taken) == 1_000

    tail = [b"tail %d" % number for number in range(20)]
    os.kill(ha := child_of(one, "ha"), signal.SIGSTOP)
    wait_until(lambda: stands_still(ha), "it sends nothing any more")
    with one.client() as client:
        for body in tail:
            client.post_send("T", 0, body)
        wait_until(lambda: tail[-1] in group.log_bytes(1), "the tail is in one log")
        sent_back = client.post(36, {"offset": sent[0].phy_offset, "group": "B", "delayLevel": 0})
        wait_until(lambda: b"%RETRY%B" in group.log_bytes(1), "the copy is in one log")
        with pytest.raises(TimeoutError):
            client.take(sent_back, 0.5)
    killed_at = time.monotonic()
    one.kill()
    master = group.wait_for_master(other_than=1)
    took_s = time.monotonic() - killed_at
    with capsys.disabled():
        print(f"\nfailover: SEND_OK again {took_s * 1000:.0f} ms after the kill")
    found = read_all(group.brokers[master])
    assert sorted(found) == sorted(taken)

    one.start()
    group.wait_for_set(1, 2, 3)
    with group.brokers[master].client() as client:
        assert client.send("T", 0, b"after").code == 0
    wait_until(
        lambda: group.log_bytes(1) == group.log_bytes(master) == group.log_bytes(5 - master),
        f"three equal logs\n{group.logs()}",
        _WAIT_S,
    )
    backups = [*one.store_dir.glob("backup-*/commitlog/*.from-*")]
    assert len(backups) == 1
    assert tail[-1] in backups[0].read_bytes()


def child_of(broker: harness.Broker, name: str) -> int:
    (pid,) = (pid for pid, title in pids_of(broker).items() if title == f"mqbroker: {name}")
    return pid


def test_an_operator_moves_the_master_while_everything_runs(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    """No process ends for it, and no connection of a client."""
    one, two = group.add(), group.add()
    group.wait_for_set(1, 2)
    assert group.wait_for_master() == 1
    before = [pids_of(broker) for broker in (one, two)]
    with one.client() as to_one, two.client() as to_two:
        assert send_all(to_one, [b"%d" % number for number in range(100)])[-1].code == 0
        assert to_two.send("T", 0, b"refused").code == 14
        for master, client, other in ((2, to_two, to_one), (1, to_one, to_two)):
            group.elect(master)
            elected_at = time.monotonic()
            wait_until(
                lambda client=client: client.send("T", 0, b"moved").code == 0,  # type: ignore[misc]
                f"{master} leads\n{group.logs()}",
                _WAIT_S,
                poll_s=0.005,
            )
            took_s = time.monotonic() - elected_at
            with capsys.disabled():
                print(f"\nmoved to {master}: SEND_OK {took_s * 1000:.0f} ms after the election")
            wait_until(lambda other=other: other.send("T", 0, b"x").code == 14, "the other follows")  # type: ignore[misc]
            group.wait_for_set(1, 2)
    assert [pids_of(broker) for broker in (one, two)] == before
    wait_until(lambda: group.log_bytes(1) == group.log_bytes(2), "equal logs", _WAIT_S)
    _is_seen_to_lead_again(group)
    _is_in_the_dumps(group)


def _is_seen_to_lead_again(group: Group) -> None:
    """Broker 1, behind two elections: what haStatus says of the group, and /metrics."""
    found = group.info()
    assert found is not None
    statuses = []
    for broker in (group.brokers[1], group.brokers[2]):
        with broker.client() as client:
            statuses.append(json.loads(client.call(907, {}).body)["groupInfo"])
    leader, follower = statuses
    epoch = found.master_epoch
    assert [leader[name] for name in ("role", "brokerId", "memberId", "epoch", "masterId")] == [
        *("lead", 0, 1, epoch, 1)
    ]
    assert [follower[name] for name in ("role", "brokerId", "memberId", "epoch", "masterId")] == [
        *("follow", 2, 2, epoch, 1)
    ]
    assert (leader["syncStateSet"], leader["takesMessages"]) == ([1, 2], True)
    assert (follower["syncStateSet"], follower["takesMessages"]) == ([], False)
    for each in statuses:
        last = each["lastRole"]
        assert (last["epoch"], last["oldEpoch"], last["oldMasterId"]) == (epoch, epoch - 1, 2)
        assert last["cause"] in ("notified", "polled")
        assert last["confirmOffset"] <= last["logEnd"]
        # None where this broker led, and was linked, for less than the 200 ms between two looks.
        assert 0 <= last.get("withoutMasterMillis", 0) < _WAIT_S * 1000
    shown = harness.our_admin(
        group.root, "haStatus", "-b", group.brokers[1].address, "-n", group.places.namesrv.address
    )
    assert f"group       member 1, lead in epoch {epoch}; master is broker 1" in shown
    assert "SyncStateSet 1, 2 (minInSyncReplicas 2), takes messages" in shown


def dump_lines(broker: harness.Broker) -> list[dict[str, Any]]:
    """Those of its metrics dump that are written, in their order."""
    paths = sorted((broker.store_dir / "metrics").glob("dt=*/cluster=*/broker=*/*.jsonl"))
    texts = [text for path in paths for text in path.read_text().splitlines()]
    return sorted(map(json.loads, texts), key=lambda line: line["seq"])


def _is_in_the_dumps(group: Group) -> None:
    """Each broker has one id in all of its lines, whatever its role, and tells each role once."""
    found = group.info()
    assert found is not None
    epoch = found.master_epoch
    wait_until(
        lambda: (
            all(dump_lines(group.brokers[n])[-1]["member"]["epoch"] == epoch for n in (1, 2))
            and dump_lines(group.brokers[1])[-1]["replicas"] != []
        ),
        "lines behind the last election, with its slave linked",
        _WAIT_S,
    )
    for number in (1, 2):
        lines = dump_lines(group.brokers[number])
        assert {line["broker_id"] for line in lines} == {number}
        roles = [role for line in lines for role in line.get("roles", [])]
        assert [role["number"] for role in roles] == [*range(1, len(roles) + 1)]
        assert {role["id"] for role in roles} == {number}
        leads = [role["epoch"] for role in roles if role["role"] == "LEAD"]
        expected = [epoch - 2, epoch] if number == 1 else [epoch - 1]
        # A busy machine may have had elections before these.
        assert leads[-len(expected) :] == expected
        is_leader = number == 1
        assert lines[-1]["role"] == ("SYNC_MASTER" if is_leader else "SLAVE")
        assert [row["id"] for row in lines[-1]["replicas"]] == [f"{group.name}:2"] * is_leader
        assert lines[-1]["member"]["set_size"] == (2 if is_leader else 0)


def pids_of(broker: harness.Broker) -> dict[int, str]:
    return {each.pid: each.title for each in process_tree(broker.process.pid)}


@pytest.mark.long
def test_a_master_that_stands_still_is_replaced_and_follows(group: Group) -> None:
    """SIGSTOP to all of it: it believes to lead when it goes on."""
    one, two = group.add(), group.add()
    three = group.add()
    group.wait_for_set(1, 2, 3)
    with one.client() as client:
        assert {each.code for each in send_all(client, [b"%d" % n for n in range(100)])} == {0}
    one.process.pause()
    master = group.wait_for_master(other_than=1)
    one.process.resume()
    group.wait_for_set(1, 2, 3)
    with one.client() as client:
        assert client.send("T", 0, b"refused").code == 14
    assert master in (2, 3)
    found = read_all(group.brokers[master])
    assert sorted(found) == sorted(b"%d" % n for n in range(100))
    assert two.process.is_alive()
    assert three.process.is_alive()


@pytest.mark.long
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_each_process_of_a_leader_dies(places: Places, tmp_path: Path, flush: str) -> None:
    """Orders and offsets stand in the control page: whoever is started again goes on from there.
    What was answered SEND_OK meanwhile is read once."""
    group = Group(places, tmp_path, f"deaths-{flush}", flushDiskType=flush, **SAFE)
    try:
        for _ in range(3):
            group.add()
        group.wait_for_set(1, 2, 3)
        master, taken = 1, [b"0"]
        with group.brokers[1].client() as client:
            assert client.send("T", 0, b"0").code == 0
        for name in ("remoting", "store", "remoting", "ha", "store", "ha"):
            os.kill(child_of(group.brokers[master], name), signal.SIGKILL)
            master = group.wait_for_master()
            bodies = [b"%s %d %d" % (name.encode(), len(taken), number) for number in range(50)]
            with group.brokers[master].client() as client:
                sent = send_all(client, bodies)
            taken += [body for body, one in zip(bodies, sent, strict=True) if one.code == 0]
            group.wait_for_set(1, 2, 3)
        assert len(taken) > 200
        master = group.wait_for_master()
        broker = group.brokers[master]
        wait_until(functools.partial(has_all, broker, taken), "all of them", _WAIT_S)
        found = read_all(broker)
        assert sorted(body for body in found if body in taken) == sorted(taken)
        assert len(set(found)) == len(found)
        wait_until(
            lambda: group.log_bytes(1) == group.log_bytes(2) == group.log_bytes(3),
            f"three equal logs\n{group.logs()}",
            _WAIT_S,
        )
    finally:
        group.end()


@pytest.mark.long
def test_a_master_that_no_controller_confirms_refuses_messages(
    places: Places, tmp_path: Path
) -> None:
    group = Group(places, tmp_path, "fenced", selfFenceEnable="true")
    try:
        broker = group.add()
        assert group.wait_for_master() == 1
        places.controller.pause()
        with broker.client() as client:
            wait_until(lambda: client.send("T", 0, b"late").code == 14, "refused", _WAIT_S)
            assert "no controller has confirmed" in client.send("T", 0, b"late").remark
            places.controller.resume()
            wait_until(lambda: client.send("T", 0, b"again").code == 0, "taken", _WAIT_S)
    finally:
        places.controller.resume()
        group.end()


def has_all(broker: harness.Broker, bodies: Sequence[bytes]) -> bool:
    return len(read_all(broker)) >= len(bodies)


@pytest.mark.long
def test_failover_between_ours_and_java(places: Places, tmp_path: Path) -> None:
    """Our master with a Java slave, killed; the Java master with our slave, killed: every message
    that was answered SEND_OK is read once from whoever leads."""
    group = Group(places, tmp_path, "mixed", allAckInSyncStateSet="true")
    try:
        ours = group.add()
        assert group.wait_for_master() == 1
        java = group.add(harness.JAVA_5)
        taken: list[bytes] = []
        for master, follower, broker in ((1, 2, ours), (2, 1, java), (1, 2, ours)):
            group.wait_for_set(1, 2)
            bodies = [b"%d of %d" % (number, len(taken)) for number in range(200)]
            with broker.client() as client:
                # Java answers in any order.
                sent = [client.send("T", number % 4, body) for number, body in enumerate(bodies)]
            taken += [body for body, one in zip(bodies, sent, strict=True) if one.code == 0]
            broker.kill()
            assert group.wait_for_master(other_than=master) == follower
            successor = group.brokers[follower]
            with successor.client() as client:
                # A Java slave copies its master's topics each ten seconds, and may lack this one.
                taken.append(b"to %d, %d" % (follower, len(taken)))
                assert client.send("T", 0, taken[-1]).code == 0
            wait_until(functools.partial(has_all, successor, taken), "all of them", _WAIT_S)
            assert sorted(read_all(successor)) == sorted(taken)
            broker.start()
        assert len(taken) == 603
        group.wait_for_set(1, 2)
        wait_until(lambda: group.log_bytes(1) == group.log_bytes(2), "equal logs", _WAIT_S)
    finally:
        group.end()

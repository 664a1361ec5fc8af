"""Several controllers of ours over a real etcd: what each loss costs, and what none may cost.

Three members of etcd, three controllers, three brokers in the safe mode, all on loopback. Nothing
that was answered SEND_OK is lost, no epoch has two masters, and whatever controllers answer never
goes back in time (tests/interop/etcd_world.py). The short run is in CI; the long one draws faults.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from controller.etcd_client import EtcdClient, EtcdError
from controller.etcd_config import EtcdConfig
from controller.etcd_login import make_context, read_login
from controller.etcd_store import EtcdStore
from controller.events import Outcome, Stored, Swap
from remoting.request_code import RequestCode
from tests.controller.controller_peer import Peer, running
from tests.controller.etcd_capture import ONE, PREFIX, TWO, group, make_accounts, play
from tests.interop import harness
from tests.interop.etcd_load import QUEUES, Load
from tests.interop.etcd_world import MEMBER, SAFE, Controllers, EtcdWorld, ask, run
from tests.interop.processes import wait_until
from tests.support.etcd import Etcd, b64
from tests.support.our_broker import drain
from tests.support.tls_files import Authority
from tools.chaos.free_ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

_WAIT_S = 60


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One of three members, for tests that hurt none."""
    one = Etcd(tmp_path_factory.mktemp("etcd"))
    try:
        yield one.start()
    finally:
        one.stop()


def store(etcd: Etcd, prefix: str = PREFIX, **settings: Any) -> EtcdStore:
    config = EtcdConfig(**{"etcd_endpoints": etcd.text, **settings})
    assert config.problems() == []
    client = EtcdClient(
        config.endpoints(),
        make_context(config),
        lambda: read_login(config),
        config.etcd_request_timeout_millis,
    )
    return EtcdStore(client, prefix, lambda: time.monotonic_ns() // 1_000_000)


def test_a_session_with_a_living_etcd(etcd: Etcd) -> None:
    """What was recorded of it is what it does."""

    def spoil() -> None:
        etcd.call("kv/put", {"key": b64(f"{PREFIX}/set/x"), "value": b64("{}")})

    gave = play(store(etcd), store(etcd), spoil)
    outcomes = [getattr(one, "outcome", None) for one in gave]
    assert [one for one in outcomes if one] == [
        *(Outcome.DONE, Outcome.CONFLICT, Outcome.DONE, Outcome.FENCED, Outcome.FENCED),
    ]
    assert len(gave[-1]) == 44


def test_a_lease_that_nobody_renews_ends(etcd: Etcd) -> None:
    """And a write of its leader that comes later changes nothing."""
    one, two = store(etcd, "/lease"), store(etcd, "/lease")
    lease = one.make_lease(3)
    fence = one.acquire(ONE, lease.id)
    assert fence is not None
    assert one.swap(Swap("b", 1, 0, fence, group("b"))).outcome is Outcome.DONE
    version = one.load("b").version
    begun = time.monotonic()
    wait_until(lambda: two.look().fence == 0, "the end of the lease", 10)
    assert 2.9 < time.monotonic() - begun < 9
    assert one.swap(Swap("b", 2, version, fence, group("b", 2))).outcome is Outcome.FENCED
    assert two.acquire(TWO, two.make_lease(3).id) is not None
    assert one.swap(Swap("b", 3, version, fence, group("b", 2))).outcome is Outcome.FENCED
    assert one.load("b") == Stored(version, group("b"))


def test_accounts_and_certificates(tmp_path: Path) -> None:
    """TLS with a client's certificate, an account that may use the prefix only, a token that etcd
    has forgotten."""
    authority = Authority(tmp_path / "tls")
    server = authority.issue("server", hosts=("127.0.0.1",))
    mine = authority.issue("mine")
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("secret\n")
    etcd = Etcd(tmp_path / "plain", 1).start()
    try:
        make_accounts(etcd)
        account = {"etcd_user": "mq", "etcd_password_file": str(password)}
        one = store(etcd, **account)
        assert one.load("b") == Stored(0, None)
        with pytest.raises(EtcdError, match=r"user name is empty.*set etcdUser"):
            store(etcd).load("b")
        with pytest.raises(EtcdError, match=r"permission denied.*etcdUser mq may not use the keys"):
            store(etcd, "/other", **account).load("b")
        etcd.call("auth/disable", {}, token=_token(etcd))
        etcd.call("auth/enable", {})
        assert one.load("b") == Stored(0, None), "it has logged in anew"
        password.write_text("wrong")
        with pytest.raises(EtcdError, match="authentication failed"):
            store(etcd, **account).load("b")
    finally:
        etcd.stop()
    flags = ("--cert-file", str(server.certificate), "--key-file", str(server.key))
    more = [*flags, "--client-cert-auth", "--trusted-ca-file", str(authority.trust)]
    etcd = Etcd(tmp_path / "tls", 1, more)
    try:
        for member in etcd.members:
            member.start()
        trusted = {"etcd_trusted_ca_file": str(authority.trust)}
        shown = {"etcd_cert_file": str(mine.certificate), "etcd_key_file": str(mine.key)}
        one = store(etcd, **trusted, **shown)
        wait_until(lambda: _answers(one), "etcd over TLS")
        with pytest.raises(EtcdError, match="etcd does not answer"):
            store(etcd, **trusted).load("b")
    finally:
        etcd.stop()


def _token(etcd: Etcd) -> str:
    body = {"name": "root", "password": "rootsecret"}
    return str(etcd.call("auth/authenticate", body)["token"])


def _answers(one: EtcdStore) -> bool:
    try:
        return one.load("b") == Stored(0, None)
    except EtcdError:
        return False


def test_two_controllers_as_brokers_see_them(etcd: Etcd, tmp_path: Path) -> None:
    """Who leads, what the other one answers, and a group whose value nobody can read."""
    ports = [free_port(), free_port()]
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    prefix = "/two/group1/set/"
    etcd.call("kv/put", {"key": b64(f"{prefix}bad"), "value": b64("{}")})
    config = EtcdConfig(etcd_endpoints=etcd.text, etcd_key_prefix="/two")
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(
                running(
                    tmp_path / str(number),
                    port=ports[number],
                    etcd=config,
                    controller_store="etcd",
                    controller_d_leger_self_id=f"n{number}",
                    controller_d_leger_peers=peers,
                )
            )
            and stack.enter_context(Peer(ports[number]))
            for number in range(2)
        )

        def say(peer: Peer) -> Any:
            return peer.call(1005, {}).ext_fields

        both = {"controllerLeaderId", "controllerLeaderAddress"}
        wait_until(lambda: both <= say(one).keys() and both <= say(two).keys(), "a leader", 20)
        fields = say(one), say(two)
        place = 0 if fields[0]["isLeader"] == "true" else 1
        for number in range(2):
            assert fields[number] == {
                "group": "group1",
                "controllerLeaderId": f"n{place}",
                "controllerLeaderAddress": f"127.0.0.1:{ports[place]}",
                "isLeader": "true" if number == place else "false",
                "peers": peers.replace("-", ":") + ";",
            }
        leader, follower = (one, two) if place == 0 else (two, one)
        good = {"clusterName": "C", "brokerName": "good"}
        apply = {**good, "appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:1;1"}
        assert leader.call(1013, apply).code == 0
        value = etcd.call("kv/range", {"key": b64(f"{prefix}good")})["kvs"][0]["value"]
        bad = leader.call(1012, {**good, "brokerName": "bad"})
        assert bad.code == 1
        assert "key b'/two/group1/set/bad' is none that a controller writes" in bad.remark
        assert leader.call(1012, good).ext_fields["nextBrokerId"] == "2"

        beat = {**good, "brokerId": 1, "brokerAddr": "127.0.0.1:1"}
        register = {**good, "brokerId": 1, "brokerAddress": "127.0.0.1:1", "invokeTime": 1}
        time.sleep(1.2)
        # It has read the group by now, and nobody has spoken for the broker there.
        alter = {"brokerName": "good", "masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}
        members = b'{"syncStateSet":[1],"syncStateSetEpoch":1}'
        assert follower.call(1001, alter, members).code == 2007
        assert leader.call(1001, alter, members).code == 16, "the leader judges it"
        assert follower.call(904, beat).code == 0
        for code, asked in ((1012, good), (1013, apply), (1003, register)):
            assert follower.call(code, asked).code == 2007
        code = follower.call(1006, {}, b'["good"]').code
        assert code == 2007
        mended = base64.b64decode(value).partition(b"\n")[0].replace(b'"good"', b'"bad"')
        text = mended + b"\ncrc32 %08X\n" % zlib.crc32(mended)
        etcd.call("kv/put", {"key": b64(f"{prefix}bad"), "value": b64(text)})
        asked_for = {**good, "brokerName": "bad"}
        wait_until(lambda: leader.call(1012, asked_for).code == 0, "served again", 20)


def test_every_role_is_lost_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A follower of etcd and the controllers' leader stand still, past its lease, while the master
    is killed; then etcd's leader and the next leader of the controllers are killed at once."""
    said, begun = [""], time.monotonic()

    def say(text: str, since: float | None = None) -> None:
        took_s = "" if since is None else f" {time.monotonic() - since:.1f} s"
        said.append(f"{time.monotonic() - begun:6.1f}  {text}{took_s}")

    world = EtcdWorld(tmp_path, **SAFE)
    try:
        load = Load(world, 1)
        wait_until(lambda: world.members() == {1, 2, 3}, "the set", _WAIT_S)
        say("three members in the set")
        _two_stand_still_while_the_master_dies(world, load, say)
        world.revive()
        _both_leaders_are_killed(world, load, say)
        world.revive()
        load.stop_producing()
        wait_until(lambda: world.members() == {1, 2, 3}, "the set", _WAIT_S, poll_s=0.2)
        load.stop()
        say(f"healed; {len(load.taken)} messages taken")
        assert _lost(world, load) == []
        assert load.troubles + world.wrong() == []
        assert len(load.taken) > 100
        epochs = {one.master_epoch for one in world.watcher.answers}
        assert len(epochs) > 1, "the watcher has seen the election"
    finally:
        world.end()
        with capsys.disabled():
            print("\n".join(said))


def _two_stand_still_while_the_master_dies(
    world: EtcdWorld, load: Load, say: Callable[..., None]
) -> None:
    controllers, leader = world.controllers, world.etcd.leader()
    follower = next(one for one in world.etcd.members if one is not leader)
    old = controllers.leader()
    process = controllers.all[old].process
    world.paused.append(process.pid)
    follower.pause()
    process.pause()
    since = time.monotonic()
    world.brokers[master_of(world)].kill()
    controllers.leader(other_than=old)
    say("controllers' leader stopped: another leads after", since)
    again_s = load.wait_ok(since)
    say(f"master killed at the same time: SEND_OK after {again_s:.1f} s")
    follower.resume()
    process.resume()
    world.paused.remove(process.pid)
    code = RequestCode.CONTROLLER_GET_REPLICA_INFO
    found = ask(controllers.addresses[old], code, GROUP, 20)
    assert found is not None
    assert found.code == 2007


def _both_leaders_are_killed(world: EtcdWorld, load: Load, say: Callable[..., None]) -> None:
    leader, old = world.etcd.leader(), world.controllers.leader()
    assert leader is not None
    since = time.monotonic()
    leader.kill()
    world.controllers.all[old].kill()
    world.controllers.leader(other_than=old)
    say("leaders of etcd and of the controllers killed: another controller leads after", since)
    say(f"longest gap for senders {load.gap(since):.2f} s")


def master_of(world: EtcdWorld) -> int:
    wait_until(lambda: world.master() != 0, "a master named", _WAIT_S)
    return world.master()


def _lost(world: EtcdWorld, load: Load) -> list[bytes]:
    """What was answered SEND_OK and is not there once."""
    stored: dict[bytes, int] = {}
    with world.brokers[master_of(world)].client() as client:
        for queue in range(QUEUES):
            for message in drain(client, "T", queue):
                stored[message.body] = stored.get(message.body, 0) + 1
    return [body[:20] for body in load.taken if stored.get(body) != 1]


GROUP = {"brokerName": "group"}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_faults_drawn_from_a_seed(tmp_path: Path, seed: int) -> None:
    assert run(seed, 6, [], tmp_path) == []


@pytest.mark.long
def test_a_broker_of_rocketmq_finds_the_next_controller(tmp_path: Path) -> None:
    """Its set changes, and it is elected, under a controller that it was not begun with."""
    etcd = Etcd(tmp_path / "etcd").start()
    controllers = Controllers(tmp_path, etcd, {}).start()
    namesrv = harness.name_server("ours", tmp_path / "namesrv").start()
    conf = {**MEMBER, "controllerAddr": controllers.address, "allAckInSyncStateSet": "true"}
    conf |= {"brokerRole": "SLAVE", "brokerId": "-1"}
    brokers = []
    try:
        for number, kind in ((1, "ours"), (2, harness.JAVA_5)):
            brokers.append(
                harness.broker(
                    kind, tmp_path / str(number), namesrv.address, name="group", conf=conf
                ).start()
            )
        wait_until(lambda: _set(controllers) == {1, 2}, "the set", _WAIT_S, poll_s=0.3)
        first = controllers.leader()
        controllers.all[first].kill()
        second = controllers.leader(other_than=first)
        with brokers[0].client() as client:
            bodies = [b"%d" % number for number in range(100)]
            assert {client.send("T", 0, body).code for body in bodies} == {0}
        brokers[0].kill()
        wait_until(lambda: _master(controllers) == 2, "the other one leads", _WAIT_S, poll_s=0.3)
        with brokers[1].client() as client:
            wait_until(lambda: client.send("T", 0, b"new").code == 0, "it takes", _WAIT_S)
            assert [one.body for one in drain(client, "T", 0)][:101] == [*bodies, b"new"]
        controllers.all[second].kill()
        controllers.all[first].start()
        brokers[0].start()
        wait_until(lambda: _set(controllers) == {1, 2}, "the set again", 120, poll_s=0.5)
    finally:
        for broker in brokers:
            broker.kill()
        namesrv.stop()
        controllers.kill()
        etcd.stop()


def _replica_info(controllers: Controllers) -> Any:
    number = controllers.find_leader()
    if number is None:
        return None
    code = RequestCode.CONTROLLER_GET_REPLICA_INFO
    found = ask(controllers.addresses[number], code, GROUP)
    return found if found is not None and found.code == 0 else None


def _master(controllers: Controllers) -> int:
    found = _replica_info(controllers)
    return 0 if found is None else int(found.ext_fields.get("masterBrokerId", "0"))


def _set(controllers: Controllers) -> set[int]:
    found = _replica_info(controllers)
    return set() if found is None else set(json.loads(found.body)["syncStateSet"])

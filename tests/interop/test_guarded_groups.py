"""Groups of Java's brokers and ours that let in who shows a certificate, or who signs: members get
their ids, copy log and tables, and elect another master; strangers change nothing."""

from __future__ import annotations

import functools
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from remoting.command_custom_header import encode_header
from remoting.headers.controller import NotifyBrokerRoleChangedRequestHeader
from remoting.remoting_serializable import loads_lenient
from remoting.request_code import RequestCode
from remoting.signature import RequestSigner
from tests.interop import harness
from tests.interop.accounts import ACCOUNTS, SECRETS
from tests.interop.mixed_groups import Guard, MixedGroup
from tests.interop.processes import wait_until
from tests.interop.test_auth import SETTINGS
from tests.support.our_broker import FrameClient
from tests.support.tls_files import Authority, client_context

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

FAR_EPOCH: Final = 1_000_000
_FOLLOWS_S: Final = 60.0


@contextmanager
def running(root: Path, mix: str, kind: str, guard: Guard) -> Iterator[MixedGroup]:
    group = MixedGroup(root, mix, kind, 1, guard)
    try:
        yield group.start()
    except BaseException:
        print(group.logs())
        raise
    finally:
        group.end()


def lose_its_master(group: MixedGroup) -> None:
    """Somebody else leads, and nothing that was answered is lost."""
    victim, epoch = group.master()
    group.sender.begin()
    group.sender.wait_for_more(30, "before")
    group.brokers[victim].kill()
    group.wait_for_master(other_than=victim)
    assert group.master()[1] > epoch
    group.sender.wait_for_more(30, "another one leads")
    group.start_broker(victim)
    group.wait_for_all()
    group.sender.stop()
    assert group.judge() == []


# -- certificates ----------------------------------------------------------------------------------


def certificates(directory: Path, authority: Authority) -> Guard:
    """Nobody is served without one; one file for Java and ours says which."""
    server, client = authority.issue("server"), authority.issue("client")
    file = directory / "tls.properties"
    keys = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": server.certificate,
        "tls.server.keyPath": server.key,
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": authority.trust,
        "tls.client.certPath": client.certificate,
        "tls.client.keyPath": client.key,
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": authority.trust,
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    how = {
        "tls.server.mode": "enforcing",
        "tls.enable": "true",
        "tls.config.file": str(file),
    }
    context = client_context(authority.trust, client)
    return Guard(
        servers=how,
        ours=how,
        jvm=tuple(f"-D{key}={value}" for key, value in how.items()),
        connect=functools.partial(FrameClient, context=context),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mix", "kind"),
    [
        ("OOJ", "ours"),
        pytest.param("JJO", "ours", marks=pytest.mark.long),
        pytest.param("JOO", "dledger", marks=pytest.mark.long),
    ],
)
def test_members_with_certificates(tmp_path: Path, mix: str, kind: str) -> None:
    authority = Authority(tmp_path)
    with running(tmp_path, mix, kind, certificates(tmp_path, authority)) as group:
        told = group.master()
        for context in (None, client_context(), stranger(tmp_path / "other")):
            forge(group, functools.partial(FrameClient, context=context))
        # One of the group's own certificates moves no member of ours either.
        for broker in ours(group):
            with broker.client(10) as client:
                assert client.call(*role_change()).code == 0
        assert group.master() == told
        lose_its_master(group)
        assert group.master()[1] < FAR_EPOCH


def stranger(directory: Path) -> ssl.SSLContext:
    """With a certificate of somebody else's."""
    directory.mkdir()
    return client_context(pair=Authority(directory, "other").issue("stranger"))


def ours(group: MixedGroup) -> list[harness.Broker]:
    return [broker for broker in group.brokers.values() if broker.kind == "ours"]


def role_change() -> tuple[RequestCode, dict[str, str], bytes]:
    """1008: somebody else leads, in an epoch that is far away."""
    header = NotifyBrokerRoleChangedRequestHeader(
        master_address="127.0.0.1:9",
        master_epoch=FAR_EPOCH,
        sync_state_set_epoch=FAR_EPOCH,
        master_broker_id=9,
    )
    body = json.dumps({"syncStateSet": [9], "syncStateSetEpoch": FAR_EPOCH}).encode()
    return RequestCode.NOTIFY_BROKER_ROLE_CHANGED, encode_header(header), body


def forge(group: MixedGroup, connect: harness.Connect) -> None:
    """Whoever comes so gets no word in, at a broker or a controller of ours. A 5.3.3 server that
    takes TLS only closes a plain connection, and carries out the request that came over it."""
    requests = [
        role_change(),
        (RequestCode.BROKER_HEARTBEAT, {"brokerId": "1", "epoch": str(FAR_EPOCH)}, b""),
        (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, {"masterBrokerId": "2"}, b"{}"),
    ]
    addresses = [broker.address for broker in ours(group)]
    if group.controllers.kind == "ours":
        addresses.append(str(group.controllers.find_leader()))
    for address in addresses:
        host, _, port = address.rpartition(":")
        for request in requests:
            with pytest.raises(OSError), connect((host, int(port)), 10) as client:  # noqa: PT011
                client.call(*request)


# -- signatures ------------------------------------------------------------------------------------


def accounts(directory: Path) -> Guard:
    """Ours have the accounts of 4.9, Java's the users of 5.x; members sign as the operator."""
    conf = directory / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    secret = SECRETS["operator"]
    (conf / "tools.yml").write_text(f"accessKey: operator\nsecretKey: {secret}\n")
    credentials = json.dumps({"accessKey": "operator", "secretKey": secret})
    users = {key: SETTINGS[key] for key in SETTINGS if key.startswith("authentication")}
    return Guard(
        ours={"aclEnable": "true", "rocketmqHome": str(conf.parent)},
        java={
            **users,
            "initAuthenticationUser": json.dumps({"username": "operator", "password": secret}),
            "innerClientAuthenticationCredentials": credentials,
        },
        connect=functools.partial(FrameClient, signer=RequestSigner("operator", secret)),
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["dledger", "ours"])
def test_members_that_sign(tmp_path: Path, kind: str) -> None:
    """Followers of ours and Java's copy the tables of a master of ours, and of one of Java's."""
    with running(tmp_path, "OJO", kind, accounts(tmp_path)) as group:
        for leader in (1, 2):
            group.designate(leader)
            copied(group, leader, f"led{leader}by")
        lose_its_master(group)
        master, _ = group.master()
        copied(group, master, "elected")


def copied(group: MixedGroup, leader: int, prefix: str) -> None:
    """What is made on the leader comes to its followers."""
    topic, name = f"{prefix}Topic", f"{prefix}Group"
    group_config = {"groupName": name, "consumeEnable": True, "retryQueueNums": 1}
    steps: list[tuple[RequestCode, dict[str, object], bytes]] = [
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1}
            | {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"},
            b"",
        ),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {},
            json.dumps(group_config).encode(),
        ),
        (
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": name, "topic": topic, "queueId": 0, "commitOffset": 0},
            b"",
        ),
    ]
    with group.brokers[leader].client(10) as client:
        for step in steps:
            answer = client.call(*step)
            assert answer.code == 0, answer.remark
    for number in group.brokers.keys() - {leader}:
        wait_until(
            lambda n=number: {topic, f"{topic}@{name}", name} <= names(group, n),  # type: ignore[misc]
            f"{prefix}: the tables on {number}",
            _FOLLOWS_S,
            poll_s=0.2,
        )


def names(group: MixedGroup, number: int) -> set[str]:
    """Of topics, groups, and topics with groups that have offsets."""
    tables = {
        RequestCode.GET_ALL_TOPIC_CONFIG: "topicConfigTable",
        RequestCode.GET_ALL_CONSUMER_OFFSET: "offsetTable",
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "subscriptionGroupTable",
    }
    found: set[str] = set()
    with group.brokers[number].client(10) as client:
        for code, table in tables.items():
            answer = client.call(code, {})
            assert answer.code == 0, answer.remark
            found |= loads_lenient(answer.body)[table].keys()
    return found

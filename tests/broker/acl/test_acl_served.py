"""Real brokers with ACL: nothing comes around the gate, files are followed, a slave takes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from tests.support.broker_group import ASYNC_MASTER, SLAVE, TOPIC, Group, log_of
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker

ACCOUNTS = f"""
accounts:
- accessKey: application
  secretKey: application-secret
  topicPerms: [{TOPIC}=PUB|SUB]
  groupPerms: [faults=SUB]
- accessKey: operator
  secretKey: operator-secret
  admin: true
"""
TOOLS = "accessKey: operator\nsecretKey: operator-secret\n"
APPLICATION = RequestSigner("application", "application-secret")
OPERATOR = RequestSigner("operator", "operator-secret")
STRANGER = RequestSigner("application", "another-secret")


class SignedClient(FrameClient):
    """A FrameClient that signs; `by` None: it does not."""

    def __init__(self, address: tuple[str, int], by: RequestSigner | None) -> None:
        super().__init__(address)
        self._by = by

    def post(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> int:
        texts = {name: str(value) for name, value in fields.items()}
        command = RemotingCommand.request(code, texts, body)
        if self._by is not None:
            self._by.sign(command)
        self._sock.sendall(encode_command(command))
        return command.opaque


def client(broker: OurBroker, by: RequestSigner | None, port: str = "main") -> SignedClient:
    return SignedClient(("127.0.0.1", broker.ports[port]), by)


def home_of(root: Path, accounts: str) -> Path:
    """A broker's rocketmqHome with its access files."""
    conf = root / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(accounts)
    (conf / "tools.yml").write_text(TOOLS)
    return root


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with Group(tmp_path).running() as found:
        yield found


def start_master(group: Group, home: Path) -> OurBroker:
    return group.start(group.first, ASYNC_MASTER, aclEnable="true", rocketmqHome=home)


def test_sends_and_pulls_are_guarded_and_an_operator_is_one(group: Group, tmp_path: Path) -> None:
    broker = start_master(group, home_of(tmp_path / "home", ACCOUNTS))
    for nobody in (None, STRANGER):
        with client(broker, nobody) as unknown:
            refused = unknown.send(TOPIC, 0, b"lost")
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "AclException: " in refused.remark
            assert unknown.pull(TOPIC, 0, 0).code == ResponseCode.SYSTEM_ERROR
    with client(broker, APPLICATION) as application:
        assert application.send(TOPIC, 0, b"kept").code == ResponseCode.SUCCESS
        wait_until(lambda: application.offset(30, TOPIC, 0) == 1)
        assert [m.body for m in application.pull(TOPIC, 0, 0).messages] == [b"kept"]
        assert application.send("Other", 0, b"lost").code == ResponseCode.SYSTEM_ERROR
    change = {"accessKey": "new-account", "secretKey": "new-secret"}
    for by, code in ((APPLICATION, ResponseCode.SYSTEM_ERROR), (OPERATOR, ResponseCode.SUCCESS)):
        with client(broker, by, "vip") as asking:
            answer = asking.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, change)
            assert answer.code == code, answer.remark
    with client(broker, RequestSigner("new-account", "new-secret")) as new:
        assert new.call(RequestCode.GET_BROKER_RUNTIME_INFO, {}).code == ResponseCode.SUCCESS


def test_a_changed_file_counts_soon(group: Group, tmp_path: Path) -> None:
    home = home_of(tmp_path / "home", ACCOUNTS)
    broker = start_master(group, home)
    with client(broker, None) as anybody:
        assert anybody.send(TOPIC, 0, b"1").code == ResponseCode.SYSTEM_ERROR
        path = home / "conf" / "plain_acl.yml"
        path.write_text(f"{ACCOUNTS}\nglobalWhiteRemoteAddresses: ['127.0.0.1']\n")
        wait_until(lambda: anybody.send(TOPIC, 0, b"2").code == ResponseCode.SUCCESS, 10)
        path.write_text(f"{ACCOUNTS}\nglobalWhiteRemoteAddresses: ['10.0']\n")
        wait_until(lambda: "plain_acl.yml:" in broker.log("remoting"), 10)
        assert anybody.send(TOPIC, 0, b"3").code == ResponseCode.SUCCESS


def test_a_slave_follows_with_its_account_and_takes_the_files(group: Group, tmp_path: Path) -> None:
    master_home = home_of(tmp_path / "home-1", ACCOUNTS)
    slave_home = home_of(tmp_path / "home-2", "")
    first = start_master(group, master_home)
    second = group.start(
        group.second, SLAVE, aclEnable="true", rocketmqHome=slave_home, slaveSyncInterval=200
    )
    with client(first, APPLICATION) as application:
        assert application.send(TOPIC, 0, b"kept").code == ResponseCode.SUCCESS
    wait_until(lambda: log_of(second) == log_of(first), 20)
    copy = slave_home / "conf" / "plain_acl.yml"
    wait_until(lambda: copy.read_text() == ACCOUNTS, 20)
    with client(second, APPLICATION) as application:
        # The file is there a moment before it counts.
        wait_until(lambda: application.call(30, {"topic": TOPIC, "queueId": 0}).code == 0)
        wait_until(lambda: application.offset(30, TOPIC, 0) == 1)
        assert [m.body for m in application.pull(TOPIC, 0, 0).messages] == [b"kept"]
    with client(second, OPERATOR) as operator:
        status = json.loads(operator.call(RequestCode.GET_BROKER_HA_STATUS, {}).body)
    assert len(status["slaveSync"]) == 4
    assert all(kind["lastSuccessTimestamp"] for kind in status["slaveSync"].values())


def test_without_acl_everybody_sends_and_operators_come_from_named_addresses(
    group: Group,
) -> None:
    broker = group.start(group.first, ASYNC_MASTER, adminAllowedAddresses="10.0.0.0/8")
    with client(broker, None) as anybody:
        assert anybody.send(TOPIC, 0, b"kept").code == ResponseCode.SUCCESS
        answer = anybody.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "adminAllowedAddresses (now 10.0.0.0/8)" in (answer.remark or "")
        assert anybody.offset(30, TOPIC, 0) >= 0

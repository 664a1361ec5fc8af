"""broker.admin.admin_acl_processor: 50 to 53 as mqadmin asks them, and files for a slave."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import yaml

from broker.acl.plain_permission_manager import PlainPermissionManager
from broker.admin.admin_acl_processor import AdminAclProcessor
from broker.out.broker_outer_api import BrokerIdentity
from remoting.body.acl_files import AclFiles, AclFileText
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import FakeClock, FakeConnection, json_of, request_of

IDENTITY = BrokerIdentity(
    cluster_name="c", broker_name="b", broker_id=0, broker_addr="10.0.0.1:10911", ha_server_addr="x"
)
ACCOUNT = "accounts:\n- accessKey: account-1\n  secretKey: secret-1\n"
OFF = "access control is off on this broker; set aclEnable=true and restart it"


class World:
    """The processor over a file."""

    def __init__(self, root: Path) -> None:
        self.path = root / "conf" / "plain_acl.yml"
        self.path.parent.mkdir()
        self.path.write_text(ACCOUNT)
        self.clock = FakeClock()
        self.acl = PlainPermissionManager(root, self.clock)
        self.acl.load()
        self.processor = AdminAclProcessor(self.acl, IDENTITY)

    def ask(self, request: RemotingCommand) -> RemotingCommand:
        return ask(self.processor, request)

    def account(self, name: str) -> dict[str, object]:
        accounts = yaml.safe_load(self.path.read_text())["accounts"]
        return next(one for one in accounts if one["accessKey"] == name)


def ask(processor: AdminAclProcessor, request: RemotingCommand) -> RemotingCommand:
    try:
        answer = processor.process_request(FakeConnection("10.0.0.9:4711"), request)
    except RequestError as error:
        return request.response(error.code, error.remark)
    assert answer is not None
    return answer


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_account_of_mqadmin(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """As MQClientAPIImpl.createPlainAccessConfig sends it."""
    request = request_of(
        50,
        accessKey="account-2",
        secretKey="secret-2",
        admin="true",
        defaultTopicPerm="PUB",
        defaultGroupPerm="SUB",
        whiteRemoteAddress="10.1.1.1",
        topicPerms="a=PUB,b=SUB",
        groupPerms="g=SUB",
    )
    with caplog.at_level(logging.INFO):
        answer = world.ask(request)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert world.account("account-2") == {
        "accessKey": "account-2",
        "secretKey": "secret-2",
        "whiteRemoteAddress": "10.1.1.1",
        "admin": True,
        "defaultTopicPerm": "PUB",
        "defaultGroupPerm": "SUB",
        "topicPerms": ["a=PUB", "b=SUB"],
        "groupPerms": ["g=SUB"],
    }
    assert caplog.messages[-1] == "account account-2: saved, requested by 10.0.0.9:4711"
    assert "secret-2" not in caplog.text


def test_what_an_update_leaves_out_stays(world: World) -> None:
    world.ask(request_of(50, accessKey="account-1", secretKey="secret-2", topicPerms="a=PUB"))
    world.ask(request_of(50, accessKey="account-1", secretKey="secret-3"))
    assert world.account("account-1")["topicPerms"] == ["a=PUB"]
    world.ask(request_of(50, accessKey="account-1", secretKey="secret-3", topicPerms=""))
    assert world.account("account-1")["topicPerms"] == []


def test_an_account_that_cannot_be(world: World) -> None:
    answer = world.ask(request_of(50, accessKey="short", secretKey="secret-2"))
    assert answer.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
    assert answer.remark == (
        "The accessKey=short and secretKey=*** cannot be null and length should longer than 6"
    )
    assert world.path.read_text() == ACCOUNT


def test_a_request_without_its_key(world: World) -> None:
    answer = world.ask(RemotingCommand.request(50, {}))
    assert answer.remark == "CreateAccessConfigRequestHeader.accessKey: is missing"


def test_an_account_goes(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        answer = world.ask(request_of(51, accessKey="account-1"))
    assert answer.code == ResponseCode.SUCCESS
    assert world.acl.table.is_empty
    assert caplog.messages[-1] == "account account-1: deleted, requested by 10.0.0.9:4711"
    again = world.ask(request_of(51, accessKey="account-1"))
    assert again.code == ResponseCode.DELETE_ACL_CONFIG_FAILED
    assert again.remark == (
        "The accesskey[account-1] corresponding to accessConfig has been deleted failed. there is "
        f"no account account-1 in {world.path.parent}"
    )


@pytest.mark.parametrize("path", [{}, {"aclFileFullPath": ""}, {"aclFileFullPath": "own"}])
def test_white_addresses(
    world: World, path: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """mqadmin without -p leaves the path out."""
    named = {key: str(world.path) if text == "own" else text for key, text in path.items()}
    request = request_of(53, globalWhiteAddrs="10.1.1.*,10.2.2.{1,2}", **named)
    with caplog.at_level(logging.INFO):
        answer = world.ask(request)
    assert answer.code == ResponseCode.SUCCESS
    tree = yaml.safe_load(world.path.read_text())
    assert tree["globalWhiteRemoteAddresses"] == ["10.1.1.*", "10.2.2.{1,2}"]
    assert caplog.messages[-1] == (
        "white addresses: 10.1.1.*,10.2.2.{1,2}, requested by 10.0.0.9:4711"
    )


def test_white_addresses_of_a_file_that_is_none(world: World) -> None:
    request = request_of(53, globalWhiteAddrs="10.1.1.1", aclFileFullPath="/etc/passwd")
    answer = world.ask(request)
    assert answer.code == ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
    assert answer.remark == (
        "The globalWhiteAddresses[10.1.1.1] has been updated failed. /etc/passwd is not an "
        f"access file of this broker; expected one of {world.path}"
    )


def test_the_versions(world: World) -> None:
    world.ask(request_of(51, accessKey="account-1"))
    answer = world.ask(RemotingCommand.request(52))
    assert answer.code == ResponseCode.SUCCESS
    version = {"counter": 1, "timestamp": world.clock.now}
    fields = answer.ext_fields
    assert json_of(fields.pop("version").encode()) == version
    assert json_of(fields.pop("allAclFileVersion").encode()) == {str(world.path): version}
    assert fields == {"brokerName": "b", "brokerAddr": "10.0.0.1:10911", "clusterName": "c"}


def test_the_files_for_a_slave(world: World) -> None:
    answer = world.ask(RemotingCommand.request(28907))
    body = AclFiles.from_json_bytes(answer.body)
    assert body == AclFiles(files=[AclFileText(name="plain_acl.yml", text=ACCOUNT)])
    assert "secret-1" not in repr(body)


@pytest.mark.parametrize(
    ("code", "answer"), [(50, 209), (51, 210), (52, 1), (53, 211), (54, 1), (28907, 3)]
)
def test_without_acl(code: int, answer: int) -> None:
    """52 gets no answer at all from a Java broker, and mqadmin waits in vain."""
    got = ask(AdminAclProcessor(None, IDENTITY), RemotingCommand.request(code))
    assert (got.code, got.remark) == (answer, OFF)


def test_accounts_are_told_without_their_secrets(world: World) -> None:
    """54, with the field names of RocketMQ's body."""
    world.ask(request_of(50, accessKey="account-2", secretKey="secret-2", admin="true"))
    world.ask(request_of(50, accessKey="account-1", secretKey="secret-1", topicPerms="a=PUB,b=SUB"))
    world.ask(request_of(53, globalWhiteAddrs="10.1.1.*,10.2.1.1"))
    answer = world.ask(RemotingCommand.request(54))
    assert b"secret" not in answer.body.lower()
    told = json_of(answer.body)
    assert told["globalWhiteAddrs"] == ["10.1.1.*", "10.2.1.1"]
    first, second = told["plainAccessConfigs"]
    assert (first["accessKey"], first["admin"]) == ("account-1", False)
    assert first["topicPerms"] == ["a=PUB", "b=SUB"]
    assert (second["accessKey"], second["admin"]) == ("account-2", True)
    assert first.keys() == {
        *("accessKey", "admin", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm"),
        *("topicPerms", "groupPerms"),
    }

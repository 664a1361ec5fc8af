"""Accounts and white lists; and as whom mqadmin itself asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from remoting.body.auth import UserInfo
from remoting.errors import RemotingTimeoutError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.remoting.golden_frames import golden_frames
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench
from tools.account import find_signer
from tools.admin_client import AdminClient
from tools.errors import AdminError

VERSIONS = {
    "clusterName": "GoldenCluster",
    "brokerName": "broker-g",
    "brokerAddr": "10.0.0.1:10911",
    "version": '{"counter":1,"timestamp":1795177732468}',
    "allAclFileVersion": '{"/conf/plain_acl.yml":{"counter":3,"timestamp":1795177732468}}',
}


class TestUpdateAclConfig:
    def test_everything_that_can_be_said(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
        options = ["-b", cluster.address, "-a", "account1", "-s", "secret-word", "-m", "true"]
        options += ["-w", "10.0.0.*", "-i", "PUB", "-u", "SUB", "-t", "A=DENY,B=SUB", "-g", "g=SUB"]
        outcome = mqadmin.run("updateAclConfig", *options)
        assert outcome.out == (
            f"create or update plain access config to {cluster.address} success.\n"
            "PlainAccessConfig [accessKey=account1, whiteRemoteAddress=10.0.0.*, admin=true, "
            "defaultTopicPerm=PUB, defaultGroupPerm=SUB, topicPerms=A=DENY,B=SUB, groupPerms=g=SUB]"
            "\n"
        )
        assert cluster.requests[0].ext_fields == {
            "accessKey": "account1",
            "secretKey": "secret-word",
            "whiteRemoteAddress": "10.0.0.*",
            "admin": "true",
            "defaultTopicPerm": "PUB",
            "defaultGroupPerm": "SUB",
            "topicPerms": "A=DENY,B=SUB",
            "groupPerms": "g=SUB",
        }

    def test_a_cluster_means_all_its_brokers(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
        options = ["-c", "GoldenCluster", "-a", "account1", "-s", "secret-word"]
        data = mqadmin.run_json("updateAclConfig", *options)
        assert data == {
            "brokerAddrs": [cluster.address] * 2,
            "plainAccessConfig": {"accessKey": "account1", "admin": False},
        }
        assert cluster.asked(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)[1].ext_fields == {
            "accessKey": "account1",
            "secretKey": "secret-word",
            "admin": "false",
        }

    def test_a_refusal(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, 209, "acl is off")
        options = ["-b", cluster.address, "-a", "a", "-s", "s"]
        outcome = mqadmin.run("updateAclConfig", *options)
        assert outcome.code == 1
        assert outcome.err.endswith(" (209): acl is off\n")


class TestDeleteAclConfig:
    def test_asks(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        outcome = mqadmin.run("deleteAclConfig", "-c", "GoldenCluster", "-a", "account1")
        assert outcome.err == (
            "mqadmin deleteAclConfig: Delete account account1 from cluster GoldenCluster? "
            "Without a terminal, confirm with --yes\n"
        )
        assert cluster.requests == []

    def test_deletes(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.DELETE_ACL_CONFIG)
        options = ["-b", cluster.address, "-a", "account1", "--yes"]
        outcome = mqadmin.run("deleteAclConfig", *options)
        assert outcome.out == (
            f"delete plain access config account from {cluster.address} success.\n"
            "account's accesskey is:account1\n"
        )
        assert mqadmin.run_json("deleteAclConfig", *options) == {
            "brokerAddrs": [cluster.address],
            "accessKey": "account1",
        }
        assert cluster.requests[0].ext_fields == {"accessKey": "account1"}


class TestUpdateGlobalWhiteAddr:
    def test_of_one_file(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
        options = ["-b", cluster.address, "-g", "10.0.0.1,10.0.1.*", "-p", "/conf/acl/a.yml"]
        data = mqadmin.run_json("updateGlobalWhiteAddr", *options)
        assert data == {
            "brokerAddrs": [cluster.address],
            "globalWhiteRemoteAddresses": ["10.0.0.1", "10.0.1.*"],
            "aclFileFullPath": "/conf/acl/a.yml",
        }
        assert cluster.requests[0].ext_fields == {
            "globalWhiteAddrs": "10.0.0.1,10.0.1.*",
            "aclFileFullPath": "/conf/acl/a.yml",
        }

    def test_of_the_main_file(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
        outcome = mqadmin.run("updateGlobalWhiteAddr", "-b", cluster.address, "-g", "10.0.0.1")
        assert outcome.out == (
            f"update global white remote addresses to {cluster.address} success.\n"
        )
        assert cluster.requests[0].ext_fields == {"globalWhiteAddrs": "10.0.0.1"}


class TestClusterAclConfigVersion:
    def test_table(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, fields=VERSIONS)
        outcome = mqadmin.run("clusterAclConfigVersion", "-c", "GoldenCluster")
        assert outcome.out == (
            "#Cluster Name  #Broker Name  #Broker Addr    #AclFilePath         "
            "#AclConfigVersionNum  #AclLastUpdateTime\n"
            "GoldenCluster  broker-g      10.0.0.1:10911  /conf/plain_acl.yml  "
            "3                     2026-11-20 12:28:52\n"
            "get cluster's plain access config version success.\n"
        )
        assert len(cluster.asked(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)) == 1

    def test_data(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        cluster.always(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, fields=VERSIONS)
        assert mqadmin.run_json("clusterAclConfigVersion", "-b", cluster.address) == [
            {
                "clusterName": "GoldenCluster",
                "brokerName": "broker-g",
                "brokerAddr": "10.0.0.1:10911",
                "aclFilePath": "/conf/plain_acl.yml",
                "aclConfigVersionNum": 3,
                "aclLastUpdateTimestamp": 1795177732468,
            }
        ]
        outcome = mqadmin.run("clusterAclConfigVersion", "-b", cluster.address)
        assert outcome.out.endswith("get broker's plain access config version success.\n")

    @pytest.mark.parametrize("text", ["[]", "{", '{"a":1}', '{"a":{"counter":"x"}}'])
    def test_what_is_no_table_of_versions(
        self, mqadmin: Bench, cluster: FakeCluster, text: str
    ) -> None:
        fields = VERSIONS | {"allAclFileVersion": text}
        cluster.always(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, fields=fields)
        outcome = mqadmin.run("clusterAclConfigVersion", "-b", cluster.address)
        assert (outcome.code, outcome.out) == (1, "")
        assert f"{cluster.address} did not answer with a table of file versions: " in outcome.err

    def test_no_file(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        fields = {k: v for k, v in VERSIONS.items() if k != "allAclFileVersion"}
        cluster.always(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, fields=fields)
        assert mqadmin.run_json("clusterAclConfigVersion", "-b", cluster.address) == []

    def test_a_java_broker_with_acl_off_never_answers(
        self, mqadmin: Bench, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def time_out(*_: object, **__: object) -> RemotingCommand:
            raise RemotingTimeoutError(cluster.address, "no answer in 5000 ms")

        monkeypatch.setattr(AdminClient, "call", time_out)
        outcome = mqadmin.run("clusterAclConfigVersion", "-b", cluster.address)
        assert outcome.code == 1
        assert outcome.err.endswith(
            "no answer in 5000 ms: a Java broker with aclEnable=false never answers this\n"
        )


class TestAccount:
    TEXT = "accessKey: rocketmq2\nsecretKey: 12345678\n"

    def home(self, tmp_path: Path, text: str) -> Path:
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "tools.yml").write_text(text, encoding="utf-8")
        return tmp_path

    def test_requests_are_signed_as_java_signs_them(
        self,
        mqadmin: Bench,
        cluster: FakeCluster,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        monkeypatch.setenv("ROCKETMQ_HOME", str(self.home(tmp_path, self.TEXT)))
        assert mqadmin.run("topicList").code == 0
        (request,) = cluster.asked(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        frames = golden_frames(side="request", kind="wire-json")
        java = next(frame.command() for frame in frames if frame.code == request.code)
        assert java.ext_fields["AccessKey"] == "rocketmq2"
        assert request.ext_fields == java.ext_fields

    @pytest.mark.parametrize("text", ["", "accessKey: a\n", "secretKey: b\n"])
    def test_without_both_keys_nothing_is_signed(self, tmp_path: Path, text: str) -> None:
        assert find_signer(str(self.home(tmp_path, text))) is None

    def test_without_a_file_or_a_home(self, tmp_path: Path) -> None:
        assert find_signer(str(tmp_path)) is None
        assert find_signer(None) is None

    def test_a_home_that_is_not_there(self, tmp_path: Path) -> None:
        home = tmp_path / "gone"
        with pytest.raises(AdminError, match=f"ROCKETMQ_HOME: {home} is not a directory"):
            find_signer(str(home))

    def test_a_broken_file_is_an_error(self, tmp_path: Path) -> None:
        home = self.home(tmp_path, "accessKey: [\n")
        with pytest.raises(AdminError, match=r"tools\.yml"):
            find_signer(str(home))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("createAcl", "-s", "User:a", "-r", "Topic:t", "-a", "Pub", "-d", "Allow", "-i", " ,"),
            "-i names no address",
        ),
        (("updateUser", "-u", "a", "-p", " "), "-p is blank"),
    ],
)
def test_an_empty_word_is_not_taken_as_none(
    mqadmin: Bench, arguments: tuple[str, ...], words: str
) -> None:
    """As of a variable of the shell that is not set: it would give more than was meant."""
    outcome = mqadmin.run(*arguments, "-b", mqadmin.cluster.address)
    assert outcome.code != 0
    assert words in outcome.err
    assert mqadmin.cluster.requests == []


def test_a_password_is_the_same_made_or_changed(mqadmin: Bench, cluster: FakeCluster) -> None:
    """As in RocketMQ, without the spaces around it."""
    for code, command in ((3001, "createUser"), (3002, "updateUser")):
        cluster.always(RequestCode(code))
        user = ("-u", " a ", "-p", " x y ", "-t", " Super ")
        assert mqadmin.run(command, "-b", cluster.address, *user).code == 0
        (request,) = cluster.asked(RequestCode(code))
        assert UserInfo.from_json_bytes(request.body) == UserInfo(
            username="a", password="x y", user_type="Super"
        )

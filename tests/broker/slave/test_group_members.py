"""broker.slave.group_members: who else is in the group, by what the name servers say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.out.broker_outer_api import BrokerIdentity
from broker.slave.group_members import GroupMembers, MemberAddress
from remoting.body.route import BrokerData, ClusterInfo
from tests.broker.out.test_broker_outer_api import IDENTITY, answer, api_of, fails


class Source:
    def __init__(self, *infos: ClusterInfo) -> None:
        self.infos = list(infos)

    def get_broker_cluster_info(self) -> list[ClusterInfo]:
        return self.infos


def info(cluster: str | None = "GoldenCluster", **addresses: str) -> ClusterInfo:
    """info(_0="ip:port", _1=...)."""
    group = BrokerData(
        cluster=cluster,
        broker_name="broker-g",
        broker_addrs={int(name[1:]): address for name, address in addresses.items()},
    )
    other = BrokerData(cluster=cluster, broker_name="other", broker_addrs={1: "10.9.9.9:1"})
    return ClusterInfo(broker_addr_table={"broker-g": group, "other": other})


def fetch(*infos: ClusterInfo, identity: BrokerIdentity = IDENTITY) -> list[MemberAddress] | None:
    return GroupMembers(identity, Source(*infos)).fetch_member_ips()


def test_everybody_but_this_broker() -> None:
    members = fetch(info(_0=IDENTITY.broker_addr, _2="10.0.0.2:10911", _1="10.0.0.1:10911"))
    assert members == [MemberAddress(1, "10.0.0.1:10911"), MemberAddress(2, "10.0.0.2:10911")]
    assert [member.ip for member in members] == ["10.0.0.1", "10.0.0.2"]


def test_a_slave_sees_its_master() -> None:
    identity = replace(IDENTITY, broker_id=1, broker_addr="10.0.0.1:10911")
    members = fetch(info(_0="10.0.0.9:10911", _1="10.0.0.1:10911"), identity=identity)
    assert members == [MemberAddress(0, "10.0.0.9:10911")]


def test_the_union_of_what_name_servers_know() -> None:
    members = fetch(info(_1="10.0.0.1:1"), info(_1="10.0.0.1:1", _2="10.0.0.2:1"), info())
    assert members == [MemberAddress(1, "10.0.0.1:1"), MemberAddress(2, "10.0.0.2:1")]


def test_no_answer_is_not_nobody() -> None:
    assert fetch() is None
    assert fetch(ClusterInfo()) == []


def test_the_same_name_in_another_cluster_is_a_stranger() -> None:
    assert fetch(info("Elsewhere", _1="10.0.0.1:1")) == []
    assert fetch(info(None, _1="10.0.0.1:1")) == [MemberAddress(1, "10.0.0.1:1")]


def test_host_names_become_ips_or_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    members = fetch(info(_1="localhost:1", _2="no-such-host.invalid:1", _3=".bad.:1"))
    assert members == [MemberAddress(1, "127.0.0.1:1")]
    assert "broker 2 at no-such-host.invalid:1: ignored, cannot resolve its address" in caplog.text


def test_with_a_java_name_servers_answer() -> None:
    body = (
        b'{"brokerAddrTable":{"broker-g":{"brokerAddrs":{0:"127.0.0.2:20911",1:"127.0.0.2:21911"},'
        b'"brokerName":"broker-g","cluster":"GoldenCluster"}},'
        b'"clusterAddrTable":{"GoldenCluster":["broker-g"]}}'
    )
    api, _ = api_of(good=answer(body), dead=fails("dead"))
    members = GroupMembers(IDENTITY, api).fetch_member_ips()
    assert members == [MemberAddress(1, "127.0.0.2:21911")]


def test_addresses_that_nobody_has_are_left_out() -> None:
    """Java's name servers take any text as a broker's address, from anybody."""
    strange = {"_2": "a\0b:10911", "_3": "x" * 100_000 + ":1", "_4": "", "_5": "10.0.0.5"}
    assert fetch(info(_1="10.0.0.1:1", **strange)) == [MemberAddress(1, "10.0.0.1:1")]

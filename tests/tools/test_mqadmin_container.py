"""addBroker and removeBroker: what is asked of a container, what is shown."""

from __future__ import annotations

import pytest

from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench


def test_adding_a_broker(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.always(RequestCode.ADD_BROKER)
    outcome = mqadmin.run("addBroker", "-c", cluster.address, "-b", " /x/b.conf ")
    assert outcome.out == f"add broker to {cluster.address} success\n"
    (asked,) = cluster.asked(RequestCode.ADD_BROKER)
    assert asked.ext_fields == {"configPath": "/x/b.conf"}


def test_a_refusal_is_the_containers_own(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.always(RequestCode.ADD_BROKER, 1, "addBroker properties empty")
    outcome = mqadmin.run("addBroker", "-c", cluster.address, "-b", "/x/b.conf")
    assert (outcome.code, outcome.out) == (1, "")
    assert "addBroker properties empty" in outcome.err


def test_removing_a_broker(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.always(RequestCode.REMOVE_BROKER)
    outcome = mqadmin.run("removeBroker", "-c", cluster.address, "-b", "c: b :1")
    assert outcome.out == f"remove broker from {cluster.address} success\n"
    (asked,) = cluster.asked(RequestCode.REMOVE_BROKER)
    assert asked.ext_fields == {"brokerClusterName": "c", "brokerName": "b", "brokerId": "1"}


def test_a_broker_that_is_not_there(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.always(RequestCode.REMOVE_BROKER, 211, "Broker not exist")
    outcome = mqadmin.run("removeBroker", "-c", cluster.address, "-b", "c:b:1")
    assert outcome.code == 1
    assert outcome.err == (
        f"mqadmin removeBroker: {cluster.address} answered BROKER_NOT_EXIST (211): "
        "Broker not exist\n"
    )


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        ("c:b", "'c:b' is not clusterName:brokerName:brokerId"),
        ("c:b:x", "'c:b:x' is not clusterName:brokerName:brokerId"),
        ("c:b:--1", "'c:b:--1' is not clusterName:brokerName:brokerId"),
        ("c:b:" + "9" * 20, "is not clusterName:brokerName:brokerId"),
        ("c:b:-1", "brokerId can't be negative"),
    ],
)
def test_an_identity_that_is_none(
    mqadmin: Bench, cluster: FakeCluster, identity: str, words: str
) -> None:
    outcome = mqadmin.run("removeBroker", "-c", cluster.address, "-b", identity)
    assert outcome.code == 1
    assert words in outcome.err
    assert cluster.asked(RequestCode.REMOVE_BROKER) == []

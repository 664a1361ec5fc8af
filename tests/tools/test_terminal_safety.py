"""What a server answers never reaches the operator's terminal as control characters."""

from __future__ import annotations

import pytest

from remoting.body.route import BrokerData, TopicRouteData
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench
from tools.live_view import LiveView

ODD = "\x1b[2Jcluster\x9b"
SHOWN = "\\x1b[2Jcluster\\x9b"


def test_a_cluster_s_name_is_escaped(mqadmin: Bench, cluster: FakeCluster) -> None:
    broker = BrokerData(cluster=ODD, broker_name="b", broker_addrs={0: cluster.address})
    route = TopicRouteData(broker_datas=[broker])
    cluster.always(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=route.to_json_bytes())
    assert mqadmin.run("topicClusterList", "-t", "GTopic").out == f"{SHOWN}\n"


def test_names_of_settings_are_escaped(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.always(RequestCode.GET_NAMESRV_CONFIG, body=f"{ODD}=1\n".encode())
    assert mqadmin.run("getNamesrvConfig").out.split()[-3:] == [f"{SHOWN}", "=", "1"]


def test_a_view_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveView() as view:
        view.show(ODD)
    printed = capsys.readouterr().out
    assert "\x1b[2J" not in printed
    assert "cluster" in printed

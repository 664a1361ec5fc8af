"""What a server answers never reaches the operator's terminal as control characters."""

from __future__ import annotations

import json

import pytest

from remoting.body.route import BrokerData, TopicRouteData
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench
from tools.live_view import LiveView
from tools.report import safe_line, safe_text

TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Turn the direction of writing: a name would be read for another one."""
ODD = f"\x1b[2Jcluster\x9b{TURNS}"
SHOWN = "\\x1b[2Jcluster\\x9b" + "".join(f"\\u{ord(one):04x}" for one in TURNS)


def test_a_cluster_s_name_is_escaped(mqadmin: Bench, cluster: FakeCluster) -> None:
    broker = BrokerData(cluster=ODD, broker_name="b", broker_addrs={0: cluster.address})
    route = TopicRouteData(broker_datas=[broker])
    cluster.always(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=route.to_json_bytes())
    assert mqadmin.run("topicClusterList", "-t", "GTopic").out == f"{SHOWN}\n"


def test_names_of_settings_are_escaped(mqadmin: Bench, cluster: FakeCluster) -> None:
    cluster.always(RequestCode.GET_NAMESRV_CONFIG, body=f"{ODD}=1\n".encode())
    assert f"{SHOWN}=" in mqadmin.run("getNamesrvConfig").out.replace(" ", "")


def test_json_is_the_same_data_and_turns_nothing(mqadmin: Bench, cluster: FakeCluster) -> None:
    odd = f"{ODD}\u2028\\"
    broker = BrokerData(cluster=odd, broker_name="b", broker_addrs={0: cluster.address})
    route = TopicRouteData(broker_datas=[broker])
    cluster.always(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=route.to_json_bytes())
    printed = mqadmin.run("topicClusterList", "--json", "-t", "GTopic").out
    assert json.loads(printed) == [odd]
    assert not set(printed) & set(f"{TURNS}\x1b\x9b\u2028")


def test_text_of_several_lines_is_escaped() -> None:
    assert safe_text(f"a\n\tb{ODD}") == f"a\n\tb{SHOWN}"
    assert safe_line(f"a\nb{ODD}") == f"a\\x0ab{SHOWN}"
    assert safe_text("שלום, مرحبا") == "שלום, مرحبا"


def test_a_view_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveView() as view:
        view.show(ODD)
    printed = capsys.readouterr().out
    assert "\x1b[2J" not in printed
    assert "cluster" in printed

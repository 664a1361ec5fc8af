"""A real Prometheus scrapes a real pair: every query that is shipped gets its answer."""

from __future__ import annotations

import contextlib
import json
import math
import re
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from tests.packaging.promql import (
    DASHBOARDS,
    RULES,
    SLO_RULES,
    alerts,
    fill_in,
    queries,
    records,
    without_records,
)
from tests.support.broker_group import SLAVE, SYNC_MASTER, Group
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker
from tests.support.pop_client import PopClient
from tools.chaos.free_ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TOPIC, GROUP = "Shown", "watchers"
NOTHING_TO_SHOW = {
    "rocketmq_overview: Process restarts: changes(",  # the annotation: nothing was restarted
    "rocketmq_overview: Series beyond the limit: ",
    "rocketmq_replication: Process restarts: changes(",
    "rocketmq_replication: Refused and broken links: sum by (cluster, node_id, instance, reason)",
    # Of members of a group with a controller: tests/broker/metrics/test_member_facts.py
    *(
        f"rocketmq_replication: {panel}: {which} by (cluster, node_id, instance) "
        f"(rocketmq_ha_{name}{{"
        for panel, which, name in (
            ("Master and epoch", "max", "leads"),
            ("Master and epoch", "max", "epoch"),
            ("SyncStateSet", "max", "sync_state_set_size"),
            ("SyncStateSet", "max", "sync_state_set_minimum"),
            ("Without a master", "max", "master_absent_seconds"),
            ("Without a master", "min", "lease_seconds"),
        )
    ),
}
"""Beginnings of the queries that rightly give nothing for a healthy pair."""


def in_a_hurry(rules: str) -> str:
    """The rules, evaluated each second; alerts that wait for minutes wait for seconds."""
    rules = re.sub(r"\b(interval|for): \w+", r"\1: 1s", rules)
    return rules.replace("[1m]", "[5s]").replace("[2m]", "[5s]")


class PrometheusServer:
    """A server of its own: scrapes and evaluates each second, keeps its data in `root`."""

    def __init__(self, binary: str, root: Path, targets: list[str]) -> None:
        root.mkdir()
        self._address = f"127.0.0.1:{free_port()}"
        self._log = root / "log.txt"
        config = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": [RULES.name, SLO_RULES.name],
            "scrape_configs": [
                {"job_name": "rocketmq", "static_configs": [{"targets": targets}]},
            ],
        }
        (root / "prometheus.yml").write_text(yaml.safe_dump(config))
        for path in (RULES, SLO_RULES):
            (root / path.name).write_text(in_a_hurry(path.read_text()))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    binary,
                    f"--config.file={root / 'prometheus.yml'}",
                    f"--storage.tsdb.path={root / 'data'}",
                    f"--web.listen-address={self._address}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        wait_until(self._is_ready, 30)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(self._url("/-/ready")):
            return True
        return False

    def _url(self, path: str, **fields: str) -> str:
        return f"http://{self._address}{path}?{urllib.parse.urlencode(fields)}"

    def get(self, path: str, **fields: str) -> Any:
        """`data` of an answer. AssertionError with what the server says is wrong."""
        try:
            with urllib.request.urlopen(self._url(f"/api/v1/{path}", **fields), timeout=20) as got:
                answer = json.load(got)
        except urllib.error.HTTPError as error:
            answer = json.load(error)
        assert answer["status"] == "success", f"{fields}: {answer}"
        assert not answer.get("warnings"), f"{fields}: {answer}"
        return answer["data"]

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series now."""
        found = self.get("query", query=expr)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def has_data(self, expr: str) -> bool:
        """Whether at least one series is a number."""
        return any(not math.isnan(value) for _, value in self.query(expr))


class Load:
    """A producer and a consumer group that stay online, and a little traffic, on a thread."""

    def __init__(self, master: OurBroker) -> None:
        self._master = master
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failed: list[Exception] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(20)

    def _run(self) -> None:
        try:
            with self._master.client() as client:
                self._beat(client)
                number = 0
                while not self._end.wait(0.05):
                    self._step(client, number)
                    number += 1
        except (OSError, AssertionError) as error:
            self.failed.append(error)

    def _beat(self, client: FrameClient) -> None:
        topic = {"topic": TOPIC, "subString": "*", "expressionType": "TAG", "subVersion": 1}
        consumer = {
            "groupName": GROUP,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [topic],
        }
        beat = {
            "clientID": "127.0.0.1@watcher",
            "producerDataSet": [{"groupName": "producers"}],
            "consumerDataSet": [consumer],
        }
        client.send(TOPIC, 0, b"first")
        assert client.call(34, {}, json.dumps(beat).encode()).code == 0
        self._time_and_pop(client)

    def _time_and_pop(self, client: FrameClient) -> None:
        """Timer messages, due soon and much later; a message that is popped and not acknowledged,
        so that it comes again."""
        for delay_ms in (1_000, 3_600_000):
            due = f"TIMER_DELIVER_MS\x01{int(time.time() * 1000) + delay_ms}"
            fields: dict[str, object] = {
                "a": "timers",
                "b": TOPIC,
                "c": "TBW102",
                "d": 4,
                "e": 0,
                "f": 0,
                "g": 0,
            }
            fields |= {"h": 0, "i": due, "j": 0}
            # Until the slave is there to have it, too.
            wait_until(lambda f=fields: client.call(310, f, b"timed").code == 0)  # type: ignore[misc]
        popping = PopClient(client, GROUP, "broker-a")
        wait_until(lambda: popping.pop(TOPIC, invisibleTime=1_000).messages)

    def _step(self, client: FrameClient, number: int) -> None:
        client.send(TOPIC, number % 4, b"x" * 200)
        client.pull(TOPIC, number % 4, max(number // 4 - 1, 0), count=1)
        client.pull(TOPIC, 0, 1 << 40)  # an answer that is no success
        commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 0}
        client.call(15, commit)


def expected_empty(query: object) -> bool:
    return any(str(query).startswith(begin) for begin in NOTHING_TO_SHOW)


def soon(alert: str) -> str:
    """The alert's expression over 5 s instead of minutes."""
    return re.sub(r"\[\d+m\b", "[5s", without_records(alerts()[alert]["expr"]))


@contextlib.contextmanager
def watched_pair(root: Path, binary: str) -> Iterator[tuple[Group, PrometheusServer]]:
    """A SYNC_MASTER and its slave under load, scraped."""
    with Group(root).running() as group:
        master = group.start(group.first, SYNC_MASTER)
        slave = group.start(group.second, SLAVE)
        targets = [f"127.0.0.1:{each.ports['metrics']}" for each in (master, slave)]
        server = PrometheusServer(binary, root / "prometheus", targets)
        with server, Load(master) as load:
            yield group, server
        assert load.failed == []


def test_every_query_is_answered_and_a_dead_replica_is_seen(
    prometheus: str, tmp_path: Path
) -> None:
    with watched_pair(tmp_path, prometheus) as (group, server):
        check_healthy(server)
        group.second.crash()
        check_slave_dead(server, f"127.0.0.1:{group.second.ports['metrics']}")


def check_healthy(server: PrometheusServer) -> None:
    # Sampled each 5 s: the last to come.
    wait_until(lambda: server.has_data("rate(rocketmq_consumer_lag_messages[5s])"), 30)
    wait_until(lambda: server.has_data("increase(rocketmq_metrics_dump_lines_total[1m]) > 0"), 30)
    everything = [query for path in DASHBOARDS for query in queries(path)]
    assert sum(map(expected_empty, everything)) == len(NOTHING_TO_SHOW)
    for query in everything:
        if expected_empty(query):
            server.query(query.filled_in)
        else:
            wait_until(lambda q=query: server.has_data(q.filled_in), 15)  # type: ignore[misc]
    check_variables(server)
    for name, expr in records().items():
        # One record is made of others, which have to be there first.
        wait_until(lambda e=expr: server.has_data(e), 30)  # type: ignore[misc]
        assert server.has_data(expr), name
    for rule in alerts().values():
        # With the names of recording rules, and with what they stand for.
        check_silent(server, rule["expr"])
        check_silent(server, without_records(rule["expr"]))
    for name in records():
        wait_until(lambda n=name: server.has_data(n), 15)  # type: ignore[misc]
    found = [rule for group in server.get("rules")["groups"] for rule in group["rules"]]
    assert [rule for rule in found if rule.get("lastError")] == []


def check_silent(server: PrometheusServer, expr: str) -> None:
    """Soon: a dump that is 5 s old has not grown yet."""
    wait_until(lambda: server.query(expr) == [], 15)


def check_variables(server: PrometheusServer) -> None:
    """What Grafana asks for to fill them."""
    for path in DASHBOARDS:
        for variable in json.loads(path.read_text())["templating"]["list"]:
            if variable["type"] != "query":
                continue
            inside = variable["definition"].removeprefix("label_values(").removesuffix(")")
            selector, _, label = inside.rpartition(",")
            found = server.get("series", **{"match[]": fill_in(selector)})
            assert {each[label.strip()] for each in found}, variable["name"]


def check_slave_dead(server: PrometheusServer, gone: str) -> None:
    down = soon("RocketMQReplicaDown")
    wait_until(lambda: server.query(down), 30)
    ((labels, value),) = server.query(down)
    assert value > 0.9
    assert labels["replica"] == "broker-a:1"
    assert labels["instance"] != gone, "its master says it, not the replica"
    wait_until(lambda: server.query(soon("RocketMQScrapeFailing")), 30)
    assert [labels["instance"] for labels, _ in server.query(soon("RocketMQScrapeFailing"))] == [
        gone
    ]
    wait_until(lambda: server.query(soon("RocketMQSyncSendsFail")), 30)
    # The dashboards go on showing what the master knows.
    for path in DASHBOARDS:
        for query in queries(path):
            server.query(query.filled_in)
    assert server.query('rocketmq_ha_replica_connected{replica="broker-a:1"}')[0][1] == 0
    wait_until(lambda: server.query('rocketmq_ha_state_seconds_total{state="disconnected"} > 1'))
    # And the rule itself.
    firing = 'ALERTS{alertname="RocketMQReplicaDown",alertstate="firing"}'
    wait_until(lambda: server.query(firing), 30)
    found = server.get("alerts")["alerts"]
    (alert,) = (each for each in found if each["labels"]["alertname"] == "RocketMQReplicaDown")
    assert alert["annotations"]["summary"] == "Replica broker-a:1 is not connected to its master"

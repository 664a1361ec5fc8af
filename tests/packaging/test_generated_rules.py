"""`mqreport rules`: what it writes is right for promtool, and fires for whom sla.yaml says."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark.command.command_line import main
from spark.config.openslo_documents import documents
from spark.config.prometheus_rules import rules_text
from spark.config.sla_config import parse_sla, read_sla
from tests.packaging.promql import SLO_RULES
from tests.packaging.test_rules import run_promtool

SHIPPED = Path(__file__).parents[2] / "conf" / "sla.yaml"
SEVERAL = """
objectives:
  - name: orders
    cluster: prod-*
    broker: "orders?|pay.x"
    availability_percent: 99.95
    lag_seconds: 5
    sync_ok_percent: 99.99
    runbook_url: https://wiki.example.com/orders
  - name: "loose {{"
    replica: "*:2"
    availability_percent: 90
    sync_ok_percent: off
"""
ALL_OF_THEM = 'group by (alertname, objective, node_id) (ALERTS{alertstate="firing"})'


def test_the_shipped_rules_are_those_of_the_shipped_objectives() -> None:
    """To write them again: bin/mqreport rules --out packaging/prometheus/rocketmq_slo_rules.yml"""
    assert SLO_RULES.read_text(encoding="utf-8") == rules_text(read_sla(SHIPPED))


def test_one_objective_stands_in_one_place() -> None:
    """Another number in sla.yaml is another number in each rule that has to do with it."""
    text = rules_text(parse_sla(SHIPPED.read_text().replace("99.9\n", "99.95\n"), "x"))
    assert text.count("(14.4 * 0.0005)") == 2
    assert text.count("(6 * 0.0005)") == text.count("(1 * 0.0005)") == 2
    assert text.count("(14.4 * 0.001)") == 2, "of the synchronous sends, which have their own"


@pytest.mark.parametrize(
    "sla",
    [
        "",
        SEVERAL,
        "windows: [2]",
        "windows: [90]\nobjectives:\n- {name: 'a\"b\\c {{ $labels }}', broker: 'a.b(c)+[d]|x'}",
        "objectives:\n- {name: all, sync_ok_percent: 100, availability_percent: 99.999999}",
        "objectives:\n- {name: 'ß \\u202e', cluster: '?', broker: 'a$^{}', replica: \"'*\"}",
    ],
)
def test_what_is_written_is_correct(sla: str, promtool: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(rules_text(parse_sla(sla, "x")), encoding="utf-8")
    assert "SUCCESS" in run_promtool(promtool, "check", "rules", "--lint-fatal", str(path))


def test_a_budget_of_two_days_has_no_alert_over_three() -> None:
    text = rules_text(parse_sla("windows: [2]", "x"))
    assert "RocketMQBudgetBurnFast" in text
    assert "BurnSlow" not in text


def series(metric: str, labels: str, values: str) -> dict[str, str]:
    return {"series": f"{metric}{{{labels}}}", "values": values}


def replica(cluster: str, broker: str, number: int, *, bad: str, lag: str) -> list[dict[str, str]]:
    """An asynchronous master's replica, scraped each minute; 1 % of the sends fail."""
    group = f'cluster="{cluster}",node_id="{broker}",instance="{broker}:1"'
    own = f'{group},replica="{broker}:{number}"'
    sent = "rocketmq_ha_sync_result_total"
    return [
        series("rocketmq_ha_state_seconds_total", f'{own},state="catching_up"', bad),
        series("rocketmq_ha_replica_connected", f'{own},role="ASYNC_MASTER"', "1x500"),
        series("rocketmq_ha_replica_in_sync", f'{own},role="ASYNC_MASTER"', "1x500"),
        series("rocketmq_ha_replica_lag_seconds", f'{own},role="ASYNC_MASTER"', lag),
        series(sent, f'{group},result="ok"', "0+990x500"),
        series(sent, f'{group},result="flush_slave_timeout"', "0+10x500"),
    ]


def unit_test(tests: list[dict[str, Any]]) -> str:
    return yaml.safe_dump(
        {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    )


def fired(*alerts: tuple[str, str, str]) -> list[dict[str, Any]]:
    names = ("alertname", "objective", "node_id")
    return [
        {
            "labels": "{" + ", ".join(f'{k}="{v}"' for k, v in zip(names, one, strict=True)) + "}",
            "value": 1,
        }
        for one in ((f"RocketMQ{name}", *others) for name, *others in alerts)
    ]


def cases() -> list[dict[str, Any]]:
    """1 % of the time out of sync: 20 times what orders allow, 10 times the default's budget, a
    tenth of what is allowed to the loose ones."""
    # payZx is no pay.x: the dot of a name is no wildcard.
    brokers = [
        *(("prod-1", "orders1", 1), ("prod-1", "ordersXX", 1)),
        *(("prod-1", "payZx", 2), ("test", "orders2", 2)),
    ]
    bad = [one for name in brokers for one in replica(*name, bad="0+0.6x500", lag="0x500")]
    late = [one for name in brokers for one in replica(*name, bad="0x500", lag="7x500")]
    sends = [
        ("SyncBudgetBurnFast", "orders", "orders1"),
        ("SyncBudgetBurn", "orders", "orders1"),
        ("SyncBudgetBurnSlow", "orders", "orders1"),
    ]
    return [
        {
            "name": "1 % of the time out of sync",
            "interval": "1m",
            "input_series": bad,
            "promql_expr_test": [
                {
                    "expr": ALL_OF_THEM,
                    "eval_time": "7h",
                    "exp_samples": fired(
                        ("BudgetBurnFast", "orders", "orders1"),
                        ("BudgetBurn", "orders", "orders1"),
                        ("BudgetBurnSlow", "orders", "orders1"),
                        ("BudgetBurn", "default", "ordersXX"),
                        *sends,
                    ),
                }
            ],
            "alert_rule_test": [
                {
                    "eval_time": "7h",
                    "alertname": "RocketMQBudgetBurnFast",
                    "exp_alerts": [
                        {
                            "exp_labels": {
                                "severity": "critical",
                                "objective": "orders",
                                "cluster": "prod-1",
                                "node_id": "orders1",
                                "replica": "orders1:1",
                            },
                            "exp_annotations": {
                                "summary": "Replica orders1:1 uses up 2 % of its 30 days' budget"
                                " in an hour",
                                "description": "It was out of sync, or its lag above 5 s, for 1%"
                                " of the last hour; the objective allows 0.05 %.",
                                "runbook": "docs/monitoring.md#rocketmqbudgetburnfast",
                                "runbook_url": "https://wiki.example.com/orders",
                            },
                        }
                    ],
                }
            ],
        },
        {
            "name": "in sync, and 7 s late all the time",
            "interval": "1m",
            "input_series": late,
            "promql_expr_test": [
                {
                    "expr": ALL_OF_THEM,
                    "eval_time": "7h",
                    "exp_samples": fired(
                        ("BudgetBurnFast", "orders", "orders1"),
                        ("BudgetBurn", "orders", "orders1"),
                        ("BudgetBurnSlow", "orders", "orders1"),
                        ("ReplicaLagHigh", "orders", "orders1"),
                        *sends,
                    ),
                }
            ],
        },
    ]


def run_cases(promtool: str, directory: Path, sla: str) -> subprocess.CompletedProcess[str]:
    (directory / "rules.yml").write_text(rules_text(parse_sla(sla, "x")), encoding="utf-8")
    (directory / "test.yml").write_text(unit_test(cases()), encoding="utf-8")
    command = [promtool, "test", "rules", str(directory / "test.yml")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_each_objective_has_its_own_alerts(promtool: str, tmp_path: Path) -> None:
    done = run_cases(promtool, tmp_path, SEVERAL)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_with_other_objectives_others_fire(promtool: str, tmp_path: Path) -> None:
    done = run_cases(promtool, tmp_path, SEVERAL.replace("99.95", "99.8"))
    assert done.returncode != 0
    assert "BudgetBurnFast" in done.stdout + done.stderr


def test_the_queries_of_openslo_are_promql(promtool: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"a:b:c{number}", "expr": part["metricSource"]["spec"]["query"]}
        for number, (document, kind) in enumerate(
            (document, kind)
            for document in documents(parse_sla(SEVERAL, "x"))
            if document["kind"] == "SLO"
            for kind in document["spec"]["indicator"]["spec"]["ratioMetric"]
            if kind != "counter"
        )
        for part in [document["spec"]["indicator"]["spec"]["ratioMetric"][kind]]
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    assert len(rules) == 8
    run_promtool(promtool, "check", "rules", str(path))


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sla = tmp_path / "sla.yaml"
    sla.write_text(SEVERAL)
    expected = rules_text(read_sla(sla))
    assert main(["rules", "--sla", str(sla)], lambda: 0) == 0
    assert capfd.readouterr().out == expected
    out = tmp_path / "rules.yml"
    assert main(["rules", "--sla", str(sla), "--out", str(out)], lambda: 0) == 0
    assert out.read_text() == expected
    assert main(["rules", "--out", str(tmp_path / "none" / "x")], lambda: 0) == 3
    assert "x: cannot be written: No such file or directory" in capfd.readouterr().err
    sla.write_text("objectivs: []")
    assert main(["rules", "--sla", str(sla)], lambda: 0) == 3
    assert "sla.yaml:1: unknown key 'objectivs'" in capfd.readouterr().err

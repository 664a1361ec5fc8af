"""The Grafana dashboards: well-formed, laid out without overlap, asking for what exists."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packaging.promql import DASHBOARDS, dashboard, fill_in, panels, queries, wrong_names
from tests.packaging.test_rules import run_promtool

each_board = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


def test_both_are_there() -> None:
    assert [path.stem for path in DASHBOARDS] == ["rocketmq_overview", "rocketmq_replication"]
    uids = [dashboard(path)["uid"] for path in DASHBOARDS]
    assert len(set(uids)) == 2


@each_board
def test_it_can_be_imported(path: Path) -> None:
    board = dashboard(path)
    assert board["id"] is None  # Grafana gives it one.
    assert board["schemaVersion"] >= 39
    assert "__inputs" not in board
    variables = {each["name"]: each for each in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert {"cluster", "node_id", "instance"} <= variables.keys()
    for name in ("cluster", "node_id", "instance"):
        query = variables[name]["query"]["query"]
        selector, _, label = query.removeprefix("label_values(").removesuffix(")").rpartition(",")
        assert label.strip() == name
        assert wrong_names(selector) == []


@each_board
def test_every_panel_is_complete(path: Path) -> None:
    board = dashboard(path)
    ids = [panel["id"] for panel in panels(board)]
    assert len(ids) == len(set(ids))
    for panel in panels(board):
        if panel["type"] == "row":
            continue
        title = panel["title"]
        assert panel["description"].endswith("."), title
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"], title
        assert panel["datasource"]["uid"] == "${datasource}", title
        assert panel["targets"], title
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs)), title
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}", title


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


@each_board
def test_no_panel_covers_another(path: Path) -> None:
    placed: list[dict[str, Any]] = list(panels(dashboard(path)))
    for panel in placed:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert min(place["w"], place["h"]) > 0, panel["title"]
    for one, other in combinations(placed, 2):
        assert not _overlap(one["gridPos"], other["gridPos"]), f"{one['title']}, {other['title']}"


@each_board
def test_queries_name_what_exists(path: Path) -> None:
    wrong = [(str(query), wrong_names(query.expr, query.legend)) for query in queries(path)]
    assert [each for each in wrong if each[1]] == []


@pytest.mark.parametrize(
    ("expr", "template"),
    [
        ("rocketmq_no_such_metric", ""),
        ("rocketmq_rpc_latency_milliseconds", ""),
        ('rocketmq_ready{replica="a"}', ""),
        ("sum by (topic) (rocketmq_ready)", ""),
        ("sum by (cluster) (rocketmq_ready)", "{{node_id}}"),
        ("vector(1)", ""),
    ],
)
def test_a_wrong_name_is_found(expr: str, template: str) -> None:
    assert wrong_names(expr, template)


@each_board
def test_every_query_is_filtered_by_the_variables(path: Path) -> None:
    """Else a selection of one broker shows others."""
    chosen = 'cluster=~"$cluster",node_id=~"$node_id",instance=~"$instance"'
    for query in queries(path):
        assert query.expr.count("rocketmq_") == query.expr.count(chosen), str(query)


@each_board
def test_no_variable_is_left_in_a_query(path: Path) -> None:
    for query in queries(path):
        assert "$" not in fill_in(query.expr), str(query)


@each_board
def test_every_query_parses(path: Path, promtool: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": query.filled_in}
        for number, query in enumerate(queries(path))
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    text = run_promtool(promtool, "check", "rules", str(file))
    assert f"{len(rules)} rules found" in text

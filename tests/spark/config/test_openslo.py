"""OpenSLO documents: what is written follows the specification and comes back the same; what cannot
be kept is refused by name."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spark.command.command_line import main
from spark.config.objectives import SlaConfig
from spark.config.openslo_documents import documents, documents_text, read_sla_of
from spark.config.openslo_reader import OpenSloError, read_documents
from spark.config.sla_config import SlaError, default_sla, parse_sla
from spark.config.sla_text import sla_text

EVERYTHING = """
objectives:
  - name: "Orders: \\"paid\\" ß"
    cluster: prod-?
    broker: "orders.*|pay+s"
    replica: "*:1"
    availability_percent: 99.95
    lag_seconds: .5
    min_coverage_percent: 99.5
    lag_p99_seconds: 2
    sync_ok_percent: 99.99
    rpo_bytes: 1048576
    metadata_age_seconds: 60
    metadata_required: true
    first_copy_hours: 0
    runbook_url: "https://wiki.example.com/a?b=c#d"
    consumer_lag:
      - {group: "g*", seconds: 60}
      - {group: h, topic: "t|u", messages: 1000, percent: 100}
  - {name: strict, cluster: prod-2, sync_ok_percent: 100}
  - {name: orders-paid, broker: "b\\\\c", sync_ok_percent: off}
expect: [{cluster: c, broker: b, replica: "b:1"}]
retired: [{broker: old-*}]
windows: [7, 28]
exit_on: both
error_budget_policy:
  - {at_percent: 12.5, label: look}
  - {at_percent: 100, label: "freeze: all", exit_code: 10, notify: true}
maintenance:
  - {from: 2026-12-01T22:00:00Z, to: 2026-12-02T02:00:00.500Z, broker: orders-*, reason: "disks: 1"}
  - {weekly: "sunday 23:00-01:00", reason: weekly}
  - {weekly: "monday 00:00-24:00", cluster: test, reason: on Mondays}
"""
HAND_WRITTEN = """
apiVersion: openslo/v1
kind: DataSource
metadata: {name: prom}
spec: {type: Prometheus, connectionDetails: {url: http://prometheus:9090}}
---
apiVersion: openslo/v1
kind: SLI
metadata: {name: in-sync, labels: {team: [mq]}}
spec:
  ratioMetric:
    counter: true
    good:
      metricSource:
        metricSourceRef: prom
        type: Prometheus
        spec:
          query: >-
            sum(rocketmq_ha_state_seconds_total{state="in_sync", node_id=~"orders-.*",
            cluster="prod"})
    total:
      metricSource:
        metricSourceRef: prom
        spec: {query: 'sum(rocketmq_ha_state_seconds_total{cluster="prod",node_id=~"orders-.*"})'}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: orders, displayName: Orders}
spec:
  description: Orders are replicated.
  service: mq
  indicatorRef: in-sync
  timeWindow: [{duration: 4w, isRolling: true}]
  budgetingMethod: Occurrences
  objectives: [{target: 0.9995}]
"""


def same(sla: SlaConfig) -> SlaConfig:
    """Without where it came from."""
    return dataclasses.replace(sla, source="")


def read(text: str, directory: Path) -> SlaConfig:
    path = directory / "slo.yaml"
    path.write_text(text, encoding="utf-8")
    return read_sla_of([str(path)])


def round_trip(sla: SlaConfig, directory: Path) -> SlaConfig:
    return read(documents_text(sla), directory)


CONTRACT = """
objectives:
  - name: a
    cluster: c
    sends_ok_percent: 99.95
    sends_slower_than: {ms: 100, percent: 1}
    group_availability: {in_sync_replicas: 3, percent: 99.99}
  - {name: b, broker: x, group_availability: any}
windows: [7, 30, month, quarter]
timezone: America/New_York
"""


@pytest.mark.parametrize(
    "text",
    ["", EVERYTHING, CONTRACT, "windows: [30, week]"],
    ids=["default", "everything", "contract", "week"],
)
def test_what_is_written_comes_back(text: str, tmp_path: Path) -> None:
    sla = parse_sla(text, "x")
    back = round_trip(sla, tmp_path)
    assert same(back) == same(sla)
    assert documents_text(back) == documents_text(sla)
    assert same(parse_sla(sla_text(sla), "x")) == same(sla)


TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8),
    # What YAML and JSON take for something else.
    st.sampled_from(["null", "true", "1e3", "[]", '"x"', "off", "~", "2026-01-01"]),
)
PATTERNS = st.lists(st.text('ab.-*?+(\\"{}', min_size=1, max_size=4), min_size=1, max_size=2).map(
    "|".join
)
OBJECTIVES = st.fixed_dictionaries(
    {"name": TEXTS, "cluster": PATTERNS, "broker": PATTERNS, "replica": PATTERNS},
    optional={
        "availability_percent": st.floats(1, 99.999),
        "lag_seconds": st.floats(0.001, 1000),
        "sync_ok_percent": st.one_of(st.floats(1, 100), st.just("off")),
        "first_copy_hours": st.integers(0, 744),
        "rpo_bytes": st.integers(0, 2**53),
    },
)


@given(st.lists(OBJECTIVES, max_size=4), st.sets(st.integers(2, 90), min_size=1, max_size=4))
def test_any_objectives_come_back(objectives: list[dict[str, Any]], windows: set[int]) -> None:
    try:
        text = yaml.safe_dump({"objectives": objectives, "windows": sorted(windows)})
        sla = parse_sla(text, "x")
    except SlaError:  # names twice, objectives that can never match
        return
    loaded = list(yaml.safe_load_all(documents_text(sla)))
    labelled = [(f"document {number}", document) for number, document in enumerate(loaded)]
    sections = read_documents(labelled, "openslo/v1", "mqreport.rocketmq/")
    assert same(parse_sla(yaml.safe_dump(sections), "x")) == same(sla)


def test_what_is_written_follows_the_specification() -> None:
    """Of OpenSLO v1: names are DNS labels, annotations are texts with a prefix that is a domain, a
    target is below 100, and there is one time window."""
    found = list(documents(parse_sla(EVERYTHING, "x")))
    assert [document["kind"] for document in found] == ["Service"] + ["SLO"] * 5
    names = [document["metadata"]["name"] for document in found]
    assert len(set(names)) == len(names)
    service = names[0]
    for document in found:
        assert document["apiVersion"] == "openslo/v1"
        metadata = document["metadata"]
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", metadata["name"])
        for key, value in metadata.get("annotations", {}).items():
            assert re.fullmatch(
                r"([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z0-9-]+/[A-Za-z0-9][\w.-]{0,62}", key
            )
            assert isinstance(value, str)
            assert value
        assert len(document["spec"]["description"]) <= 1050
    for slo in found[1:]:
        spec = slo["spec"]
        assert spec["service"] == service
        assert spec["budgetingMethod"] == "Occurrences"
        assert spec["timeWindow"] == [{"duration": "28d", "isRolling": True}]
        (objective,) = spec["objectives"]
        assert 0 <= objective["targetPercent"] < 100
        metric = spec["indicator"]["spec"]["ratioMetric"]
        assert len({"good", "bad"} & metric.keys()) == 1
        assert metric["total"]["metricSource"]["type"] == "Prometheus"


def test_an_earlier_objective_is_taken_out() -> None:
    text = "objectives: [{name: a, cluster: x}, {name: b, replica: 'y:*'}]"
    *_, last = documents(parse_sla(text, "x"))
    metric = last["spec"]["indicator"]["spec"]["ratioMetric"]
    assert metric["total"]["metricSource"]["spec"]["query"] == (
        "sum(rocketmq_ha_state_seconds_total"
        ' unless rocketmq_ha_state_seconds_total{cluster="x"}'
        ' unless rocketmq_ha_state_seconds_total{replica=~"y:.*"})'
    )


def test_documents_of_others(tmp_path: Path) -> None:
    orders, default = read(HAND_WRITTEN, tmp_path).objectives
    assert (orders.name, orders.patterns) == ("Orders", ("prod", "orders-*", "*"))
    assert orders.availability_percent == 99.95
    assert read(HAND_WRITTEN, tmp_path).windows == (7, 28)
    assert default == default_sla().objectives[0]


def changed(old: str, new: str) -> str:
    assert old in HAND_WRITTEN
    return HAND_WRITTEN.replace(old, new)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            changed("rocketmq_ha_state_seconds_total", "http_requests_total"),
            "slo.yaml: document 3, SLO 'orders': its queries are not about replication as mqreport"
            " judges it: 'sum(http_requests_total{cluster=",
        ),
        (
            changed('node_id=~"orders-.*"})', 'node_id=~"orders-[0-9]"})'),
            "document 3, SLO 'orders': its queries are not about replication",
        ),
        (
            changed('state="in_sync", ', 'state="catching_up", '),
            "document 3, SLO 'orders': its queries are not those that `mqreport openslo export`",
        ),
        (
            changed(' cluster="prod"})', ' cluster="test"})'),
            "document 3, SLO 'orders': its queries are not those that `mqreport openslo export`",
        ),
        (
            changed("Occurrences", "Timeslices"),
            "SLO 'orders': spec.budgetingMethod is 'Timeslices': only Occurrences is judged",
        ),
        (
            changed("duration: 4w, isRolling: true", "duration: 1M, isRolling: true"),
            "spec.timeWindow has duration '1M': write days or weeks, 30d",
        ),
        (
            changed("4w, isRolling: true", "4w, calendar: {timeZone: UTC}"),
            "spec.timeWindow has duration '4w': calendar windows have one of 1w, 1M, 1Q",
        ),
        (
            changed("4w, isRolling: true", "4w, isRolling: false"),
            "spec.timeWindow: write isRolling: true, or isRolling: false and a calendar",
        ),
        (
            changed("4w, isRolling: true", "1M, isRolling: false, calendar: {timeZone: UTC}"),
            "spec.timeWindow: calendar.startTime is 'None': it must be the midnight at which a",
        ),
        (
            changed(
                "4w, isRolling: true",
                "1Q, isRolling: false, calendar: {startTime: 2026-02-01 00:00:00, timeZone: UTC}",
            ),
            "calendar.startTime is '2026-02-01 00:00:00': it must be the midnight at which a quart",
        ),
        (
            changed(
                "4w, isRolling: true",
                "1w, isRolling: false, calendar: {startTime: 2024-01-01 00:00:00, timeZone: Mars}",
            ),
            "calendar.timeZone is 'Mars': write the name of a time zone of the IANA database",
        ),
        (changed("{target: 0.9995}", ""), "spec.objectives needs exactly one entry"),
        (
            changed("{target: 0.9995}", "{target: 0.9995, targetPercent: 99}"),
            "spec.objectives needs one number: target or targetPercent",
        ),
        (
            changed("{target: 0.9995}", "{target: 0.99, timeSliceTarget: 0.9}"),
            "spec.objectives: timeSliceTarget is not judged",
        ),
        (
            changed("indicatorRef: in-sync", "indicatorRef: other"),
            "spec.indicatorRef 'other': there is no such SLI",
        ),
        (
            changed("  ratioMetric:", "  thresholdMetric:"),
            "its indicator has no ratioMetric: nothing else is judged",
        ),
        (
            changed("service: mq", "service: mq\n  alertPolicies: [page]"),
            "spec.alertPolicies: alerts come from `mqreport rules`; remove them",
        ),
        (changed("service: mq", "sevice: mq"), "SLO 'orders': spec.sevice is not known"),
        (
            HAND_WRITTEN + "---\napiVersion: openslo/v1\nkind: AlertPolicy\n"
            "metadata: {name: page}\nspec: {}\n",
            "slo.yaml: document 4: AlertPolicy 'page': alerts come from `mqreport rules`; remov",
        ),
        (
            HAND_WRITTEN.replace("openslo/v1", "openslo/v1alpha"),
            "slo.yaml: document 1: DataSource 'prom' has apiVersion 'openslo/v1alpha': only",
        ),
        (
            changed("kind: DataSource", "kind: Pod"),
            "document 1: Pod 'prom': only SLO, SLI, Service",
        ),
        ("- 1", "slo.yaml: document 1: is not an OpenSLO document: write apiVersion"),
        ("", "no SLO is among the documents"),
        ("a: [", "slo.yaml: not valid YAML"),
        (
            changed("displayName: Orders", "annotations: {mqreport.rocketmq/lag_second: '5'}"),
            "mqreport.rocketmq/lag_second is not known; known are consumer_lag, first_copy_hours,",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(OpenSloError) as caught:
        read(text, tmp_path)
    assert any(expected in problem for problem in caught.value.problems), caught.value.problems


def test_sends_need_the_availability_of_the_same_groups(tmp_path: Path) -> None:
    sla = parse_sla("objectives: [{name: a, broker: b, sync_ok_percent: 99}]", "x")
    found = [document for document in documents(sla) if "a-availability" not in str(document)]
    with pytest.raises(OpenSloError, match="no SLO for the availability of the same broker groups"):
        read(yaml.safe_dump_all(found), tmp_path)


@pytest.mark.parametrize(
    ("duration", "start", "calendar"),
    [
        ("1M", "2026-02-01 00:00:00", "month"),
        ("1Q", "'2025-10-01 00:00:00'", "quarter"),
        ("1w", "2026-11-23 00:00:00", "week"),
    ],
)
def test_calendar_windows_of_others(
    duration: str, start: str, calendar: str, tmp_path: Path
) -> None:
    window = f"{{startTime: {start}, timeZone: America/New_York}}"
    text = changed("4w, isRolling: true", f"{duration}, isRolling: false, calendar: {window}")
    found = read(text, tmp_path)
    assert (found.windows, found.calendars) == ((7, 30), (calendar,))
    assert found.timezone == "America/New_York"


def test_a_calendar_window_is_written_as_the_specification_says() -> None:
    text = "windows: [7, week, month, 28]\ntimezone: Europe/Berlin"
    _, slo = documents(parse_sla(text, "x"))
    assert slo["spec"]["timeWindow"] == [
        {
            "duration": "1M",
            "isRolling": False,
            "calendar": {"startTime": "2024-01-01 00:00:00", "timeZone": "Europe/Berlin"},
        }
    ]


def test_a_zone_that_contradicts_the_annotation(tmp_path: Path) -> None:
    text = "windows: [7, month]\ntimezone: Europe/Berlin"
    written = documents_text(parse_sla(text, "x"))
    changed_zone = written.replace("timeZone: Europe/Berlin", "timeZone: Europe/Paris")
    assert changed_zone != written
    with pytest.raises(OpenSloError, match=r"month in Europe/Paris, .*timezone is Europe"):
        read(changed_zone, tmp_path)


def test_different_windows(tmp_path: Path) -> None:
    first, second = list(documents(parse_sla("objectives: [{name: a, broker: b}]", "x")))[1:]
    second["spec"]["timeWindow"][0]["duration"] = "28d"
    with pytest.raises(OpenSloError, match="different time windows: 28d, 30d; give them one"):
        read(yaml.safe_dump_all([first, second]), tmp_path)


def test_a_value_that_sla_yaml_refuses_is_refused(tmp_path: Path) -> None:
    text = changed("displayName: Orders", "annotations: {mqreport.rocketmq/lag_seconds: '-5'}")
    with pytest.raises(SlaError, match="lag_seconds is -5"):
        read(text, tmp_path)


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sla, slo, back = tmp_path / "sla.yaml", tmp_path / "slo.yaml", tmp_path / "back.yaml"
    sla.write_text(EVERYTHING, encoding="utf-8")
    assert main(["openslo", "export", "--sla", str(sla), "--out", str(slo)], lambda: 0) == 0
    assert main(["openslo", "import", str(slo), "--out", str(back)], lambda: 0) == 0
    assert same(parse_sla(back.read_text(encoding="utf-8"), "x")) == same(
        parse_sla(EVERYTHING, "x")
    )
    assert main(["openslo", "import", str(slo)], lambda: 0) == 0
    assert capfd.readouterr().out == back.read_text(encoding="utf-8")
    assert main(["openslo", "import", str(sla)], lambda: 0) == 3
    assert "sla.yaml: document 1: None lacks metadata.name" in capfd.readouterr().err
    assert main(["openslo", "import", str(tmp_path / "none")], lambda: 0) == 3
    assert "none: No such file or directory" in capfd.readouterr().err
    assert main(["openslo"], lambda: 0) == 3
    assert "required: export|import" in capfd.readouterr().err

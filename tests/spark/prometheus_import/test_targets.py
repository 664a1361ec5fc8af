"""Whose series they are: labels of the server's own, renamed ones, two servers, foreign targets."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from spark.command import import_command
from spark.prometheus_import.lines import Imported, lines_of
from spark.prometheus_import.metrics import BASE_LABELS, OWN_LABELS
from spark.prometheus_import.response import ResponseError, read_responses
from tests.spark.prometheus_answers import T0, Answer, grid

NEW = T0 + 4 * 15
"""The moment at which something changes in the middle of a test's answer."""


def imported(tmp_path: Path, answer: Answer) -> Imported:
    return lines_of(read_responses([answer.write(tmp_path / "a.json")]), {})


def everything(moments: list[int]) -> Answer:
    """A master with every metric of ours that a master has."""
    answer = Answer()
    answer.master(moments, start_s=T0 - 100)
    topic = {"topic": "x", "message_type": "normal", "is_system": "false"}
    for name in ("rocketmq_messages_in_total", "rocketmq_throughput_in_total"):
        answer.flat(name, moments, 5, **topic)
    answer.flat("rocketmq_ha_sync_result_total", moments, 4, result="ok")
    for le in ("0.5", "+Inf"):
        answer.flat("rocketmq_ha_ack_latency_seconds_bucket", moments, 4, le=le)
    answer.flat("rocketmq_ha_rejected_acks_total", moments, 2, replica="b:1", reason="negative")
    return answer


# -- labels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "label", sorted({*BASE_LABELS, *(label for own in OWN_LABELS.values() for label in own)})
)
def test_a_label_of_the_scrape_config_hides_nothing(tmp_path: Path, label: str) -> None:
    """honor_labels: false, and each target has a label of the name of ours."""
    answer = everything(grid(2))
    plain = imported(tmp_path, answer)
    renamed = {}
    for key, points in answer.series.items():
        labels = dict(key)
        if label in labels:
            labels[f"exported_{label}"] = labels[label]
        renamed[tuple(sorted((labels | {label: "theirs"}).items()))] = points
    assert renamed.keys() != answer.series.keys()
    answer.series = renamed
    assert imported(tmp_path, answer) == plain


# -- two servers -------------------------------------------------------------------------------


def two(moments: dict[str, list[int]], label: str = "prometheus_replica") -> Answer:
    """One broker with two values of a label; what counts, counts the seconds."""
    answer = Answer()
    for value, some in moments.items():
        answer.master(some, start_s=T0 - 100, **{label: value})
        answer.set("rocketmq_messages_in_total", {t: t - T0 for t in some}, **{label: value})
    return answer


def test_a_broker_of_two_servers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResponseError) as caught:
        imported(tmp_path, two({"p0": grid(5), "p1": grid(5)}))
    assert str(caught.value) == (
        "c/b (mq h:5557): rocketmq_ready is there several times, told apart by prometheus_replica:"
        " p0, p1. Is the broker scraped by several servers? Choose one: --print-queries --match"
        " 'prometheus_replica=\"p1\"'"
    )


def test_two_values_of_one_metric_are_refused(tmp_path: Path) -> None:
    answer = Answer()
    answer.master(grid(3))
    answer.flat("rocketmq_store_offset_bytes", grid(2), 7, kind="max", team="x")
    with pytest.raises(
        ResponseError, match=rf"rocketmq_store_offset.*several values at {T0}.*told apart by team:"
    ):
        imported(tmp_path, answer)


def test_a_broker_whose_foreign_label_changes_goes_on(tmp_path: Path) -> None:
    """As after a restart in another pod, or an edited scrape configuration."""
    answer = two({"p0": grid(4), "p1": grid(4, start_s=NEW)}, "pod")
    result = imported(tmp_path, answer)
    assert_goes_on(result, 8)


def test_values_repeated_after_a_label_changed_do_not_count(tmp_path: Path) -> None:
    """Prometheus repeats the old series for up to 5 minutes."""
    answer = two({"p0": grid(8), "p1": grid(4, start_s=NEW)}, "pod")
    answer.set("rocketmq_scraped_at", dict.fromkeys(grid(4, start_s=NEW), NEW - 17.25), pod="p0")
    for key, points in answer.series.items():
        labels = dict(key)
        if labels["__name__"] == "rocketmq_messages_in_total" and labels["pod"] == "p0":
            points.update(dict.fromkeys(grid(4, start_s=NEW), NEW - 15 - T0))
    assert_goes_on(imported(tmp_path, answer), 8)


def test_of_two_scrapes_at_one_moment_the_later_counts(tmp_path: Path) -> None:
    """A configuration was loaded between them."""
    answer = two({"p0": grid(5), "p1": grid(4, start_s=NEW)}, "pod")
    answer.set("rocketmq_scraped_at", {NEW: NEW - 14}, pod="p0")
    answer.set("rocketmq_messages_in_total", {NEW: 1_000_000}, pod="p0")
    assert_goes_on(imported(tmp_path, answer), 8)


def assert_goes_on(result: Imported, count: int) -> None:
    lines = result.lines
    assert [line["msgs_in"] for line in lines] == [15 * i for i in range(count)]
    assert {b["seq"] - a["seq"] for a, b in itertools.pairwise(lines)} == {1}
    assert len({line["boot"] for line in lines}) == 1
    assert all(line["replicas"][0]["connected"] for line in lines)
    assert (result.missing, result.notes) == (0, [])


def test_a_broker_that_moves_within_a_step_goes_on(tmp_path: Path) -> None:
    """Its last scrape at one place and the first at the other are seen at one moment."""
    answer = Answer()
    answer.master(grid(5), start_s=T0)
    answer.set("rocketmq_scraped_at", {NEW: NEW - 14})
    answer.master(grid(4, start_s=NEW), instance="new:5557", start_s=NEW - 10)
    lines = imported(tmp_path, answer).lines
    assert [line["mono"] for line in lines] == [t * 1000 - 2250 for t in grid(8)]
    boots = [line["boot"] for line in lines]
    assert boots == [boots[0]] * 4 + [boots[-1]] * 4
    assert boots[0] != boots[-1]


# -- what is no broker of ours, or not all of it -----------------------------------------------


def native(answer: Answer, moments: list[int]) -> None:
    """What a Java broker 5.x has of our names."""
    for name in ("rocketmq_messages_in_total", "rocketmq_throughput_in_total"):
        answer.flat(name, moments, 5, topic="x", node_id="java", instance="j:5557")


def without_unreplicated(answer: Answer, moments: list[int]) -> None:
    answer.master(moments, node_id="java", instance="j:5557")
    answer.series = {
        key: points
        for key, points in answer.series.items()
        if not {("instance", "j:5557"), ("__name__", "rocketmq_ha_unreplicated_bytes")} <= {*key}
    }


def without_last_bucket(answer: Answer, moments: list[int]) -> None:
    answer.master(moments, node_id="java", instance="j:5557")
    java = {"node_id": "java", "instance": "j:5557"}
    answer.flat("rocketmq_ha_ack_latency_seconds_bucket", moments, 4, le="5", **java)


@pytest.mark.parametrize(
    ("add", "missing"),
    [
        (
            native,
            "rocketmq_ready, rocketmq_store_offset_bytes, rocketmq_process_up,"
            " rocketmq_ha_unreplicated_bytes, rocketmq_ha_oldest_unreplicated_seconds",
        ),
        (without_unreplicated, "rocketmq_ha_unreplicated_bytes"),
        (without_last_bucket, 'rocketmq_ha_ack_latency_seconds_bucket{le="+Inf"}'),
    ],
)
def test_a_target_that_lacks_metrics_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], add: Any, missing: str
) -> None:
    moments = grid(3)
    answer = everything(moments)
    alone = imported(tmp_path, answer)
    add(answer, moments)
    result = imported(tmp_path, answer)
    assert result.lines == alone.lines
    note = f"c/java (mq j:5557): left out: no values of {missing}"
    assert (result.notes, result.left_out) == ([note], 1)
    path = str(answer.write(tmp_path / "a.json"))
    assert import_command.main(["--out", str(tmp_path / "dumps"), path]) == 0
    out, err = capsys.readouterr()
    assert "; 1 target left out" in out
    assert note in err
    only = Answer()
    add(only, moments)
    with pytest.raises(
        ResponseError, match=r"left out: no values of rocketmq_.*; import the files"
    ):
        imported(tmp_path, only)


def test_a_moment_without_the_last_bucket_is_none(tmp_path: Path) -> None:
    moments = grid(3)
    answer = everything(moments)
    for key, points in answer.series.items():
        if ("le", "+Inf") in key:
            del points[moments[1]]
    lines = imported(tmp_path, answer).lines
    assert [line["seq"] - lines[0]["seq"] for line in lines] == [0, 2]


def test_answers_without_a_broker_are_no_import(tmp_path: Path) -> None:
    answer = Answer()
    answer.flat("up", grid(2), 1)
    with pytest.raises(
        ResponseError, match="no series of a broker at all; import the files of all"
    ):
        imported(tmp_path, answer)


def test_starts_of_other_processes_are_left_aside(tmp_path: Path) -> None:
    answer = everything(grid(2))
    plain = imported(tmp_path, answer)
    answer.flat("process_start_time_seconds", grid(2), 7, cluster="", node_id="")
    assert imported(tmp_path, answer) == plain

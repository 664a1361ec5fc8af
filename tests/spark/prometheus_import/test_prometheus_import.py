"""Prometheus' answers as dumps: the mapping, that what is missing stays missing, and the errors."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import http.server
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.metrics import metrics_table as table
from remoting.metrics.metric import Kind
from spark.command import import_command
from spark.command.arguments import UsageError
from spark.dumps.dump_files import read_lines
from spark.dumps.dump_line import decode_line
from spark.prometheus_import import metrics as prometheus_metrics
from spark.prometheus_import.lines import lines_of
from spark.prometheus_import.queries import queries
from spark.prometheus_import.response import ResponseError, read_responses
from spark.reported_day import midnight_ms
from tests.spark.prometheus_answers import T0, Answer, grid
from tests.support.deadline import wait_until
from tools.chaos.free_ports import free_port

ROOT = Path(__file__).resolve().parents[3]
Lines = list[dict[str, Any]]


def imported(tmp_path: Path, answer: Answer, **broker_ids: int) -> Lines:
    return lines_of(read_responses([answer.write(tmp_path / "a.json")]), broker_ids).lines


def dumped(directory: Path) -> Lines:
    lines = []
    for path in sorted(directory.rglob("*.jsonl.gz")):
        lines += [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    return lines


def run(*arguments: str | Path) -> int:
    return import_command.main([str(argument) for argument in arguments])


def test_every_field_of_a_master(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(2)
    answer.master(moments, start_s=T0 - 3600)
    for topic, count in (("x", 5), ("y", 7)):
        answer.set("rocketmq_messages_in_total", dict.fromkeys(moments, count), topic=topic)
        answer.set("rocketmq_throughput_in_total", dict.fromkeys(moments, 100 * count), topic=topic)
    answer.flat("rocketmq_ha_sync_result_total", moments, 4, result="ok")
    answer.flat("rocketmq_ha_sync_result_total", moments, 1, result="flush_slave_timeout")
    for le, count in {"0.001": 1, "0.5": 3, "+Inf": 4}.items():
        answer.flat("rocketmq_ha_ack_latency_seconds_bucket", moments, count, le=le)
    answer.flat("rocketmq_ha_ack_latency_seconds_sum", moments, 1.75)
    for reason in ("negative", "beyond_max"):
        answer.flat("rocketmq_ha_rejected_acks_total", moments, 2, replica="b:1", reason=reason)
    answer.flat(
        "rocketmq_ha_transferred_bytes_total", moments, 12, replica="b:1", role="SYNC_MASTER"
    )
    answer.flat("rocketmq_ha_reconnects_total", moments, 3, replica="b:1", role="SYNC_MASTER")
    first, second = imported(tmp_path, answer)
    start_ms = (T0 - 3600) * 1000
    assert second == {
        "v": 1,
        "boot": first["boot"],
        "boot_ts": start_ms,
        "prev_boot": None,
        "prev_seq": None,
        "final": False,
        "cluster": "c",
        "broker": "b",
        "broker_id": 0,
        "role": "SYNC_MASTER",
        "version": "unknown (from Prometheus)",
        "config": "000000000000",
        "ready": True,
        "min_offset": 0,
        "max_offset": 1000,
        "replicated_offset": 900,
        "msgs_in": 12,
        "bytes_in": 1200,
        "sync": {
            "ok": 4,
            "flush_slave_timeout": 1,
            "slave_not_available": 0,
            "flush_disk_timeout": 0,
        },
        "ack_latency": {"le": [0.001, 0.5], "counts": [1, 2, 1], "sum": 1.75},
        "unreplicated_bytes": 100,
        "oldest_unreplicated_ms": 250,
        "processes": [
            {"name": "ha", "up": True, "restarts": 0},
            {"name": "store", "up": True, "restarts": 0},
        ],
        "replicas": [
            {
                "id": "b:1",
                "connected": True,
                "in_sync": True,
                "state": "in_sync",
                "ack_offset": 900,
                "lag_bytes": 100,
                "lag_ms": 250,
                "lag_exact": True,
                "transferred": 12,
                "reconnects": 3,
                "rejected_acks": 4,
                "state_ms": {"in_sync": 15_000, "catching_up": 0, "disconnected": 0},
            }
        ],
        "metadata": [],
        "ts": (T0 + 15) * 1000 - 2250,
        "mono": (T0 + 15) * 1000 - 2250,
        "seq": first["seq"] + 1,
        "interval_ms": 15_000,
    }
    assert re.fullmatch("[0-9a-f]{16}", first["boot"])
    assert first["seq"] == 240  # 3597.75 s after the start


def test_the_report_takes_every_line(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(40)
    answer.master(moments, start_s=T0)
    answer.slave(moments, "s:5557")
    assert run("--out", tmp_path / "dumps", answer.write(tmp_path / "a.json")) == 0
    midnight = midnight_ms(datetime.date(2026, 3, 10))
    lines = [
        decode_line(line, midnight)
        for path in (tmp_path / "dumps").rglob("*.jsonl*")
        for line in read_lines(path.read_bytes())[0]
    ]
    assert len(lines) == 80


def test_the_names_are_those_of_the_table() -> None:
    shown = {metric.name for metric in table.METRICS}
    shown |= {f"{table.HA_ACK_LATENCY.name}_{end}" for end in ("bucket", "sum")}
    assert {*prometheus_metrics.OWN_LABELS} - shown == {prometheus_metrics.SCRAPED_AT}
    for metric in table.METRICS:
        ends = ("",) if metric.kind is not Kind.HISTOGRAM else ("_bucket", "_sum")
        for name in (f"{metric.name}{end}" for end in ends):
            if name in prometheus_metrics.OWN_LABELS:
                labels = (*metric.labels, "le") if name.endswith("_bucket") else metric.labels
                assert prometheus_metrics.OWN_LABELS[name] == labels, name
    assert prometheus_metrics.BASE_LABELS == table.BASE_LABELS


def test_states_of_a_replica(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(3)
    answer.master(moments)
    labels = {"replica": "b:1", "role": "SYNC_MASTER"}
    answer.set("rocketmq_ha_replica_in_sync", {moments[1]: 0}, **labels)
    answer.set("rocketmq_ha_replica_connected", {moments[2]: 0}, **labels)
    states = [line["replicas"][0]["state"] for line in imported(tmp_path, answer)]
    assert states == ["in_sync", "catching_up", "disconnected"]


def test_exposure_that_is_a_bound_is_not_told_as_a_fact(tmp_path: Path) -> None:
    """After a kill of the master, until its slave reports again. Brokers of earlier versions do not
    say which it is."""
    answer, moments = Answer(), grid(3)
    answer.master(moments)
    answer.flat("rocketmq_ha_unreplicated_exact", moments[1:], 1)
    answer.set("rocketmq_ha_unreplicated_exact", {moments[1]: 0})
    lines = imported(tmp_path, answer)
    assert [line["unreplicated_bytes"] for line in lines] == [100, None, 100]
    assert [line["oldest_unreplicated_ms"] for line in lines] == [250, None, 250]


def test_a_slave(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(2)
    answer.master(moments)
    answer.slave(moments, "s:5557")
    slave = imported(tmp_path, answer)[-1]
    assert (slave["role"], slave["broker_id"], slave["replicas"]) == ("SLAVE", 1, [])
    assert slave["metadata"] == [
        {"kind": "consumer_offsets", "age_ms": 1500, "failures": 2},
        {"kind": "topics", "age_ms": None, "failures": 2},
    ]


def test_two_slaves_have_to_be_told_apart(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(2)
    answer.master(moments)
    answer.slave(moments, "s:5557")
    answer.slave(moments, "t:5557")
    with pytest.raises(ResponseError, match="give --broker-id s:5557=1"):
        imported(tmp_path, answer)
    path = answer.write(tmp_path / "a.json")
    lines = lines_of(read_responses([path]), {"s:5557": 1, "t:5557": 2}).lines
    assert sorted({line["broker_id"] for line in lines}) == [0, 1, 2]


# -- what is missing ---------------------------------------------------------------------------


def test_a_gap_is_a_hole_in_seq(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(6)
    answer.master(moments, start_s=T0 - 7)
    answer.cut(moments[2:4])
    lines = imported(tmp_path, answer)
    assert [line["seq"] for line in lines] == [1, 2, 5, 6]
    assert len({line["boot"] for line in lines}) == 1
    result = lines_of(read_responses([tmp_path / "a.json"]), {})
    assert result.missing == 2


def test_repeated_values_are_no_scrapes(tmp_path: Path) -> None:
    """Prometheus repeats a last value for 5 minutes when it did not scrape."""
    answer, moments = Answer(), grid(6)
    answer.master(moments, start_s=T0)
    answer.set("rocketmq_scraped_at", dict.fromkeys(moments[2:5], moments[1] - 2.25))
    answer.flat("rocketmq_messages_in_total", moments, 1, topic="x")
    result = lines_of(read_responses([answer.write(tmp_path / "a.json")]), {})
    assert [line["ts"] for line in result.lines] == [
        moment * 1000 - 2250 for moment in (moments[0], moments[1], moments[5])
    ]
    assert [b["seq"] - a["seq"] for a, b in itertools.pairwise(result.lines)] == [
        1,
        4,
    ]
    assert (result.missing, result.notes) == (3, [])


def test_without_scrape_times_a_note_says_what_that_means(tmp_path: Path) -> None:
    answer = Answer()
    answer.master(grid(2), start_s=T0)
    answer.drop("rocketmq_scraped_at")
    result = lines_of(read_responses([answer.write(tmp_path / "a.json")]), {})
    assert [line["ts"] for line in result.lines] == [T0 * 1000, (T0 + 15) * 1000]
    assert "up to 5 minutes in which Prometheus did not scrape look like data" in result.notes[0]


@pytest.mark.parametrize(("age_s", "first"), [(190, 1), (15, 1), (14.999, 0), (2.25, 0)])
def test_the_first_moment_may_only_have_an_old_scrape(
    tmp_path: Path, age_s: float, first: int
) -> None:
    """What is a step old was there before the first moment: between them scrapes are missing."""
    answer, moments = Answer(), grid(3)
    answer.master(moments, start_s=T0 - 3600)
    answer.set("rocketmq_scraped_at", {moments[0]: moments[0] - age_s})
    lines = imported(tmp_path, answer)
    assert [line["mono"] for line in lines[-2:]] == [moment * 1000 - 2250 for moment in moments[1:]]
    assert len(lines) == 3 - first
    assert lines[-1]["seq"] == 1 + (moments[2] - 2.25 - (T0 - 3600)) // 15


def test_whole_files_that_are_missing_are_noted(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(2)
    answer.master(moments)
    result = lines_of(read_responses([answer.write(tmp_path / "a.json")]), {})
    starts, topics = result.notes
    assert starts.startswith(
        "c/b (mq h:5557): without process_start_time_seconds restarts are known only by"
    )
    assert topics.startswith("no broker has rocketmq_messages_in_total or rocketmq_throughput_in")
    answer.master(moments, start_s=T0)
    answer.flat("rocketmq_messages_in_total", moments, 1, topic="x")
    assert lines_of(read_responses([answer.write(tmp_path / "a.json")]), {}).notes == []


def test_a_moment_without_a_gauge_is_left_out(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(3)
    answer.master(moments, start_s=T0)
    for key, points in answer.series.items():
        if dict(key)["__name__"] == "rocketmq_ha_replica_lag_seconds":
            del points[moments[1]]
    lines = imported(tmp_path, answer)
    assert [line["seq"] for line in lines] == [1, 3]


def test_a_known_start_makes_the_boot(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(6)
    answer.master(moments[:3], start_s=T0 - 100)
    answer.master(moments[3:], start_s=moments[3] - 10.5)
    lines = imported(tmp_path, answer)
    assert [line["seq"] for line in lines] == [7, 8, 9, 1, 2, 3]
    assert lines[3]["boot_ts"] == moments[3] * 1000 - 10_500
    assert lines[3]["boot"] != lines[2]["boot"]
    assert lines[3]["prev_boot"] is None  # nothing proves that no life lay between


def test_a_boot_keeps_its_id_in_another_import(tmp_path: Path) -> None:
    boots = []
    for moments in (grid(3), grid(3, start_s=T0 + 86_400)):
        answer = Answer()
        answer.master(moments, start_s=T0 - 100)
        boots.append({(line["boot"], line["boot_ts"]) for line in imported(tmp_path, answer)})
    assert boots[0] == boots[1]


def test_the_scrape_that_two_dates_have_is_one_line(tmp_path: Path) -> None:
    """The last moment of one import is the first of the next; the report sees duplicates."""
    both = []
    for moments in (grid(3), grid(3, start_s=T0 + 30)):
        answer = Answer()
        answer.master(moments, start_s=T0 - 86_407.3)
        for state in ("in_sync", "catching_up"):
            answer.flat("rocketmq_ha_state_seconds_total", moments, 7, replica="b:1", state=state)
        both.append(imported(tmp_path, answer))
    assert both[0][-1] == both[1][0]


def test_a_counter_that_falls_is_a_new_boot(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(5)
    answer.master(moments)
    counted = dict(zip(moments, [50, 53, 1, 4, 7], strict=True))
    answer.set("rocketmq_metrics_dump_lines_total", counted)
    answer.set("rocketmq_messages_in_total", dict(zip(moments, [9, 9, 2, 3, 3], strict=True)))
    lines = imported(tmp_path, answer)
    assert [line["boot"] == lines[0]["boot"] for line in lines] == [True, True, False, False, False]
    assert [line["seq"] for line in lines][2:] == [1, 2, 3]
    assert lines[0]["seq"] > 1  # what it counted before is not of this time
    assert lines[2]["boot_ts"] == lines[2]["ts"]
    assert [line["msgs_in"] for line in lines] == [9, 9, 2, 3, 3]


def failed(answer: Answer, moments: list[int], instance: str = "h:5557") -> None:
    """The target gave no answer then: Prometheus' own series know job and instance only."""
    key = {"__name__": prometheus_metrics.DOWN_AT, "job": "mq", "instance": instance}
    answer.series[tuple(sorted(key.items()))] = {t: t - 2.25 for t in moments}


def test_a_dead_target_is_down_until_its_next_life(tmp_path: Path) -> None:
    """From the first scrape that failed to the last one; when between two scrapes it died, nobody
    knows."""
    answer, moments = Answer(), grid(12)
    answer.master(moments, start_s=T0 - 1)
    answer.cut(moments[3:9])
    failed(answer, moments[3:8])
    answer.flat("process_start_time_seconds", moments[9:], T0 + 125)
    lines = imported(tmp_path, answer)
    assert [line["seq"] for line in lines] == [*range(1, 9), *range(1, 4)]
    assert [line["ts"] for line in lines[3:8]] == [t * 1000 - 2250 for t in moments[3:8]]
    assert len({line["boot"] for line in lines[:8]}) == 1
    rows = [line["replicas"][0] for line in lines[2:8]]
    assert [row["state"] for row in rows] == ["in_sync"] + ["disconnected"] * 5
    assert [row["state_ms"] for row in rows] == [
        {"in_sync": 30_000, "catching_up": 0, "disconnected": lost}
        for lost in (0, 0, 15_000, 30_000, 45_000, 60_000)
    ]
    assert not any(line["ready"] or line["processes"] for line in lines[3:8])
    assert {line["unreplicated_bytes"] for line in lines[3:8]} == {None}


def test_a_target_that_stays_dead_is_down_to_the_end(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(8)
    answer.master(moments, start_s=T0 - 1)
    answer.cut(moments[4:])
    failed(answer, [*moments[4:6], moments[7]])
    lines = imported(tmp_path, answer)
    assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5, 6, 8]
    lost = [line["replicas"][0]["state_ms"]["disconnected"] for line in lines]
    assert lost == [0, 0, 0, 0, 0, 15_000, 15_000]  # Between 6 and 8 nobody asked.


def test_a_boot_that_goes_on_was_never_down(tmp_path: Path) -> None:
    """A scrape that failed proves little: the next one's counters prove what was meanwhile."""
    answer, moments = Answer(), grid(8)
    answer.master(moments, start_s=T0 - 1)
    answer.cut(moments[2:5])
    failed(answer, moments[2:5])
    lines = imported(tmp_path, answer)
    assert [line["seq"] for line in lines] == [1, 2, 6, 7, 8]
    assert all(line["ready"] for line in lines)


def test_a_master_that_went_elsewhere_is_not_down(tmp_path: Path) -> None:
    """The old target fails for ever, its broker speaks from another one."""
    answer, moments = Answer(), grid(10)
    answer.master(moments[:3], start_s=T0 - 1)
    answer.master(moments[6:], start_s=T0 + 80, instance="other:5557")
    failed(answer, moments[3:])
    lines = imported(tmp_path, answer)
    states = [line["replicas"][0]["state"] for line in lines]
    assert states == ["in_sync"] * 3 + ["disconnected"] * 3 + ["in_sync"] * 4


def test_dead_slaves_and_strangers_have_no_lines(tmp_path: Path) -> None:
    """A slave's death is its master's to tell; of another job's target nobody knows who it is."""
    answer, moments = Answer(), grid(6)
    answer.master(moments, start_s=T0 - 1)
    answer.slave(moments[:3], "s:5557")
    failed(answer, moments[3:], "s:5557")
    failed(answer, moments[1:], "node-exporter:9100")
    lines = imported(tmp_path, answer)
    assert [line["role"] for line in lines].count("SLAVE") == 3
    assert [line["role"] for line in lines].count("SYNC_MASTER") == 6
    assert all(line["ready"] for line in lines)


def test_a_deleted_topic_takes_nothing_away(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(4)
    answer.master(moments, start_s=T0)
    answer.set(
        "rocketmq_messages_in_total", dict(zip(moments, [1, 2, 3, 4], strict=True)), topic="x"
    )
    answer.set("rocketmq_messages_in_total", {moments[0]: 10, moments[3]: 1}, topic="y")
    assert [line["msgs_in"] for line in imported(tmp_path, answer)] == [11, 12, 13, 15]


def test_two_servers_for_one_broker_are_refused(tmp_path: Path) -> None:
    answer = Answer()
    answer.master(grid(2))
    answer.master(grid(2), job="again")
    with pytest.raises(ResponseError, match="are both broker 0 at the same time: choose one"):
        imported(tmp_path, answer)


def test_a_master_that_moved_is_two_boots(tmp_path: Path) -> None:
    answer, moments = Answer(), grid(4)
    answer.master(moments[:2], start_s=T0)
    answer.master(moments[2:], instance="new:5557", start_s=moments[2])
    lines = imported(tmp_path, answer)
    assert len({line["boot"] for line in lines}) == 2


def test_a_cluster_label_of_the_scrape_config_hides_nothing(tmp_path: Path) -> None:
    answer = Answer()
    answer.master(grid(2), cluster="kubernetes-7", exported_cluster="c")
    assert imported(tmp_path, answer)[0]["cluster"] == "c"


# -- files -------------------------------------------------------------------------------------


def test_files_are_those_of_a_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer()
    moments = grid(480, start_s=T0 - 3600)
    answer.master(moments, start_s=T0 - 3600, node_id="b/1 ~ü")
    answer.drop("rocketmq_scraped_at")
    path = answer.write(tmp_path / "a.json")
    assert run("--out", tmp_path / "dumps", path) == 0
    names = sorted(
        str(p.relative_to(tmp_path / "dumps")) for p in (tmp_path / "dumps").rglob("*.gz")
    )
    boot = dumped(tmp_path / "dumps")[0]["boot"][:8]
    place = "cluster=c/broker=b%2F1%20%7E%C3%BC"
    assert names == [
        f"dt=2026-03-09/{place}/2300-0-{boot}-00000001.jsonl.gz",
        f"dt=2026-03-10/{place}/0000-0-{boot}-00000241.jsonl.gz",
    ]
    assert "480 lines in 2 files" in capsys.readouterr().out
    before = {p: p.read_bytes() for p in (tmp_path / "dumps").rglob("*.gz")}
    assert run("--out", tmp_path / "dumps", path) == 0
    assert {p: p.read_bytes() for p in (tmp_path / "dumps").rglob("*") if p.is_file()} == before


def test_a_long_name_has_a_directory(tmp_path: Path) -> None:
    answer = Answer()
    answer.master(grid(2), node_id="中" * 28)
    assert run("--out", tmp_path, answer.write(tmp_path / "a.json")) == 0
    place = dumped_files(tmp_path)[0].parent.name
    assert len(place.removeprefix("broker=")) == 247
    assert re.fullmatch("broker=(%E4%B8%AD){25}%E4%B~[0-9a-f]{16}", place)


def dumped_files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.jsonl.gz"))


def test_a_write_that_fails_names_the_file(tmp_path: Path) -> None:
    answer = Answer()
    answer.master(grid(2), start_s=T0)
    path = answer.write(tmp_path / "a.json")
    limited = f"ulimit -f 0; exec {sys.executable} -m spark import --out {tmp_path}/dumps {path}"
    done = subprocess.run(
        ["sh", "-c", limited], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 3
    assert re.fullmatch(
        rf"mqreport: {tmp_path}/dumps/dt=.*\.jsonl\.gz: File too large\n", done.stderr
    )
    assert [each for each in (tmp_path / "dumps").rglob("*") if each.is_file()] == []


def test_files_are_on_the_disk_before_they_have_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        done.append(f"synced {os.readlink(f'/proc/self/fd/{descriptor}')}")
        fsync(descriptor)

    def noted_replace(old: str, new: Path) -> None:
        done.append(f"renamed {old}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    answer = Answer()
    answer.master(grid(2, start_s=T0 + 1800), start_s=T0)
    assert run("--out", tmp_path / "new" / "dumps", answer.write(tmp_path / "a.json")) == 0
    (written,) = dumped_files(tmp_path)
    synced_file, renamed, *synced = done
    assert synced_file.removeprefix("synced ") == renamed.removeprefix("renamed ")
    above = written.parent
    expected = {f"synced {above}"}
    while above != tmp_path:
        above = above.parent
        expected.add(f"synced {above}")
    assert set(synced) == expected


def test_parts_in_several_files_are_one(tmp_path: Path) -> None:
    whole, parts = Answer(), [Answer(), Answer()]
    moments = grid(6)
    whole.master(moments, start_s=T0)
    for part, some in zip(parts, (moments[:3], moments[3:]), strict=True):
        part.master(some, start_s=T0)
    for key in parts[1].series:  # state_seconds counts on
        if "rocketmq_ha_state_seconds_total" in dict(key).values():
            parts[1].series[key] = {t: whole.series[key][t] for t in moments[3:]}
    paths = [part.write(tmp_path / f"{n}.json") for n, part in enumerate(parts)]
    assert lines_of(read_responses(paths), {}).lines == imported(tmp_path, whole)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"a\.json: is not an answer of a Prometheus server: Input data was truncated"),
        (
            "<html>",
            r"a\.json: is not an answer of .* it begins with '<html>'; ask /api/v1/query_ra",
        ),
        (
            "[]",
            r"a\.json: is not an answer .*: Expected `object`, got `array`; .* ask /api/v1/query_",
        ),
        (
            '{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution"}',
            r"a\.json: Prometheus refused the query: bad_data: exceeded maximum resolution",
        ),
        (
            '{"status":"success","data":{"resultType":"vector","result":[]}}',
            r"a\.json: holds a vector, not a matrix; ask /api/v1/query_range with start, end and",
        ),
        ('{"status":"success","data":["a"]}', r"a\.json: is not an answer .*`\$\.data`"),
        (
            '{"status":"success","data":{"resultType":"matrix","result":[]}}',
            r"a\.json: no series at all; was anything scraped in that time\?",
        ),
        (
            '{"status":"success","data":{"resultType":"matrix","result":'
            '[{"metric":{"cluster":"c"},"values":[[1,"2"]]}]}}',
            r"series 0 .*: has no name: a function removed it; use the queries of `mqreport import",
        ),
        (
            '{"status":"success","data":{"resultType":"matrix","result":'
            '[{"metric":{"__name__":"x"},"values":[1]}]}}',
            r"a\.json: is not an answer .*`\$\[0\]\.values\[0\]`",
        ),
        (
            '{"status":"success","data":{"resultType":"matrix","result":'
            '[{"metric":{"__name__":"x"},"histograms":[[1,{}]]}]}}',
            r"native histograms are not supported",
        ),
        ("[" * 100_000, r"a\.json: is not an answer .*: Expected `object`, got `array`"),
        ("9" * 5000, r"a\.json: is not an answer .*: Number out of range"),
        (
            '{"status":"success","warnings":5,"data":{"resultType":"matrix","result":[]}}',
            r"a\.json: is not an answer .*`\$\.warnings`",
        ),
        *(
            (
                '{"status":"success","data":{"resultType":"matrix","result":'
                f'[{{"metric":{{"__name__":"x"}},"values":[[{moment},"1"]]}}]}}}}',
                rf"a\.json: {reason}",
            )
            for moment, reason in (
                ("Infinity", "is not an answer .*: JSON is malformed"),
                ("NaN", "is not an answer .*: JSON is malformed"),
                ("-1", r"x\{\}: -1 is not a time in seconds since 1970"),
                ("1e20", r"x\{\}: 1e\+20 is not a time"),
                ("1" + "0" * 400, "is not an answer .*: Number out of range"),
            )
        ),
        *(
            (
                '{"status":"success","data":{"resultType":"matrix","result":'
                f'[{{"metric":{{"__name__":"x",{label}}},"values":[[1,"1"]]}}]}}}}',
                rf"a\.json: is not an answer .*: {reason}",
            )
            for label, reason in (
                (r'"node_id":"b\ud800"', "JSON is malformed: "),
                (r'"\udfff":"b"', "JSON is malformed: "),
                ('"node_id":5', "Expected `str`, got `int`"),
            )
        ),
    ],
)
def test_answers_that_cannot_be_used(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ResponseError, match=reason):
        read_responses([tmp_path / "a.json"])


@pytest.mark.parametrize(
    ("name", "labels", "reason"),
    [
        ("rocketmq_ha_ack_latency_seconds_bucket", {}, "lacks the label le; import it as the bro"),
        ("rocketmq_ha_ack_latency_seconds_bucket", {"le": "x"}, 'le="x" is not a number'),
        ("rocketmq_ha_ack_latency_seconds_bucket", {"le": "NaN"}, 'le="NaN" is not a number'),
        ("rocketmq_store_offset_bytes", {}, "lacks the label kind"),
        ("rocketmq_process_up", {}, "lacks the label process"),
        ("rocketmq_ha_state_seconds_total", {"replica": "b:1"}, "lacks the label state"),
        ("rocketmq_ha_replica_connected", {"role": "SYNC_MASTER"}, "lacks the label replica"),
        ("rocketmq_ha_sync_result_total", {"result": ""}, "lacks the label result"),
    ],
)
def test_labels_that_a_line_is_made_of(
    tmp_path: Path, name: str, labels: dict[str, str], reason: str
) -> None:
    answer, moments = Answer(), grid(2)
    answer.master(moments)
    answer.flat(name, moments, 1, **labels)
    with pytest.raises(ResponseError, match=rf"a\.json: {name}.*{re.escape(reason)}"):
        imported(tmp_path, answer)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "9.3e18", "-1e300"])
def test_values_that_no_broker_writes(tmp_path: Path, value: str) -> None:
    answer, moments = Answer(), grid(3)
    answer.master(moments)
    answer.set("rocketmq_ready", {moments[1]: value})
    with pytest.raises(
        ResponseError, match=rf"rocketmq_ready.* is {re.escape(value)} at {T0 + 15}"
    ):
        imported(tmp_path, answer)


def test_mixed_steps(tmp_path: Path) -> None:
    one, two = Answer(), Answer()
    one.master(grid(5, 15))
    two.flat("rocketmq_messages_in_total", grid(2, 60), 1)
    paths = [one.write(tmp_path / "one.json"), two.write(tmp_path / "two.json")]
    with pytest.raises(ResponseError, match=r"different steps: 15 s in .*one\.json, 60 s in .*two"):
        read_responses(paths)
    two = Answer()
    two.flat("rocketmq_messages_in_total", grid(5, 15, T0 + 7), 1)
    two.write(tmp_path / "two.json")
    with pytest.raises(
        ResponseError, match=r"two\.json: its moments lie between those of the other"
    ):
        read_responses(paths)


def test_one_moment_has_no_step(tmp_path: Path) -> None:
    answer = Answer()
    answer.master(grid(1))
    with pytest.raises(ResponseError, match="holds one moment only; ask /api/v1/query_range"):
        imported(tmp_path, answer)


def test_files_that_contradict_each_other(tmp_path: Path) -> None:
    paths = []
    for number in range(2):
        answer = Answer()
        answer.master(grid(2))
        answer.set("rocketmq_ready", {T0: number})
        paths.append(answer.write(tmp_path / f"{number}.json"))
    with pytest.raises(ResponseError, match=r"1\.json: rocketmq_ready.* another file says 0"):
        read_responses(paths)


def test_missing_metrics_are_named(tmp_path: Path) -> None:
    answer = Answer()
    answer.master(grid(2))
    answer.drop("rocketmq_ha_replica_lag_seconds", "rocketmq_store_offset_bytes")
    with pytest.raises(ResponseError) as caught:
        imported(tmp_path, answer)
    assert str(caught.value).startswith(
        "c/b (mq h:5557): left out: no values of rocketmq_store_offset_bytes,"
        " rocketmq_ha_replica_lag_seconds; import the files of all queries"
    )


def test_sums_over_brokers_are_refused(tmp_path: Path) -> None:
    answer = Answer()
    answer.flat("rocketmq_ready", grid(2), 1, node_id="")
    with pytest.raises(ResponseError, match="lacks the label cluster or node_id"):
        imported(tmp_path, answer)


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--out", tmp_path, tmp_path / "none.json") == 3
    assert "none.json: cannot be read: No such file" in capsys.readouterr().err
    answer = Answer()
    answer.master(grid(2))
    (tmp_path / "file").touch()
    assert run("--out", tmp_path / "file", answer.write(tmp_path / "a.json")) == 3
    assert "file" in capsys.readouterr().err
    for arguments in (["--out", "x"], ["a.json"], ["--broker-id", "x", "a"], ["--step", "0"]):
        with pytest.raises(UsageError):
            run(*arguments)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    """The words of each line of the script."""
    assert run("--print-queries", *arguments) == 0
    return [shlex.split(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("step_s", [5, 7, 15])
def test_the_printed_queries_cover_the_date(
    capsys: pytest.CaptureFixture[str], step_s: int
) -> None:
    """And one step more: what is scraped last is seen at the next moment only."""
    arguments = ["--date", "2026-03-10", "--step", str(step_s), "--server", "http://p:1/"]
    first, *curls, last = printed(capsys, *arguments)
    assert first == ["set", "-e"]
    files = [words[words.index("-o") + 1] for words in curls]
    assert last == ["bin/mqreport", "import", "--out", "DUMPS", *files]
    assert len(set(files)) == len(files)
    moments: dict[str, list[int]] = {}
    for words in curls:
        given = dict(word.split("=", 1) for word in words if "=" in word)
        start, end, step = (int(given[name]) for name in ("start", "end", "step"))
        part = range(start, end + 1, step)
        assert len(part) <= 11_000
        moments.setdefault(given["query"], []).extend(part)
    assert set(moments) == set(queries().values())
    for found in moments.values():
        assert found == list(range(T0, found[-1] + 1, step_s))
        assert T0 + 86_400 <= found[-1] < T0 + 86_400 + step_s


def test_the_manual_has_the_queries() -> None:
    manual = (ROOT / "docs" / "nightly.md").read_text(encoding="utf-8")
    assert [query for query in queries().values() if query not in manual] == []


def test_queries_can_be_narrowed(capsys: pytest.CaptureFixture[str]) -> None:
    matchers = ['node_id=~"a|b"', 'replica!="p\\"1"']
    lines = printed(capsys, *(word for text in matchers for word in ("--match", text)))
    inside = ",".join(matchers)
    for words in lines[1:-1]:
        query = next(word for word in words if word.startswith("query="))
        if "timestamp(up)" in query:  # A label of ours is none of `up`.
            continue
        selectors = re.findall(r"rocketmq_ready\{(.*?)\}|\{(__name__.*?)\}", query)
        assert selectors
        assert all((one or other).endswith(inside) for one, other in selectors)
    for text in ("node_id=b", 'node_id="b', 'node_id="b"} or {x="y"', "node_id", '="b"'):
        with pytest.raises(UsageError, match="--match"):
            run("--print-queries", "--match", text)
    with pytest.raises(UsageError, match="--match is only for --print-queries"):
        run("--out", "x", "--match", 'a="b"', "a.json")


@contextlib.contextmanager
def served(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    """The port at which it answers."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server that says this to everything; its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            pass

    with served(Handler) as port:
        yield f"http://127.0.0.1:{port}"


def run_script(
    directory: Path, capsys: pytest.CaptureFixture[str], server: str
) -> subprocess.CompletedProcess[str]:
    """What --print-queries prints, run by sh."""
    if shutil.which("curl") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI=true, and there is no curl")
        pytest.skip("there is no curl")
    assert run("--print-queries", "--date", "2026-03-10", "--server", server) == 0
    script = capsys.readouterr().out
    (directory / "bin").mkdir()
    (directory / "bin" / "mqreport").write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m spark "$@"\n'
    )
    (directory / "bin" / "mqreport").chmod(0o755)
    return subprocess.run(
        ["sh"], input=script, cwd=directory, capture_output=True, text=True, check=False, timeout=60
    )


def test_the_script_imports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer()
    answer.master(grid(2), start_s=T0)
    with answering(200, json.dumps(answer.json()).encode()) as server:
        done = run_script(tmp_path, capsys, server)
    assert done.returncode == 0, done.stderr
    assert "DUMPS: 2 lines in 2 files" in done.stdout


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (
            422,
            b'{"status":"error","errorType":"execution","error":"query processing would load'
            b' too many samples into memory"}',
            "Prometheus refused the query: execution: query processing would load too many",
        ),
        (503, b"Service Unavailable", "is not an answer of a Prometheus server: JSON is malformed"),
    ],
)
def test_a_refused_query_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int, body: bytes, reason: str
) -> None:
    with answering(status, body) as server:
        done = run_script(tmp_path, capsys, server)
    assert done.returncode == 3
    assert f"broker-2026-03-10-1.json: {reason}" in done.stderr


def test_the_script_ends_where_no_server_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run_script(tmp_path, capsys, f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 7  # curl's: could not connect
    assert "mqreport" not in done.stderr


# -- a real server -----------------------------------------------------------------------------


def exposition(scrapes: int, start_s: float) -> str:
    base = 'cluster="c",node_type="broker",node_id="b"'
    replica = f'{base},replica="b:1",role="SYNC_MASTER"'
    values = {f"rocketmq_ready{{{base}}}": 1, f"process_start_time_seconds{{{base}}}": start_s}
    for kind in ("min", "max", "replicated"):
        values[f'rocketmq_store_offset_bytes{{{base},kind="{kind}"}}'] = 100 + scrapes
    values[f'rocketmq_process_up{{{base},process="ha"}}'] = 1
    values[f"rocketmq_ha_unreplicated_bytes{{{base}}}"] = 0
    values[f"rocketmq_ha_oldest_unreplicated_seconds{{{base}}}"] = 0
    values[f'rocketmq_messages_in_total{{{base},topic="x"}}'] = 3 * scrapes
    for le in ("0.1", "+Inf"):
        values[f'rocketmq_ha_ack_latency_seconds_bucket{{{base},le="{le}"}}'] = scrapes
    for name in ("replica_connected", "replica_in_sync", "ack_offset_bytes", "replica_lag_bytes"):
        values[f"rocketmq_ha_{name}{{{replica}}}"] = 1
    values[f"rocketmq_ha_replica_lag_seconds{{{replica}}}"] = 0.5
    values[f'rocketmq_ha_state_seconds_total{{{base},replica="b:1",state="in_sync"}}'] = scrapes
    return "".join(f"{name} {value}\n" for name, value in values.items())


class Exporter(http.server.BaseHTTPRequestHandler):
    """A broker's /metrics; `scrapes` are counted, also those that are refused."""

    scrapes = 0
    refused = range(0)
    start_s = 0.0

    def do_GET(self) -> None:
        Exporter.scrapes += 1
        refuse = Exporter.scrapes in Exporter.refused
        body = b"" if refuse else exposition(Exporter.scrapes, self.start_s).encode()
        self.send_response(503 if refuse else 200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        pass


class JavaExporter(Exporter):
    """A broker 5.x on the same Prometheus has some of our names."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        labels = 'cluster="c",node_type="broker",node_id="java",topic="x"'
        self.wfile.write(f"rocketmq_messages_in_total{{{labels}}} 7\n".encode())


@contextlib.contextmanager
def prometheus(directory: Path, *ports: int) -> Iterator[str]:
    """A server that scrapes these every second; its URL."""
    targets = [f"127.0.0.1:{port}" for port in ports]
    config = directory / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: mq\n"
        f"  static_configs: [{{targets: {json.dumps(targets)}}}]\n"
    )
    address = f"127.0.0.1:{free_port()}"
    with (directory / "prometheus.log").open("wb") as log:
        server = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            yield f"http://{address}"
        finally:
            server.terminate()
            server.wait(20)


@pytest.mark.slow
def test_a_real_server_answers_our_queries(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI=true, and there is no prometheus")
        pytest.skip("there is no prometheus (Debian: apt install prometheus)")
    now = datetime.datetime.now(datetime.UTC)
    Exporter.scrapes, Exporter.refused = 0, range(6, 9)
    Exporter.start_s = start_s = round(now.timestamp(), 2) - 3.0
    with (
        served(Exporter) as port,
        served(JavaExporter) as java_port,
        prometheus(tmp_path, port, java_port) as url,
    ):
        wait_until(lambda: Exporter.scrapes >= 14, 60)
        until_s = int(datetime.datetime.now(datetime.UTC).timestamp())
        paths = []
        for name, query in queries(['job="mq"']).items():
            asked = {"query": query, "start": int(start_s), "end": until_s, "step": 1}
            whole = f"{url}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
            paths.append(tmp_path / f"{name}.json")
            with urllib.request.urlopen(whole, timeout=10) as response:
                paths[-1].write_bytes(response.read())
    result = lines_of(read_responses(paths), {})
    assert result.notes == []
    lines = result.lines
    assert len(lines) >= 8
    assert {line["boot_ts"] for line in lines} == {round(start_s * 1000)}
    assert len({line["boot"] for line in lines}) == 1
    assert [line["seq"] for line in lines] == sorted({line["seq"] for line in lines})
    # A line says what its own scrape said: the counter tells which scrape that was.
    scrapes = [line["msgs_in"] // 3 for line in lines]
    assert scrapes == sorted(set(scrapes))
    assert not set(scrapes) & set(Exporter.refused)
    hole = next(
        b["seq"] - a["seq"]
        for a, b in itertools.pairwise(lines)
        if a["msgs_in"] // 3 < 6 <= b["msgs_in"] // 3
    )
    assert hole >= 3

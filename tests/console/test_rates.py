"""Rates: of counters and histograms between two answers; restarts are gaps."""

from __future__ import annotations

import math
from typing import Any

import pytest

from broker.metrics.metrics_table import METRICS
from console import metric_names, rates
from console.rates import Rates, quantile
from console.snapshot import ClusterSnapshot, Metrics, Told
from tests.console.pages import NOW, seen

ADDRESS = "b0:10911"


def answers(ok: float, timeout: float = 0, refused: float = 0) -> dict[str, Any]:
    name = "rocketmq_rpc_latency_milliseconds_count"

    def row(request: str, response: str, value: float) -> tuple[dict[str, str], float]:
        return {"request_code": request, "response_code": response}, value

    return {
        name: [
            row("send_message_v2", "success", ok - 1),
            row("send_batch_message", "success", 1),
            row("send_message", "flush_slave_timeout", timeout),
            row("send_message", "system_busy", refused),
            row("pull_message", "success", 1e9),
        ]
    }


def acks(*cumulative: float) -> dict[str, Any]:
    bounds = ("0.001", "0.01", "+Inf")
    rows = [({"le": le}, value) for le, value in zip(bounds, cumulative, strict=True)]
    return {"rocketmq_ha_ack_latency_seconds_bucket": rows}


def snapshot(at_ms: int, samples: dict[str, Any]) -> ClusterSnapshot:
    return ClusterSnapshot(brokers=(seen(metrics=Told(Metrics(samples), at_ms)),))


def step(first: dict[str, Any], second: dict[str, Any], span_ms: int = 5_000) -> dict[str, float]:
    made = Rates()
    made.figures(snapshot(NOW, first))
    return {
        name: value for (_, name), value in made.figures(snapshot(NOW + span_ms, second)).items()
    }


def test_sends_by_status_a_second() -> None:
    found = step(answers(100, 4), answers(600, 14, 5))
    assert found["sends_ok"] == 100.0
    assert found["sends_flush_slave_timeout"] == 2.0
    assert found["sends_refused"] == 1.0
    assert found["sends_slave_not_available"] == 0.0


def test_latencies_are_those_of_the_step() -> None:
    found = step(acks(1_000, 1_000, 1_000), acks(1_050, 1_099, 1_100))
    assert found[rates.ACK_P50] == pytest.approx(0.001)
    assert found[rates.ACK_P99] == pytest.approx(0.01)
    assert rates.ACK_P50 not in step(acks(5, 5, 5), acks(5, 5, 5))


def test_a_restart_and_the_first_answer_have_no_rates() -> None:
    assert "sends_ok" not in step(answers(600), answers(3))
    assert "sends_ok" not in step(acks(5, 5, 5), acks(1, 1, 1))
    first = Rates().figures(snapshot(NOW, answers(5)))
    assert first == {}


def test_one_answer_counts_once_and_a_broker_that_is_gone_is_forgotten() -> None:
    made = Rates()
    exposed = {metric_names.UNREPLICATED_BYTES: [({}, 1.0)]}
    assert made.figures(snapshot(NOW, exposed)) != {}
    assert made.figures(snapshot(NOW, exposed)) == {}
    made.figures(ClusterSnapshot())
    assert made._before == {}


def test_exposure_is_told_at_once() -> None:
    samples = {
        metric_names.UNREPLICATED_BYTES: [({}, 4_096.0)],
        metric_names.UNREPLICATED_SECONDS: [({}, math.nan)],
    }
    assert Rates().figures(snapshot(NOW, samples)) == {(ADDRESS, rates.EXPOSED_BYTES): 4_096.0}


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        ({}, 0.5, None),
        ({1.0: 0.0, math.inf: 0.0}, 0.5, None),
        ({1.0: 10.0, math.inf: 10.0}, 0.5, 0.5),
        ({1.0: 5.0, 3.0: 10.0, math.inf: 10.0}, 0.75, 2.0),
        ({1.0: 5.0, math.inf: 10.0}, 0.99, 1.0),
    ],
)
def test_quantiles(counts: dict[float, float], share: float, value: float | None) -> None:
    assert quantile(counts, share) == value


def test_bounds_that_are_no_numbers_are_left_out() -> None:
    samples = {
        "h_bucket": [({"le": "x"}, 1.0), ({}, 2.0), ({"le": "nan"}, 3.0), ({"le": "2"}, 4.0)]
    }
    assert rates.buckets(Metrics(samples), "h") == {2.0: 4.0}


def test_the_names_are_those_of_our_brokers() -> None:
    known = {metric.name for metric in METRICS}
    assert set(metric_names.POLLED) - known == set()


def ends(commits: float, rollbacks: float, *cumulative: float) -> dict[str, Any]:
    bounds = ("0.001", "0.01", "+Inf")
    rows = [({"le": le, "result": "commit"}, n) for le, n in zip(bounds, cumulative, strict=True)]
    return {
        "rocketmq_commit_messages_total": [({"topic": "T"}, commits - 1), ({"topic": "U"}, 1.0)],
        "rocketmq_rollback_messages_total": [({"topic": "T"}, rollbacks)] if rollbacks else [],
        "rocketmq_transaction_finish_latency_seconds_bucket": rows,
    }


def test_ends_of_transactions_a_second() -> None:
    found = step(ends(10, 0, 5, 10, 10), ends(60, 5, 5, 65, 65))
    assert (found["commits"], found["rollbacks"]) == (10.0, 1.0)
    assert found["finish_p50"] == pytest.approx(0.001 + 0.009 * 27.5 / 55)
    idle = step(ends(10, 0, 5, 10, 10), ends(10, 0, 5, 10, 10))
    assert (idle["commits"], idle["rollbacks"], "finish_p50" in idle) == (0.0, 0.0, False)


def test_a_deleted_topic_is_a_gap_of_the_ends_alone() -> None:
    before, after = ends(10, 0, 5, 10, 10) | answers(5), ends(9, 0, 5, 10, 10) | answers(55)
    found = step(before, after)
    assert found["sends_ok"] == 10.0
    assert not {"commits", "rollbacks", "finish_p50"} & found.keys()


def test_a_broker_that_does_not_count_ends_has_no_rate_of_them() -> None:
    assert "commits" not in step(answers(1), answers(2))


def test_a_status_that_is_gone_is_a_gap() -> None:
    assert step(answers(5, 1), {}) == {}

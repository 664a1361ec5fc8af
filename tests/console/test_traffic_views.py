"""Sends, timers, pop, transactions, scrub: what brokers tell, what they do not, and the actions."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from broker.timer.recall_message_handle import RecallMessageHandle
from console import rates
from console.page import ConsoleError, Query, View
from console.proof_questions import (
    GIVEN_UP_TOPIC,
    HALF_GROUP,
    HALF_TOPIC,
    TIMER_COUNTS,
    TIMER_READ_TIME,
    VERIFICATION,
    group_progress,
    topic_queues,
    waiting_pops,
)
from console.replies import ASKED
from console.snapshot import Told
from console.views import damage, pop, sends, timers, transactions
from remoting.body.log_verification import LogVerification, ReplicaComparison
from remoting.body.stats import OffsetWrapper, TopicOffset
from tests.console.pages import (
    HOSTILE,
    NOW,
    Answers,
    Client,
    java,
    page,
    reader,
    rows,
    seen,
    shown,
    texts,
)
from tests.support.deadline import wait_until

JAVA = "j0:10911"
METRICS: dict[str, Any] = {
    "rocketmq_ha_unreplicated_bytes": [({}, 2_048.0)],
    "rocketmq_ha_oldest_unreplicated_seconds": [({}, 1.5)],
    "rocketmq_ha_unreplicated_exact": [({}, 0.0)],
    "rocketmq_timer_dequeue_lag": [({}, 7.0)],
    "rocketmq_timer_dequeue_latency_milliseconds": [({}, 250.0)],
    "rocketmq_timer_enqueue_lag": [({}, 2.0)],
    "rocketmq_timer_enqueue_latency_milliseconds": [({}, 90_000.0)],
    "rocketmq_timer_message_snapshot": [
        ({"timer_bound_s": "60"}, 3.0),
        ({"timer_bound_s": "300"}, 4.0),
    ],
    "rocketmq_timing_messages": [({"topic": "T"}, 7.0), ({"topic": "Idle"}, 0.0)],
    "rocketmq_consumer_inflight_messages": [
        ({"consumer_group": "g", "topic": "T", "is_retry": "false"}, 3.0),
        ({"consumer_group": "g", "topic": "T", "is_retry": "true"}, 2.0),
        ({"consumer_group": "idle", "topic": "T"}, 0.0),
    ],
    "rocketmq_consumer_ready_messages": [({"consumer_group": "g", "topic": "T"}, 11.0)],
    "rocketmq_consumer_queueing_latency_milliseconds": [
        ({"consumer_group": "g", "topic": "T", "is_retry": "false"}, 65_000.0),
        ({"consumer_group": "g", "topic": "T", "is_retry": "true"}, 0.0),
    ],
    "rocketmq_pop_revive_lag_milliseconds": [({"queue_id": "3"}, 9.0)],
    "rocketmq_pop_revive_latency_milliseconds": [({"queue_id": "3"}, 2_000.0)],
    "rocketmq_pop_offset_buffer_size": [({}, 4.0)],
    "rocketmq_half_messages": [({"cluster": "C", "topic": "T"}, 3.0)],
    "rocketmq_transaction_waiting_halves": [
        ({"topic": "T", "producer_group": "P"}, 2.0),
        ({"topic": "T", "producer_group": "Q"}, 1.0),
    ],
    "rocketmq_transaction_oldest_half_seconds": [
        ({"topic": "T", "producer_group": "P"}, 61.0),
        ({"topic": "T", "producer_group": "Q"}, 0.25),
    ],
    "rocketmq_commit_messages_total": [({"topic": "T"}, 70.0), ({"topic": "U"}, 1.0)],
    "rocketmq_transaction_checks_total": [({"topic": "T"}, 9.0)],
    "rocketmq_transaction_given_up_total": [({"topic": "U"}, 4.0)],
    "rocketmq_transaction_finish_latency_seconds_count": [({"result": "commit"}, 71.0)],
    "rocketmq_store_fenced_ranges": [({}, 1.0)],
    "rocketmq_store_fenced_bytes": [({}, 4_096.0)],
    "rocketmq_store_scrub_pass_end_timestamp_seconds": [({}, NOW / 1000)],
}
ALL: list[tuple[View, Any]] = [
    (module.VIEWS[0], module) for module in (sends, timers, pop, transactions, damage)
]


# -- sends -------------------------------------------------------------------------------------


def test_sends_now() -> None:
    who = reader(seen(metrics=METRICS), java())
    figures = {"sends_ok": 120.5, "sends_refused": 2.0, rates.ACK_P50: 0.0015, rates.ACK_P99: 0.02}
    who.history.add(NOW - 5_000, {("b0:10911", name): value for name, value in figures.items()})
    ours, javas = texts(page(sends.sends, who), "sends")
    assert ours[2] == "120.5"
    assert ours[6:] == ["2.0", "1.50", "20.00", "≤ 2.0 KiB", "≤ 1.5"]
    assert set(javas[2:]) == {"–"}
    said = page(sends.sends, who).context["sentences"]
    assert said == [
        "j:0 (V5_3_3) does not tell answers to sends by status: it has no request for its metrics."
    ]


def test_rates_that_are_old_are_none() -> None:
    who = reader(seen(metrics=METRICS))
    who.history.add(NOW - 60_000, {("b0:10911", "sends_ok"): 5.0})
    assert rows(page(sends.sends, who), "sends")[0]["ok"] is None


def test_plots_of_sends() -> None:
    who = reader(seen(metrics=METRICS))
    who.history.add(NOW, {("b0:10911", "sends_ok"): 5.0, ("b0:10911", rates.ACK_P99): 0.25})
    found = page(sends.sends, who)
    assert [url.partition("?")[0] for _, url in found.context["plots"]] == [
        "/sends/statuses.json",
        "/sends/latency.json",
        "/sends/exposure.json",
    ]
    ok = page(sends.sends_plot, who, address="b0:10911").data["series"][0]
    assert (ok["name"], ok["values"][-1]) == ("ok", 5.0)
    p99 = page(sends.latency_plot, who, address="b0:10911").data["series"][1]
    assert (p99["name"], p99["unit"], p99["values"][-1]) == ("p99", "s", 0.25)
    exposure = page(sends.exposure_plot, who, address="b0:10911").data
    assert [line["unit"] for line in exposure["series"]] == ["bytes", "s"]


# -- timers ------------------------------------------------------------------------------------


def test_our_timers() -> None:
    found = page(timers.timers, reader(seen(metrics=METRICS)))
    assert texts(found, "wheels") == [
        ["b:0", "7", "2", "1 min 30 s", "2027-01-15 07:59:59", "250 ms"]
    ]
    assert [(row["dueWithin"], row["count"]) for row in rows(found, "next")] == [
        (60.0, 3),
        (300.0, 4),
    ]
    assert rows(found, "topics") == [{"topic": "T", "broker": "b:0", "waiting": 7}]


def test_a_java_brokers_timers() -> None:
    runtime = {"timerCongestNum": "3", "timerOffsetBehind": "1", "timerReadBehind": "2"}
    broker = java(runtime=Told(runtime, NOW))
    answers = Answers(
        {(JAVA, TIMER_READ_TIME.key): NOW - 2_000, (JAVA, TIMER_COUNTS.key): {"T": 3}}
    )
    found = page(timers.timers, reader(broker, answers=answers))
    (row,) = rows(found, "wheels")
    assert (row["waiting"], row["notEntered"], row["lateMs"]) == (3, 1, 2_000)
    assert row["readTime"] == NOW - 2_000
    assert rows(found, "topics")[0]["waiting"] == 3
    old = page(timers.timers, reader(java()))
    assert any("does not tell how many timers wait" in s for s in old.context["sentences"])


def handle(due_ms: int = NOW + 60_000, broker: str = "b") -> str:
    return RecallMessageHandle("T", broker, str(due_ms), "KEY1").encode()


def test_a_recall_says_what_it_will_do_and_asks_the_handles_broker() -> None:
    client = Client()
    who = reader(seen(metrics=METRICS), seen("other"), client=client)
    text = handle().rstrip("=")
    plan = timers.plan_recall(who, Query({"recallHandle": text}))
    assert "KEY1 of topic T, due 2027-01-15 08:01:00 UTC" in plan[0]
    assert "b0:10911" in plan[0]
    assert len(plan) == 2
    assert len(timers.plan_recall(who, Query({"recallHandle": handle(NOW - 1)}))) == 3
    done = timers.run_recall(who, Query({"recallHandle": text}))
    ((address, code, header),) = client.asked
    assert (address, code, header.topic, header.recall_handle) == ("b0:10911", 370, "T", text)
    assert "if it was still waiting" in done.sentences[0]


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "é",
        "+/",
        base64.urlsafe_b64encode(b"v2 T b 1 k").decode(),
        base64.urlsafe_b64encode(b"v1 T b 1").decode(),
        base64.urlsafe_b64encode(b"v1 T b 1 k\x01").decode(),
    ],
)
def test_what_is_no_handle(text: str) -> None:
    with pytest.raises(ConsoleError, match="no recall handle"):
        timers.plan_recall(reader(), Query({"recallHandle": text}))


def test_a_handle_of_an_unknown_broker() -> None:
    with pytest.raises(ConsoleError, match="no master of broker gone"):
        timers.run_recall(reader(seen()), Query({"recallHandle": handle(broker="gone")}))


# -- pop ---------------------------------------------------------------------------------------


def test_pops() -> None:
    answers = Answers({("b0:10911", waiting_pops("g", "T").key): 12})
    who = reader(seen(metrics=METRICS), java(), answers=answers)
    found = page(pop.pop, who, group="g", topic="T")
    assert rows(found, "inflight") == [
        {
            "consumerGroup": "g",
            "topic": "T",
            "broker": "b:0",
            "inflight": 5,
            "ready": 11,
            "oldestMs": 65_000.0,
        }
    ]
    assert texts(found, "revive") == [["b:0", "3", "9", "2 s"]]
    assert rows(found, "buffers")[0]["offsets"] == 4
    assert [row["pops"] for row in rows(found, "waiting")] == [12]
    assert any("j:0 does not tell how many pops wait" in s for s in found.context["sentences"])


def test_nobody_is_asked_without_a_group_and_a_topic() -> None:
    answers = Answers()
    page(pop.pop, reader(seen(metrics=METRICS), answers=answers), group="g")
    assert answers.asked == []


# -- transactions ------------------------------------------------------------------------------


def test_halves_of_any_broker() -> None:
    half = TopicOffset(min_offset=10, max_offset=60, last_update_timestamp=NOW - 5_000)
    answers = Answers(
        {
            (JAVA, topic_queues(HALF_TOPIC).key): [half],
            (JAVA, group_progress(HALF_GROUP, HALF_TOPIC).key): [
                OffsetWrapper(broker_offset=60, consumer_offset=45)
            ],
            (JAVA, topic_queues(GIVEN_UP_TOPIC).key): ValueError("topic not exist"),
        }
    )
    found = page(transactions.transactions, reader(java(), answers=answers))
    assert rows(found, "halves") == [
        {
            "broker": "j:0",
            "waiting": 15,
            "newest": NOW - 5_000,
            "stored": 50,
            "givenUp": 0,
            "newestGivenUp": None,
        }
    ]
    assert "halves by topic, and how they ended" in found.context["sentences"][0]


def test_our_halves_by_topic_and_group() -> None:
    who = reader(seen(metrics=METRICS))
    figures = {rates.COMMITS: 12.0, rates.ROLLBACKS: 0.5, rates.FINISH_P50: 0.004}
    who.history.add(NOW - 5_000, {("b0:10911", name): value for name, value in figures.items()})
    found = page(transactions.transactions, who)
    assert texts(found, "now") == [["b:0", "3", "1 min 1 s", "12.0", "0.5", "4.00", "–"]]
    assert texts(found, "waiting") == [
        ["T", "P", "b:0", "2", "1 min 1 s"],
        ["T", "Q", "b:0", "1", "250 ms"],
    ]
    assert texts(found, "topics") == [
        ["T", "b:0", "3", "70", "0", "9", "0"],
        ["U", "b:0", "0", "1", "0", "0", "4"],
    ]
    assert any("does not tell of its halves" in s for s in found.context["sentences"])
    assert rows(found, "halves")[0]["givenUp"] is None


def test_a_broker_of_ours_where_nothing_waits() -> None:
    idle = {"rocketmq_transaction_finish_latency_seconds_count": [({"result": "commit"}, 0.0)]}
    found = page(transactions.transactions, reader(seen(metrics=idle)))
    assert texts(found, "now") == [["b:0", "0", "–", "–", "–", "–", "–"]]
    assert texts(found, "waiting") == texts(found, "topics") == []


def test_an_older_broker_of_ours_and_numbers_that_are_none() -> None:
    older = page(transactions.transactions, reader(seen(metrics={"x": [({}, 1.0)]})))
    assert set(texts(older, "now")[0][1:]) == {"–"}
    lies = {
        "rocketmq_transaction_waiting_halves": [({}, 1e300), ({"topic": HOSTILE}, -1.0)],
        "rocketmq_transaction_oldest_half_seconds": [({}, float("nan")), ({"topic": "x"}, -5.0)],
    }
    found = page(transactions.transactions, reader(seen(metrics=lies)))
    assert [row[3:] for row in texts(found, "waiting")] == [["–", "–"], ["-1", "–"]]


def test_what_was_given_up_is_a_link_to_its_messages() -> None:
    topic = TopicOffset(min_offset=1, max_offset=4, last_update_timestamp=NOW)
    answers = Answers({(JAVA, topic_queues(GIVEN_UP_TOPIC).key): [topic]})
    (row,) = page(transactions.transactions, reader(java(), answers=answers)).tables[0].rows
    cell = row[4]
    assert (cell.text, cell.url) == ("3", f"/messages?topic={GIVEN_UP_TOPIC}")  # type: ignore[attr-defined]


def test_a_half_is_asked_about_again() -> None:
    client = Client()
    who = reader(seen(), client=client)
    fields = Query({"broker": "b", "msgId": "0" * 32})
    assert "0" * 32 in transactions.plan_resume(who, fields)[0]
    transactions.run_resume(who, fields)
    ((address, code, header),) = client.asked
    assert (address, code, header.msg_id, header.topic) == ("b0:10911", 323, "0" * 32, None)
    with pytest.raises(ConsoleError, match="no master is called x"):
        transactions.plan_resume(who, Query({"broker": "x", "msgId": "1"}))


# -- scrub -------------------------------------------------------------------------------------

VERIFIED = LogVerification(
    begin_offset=0,
    closed_end=4_096,
    position=1_024,
    pass_number=2,
    passes_ended=1,
    replicas=[
        ReplicaComparison(broker_id=1, broker_addr="s:1", compared_bytes=2_048, equal_chunks=2)
    ],
)


def test_logs_passes_and_comparisons() -> None:
    answers = Answers({("b0:10911", VERIFICATION.key): VERIFIED})
    found = page(damage.damage, reader(seen(metrics=METRICS), java(), answers=answers))
    ours, javas = texts(found, "logs")
    assert ours[:3] == ["b:0", "1", "4.0 KiB"]
    assert ours[-1] == "2027-01-15 08:00:00"
    assert set(javas[1:]) == {"–"}
    (passed,) = texts(found, "passes")
    assert passed[4] == "1.0 KiB of 4.0 KiB, running"
    (compared,) = rows(found, "compared")
    assert (compared["with"], compared["comparedBytes"], compared["equal"]) == ("1 s:1", 2_048, 2)
    assert (JAVA, VERIFICATION.key) not in answers.asked


class Verifying(Client):
    """A group whose members read and compare at once, unless they never end."""

    def __init__(self, *, ends: bool = True) -> None:
        super().__init__()
        self.ends = ends

    def call(self, address: str, code: int, header: Any = None, *_: Any, **__: Any) -> Any:
        self.asked.append((address, code, header))
        started = {one[2].action for one in self.asked if one[0] == address}
        told = replace(
            VERIFIED,
            pass_number=3 if "scrub" in started else 2,
            passes_ended=3 if "scrub" in started and self.ends else 2,
            comparison_number=1,
            comparisons_ended=1,
        )
        return type("Response", (), {"body": told.to_json_bytes()})


def test_verifying_is_a_job() -> None:
    client = Verifying()
    who = reader(seen(), seen(broker_id=1), client=client)
    plan = damage.plan_verify(who, Query({"broker": "b"}))
    assert plan[0].startswith("b:0, b:1: each reads the closed files of its log again, 256.0 MiB")
    done = damage.run_verify(who, Query({"broker": "b", "bytesPerSecond": "2000000"}))
    (job,) = who.jobs.of(None)
    assert done.next_url == f"/jobs/{job.id}"
    wait_until(lambda: job.state != "running")
    assert job.state == "done", list(job.lines)
    assert any("2.0 KiB" in line for line in job.lines)
    scrubs = [header.bytes_per_second for _, _, header in client.asked if header.action == "scrub"]
    assert scrubs == [2_000_000, 2_000_000]


def test_a_job_that_never_ends_can_be_stopped_and_shows_how_far_it_is() -> None:
    who = reader(seen(), client=Verifying(ends=False))
    damage.run_verify(who, Query({"broker": "b"}))
    (job,) = who.jobs.of(None)
    wait_until(lambda: job.total == 4_096)
    assert job.done == 1_024
    job.stop.set()
    wait_until(lambda: job.state == "stopped")
    assert "interrupted while the log is read; the brokers finish what they began." in job.lines


def test_fields_that_cannot_be_used() -> None:
    who = reader(seen())
    with pytest.raises(ConsoleError, match="no broker is called x"):
        damage.plan_verify(who, Query({"broker": "x"}))
    with pytest.raises(ConsoleError, match="bytesPerSecond is 5"):
        damage.plan_verify(who, Query({"broker": "b", "bytesPerSecond": "5"}))


# -- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize(("view", "module"), ALL)
def test_every_page_survives_hostile_brokers(view: View, module: Any) -> None:
    odd = {
        name: [(dict.fromkeys(labels, HOSTILE), value) for labels, _ in series]
        for name, series in METRICS.items()
        for value in (float("inf"), float("nan"), -1e300)
    }
    who = reader(seen(HOSTILE, metrics=odd), seen("b", metrics=METRICS), java(), may_change=True)
    html = shown(view, who)
    assert "<img" not in html
    assert "Traceback" not in html
    assert "<img" not in shown(view, who, {"broker": HOSTILE})


@pytest.mark.parametrize("view", [timers.VIEWS[0], transactions.VIEWS[0]])
def test_a_large_cluster_costs_few_questions(view: View) -> None:
    brokers = [java(f"b{at:03}") for at in range(200)]
    answers = Answers()
    who = reader(*brokers, answers=answers)
    found = view.function(who, Query({}))
    assert len({address for address, _ in answers.asked}) == ASKED
    assert found.context["sentences"][0] == (
        "The first 3 of 200 masters are shown; choose one to see it."
    )
    answers.asked.clear()
    view.function(who, Query({"broker": "b150"}))
    assert {address for address, _ in answers.asked} == {"b1500:10911"}
    nobody = view.function(who, Query({"broker": "none"}))
    assert nobody.context["sentences"][0] == "No master is called none."

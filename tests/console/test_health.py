"""Health: each thing that is not well has a sentence, and nothing else has one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.health import SKEW_MS, STALE_MS, findings, verdict
from console.snapshot import BrokerSeen, ClusterSnapshot, HaTold, Metrics, Told
from remoting.body.ha_runtime_info import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HAGroupInfo,
    HARuntimeInfo,
)
from tools.admin_client import BrokerAddress

NOW = 1_800_000_000_000
IN_SYNC = HAConnectionRuntimeInfo(addr="s:1", id="g:1", state="in_sync", in_sync=True)


def told(info: HARuntimeInfo) -> Told[HaTold]:
    return Told(HaTold(info, {}), NOW)


def broker(broker_id: int = 0, **parts: Any) -> BrokerSeen:
    place = BrokerAddress("c", "g", broker_id, f"b{broker_id}:1")
    runtime = Told({"commitLogDiskRatio": "0.5"}, NOW)
    ha = told(HARuntimeInfo(master=broker_id == 0, ha_connection_info=[IN_SYNC]))
    return replace(BrokerSeen(place, runtime=runtime, ha=ha), **parts)


def snapshot(*brokers: BrokerSeen, **parts: Any) -> ClusterSnapshot:
    return replace(ClusterSnapshot(brokers=brokers, names={"ns:1": Told({}, NOW)}), **parts)


def said(found: ClusterSnapshot) -> list[tuple[str, str]]:
    return [(f.severity, f.sentence) for f in findings(found, NOW)]


def master_with(replica: HAConnectionRuntimeInfo) -> ClusterSnapshot:
    return snapshot(broker(ha=told(HARuntimeInfo(master=True, ha_connection_info=[replica]))))


def test_all_well() -> None:
    found = snapshot(broker(), broker(1))
    assert said(found) == []
    assert verdict([], found) == "All well: 1 master and 1 replica answer."


def test_nothing_known_is_not_well() -> None:
    assert verdict([], ClusterSnapshot()) == "Nothing is known of the cluster yet."
    assert verdict([], snapshot()) == "The name servers know no broker."
    new = snapshot(BrokerSeen(broker().place))
    assert said(new) == [("note", "g:0 has not been asked yet.")]
    assert verdict(findings(new, NOW), new) == "1 thing is not known."


@pytest.mark.parametrize(
    ("replica", "severity", "sentence"),
    [
        (
            replace(IN_SYNC, state="disconnected", diff=2048, lag_seconds=3.0),
            "critical",
            "g:0 has lost its replica g:1, which lacks 2.0 KiB, 3.0 s.",
        ),
        (
            replace(IN_SYNC, state="catching_up", diff=5),
            "warning",
            "g:0 has a replica that is catching up: g:1 lacks 5 B.",
        ),
        (
            replace(IN_SYNC, lag_seconds=6.0),
            "warning",
            "g:0 has a replica behind: g:1 lacks 0 B, 6.0 s.",
        ),
        (
            HAConnectionRuntimeInfo(addr="10.0.0.1:5", in_sync=False, diff=-1),
            "warning",
            "g:0 has a replica that is catching up: 10.0.0.1:5 lacks 0 B.",
        ),
    ],
)
def test_replicas(replica: HAConnectionRuntimeInfo, severity: str, sentence: str) -> None:
    assert said(master_with(replica)) == [(severity, sentence)]


def test_a_group_without_a_master() -> None:
    found = said(snapshot(broker(1, ha=Told())))
    assert found == [("critical", "g of c has no master: nothing can be sent to it.")]


def test_a_broker_that_is_gone_silent_or_stale() -> None:
    gone = said(snapshot(broker(), broker(1, registered=False)))
    assert gone == [("warning", "g:1 is no longer listed by the name servers.")]
    error = broker().ha.failed("timed out", NOW + 1)
    assert said(snapshot(broker(ha=error))) == [("critical", "g:0 does not answer: timed out")]
    assert said(snapshot(broker(), broker(1, ha=error)))[0][0] == "warning"
    old = Told({}, NOW - STALE_MS - 1)
    assert said(snapshot(broker(ha=Told(), runtime=old))) == [
        ("warning", "g:0 has said nothing for 15 s.")
    ]


def test_a_refusal_is_not_called_silence() -> None:
    """The console has no account, or one without rights."""
    refused = broker().ha.failed("no right", NOW + 1, is_refusal=True)
    assert said(snapshot(broker(ha=refused))) == [
        ("critical", "g:0 refuses the console's questions: no right")
    ]
    silent = refused.failed("timed out", NOW + 2)
    assert said(snapshot(broker(ha=silent))) == [("critical", "g:0 does not answer: timed out")]


def test_who_answers_and_knows_no_question_is_not_unasked() -> None:
    answer = "b answered REQUEST_CODE_NOT_SUPPORTED (3)"
    told: Told[Any] = Told().failed(answer, NOW, is_refusal=True)
    found = said(snapshot(broker(ha=told, runtime=told)))
    assert found == [("warning", f"g:0 tells nothing of itself: {answer}")]


@pytest.mark.parametrize(
    ("ahead_ms", "words"),
    [
        (3_600_000, "has a clock that is 1 h 0 min ahead of this console's."),
        (-60_000, "has a clock that is 1 min 0 s behind this console's."),
        (SKEW_MS, ""),
    ],
)
def test_a_clock_that_is_wrong_is_said(ahead_ms: int, words: str) -> None:
    ha = Told(HaTold(HARuntimeInfo(master=False, timestamp=NOW + ahead_ms), {}), NOW, wall_ms=NOW)
    found = said(snapshot(broker(), broker(1, ha=ha)))
    assert found == ([("warning", f"g:1 {words}")] if words else [])


def test_an_error_that_a_later_answer_ended_is_over() -> None:
    ha = broker().ha.failed("not supported", NOW - 1)
    assert said(snapshot(broker(ha=replace(ha, value=None, at_ms=0)))) == []


def test_a_java_broker_without_ha_status_is_not_silent() -> None:
    refused: Told[Any] = Told(
        error="m:1 answered REQUEST_CODE_NOT_SUPPORTED (3): no", error_at_ms=NOW + 5
    )
    assert said(snapshot(broker(ha=refused))) == []


def test_name_servers() -> None:
    dead: Told[Any] = Told(error="refused")
    assert said(snapshot(broker(), names={"a": dead, "b": Told({}, NOW)}))[0][0] == "warning"
    assert said(snapshot(broker(), names={"a": dead}))[0][0] == "critical"


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (HARuntimeInfo(isolated="waits for broker 1"), "serves nothing: waits for broker 1"),
        (
            HARuntimeInfo(master=True, group_info=HAGroupInfo(takes_messages=False)),
            "takes no messages",
        ),
        (
            HARuntimeInfo(group_info=HAGroupInfo(without_master_millis=5_000)),
            "has no master for 5 s",
        ),
        (
            HARuntimeInfo(
                master=True, group_info=HAGroupInfo(takes_messages=True, two_masters_seen=1)
            ),
            "two masters in one epoch",
        ),
        (
            HARuntimeInfo(
                ha_client_runtime_info=HAClientRuntimeInfo(
                    last_error="connection refused", last_error_over=False
                )
            ),
            "is not linked with its master: connection refused",
        ),
    ],
)
def test_what_a_broker_says_of_itself(info: HARuntimeInfo, words: str) -> None:
    found = said(snapshot(broker(), broker(1, ha=told(info))))
    assert len(found) == 1
    assert words in found[0][1]


def test_disk_and_damage() -> None:
    metrics = Metrics({"rocketmq_store_fenced_ranges": [({}, 2.0)]})
    runtime = Told({"commitLogDiskRatio": "0.9"}, NOW)
    found = said(snapshot(broker(runtime=runtime, metrics=Told(metrics, NOW))))
    assert [severity for severity, _ in found] == ["critical", "warning"]
    assert "90%" in found[1][1]
    assert said(snapshot(broker(runtime=Told({"commitLogDiskRatio": "many"}, NOW)))) == []


def test_the_fullest_disk_of_one_of_ours() -> None:
    ratios = [({"directory": "store"}, 0.5), ({"directory": "commitlog"}, 0.91), ({}, 7.0)]
    metrics = Told(Metrics({"rocketmq_store_disk_used_ratio": ratios}), NOW)
    runtime = Told({"commitLogDiskRatio": "0.2"}, NOW)
    (found,) = said(snapshot(broker(runtime=runtime, metrics=metrics)))
    assert "91%" in found[1]


def test_readiness_and_processes() -> None:
    up = [({"process": name}, value) for name, value in (("ha", 0.0), ("store", 1.0))]
    samples = {"rocketmq_ready": [({}, 0.0)], "rocketmq_process_up": up}
    found = said(snapshot(broker(metrics=Told(Metrics(samples), NOW))))
    assert [severity for severity, _ in found] == ["critical", "critical"]
    assert "/readyz" in found[0][1]
    assert found[1][1].endswith("lacks its process ha.")
    well = {"rocketmq_ready": [({}, 1.0)], "rocketmq_process_up": up[1:]}
    assert said(snapshot(broker(metrics=Told(Metrics(well), NOW)))) == []


def test_a_thousand_processes_are_a_short_sentence() -> None:
    up = [({"process": f"{number}" * 50}, 0.0) for number in range(1_000)]
    metrics = Told(Metrics({"rocketmq_process_up": up}), NOW)
    ((_, sentence),) = said(snapshot(broker(metrics=metrics)))
    assert len(sentence) < 1_500


def test_the_worst_comes_first_and_counts() -> None:
    lost = broker(
        ha=told(
            HARuntimeInfo(
                master=True, ha_connection_info=[replace(IN_SYNC, state="disconnected")] * 2
            )
        ),
        runtime=Told({"commitLogDiskRatio": "0.9"}, NOW),
    )
    found = findings(snapshot(lost), NOW)
    assert [f.severity for f in found] == ["critical", "critical", "warning"]
    assert verdict(found, snapshot(lost)) == "2 things are critical."

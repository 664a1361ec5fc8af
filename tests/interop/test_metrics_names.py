"""The metrics that we share with RocketMQ 5.3.3: both exporters, scraped after the same traffic."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from remoting.request_code import RequestCode
from tests.interop import harness
from tests.interop.clients import Client, Cluster, wait_registered
from tests.interop.driver import Driver
from tests.interop.processes import wait_until
from tests.support.our_broker import FrameClient
from tests.support.pop_client import PopClient
from tools.chaos.free_ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(180)]

SHARED: Final = {
    "rocketmq_messages_in_total",
    "rocketmq_messages_out_total",
    "rocketmq_throughput_in_total",
    "rocketmq_throughput_out_total",
    "rocketmq_rpc_latency_milliseconds_bucket",
    "rocketmq_rpc_latency_milliseconds_count",
    "rocketmq_rpc_latency_milliseconds_sum",
    "rocketmq_broker_permission",
    "rocketmq_topic_number",
    "rocketmq_consumer_group_number",
    "rocketmq_processor_watermark",
    "rocketmq_producer_connections",
    "rocketmq_consumer_connections",
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_lag_latency_milliseconds",
    "rocketmq_storage_size_bytes",
    "rocketmq_storage_flush_behind_bytes",
    "rocketmq_storage_dispatch_behind_bytes",
    "rocketmq_storage_message_reserve_time_milliseconds",
    "rocketmq_consumer_inflight_messages",
    "rocketmq_consumer_queueing_latency_milliseconds",
    "rocketmq_consumer_ready_messages",
    "rocketmq_timer_enqueue_lag",
    "rocketmq_timer_enqueue_latency_milliseconds",
    "rocketmq_timer_enqueue_total",
    "rocketmq_timer_dequeue_lag",
    "rocketmq_timer_dequeue_latency_milliseconds",
    "rocketmq_timer_dequeue_total",
    "rocketmq_timing_messages",
    "rocketmq_timer_message_snapshot",
    "rocketmq_pop_buffer_scan_time_consume_milliseconds_bucket",
    "rocketmq_pop_buffer_scan_time_consume_milliseconds_count",
    "rocketmq_pop_buffer_scan_time_consume_milliseconds_sum",
    "rocketmq_pop_revive_in_message_total",
    "rocketmq_pop_revive_out_message_total",
    "rocketmq_pop_revive_retry_messages_total",
    "rocketmq_pop_revive_lag_milliseconds",
    "rocketmq_pop_revive_latency_milliseconds",
    "rocketmq_pop_offset_buffer_size",
    "rocketmq_pop_checkpoint_buffer_size",
    "rocketmq_half_messages",
    "rocketmq_commit_messages_total",
    "rocketmq_rollback_messages_total",
    "rocketmq_finish_message_latency_milliseconds_bucket",
    "rocketmq_finish_message_latency_milliseconds_count",
    "rocketmq_finish_message_latency_milliseconds_sum",
}
"""Names of samples that both show."""
KNOWN_VALUES: Final = (
    "cluster",
    "node_type",
    "node_id",
    "topic",
    "consumer_group",
    "message_type",
    "is_system",
    "is_retry",
    "protocol_type",
    "storage_type",
    "storage_medium",
    "consume_mode",
    "language",
    "version",
    "revive_message_type",
    "put_status",
    "timer_bound_s",
    "le",
)
"""Labels whose values after the same traffic are the same."""
_TOPIC, _GROUP, _POPPERS = "MetricsNames", "metrics-names", "metrics-names-pop"
_HALVES: Final = "MetricsNamesHalves"
"""Of transactions alone: ours counts a committed message as one that came in, 5.3.3 does not."""
_COUNT = 40

_OUT: Final = ("rocketmq_messages_out_total", "rocketmq_throughput_out_total")
"""5.3.3 gives what is popped, and nothing else, a label more here: is_retry."""
_OF_HALVES: Final = (
    "rocketmq_half_messages",
    "rocketmq_commit_messages",
    "rocketmq_rollback_messages",
    "rocketmq_finish_message_latency",
)
_SEND: Final = {
    "producerGroup": "metrics-names-timers",
    "topic": _TOPIC,
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 0,
    "sysFlag": 0,
    "flag": 0,
    "reconsumeTimes": 0,
}
_BEAT: Final = {
    "clientID": "127.0.0.1@poppers",
    "consumerDataSet": [
        {
            "groupName": _POPPERS,
            "consumeType": "CONSUME_POP",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": _TOPIC, "subString": "*", "subVersion": 1}],
        }
    ],
}

Series = dict[str, set[frozenset[tuple[str, str]]]]
"""Name of a sample to its label sets."""


def scrape(port: int) -> Series:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # OpenTelemetry's own label says which meter it was.
            labels = {k: v for k, v in sample.labels.items() if k != "otel_scope_name"}
            found.setdefault(sample.name, set()).add(frozenset(labels.items()))
    return found


def values(series: Series, name: str, label: str) -> set[str]:
    return {dict(labels)[label] for labels in series[name]}


def about_us(series: Series, name: str) -> set[frozenset[tuple[str, str]]]:
    """Label sets of our topic and groups; all where neither is a label."""
    groups = (_GROUP,) if name in _OUT else (_GROUP, _POPPERS)
    topic = _HALVES if name.startswith(_OF_HALVES) else _TOPIC
    mine = {"topic": (topic,), "consumer_group": groups}
    return {
        labels
        for labels in series[name]
        if all(value in mine[key] for key, value in labels if key in mine)
    }


def _has_all(series: Series) -> bool:
    """Ours samples the groups every five seconds, and shows this figure of them last."""
    if not all(name in series and about_us(series, name) for name in SHARED):
        return False
    return _POPPERS in values(
        series, "rocketmq_consumer_queueing_latency_milliseconds", "consumer_group"
    )


def _traffic(
    kind: str, broker: harness.Broker, namesrv: harness.NameServer, driver: Driver
) -> Client:
    """Sends and pulls; the clients stay online until `end`."""
    client = Client(driver, Cluster(namesrv, broker))
    where = {"namesrv": namesrv.address, "broker": broker.address}
    driver.call("topic.create", topic=_TOPIC, queues=4, **where)
    wait_until(
        lambda: (
            driver.submit("topic.route", namesrv=namesrv.address, topic=_TOPIC).exception(30)
            is None
        ),
        f"route of {_TOPIC} on {kind}",
    )
    consumer = client.push(_TOPIC, _GROUP)
    client.producer().send(_TOPIC, "sync", _COUNT)
    consumer.wait_for(_COUNT)
    return client


def _pop_and_time(port: int, frames: FrameClient, broker_name: str) -> None:
    """Messages that are popped, one of them acknowledged; timers, one of them due at once."""
    for delay_ms in (2_000, 3_600_000):
        due_ms = int(time.time() * 1000) + delay_ms
        send = {**_SEND, "bornTimestamp": due_ms, "properties": f"TIMER_DELIVER_MS\x01{due_ms}"}
        assert frames.call(RequestCode.SEND_MESSAGE, send, b"timed").code == 0
    assert frames.call(RequestCode.HEART_BEAT, {}, json.dumps(_BEAT).encode()).code == 0
    client = PopClient(frames, _POPPERS, broker_name)
    popped = client.pop(_TOPIC, queueId=0, maxMsgNums=2, invisibleTime=2_000).messages
    assert len(popped) == 2
    # Ours merges an acknowledgement with a check point that is not stored yet.
    wait_until(lambda: _kinds(port, "in") == {"CK"}, "a stored check point", poll_s=0.1)
    assert client.ack(popped[0]).code == 0
    wait_until(lambda: _kinds(port, "out") == {"CK", "ACK"}, "revival", poll_s=0.2)


def _end_transactions(frames: FrameClient) -> None:
    """Of three halves one is committed, one is rolled back, and one waits."""
    text = "TRAN_MSG\x01true\x02PGROUP\x01metrics-names-timers\x02UNIQ_KEY\x01"
    for number, end in enumerate(("8", "12", "")):
        sent = frames.call(
            RequestCode.SEND_MESSAGE,
            {
                **_SEND,
                "topic": _HALVES,
                "sysFlag": 4,
                "bornTimestamp": int(time.time() * 1000),
                "properties": f"{text}{number:032X}",
            },
            b"half",
        )
        assert sent.code == 0, sent.remark
        fields = {
            "producerGroup": "metrics-names-timers",
            "tranStateTableOffset": sent.ext_fields["queueOffset"],
            "commitLogOffset": int(sent.ext_fields["msgId"][-16:], 16),
            "commitOrRollback": end,
            "fromTransactionCheck": "false",
            "msgId": f"{number:032X}",
        }
        if end:
            ended = frames.call(RequestCode.END_TRANSACTION, fields)
            assert ended.code == 0, ended.remark


def _kinds(port: int, way: str) -> set[str]:
    name = f"rocketmq_pop_revive_{way}_message_total"
    return {dict(labels)["revive_message_type"] for labels in scrape(port).get(name, ())}


def _shown(kind: str, directory: Path, driver: Driver) -> Series:
    """What a broker of `kind` shows after the traffic; its name server is its own."""
    port = free_port()
    conf = {"metricsPort": str(port), "popCkStayBufferTime": "100"}
    if kind != "ours":
        conf = {
            "timerWheelEnable": "true",
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": str(port),
            "metricsPromExporterHost": "127.0.0.1",
        }
    namesrv = harness.name_server("ours", directory / "namesrv").start()
    broker = harness.broker(kind, directory / "broker", namesrv.address, conf=conf)
    try:
        broker.start()
        wait_registered(driver, namesrv.address, broker)
        client = _traffic(kind, broker, namesrv, driver)
        try:
            with broker.client() as frames:
                _pop_and_time(port, frames, broker.name)
                _end_transactions(frames)
                wait_until(lambda: _has_all(scrape(port)), f"{kind} shows all", 40, poll_s=1)
                return scrape(port)
        finally:
            client.end()
    finally:
        broker.end()
        namesrv.stop()


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, drivers: Callable[[str], Driver]
) -> tuple[Series, Series]:
    """(5.3.3's, ours)."""
    driver = drivers("4.9.8")
    root = tmp_path_factory.mktemp("metrics")
    return _shown(harness.JAVA_5, root / "java", driver), _shown("ours", root / "ours", driver)


def test_the_shared_metrics_have_the_same_labels(both: tuple[Series, Series]) -> None:
    theirs, ours = both
    for name in SHARED:
        (expected,) = {frozenset(dict(labels)) for labels in about_us(theirs, name)}
        assert {frozenset(dict(labels)) for labels in ours[name]} == {expected}, name


def test_the_labels_have_the_same_values(both: tuple[Series, Series]) -> None:
    theirs, ours = both

    def known(series: Series, name: str) -> set[frozenset[tuple[str, str]]]:
        return {
            frozenset(pair for pair in labels if pair[0] in KNOWN_VALUES)
            for labels in about_us(series, name)
        }

    for name in SHARED:
        assert known(ours, name) == known(theirs, name), name


def test_requests_and_pools_have_the_same_names(both: tuple[Series, Series]) -> None:
    theirs, ours = both
    requests = "rocketmq_rpc_latency_milliseconds_count"
    for code in ("send_message_v2", "pull_message", "heart_beat"):
        found = [
            {
                (pairs["response_code"], pairs["is_long_polling"], pairs["result"])
                for pairs in map(dict, series[requests])
                if pairs["request_code"] == code and pairs["response_code"] == "success"
            }
            for series in both
        ]
        assert found[0] & found[1], f"{code}: {found}"
    pools = "rocketmq_processor_watermark"
    assert values(ours, pools, "processor") <= values(theirs, pools, "processor")


def test_whatever_else_has_one_of_their_names_means_the_same(both: tuple[Series, Series]) -> None:
    """A name of theirs that we show is in the list above."""
    theirs, ours = both
    assert {name for name in theirs.keys() & ours.keys() if name.startswith("rocketmq_")} == SHARED

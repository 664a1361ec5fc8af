"""Trace messages, read as bytes and through mqadmin queryMsgTraceById."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench
from tests.tools.test_message_decoder import one, record
from tools.trace_data import TraceView, decode_traces

KEY = "7F0000010001"
TIME = "1795177732468"


def trace(*fields: str) -> str:
    return "\x01".join(fields) + "\x02"


def pub(*last: str, key: str = KEY) -> str:
    fields = ["Pub", TIME, "region", "pg", "T", key, "tag", "keys", "10.0.0.1:1", "5", "7", "0"]
    return trace(*fields, *last)


def sub(*last: str, group: str = "cg", success: str = "true") -> str:
    return trace("SubAfter", "request", KEY, "9", success, "keys", *last, group)


def traces(text: str) -> tuple[list[TraceView], int]:
    return decode_traces(KEY, one(record(body=text.encode())))


class TestDecoding:
    @pytest.mark.parametrize("last", [("true",), ("offset-id", "true"), ("o", "true", "host")])
    def test_pub_of_every_age(self, last: tuple[str, ...]) -> None:
        (view,), damaged = traces(pub(*last))
        assert damaged == 0
        assert view == TraceView(
            kind="Pub",
            group="pg",
            client_host="127.0.0.1",
            timestamp_ms=int(TIME),
            cost_ms=7,
            success=True,
        )

    def test_sub(self) -> None:
        (view,), _ = traces(sub("0", TIME, success="false"))
        assert (view.kind, view.group, view.timestamp_ms) == ("Sub", "cg", int(TIME))
        assert (view.cost_ms, view.success) == (9, False)

    @pytest.mark.parametrize("last", [(), ("0", "")])
    def test_sub_of_old_clients_has_no_group(self, last: tuple[str, ...]) -> None:
        (view,), _ = traces(trace("SubAfter", "request", KEY, "9", "true", "keys", *last))
        assert (view.group, view.timestamp_ms) == ("null", 0)

    def test_other_messages_and_kinds_are_left_out(self) -> None:
        before = trace("SubBefore", TIME, "region", "cg", "request", KEY, "0", "keys")
        assert traces(pub("true", key="other") + before) == ([], 0)

    @pytest.mark.parametrize(
        "text", [pub(), trace("Pub", TIME), pub("true").replace("\x017\x01", "\x01x\x01")]
    )
    def test_damaged_ones_are_counted(self, text: str) -> None:
        views, damaged = traces(text + pub("true"))
        assert (len(views), damaged) == (1, 1)

    @given(st.binary(max_size=200))
    def test_no_bytes_raise(self, body: bytes) -> None:
        decode_traces(KEY, one(record(body=body)))


class TestCommand:
    def stored(self, cluster: FakeCluster, *bodies: str) -> None:
        records = b"".join(
            record(
                topic=b"RMQ_SYS_TRACE_TOPIC", body=b.encode(), properties=f"KEYS\x01{KEY}".encode()
            )
            for b in bodies
        )
        fields = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
        cluster.always(RequestCode.QUERY_MESSAGE, fields=fields, body=records)
        route = (
            f'{{"brokerDatas":[{{"brokerAddrs":{{"0":"{cluster.address}"}},"brokerName":"b"}}],'
            '"queueDatas":[{"brokerName":"b","perm":6}]}'
        )
        cluster.always(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=route.encode())

    def test_tables(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        self.stored(
            cluster,
            pub("true"),
            sub("0", TIME, group="a") + sub("0", TIME, group="b"),
            sub("0", TIME, group="a", success="false"),
        )
        outcome = mqadmin.run("queryMsgTraceById", "-i", KEY)
        assert outcome.out.splitlines() == [
            "#Type  #ProducerGroup  #ClientHost  #SendTime            #CostTimes  #Status",
            "Pub    pg              127.0.0.1    2026-11-20 12:28:52  7ms         success",
            "",
            "#Type  #ConsumerGroup  #ClientHost  #ConsumerTime        #CostTimes  #Status",
            "Sub    a               127.0.0.1    2026-11-20 12:28:52  9ms         success",
            "Sub    a               127.0.0.1    2026-11-20 12:28:52  9ms         failed",
            "",
            "#Type  #ConsumerGroup  #ClientHost  #ConsumerTime        #CostTimes  #Status",
            "Sub    b               127.0.0.1    2026-11-20 12:28:52  9ms         success",
        ]
        (request,) = cluster.asked(RequestCode.QUERY_MESSAGE)
        assert request.ext_fields["topic"] == "RMQ_SYS_TRACE_TOPIC"
        assert request.ext_fields["maxNum"] == "64"
        assert request.ext_fields["_UNIQUE_KEY_QUERY"] == "false"

    def test_data(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        self.stored(cluster, pub("true"))
        assert mqadmin.run_json("queryMsgTraceById", "-i", KEY) == [
            {
                "type": "Pub",
                "group": "pg",
                "clientHost": "127.0.0.1",
                "timestamp": int(TIME),
                "costTime": 7,
                "success": True,
            }
        ]

    def test_damage_has_a_line(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        self.stored(cluster, pub("true") + pub())
        outcome = mqadmin.run("queryMsgTraceById", "-i", KEY)
        assert outcome.code == 0
        assert outcome.err.endswith(": 1 damaged traces left out\n")

    def test_no_trace(self, mqadmin: Bench, cluster: FakeCluster) -> None:
        self.stored(cluster)
        outcome = mqadmin.run("queryMsgTraceById", "-i", KEY)
        assert outcome.err == (
            f"mqadmin queryMsgTraceById: topic RMQ_SYS_TRACE_TOPIC has no trace of message {KEY}\n"
        )

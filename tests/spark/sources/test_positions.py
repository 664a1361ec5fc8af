"""Where reads start and end, and what the options of that may not be."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo

from remoting.body.message_queue import MessageQueue
from remoting.request_code import RequestCode
from spark.sources.cluster import Cluster
from spark.sources.errors import OptionError, UnavailableError
from spark.sources.limits import Limits, find_limits
from spark.sources.positions import offset_at, parse_position, resolve
from spark.sources.rocketmq import PushingReader, RocketmqSource
from spark.sources.rows import SCHEMA
from tests.spark.sources.fake_queues import FakeQueues, only_a_slave
from tests.tools.stored_queues import Stored

OFFSETS = '{"T": {"broker-g": {"0": 2, "1": -1}}}'


def queue(number: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="broker-g", queue_id=number)


def found(client: Cluster, text: str, option: str = "start") -> list[int]:
    limits = find_limits(client, "T")
    offsets = resolve(client, parse_position(text, option), limits, option, ("T", "S"))
    return [offsets[each] for each in limits]


class TestTexts:
    @pytest.mark.parametrize(
        "text", ["", "first", "group:", "timestamp", "42", "timestamp:", "group: "]
    )
    def test_of_no_form(self, text: str) -> None:
        with pytest.raises(OptionError, match="option start: "):
            parse_position(text, "start")

    @pytest.mark.parametrize(
        "text",
        [
            '{"T": 1}',
            '{"T": {"b": {"x": 1}}}',
            '{"T": {"b": {"0": 1.5}}}',
            '{"T": {"b": {"0": true}}}',
            '{"T": {"b": {"0": -3}}}',
            '{"T": {"b": {"0": "7"}}}',
            '{"T": ',
            '{"T": ' * 5000,
        ],
    )
    def test_json_that_is_no_offsets(self, text: str) -> None:
        with pytest.raises(OptionError, match="option end: not offsets as"):
            parse_position(text, "end")

    def test_times(self) -> None:
        assert parse_position("timestamp:1700000000123", "start").value == 1700000000123
        assert parse_position("timestamp:2023-11-14T22:13:20.5Z", "start").value == 1700000000500
        text = "timestamp:2023-11-14T22:13:20.001001Z"  # no message of .001 is of then or later
        assert parse_position(text, "start").value == 1700000000002
        assert parse_position("timestamp:1969-12-31T23:59:59Z", "start").value == 0
        with pytest.raises(OptionError, match="no time zone"):
            parse_position("timestamp:2023-11-14T22:13:20", "start")
        with pytest.raises(OptionError, match="is no time"):
            parse_position("timestamp:yesterday", "start")


def test_the_ends(client: Cluster, stored: FakeQueues) -> None:
    stored.plain("T", 5, 3)
    stored.first["T", 0] = 2
    assert found(client, "earliest") == [2, 0]
    assert found(client, "LATEST") == [5, 3]


def test_offsets(client: Cluster, stored: FakeQueues) -> None:
    stored.plain("T", 5, 3, 4)
    stored.first["T", 2] = 1
    assert found(client, OFFSETS) == [2, 3, 1]
    assert found(client, OFFSETS, "end") == [2, 3, 4]
    assert found(client, '{"T": {"broker-g": {"0": -2}}, "S": {"x": {"7": 1}}}', "end") == [0, 3, 4]


@pytest.mark.parametrize("other", ['{"T": {"b": {"0": 1}}}', '{"X": {"broker-g": {"0": 1}}}'])
def test_offsets_of_queues_that_are_not_there(
    client: Cluster, stored: FakeQueues, other: str
) -> None:
    stored.plain("T", 5)
    with pytest.raises(OptionError, match=r"topic [TX] has no queue 0 at a broker"):
        found(client, other)


class TestGroups:
    def test_progress(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 5, 3)
        stored.first["T", 1] = 1
        stored.groups["G", "T", 0] = 4
        assert found(client, "group:G") == [4, 1]

    def test_a_group_without_any(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 5)
        with pytest.raises(OptionError, match="group H has no progress in T"):
            found(client, "group:H")


class TestTimes:
    """The fake answers a time behind the last message with that message's offset, as 4.9."""

    def test_search(self, client: Cluster, stored: FakeQueues) -> None:
        stored.topic("T", [[Stored(stored_ms=each) for each in (100, 200, 200, 300)], []])
        times = {50: 0, 100: 0, 101: 1, 200: 1, 201: 3, 300: 3, 301: 4, 9000: 4}
        for time, offset in times.items():
            assert found(client, f"timestamp:{time}") == [offset, 0], time

    def test_not_before_what_is_there(self, client: Cluster, stored: FakeQueues) -> None:
        stored.topic("T", [[Stored(stored_ms=each) for each in (100, 200, 300)]])
        assert offset_at(client, queue(0), 50, Limits(2, 3)) == 2
        assert offset_at(client, queue(0), 50, Limits(3, 3)) == 3


class TestLimits:
    def test_one_request_for_all_queues_of_a_broker(
        self, client: Cluster, stored: FakeQueues
    ) -> None:
        stored.plain("T", *range(50))
        limits = find_limits(client, "T")
        assert limits == {queue(number): Limits(0, number) for number in range(50)}
        assert len(stored.cluster.requests) == 2

    def test_without_the_right_to_statistics(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 5, 3)
        stored.first["T", 0] = 2
        stored.cluster.always(RequestCode.GET_TOPIC_STATS_INFO, 16, "no right")
        assert find_limits(client, "T") == {queue(0): Limits(2, 5), queue(1): Limits(0, 3)}


class TestOnlyASlaveAnswers:
    """What it lacks must not be left out silently."""

    @staticmethod
    def plan(stored: FakeQueues, end: str, broker: str = "broker-g", **options: str) -> list[Any]:
        given = {"nameServers": stored.cluster.address, "topic": "T", "retryMs": "0", "end": end}
        plain: Any = RocketmqSource(given | options).reader(SCHEMA)
        reader = PushingReader(plain.plan, SCHEMA, plain.start, plain.end)
        reader.pushFilters([EqualTo(("broker_name",), broker)])
        parts: list[Any] = list(reader.partitions())
        return [(each.queue_id, each.begin, each.end) for part in parts for each in part.ranges]

    @pytest.mark.parametrize("end", ["latest", "timestamp:900000", '{"T": {"broker-g": {"0": 3}}}'])
    def test_ends_that_it_may_not_know(
        self, stored: FakeQueues, end: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        stored.plain("T", 5, 3)
        only_a_slave(stored)
        with pytest.raises(UnavailableError, match=r"a slave answers, no master.*acceptSlaveEnd"):
            self.plan(stored, end)
        assert self.plan(stored, end, acceptSlaveEnd="true")[1:] == [(1, 0, 3)]
        assert "a slave answers, no master" in caplog.text

    @pytest.mark.parametrize(
        ("end", "ranges"),
        [
            ('{"T": {"broker-g": {"0": 9, "1": 2}}}', [(0, 0, 9), (1, 0, 2)]),
            ("group:G", [(0, 0, 5), (1, 0, 3)]),
            ("timestamp:30000", [(0, 0, 2), (1, 0, 2)]),
        ],
    )
    def test_ends_that_it_need_not_know(
        self, stored: FakeQueues, end: str, ranges: list[tuple[int, int, int]]
    ) -> None:
        stored.plain("T", 5, 3)
        only_a_slave(stored)
        stored.groups |= {("G", "T", 0): 5, ("G", "T", 1): 3}
        assert self.plan(stored, end) == ranges

    def test_queues_that_nobody_wants(self, stored: FakeQueues) -> None:
        stored.plain("T", 5, 3)
        only_a_slave(stored)
        assert self.plan(stored, "latest", "another") == []

"""A stream's offsets without Spark: limits, failovers, restarts, losses. With Spark:
test_rocketmq.py."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from remoting.request_code import RequestCode
from spark.sources.errors import (
    DataLossError,
    NoNameServerError,
    NoTopicError,
    OptionError,
    SourceError,
    UnavailableError,
)
from spark.sources.options import Options
from spark.sources.positions import parse_position
from spark.sources.ranges import TaskRanges
from spark.sources.rocketmq import ReadPlan
from spark.sources.rows import SCHEMA
from spark.sources.stream import StreamReader, StreamRules
from tests.spark.sources.fake_queues import FakeQueues, only_a_slave, pickled
from tools.admin_client import NameServers

ALL = ReadAllAvailable()


def reader(stored: FakeQueues, start: str = "earliest", **options: str) -> StreamReader:
    given = {"nameServers": stored.cluster.address, "topic": "T", "retryMs": "300", **options}
    found = Options(given)
    rules = StreamRules.of(found)
    return StreamReader(ReadPlan.of(found), SCHEMA, parse_position(start, "start"), rules)


def offsets(*numbers: int, broker: str = "broker-g", topic: str = "T") -> dict[str, Any]:
    queues = {str(number): offset for number, offset in enumerate(numbers)}
    return {"version": 1, "offsets": {topic: {broker: queues}}}


def ranges(query: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    return [
        (each.queue_id, each.begin, each.end)
        for part in query.partitions(start, end)
        if isinstance(part, TaskRanges)
        for each in part.ranges
    ]


@pytest.fixture
def query(stored: FakeQueues) -> Iterator[StreamReader]:
    """Of a topic with two queues of five and three messages."""
    stored.plain("T", 5, 3)
    made = reader(stored)
    yield made
    made.stop()


class TestOffsets:
    def test_from_begin_to_end(self, query: StreamReader) -> None:
        assert query.reportLatestOffset() is None
        assert query.initialOffset() == offsets(0, 0)
        assert query.latestOffset(offsets(0, 0), ALL) == offsets(5, 3)
        assert query.reportLatestOffset() == offsets(5, 3)
        assert ranges(query, offsets(0, 0), offsets(5, 3)) == [(0, 0, 5), (1, 0, 3)]
        assert ranges(query, offsets(5, 3), offsets(5, 3)) == []

    def test_limits(self, query: StreamReader, stored: FakeQueues) -> None:
        assert query.latestOffset(offsets(0, 0), ReadMaxRows(4)) == offsets(3, 1)
        assert query.latestOffset(offsets(3, 1), ReadMaxRows(4)) == offsets(5, 3)
        assert query.reportLatestOffset() == offsets(5, 3)
        assert query.getDefaultReadLimit() == ALL
        assert reader(stored, maxMessagesPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)

    def test_from_where_a_start_says(self, stored: FakeQueues) -> None:
        stored.plain("T", 5, 3)
        stored.groups["G", "T", 0] = 4
        for start, found in {"latest": (5, 3), "group:G": (4, 0)}.items():
            query = reader(stored, start)
            assert query.initialOffset() == offsets(*found)
            query.stop()

    def test_a_start_behind_the_end(self, stored: FakeQueues) -> None:
        stored.plain("T", 5, 3)
        start = '{"T": {"broker-g": {"0": 7}}}'
        query = reader(stored, start)
        with pytest.raises(DataLossError, match="ends at offset 5, before 7"):
            query.initialOffset()
        query.stop()
        query = reader(stored, start, failOnDataLoss="false")
        assert query.initialOffset() == offsets(5, 0)
        query.stop()

    def test_a_start_behind_what_a_slave_has(self, stored: FakeQueues) -> None:
        """It lags behind the master, which is away: nothing is read that was not asked for."""
        stored.plain("T", 5, 3)
        data = stored.routes["T"].broker_datas[0]
        data.broker_addrs[1] = data.broker_addrs.pop(0)
        stored.groups["G", "T", 0] = 7
        query = reader(stored, "group:G")
        assert query.initialOffset() == offsets(7, 0)
        query.stop()

    def test_a_checkpoint_of_other_topics(self, query: StreamReader) -> None:
        """Else all of this one would be new, and read from its beginning."""
        with pytest.raises(SourceError, match="the checkpoint is of S, the query reads T"):
            query.latestOffset(offsets(1, topic="S"), ALL)

    def test_new_queues_and_brokers(self, query: StreamReader, stored: FakeQueues) -> None:
        """They are read from their beginning, whatever `start` says."""
        stored.queues["T"].append(stored.queues["T"][1][:2])
        stored._times["T", 2] = [1]
        route = stored.routes["T"]
        queues = [replace(route.queue_datas[0], read_queue_nums=3)]
        stored.routes["T"] = replace(route, queue_datas=queues)
        assert query.latestOffset(offsets(5, 3), ALL) == offsets(5, 3, 2)
        assert ranges(query, offsets(5, 3), offsets(5, 3, 2)) == [(2, 0, 2)]

    def test_a_topic_that_is_not_read_any_more(self, stored: FakeQueues) -> None:
        stored.plain("T", 5)
        query = reader(stored)
        start = offsets(1)
        start["offsets"]["S"] = {"broker-g": {"0": 1}}
        assert query.latestOffset(start, ALL) == offsets(5)
        query.stop()

    def test_pieces(self, stored: FakeQueues) -> None:
        stored.plain("T", 10)
        query = reader(stored, maxMessagesPerPartition="4")
        assert ranges(query, offsets(0), offsets(10)) == [(0, 0, 3), (0, 3, 6), (0, 6, 10)]
        query.stop()


class TestAvailableNow:
    def test_what_comes_later_waits_for_the_next_run(
        self, query: StreamReader, stored: FakeQueues
    ) -> None:
        query.prepareForTriggerAvailableNow()
        stored.queues["T"][0].append(stored.queues["T"][0][0])
        start = query.initialOffset()
        seen = []
        while (end := query.latestOffset(start, ReadMaxRows(3))) != start:
            seen.append(end)
            start = end
        assert seen == [offsets(2, 1), offsets(4, 2), offsets(5, 3)]

    def test_a_checkpoint_beyond_the_target(self, query: StreamReader, stored: FakeQueues) -> None:
        """As when a slave, which lags, was asked for the target."""
        query.prepareForTriggerAvailableNow()
        stored.queues["T"][0] *= 2
        assert query.latestOffset(offsets(7, 0), ALL) == offsets(7, 3)

    def test_a_slave_says_no_end(
        self, query: StreamReader, stored: FakeQueues, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What it lacks would be left out, and nobody would know."""
        only_a_slave(stored)
        said = r"of broker broker-g a slave answers, no master.*for 300 ms.*acceptSlaveEnd"
        with pytest.raises(UnavailableError, match=said):
            query.prepareForTriggerAvailableNow()
        assert not caplog.records

    def test_a_slaves_end_that_is_accepted(
        self, stored: FakeQueues, caplog: pytest.LogCaptureFixture
    ) -> None:
        stored.plain("T", 5, 3)
        only_a_slave(stored)
        query = reader(stored, acceptSlaveEnd="true")
        query.prepareForTriggerAvailableNow()
        assert "of broker broker-g a slave answers, no master" in caplog.text
        assert query.latestOffset(offsets(0, 0), ALL) == offsets(5, 3)
        query.stop()

    def test_a_master_that_comes_back(self, query: StreamReader, stored: FakeQueues) -> None:
        only_a_slave(stored)
        addresses = stored.routes["T"].broker_datas[0].broker_addrs

        def pause(_seconds: float) -> None:
            addresses[0] = addresses.pop(1)

        query._open().pause = pause
        query.prepareForTriggerAvailableNow()
        stored.queues["T"][0] *= 2
        assert query.latestOffset(offsets(0, 0), ALL) == offsets(5, 3)

    def test_a_slave_that_lags_behind_the_target(
        self, query: StreamReader, stored: FakeQueues
    ) -> None:
        """The master has told it and died: the tasks wait for the slave, and fail."""
        query.prepareForTriggerAvailableNow()
        only_a_slave(stored)
        del stored.queues["T"][0][2:]
        assert query.latestOffset(offsets(2, 3), ALL) == offsets(5, 3)
        assert query.latestOffset(offsets(1, 3), ReadMaxRows(2)) == offsets(3, 3)
        (part,) = query.partitions(offsets(2, 3), offsets(5, 3))
        with pytest.raises(UnavailableError, match="had nothing at offset 2 for 300 ms"):
            list(query.read(part))

    def test_a_topic_whose_brokers_have_gone(self, query: StreamReader, stored: FakeQueues) -> None:
        query.prepareForTriggerAvailableNow()
        route = stored.routes.pop("T")
        assert query.latestOffset(offsets(2, 1), ALL) == offsets(5, 3)
        assert query.latestOffset(offsets(2), ALL) == offsets(5, 3)
        stored.routes["T"] = route
        with_none = reader(stored, topic="U")
        with pytest.raises(NoTopicError, match="topic U does not exist"):
            with_none.prepareForTriggerAvailableNow()
        with_none.stop()

    def test_a_broker_of_the_checkpoint_that_is_away(
        self, query: StreamReader, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The query would be over without its messages, and nobody would know."""
        query.prepareForTriggerAvailableNow()
        said = r"broker broker-b of topic T, of which.*no route for 300 ms.*acceptSlaveEnd to true"
        with pytest.raises(UnavailableError, match=said):
            query.latestOffset(with_broker_b(), ALL)
        assert not caplog.records

    def test_such_a_broker_that_comes_back(self, query: StreamReader, stored: FakeQueues) -> None:
        query.prepareForTriggerAvailableNow()
        query._open().pause = lambda _seconds: add_broker_b(stored)
        end = query.latestOffset(with_broker_b(), ALL)["offsets"]["T"]
        assert end == {"broker-b": {"0": 5, "1": 3}, "broker-g": {"0": 5, "1": 3}}

    def test_such_a_broker_that_is_done_without(
        self, query: StreamReader, stored: FakeQueues, caplog: pytest.LogCaptureFixture
    ) -> None:
        query.plan = replace(query.plan, accept_slave_end=True)
        query.prepareForTriggerAvailableNow()
        end = query.latestOffset(with_broker_b(), ALL)["offsets"]["T"]
        assert end == {"broker-b": {"0": 2}, "broker-g": {"0": 5, "1": 3}}
        assert "broker broker-b of topic T is in no route" in caplog.text

    def test_a_broker_that_goes_away_in_the_middle(
        self, query: StreamReader, stored: FakeQueues
    ) -> None:
        """Its end is known: its tasks wait."""
        add_broker_b(stored)
        query.prepareForTriggerAvailableNow()
        stored.plain("T", 5, 3)
        end = query.latestOffset(with_broker_b(), ALL)["offsets"]["T"]
        assert end == {"broker-b": {"0": 5, "1": 3}, "broker-g": {"0": 5, "1": 3}}

    def test_queues_that_come_later(self, query: StreamReader, stored: FakeQueues) -> None:
        query.prepareForTriggerAvailableNow()
        stored.plain("T", 5, 3, 4)
        assert query.latestOffset(offsets(0, 0), ALL) == offsets(5, 3)


def with_broker_b() -> dict[str, Any]:
    """A checkpoint of two brokers."""
    found = offsets(0, 0)
    found["offsets"]["T"]["broker-b"] = {"0": 2}
    return found


def add_broker_b(stored: FakeQueues) -> None:
    """A second broker, of as many queues."""
    route = stored.routes["T"]
    route.broker_datas.append(replace(route.broker_datas[0], broker_name="broker-b"))
    route.queue_datas.append(replace(route.queue_datas[0], broker_name="broker-b"))


class TestFailover:
    def test_a_broker_that_is_in_no_route(
        self, query: StreamReader, stored: FakeQueues, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is told once, and waited for by nobody but its own queues."""
        for _ in range(3):
            assert query.latestOffset(with_broker_b(), ALL)["offsets"]["T"]["broker-b"] == {"0": 2}
        assert caplog.text.count("nothing new now: broker broker-b of topic T is in no route") == 1
        add_broker_b(stored)
        end = query.latestOffset(with_broker_b(), ALL)["offsets"]["T"]
        assert end["broker-b"] == {"0": 5, "1": 3}
        stored.plain("T", 5, 3)
        query.latestOffset(with_broker_b(), ALL)
        assert caplog.text.count("is in no route") == 2

    def test_a_slave_that_lags(
        self, query: StreamReader, stored: FakeQueues, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Less than was read is no loss while no master says so; but who waits says for what."""
        only_a_slave(stored)
        assert query.latestOffset(offsets(7, 1), ALL) == offsets(7, 3)
        assert "queue 0 of broker broker-g: the query has read up to 7, a slave" in caplog.text
        assert "queue 1" not in caplog.text

    def test_a_batch_that_only_the_master_had(
        self, query: StreamReader, stored: FakeQueues
    ) -> None:
        """It died between the batch's end and its planning, or before a restart: the slave's tasks
        wait for what it lacks."""
        only_a_slave(stored)
        assert ranges(query, offsets(2, 1), offsets(9, 3)) == [(0, 2, 9), (1, 1, 3)]
        assert ranges(query, offsets(7, 1), offsets(9, 3)) == [(0, 7, 9), (1, 1, 3)]

    def test_a_master_that_has_less(self, query: StreamReader) -> None:
        with pytest.raises(DataLossError, match="queue 0: the queue ends at offset 5, before 7"):
            query.latestOffset(offsets(7, 3), ALL)

    def test_a_master_that_has_less_as_a_warning(
        self, stored: FakeQueues, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The stream goes on from the end that is there now."""
        stored.plain("T", 5, 3)
        query = reader(stored, failOnDataLoss="false")
        with caplog.at_level(logging.WARNING):
            assert query.latestOffset(offsets(7, 3), ALL) == offsets(5, 3)
        assert "ends at offset 5, before 7" in caplog.text
        assert ranges(query, offsets(7, 3), offsets(5, 3)) == []
        query.stop()

    def test_a_topic_without_a_route(self, query: StreamReader, stored: FakeQueues) -> None:
        """All its brokers are away: the stream waits for them, and so do its tasks."""
        stored.routes.clear()
        assert query.latestOffset(offsets(2, 1), ALL) == offsets(2, 1)
        assert ranges(query, offsets(2, 1), offsets(4, 1)) == [(0, 2, 4)]

    def test_a_broker_name_that_is_not_in_the_route(self, query: StreamReader) -> None:
        start = offsets(2, 1)
        start["offsets"]["T"]["away"] = {"0": 9}
        end = query.latestOffset(start, ALL)
        assert end["offsets"]["T"] == {"away": {"0": 9}, "broker-g": {"0": 5, "1": 3}}

    def test_no_name_server_for_a_while(self, query: StreamReader, stored: FakeQueues) -> None:
        cluster = query._open()
        servers = cluster.admin.name_servers
        cluster.admin.name_servers = NameServers(("127.0.0.1:1",))
        waited: list[float] = []

        def pause(seconds: float) -> None:
            waited.append(seconds)
            cluster.admin.name_servers = servers

        cluster.pause = pause
        assert query.latestOffset(offsets(0, 0), ALL) == offsets(5, 3)
        assert len(waited) == 1

    def test_no_name_server_for_too_long(self, stored: FakeQueues) -> None:
        query = reader(stored, nameServers="127.0.0.1:1")
        with pytest.raises(NoNameServerError):
            query.latestOffset(offsets(0, 0), ALL)
        query.stop()


class TestRetention:
    def test_passed_the_checkpoint(self, query: StreamReader, stored: FakeQueues) -> None:
        stored.first["T", 0] = 3
        with pytest.raises(DataLossError, match="offsets 1 to 2 are beyond retention"):
            query.partitions(offsets(1, 0), offsets(5, 3))

    def test_as_a_warning(self, stored: FakeQueues, caplog: pytest.LogCaptureFixture) -> None:
        stored.plain("T", 5, 3)
        stored.first["T", 0] = 3
        query = reader(stored, failOnDataLoss="false")
        with caplog.at_level(logging.WARNING):
            assert ranges(query, offsets(1, 0), offsets(5, 3)) == [(0, 3, 5), (1, 0, 3)]
        assert "offsets 1 to 2 are beyond retention" in caplog.text
        query.stop()


class TestProgress:
    def test_is_written(self, stored: FakeQueues) -> None:
        stored.plain("T", 5, 3)
        query = reader(stored, commitGroup="G")
        query.commit(offsets(4, 3))
        assert stored.committed == {("G", "T", 0): 4, ("G", "T", 1): 3}
        query.stop()

    def test_is_not_written_unasked(self, query: StreamReader, stored: FakeQueues) -> None:
        query.commit(offsets(4, 3))
        assert stored.committed == {}

    def test_a_refusal_stops_nothing(
        self, stored: FakeQueues, caplog: pytest.LogCaptureFixture
    ) -> None:
        stored.plain("T", 5, 3)
        stored.cluster.always(RequestCode.UPDATE_CONSUMER_OFFSET, 16, "no right")
        query = reader(stored, commitGroup="G")
        with caplog.at_level(logging.WARNING):
            query.commit(offsets(4, 3))
        assert caplog.text.count("progress of group G is not written") == 1  # of one broker
        query.stop()


def test_a_running_query_is_pickled_for_its_tasks(query: StreamReader) -> None:
    query.initialOffset()
    copy: StreamReader = pickle.loads(pickled(query))
    part = next(each for each in query.partitions(offsets(0, 0), offsets(5, 3)))
    assert [batch.num_rows for batch in copy.read(part)] == [5]


def test_many_small_queues_are_read_by_few_tasks(stored: FakeQueues) -> None:
    """Each message once, and what is wrong with a later queue of a task is told."""
    stored.plain("T", *[3] * 100)
    query = reader(stored)
    parts = query.partitions(offsets(*[1] * 100), offsets(*[3] * 100))
    assert len(parts) == 34
    tables = [pa.Table.from_batches([batch]) for part in parts for batch in query.read(part)]
    rows = pa.concat_tables(tables).select(["queue_id", "queue_offset"]).to_pylist()
    wanted = [(number, offset) for number in range(100) for offset in (1, 2)]
    assert sorted((row["queue_id"], row["queue_offset"]) for row in rows) == wanted
    stored.first["T", 9] = 2
    with pytest.raises(DataLossError):
        [batch for part in parts for batch in query.read(part)]
    query.stop()


def test_stopping_twice(query: StreamReader) -> None:
    query.initialOffset()
    query.stop()
    query.stop()


def test_limits_that_are_none(stored: FakeQueues) -> None:
    for text in ("0", "-1", "many"):
        with pytest.raises(OptionError, match="maxMessagesPerTrigger"):
            reader(stored, maxMessagesPerTrigger=text)

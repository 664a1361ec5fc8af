"""StreamReader: the format `rocketmq` as a stream of micro-batches.

Runs in a Python worker of the driver that lives as long as the query; tasks of executors read the
ranges. Offsets are of a broker name and a queue, so they stay right when a slave takes over. They
are kept in Spark's checkpoint; a group's progress is written for others to see, never read.

Tested by tests/spark/sources/test_stream.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from remoting.body.message_queue import MessageQueue
from spark.sources.cluster import Cluster
from spark.sources.errors import NoTopicError, SourceError, UnavailableError
from spark.sources.limits import Limits, find_ends, find_limits
from spark.sources.options import Options
from spark.sources.patience import Patience
from spark.sources.positions import Position, resolve
from spark.sources.ranges import Range, range_of
from spark.sources.rocketmq import RangeTask, ReadPlan, within
from spark.sources.stream_offsets import Offsets, decode_offsets, encode_offsets, share

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamRules:
    """Options of streams alone. most_messages: of a trigger, 0 for no limit; commit_group: None:
    no progress is written."""

    most_messages: int = 0
    commit_group: str | None = None

    @classmethod
    def of(cls, options: Options) -> StreamRules:
        """OptionError."""
        return cls(options.whole("maxMessagesPerTrigger", 0, least=1), options.text("commitGroup"))


class StreamReader(RangeTask, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One running query. Owned by: its Python worker. What begins with _ is not pickled."""

    def __init__(
        self, plan: ReadPlan, schema: StructType, start: Position, rules: StreamRules
    ) -> None:
        super().__init__(plan, schema)
        self.start = start
        self.rules = rules
        self._cluster: Cluster | None = None
        self._latest: Offsets | None = None
        self._target: dict[MessageQueue, Limits] | None = None
        self._told_away = ""

    # -- where to read -------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint starts."""
        offsets: Offsets = {}
        for topic in self.plan.topics:
            limits = find_limits(self._open(), topic, fresh=True)
            starts = resolve(self._open(), self.start, limits, "start", self.plan.topics)
            for queue, start in starts.items():
                # What lies before is told by the first batch; what lies behind cannot be read.
                if start > limits[queue].end:
                    within(self.plan.rules.losses, queue, start, start, limits[queue])
                # A slave that lags behind does not say where the end is.
                offsets[queue] = (
                    min(start, limits[queue].end) if limits[queue].is_certain else start
                )
        return encode_offsets(offsets)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """maxMessagesPerTrigger."""
        most = self.rules.most_messages
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends. A queue that is new since `start` is read from its beginning;
        one that is not in the routes now, as in a failover, waits."""
        begun = decode_offsets(start)
        self._check_topics(begun)
        limits = self._limits()
        self._check_brokers(begun)
        ends = {queue: end for queue, end in begun.items() if queue.topic in self.plan.topics}
        for queue, each in (limits if self._target is None else self._target).items():
            ends[queue] = self._end(queue, begun.get(queue, each.begin), limits.get(queue))
        self._latest = ends
        if isinstance(limit, ReadMaxRows):
            begins = {queue: begun.get(queue, self._begin(limits, queue)) for queue in ends}
            ends = share(begins, ends, limit.max_rows)
        return encode_offsets(ends)

    def _check_topics(self, begun: Offsets) -> None:
        """SourceError: the checkpoint is of other topics, so that all of these would be new."""
        kept = {queue.topic for queue in begun}
        if kept and kept.isdisjoint(self.plan.topics):
            raise SourceError(
                f"the checkpoint is of {', '.join(sorted(kept))}, the query reads "
                f"{', '.join(self.plan.topics)}: give each query a checkpointLocation of its own"
            )

    def _check_brokers(self, begun: Offsets) -> None:
        """Those of the checkpoint that are in no route now: nobody tells where their queues end.
        What waits there is read when they are back, so a query that ends now waits for them."""
        retry_ms = self.plan.connection.retry_ms
        patience = Patience(retry_ms, self._open().pause)
        while away := self._away(begun):
            if self._target is None or self.plan.accept_slave_end:
                break
            if not patience.wait():
                raise UnavailableError(
                    f"{away}, of which the checkpoint has offsets, is in no route for {retry_ms} "
                    "ms (option retryMs): start it, or set the option acceptSlaveEnd to true, to "
                    "end without what it has"
                )
            self.prepareForTriggerAvailableNow()
        if away and away != self._told_away:
            log.warning("nothing new now: %s is in no route", away)
        self._told_away = away

    def _away(self, begun: Offsets) -> str:
        """Names of brokers; of those in the target the end is known."""
        names: set[str] = set()
        for topic in self.plan.topics:
            try:
                route = self._open().route(topic)
            except NoTopicError:  # has been told
                continue
            here = {each.broker_name for each in self._target or () if each.topic == topic}
            here |= {each.broker_name for each in route.queue_datas}
            there = {each.broker_name for each in begun if each.topic == topic}
            names |= {f"broker {name} of topic {topic}" for name in there - here}
        return ", ".join(sorted(names))

    def _begin(self, limits: Mapping[MessageQueue, Limits], queue: MessageQueue) -> int:
        return limits[queue].begin if queue in limits else 0

    def _end(self, queue: MessageQueue, begin: int, limits: Limits | None) -> int:
        """limits: None only of a queue of the target."""
        wanted = None if self._target is None else max(self._target[queue].end, begin)
        if limits is None or (wanted is not None and not limits.is_certain):
            assert wanted is not None
            return wanted  # the tasks wait for it
        end = limits.end if wanted is None else min(limits.end, wanted)
        if end >= begin:
            return end
        if not limits.is_certain:
            log.warning(
                "nothing new now: topic %s, queue %s of broker %s: the query has read up to %s, a "
                "slave, which answers, has %s",
                queue.topic,
                queue.queue_id,
                queue.broker_name,
                begin,
                limits.end,
            )
            return begin
        self.plan.rules.losses.shorter(queue, begin, limits.end)
        return limits.end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For the query's progress: what there was at the last look."""
        return None if self._latest is None else encode_offsets(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends at what there is now. Whoever ends needs to know all of it: find_ends."""
        self._target = {}
        for topic in self.plan.topics:
            self._target |= find_ends(
                self._open(),
                topic,
                accept_slaves=self.plan.accept_slave_end,
                used=lambda all_: all_,
            )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges between two offsets, as after a restart, too."""
        begun, ends = decode_offsets(start), decode_offsets(end)
        limits = self._limits()
        ranges = [
            each
            for queue, stop in sorted(ends.items(), key=_name)
            for each in self._range(queue, begun.get(queue), stop, limits.get(queue))
        ]
        return self.tasks(ranges)

    def _range(
        self, queue: MessageQueue, begin: int | None, end: int, limits: Limits | None
    ) -> Iterator[Range]:
        if begin is None:
            begin = 0 if limits is None else min(limits.begin, end)
        if begin >= end:
            return
        if limits is None:  # not in the routes now: the tasks wait for it
            yield range_of(queue, begin, end)
        else:
            yield range_of(queue, *within(self.plan.rules.losses, queue, begin, end, limits))

    # -- the end of a batch --------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has finished all before `end`: write the group's progress, if one is named. Nothing
        depends on it, so a failure is only logged."""
        group = self.rules.commit_group
        if group is None:
            return
        away = set()  # each of its queues would wait for retryMs
        for queue, offset in decode_offsets(end).items():
            if queue.broker_name in away:
                continue
            try:
                self._open().commit_offset(group, queue, offset)
            except SourceError as error:
                away.add(queue.broker_name)
                log.warning("progress of group %s is not written: %s", group, error)

    def stop(self) -> None:
        """The query ended."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.__exit__(None, None, None)

    # -- the cluster ---------------------------------------------------------------------------

    def _open(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self.plan.connection).__enter__()
        return self._cluster

    def _limits(self) -> dict[MessageQueue, Limits]:
        """Of every queue of every topic now. A topic without a route has none: its brokers may be
        away. Name servers may be away for `retry_ms`."""
        cluster = self._open()
        found: dict[MessageQueue, Limits] = {}
        for topic in self.plan.topics:
            try:
                found |= find_limits(cluster, topic, fresh=True)
            except NoTopicError as error:
                log.warning("nothing new now: %s", error)
        return found


def _name(item: tuple[MessageQueue, int]) -> tuple[str, str, int]:
    queue = item[0]
    return queue.topic, queue.broker_name, queue.queue_id

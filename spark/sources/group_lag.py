"""What one broker name says of its consumer groups: progress, next unread messages, members.

A Python worker of an executor, within one partition of the format `rocketmq_lag`. One request asks
for all groups of a broker (317; 208 for each group that is named), one more for each queue that
lags (11: the store time of the message that comes next) and for each group (203: who is online),
only where a column needs it. Knows nothing of Spark's types.

Tested by tests/spark/sources/test_rocketmq_lag.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from remoting.body.client_connection import ConsumerConnection
from remoting.body.message_queue import MessageQueue
from remoting.body.stats import ConsumeStats, ConsumeStatsList, OffsetWrapper
from remoting.command_custom_header import CommandCustomHeader
from remoting.errors import RemotingError, RequestError
from remoting.headers.admin import (
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from spark.sources.cluster import Cluster, refusal
from spark.sources.errors import (
    DamagedMessageError,
    OptionError,
    SourceError,
    UnavailableError,
)
from spark.sources.rows import split_records
from tools.admin_client import unknown
from tools.errors import BrokerAnswerError

RETRY_PREFIX: Final = "%RETRY%"
STATS_TIMEOUT_MS: Final = 50_000
"""As Java's tools wait for 317, for which a broker looks at every queue of every group."""
_NOBODY: Final = 0
_LARGEST: Final = (1 << 63) - 1
_Body = TypeVar("_Body")
_WILD: Final = re.compile(r"[*?]")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which groups and topics; `*` is any text, `?` one character; none: all of them. `ages`,
    `members`: whether a column needs them. Picklable."""

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    ages: bool = True
    members: bool = True

    @property
    def named(self) -> bool:
        """All groups are named in full."""
        return bool(self.groups) and not any(map(_WILD.search, self.groups))


@dataclass(frozen=True, slots=True)
class BrokerName:
    """A broker name of the cluster; its addresses, the master's first. Picklable."""

    cluster: str
    name: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupQueue:
    """A group in a queue. Times in ms, 0: not known; `unread_ms`: when the next message that it has
    not consumed was stored. `problem`: why that is not known though it lags."""

    group: str
    queue: MessageQueue
    offsets: OffsetWrapper
    scanned_ms: int
    unread_ms: int = 0
    problem: str | None = None
    members: int | None = None

    @property
    def lag(self) -> int:
        """Messages, as Java's tools show it; of nonsense what a column can hold."""
        lag = self.offsets.broker_offset - self.offsets.consumer_offset
        return min(max(lag, -_LARGEST), _LARGEST)


class BrokerScan:
    """Asks one broker name. Owned by: one task."""

    def __init__(self, cluster: Cluster, broker: BrokerName, wanted: Wanted) -> None:
        self._cluster: Final = cluster
        self._broker: Final = broker
        self._wanted: Final = wanted
        self._is_group: Final = _matcher(wanted.groups)
        self._is_topic: Final = _matcher(wanted.topics)

    def rows(self) -> Iterator[GroupQueue]:
        """By group, topic and queue. SourceError."""
        for group, offsets in sorted(self._progress().items()):
            queues = sorted(
                (queue for queue in offsets if self._is_topic(queue.topic)),
                key=lambda queue: (queue.topic, queue.queue_id),
            )
            members = self._members(group) if queues and self._wanted.members else None
            for queue in queues:
                yield self._row(group, queue, offsets[queue], members)

    # -- progress ------------------------------------------------------------------------------

    def _progress(self) -> dict[str, dict[MessageQueue, OffsetWrapper]]:
        found: dict[str, dict[MessageQueue, OffsetWrapper]] = {}
        for group, stats in self._named() if self._wanted.named else self._all():
            if stats.offset_table and self._is_group(group):
                found.setdefault(group, {}).update(stats.offset_table)
        return found

    def _all(self) -> Iterator[tuple[str, ConsumeStats]]:
        header = GetConsumeStatsInBrokerHeader(is_order=False)
        answer = self._ask(
            RequestCode.GET_BROKER_CONSUME_STATS, header, timeout_ms=STATS_TIMEOUT_MS
        )
        for groups in self._read(ConsumeStatsList.from_json_bytes, answer).consume_stats_list:
            for group, of_topics in groups.items():
                yield from ((group, stats) for stats in of_topics)

    def _named(self) -> Iterator[tuple[str, ConsumeStats]]:
        for group in self._wanted.groups:
            header = GetConsumeStatsRequestHeader(consumer_group=group)
            answer = self._ask(RequestCode.GET_CONSUME_STATS, header, timeout_ms=STATS_TIMEOUT_MS)
            yield group, self._read(ConsumeStats.from_json_bytes, answer)

    def _members(self, group: str) -> int:
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        answer = self._ask(
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            header,
            accept=(ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE),
        )
        if answer.code != ResponseCode.SUCCESS:
            return _NOBODY
        return len(self._read(ConsumerConnection.from_json_bytes, answer).connection_set)

    # -- the next unread message ---------------------------------------------------------------

    def _row(
        self, group: str, queue: MessageQueue, offsets: OffsetWrapper, members: int | None
    ) -> GroupQueue:
        now_ms = time.time_ns() // 1_000_000
        unread_ms, problem = 0, None
        if self._wanted.ages and offsets.broker_offset > offsets.consumer_offset:
            try:
                unread_ms = self._unread_ms(queue, offsets.consumer_offset)
            except SourceError as error:
                problem = str(error)
            else:
                problem = None if unread_ms else "no message is there any more"
        return GroupQueue(group, queue, offsets, now_ms, unread_ms, problem, members)

    def _unread_ms(self, queue: MessageQueue, offset: int) -> int:
        """Of the message at an offset, else of the first one behind it; 0 without any."""
        pulled = self._cluster.pull(queue, offset, 1)
        if not pulled.records:
            # Retention has passed it, or there is nothing at that offset: a compacted topic.
            behind = max(pulled.min_offset, pulled.next_offset)
            if behind <= offset or behind >= pulled.max_offset:
                return 0
            pulled = self._cluster.pull(queue, behind, 1)
        first = next(split_records(pulled.records), None)
        if isinstance(first, str):
            raise DamagedMessageError(first)
        return 0 if first is None else first.store_timestamp

    # -- asking --------------------------------------------------------------------------------

    def _ask(
        self,
        code: RequestCode,
        header: CommandCustomHeader,
        *,
        accept: tuple[int, ...] = (ResponseCode.SUCCESS,),
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        """The answer of the master, else of a slave, which may know less."""
        what, failures = f"broker {self._broker.name}", []
        connection = self._cluster.connection
        for address in self._broker.addresses:
            try:
                return self._cluster.admin.call(
                    address,
                    code,
                    header,
                    accept=accept,
                    timeout_ms=timeout_ms or connection.timeout_ms,
                )
            except BrokerAnswerError as error:
                raise refusal(error, what, connection) from None
            except RemotingError as error:
                failures.append(str(error))
        raise UnavailableError(f"{what}: no answer: {'; '.join(failures)}")

    def _read(self, decode: Callable[[bytes], _Body], answer: RemotingCommand) -> _Body:
        try:
            return decode(answer.body)
        except RequestError as error:
            text = f"broker {self._broker.name}: an answer cannot be read: {error}"
            raise DamagedMessageError(text) from None


def broker_names(cluster: Cluster, of_cluster: str | None) -> list[BrokerName]:
    """All broker names of a cluster, or of all. SourceError."""
    what = "the brokers of the cluster"
    brokers = cluster.patiently(what, cluster.admin.brokers)
    known = {broker.cluster for broker in brokers}
    if of_cluster is not None and of_cluster not in known:
        raise OptionError(f"option cluster: {unknown('cluster', of_cluster, known)}")
    found: dict[tuple[str, str], list[str]] = {}
    for broker in sorted(brokers):  # of a name by id: the master first
        if of_cluster in (None, broker.cluster):
            found.setdefault((broker.cluster, broker.broker_name), []).append(broker.address)
    return [BrokerName(*names, tuple(addresses)) for names, addresses in found.items()]


def _matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    if not patterns:
        return lambda _: True
    texts = (re.escape(each).replace(r"\*", ".*").replace(r"\?", ".") for each in patterns)
    return re.compile("|".join(f"(?:{text})" for text in texts), re.DOTALL).fullmatch

"""Where the queues of a topic begin and end, with few requests: one for each broker name.

Driver. Brokers tell the bounds of all queues of a topic in their statistics; where an account may
not ask for those, and for static topics, each queue is asked.

Tested by tests/spark/sources/test_positions.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from remoting.body.message_queue import MessageQueue
from remoting.body.stats import TopicStatsTable
from remoting.errors import RequestError
from remoting.headers.topic import GetTopicStatsInfoRequestHeader
from remoting.request_code import RequestCode
from spark.sources.cluster import Cluster
from spark.sources.errors import SourceError, UnavailableError
from spark.sources.patience import Patience

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """The first offset of a queue and the one behind its last. is_certain: a master said so; a
    slave may know less."""

    begin: int
    end: int
    is_certain: bool = True


def find_limits(cluster: Cluster, topic: str, *, fresh: bool = False) -> dict[MessageQueue, Limits]:
    """Of every readable queue of a topic. NoTopicError, UnavailableError and others."""
    queues = cluster.queues(topic, fresh=fresh)
    by_statistics: dict[str, dict[MessageQueue, Limits]] = {}
    is_static = bool(cluster.route(topic).topic_queue_mapping_by_broker)
    found = {}
    for queue in queues:
        name = queue.broker_name
        if name not in by_statistics:
            by_statistics[name] = {} if is_static else _statistics(cluster, queue)
        known = by_statistics[name].get(queue)
        found[queue] = _asked(cluster, queue) if known is None else known
    return found


def find_ends(
    cluster: Cluster,
    topic: str,
    *,
    accept_slaves: bool,
    used: Callable[[Mapping[MessageQueue, Limits]], Collection[MessageQueue]],
) -> dict[MessageQueue, Limits]:
    """As find_limits, for a read that is over at these ends: what a slave lacks would be left out,
    and nobody would know. So masters are waited for, and after `retry_ms` it is an
    UnavailableError; accept_slaves: a warning, and no wait. used: of limits the queues whose ends
    the read takes from them."""
    retry_ms = cluster.connection.retry_ms
    patience = Patience(retry_ms, cluster.pause)
    while slaves := _told_by_slaves(limits := find_limits(cluster, topic, fresh=True), used):
        text = (
            f"topic {topic}: of {slaves} a slave answers, no master does: the slave may lack the "
            "last messages"
        )
        if accept_slaves:
            log.warning("%s (acceptSlaveEnd)", text)
            break
        if not patience.wait():
            raise UnavailableError(
                f"{text}; no master came for {retry_ms} ms (option retryMs): start it, or set the "
                "option acceptSlaveEnd to true, to read up to the slave's end"
            )
    return limits


def _told_by_slaves(
    limits: Mapping[MessageQueue, Limits],
    used: Callable[[Mapping[MessageQueue, Limits]], Collection[MessageQueue]],
) -> str:
    """Names of brokers."""
    if all(each.is_certain for each in limits.values()):
        return ""
    names = {queue.broker_name for queue in used(limits) if not limits[queue].is_certain}
    return ", ".join(f"broker {name}" for name in sorted(names))


def _statistics(cluster: Cluster, queue: MessageQueue) -> dict[MessageQueue, Limits]:
    """Nothing where the statistics are refused."""
    header = GetTopicStatsInfoRequestHeader(topic=queue.topic)
    try:
        answer = cluster.ask(queue, RequestCode.GET_TOPIC_STATS_INFO, header)
        table = TopicStatsTable.from_json_bytes(answer.response.body)
    except UnavailableError:
        raise
    except (SourceError, RequestError):
        return {}
    return {
        each: Limits(bounds.min_offset, bounds.max_offset, answer.is_master)
        for each, bounds in table.offset_table.items()
    }


def _asked(cluster: Cluster, queue: MessageQueue) -> Limits:
    end, is_certain = cluster.max_offset(queue)
    return Limits(cluster.min_offset(queue), end, is_certain)

"""TopicQueueMappingCleanService: forgets parts of static topics that nobody needs any longer.

Every five minutes in the hours of deleteWhen, on the scheduled executor of a master:

- The earliest item of a queue that this broker leads goes when its physical queue is empty, as all
  of its messages have expired.
- The items of a queue that was passed on by the broker it had been passed on to go when the broker
  that leads it now has them.

Both ask other brokers, and change nothing when one does not answer; that one is not asked again
before the next run, so that a run does not hold its thread for long. Follows
TopicQueueMappingCleanService of RocketMQ 5.3.3; unlike there, an earliest item stays while the next
one's place is not decided.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from broker.out.broker_rpc import BrokerRpc
from broker.topic.topic_queue_mapping_manager import TopicQueueMappingManager
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.message_queue import MessageQueue
from remoting.body.route import TopicRouteData
from remoting.body.stats import TopicOffset, TopicStatsTable
from remoting.body.topic_config import TopicConfigAndQueueMapping
from remoting.body.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from remoting.errors import RequestError
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

PERIOD_MS: Final = 300_000
_TIMEOUT_MS: Final = 3_000


FindRoute = Callable[[str, int], TopicRouteData | None]
"""Route of a topic, asked of the name servers: (topic, timeout in ms)
(BrokerOuterAPI.get_topic_route)."""


class TopicQueueMappingCleanService:
    """See the module. Owned by: the scheduled executor."""

    def __init__(
        self,
        mappings: TopicQueueMappingManager,
        brokers: BrokerRpc,
        find_route: FindRoute,
        delete_hours: Collection[int],
        local_hour: Callable[[], int],
        is_slave: Callable[[], bool] = lambda: False,
    ) -> None:
        """is_slave: whether this broker does not lead now, and leaves the mappings alone."""
        self._is_slave = is_slave
        self._mappings = mappings
        self._brokers = brokers
        self._find_route = find_route
        self._delete_hours = delete_hours
        self._local_hour = local_hour
        self._silent: dict[str, RequestError] = {}
        """Who did not answer in this run."""

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Begin to look."""
        executor.schedule(
            "clean-static-topics", self.clean, first_delay_ms=PERIOD_MS, period_ms=PERIOD_MS
        )

    def clean(self) -> None:
        """Look at every static topic, if it is the hour."""
        if self._is_slave() or not self._mappings.table:
            return
        if self._local_hour() not in self._delete_hours:
            return
        self._silent.clear()
        for topic in list(self._mappings.table):
            for clean in (self._without_empty_items, self._without_passed_on):
                detail = self._mappings.table.get(topic)
                if detail is None:
                    break
                try:
                    hosted = clean(detail)
                except RequestError as error:
                    log.warning("static topic %s: not cleaned: %s", topic, error.remark)
                    continue
                if hosted != detail.hosted_queues:
                    new = replace(detail, hosted_queues=hosted)
                    if self._mappings.replace_items(detail, new):
                        log.info("static topic %s: cleaned, old %s, new %s", topic, detail, new)

    # -- items without messages -----------------------------------------------------------------

    def _without_empty_items(
        self, detail: TopicQueueMappingDetail
    ) -> dict[int, list[LogicQueueMappingItem]]:
        """The queues without earliest items that have no message left."""
        led = {
            global_id: items
            for global_id, items in detail.hosted_queues.items()
            if len(items) > 1 and items[-1].bname == detail.bname and items[1].is_decided
        }
        offsets: dict[tuple[str, int], TopicOffset] = {}
        for broker in {items[0].bname for items in led.values()}:
            offsets |= self._offsets_at(broker, detail.topic)
        hosted = dict(detail.hosted_queues)
        for global_id, items in led.items():
            found = offsets.get((items[0].bname, items[0].queue_id))
            if found is not None and found.max_offset in (found.min_offset, 0):
                hosted[global_id] = items[1:]
        return hosted

    def _offsets_at(self, broker: str, topic: str) -> dict[tuple[str, int], TopicOffset]:
        body = self._ask(broker, RequestCode.GET_TOPIC_STATS_INFO, topic, lo=False)
        table: dict[MessageQueue, TopicOffset] = TopicStatsTable.from_json_bytes(body).offset_table
        return {(queue.broker_name, queue.queue_id): offset for queue, offset in table.items()}

    # -- queues that others have passed on ------------------------------------------------------

    def _without_passed_on(
        self, detail: TopicQueueMappingDetail
    ) -> dict[int, list[LogicQueueMappingItem]]:
        """The queues without those whose next leader is not the leader any more."""
        passed_on = {
            global_id: items[-1].bname
            for global_id, items in detail.hosted_queues.items()
            if items and items[-1].bname != detail.bname
        }
        hosted = dict(detail.hosted_queues)
        if not passed_on:
            return hosted
        leaders = self._leaders(detail.topic)
        moved = {
            global_id: leaders[global_id]
            for global_id, next_leader in passed_on.items()
            if leaders.get(global_id, next_leader) != next_leader
        }
        for leader in set(moved.values()):
            body = self._ask(leader, RequestCode.GET_TOPIC_CONFIG, detail.topic, lo=True)
            theirs = TopicConfigAndQueueMapping.from_json_bytes(body).mapping_detail
            if theirs is None or (theirs.bname, theirs.total_queues, theirs.epoch) != (
                *(leader, detail.total_queues, detail.epoch),
            ):
                continue
            for global_id in [key for key, name in moved.items() if name == leader]:
                items = theirs.hosted_queues.get(global_id)
                if items and items[-1].bname == leader:
                    del hosted[global_id]
        return hosted

    def _leaders(self, topic: str) -> dict[int, str]:
        """Broker name by global id, as the name servers have it; the greatest epoch counts."""
        route = self._find_route(topic, _TIMEOUT_MS)
        mappings = {} if route is None else route.topic_queue_mapping_by_broker or {}
        ordered = sorted(mappings.values(), key=lambda info: info.epoch)
        return {global_id: info.bname for info in ordered for global_id in info.curr_id_map}

    def _ask(self, broker: str, code: RequestCode, topic: str, *, lo: bool) -> bytes:
        fields = {"topic": topic, "lo": "true" if lo else "false", "bname": broker}
        if broker in self._silent:
            raise self._silent[broker]
        try:
            answer = self._brokers.ask(broker, code, fields)
        except RequestError as error:
            self._silent[broker] = error
            raise
        if answer.code != ResponseCode.SUCCESS:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"broker {broker} answered {code.name} with code {answer.code}: {answer.remark}",
            )
        return answer.body

"""OffsetSynchronize: a slave copies its master's offsets of consumers and of delay levels.

They rest on records of the master's log: a popped message's offset on its check point, a delay
level's on what was delivered. They may be ahead of the local log, so a copied table counts once the
local log has reached where the master's ended after the table was taken (28; Java answers it, too).
RocketMQ takes both at once, and a slave that is promoted then passes over messages.

Consumer offsets: see `merged_offset`. The master's previous table is dropped when a round fails and
when the master changes, so that a master that returns after a crash with slightly old offsets does
not look like a reset. After a cut of the local log the master's offsets replace ours, until every
table was copied once (cut_log.py); that a Java master has none at all says so, too. Runs on the
thread of SlaveSynchronize.

Tested by tests/broker/slave/test_slave_synchronize.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.json_config_manager import parse_object
from broker.offset.consumer_offset_manager import (
    TOPIC_GROUP_SEPARATOR,
    ConsumerOffsetManager,
    parse_offset_table,
    parse_pull_offset_table,
)
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager, parse_delay_offset_table
from broker.slave.cut_log import CutLog
from broker.slave.remote_log import fetch_log_end
from broker.slave.sync_status import TIMEOUT_MS, save_copied
from broker.slave.topic_group_synchronize import TopicGroupSynchronize
from remoting.request_code import RequestCode

if TYPE_CHECKING:
    from broker.out.broker_outer_api import BrokerOuterAPI


@dataclass(frozen=True, slots=True)
class AwaitedTable:
    """A copied table that counts once the local log has reached `log_end`."""

    log_end: int
    """Where the master's log ended after the table was taken."""
    take: Callable[[], None]
    """Put it in force and save it."""


class OffsetSynchronize:
    """See the module. Owned by: the thread of SlaveSynchronize."""

    def __init__(
        self,
        api: BrokerOuterAPI,
        offsets: ConsumerOffsetManager,
        delay_offsets: ScheduleOffsetManager,
        known: TopicGroupSynchronize,
        cut_log: CutLog,
        log_end: Callable[[], int],
    ) -> None:
        """known: says which topics and groups are gone; their offsets go, too. log_end: of this
        broker's log."""
        self._api = api
        self._offsets = offsets
        self._delay_offsets = delay_offsets
        self._known = known
        self._cut_log = cut_log
        self._log_end = log_end
        self._seen_offsets: dict[str, dict[int, int]] = {}

    def forget_seen(self) -> None:
        """The master changes, or may have been away: its next table is not compared with its
        last."""
        self._seen_offsets.clear()

    def _await(self, master: str, take: Callable[[], None]) -> AwaitedTable:
        return AwaitedTable(fetch_log_end(self._api, master, TIMEOUT_MS), take)

    def fetch_consumer_offsets(self, master: str) -> AwaitedTable | None:
        """Those of the master at "ip:port" (43); None: it has none. Raises one of TROUBLE."""
        known_to = self._log_end()  # The master's is there, or further.
        body = self._api.get_table(master, RequestCode.GET_ALL_CONSUMER_OFFSET, TIMEOUT_MS)
        if body is None and self._cut_log.objection is None:
            return None
        tree = {"offsetTable": {}} if body is None else parse_object(body)
        table, pulled = parse_offset_table(tree), parse_pull_offset_table(tree)
        topics, groups = self._known.known_topics.gone.copy(), self._known.known_groups.gone.copy()

        def take() -> None:
            self._take_pull_offsets(pulled)
            self._offsets.known_to = lambda: known_to
            self._take_consumer_offsets(table, topics, groups)

        return self._await(master, take)

    def _take_pull_offsets(self, table: dict[str, dict[int, int]]) -> None:
        for key, queues in table.items():
            topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
            for queue_id, offset in queues.items():
                self._offsets.commit_pull_offset(group, topic, queue_id, offset)

    def _take_consumer_offsets(
        self, table: dict[str, dict[int, int]], topics: set[str], groups: set[str]
    ) -> None:
        """topics, groups: those that were gone when the table was asked for. One that came back
        since then is none."""
        if self._cut_log.objection is None:
            self._offsets.merge_from_master(table, self._seen_offsets)
        else:
            self._offsets.replace_from_master(table)
        # Old offsets of a row that disappears are kept: if recreated, it starts below them.
        self._seen_offsets.update(table)
        topics &= self._known.known_topics.gone
        groups &= self._known.known_groups.gone
        if topics or groups:
            self._offsets.forget(topics, groups, keep=table)
            self._known.known_topics.gone -= topics
            self._known.known_groups.gone -= groups
        save_copied(self._offsets)

    def fetch_delay_offsets(self, master: str) -> AwaitedTable | None:
        """Those of the delay levels (45); None: it has none. Raises one of TROUBLE."""
        body = self._api.get_table(master, RequestCode.GET_ALL_DELAY_OFFSET, TIMEOUT_MS)
        if body is None and self._cut_log.objection is None:
            return None
        table = {} if body is None else parse_delay_offset_table(parse_object(body))
        return self._await(master, lambda: self._take_delay_offsets(table))

    def _take_delay_offsets(self, table: dict[int, int]) -> None:
        self._delay_offsets.replace_all(table)
        save_copied(self._delay_offsets)

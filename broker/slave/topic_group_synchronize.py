"""TopicGroupSynchronize: a slave copies its master's topics, static ones' mappings, and groups.

What disappears between two responses of the same master, within one run of this process, was
deleted there: a topic's queues are deleted here, and the offsets of both (OffsetSynchronize). This
requires a higher data version: a master that was restored with an older or empty table never
deletes anything here, and a new master deletes nothing that it has not listed before. Queues are
deleted once the local log has reached the offset where the master's ended at that time, since
records that arrive later would recreate them. Runs on the thread of SlaveSynchronize.

Tested by tests/broker/slave/test_slave_synchronize.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from broker.out.broker_outer_api import BrokerAnswerError
from broker.slave.paged_tables import GROUPS, TOPICS, Tree, fetch_table
from broker.slave.remote_log import fetch_log_end
from broker.slave.sync_status import TIMEOUT_MS, TROUBLE, SlaveSyncError, save_copied
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.topic_config_manager import TopicConfigManager
from broker.topic.topic_queue_mapping_manager import TopicQueueMappingManager
from ipc.command_channel import CommandError
from remoting.body.subscription_group_config import SubscriptionGroupWrapper
from remoting.body.topic_config import TopicConfigSerializeWrapper
from remoting.errors import RemotingError
from store.control_slots import DISPATCHED_OFFSET

if TYPE_CHECKING:
    from broker.out.broker_outer_api import BrokerOuterAPI

log = logging.getLogger(__name__)

VIP_DISTANCE: Final = 2
"""The VIP port is the main port minus this."""


@dataclass(slots=True)
class Followed:
    """The names in the master's last response, and the cleanup still to be done."""

    names: set[str] = field(default_factory=set)
    counter: int = 0
    """The counter of its data version."""
    gone: set[str] = field(default_factory=set)
    """Deleted names whose consumer offsets have not been removed yet."""

    def take(self, names: set[str], counter: int, vanished: set[str], what: str) -> set[str]:
        """Record the master's current names; returns which of `vanished` it has really deleted."""
        deleted = self.names & vanished if counter > self.counter else set()
        if vanished - deleted:
            log.warning(
                "%s %s: not on the master (data version %s, seen before: %s), removed from the "
                "table; existing data is kept (for queues, see mqadmin cleanUnusedTopic)",
                what,
                sorted(vanished - deleted),
                counter,
                self.counter,
            )
        self.names, self.counter = names, counter
        self.gone = (self.gone | deleted) - names
        return deleted


class TopicGroupSynchronize:
    """See the module. Owned by: the thread of SlaveSynchronize."""

    def __init__(
        self,
        api: BrokerOuterAPI,
        topics: TopicConfigManager,
        mappings: TopicQueueMappingManager,
        groups: SubscriptionGroupManager,
        delete_topic_queues: Callable[[str], None],
        counters: memoryview[int],
    ) -> None:
        """delete_topic_queues raises CommandError. counters: of the control page."""
        self._api = api
        self._topics = topics
        self._mappings = mappings
        self._groups = groups
        self._delete_topic_queues = delete_topic_queues
        self._counters = counters
        self.known_topics = Followed()
        self.known_groups = Followed()
        self._queues_to_delete: dict[str, int | None] = {}
        """Topics to the offset that the local log must reach first; None: not known yet."""

    def forget_master(self, master: str | None) -> None:
        """The names of a master that is no longer followed do not apply to the next one."""
        if self._queues_to_delete:
            log.warning(
                "topics %s: deleted on master %s, which is no longer the master: keeping their "
                "queues, see mqadmin cleanUnusedTopic",
                sorted(self._queues_to_delete),
                master,
            )
        self.known_topics, self.known_groups = Followed(), Followed()
        self._queues_to_delete.clear()

    def sync_topics(self, master: str) -> None:
        """Copy the topics (21) of the master at "ip:port". Raises one of TROUBLE."""
        tree = self._get_topics(master)
        if tree is not None:
            if not tree.get("topicConfigTable") or tree.get("dataVersion") is None:
                raise ValueError(f"{master} sent no topics or no data version: {tree!r:.80}")
            self._take_topics(TopicConfigSerializeWrapper.from_json(tree))
        # In this order: after a crash in between, the file still lists the deleted topics, and
        # the next run logs that the master does not have them.
        problems = self._delete_queues(master)
        # The mappings first: a static topic without its mapping would be read as an ordinary one.
        save_copied(self._mappings)
        save_copied(self._topics)
        if problems:
            raise SlaveSyncError(f"queues of deleted topics still exist: {'; '.join(problems)}")

    def _take_topics(self, wrapper: TopicConfigSerializeWrapper) -> None:
        # Java's slave takes over the version of the mappings, not the mappings.
        self._mappings.replace_all(
            wrapper.topic_queue_mapping_detail_map or {}, wrapper.mapping_data_version
        )
        vanished = self._topics.replace_all(wrapper)
        names = set(wrapper.topic_config_table)
        counter = wrapper.data_version.counter
        deleted = self.known_topics.take(names, counter, vanished, "topics")
        waiting = {
            topic: end for topic, end in self._queues_to_delete.items() if topic not in names
        }
        self._queues_to_delete = dict.fromkeys(deleted - names) | waiting

    def _get_topics(self, master: str) -> Tree | None:
        """Fetch from the VIP port, where 21 is not queued behind sends; else from the main port."""
        vip = vip_address(master)
        if vip is not None:
            try:
                return fetch_table(self._api, vip, TOPICS)
            except (RemotingError, BrokerAnswerError) as error:
                log.debug("master %s: no topics from its VIP port: %s", master, error)
        return fetch_table(self._api, master, TOPICS)

    def _delete_queues(self, master: str) -> list[str]:
        """Delete the queues of deleted topics, after the table has changed and all their records
        have arrived. Failures are returned and retried in the next round."""
        problems = []
        try:
            self._find_ends(master)
        except TROUBLE as error:
            problems.append(f"cannot get the end of the master's log: {error}")
        queues = self._queues_to_delete
        dispatched = self._counters[DISPATCHED_OFFSET]
        ready = [topic for topic, end in queues.items() if end is not None and end <= dispatched]
        for topic in sorted(ready):
            try:
                self._delete_topic_queues(topic)
            except (CommandError, OSError) as error:
                problems.append(f"{topic}: {error}")
            else:
                log.info("topic %s: deleted on the master, its queues are deleted here too", topic)
                del queues[topic]
        return problems

    def _find_ends(self, master: str) -> None:
        """Get the end of the master's log (28) for newly deleted topics: none of their records is
        beyond it."""
        new = [topic for topic, end in self._queues_to_delete.items() if end is None]
        if not new:
            return
        end = fetch_log_end(self._api, master, TIMEOUT_MS)
        self._queues_to_delete.update(dict.fromkeys(new, end))
        log.info(
            "topics %s: deleted on the master; deleting their queues once the local log is "
            "dispatched up to %s (now %s). If this broker stops before that, they are kept: see "
            "mqadmin cleanUnusedTopic",
            sorted(new),
            end,
            self._counters[DISPATCHED_OFFSET],
        )

    def sync_groups(self, master: str) -> None:
        """Copy the consumer groups (201). Raises one of TROUBLE."""
        tree = fetch_table(self._api, master, GROUPS)
        if tree is not None:
            if tree.get("subscriptionGroupTable") is None or tree.get("dataVersion") is None:
                raise ValueError(f"{master} sent no groups or no data version: {tree!r:.80}")
            wrapper = SubscriptionGroupWrapper.from_json(tree)
            vanished = self._groups.replace_all(wrapper)
            names = set(wrapper.subscription_group_table)
            self.known_groups.take(names, wrapper.data_version.counter, vanished, "groups")
        save_copied(self._groups)


def vip_address(address: str) -> str | None:
    """The address of a broker's VIP port; None if there cannot be one."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or len(port) > 5 or int(port) <= VIP_DISTANCE:
        return None
    return f"{host}:{int(port) - VIP_DISTANCE}"

"""SlaveSynchronize: a slave takes over its master's tables, every slaveSyncInterval.

Topics (21), consumer offsets (43), delay offsets (45), consumer groups (201), in this order, each
saved right after it changed. A kind that fails is counted, kept for `status` and tried again in
the next round; the other three go on. Runs in process `remoting` of a slave, on one thread of the
scheduled executor; `set_master_address` and `status` may be called by any thread. Follows
SlaveSynchronize of the original, but for these rules:

- A table is replaced in one step, its edition copied exactly; contents are compared, not only
  editions.
- Nothing is taken over from a master whose log was not compared with ours.
- Topics that vanish between two answers of the same master, in one life of this process, lose
  their queues here, groups and topics their offsets, but for offsets that the master still has.
  Only when the edition rises: a master that came back with an older or empty table never deletes
  anything here, and another master deletes nothing that it has not named itself. The queues go
  when our log has come to where the master's ended at that time: records that arrive later would
  make them again.
- Consumer offsets: `merged_offset`. What the master said last is forgotten when a round fails and
  when the master changes: a master that comes back after a crash with offsets a few seconds old
  does not look like a reset.

What it cannot see: a topic that was deleted and made again between two rounds, and what was
deleted while this process was down or followed another master: such queues stay, with a line in
the log, until mqadmin cleanUnusedTopic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from broker.json_config_manager import JsonConfigManager, parse_object
from broker.offset.consumer_offset_manager import ConsumerOffsetManager, parse_offset_table
from broker.out.broker_outer_api import BrokerAnswerError
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager, parse_delay_offset_table
from broker.settings.broker_config import BrokerConfig
from broker.slave.remote_log import read_bounds
from broker.slave.sync_kind import SLAVE_SYNC_FAILURES, SLAVE_SYNC_SUCCESS, SyncKind
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.clock import Clock
from ipc.command_channel import CommandError
from ipc.control_page import ControlPage
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.subscription_group_config import SubscriptionGroupWrapper
from remoting.body.topic_config import TopicConfigSerializeWrapper
from remoting.errors import RemotingError, RequestError
from remoting.request_code import RequestCode
from store.control_slots import DISPATCHED_OFFSET

log = logging.getLogger(__name__)

FIRST_DELAY_MS: Final = 3_000
TIMEOUT_MS: Final = 3_000
"""Of each request, as in the original."""

VIP_DISTANCE: Final = 2
"""The VIP port is the main port less this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStatus:
    """How one kind fares. Times are wall clock ms, 0 = never."""

    last_success_ms: int = 0
    failures: int = 0
    last_error_ms: int = 0
    last_error: str | None = None
    """Of the newest failure, also when it works again: last_success_ms is later then."""


class SlaveSyncError(Exception):
    """A table was taken over but not everything that follows from it could be done."""


class TableSource(Protocol):
    """What is needed of BrokerOuterAPI."""

    def get_table(self, broker: str, code: RequestCode, timeout_ms: int) -> bytes | None:
        """A table of another broker. Raises RemotingError, BrokerAnswerError."""


_TROUBLE: Final = (
    RemotingError,
    BrokerAnswerError,
    RequestError,
    ValueError,
    CommandError,
    OSError,
    SlaveSyncError,
)
"""What a network, another broker's answer, the store process and a disk can do."""


@dataclass(slots=True)
class _Followed:
    """What the last answer of the master named, and what is still to be cleaned up after it."""

    names: set[str] = field(default_factory=set)
    counter: int = 0
    """Of its edition."""
    gone: set[str] = field(default_factory=set)
    """Vanished; their consumer offsets are still here."""

    def take(self, names: set[str], counter: int, vanished: set[str], what: str) -> set[str]:
        """Which of `vanished` the master has really deleted; takes over what it names now."""
        deleted = self.names & vanished if counter > self.counter else set()
        if vanished - deleted:
            log.warning(
                "%s %s: not on the master (edition %s, seen of it before: %s), left out of the "
                "table; data that is still here stays (queues: see mqadmin cleanUnusedTopic)",
                what,
                sorted(vanished - deleted),
                counter,
                self.counter,
            )
        self.names, self.counter = names, counter
        self.gone = (self.gone | deleted) - names
        return deleted


class SlaveSynchronize:
    """Owned by: `_lock`, which one round holds; the master's address and the status are words
    that are replaced whole."""

    def __init__(
        self,
        own_address: str,
        api: TableSource,
        *,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        delay_offsets: ScheduleOffsetManager,
        groups: SubscriptionGroupManager,
        delete_topic_queues: Callable[[str], None],
        compare_logs: Callable[[], None],
        page: ControlPage,
        clock: Clock,
        and_then: Callable[[str], None] | None = None,
    ) -> None:
        """`own_address`: brokerIP1:listenPort. `delete_topic_queues` raises CommandError.

        `compare_logs` compares the master's log with ours and says here what came of it; may
        take seconds. `and_then`: what else follows from a master whose log belongs to ours, done
        with its address at the end of each round; must not raise.
        """
        self._own_address = own_address
        self._api = api
        self._topics = topics
        self._offsets = offsets
        self._delay_offsets = delay_offsets
        self._groups = groups
        self._delete_topic_queues = delete_topic_queues
        self._compare_logs = compare_logs
        self._and_then = and_then
        self._counters = page.counters
        self._clock = clock
        self._lock = threading.Lock()
        self._master: str | None = None
        self._followed_master: str | None = None
        self._looked_at: str | None = None
        """The master whose log was compared with ours, if that could be done at all."""
        self._objection: str | None = None
        self._known_topics = _Followed()
        self._known_groups = _Followed()
        self._queues_to_delete: dict[str, int | None] = {}
        """Topics, and up to where our log must have come before; None: not known yet."""
        self._seen_offsets: dict[str, dict[int, int]] = {}
        # The page outlives this process: what it counted goes on.
        self._status = {
            kind: SyncStatus(
                last_success_ms=self._counters[SLAVE_SYNC_SUCCESS + kind],
                failures=self._counters[SLAVE_SYNC_FAILURES + kind],
            )
            for kind in SyncKind
        }

    # -- from outside ---------------------------------------------------------------------------

    def schedule_on(self, executor: ScheduledExecutor, config: BrokerConfig) -> None:
        """Begin; the tables have been loaded and nobody has been served yet.

        What the files name may have been another master's, or our own: it says nothing.
        """
        executor.schedule(
            "slave-synchronize",
            self.sync_all,
            first_delay_ms=FIRST_DELAY_MS,
            period_ms=config.slave_sync_interval,
        )

    def set_master_address(self, address: str | None) -> None:
        """Follow the master at "ip:port" from the next round on; None, or ourselves: nobody."""
        if address != self._master:
            log.info("tables: master is %s, was %s", address, self._master)
            self._master = address

    def logs_compared(self, master: str | None, objection: str | None) -> None:
        """Our log and that of `master` were compared. An objection: they do not belong together,
        nothing is taken over: a master that was rebuilt from nothing must not empty the tables of
        its slave. Any thread."""
        self._objection = objection
        self._looked_at = master

    def logs_not_comparable(self, master: str | None) -> None:
        """`master` does not let anybody compare: its tables are taken over nevertheless, but for
        an objection that there was before. Any thread."""
        self._looked_at = master

    def link_lost(self) -> None:
        """Whoever answers at the master's address next may hold another log. Any thread."""
        self._looked_at = None

    def status(self) -> dict[SyncKind, SyncStatus]:
        """How each kind fares."""
        return self._status.copy()

    # -- one round ------------------------------------------------------------------------------

    def sync_all(self) -> None:
        """Each kind once; nothing while there is no master, or another round is under way."""
        master = self._master
        if master is None or master == self._own_address or not self._lock.acquire(blocking=False):
            return
        try:
            if master != self._followed_master:
                self._follow(master)
            if master != self._looked_at:
                self._compare_logs()
            for kind, sync in (
                (SyncKind.TOPICS, self._sync_topics),
                (SyncKind.CONSUMER_OFFSETS, self._sync_consumer_offsets),
                (SyncKind.DELAY_OFFSETS, self._sync_delay_offsets),
                (SyncKind.SUBSCRIPTION_GROUPS, self._sync_groups),
            ):
                if master == self._master:
                    self._sync(kind, sync, master)
            if self._and_then is not None and master == self._master and self._belongs(master):
                self._and_then(master)
        finally:
            self._lock.release()

    def _belongs(self, master: str) -> bool:
        return self._objection is None and self._looked_at == master

    def _follow(self, master: str) -> None:
        """What another master named and deleted says nothing of this one's tables."""
        if self._queues_to_delete:
            log.warning(
                "topics %s: deleted on master %s, which is not the master any more: their queues "
                "stay, see mqadmin cleanUnusedTopic",
                sorted(self._queues_to_delete),
                self._followed_master,
            )
        self._followed_master = master
        self._known_topics, self._known_groups = _Followed(), _Followed()
        self._queues_to_delete.clear()
        self._seen_offsets.clear()

    def _sync(self, kind: SyncKind, sync: Callable[[str], None], master: str) -> None:
        try:
            if self._objection is not None:
                raise SlaveSyncError(self._objection)
            if self._looked_at != master:
                raise SlaveSyncError("our log was not compared with the master's yet")
            sync(master)
        except _TROUBLE as error:
            self._failed(kind, master, error)
        else:
            self._succeeded(kind, master)

    def _succeeded(self, kind: SyncKind, master: str) -> None:
        old = self._status[kind]
        now_ms = self._clock.now_ms()
        self._status[kind] = replace(old, last_success_ms=now_ms)
        self._counters[SLAVE_SYNC_SUCCESS + kind] = now_ms
        if old.last_success_ms <= old.last_error_ms:
            log.info("master %s: %s taken over", master, kind.name)

    def _failed(self, kind: SyncKind, master: str, error: Exception) -> None:
        old = self._status[kind]
        text = f"{type(error).__name__}: {error}"
        self._status[kind] = replace(
            old,
            failures=old.failures + 1,
            last_error=text,
            last_error_ms=self._clock.now_ms(),
        )
        self._counters[SLAVE_SYNC_FAILURES + kind] = old.failures + 1
        again = text == old.last_error and old.last_error_ms >= old.last_success_ms
        log.log(
            logging.DEBUG if again else logging.WARNING,
            "master %s: %s not taken over, tried again in the next round (%s failures): %s",
            master,
            kind.name,
            old.failures + 1,
            text,
        )

    # -- topics and groups ----------------------------------------------------------------------

    def _sync_topics(self, master: str) -> None:
        body = self._get_topics(master)
        if body is not None:
            tree = parse_object(body)
            if not tree.get("topicConfigTable") or tree.get("dataVersion") is None:
                raise ValueError(f"{master} answered without topics or edition: {body[:80]!r}")
            self._take_topics(TopicConfigSerializeWrapper.from_json(tree))
        # In this order: after a crash in between the file names what was deleted, and the next
        # life says in its log that the master does not.
        problems = self._delete_queues(master)
        self._save(self._topics)
        if problems:
            raise SlaveSyncError(f"queues of deleted topics are still here: {'; '.join(problems)}")

    def _take_topics(self, wrapper: TopicConfigSerializeWrapper) -> None:
        vanished = self._topics.replace_all(wrapper)
        names = set(wrapper.topic_config_table)
        counter = wrapper.data_version.counter
        deleted = self._known_topics.take(names, counter, vanished, "topics")
        waiting = {
            topic: end for topic, end in self._queues_to_delete.items() if topic not in names
        }
        self._queues_to_delete = dict.fromkeys(deleted - names) | waiting

    def _get_topics(self, master: str) -> bytes | None:
        """From the VIP port, where 21 does not wait behind sends; else from the main port."""
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        vip = vip_address(master)
        if vip is not None:
            try:
                return self._api.get_table(vip, code, TIMEOUT_MS)
            except (RemotingError, BrokerAnswerError) as error:
                log.debug("master %s: no topics from its VIP port: %s", master, error)
        return self._api.get_table(master, code, TIMEOUT_MS)

    def _delete_queues(self, master: str) -> list[str]:
        """Of deleted topics, after the table changed and all their records came; what fails stays
        for the next round and is returned."""
        problems = []
        try:
            self._find_ends(master)
        except _TROUBLE as error:
            problems.append(f"the end of the master's log is not known: {error}")
        queues = self._queues_to_delete
        dispatched = self._counters[DISPATCHED_OFFSET]
        ready = [topic for topic, end in queues.items() if end is not None and end <= dispatched]
        for topic in sorted(ready):
            try:
                self._delete_topic_queues(topic)
            except (CommandError, OSError) as error:
                problems.append(f"{topic}: {error}")
            else:
                log.info("topic %s: deleted on the master, its queues are gone here, too", topic)
                del queues[topic]
        return problems

    def _find_ends(self, master: str) -> None:
        """Where the master's log ends now (28), for the topics that vanished just now: none of
        their records is behind that."""
        new = [topic for topic, end in self._queues_to_delete.items() if end is None]
        if not new:
            return
        body = self._api.get_table(master, RequestCode.GET_BROKER_RUNTIME_INFO, TIMEOUT_MS)
        end = read_bounds(body or b"").max_offset
        self._queues_to_delete.update(dict.fromkeys(new, end))
        log.info(
            "topics %s: deleted on the master; their queues go once our log is dispatched up to %s "
            "(now %s). If this broker stops before they stay: see mqadmin cleanUnusedTopic",
            sorted(new),
            end,
            self._counters[DISPATCHED_OFFSET],
        )

    def _sync_groups(self, master: str) -> None:
        body = self._api.get_table(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, TIMEOUT_MS)
        if body is not None:
            tree = parse_object(body)
            if tree.get("subscriptionGroupTable") is None or tree.get("dataVersion") is None:
                raise ValueError(f"{master} answered without groups or edition: {body[:80]!r}")
            wrapper = SubscriptionGroupWrapper.from_json(tree)
            vanished = self._groups.replace_all(wrapper)
            names = set(wrapper.subscription_group_table)
            self._known_groups.take(names, wrapper.data_version.counter, vanished, "groups")
        self._save(self._groups)

    # -- offsets --------------------------------------------------------------------------------

    def _sync_consumer_offsets(self, master: str) -> None:
        try:
            body = self._api.get_table(master, RequestCode.GET_ALL_CONSUMER_OFFSET, TIMEOUT_MS)
        except (RemotingError, BrokerAnswerError):
            self._seen_offsets.clear()
            raise
        if body is not None:
            table = parse_offset_table(parse_object(body))
            self._offsets.merge_from_master(table, self._seen_offsets)
            # Of a row that vanishes the old offsets stay: made again it begins below them.
            self._seen_offsets.update(table)
            gone_topics, gone_groups = self._known_topics.gone, self._known_groups.gone
            if gone_topics or gone_groups:
                self._offsets.forget(gone_topics, gone_groups, keep=table)
                gone_topics.clear()
                gone_groups.clear()
        self._save(self._offsets)

    def _sync_delay_offsets(self, master: str) -> None:
        body = self._api.get_table(master, RequestCode.GET_ALL_DELAY_OFFSET, TIMEOUT_MS)
        if body is not None:
            self._delay_offsets.replace_all(parse_delay_offset_table(parse_object(body)))
        self._save(self._delay_offsets)

    @staticmethod
    def _save(manager: JsonConfigManager) -> None:
        if not manager.save_if_changed():
            raise SlaveSyncError(f"{manager.path} could not be saved, see the lines before")


def vip_address(address: str) -> str | None:
    """The VIP port beside a broker's main port; None where there can be none."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) <= VIP_DISTANCE:
        return None
    return f"{host}:{int(port) - VIP_DISTANCE}"

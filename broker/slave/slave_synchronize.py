"""SlaveSynchronize: a slave copies its master's tables, every slaveSyncInterval.

Topics with the mappings of static ones (21), consumer offsets (43), delay offsets (45), consumer
groups (201), in this order, each saved right after it changed. A failed kind is counted, reported
by `status` and retried in the next round, independently of the others. Runs in process `remoting`
of a slave, on one thread of the scheduled executor; `set_master_address` and `status` may be called
by any thread. Follows SlaveSynchronize of RocketMQ, except for these rules:

- A table is replaced in one step, its data version copied exactly; contents are compared, not only
  data versions.
- Nothing is copied from a broker that is not known to be our master (trusted_master.py), or whose
  log was not compared with the local one.
- If topics disappear between two responses of the same master, within one run of this process,
  their queues are deleted here; for topics and groups, so are the offsets, except those that the
  master still has. This requires a higher data version: a master that was restored with an older or
  empty table never deletes anything here, and a new master deletes nothing that it has not listed
  before. Queues are deleted once the local log has reached the offset where the master's ended at
  that time, since records that arrive later would recreate them.
- Consumer offsets and delay offsets rest on records of the master's log: a popped message's offset
  on its check point, a delay level's on what was delivered. They may be ahead of the local log, so
  a copied table counts once the local log has reached where the master's ended after the table was
  taken (28; Java answers it, too), and its age counts from when it was asked for. Until then it
  waits, and no other is fetched: each newer one would wait for more. A new link ends the wait.
  RocketMQ takes both at once, and a slave that is promoted then passes over messages.
- Consumer offsets: see `merged_offset`. The master's previous table is dropped when a round fails
  and when the master changes, so that a master that returns after a crash with slightly old offsets
  does not look like a reset. After a cut of the local log the master's offsets replace ours, until
  every table was copied once (cut_log.py); that a Java master has none at all says so, too.

Limitations: it does not detect a topic that was deleted and recreated between two rounds, or
deletions while this process was down or followed another master. Such queues are kept and logged,
until mqadmin cleanUnusedTopic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from broker.json_config_manager import JsonConfigManager, parse_object
from broker.offset.consumer_offset_manager import ConsumerOffsetManager, parse_offset_table
from broker.out.broker_outer_api import BrokerAnswerError
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager, parse_delay_offset_table
from broker.settings.broker_config import BrokerConfig
from broker.slave.cut_log import CutLog
from broker.slave.remote_log import TableSource, fetch_log_end
from broker.slave.sync_kind import SLAVE_SYNC_FAILURES, SLAVE_SYNC_SUCCESS, SyncKind
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.topic_config_manager import TopicConfigManager
from broker.topic.topic_queue_mapping_manager import TopicQueueMappingManager
from ipc.clock import Clock
from ipc.command_channel import CommandError
from ipc.control_page import ControlPage
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.subscription_group_config import SubscriptionGroupWrapper
from remoting.body.topic_config import TopicConfigSerializeWrapper
from remoting.errors import RemotingError, RequestError
from remoting.request_code import RequestCode
from store.control_slots import DISPATCHED_OFFSET, MAX_PHY_OFFSET

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000
"""Timeout of each request, as in RocketMQ."""

_LOOK_MS: Final = 100
"""How often it is looked whether the local log has come to where a waiting table counts."""

VIP_DISTANCE: Final = 2
"""The VIP port is the main port minus this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStatus:
    """Status of one kind. Times are wall clock ms, 0 = never."""

    last_success_ms: int = 0
    """When the table that counts now was asked for."""
    failures: int = 0
    last_error_ms: int = 0
    last_error: str | None = None
    """The last failure, kept after a recovery; last_success_ms is later in that case."""


class SlaveSyncError(Exception):
    """A table was copied, but not all resulting changes could be made."""


_TROUBLE: Final = (
    RemotingError,
    BrokerAnswerError,
    RequestError,
    ValueError,
    CommandError,
    OSError,
    SlaveSyncError,
)
"""Errors of the network, of another broker's response, of process `store` and of the disk."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A copied table that counts once the local log has reached `log_end`."""

    log_end: int
    """Where the master's log ended after the table was taken."""
    asked_ms: int
    """Wall clock, before the table was asked for."""
    link: int
    """Which link it was asked for under: a master that was started anew may have another log."""
    take: Callable[[], None]
    """Put it in force and save it."""


@dataclass(slots=True)
class _Followed:
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


class SlaveSynchronize:
    """Guarded by: `_lock`, held during a round; the master's address and the statuses are replaced
    atomically.
    """

    def __init__(
        self,
        own_address: str,
        api: TableSource,
        *,
        topics: TopicConfigManager,
        mappings: TopicQueueMappingManager,
        offsets: ConsumerOffsetManager,
        delay_offsets: ScheduleOffsetManager,
        groups: SubscriptionGroupManager,
        delete_topic_queues: Callable[[str], None],
        compare_logs: Callable[[], None],
        find_objection: Callable[[str], str | None],
        cut_log: CutLog,
        page: ControlPage,
        clock: Clock,
        on_silence: Callable[[], None] = lambda: None,
        and_then: Callable[[str], None] | None = None,
    ) -> None:
        """`own_address`: brokerIP1:listenPort. `delete_topic_queues` raises CommandError.

        `find_objection`: why nothing is taken from the broker at "ip:port"; see TrustedMaster.
        `compare_logs` compares the master's log with the local one and reports the result through
        `logs_compared`; it may take seconds. `on_silence`: the master did not respond in a round;
        must not block. `and_then`: called with the master's address at the
        end of each round if the logs match; must not raise.
        """
        self._own_address = own_address
        self._api = api
        self._topics = topics
        self._mappings = mappings
        self._offsets = offsets
        self._delay_offsets = delay_offsets
        self._groups = groups
        self._delete_topic_queues = delete_topic_queues
        self._compare_logs = compare_logs
        self._find_objection = find_objection
        self._distrust: str | None = None
        """Why this round takes nothing from the master."""
        self._is_complete = False
        """Whether the last round copied every table."""
        self._is_wanted = False
        """Whether a round was asked for since the last one began."""
        self._is_silent = False
        """Whether the master did not respond in this round."""
        self._on_silence = on_silence
        self._cut_log = cut_log
        self._and_then = and_then
        self._executor: ScheduledExecutor | None = None
        self._counters = page.counters
        self._clock = clock
        self._lock = threading.Lock()
        self._master: str | None = None
        self._followed_master: str | None = None
        self._looked_at: str | None = None
        """The master whose log was compared with the local one, or found not comparable."""
        self._objection: str | None = None
        self._known_topics = _Followed()
        self._known_groups = _Followed()
        self._queues_to_delete: dict[str, int | None] = {}
        """Topics to the offset that the local log must reach first; None: not known yet."""
        self._seen_offsets: dict[str, dict[int, int]] = {}
        self._waiting: dict[SyncKind, _Waiting] = {}
        self._links = 0
        """How many links to a master have opened."""
        self._is_looking = False
        """Whether a look at what waits is scheduled."""
        # The page outlives this process, so counting continues.
        self._status = {
            kind: SyncStatus(
                last_success_ms=self._counters[SLAVE_SYNC_SUCCESS + kind],
                failures=self._counters[SLAVE_SYNC_FAILURES + kind],
            )
            for kind in SyncKind
        }

    # -- notifications ---------------------------------------------------------------------------

    def schedule_on(self, executor: ScheduledExecutor, config: BrokerConfig) -> None:
        """Start synchronizing; call after the tables were loaded and before clients are served.

        The first round begins when a master is known, and so does one when the master changes: a
        slave that is promoted before it copied the tables once would begin every group anew. The
        names in the files may come from another master or from this broker, so they are not used.
        """
        self._executor = executor
        executor.schedule(
            "slave-synchronize",
            self.sync_all,
            first_delay_ms=config.slave_sync_interval,
            period_ms=config.slave_sync_interval,
        )
        self.link_opened()

    def set_master_address(self, address: str | None) -> None:
        """Follow the master at "ip:port", with a round at once; None or this broker itself: no
        master."""
        if address != self._master:
            log.info("tables: master is %s, was %s", address, self._master)
            self._master = address
            self._is_complete = False
            self.link_opened()

    def link_opened(self) -> None:
        """The HA link is up, which makes its master ours: with a round at once, unless the last one
        copied everything. Any thread."""
        self._links += 1
        if self._executor is not None:
            self._is_wanted = True
            self._executor.submit("slave-synchronize-now", self._sync_unless_complete)

    def _sync_unless_complete(self) -> None:
        if not self._is_complete:
            self.sync_all()

    def logs_compared(self, master: str | None, objection: str | None) -> None:
        """The log of `master` was compared with the local one. With an objection the logs differ
        and nothing is copied: a master that was rebuilt from scratch must not clear the tables of
        its slave. Any thread."""
        self._objection = objection
        self._looked_at = master

    def logs_not_comparable(self, master: str | None) -> None:
        """`master` does not support comparing: its tables are copied anyway, unless there was an
        objection before. Any thread."""
        self._looked_at = master

    def link_lost(self) -> None:
        """The next broker at the master's address may have a different log. Any thread."""
        self._looked_at = None

    def status(self) -> dict[SyncKind, SyncStatus]:
        """The status of each kind."""
        return self._status.copy()

    # -- one round ------------------------------------------------------------------------------

    def sync_all(self) -> None:
        """Run one round over all kinds, and another one if the master has changed meanwhile, or if
        one was asked for and this one lacks something; does nothing without a master or during
        another round."""
        if not self._lock.acquire(blocking=False):
            self._is_wanted = True
            return
        try:
            done: str | None = None
            while (master := self._master) not in (None, self._own_address):
                assert master is not None
                if master == done and (self._is_complete or not self._is_wanted):
                    break
                self._is_wanted = False
                self._run_round(master)
                done = master
        finally:
            self._lock.release()

    def _run_round(self, master: str) -> None:
        self._is_silent, self._is_complete = False, True
        if master != self._followed_master:
            self._follow(master)
        self._distrust = self._find_objection(master)
        if master != self._looked_at and self._distrust is None:
            self._compare_logs()
        for kind, sync in (
            (SyncKind.TOPICS, self._sync_topics),
            (SyncKind.CONSUMER_OFFSETS, self._fetch_consumer_offsets),
            (SyncKind.DELAY_OFFSETS, self._fetch_delay_offsets),
            (SyncKind.SUBSCRIPTION_GROUPS, self._sync_groups),
        ):
            if master == self._master:
                self._sync(kind, sync, master)
        if self._is_silent:
            self._on_silence()
        if self._and_then is not None and master == self._master and self._belongs(master):
            self._and_then(master)

    def _belongs(self, master: str) -> bool:
        return self._distrust is None and self._objection is None and self._looked_at == master

    def _follow(self, master: str) -> None:
        """Reset the state when the master changes: another master's names do not apply to this
        one."""
        if self._queues_to_delete:
            log.warning(
                "topics %s: deleted on master %s, which is no longer the master: keeping their "
                "queues, see mqadmin cleanUnusedTopic",
                sorted(self._queues_to_delete),
                self._followed_master,
            )
        self._followed_master = master
        self._known_topics, self._known_groups = _Followed(), _Followed()
        self._queues_to_delete.clear()
        self._seen_offsets.clear()
        self._waiting.clear()
        self._cut_log.begin_copy()

    def _sync(
        self, kind: SyncKind, sync: Callable[[str], Callable[[], None] | None], master: str
    ) -> None:
        """sync: copies a table of the master; returns how to put it in force, if that has to wait
        for the local log."""
        try:
            for objection in (self._distrust, self._objection):
                if objection is not None:
                    raise SlaveSyncError(objection)
            if self._looked_at != master:
                raise SlaveSyncError("the local log has not been compared with the master's yet")
            self._take_waiting(kind, master)
            if kind not in self._waiting:
                asked_ms, link = self._clock.now_ms(), self._links
                take = sync(master)
                if take is None:
                    self._succeeded(kind, master, asked_ms)
                else:
                    log_end = fetch_log_end(self._api, master, TIMEOUT_MS)
                    self._waiting[kind] = _Waiting(log_end, asked_ms, link, take)
                    self._take_waiting(kind, master)
        except _TROUBLE as error:
            self._is_silent |= isinstance(error, RemotingError)
            if isinstance(error, RemotingError | BrokerAnswerError):
                self._seen_offsets.clear()
            self._is_complete = False
            self._failed(kind, master, error)

    def _take_waiting(self, kind: SyncKind, master: str) -> None:
        """Put the table that waits in force, if the local log has come so far. Raises
        SlaveSyncError."""
        waiting = self._waiting.get(kind)
        if waiting is None:
            return
        if waiting.link != self._links:
            del self._waiting[kind]
            return
        if self._counters[MAX_PHY_OFFSET] < waiting.log_end:
            self._is_complete = False
            self._look_later()
            return
        del self._waiting[kind]
        waiting.take()
        self._succeeded(kind, master, waiting.asked_ms)

    def _look_later(self) -> None:
        if self._executor is not None and not self._is_looking:
            self._is_looking = True
            self._executor.schedule(
                "slave-synchronize-waiting", self._look, first_delay_ms=_LOOK_MS, period_ms=None
            )

    def _look(self) -> None:
        """Between rounds: whether the local log has come to where waiting tables count. The last
        one ends the round that copied it."""
        self._is_looking = False
        if not self._lock.acquire(blocking=False):
            self._look_later()
            return
        try:
            self._take_all_waiting()
        finally:
            self._lock.release()
        if self._is_wanted:
            self._sync_unless_complete()

    def _take_all_waiting(self) -> None:
        master = self._followed_master
        if master is None or master != self._master or not self._belongs(master):
            return  # The next round begins anew.
        before = len(self._waiting)
        for kind in list(self._waiting):
            try:
                self._take_waiting(kind, master)
            except SlaveSyncError as error:
                self._failed(kind, master, error)
        if before and not self._waiting and self._and_then is not None:
            self._and_then(master)

    def _succeeded(self, kind: SyncKind, master: str, asked_ms: int) -> None:
        old = self._status[kind]
        self._status[kind] = replace(old, last_success_ms=asked_ms)
        self._counters[SLAVE_SYNC_SUCCESS + kind] = asked_ms
        self._cut_log.copied(kind)
        if old.last_success_ms <= old.last_error_ms:
            log.info("master %s: %s copied", master, kind.name)

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
            "master %s: could not copy %s, retrying in the next round (%s failures): %s",
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
                raise ValueError(f"{master} sent no topics or no data version: {body[:80]!r}")
            self._take_topics(TopicConfigSerializeWrapper.from_json(tree))
        # In this order: after a crash in between, the file still lists the deleted topics, and
        # the next run logs that the master does not have them.
        problems = self._delete_queues(master)
        # The mappings first: a static topic without its mapping would be read as an ordinary one.
        self._save(self._mappings)
        self._save(self._topics)
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
        deleted = self._known_topics.take(names, counter, vanished, "topics")
        waiting = {
            topic: end for topic, end in self._queues_to_delete.items() if topic not in names
        }
        self._queues_to_delete = dict.fromkeys(deleted - names) | waiting

    def _get_topics(self, master: str) -> bytes | None:
        """Fetch from the VIP port, where 21 is not queued behind sends; else from the main port."""
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        vip = vip_address(master)
        if vip is not None:
            try:
                return self._api.get_table(vip, code, TIMEOUT_MS)
            except (RemotingError, BrokerAnswerError) as error:
                log.debug("master %s: no topics from its VIP port: %s", master, error)
        return self._api.get_table(master, code, TIMEOUT_MS)

    def _delete_queues(self, master: str) -> list[str]:
        """Delete the queues of deleted topics, after the table has changed and all their records
        have arrived. Failures are returned and retried in the next round."""
        problems = []
        try:
            self._find_ends(master)
        except _TROUBLE as error:
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

    def _sync_groups(self, master: str) -> None:
        body = self._api.get_table(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, TIMEOUT_MS)
        if body is not None:
            tree = parse_object(body)
            if tree.get("subscriptionGroupTable") is None or tree.get("dataVersion") is None:
                raise ValueError(f"{master} sent no groups or no data version: {body[:80]!r}")
            wrapper = SubscriptionGroupWrapper.from_json(tree)
            vanished = self._groups.replace_all(wrapper)
            names = set(wrapper.subscription_group_table)
            self._known_groups.take(names, wrapper.data_version.counter, vanished, "groups")
        self._save(self._groups)

    # -- offsets --------------------------------------------------------------------------------

    def _fetch_consumer_offsets(self, master: str) -> Callable[[], None] | None:
        body = self._api.get_table(master, RequestCode.GET_ALL_CONSUMER_OFFSET, TIMEOUT_MS)
        if body is None and self._cut_log.objection is None:
            return None
        table = {} if body is None else parse_offset_table(parse_object(body))
        topics, groups = self._known_topics.gone.copy(), self._known_groups.gone.copy()
        return lambda: self._take_consumer_offsets(table, topics, groups)

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
        topics &= self._known_topics.gone
        groups &= self._known_groups.gone
        if topics or groups:
            self._offsets.forget(topics, groups, keep=table)
            self._known_topics.gone -= topics
            self._known_groups.gone -= groups
        self._save(self._offsets)

    def _fetch_delay_offsets(self, master: str) -> Callable[[], None] | None:
        body = self._api.get_table(master, RequestCode.GET_ALL_DELAY_OFFSET, TIMEOUT_MS)
        if body is None and self._cut_log.objection is None:
            return None
        table = {} if body is None else parse_delay_offset_table(parse_object(body))
        return lambda: self._take_delay_offsets(table)

    def _take_delay_offsets(self, table: dict[int, int]) -> None:
        self._delay_offsets.replace_all(table)
        self._save(self._delay_offsets)

    @staticmethod
    def _save(manager: JsonConfigManager) -> None:
        if not manager.save_if_changed():
            raise SlaveSyncError(f"{manager.path} could not be saved, see the preceding log lines")


def vip_address(address: str) -> str | None:
    """The address of a broker's VIP port; None if there cannot be one."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) <= VIP_DISTANCE:
        return None
    return f"{host}:{int(port) - VIP_DISTANCE}"

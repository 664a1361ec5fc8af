"""BrokerRegistration: when this broker registers, with what, and what follows from the answers.

At the start, after 10 s, then every registerNameServerPeriod (kept within 10..60 s), and when a
topic changes. A slave whose master is unknown asks again after 1 s, 2 s, 4 s, then every 5 s:
only an answer to a registration names the master. A name server forgets a broker with its
connection, and a restarted one knows nobody: when a connection to one ends, this broker registers
after 1 s, 2 s, 4 s and so on, until that one has answered or the regular period is shorter. One
registration at a time: `_lock`; that of new topics goes beside it, since clients wait for those and
a regular one may wait for a name server that is down. Called by the scheduled executor and by admin
threads (a topic that mqadmin creates is registered before it is answered). The part of Java's
BrokerController around registerBrokerAll; frames and bodies are broker_outer_api's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from broker.out.broker_outer_api import BrokerIdentity, BrokerOuterAPI, RegisterBrokerResult
from broker.settings.broker_config import BrokerConfig
from broker.topic.system_topics import PERM_READ_WRITE
from broker.topic.topic_config_manager import TopicChange, TopicConfigManager
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper

log = logging.getLogger(__name__)

FIRST_DELAY_MS: Final = 10_000
MIN_PERIOD_MS: Final = 10_000
MAX_PERIOD_MS: Final = 60_000
MIN_SEARCH_MS: Final = 1_000
MAX_SEARCH_MS: Final = 5_000

MasterListener = Callable[[str | None, str | None], None]
"""(masterAddr, haServerAddr), each "ip:port": what a slave follows. Told after every registration
that a name server has answered, changed or not; (None, None): no master is registered now."""


class BrokerRegistration:
    """Keeps the name servers informed. Owned by: `_lock`."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: BrokerIdentity,
        api: BrokerOuterAPI,
        topics: TopicConfigManager,
        executor: ScheduledExecutor,
        *,
        on_master: MasterListener | None = None,
    ) -> None:
        self.config = config
        """Replaced whole when a setting changes."""
        self.identity = identity
        self._api = api
        self._topics = topics
        self._executor = executor
        self._on_master = on_master
        self._lock = threading.Lock()
        self._new_topics_lock = threading.Lock()
        self._stopped = False
        self._is_slave = identity.broker_id != 0
        self._master_addr: str | None = None
        self._search_lock = threading.Lock()
        self._search_delay_ms = 0
        """Of the next search for a master; 0 while none is under way."""
        self._lost_lock = threading.Lock()
        self._lost: set[str] = set()
        """Name servers whose connection ended, and that have not answered a registration since."""
        self._again_delay_ms = 0
        """Of the next registration with those; 0 while none is planned."""
        api.watch_connections(self._on_connection_closed)

    # -- when -----------------------------------------------------------------------------------

    def start(
        self,
        on_registered: Callable[[], None] | None = None,
        *,
        before_first: Callable[[], None] | None = None,
    ) -> None:
        """Register soon, then call `on_registered` (reached or not), then go on regularly.

        Does not wait: the first registration runs in the scheduled executor too, and right before
        it there `before_first`: what must be in order when clients come.
        """
        self._executor.submit(
            "register-broker-first", lambda: self._register_first(before_first, on_registered)
        )
        self._executor.schedule(
            "register-broker",
            self._register_regularly,
            first_delay_ms=FIRST_DELAY_MS,
            period_ms=self._period_ms(),
        )

    def _period_ms(self) -> int:
        return max(MIN_PERIOD_MS, min(self.config.register_name_server_period, MAX_PERIOD_MS))

    def _register_first(
        self, before_first: Callable[[], None] | None, on_registered: Callable[[], None] | None
    ) -> None:
        try:
            if before_first is not None:
                before_first()
        finally:
            self.register_all(check_order=True, force=True)
            self._search_master_if_unknown()
            if on_registered is not None:
                on_registered()

    def unregister(self) -> None:
        """Register no more, and leave the routes: clients turn away before the store closes."""
        with self._lock, self._new_topics_lock:
            self._stopped = True
            self._api.unregister_broker_all(self.identity)

    def on_topic_change(self, change: TopicChange, config: TopicConfig | None) -> None:
        """A TopicListener: ONE waits for the name servers; NEW is the business of NewTopics."""
        if change is TopicChange.ONE and config is not None:
            self.register_one(config.topic_name)

    def _register_regularly(self) -> None:
        self.register_all(check_order=True, force=self.config.force_register)
        self._search_master_if_unknown()

    # -- a name server that lost us --------------------------------------------------------------

    def _on_connection_closed(self, address: str) -> None:
        """A connection of ours to "host:port" ended; those to name servers matter. Any thread;
        quick."""
        if self._stopped or address not in self._api.name_servers:
            return
        with self._lost_lock:
            self._lost.add(address)
            if self._again_delay_ms:
                return
            self._again_delay_ms = MIN_SEARCH_MS
        self._register_later()

    def _register_later(self) -> None:
        self._executor.schedule(
            "register-again",
            self._register_again,
            first_delay_ms=self._again_delay_ms,
            period_ms=None,
        )

    def _register_again(self) -> None:
        try:
            # A registration under way will be answered by those that are back.
            if self._lost and not self._lock.locked():
                self.register_all(check_order=True, force=True)
                self._search_master_if_unknown()
        finally:
            with self._lost_lock:
                delay_ms = self._again_delay_ms * 2
                over = self._stopped or not self._lost or delay_ms >= self._period_ms()
                self._again_delay_ms = 0 if over else delay_ms
            if not over:
                self._register_later()

    # -- a slave's search for its master ---------------------------------------------------------

    def _search_master_if_unknown(self) -> None:
        """Begin to search, unless a search is under way."""
        with self._search_lock:
            nothing_to_find = not self._is_slave or self._master_addr is not None
            nobody_to_ask = self._stopped or not self._api.name_servers
            if nothing_to_find or nobody_to_ask or self._search_delay_ms:
                return
            self._search_delay_ms = MIN_SEARCH_MS
        log.warning(
            "broker %s: no name server of %s names its master; asking again every %s to %s ms",
            self.identity.broker_name,
            list(self._api.name_servers),
            MIN_SEARCH_MS,
            MAX_SEARCH_MS,
        )
        self._search_later()

    def _search_later(self) -> None:
        self._executor.schedule(
            "search-master",
            self._search_master,
            first_delay_ms=self._search_delay_ms,
            period_ms=None,
        )

    def _search_master(self) -> None:
        try:
            # A registration under way will tell; waiting for it would hold a second thread.
            if not self._lock.locked():
                self.register_all(check_order=True, force=True)
        finally:
            with self._search_lock:
                over = self._stopped or self._master_addr is not None
                self._search_delay_ms = 0 if over else min(self._search_delay_ms * 2, MAX_SEARCH_MS)
            if not over:
                self._search_later()

    # -- what -----------------------------------------------------------------------------------

    def register_all(self, *, check_order: bool, force: bool) -> None:
        """Register every topic; unless `force`, only when a name server's edition differs.

        A slave always does: no other answer tells it that its master has moved.
        """
        force = force or self._is_slave
        with self._lock:
            wrapper = self._topics.wrapper()
            timeout_ms = self.config.register_broker_timeout_mills
            if self._stopped or not (
                force or self._api.need_register(self.identity, wrapper.data_version, timeout_ms)
            ):
                return
            results = self._register(wrapper)
        self._use(results, check_order=check_order)

    def register_one(self, topic: str) -> None:
        """Register one topic (registerIncrement) and wait for the answers."""
        with self._lock:
            if self._stopped:
                return
            results = self._register(self._topics.part_for_registration((topic,)))
        self._use(results, check_order=True)

    def register_new(self, topics: Collection[str]) -> None:
        """Register new topics and wait for every name server that answered last time.

        One that did not is told, too, but clients do not wait for it: after an outage it learns
        the topics with the next regular registration at the latest.
        """
        with self._new_topics_lock:
            if not self._stopped:
                wrapper = self._topics.part_for_registration(topics)
                self._register(wrapper, wait_for_failing=False)

    def _register(
        self, wrapper: TopicConfigSerializeWrapper, *, wait_for_failing: bool = True
    ) -> list[RegisterBrokerResult]:
        return self._api.register_broker_all(
            self.identity,
            masked_by_permission(wrapper, self.config.broker_permission),
            timeout_ms=self.config.register_broker_timeout_mills,
            compressed=self.config.compressed_register,
            wait_for_failing=wait_for_failing,
        )

    def _use(self, results: list[RegisterBrokerResult], *, check_order: bool) -> None:
        """What the answers say: to a slave who its master is, to a master which topics are ordered
        (a slave's table is its master's).
        """
        if not results:
            return
        with self._lost_lock:
            self._lost.difference_update(each.name_server for each in results)
        self._use_master(results)
        order_topics = results[0].order_topics
        if check_order and order_topics is not None and not self._is_slave:
            self._topics.update_order_topics(order_topics)

    def _use_master(self, results: list[RegisterBrokerResult]) -> None:
        """Where answers differ, the first name server of the setting that knows a master counts,
        whichever was quickest: a slave must not go to and fro."""
        rank = {name: number for number, name in enumerate(self._api.name_servers)}
        ranked = sorted(results, key=lambda each: rank.get(each.name_server, len(rank)))
        known = next((each for each in ranked if each.master_addr is not None), ranked[0])
        if known.master_addr != self._master_addr:
            log.info("master: %s now, was %s", known.master_addr, self._master_addr)
            self._master_addr = known.master_addr
        if self._on_master is not None:
            self._on_master(known.master_addr, known.ha_server_addr)


def masked_by_permission(
    wrapper: TopicConfigSerializeWrapper, broker_permission: int
) -> TopicConfigSerializeWrapper:
    """The table as registered: a broker that may not do both gives its own perm to every topic.

    Java's copy loses order, filter type and topicSysFlag then; so does this one.
    """
    if broker_permission & PERM_READ_WRITE == PERM_READ_WRITE:
        return wrapper
    return TopicConfigSerializeWrapper(
        data_version=wrapper.data_version,
        topic_config_table={
            name: TopicConfig(
                topic_name=name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=broker_permission,
            )
            for name, config in wrapper.topic_config_table.items()
        },
    )

"""BrokerRegistration: when this broker registers with the name servers, and how it uses the
responses.

Registers at the start, after 10 s, then every registerNameServerPeriod (clamped to 10..60 s), and
when a topic changes. A slave whose master is unknown retries after 1 s, 2 s, 4 s, then every 5 s,
since only the response to a registration names the master. A name server drops a broker when its
connection closes, and a restarted one starts empty. So when a connection to a name server closes,
this broker registers after 1 s, 2 s, 4 s and so on, until that name server has responded or the
regular period is shorter. A slave whose master does not respond asks within a second, and again
while that lasts, whether that has a successor, and registers if so. A registration that a name
server refuses is repeated after 1 s, 2 s, 4 s and so on, too: a name server lets the successor of a
master whose host has vanished in some seconds after it tried first. Registrations are serialized by
`_lock`, except those of new topics: clients wait for those, while a regular one may be blocked by a
name server that is down. Called by the scheduled executor and by admin threads (a topic created by
mqadmin is registered before the request is answered). Corresponds to the part of Java's
BrokerController around registerBrokerAll; frames and bodies are built in broker_outer_api.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import replace
from typing import Final

from broker.out.broker_outer_api import BrokerIdentity, BrokerOuterAPI, RegisterBrokerResult
from broker.settings.broker_config import BrokerConfig
from broker.topic.system_topics import PERM_READ_WRITE
from broker.topic.topic_config_manager import TopicChange, TopicConfigManager
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper
from remoting.body.topic_queue_mapping import TopicQueueMappingInfo

log = logging.getLogger(__name__)

FIRST_DELAY_MS: Final = 10_000
MIN_PERIOD_MS: Final = 10_000
MAX_PERIOD_MS: Final = 60_000
MIN_SEARCH_MS: Final = 1_000
MAX_SEARCH_MS: Final = 5_000

MasterListener = Callable[[str | None, str | None], None]
"""Called with (masterAddr, haServerAddr), each "ip:port", for a slave to follow. Called after every
registration that a name server has answered, changed or not; (None, None) if no master is
registered."""

MappingInfos = Callable[[Container[str]], Mapping[str, TopicQueueMappingInfo]]
"""What is registered about those topics that are static (TopicQueueMappingManager.infos)."""


class BrokerRegistration:
    """Keeps this broker registered. Guarded by: `_lock`."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: BrokerIdentity,
        api: BrokerOuterAPI,
        topics: TopicConfigManager,
        executor: ScheduledExecutor,
        *,
        on_master: MasterListener | None = None,
        mapping_infos: MappingInfos = lambda _topics: {},
        note_missing: Callable[[int], None] = lambda _count: None,
    ) -> None:
        """note_missing: with how many name servers this broker is not registered, after each
        registration with all of them."""
        self.config = config
        """Replaced as a whole when a setting changes."""
        self.identity = identity
        self._api = api
        self._topics = topics
        self._executor = executor
        self._on_master = on_master
        self._mapping_infos = mapping_infos
        self._note_missing = note_missing
        self._lock = threading.Lock()
        self._new_topics_lock = threading.Lock()
        self._stopped = config.begins_isolated
        """Nothing is registered: before `start` of a broker that was isolated, and at the end."""
        self._is_slave = identity.broker_id != 0
        self._master_addr: str | None = None
        self._is_ended = False
        self._search_lock = threading.Lock()
        self._search_delay_ms = 0
        """Delay of the next search for a master; 0 while none is in progress."""
        self._asks_again = False
        """Whether a registration is scheduled because the master does not respond."""
        self._lost_lock = threading.Lock()
        self._lost: set[str] = set()
        """Name servers whose connection closed, or that refused a registration, and that have not
        taken one since."""
        self._again_delay_ms = 0
        """Delay of the next registration with those; 0 while none is scheduled."""
        api.watch_connections(self._on_connection_closed)

    # -- when -----------------------------------------------------------------------------------

    def start(
        self,
        on_registered: Callable[[], None] | None = None,
        *,
        before_first: Callable[[], None] | None = None,
    ) -> None:
        """Register soon, then call `on_registered` (whether that succeeded or not), then register
        periodically. Of an isolated broker, when that is over: nothing is registered before.

        Does not block: the first registration also runs in the scheduled executor, directly after
        `before_first`, which prepares the broker for clients.
        """
        if self.config.begins_isolated:
            with self._lock, self._new_topics_lock:
                self._stopped = self._is_ended
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
        """Stop registering and unregister, so that clients leave before the store closes."""
        with self._lock, self._new_topics_lock:
            self._stopped = self._is_ended = True
            self._api.unregister_broker_all(self.identity)

    def on_topic_change(self, change: TopicChange, config: TopicConfig | None) -> None:
        """A TopicListener: ONE blocks on the name servers; NEW is handled by NewTopics."""
        if change is TopicChange.ONE and config is not None:
            self.register_one(config.topic_name)

    def _register_regularly(self) -> None:
        self.register_all(check_order=True, force=self.config.force_register)
        self._search_master_if_unknown()

    # -- a name server that dropped this broker
    # --------------------------------------------------------------

    def _on_connection_closed(self, address: str) -> None:
        """A connection to "host:port" closed; only those to name servers matter. Any thread; does
        not block."""
        if not self._stopped and address in self._api.name_servers:
            self._repeat_with([address])

    def _repeat_with(self, name_servers: Collection[str]) -> None:
        """Register soon, and again until these have taken it or the regular period is shorter."""
        with self._lost_lock:
            self._lost.update(name_servers)
            if not name_servers or self._again_delay_ms:
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
            # A registration in progress will be answered by the name servers that have recovered.
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
        """Start a search, unless one is in progress."""
        with self._search_lock:
            nothing_to_find = not self._is_slave or self._master_addr is not None
            nobody_to_ask = self._stopped or not self._api.name_servers
            if nothing_to_find or nobody_to_ask or self._search_delay_ms:
                return
            self._search_delay_ms = MIN_SEARCH_MS
        log.warning(
            "broker %s: none of the name servers %s knows its master; retrying every %s to %s ms",
            self.identity.broker_name,
            list(self._api.name_servers),
            MIN_SEARCH_MS,
            MAX_SEARCH_MS,
        )
        self._search_later()

    def master_is_silent(self) -> None:
        """A slave's master does not respond, and there may be another one by now: ask soon. At most
        once a second, and not while a registration is in progress, which will answer this, too. Any
        thread; does not block."""
        with self._search_lock:
            if self._stopped or not self._api.name_servers or self._asks_again:
                return
            self._asks_again = True
        self._executor.schedule(
            "ask-for-master", self._ask_for_master, first_delay_ms=MIN_SEARCH_MS, period_ms=None
        )

    def _ask_for_master(self) -> None:
        try:
            if not self._lock.locked() and not self._is_still_the_master():
                self.register_all(check_order=True, force=True)
        finally:
            with self._search_lock:
                self._asks_again = False

    def _is_still_the_master(self) -> bool:
        """Whether all name servers that say who belongs to our group (901) name the known master:
        a registration, with every topic of this broker, would say the same. Those of RocketMQ 4.9
        do not answer that."""
        timeout_ms = self.config.register_broker_timeout_mills
        groups = self._api.get_broker_member_groups(self.identity, timeout_ms)
        return bool(groups) and all(group.get(0) == self._master_addr for group in groups)

    def _search_later(self) -> None:
        self._executor.schedule(
            "search-master",
            self._search_master,
            first_delay_ms=self._search_delay_ms,
            period_ms=None,
        )

    def _search_master(self) -> None:
        try:
            # A registration in progress will answer this; waiting for it would block a second
            # thread.
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
        """Register every topic; unless `force`, only if a name server's data version differs.

        A slave always registers: no other response tells it that its master has moved.
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
        self._note_missing(len(self._api.name_servers) - len(results))
        self._repeat_with(self._api.registration_refused_by())
        self._use(results, check_order=check_order)

    def register_one(self, topic: str) -> None:
        """Register one topic (registerIncrement) and wait for the responses."""
        with self._lock:
            if self._stopped:
                return
            results = self._register(self._topics.part_for_registration((topic,)))
        self._use(results, check_order=True)

    def register_new(self, topics: Collection[str]) -> None:
        """Register new topics and wait for every name server that responded last time.

        The others are sent the topics too, but clients do not wait for them: after an outage a name
        server learns the topics with the next regular registration at the latest.
        """
        with self._new_topics_lock:
            if not self._stopped:
                wrapper = self._topics.part_for_registration(topics)
                self._register(wrapper, wait_for_failing=False)

    def _register(
        self, wrapper: TopicConfigSerializeWrapper, *, wait_for_failing: bool = True
    ) -> list[RegisterBrokerResult]:
        shown = masked_by_permission(wrapper, self.config.broker_permission)
        if mappings := self._mapping_infos(wrapper.topic_config_table):
            shown = replace(shown, topic_queue_mapping_info_map=dict(mappings))
        return self._api.register_broker_all(
            self.identity,
            shown,
            timeout_ms=self.config.register_broker_timeout_mills,
            compressed=self.config.compressed_register,
            wait_for_failing=wait_for_failing,
        )

    def _use(self, results: list[RegisterBrokerResult], *, check_order: bool) -> None:
        """Apply the responses: a slave learns its master, a master learns which topics are ordered
        (a slave copies its master's table).
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
        """If responses differ, the first configured name server that knows a master wins,
        regardless of the order of arrival, so that a slave does not flap between masters."""
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
    """The table as registered: unless the broker may both read and write, every topic gets its
    perm.

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

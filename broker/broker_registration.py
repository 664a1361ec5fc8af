"""BrokerRegistration: when this broker registers, with what, and what follows from the answers.

At the start, after 10 s, then every registerNameServerPeriod (kept within 10..60 s), and when a
topic changes. One registration at a time: `_lock`. Called by the scheduled executor and by admin
threads (a topic that mqadmin creates is registered before it is answered). The part of Java's
BrokerController around registerBrokerAll; frames and bodies are broker_outer_api's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from broker.broker_config import BrokerConfig
from broker.broker_outer_api import BrokerIdentity, BrokerOuterAPI, RegisterBrokerResult
from broker.scheduled_executor import ScheduledExecutor
from broker.system_topics import PERM_READ_WRITE
from broker.topic_config_manager import TopicChange, TopicConfigManager
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper

log = logging.getLogger(__name__)

FIRST_DELAY_MS: Final = 10_000
MIN_PERIOD_MS: Final = 10_000
MAX_PERIOD_MS: Final = 60_000

MasterListener = Callable[[str | None, str | None], None]
"""(masterAddr, haServerAddr) of the answers: what a slave follows."""


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
        self._pending = threading.Event()
        self._stopped = False

    # -- when -----------------------------------------------------------------------------------

    def start(self, on_registered: Callable[[], None] | None = None) -> None:
        """Register soon, then call `on_registered` (reached or not), then go on regularly.

        Does not wait: the first registration runs in the scheduled executor too.
        """
        self._executor.submit("register-broker-first", lambda: self._register_first(on_registered))
        period_ms = max(MIN_PERIOD_MS, min(self.config.register_name_server_period, MAX_PERIOD_MS))
        self._executor.schedule(
            "register-broker",
            self._register_regularly,
            first_delay_ms=FIRST_DELAY_MS,
            period_ms=period_ms,
        )

    def _register_first(self, on_registered: Callable[[], None] | None) -> None:
        self.register_all(check_order=True, oneway=False, force=True)
        if on_registered is not None:
            on_registered()

    def unregister(self) -> None:
        """Register no more, and leave the routes: clients turn away before the store closes."""
        with self._lock:
            self._stopped = True
            self._api.unregister_broker_all(self.identity)

    def on_topic_change(self, change: TopicChange, config: TopicConfig | None) -> None:
        """A TopicListener: ONE waits for the name servers, ALL does not."""
        if change is TopicChange.ONE and config is not None:
            self.register_one(config)
        elif change is TopicChange.ALL and not self._pending.is_set():
            # A thousand new topics in a burst need a few registrations, not a thousand.
            self._pending.set()
            self._executor.submit("register-topics", self._register_pending)

    def _register_pending(self) -> None:
        self._pending.clear()
        self.register_all(check_order=False, oneway=True, force=True)

    def _register_regularly(self) -> None:
        self.register_all(check_order=True, oneway=False, force=self.config.force_register)

    # -- what -----------------------------------------------------------------------------------

    def register_all(self, *, check_order: bool, oneway: bool, force: bool) -> None:
        """Register every topic; unless `force`, only when a name server's edition differs."""
        with self._lock:
            wrapper = self._topics.wrapper()
            timeout_ms = self.config.register_broker_timeout_mills
            if self._stopped or not (
                force or self._api.need_register(self.identity, wrapper.data_version, timeout_ms)
            ):
                return
            results = self._register(wrapper, oneway=oneway)
        self._use(results, check_order=check_order)

    def register_one(self, config: TopicConfig) -> None:
        """Register one topic (registerIncrement) and wait for the answers."""
        wrapper = TopicConfigSerializeWrapper(
            data_version=self._topics.data_version,
            topic_config_table={config.topic_name: config},
        )
        with self._lock:
            if self._stopped:
                return
            results = self._register(wrapper, oneway=False)
        self._use(results, check_order=False)

    def _register(
        self, wrapper: TopicConfigSerializeWrapper, *, oneway: bool
    ) -> list[RegisterBrokerResult]:
        return self._api.register_broker_all(
            self.identity,
            masked_by_permission(wrapper, self.config.broker_permission),
            oneway=oneway,
            timeout_ms=self.config.register_broker_timeout_mills,
            compressed=self.config.compressed_register,
        )

    def _use(self, results: list[RegisterBrokerResult], *, check_order: bool) -> None:
        """The first answer counts, for addresses the first one that knows a master."""
        if not results:
            return
        known = next((each for each in results if each.master_addr is not None), results[0])
        if self._on_master is not None:
            self._on_master(known.master_addr, known.ha_server_addr)
        order_topics = results[0].order_topics
        if check_order and order_topics is not None:
            self._topics.update_order_topics(order_topics)


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

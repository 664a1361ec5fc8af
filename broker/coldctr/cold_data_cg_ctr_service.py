"""ColdDataCgCtrService: how many cold bytes each group has read, and which groups are slowed.

Loop thread of `remoting`, as the admin requests about it (2001 to 2003). Counters run over rounds
of five seconds. Nothing is stored: thresholds of single groups end with the process, as in
RocketMQ. What is cold is judged elsewhere. RocketMQ's counterpart: ColdDataCgCtrService of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.coldctr.cold_ctr_strategy import ColdCtrStrategy
from broker.settings.broker_config import BrokerConfig
from broker.topic.system_topics import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS
from remoting.body.cold_data_flow_ctr_info import AccAndTimeStamp, ColdDataFlowCtrInfo

log = logging.getLogger(__name__)

ROUND_MS: Final = 5_000
_RESIDE_MS: Final = 60_000
"""How long a group is listed after its last cold read."""
_ADAPTIVE: Final = "||adaptive"
"""Behind a group's name: its threshold that the strategy has set."""
_MOST_DECELERATED: Final = 3
"""In one round."""
_NEVER_SLOWED: Final = frozenset(
    (
        *SYSTEM_GROUPS,
        *("DEFAULT_CONSUMER", "SCHEDULE_CONSUMER", "__MONITOR_CONSUMER", "CID_SYS_RMQ_TRANS"),
    )
)


class _GroupReads:
    """What one group has read. `cold_acc`: bytes of this round; times are wall clock ms."""

    __slots__ = ("cold_acc", "create_ms", "last_cold_read_ms")

    def __init__(self, now_ms: int) -> None:
        self.cold_acc = 0
        self.create_ms = self.last_cold_read_ms = now_ms


class ColdDataCgCtrService:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        config: BrokerConfig,
        strategy: ColdCtrStrategy,
        now_ms: Callable[[], int],
        *,
        enabled: bool,
    ) -> None:
        """now_ms: the wall clock. enabled: coldDataFlowControlEnable."""
        self.use(config, enabled=enabled)
        self._strategy = strategy
        self._now_ms = now_ms
        self._global_acc = 0
        self._reads: dict[str, _GroupReads] = {}
        self._thresholds: dict[str, int] = {}
        """By group, of operators; by group and _ADAPTIVE, of the strategy."""

    def use(self, config: BrokerConfig, *, enabled: bool) -> None:
        """Apply settings. Thresholds are bytes of a round; with coldCtrStrategyEnable the strategy
        moves those that no operator has set."""
        self._config = config
        self._enabled = enabled

    # -- pulls -----------------------------------------------------------------------------------

    def is_spared(self, group: str) -> bool:
        """Whether the reads of `group` are neither counted nor slowed."""
        return group in _NEVER_SLOWED or group.startswith(SYSTEM_GROUP_PREFIX)

    def add(self, group: str, cold_bytes: int) -> None:
        """`group` was given `cold_bytes` of cold records."""
        if cold_bytes <= 0:
            return
        self._global_acc += cold_bytes
        now_ms = self._now_ms()
        reads = self._reads.get(group)
        if reads is None:
            reads = self._reads[group] = _GroupReads(now_ms)
        reads.cold_acc += cold_bytes
        reads.last_cold_read_ms = now_ms

    def is_limited(self, group: str) -> bool:
        """Whether `group` has read as much in this round as it may, or all groups together have."""
        reads = self._reads.get(group)
        if reads is None or not self._enabled or self.is_spared(group):
            return False
        if reads.cold_acc >= self._threshold(group):
            return True
        return self._global_acc >= self._config.global_cold_read_threshold

    # -- operators -------------------------------------------------------------------------------

    def set_threshold(self, group: str, cold_bytes: int) -> None:
        """An operator gives `group` a threshold of its own (2001)."""
        self._thresholds[group] = cold_bytes

    def remove_threshold(self, group: str) -> None:
        """And takes it away (2002)."""
        self._thresholds.pop(group, None)

    def info(self) -> ColdDataFlowCtrInfo:
        """Counters of this round and thresholds (2003)."""
        return ColdDataFlowCtrInfo(
            runtime_table={
                group: AccAndTimeStamp(
                    cold_acc=reads.cold_acc,
                    create_time_mills=reads.create_ms,
                    last_cold_read_time_mills=reads.last_cold_read_ms,
                )
                for group, reads in self._reads.items()
            },
            config_table=dict(self._thresholds),
            cg_cold_read_threshold=self._config.cg_cold_read_threshold,
            global_cold_read_threshold=self._config.global_cold_read_threshold,
            global_acc=self._global_acc,
        )

    # -- rounds ----------------------------------------------------------------------------------

    def end_round(self) -> None:
        """Move thresholds, forget groups that read nothing cold any more, begin to count anew."""
        adapts = self._config.cold_ctr_strategy_enable
        if adapts:
            self._strategy.collect(self._global_acc)
        self._end_groups(self._now_ms())
        if self._is_global_limit_passed:
            log.info(
                "cold reads: %s bytes of all groups in %s ms, globalColdReadThreshold = %s",
                self._global_acc,
                ROUND_MS,
                self._config.global_cold_read_threshold,
            )
        if adapts:
            self._decelerate()
        else:
            for key in [key for key in self._thresholds if key.endswith(_ADAPTIVE)]:
                del self._thresholds[key]
        self._global_acc = 0

    def _end_groups(self, now_ms: int) -> None:
        for group, reads in list(self._reads.items()):
            if now_ms >= reads.last_cold_read_ms + _RESIDE_MS:
                del self._reads[group]
                self._thresholds.pop(group + _ADAPTIVE, None)
                continue
            threshold = self._threshold(group)
            if reads.cold_acc >= threshold:
                log.info(
                    "group %s: read %s cold bytes in %s ms, its threshold is %s",
                    *(group, reads.cold_acc, ROUND_MS, threshold),
                )
                is_free = group not in self._thresholds and not self._is_global_limit_passed
                if self._config.cold_ctr_strategy_enable and is_free:
                    self._move(group + _ADAPTIVE, self._strategy.promoted(threshold))
            reads.cold_acc = 0

    def _decelerate(self) -> None:
        """The highest thresholds of the strategy go down, if it says so."""
        highest = sorted(self._thresholds.items(), key=lambda item: -item[1])
        adaptive = [(key, value) for key, value in highest if self._is_adaptive(key)]
        for key, value in adaptive[:_MOST_DECELERATED]:
            lowered = self._strategy.decelerated(
                value,
                self._config.cg_cold_read_threshold,
                is_global_limit_passed=self._is_global_limit_passed,
            )
            self._move(key, lowered)

    def _move(self, key: str, threshold: int | None) -> None:
        if threshold is not None:
            self._thresholds[key] = threshold

    def _is_adaptive(self, key: str) -> bool:
        """Whether the threshold under `key` is the strategy's, and the one that counts."""
        return key.endswith(_ADAPTIVE) and key.removesuffix(_ADAPTIVE) not in self._thresholds

    @property
    def _is_global_limit_passed(self) -> bool:
        return self._global_acc > self._config.global_cold_read_threshold

    def _threshold(self, group: str) -> int:
        own = self._thresholds.get(group)
        if own is None and self._config.cold_ctr_strategy_enable:
            own = self._thresholds.get(group + _ADAPTIVE)
        return self._config.cg_cold_read_threshold if own is None else own

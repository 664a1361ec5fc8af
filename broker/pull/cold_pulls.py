"""ColdPulls: what a pull has to do with cold data: counted, refused, or held for a while.

Loop thread of `remoting`, beside PullMessageProcessor, which asks it only while `enabled`. Follows
the part about cold data of RocketMQ's PullMessageProcessor (5.3.3): pops are neither counted nor
slowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from broker.coldctr.cold_data_cg_ctr_service import ColdDataCgCtrService
from broker.coldctr.cold_data_check_service import ColdDataCheckService
from broker.coldctr.cold_data_pull_request_hold_service import (
    HOLD_MS,
    ColdDataPullRequestHoldService,
)
from broker.longpolling.pull_header import HeldPull, PullHeader, PullRequest, Wanted
from broker.processor.held_rights import CheckRights
from broker.settings.broker_config import BrokerConfig
from broker.store_access.checked_units import CheckedUnits
from ipc.control_page import ControlPage
from ipc.queue_table import QueueTableReader
from remoting.body.heartbeat import ConsumeType
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.control_slots import MAX_PHY_OFFSET
from store.stored_units import CQ_UNIT

_REFUSAL: Final = "This consumer group is reading cold data. It has been flow control"

ServeHeld = Callable[[HeldPull], object]
"""Runs a pull again and answers it in any case."""


class ColdPulls:
    """Owned by: the loop thread. `enabled`: coldDataFlowControlEnable."""

    def __init__(
        self,
        ctr: ColdDataCgCtrService,
        check: ColdDataCheckService,
        page: ControlPage,
        table: QueueTableReader,
        units: CheckedUnits,
        consume_type: Callable[[str], ConsumeType | None],
        monotonic_ms: Callable[[], int],
        *,
        enabled: bool,
    ) -> None:
        """consume_type: of a live group, from its latest heartbeat."""
        self.enabled = enabled
        self.ctr: Final = ctr
        self._check = check
        self._counters = page.counters
        self._table = table
        self._units = units
        self._consume_type = consume_type
        self._monotonic_ms = monotonic_ms
        self._serve: ServeHeld | None = None
        self.hold_service: Final = ColdDataPullRequestHoldService(self._serve_held)

    def use(self, config: BrokerConfig, *, enabled: bool) -> None:
        """Apply changed settings. Pulls that are already held keep their deadlines."""
        self.enabled = enabled
        self.ctr.use(config, enabled=enabled)

    def serve_with(self, serve: ServeHeld) -> None:
        """serve: runs a pull again and answers it in any case. Once, at the start."""
        self._serve = serve

    def holds(
        self,
        request: PullRequest,
        wanted: Wanted,
        rights_of: Callable[[], CheckRights | None] = lambda: None,
    ) -> bool:
        """Whether the pull waits now, since its group reads too much cold data; it is answered
        later. rights_of: of the pull, if it waits. Raises RequestError(SYSTEM_BUSY): its client is
        to come again."""
        header = request.header
        if not self._is_slowed(header):
            return False
        kind = self._consume_type(header.consumerGroup)
        if kind is ConsumeType.CONSUME_POP:
            return False
        now_ms = self._monotonic_ms()
        held = HeldPull(
            request=request,
            wanted=wanted,
            queue_offset=header.queueOffset,
            since_ms=now_ms,
            deadline_ms=now_ms + HOLD_MS,
            check_rights=rights_of(),
        )
        if kind is ConsumeType.CONSUME_PASSIVELY or not self.hold_service.hold(held):
            raise RequestError(ResponseCode.SYSTEM_BUSY, _REFUSAL)
        return True

    def add(self, group: str, records: Iterable[tuple[int, int]]) -> None:
        """Count what of `records` (phy_offset, size; in their order) is cold; `group` is given
        them."""
        if self.ctr.is_spared(group):
            return
        edge, check = self._check.cold_edge(self._counters[MAX_PHY_OFFSET]), self._check
        cold = 0
        for phy, size in records:
            if phy >= edge:
                break
            if not check.is_in_page_cache(phy):
                cold += size
        self.ctr.add(group, cold)

    def _is_slowed(self, header: PullHeader) -> bool:
        if not self.ctr.is_limited(header.consumerGroup):
            return False
        low, high = self._table.offsets(header.topic, header.queueId)
        if not low <= header.queueOffset < high:
            return False
        # The unit is not checked against its record: that would read the cold page.
        topic, queue_id, offset = header.topic, header.queueId, header.queueOffset
        raw = self._units.read_filtered(topic, queue_id, offset, 1, codes=None, limit=0)
        if not raw:
            return False
        phy: int = CQ_UNIT.unpack_from(raw)[0]
        return phy < self._check.cold_edge(self._counters[MAX_PHY_OFFSET])

    def _serve_held(self, pull: HeldPull) -> None:
        """One message, if the group still reads too much."""
        header = pull.request.header
        if self.enabled and self._is_slowed(header):
            header.maxMsgNums = 1
        if self._serve is not None:
            self._serve(pull)

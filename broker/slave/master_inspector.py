"""MasterInspector: finds the master and checks whether its log matches the local one.

Process `ha` of a slave must not use the remoting protocol, so it sends the command "inspect_master"
over the channel ha->remoting before every connection. The inspection queries the master's remoting
port for the bounds of its log (28, commitLogMinOffset and commitLogMaxOffset) and for stored
records (33); this broker, Java 4.9 and 5.x answer those alike. Runs on the thread that serves the
channel and may block it for seconds; `set_master` is called by the registration's thread. It
changes nothing: process `ha` acts on the verdict.

    verdict     means                                                   ha
    wait        no master is known, or it does not respond              retries
    go          the logs match as far as they can be compared           connects, reports its max
    start_at    the local log is empty: it starts at                    connects
                start_offset, the master's min (0: see HAClient
                for how to request all)
    ahead       the local log has more than the master's                rejects the link, or
    diverged    the last local record is not the master's               truncates to common_offset
    below_min   the data needed next is deleted on the master           starts over
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from broker.slave.log_comparison import (
    OwnLog,
    find_common_end,
    has_same_end,
    newest_queued_offset,
)
from broker.slave.remote_log import MasterFacts, MasterRefusesError, MasterSilentError, RemoteLog
from ha.inspection import Inspection, Verdict
from ipc.clock import Clock
from store.commit_log_reader import CommitLogReader

if TYPE_CHECKING:
    from broker.store_access.store_access import StoreAccess
    from remoting.remoting_client import RemotingClient

log = logging.getLogger(__name__)

_INSPECTION_MS: Final = 8_000
_BLIND_WAIT_MS: Final = 10_000
_UNREGISTERED_WAIT_MS: Final = 3_000
"""Without name servers. A link to a master that nobody could ask about has no checksums, not even
to one of ours."""
_LEAST_ADDRESS: Final = 6
"""RocketMQ ignores a shorter haMasterAddress."""


# -- the decision ------------------------------------------------------------------------------


def is_empty(own_min: int, own_max: int) -> bool:
    """Whether the log has no data. True also if only byte 0 (always zero) was written to request
    all, or if the log starts at a higher offset but has received nothing yet."""
    return own_max <= own_min or (own_min == 0 and own_max == 1)


def judge_bounds(own_min: int, own_max: int, master: MasterFacts) -> tuple[Verdict, str] | None:
    """The verdict from the bounds alone; None if bytes must be compared. Pure."""
    if is_empty(own_min, own_max):
        return Verdict.START_AT, f"the log is empty: it will start at {master.min_offset}"
    if own_max > master.max_offset:
        surplus = own_max - master.max_offset
        return Verdict.AHEAD, f"the local log ends {surplus} bytes after the master's"
    if own_max < master.min_offset:
        missing = master.min_offset - own_max
        return (
            Verdict.BELOW_MIN,
            f"{missing} bytes between the local log and the master's are deleted",
        )
    if own_max == master.min_offset:
        return Verdict.GO, "the master has deleted all of the local log's range: not comparable"
    return None


class MasterInspector:
    """See the module. Guarded by: its own lock; one inspection at a time."""

    def __init__(
        self,
        client: RemotingClient,
        reader: CommitLogReader,
        store: StoreAccess,
        clock: Clock,
        *,
        own_addresses: Collection[str],
        has_name_servers: Callable[[], bool],
        on_result: Callable[[Inspection], None] = lambda _result: None,
        on_silence: Callable[[], None] = lambda: None,
    ) -> None:
        """reader: not shared with others. own_addresses: "ip:port" of this broker's remoting and HA
        ports. has_name_servers: whether there is somebody to ask who the master is. on_result:
        called with the result of every inspection, on the inspecting thread. on_silence: the known
        master does not respond, there may be another one by now; must not block.
        """
        self._client = client
        self._reader = reader
        self._store = store
        self._clock = clock
        self._own_addresses = frozenset(own_addresses)
        self._has_name_servers = has_name_servers
        self._on_result = on_result
        self._on_silence = on_silence
        self._lock = threading.Lock()
        self._known: tuple[str | None, str | None] = (None, None)
        self._last_master: tuple[str | None, str | None] = (None, None)
        """Like _known, from the last time a name server reported a master."""
        self._not_compared_since_ms: int | None = None

    # -- addresses -----------------------------------------------------------------------------

    def set_master(self, master_addr: str | None, ha_addr: str | None) -> None:
        """The master last reported by the name servers (remoting and HA "ip:port"). Any thread.

        A name server that reports no master may have been restarted together with it: while the HA
        address is unchanged, the last known master is inspected. It is followed only if it responds
        and the logs match."""
        if (master_addr, ha_addr) != self._known:
            log.info("master %s, HA %s (were %s, %s)", master_addr, ha_addr, *self._known)
            self._known = (master_addr or None, ha_addr or None)
        if master_addr and ha_addr:
            self._last_master = (master_addr, ha_addr)

    @property
    def master_address(self) -> str | None:
        """The master's remoting "ip:port"; None if unknown or this broker itself. Any thread."""
        address = self._known[0]
        return None if address in self._own_addresses else address

    # -- inspecting ----------------------------------------------------------------------------

    def handle(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The command "inspect_master": {max_phy_offset, min_phy_offset, ha_master_address}."""
        result = self.inspect(
            arguments["max_phy_offset"],
            arguments["min_phy_offset"],
            arguments.get("ha_master_address"),
        )
        return asdict(result)

    def inspect(self, own_max: int, own_min: int, fixed_ha_address: str | None) -> Inspection:
        """Inspect the master. Raises StoreError if local files cannot be read."""
        with self._lock:
            result = self._inspect(own_max, own_min, fixed_ha_address)
        self._on_result(result)
        return result

    def _inspect(self, own_max: int, own_min: int, fixed: str | None) -> Inspection:
        is_fixed = fixed is not None and len(fixed) >= _LEAST_ADDRESS
        master_address, learnt = self._known
        if master_address is None and learnt == self._last_master[1]:
            master_address = self._last_master[0]
        ha_address = fixed if is_fixed else learnt
        obstacle = self._obstacle(ha_address, master_address, is_fixed)
        if obstacle is not None:
            return Inspection(verdict=Verdict.WAIT, text=obstacle, master_address=master_address)
        if master_address is None or master_address in self._own_addresses:
            found = self._unregistered(own_min, own_max, ha_address)
        else:
            found = self._ask(master_address, own_min, own_max)
        return Inspection(**(found | {"ha_address": ha_address, "master_address": master_address}))

    def _obstacle(self, ha: str | None, master: str | None, is_fixed: bool) -> str | None:
        if ha is None:
            return (
                "no master is known: no master with this brokerName is registered with the name "
                "servers, and haMasterAddress is not set"
            )
        if ha in self._own_addresses:
            return (
                f"HA address {ha} is this broker's own: set the master's, or a different brokerId"
            )
        if not is_fixed and (master is None or master in self._own_addresses):
            return f"the name server reports HA address {ha}, but {master} as the master"
        return None

    def _unregistered(self, own_min: int, own_max: int, ha: str | None) -> dict[str, Any]:
        """haMasterAddress is set, and nobody says who the master is. After a failover what listens
        there may lack records that the local log has: as long as a name server may still say who it
        is, that is waited for."""
        text = f"no master is registered: the log at haMasterAddress {ha} was not compared"
        if self._has_name_servers() and not is_empty(own_min, own_max):
            return {
                "verdict": Verdict.WAIT,
                "text": f"{text}; waiting until one is registered with a name server of "
                "namesrvAddr (if it uses others, name those here, too; with an empty namesrvAddr "
                "it is followed without a comparison)",
            }
        return self._not_compared(own_min, own_max, text, wait_ms=_UNREGISTERED_WAIT_MS)

    def _ask(self, address: str, own_min: int, own_max: int) -> dict[str, Any]:
        master: RemoteLog | None = None
        try:
            master = RemoteLog(self._client, address, self._clock, _INSPECTION_MS)
            found = self._compare(master, own_min, own_max)
        except MasterRefusesError as error:
            # A Java master refuses 28 for a second or two after its boot.
            text = f"{error}: the logs were not compared"
            found = self._not_compared(own_min, own_max, text, wait_ms=_BLIND_WAIT_MS)
            return found | {"ha_protocol": 0 if master is None else master.ha_protocol}
        except MasterSilentError as error:
            # Even with haMasterAddress: who listens there may be the successor of this master, and
            # lack records that the local log has.
            self._on_silence()
            return {"verdict": Verdict.WAIT, "text": str(error)}
        self._not_compared_since_ms = None
        return found | {
            "master_min": master.min_offset,
            "master_max": master.max_offset,
            "ha_protocol": master.ha_protocol,
        }

    def _not_compared(
        self, own_min: int, own_max: int, text: str, *, wait_ms: int = 0
    ) -> dict[str, Any]:
        """The verdict without a comparison: a non-empty log continues at its end, after wait_ms. An
        empty one waits a while for the master's min offset, then lets the master decide where to
        start."""
        empty = is_empty(own_min, own_max)
        now_ms = self._clock.monotonic_ms()
        if self._not_compared_since_ms is None:
            self._not_compared_since_ms = now_ms
        if now_ms - self._not_compared_since_ms < (_BLIND_WAIT_MS if empty else wait_ms):
            return {"verdict": Verdict.WAIT, "text": text}
        if not empty:
            return {"verdict": Verdict.GO, "text": text, "start_offset": own_max}
        return {
            "verdict": Verdict.GO,
            "text": f"{text}; the master decides where the local log starts",
        }

    def _compare(self, master: RemoteLog, own_min: int, own_max: int) -> dict[str, Any]:
        facts = MasterFacts(master.min_offset, master.max_offset)
        judged = judge_bounds(own_min, own_max, facts)
        if judged is not None and judged[0] is not Verdict.AHEAD:
            verdict, text = judged
            start = facts.min_offset if verdict is Verdict.START_AT else own_max
            return {"verdict": verdict, "text": text, "start_offset": start}
        own = OwnLog(self._reader, own_min, own_max, lambda: newest_queued_offset(self._store))
        if judged is None and has_same_end(own, master):
            text = "the last record matches the master's"
            return {"verdict": Verdict.GO, "text": text, "start_offset": own_max}
        verdict, text = judged or (
            Verdict.DIVERGED,
            "the last local record does not match the master's",
        )
        try:
            common = find_common_end(own, master)
        except MasterRefusesError as error:
            # The logs differ: an incomplete comparison must not result in "go".
            return {"verdict": Verdict.WAIT, "text": f"{text}, but: {error}"}
        text = (
            f"{text} (local end {own_max}, the master's {facts.max_offset}); {_common_text(common)}"
        )
        log.warning("%s: %s", verdict, text)
        return {"verdict": verdict, "text": text, "common_offset": common, "start_offset": own_max}


def _common_text(common: int) -> str:
    if common < 0:
        return "no common record"
    return f"the last common record ends at {common}"

"""ReturningMaster: a master that starts takes over how far consumers came on its slaves.

While a master is away consumers go on at a slave and commit there; the original's master comes
back with its old offsets and its slaves copy those. This one asks every live slave of its group
for its consumer offsets (43) before it registers, so before clients come back, and keeps the
larger offset of each queue, never beyond the queue's end. Slaves that were not there or did not
answer are asked again after 5 s and after 30 s, each until it has answered once; after that
slaves follow their master (slave_synchronize).

Runs in process `remoting` on the scheduled executor; on masters only. What it cannot know: an
offset that an operator set back in the last seconds before the master stopped, before a slave
had seen it, is raised again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from broker.json_config_manager import parse_object
from broker.offset.consumer_offset_manager import ConsumerOffsetManager, parse_offset_table
from broker.out.broker_outer_api import BrokerAnswerError
from broker.slave.group_members import MemberAddress
from broker.slave.slave_synchronize import TableSource
from ipc.scheduled_executor import ScheduledExecutor
from remoting.errors import RemotingError
from remoting.request_code import RequestCode

log = logging.getLogger(__name__)

ASK_TIMEOUT_MS: Final = 3_000
ASK_AGAIN_MS: Final = (5_000, 30_000)
"""After the start."""


class ReturningMaster:
    """One start's questions to the slaves. Owned by: `_lock`, one round at a time."""

    def __init__(
        self,
        members: Callable[[], list[MemberAddress] | None],
        api: TableSource,
        offsets: ConsumerOffsetManager,
        max_offset: Callable[[str, int], int],
    ) -> None:
        """`members`: everybody else in the group (GroupMembers); `max_offset(topic, queue_id)`:
        the end of a queue, 0 for an unknown one."""
        self._members = members
        self._api = api
        self._offsets = offsets
        self._max_offset = max_offset
        self._lock = threading.Lock()
        self._answered: set[str] = set()

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """The later rounds; the first is BrokerRegistration.start(before_first=ask_slaves)."""
        for delay_ms in ASK_AGAIN_MS:
            executor.schedule(
                f"ask-slaves-after-{delay_ms}-ms",
                self.ask_slaves,
                first_delay_ms=delay_ms,
                period_ms=None,
            )

    def ask_slaves(self) -> None:
        """One round: every slave that has not answered yet, all at once, ASK_TIMEOUT_MS at most."""
        with self._lock:
            slaves = [
                member.address
                for member in self._members() or ()
                if member.broker_id > 0 and member.address not in self._answered
            ]
            if not slaves:
                return
            with ThreadPoolExecutor(len(slaves), "AskSlaves") as pool:
                tables = list(pool.map(self._ask, slaves))
            for slave, table in zip(slaves, tables, strict=True):
                if table is not None:
                    self._answered.add(slave)
                    self._take(slave, table)
            self._offsets.save_if_changed()

    def _ask(self, slave: str) -> dict[str, dict[int, int]] | None:
        try:
            body = self._api.get_table(slave, RequestCode.GET_ALL_CONSUMER_OFFSET, ASK_TIMEOUT_MS)
            return {} if body is None else parse_offset_table(parse_object(body))
        except (RemotingError, BrokerAnswerError, ValueError) as error:
            log.warning("slave %s: skipped, its consumer offsets are unknown: %s", slave, error)
            return None

    def _take(self, slave: str, table: dict[str, dict[int, int]]) -> None:
        raised = self._offsets.raise_to(table, self._max_offset)
        log.info(
            "slave %s: asked for its consumer offsets, %s were further than this master's",
            slave,
            raised,
        )

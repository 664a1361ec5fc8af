"""ReturningMaster: a starting master adopts the consumer offsets committed on its slaves.

While a master is down, consumers continue on a slave and commit there. A RocketMQ master returns
with its old offsets, and its slaves copy those. This master requests the consumer offsets (43) of
every live slave of its group before it registers, that is, before clients return, and keeps the
larger offset of each queue, limited to where the queue ended at the start. Slaves that did not
respond are retried after 5 s and after 30 s, each until its first response; from then on slaves
copy the master's offsets (slave_synchronize). Registered members that are not known to be our
slaves are not asked: with their offsets consumers could be made to skip messages. A master that
starts isolated asks each slave when that is linked (`take_back`, pre_online.py). Where slaves
deliver in the master's place, it also adopts how far they came: delay levels (45), timers (60), and
the offsets of this broker's own groups, which revive popped messages and check transactions.

Runs in process `remoting` on the scheduled executor; on masters only. Limitation: an offset that an
operator reset in the last seconds before the master stopped, before a slave had copied it, is
raised again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from broker.json_config_manager import parse_object
from broker.offset.consumer_offset_manager import (
    ConsumerOffsetManager,
    OffsetTable,
    parse_offset_table,
)
from broker.out.broker_outer_api import BrokerAnswerError, BrokerOuterAPI
from broker.schedule.schedule_offset_manager import (
    ScheduleOffsetManager,
    parse_delay_offset_table,
)
from broker.slave.group_members import FindMembers, MemberAddress
from broker.slave.timer_take_back import TimerTakeBack
from broker.topic.system_topics import SCHEDULE_TOPIC
from ipc.scheduled_executor import ScheduledExecutor
from remoting.errors import RemotingError
from remoting.request_code import RequestCode

log = logging.getLogger(__name__)

ASK_TIMEOUT_MS: Final = 3_000
TROUBLE: Final = (RemotingError, BrokerAnswerError, ValueError)
"""What asking a slave may raise."""
ASK_AGAIN_MS: Final = (5_000, 30_000)
"""Delays after the start."""


class ReturningMaster:
    """The offset requests of one start. Guarded by: `_lock`, one round at a time."""

    def __init__(
        self,
        members: FindMembers,
        api: BrokerOuterAPI,
        offsets: ConsumerOffsetManager,
        max_offset: Callable[[str, int], int],
        *,
        is_slave: Callable[[str], bool],
        delay_offsets: ScheduleOffsetManager | None = None,
        timers: TimerTakeBack | None = None,
    ) -> None:
        """`members`: the other members of the group (GroupMembers); `max_offset(topic, queue_id)`:
        the end of a queue at the start (EndsAtStart), 0 if unknown. `is_slave(ip)`: whether a slave
        of ours is there. `delay_offsets`, `timers`: adopted, too, where slaves deliver in the
        master's place."""
        self._members = members
        self._api = api
        self._offsets = offsets
        self._max_offset = max_offset
        self._is_slave = is_slave
        self._delay_offsets = delay_offsets
        self._timers = timers
        self._lock = threading.Lock()
        self._answered: set[str] = set()

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Schedule the later rounds; the first one is
        BrokerRegistration.start(before_first=ask_slaves)."""
        for delay_ms in ASK_AGAIN_MS:
            executor.schedule(
                f"ask-slaves-after-{delay_ms}-ms",
                self.ask_slaves,
                first_delay_ms=delay_ms,
                period_ms=None,
            )

    def ask_slaves(self) -> None:
        """One round: query every slave without a response so far, in parallel, for at most
        ASK_TIMEOUT_MS."""
        with self._lock:
            slaves = [slave for slave in self._slaves() if slave not in self._answered]
            if not slaves:
                return
            with ThreadPoolExecutor(len(slaves), "AskSlaves") as pool:
                tables = list(pool.map(self._ask, slaves))
            for slave, table in zip(slaves, tables, strict=True):
                if table is not None:
                    self._answered.add(slave)
                    self._take(slave, table)
            self._offsets.save_if_changed()

    def adopt_progress(self) -> None:
        """Adopt what slaves that acted as master have delivered.

        Before the first registration, since they copy this master's progress from then on; and
        when they know that it is back, before it delivers itself."""
        if self._delay_offsets is None:
            return
        with self._lock:
            for slave in self._slaves():
                self._adopt_progress(slave)
            self._save()

    def take_back(self, member: MemberAddress) -> None:
        """What a slave whose HA link stands did in this master's place: all is asked for before any
        of it is taken. Raises RemotingError, BrokerAnswerError, ValueError: nothing was taken. Its
        consumers may go on until this broker registers, so `ask_slaves` asks it once more."""
        slave = member.address
        with self._lock:
            delayed = None if self._delay_offsets is None else self._fetch_progress(slave)
            offsets = self._fetch_offsets(slave)
            timers = None if self._timers is None else self._timers.fetch(slave)
            if delayed is not None:
                self._take_progress(slave, delayed)
            self._take(slave, offsets)
            if self._timers is not None:
                self._timers.take(slave, timers)
            self._save()

    def _slaves(self) -> list[str]:
        return [
            member.address
            for member in self._members() or ()
            if member.broker_id > 0 and self._may_ask(member)
        ]

    def _may_ask(self, member: MemberAddress) -> bool:
        if self._is_slave(member.ip):
            return True
        log.warning(
            "broker %s at %s: registered as a slave, but none of our replicas ever connected "
            "from there, and haTrustedAddresses does not name it: its consumer offsets are ignored",
            member.broker_id,
            member.address,
        )
        return False

    def _ask(self, slave: str) -> OffsetTable | None:
        try:
            return self._fetch_offsets(slave)
        except TROUBLE as error:
            log.warning("slave %s: skipped, cannot get its consumer offsets: %s", slave, error)
            return None

    def _adopt_progress(self, slave: str) -> None:
        """What can be had of it: each kind counts by itself."""
        try:
            self._take_progress(slave, self._fetch_progress(slave))
            self._take(slave, self._fetch_offsets(slave), only_own=True)
        except TROUBLE as error:
            log.warning("slave %s: skipped, cannot get its progress: %s", slave, error)
        if self._timers is not None:
            self._timers.take(slave, self._timers.fetch(slave))

    # -- what is asked, and taken ----------------------------------------------------------------

    def _fetch_offsets(self, slave: str) -> OffsetTable:
        """43. Raises one of TROUBLE."""
        body = self._api.get_table(slave, RequestCode.GET_ALL_CONSUMER_OFFSET, ASK_TIMEOUT_MS)
        return {} if body is None else parse_offset_table(parse_object(body))

    def _fetch_progress(self, slave: str) -> dict[int, int]:
        """45. Raises one of TROUBLE."""
        body = self._api.get_table(slave, RequestCode.GET_ALL_DELAY_OFFSET, ASK_TIMEOUT_MS)
        return {} if body is None else parse_delay_offset_table(parse_object(body))

    def _take(self, slave: str, table: OffsetTable, *, only_own: bool = False) -> None:
        raised = self._offsets.raise_to(table, self._max_offset, only_own=only_own)
        log.info(
            "slave %s: adopted %s consumer offsets that were larger than this master's",
            slave,
            raised,
        )

    def _take_progress(self, slave: str, table: dict[int, int]) -> None:
        if self._delay_offsets is None:
            return
        ends = {level: self._max_offset(SCHEDULE_TOPIC, level - 1) for level in table}
        raised = self._delay_offsets.raise_to(
            {level: min(offset, ends[level]) for level, offset in table.items()}
        )
        log.info("slave %s: adopted its progress of %s delay levels", slave, raised)

    def _save(self) -> None:
        self._offsets.save_if_changed()
        if self._delay_offsets is not None:
            self._delay_offsets.save_if_changed()

"""ReplicaVerification: is a slave that claims to hold our log up to an offset telling the truth?

On the HA port a slave says one number. A slave that was a master, or follows another one, may say
one that fits and hold other bytes below it; our own slaves look for themselves before they connect
(master_inspector), Java's do not. So process `ha` of a master asks here (command "verify_replica"
of the channel ha->remoting): the registered brokers of the group at the slave's ip are asked over
their remoting ports for the bounds of their log (28) and for the record at the place of our last
one below the claimed offset (33). Runs in process `remoting` on the command's own thread, blocks it
for seconds and changes nothing; what follows is process ha's business.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from broker.slave.group_members import MemberAddress
from broker.slave.log_comparison import (
    OwnLog,
    Piece,
    QueueTable,
    QueueUnits,
    is_same,
    queued_offset_before,
)
from broker.slave.remote_log import AskingClient, MasterRefusesError, MasterSilentError, RemoteLog
from ipc.clock import Clock
from store.commit_log_reader import CommitLogReader

log = logging.getLogger(__name__)

_VERIFICATION_MS: Final = 6_000
"""For all members at one ip together."""


class ReplicaVerification:
    """See the module. Guarded by: its own lock; one verification at a time."""

    def __init__(
        self,
        members: Callable[[], list[MemberAddress] | None],
        client: AskingClient,
        reader: CommitLogReader,
        table: QueueTable,
        units: QueueUnits,
        clock: Clock,
    ) -> None:
        """members: everybody else in the group (GroupMembers). reader: one of its own."""
        self._members = members
        self._client = client
        self._reader = reader
        self._table = table
        self._units = units
        self._clock = clock
        self._lock = threading.Lock()

    def handle(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The command "verify_replica": {ip, offset} -> {verified: true, false or null}."""
        return {"verified": self.verify(arguments["ip"], arguments["offset"])}

    def verify(self, ip: str, offset: int) -> bool | None:
        """True: a slave at `ip` has our log up to `offset`. False: one was compared, none has.
        None: nobody could be compared. Raises StoreError for files of our own."""
        with self._lock:
            slaves = [
                member
                for member in self._members() or ()
                if member.ip == ip and member.broker_id > 0
            ]
            if not slaves:
                log.info("slave at %s: not verified, none is registered with that ip", ip)
                return None
            last = self._last_record(offset)
            deadline_ms = self._clock.monotonic_ms() + _VERIFICATION_MS
            found = None
            for slave in slaves:
                agrees = self._ask(slave, last, offset, deadline_ms)
                if agrees:
                    return True
                found = agrees if found is None else found
            return found

    def _last_record(self, offset: int) -> Piece | None:
        """Our last whole record that ends at or before `offset`."""
        reader = self._reader
        end = min(offset, reader.max_phy_offset)
        own = OwnLog(
            reader,
            reader.min_phy_offset,
            end,
            lambda: queued_offset_before(self._table, self._units, end),
        )
        return own.last_record()

    def _ask(
        self, slave: MemberAddress, last: Piece | None, offset: int, deadline_ms: int
    ) -> bool | None:
        who = f"slave {slave.broker_id} at"
        left_ms = deadline_ms - self._clock.monotonic_ms()
        try:
            theirs = RemoteLog(self._client, slave.address, self._clock, left_ms, who=who)
            objection = self._compare(theirs, last, offset)
        except (MasterSilentError, MasterRefusesError) as error:
            log.info("%s: its claim to hold our log up to %s is not verified", error, offset)
            return None
        if objection is None:
            log.info("%s %s: holds our log up to %s", who, slave.address, offset)
        else:
            log.warning("%s %s: claims offset %s, but %s", who, slave.address, offset, objection)
        return objection is None

    def _compare(self, theirs: RemoteLog, last: Piece | None, offset: int) -> str | None:
        """What is wrong with the claim; None: nothing. Raises MasterRefusesError."""
        if theirs.max_offset < offset:
            return f"its log ends at {theirs.max_offset}"
        if last is None:
            return None
        if last.offset < theirs.min_offset:
            raise MasterRefusesError(
                f"its log begins at {theirs.min_offset}, behind our last record at {last.offset}"
            )
        if not is_same(last, theirs.record_at(last.offset), self._reader.file_size):
            return f"its record at {last.offset} is not ours"
        return None

"""ReplicaVerification: verifies that a slave has this broker's log up to the offset that it
reports.

On the HA port a slave reports a single offset. A slave that used to be a master, or followed
another one, may report a plausible offset but have different bytes below it. Slaves of this
implementation check that themselves before they connect (master_inspector); Java's do not. So
process `ha` of a master sends the command "verify_replica" over the channel ha->remoting. The
registered brokers of the group with the slave's IP are queried over their remoting ports for the
bounds of their log (28), and for the record at the offset of the last local record below the
reported offset (33). Runs in process `remoting` on the command's own thread and may block it for
seconds. It changes nothing; process `ha` acts on the result.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from broker.slave.group_members import FindMembers, MemberAddress
from broker.slave.log_comparison import (
    OwnLog,
    Piece,
    is_same,
    queued_offset_before,
)
from broker.slave.remote_log import MasterRefusesError, MasterSilentError, RemoteLog
from ipc.clock import Clock
from store.commit_log_reader import CommitLogReader

if TYPE_CHECKING:
    from broker.store_access.store_access import StoreAccess
    from remoting.remoting_client import RemotingClient

log = logging.getLogger(__name__)

_VERIFICATION_MS: Final = 6_000
"""Time limit for all members with one IP together."""


class ReplicaVerification:
    """See the module. Guarded by: its own lock; one verification at a time."""

    def __init__(
        self,
        members: FindMembers,
        client: RemotingClient,
        reader: CommitLogReader,
        store: StoreAccess,
        clock: Clock,
    ) -> None:
        """members: the other members of the group (GroupMembers). reader: not shared with
        others."""
        self._members = members
        self._client = client
        self._reader = reader
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()

    def handle(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The command "verify_replica": {ip, offset} -> {verified: true, false or null}."""
        return {"verified": self.verify(arguments["ip"], arguments["offset"])}

    def verify(self, ip: str, offset: int) -> bool | None:
        """True: a slave at `ip` has the same log up to `offset`. False: at least one was compared,
        but none has. None: none could be compared. Raises StoreError if local files cannot be
        read."""
        with self._lock:
            slaves = [
                member
                for member in self._members() or ()
                if member.ip == ip and member.broker_id > 0
            ]
            if not slaves:
                log.info("slave at %s: not verified, no slave is registered with that IP", ip)
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
        """The last whole local record that ends at or before `offset`."""
        reader = self._reader
        end = min(offset, reader.max_phy_offset)
        own = OwnLog(
            reader,
            reader.min_phy_offset,
            end,
            lambda: queued_offset_before(self._store, end),
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
            log.info("%s: could not verify that it has this log up to %s", error, offset)
            return None
        if objection is None:
            log.info("%s %s: verified, has the same log up to %s", who, slave.address, offset)
        else:
            log.warning("%s %s: reports offset %s, but %s", who, slave.address, offset, objection)
        return objection is None

    def _compare(self, theirs: RemoteLog, last: Piece | None, offset: int) -> str | None:
        """Why the report is wrong; None if it is not. Raises MasterRefusesError."""
        if theirs.max_offset < offset:
            return f"its log ends at {theirs.max_offset}"
        if last is None:
            return None
        if last.offset < theirs.min_offset:
            raise MasterRefusesError(
                f"its log starts at {theirs.min_offset}, after the last local record at "
                f"{last.offset}"
            )
        if not is_same(last, theirs.record_at(last.offset), self._reader.file_size):
            return f"its record at {last.offset} differs"
        return None

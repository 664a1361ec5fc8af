"""RoleLog: which roles this broker took in its group, when and why; kept over restarts.

Owned by the member's thread in process `ha`, its only writer. The newest MOST_KEPT roles are in
one file of the store, `memberRoles.json`, which is replaced whole. The supervisor reads it for the
metrics dump (ha/taken_role.py); slot 178 tells that there is a new one. What cannot be read is put
aside, and what cannot be written is said: no role waits for it, as they are evidence and decide
nothing.

Tested by tests/broker/failover/test_role_log.py.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from broker.failover.messages import Taken
from conf.atomic_file import write_atomic
from ha.control_slots import (
    MASTER_BROKER_ID,
    MASTER_SEEN_MS,
    MEMBER_ID,
    ROLE_RECORDS,
    ROLE_SINCE_MS,
    MemberRole,
)
from ha.taken_role import TakenRole, TakenRoles, read_roles
from ipc.clock import Clock
from store.clean_exit import boot_id

log = logging.getLogger(__name__)

MOST_KEPT: Final = 100
_BOOT_DIGITS: Final = 16


class RoleLog:
    """See the module."""

    def __init__(self, path: Path, counters: memoryview[int], clock: Clock) -> None:
        self._path = path
        self._counters = counters
        self._clock = clock
        self._machine_boot: Final = boot_id().replace("-", "")[:_BOOT_DIGITS]
        self._roles = self._read()
        self._number = self._roles[-1].number if self._roles else 0
        counters[ROLE_RECORDS] = self._number

    def _read(self) -> list[TakenRole]:
        path = self._path
        try:
            return read_roles(path)
        except (OSError, msgspec.DecodeError) as error:
            aside = path.with_name(f"{path.name}.unreadable")
            log.error("%s: %s; a new one is begun, this one is kept as %s", path, error, aside)
            try:
                os.replace(path, aside)
            except OSError as failure:
                log.error("%s: %s", path, failure)
            return []

    @property
    def newest(self) -> TakenRole | None:
        """The last one. Any thread."""
        roles = self._roles
        return roles[-1] if roles else None

    def took(self, role: MemberRole, epoch: int, taken: Taken) -> None:
        """A role was taken just now. The slots say whose id and master it is."""
        counters, clock = self._counters, self._clock
        mono_ms = clock.monotonic_ms()
        seen_ms = counters[MASTER_SEEN_MS]
        self._number += 1
        record = TakenRole(
            number=self._number,
            ts=clock.now_ms(),
            mono=mono_ms,
            machine_boot=self._machine_boot,
            uptime=clock.since_boot_ms(),
            role=role.name,
            cause=taken.cause.value,
            id=counters[MEMBER_ID],
            epoch=epoch,
            master=counters[MASTER_BROKER_ID] or None,
            old_epoch=taken.old_epoch,
            old_master=taken.old_master,
            without_master_ms=max(mono_ms - seen_ms, 0) if seen_ms else None,
            members=sorted(taken.sync_state_set),
            confirm_offset=taken.confirm_offset,
            log_end=taken.log_end,
        )
        self._roles = [*self._roles, record][-MOST_KEPT:]
        self._write()
        counters[ROLE_SINCE_MS] = mono_ms
        counters[ROLE_RECORDS] = self._number

    def _write(self) -> None:
        try:
            write_atomic(self._path, msgspec.json.encode(TakenRoles(self._roles)))
        except OSError as error:
            log.error("%s: %s; the next role is written with it", self._path, error)

"""HonestyJudge: what the brokers held at the moment at which a client was told SEND_OK.

A SYNC_MASTER answers SEND_OK once inSyncReplicas brokers have the message. Whether they had is seen
from outside, in the bytes of their log files, by the producer that got the answer, at once: the
page cache has what a broker has received, whatever its processes do meanwhile. Any thread.

A broker that was killed or lost its disk's contents may have had what it has no more when a late
answer is read: for some seconds it counts as one that had the message.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from tools.chaos.ack_log import SEND_OK, Ack
from tools.chaos.scratch_group import ScratchBroker

_PHY_OFFSET_AT: Final = 28
_BODY_AT: Final = 88
"""Of a record with IPv4 hosts."""
_EXCUSED_S: Final = 5.0
_MOST: Final = 50
"""Violations that are kept; more are counted only."""


class HonestyJudge:
    """See the module."""

    def __init__(self, brokers: Callable[[], Sequence[ScratchBroker]], needed: int) -> None:
        """brokers: all of the group. needed: inSyncReplicas."""
        self._brokers = brokers
        self._needed = needed
        self._lock = threading.Lock()
        self._excused: dict[str, float] = {}
        """By the broker's name: until when."""
        self.looked_at = 0
        self.dishonest = 0
        self.violations: list[str] = []
        """The first of them."""

    def excuse(self, broker: ScratchBroker, seconds: float = _EXCUSED_S) -> None:
        """It is about to be killed, or is being started again."""
        with self._lock:
            until_s = time.monotonic() + seconds
            self._excused[broker.name] = max(until_s, self._excused.get(broker.name, 0.0))

    def answered(self, ack: Ack, body: bytes) -> None:
        """An answer came."""
        if ack.code != SEND_OK or ack.phy_offset < 0:
            return
        brokers = self._brokers()
        missing = [broker for broker in brokers if not _holds(broker, ack.phy_offset, body)]
        with self._lock:
            self.looked_at += 1
            now_s = time.monotonic()
            missing = [each for each in missing if self._excused.get(each.name, 0.0) < now_s]
            count = len(brokers) - len(missing)
            if count >= self._needed:
                return
            self.dishonest += 1
            if len(self.violations) < _MOST:
                names = ", ".join(broker.name for broker in missing)
                self.violations.append(
                    f"SEND_OK too early: message {ack.sequence} of producer {ack.producer}, at "
                    f"{ack.phy_offset} of the log: {count} of {self._needed} brokers had it then, "
                    f"not {names}"
                )


def _holds(broker: ScratchBroker, phy_offset: int, body: bytes) -> bool:
    """Whether the broker's log has the body there."""
    file_size = int(str(broker.setting("mappedFileSizeCommitLog")))
    at = phy_offset % file_size
    path = broker.store / "commitlog" / f"{phy_offset - at:020d}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        record = os.pread(fd, _BODY_AT + len(body), at)
    finally:
        os.close(fd)
    place = phy_offset.to_bytes(8, "big")
    return record[_PHY_OFFSET_AT : _PHY_OFFSET_AT + 8] == place and record[_BODY_AT:] == body

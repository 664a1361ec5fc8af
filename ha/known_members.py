"""KnownMembers: the registered brokers of this group, also while name servers do not know them.

A restarted name server knows no broker until the brokers register again, which they do every 30 s
(RocketMQ allows 60); the embedded one restarts with this broker. So a member is removed after
answers have lacked it for CONFIRM_MS, not after the first one, and the members are saved for this
broker's next start. After it they count as before, but at most until MAX_AGE_MS after an answer
last named them, unless another answer does. Only members confirmed by a name server are saved.

Owned by: the thread of GroupMembersService, in process `ha`; `load` is called before its start. It
sends no requests: answers are passed to it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ipc.clock import Clock
from store.atomic_write import atomic_write

log = logging.getLogger(__name__)

FILE_NAME: Final = "known_members.json"
CONFIRM_MS: Final = 120_000
"""As long as a name server itself considers a silent broker alive: a running broker has registered
twice in this time."""
MAX_AGE_MS: Final = 3_600_000
"""Even a restart with a long recovery takes less; addresses are reassigned to other hosts later."""
SAVE_EVERY_MS: Final = 300_000


@dataclass(slots=True)
class _Member:
    """A member under its id."""

    ip: str
    confirmed_ms: int
    """Wall clock: an answer named it last."""
    is_confirmed: bool
    """In this life."""
    missing_since_ms: int | None = None
    """Monotonic: the first of the answers that lack it."""


@dataclass(frozen=True, slots=True)
class Members:
    """`ips` by broker id. `expelled`: addresses of those that were remembered, and that no answer
    has named; they are members no more."""

    ips: Mapping[int, str]
    expelled: frozenset[str] = frozenset()


class KnownMembers:
    """See the module."""

    def __init__(self, path: Path, broker_name: str, clock: Clock) -> None:
        self._path = path
        self.broker_name: Final = broker_name
        self._clock = clock
        self._members: dict[int, _Member] = {}
        self._saved: dict[int, str] = {}
        self._saved_at_ms: int | None = None
        self._trouble: str | None = None

    def load(self) -> Members:
        """Those of this broker's life before, if it ended lately. None, with a warning, when the
        file cannot be read or understood."""
        try:
            found = _decode(self._path.read_bytes(), self.broker_name)
        except FileNotFoundError:
            return Members({})
        except (OSError, ValueError) as error:
            log.warning(
                "%s: the brokers of this group are unknown until they register: %s; the file is "
                "rewritten",
                self._path,
                error,
            )
            return Members({})
        self._members = {
            broker_id: _Member(ip, confirmed_ms, is_confirmed=False)
            for broker_id, (ip, confirmed_ms) in found.items()
            if self._is_young(confirmed_ms)
        }
        members = self._now()
        if members.ips:
            log.info("members of the group before this start: %s", dict(members.ips))
        return members

    def update(self, answer: Mapping[int, str] | None) -> Members:
        """The members, now that name servers gave this answer (id to ip); None: none did."""
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        for broker_id, ip in (answer or {}).items():
            self._members[broker_id] = _Member(ip, wall_ms, is_confirmed=True)
        for broker_id, member in self._members.items():
            if answer is None:
                member.missing_since_ms = None
            elif broker_id not in answer and member.missing_since_ms is None:
                member.missing_since_ms = now_ms
        gone = {key: each for key, each in self._members.items() if self._has_left(each, now_ms)}
        for broker_id, member in gone.items():
            del self._members[broker_id]
            log.warning(
                "member %s:%s at %s: dropped, no name server has listed it for %s ms",
                self.broker_name,
                broker_id,
                member.ip,
                wall_ms - member.confirmed_ms,
            )
        members = self._now()
        expelled = {each.ip for each in gone.values() if not each.is_confirmed}
        return Members(members.ips, frozenset(expelled.difference(members.ips.values())))

    def save(self) -> None:
        """Write down what changed, and now and then that nothing did. It may wait for a disk."""
        ips, now_ms = dict(self._now().ips), self._clock.monotonic_ms()
        is_fresh = self._saved_at_ms is not None and now_ms < self._saved_at_ms + SAVE_EVERY_MS
        if ips == self._saved and (is_fresh or not ips):
            return
        value = {
            "version": 1,
            "brokerName": self.broker_name,
            "members": [
                {"id": broker_id, "ip": each.ip, "confirmedMs": each.confirmed_ms}
                for broker_id, each in sorted(self._members.items())
            ],
        }
        try:
            atomic_write(self._path, json.dumps(value, indent=1).encode())
        except OSError as error:
            self._complain(error.strerror or str(error))
            return
        self._saved, self._saved_at_ms, self._trouble = ips, now_ms, None

    def _now(self) -> Members:
        return Members({broker_id: each.ip for broker_id, each in self._members.items()})

    def _has_left(self, member: _Member, now_ms: int) -> bool:
        """Answers lack it for long enough, or it is remembered for too long."""
        if not member.is_confirmed and not self._is_young(member.confirmed_ms):
            return True
        since_ms = member.missing_since_ms
        return since_ms is not None and now_ms - since_ms >= CONFIRM_MS

    def _is_young(self, confirmed_ms: int) -> bool:
        """A time to come is that of a clock that was wrong: nobody knows how long ago it was."""
        return 0 <= self._clock.now_ms() - confirmed_ms < MAX_AGE_MS

    def _complain(self, text: str) -> None:
        if text != self._trouble:
            log.warning(
                "%s: cannot be written: %s; after a restart of this broker its slaves may be "
                "refused until they register again. Retrying; free space there and let "
                "this user write",
                self._path,
                text,
            )
        self._trouble = text


def _decode(data: bytes, broker_name: str) -> dict[int, tuple[str, int]]:
    """Id to ip and confirmedMs; nobody where the file is another group's. Raises ValueError with
    what is wrong."""
    found = json.loads(data)
    if not isinstance(found, dict) or found.get("version") != 1:
        raise ValueError("not a file of version 1")
    members = found.get("members")
    if not isinstance(members, list):
        raise ValueError("members is missing")
    if found.get("brokerName") != broker_name:
        return {}
    return dict(map(_decode_member, members))


def _decode_member(found: Any) -> tuple[int, tuple[str, int]]:
    if not isinstance(found, dict):
        raise ValueError(f"not a member: {found!r:.200}")
    broker_id, ip, confirmed_ms = found.get("id"), found.get("ip"), found.get("confirmedMs")
    if type(broker_id) is not int or type(ip) is not str or type(confirmed_ms) is not int:
        raise ValueError(f"not a member: {found!r:.200}")
    return broker_id, (ip, confirmed_ms)

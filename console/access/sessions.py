"""Sessions: who is signed in, known by a random id in a signed cookie. All of it is in memory.

Any thread. The cookie holds the id and a signature whose key is random at each start: what this
console did not make costs one HMAC and no look at the table. An id ends at sign-out, after two
hours without a page, and twelve hours after it was made; a restart ends all.

SameSite is Lax, not Strict: a link to a page, sent to a colleague, must find them signed in. No GET
changes anything, and a POST needs the session's CSRF token. The cookie's name has the console's
port, as browsers keep one jar for all ports of a host.

Tested by tests/console/access/test_sessions.py.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from itsdangerous import BadSignature, Signer

from console.access.account import Account

IDLE_MS: Final = 2 * 3_600_000
ABSOLUTE_MS: Final = 12 * 3_600_000
MAX_SESSIONS: Final = 1_000
MAX_COOKIE: Final = 200
"""Characters; ours have 87."""


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who is signed in, in one browser."""

    account: Account
    address: str
    """From where they signed in."""
    since_ms: int
    """Monotonic."""
    id: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    csrf_token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)


@dataclass(slots=True)
class _Kept:
    session: Session
    used_ms: int


class SessionStore:
    """All sessions; at most 1,000: then the one that is unused for longest ends."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms`: monotonic."""
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        """By id, the least recently used first."""

    def sign_in(self, account: Account, address: str, before: Session | None = None) -> Session:
        """A new session with a new id; the one that the browser had ends."""
        now_ms = self._now_ms()
        session = Session(account, address, now_ms)
        with self._lock:
            self._end_idle(now_ms)
            if before is not None:
                self._kept.pop(before.id, None)
            while len(self._kept) >= MAX_SESSIONS:
                self._kept.popitem(last=False)
            self._kept[session.id] = _Kept(session, now_ms)
        return session

    def find(self, session_id: str, *, use: bool = True) -> Session | None:
        """The living session of an id. `use`: its idle time begins again."""
        now_ms = self._now_ms()
        with self._lock:
            self._end_idle(now_ms)
            kept = self._kept.get(session_id)
            if kept is None:
                return None
            if now_ms - kept.session.since_ms >= ABSOLUTE_MS:
                del self._kept[session_id]
                return None
            if use:
                kept.used_ms = now_ms
                self._kept.move_to_end(session_id)
            return kept.session

    def sign_out(self, session: Session) -> None:
        """Its id is worth nothing from now on."""
        with self._lock:
            self._kept.pop(session.id, None)

    def __len__(self) -> int:
        return len(self._kept)

    def _end_idle(self, now_ms: int) -> None:
        """The first is the least recently used: those behind it are looked at only if it ends."""
        while self._kept:
            first = next(iter(self._kept.values()))
            if now_ms - first.used_ms < IDLE_MS:
                return
            self._kept.popitem(last=False)


class SessionCookie:
    """The cookie's text: an id and its signature."""

    def __init__(self, port: int, key: bytes | None = None) -> None:
        """`port`: the one that the console listens at. `key`: None: a random one."""
        key = secrets.token_bytes(32) if key is None else key
        self._signer = Signer(key, salt="mqconsole-session", digest_method=hashlib.sha256)
        self._name = f"mqconsole-{port}"

    def name(self, *, is_tls: bool) -> str:
        """Under TLS one that a browser takes only if it is Secure and of this very host."""
        return f"__Host-{self._name}" if is_tls else self._name

    def text(self, session: Session) -> str:
        """What the browser keeps."""
        return self._signer.sign(session.id).decode("ascii")

    def find_id(self, cookies: Mapping[str, str], *, is_tls: bool) -> str | None:
        """The id that a browser brings; None for what this console did not sign."""
        text = cookies.get(self.name(is_tls=is_tls), "")
        if not text or len(text) > MAX_COOKIE:
            return None
        try:
            return self._signer.unsign(text).decode("ascii")
        except BadSignature:
            return None

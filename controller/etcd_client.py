"""EtcdClient: requests to an etcd through its JSON gateway (/v3/…, etcd 3.4 and newer).

Used by one thread, with one connection, to the endpoint that answered last; the others are tried in
turn. A request that may be repeated is, at every endpoint; of one that may not (a write with a
condition), the end is unknown as soon as it has left and no clear answer has come. What comes back
is nobody's word: sizes, shapes and numbers are checked (controller/etcd_messages.py), and what is
not etcd's is said by name. A login that etcd does not take any more is made anew, once.
"""

from __future__ import annotations

import http.client
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from conf.errors import ConfigError
from controller.etcd_config import Endpoint
from controller.etcd_connection import EtcdConnection, HttpAnswer, TooLargeError
from controller.etcd_login import EtcdLogin
from controller.etcd_messages import (
    AuthenticateAnswer,
    EtcdRefusal,
    MalformedAnswerError,
    decode_answer,
    decode_refusal,
    encode_request,
)
from controller.group_store import ControllerStoreError

log = logging.getLogger(__name__)

_TROUBLES: Final = (
    OSError,
    http.client.HTTPException,
    TooLargeError,
    MalformedAnswerError,
    UnicodeError,
)
"""Of one endpoint: the next one may do better. (UnicodeError: of a host name.)"""
AnswerT = TypeVar("AnswerT")


class EtcdError(ControllerStoreError):
    """etcd cannot be used: the message says which endpoint, why, and the way out, in one line
    whatever a peer has said. code: gRPC's, if etcd has refused the request."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__("".join(one if one.isprintable() else ascii(one)[1:-1] for one in text))
        self.code = code


class EtcdClient:
    """See the module. Not shared between threads."""

    def __init__(
        self,
        endpoints: tuple[Endpoint, ...],
        context: ssl.SSLContext | None,
        read_login: Callable[[], EtcdLogin],
        timeout_ms: int,
    ) -> None:
        """read_login: what is shown to etcd, read anew at each call. timeout_ms: for connecting to
        an endpoint, and for an answer of it."""
        self._connections = [EtcdConnection(one, context) for one in endpoints]
        self._at = 0
        self._read_login = read_login
        self._timeout_s = timeout_ms / 1000
        self._token: str | None = None
        """What goes with each request; None: nothing yet, "": etcd asks for none."""

    def call(
        self, path: str, body: object, answer: type[AnswerT], *, repeat: bool = True
    ) -> AnswerT:
        """The answer to POST /v3/<path>. Without `repeat` the request leaves once. Raises
        EtcdError."""
        for attempt in (1, 2):
            if self._token is None:
                self._log_in()
            try:
                return self._try_endpoints(path, body, answer, repeat=repeat)
            except EtcdRefusal as refusal:
                if refusal.wants_login:
                    self._token = None
                if attempt == 2 or not refusal.wants_login or self._login().is_empty:
                    raise EtcdError(self._explain(refusal), refusal.code) from refusal
        raise AssertionError

    def close(self) -> None:
        """Idempotent."""
        for connection in self._connections:
            connection.close()

    # -- login ---------------------------------------------------------------------------------

    def _login(self) -> EtcdLogin:
        try:
            return self._read_login()
        except ConfigError as error:
            raise EtcdError(str(error)) from error

    def _log_in(self) -> None:
        login = self._login()
        if not login.user:
            self._token = login.token
            return
        self._token = ""
        body = {"name": login.user, "password": login.password}
        try:
            found = self._try_endpoints("auth/authenticate", body, AuthenticateAnswer, repeat=True)
        except EtcdRefusal as refusal:
            if refusal.needs_no_login:
                log.warning("etcd: etcdUser has no effect: %s", refusal.message)
                return
            self._token = None
            raise EtcdError(self._explain(refusal), refusal.code) from refusal
        except EtcdError:
            self._token = None
            raise
        self._token = found.token

    def _explain(self, refusal: EtcdRefusal) -> str:
        login = self._login()
        who = f"etcdUser {login.user}" if login.user else "this controller"
        ways = {
            "login": f"{who} is not let in: set etcdUser and etcdPasswordFile, or etcdTokenFile, "
            "to an account of this etcd",
            "rights": f"{who} may not use the keys under etcdKeyPrefix: etcdctl role "
            "grant-permission ROLE readwrite --prefix=true PREFIX/",
            "other": "the request was not taken",
        }
        return f"{refusal}: {ways[refusal.kind]}"

    # -- endpoints -----------------------------------------------------------------------------

    def _try_endpoints(
        self, path: str, body: object, answer: type[AnswerT], *, repeat: bool
    ) -> AnswerT:
        data = encode_request(body)
        troubles: list[str] = []
        for connection in self._in_turn():
            deadline = time.monotonic() + self._timeout_s
            has_left = False
            try:
                if not connection.is_usable:
                    connection.open(deadline)
                has_left = True
                found = connection.exchange(f"/v3/{path}", data, self._headers(), deadline)
                return self._decode(found, connection.endpoint, answer)
            except _TROUBLES as error:
                connection.close()
                troubles.append(_describe(connection.endpoint, error))
                self._at = (self._at + 1) % len(self._connections)
                if has_left and not repeat:
                    break
        raise EtcdError(f"etcd does not answer: {'; '.join(troubles)}")

    def _in_turn(self) -> Iterator[EtcdConnection]:
        first = self._at
        for number in range(len(self._connections)):
            yield self._connections[(first + number) % len(self._connections)]

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = self._token
        return headers

    @staticmethod
    def _decode(found: HttpAnswer, endpoint: Endpoint, answer: type[AnswerT]) -> AnswerT:
        """Raises MalformedAnswerError for what the next endpoint may know better, EtcdRefusal for
        what none does."""
        if found.status == http.client.OK:
            return decode_answer(found.body, answer)
        raise decode_refusal(found, str(endpoint))


def _describe(endpoint: Endpoint, error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"its certificate is not trusted: {error.verify_message}; see etcdTrustedCaFile"
    elif isinstance(error, ssl.SSLError):
        text = f"TLS: {error.reason or error}; see etcdCertFile, and whether it speaks TLS at all"
    elif isinstance(error, TimeoutError):
        text = "no answer within etcdRequestTimeoutMillis"
    elif isinstance(error, TooLargeError):
        text = f"an answer that is too large: {error}"
    elif isinstance(error, http.client.HTTPException):
        text = f"no answer of HTTP, or cut off: {type(error).__name__} {error!s:.100}"
    else:
        text = str(getattr(error, "strerror", None) or error)
    return f"{endpoint}: {text}"

"""Access: who the reader is and what they may do; sign-in, sign-out; the one interface of this room
for console/app.py.

In process `console`: `wrap` on uvicorn's loop, the rest on any thread.

    application = access.wrap(ConsoleApp(Site(..., extra_routes=access.routes())).application())
    session = access.session_of(request)              # None: nobody signed in
    session, fields = await access.form(request)      # of an action's POST; ConsoleError
    access.check_of(session)(broker_address)          # before a change, or a look at messages
    entry = access.intend(request, session, "deleteTopic", fields)   # AuditError: do nothing
    entry.done() | .refused(why) | .failed(why)

Tested by tests/console/access/test_access.py.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from console.access.account import OPERATOR, Account, Kind
from console.access.audit_log import AuditError, AuditLog, Entry, Who
from console.access.client_address import Ways
from console.access.csrf import is_right, safe_next
from console.access.forms import form_of
from console.access.gate import Gate, origin_of
from console.access.operator_token import QUERY, OperatorToken, without_token
from console.access.rate_limit import RateLimit
from console.access.read_only import REFUSAL, SIGN_IN, SIGN_OUT
from console.access.sessions import Session, SessionCookie, SessionStore
from console.access.sign_in import ClientOf, Proof, Prover, Verdict
from console.page import ConsoleError
from tools.report import safe_line

log = logging.getLogger(__name__)

MAX_PROOFS: Final = 4
"""Sign-ins that ask brokers at the same time: each holds a thread of Starlette's pool."""
JUDGED_MS: Final = 60_000
MAX_JUDGED: Final = 1_000
TEMPLATE: Final = "sign_in.html.j2"
WRONG_LINK: Final = (
    "This link is not of the console that runs now: it prints a new one at each start."
)
_STATUS: Final = {Verdict.REFUSED: 401, Verdict.UNCHECKED: 403, Verdict.UNDECIDED: 503}


class Pages(Protocol):
    """Shows a page within the console's frame (console/app.py)."""

    def page(
        self, request: Request, template: str, context: Mapping[str, Any], status: int
    ) -> Response:
        """A template's page."""

    def sentence(self, request: Request, text: str, status: int) -> Response:
        """A page that says one sentence."""


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """How the console was started."""

    port: int
    ways: Ways
    is_read_only: bool = False
    name_servers: Collection[str] = ()
    """Which have no accounts."""


class Access:
    """Owned by: the console's main thread. `pages` is set before the first request."""

    pages: Pages

    def __init__(
        self,
        options: AccessOptions,
        clients: ClientOf,
        brokers: Callable[[], Iterable[str]],
        audit: AuditLog,
        now_ms: Callable[[], int],
    ) -> None:
        """`brokers`: the addresses of those that prove accounts, the likeliest first. `now_ms`:
        monotonic."""
        self.token = OperatorToken()
        self.audit = audit
        self._options = options
        self._brokers = brokers
        self._now_ms = now_ms
        self._sessions = SessionStore(now_ms)
        self._cookie = SessionCookie(options.port)
        self._limit = RateLimit(now_ms)
        self._prover = Prover(clients, now_ms)
        self._proofs = threading.BoundedSemaphore(MAX_PROOFS)
        self._judged: OrderedDict[tuple[Account, str], int] = OrderedDict()
        """When a broker last refused a false secret of an account."""

    # -- for the application -------------------------------------------------------------------

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """The application behind the gate: this is what the server runs."""
        return Gate(app, self._options.ways, self._options.is_read_only, self._exchange)

    def routes(self) -> list[BaseRoute]:
        """Sign-in and sign-out."""
        return [
            Route(SIGN_IN, self._show_sign_in, methods=["GET"]),
            Route(SIGN_IN, self._in_sentences(self._sign_in), methods=["POST"]),
            Route(SIGN_OUT, self._in_sentences(self._sign_out), methods=["POST"]),
        ]

    def session_of(self, request: Request) -> Session | None:
        """Who asks. An open live page alone does not keep a session from ending."""
        session_id = self._cookie.find_id(request.cookies, is_tls=origin_of(request).is_tls)
        if session_id is None:
            return None
        return self._sessions.find(session_id, use=not request.url.path.endswith(".events"))

    def may_change(self, session: Session | None) -> bool:
        """Whether a page offers changes."""
        return session is not None and not self._options.is_read_only

    def require_change(self, session: Session | None) -> Session:
        """The session of a reader who may change something; ConsoleError for others."""
        if self._options.is_read_only:
            raise ConsoleError(REFUSAL, 403)
        if session is None:
            raise ConsoleError("You are not signed in, or no longer: sign in and try again.", 401)
        return session

    def require_judge(self, session: Session, address: str) -> None:
        """ConsoleError unless the broker at `address` itself decides what the account may do.

        A broker without access control, a name server, and a broker whose white list has the
        console's address would obey the console, not the account: there only the operator may
        change something, or see messages.
        """
        account = session.account
        if account.kind is not Kind.OPERATOR and not self._judges(account, address):
            raise ConsoleError(
                f"{address} does not check accounts for this console, or does not answer now, so "
                "that only the holder of the link which bin/mqconsole printed may do this there.",
                403,
            )

    def check_of(self, session: Session) -> Callable[[str], None]:
        """What to call with each address that is asked for this reader: see require_judge."""

        def check(address: str) -> None:
            if address not in self._options.name_servers:
                self.require_judge(session, address)

        return check

    async def form(self, request: Request) -> tuple[Session, dict[str, str]]:
        """The reader and fields of an action's POST; ConsoleError unless it is a reader's own."""
        session = self.require_change(self.session_of(request))
        return session, await _own_fields(request, session)

    def intend(
        self,
        request: Request,
        session: Session,
        action: str,
        fields: Mapping[str, str],
        secret_fields: Collection[str] = (),
    ) -> Entry:
        """Announce a change in the audit log. AuditError: it must not be done."""
        return self.audit.intend(_who(request, session.account), action, fields, secret_fields)

    def frame(self, request: Request) -> dict[str, Any]:
        """What the frame of a page shows of its reader."""
        session = self.session_of(request)
        here = _target(request, request.url.query)
        return {
            "reader_name": None if session is None else session.account.name,
            "reader_kind": None if session is None else session.account.kind.value,
            "csrf_token": None if session is None else session.csrf_token,
            "may_change": self.may_change(session),
            "is_read_only": self._options.is_read_only,
            "sign_in_url": f"{SIGN_IN}?next={quote(safe_next(here), safe='')}",
        }

    # -- sign-in -------------------------------------------------------------------------------

    def _show_sign_in(self, request: Request) -> Response:
        why = WRONG_LINK if request.query_params.get("why") == "link" else ""
        return self._sign_in_page(request, request.query_params.get("next", ""), why, 200)

    async def _sign_in(self, request: Request) -> Response:
        fields = await form_of(request)
        target = fields.get("next", "")
        if token := fields.get(QUERY, ""):
            if not self.token.is_right(token.strip()):
                return self._sign_in_page(request, target, WRONG_LINK, 401)
            return await run_in_threadpool(self._signed_in, request, OPERATOR, safe_next(target))
        name = fields.get("name", "").strip()
        address = origin_of(request).address
        proof = await run_in_threadpool(self._prove, name, fields.get("secret", ""), address)
        if proof.account is None:
            return self._sign_in_page(request, target, proof.sentence, _STATUS[proof.verdict])
        return await run_in_threadpool(self._signed_in, request, proof.account, safe_next(target))

    def _prove(self, name: str, secret: str, address: str) -> Proof:
        """ConsoleError: too many try."""
        if wait_ms := self._limit.wait_ms(address):
            wait_s = -(-wait_ms // 1_000)
            raise ConsoleError(f"Too many sign-ins. Try again in {wait_s} s.", 429)
        if not self._proofs.acquire(blocking=False):
            raise ConsoleError("Several people sign in just now. Try again in a few seconds.", 503)
        try:
            proof = self._prover.prove(name, secret, self._brokers())
        finally:
            self._proofs.release()
        if proof.account is None:
            why = safe_line(proof.detail or proof.sentence)[:300]
            log.warning("sign-in of %s from %s: %s", safe_line(name[:100]), address, why)
        return proof

    def _exchange(self, request: Request, token: str) -> Response:
        """A token in a URL becomes a session; the redirect takes it out of the browser's line."""
        if not self.token.is_right(token):
            return RedirectResponse(f"{SIGN_IN}?why=link", 303)
        target = _target(request, without_token(request.url.query))
        return self._signed_in(request, OPERATOR, safe_next(target))

    def _signed_in(self, request: Request, account: Account, target: str) -> Response:
        origin = origin_of(request)
        session = self._sessions.sign_in(account, origin.address, self.session_of(request))
        try:
            self.audit.note(_who(request, account), "signIn")
        except AuditError as error:  # changes nothing; what would, asks again
            log.error("sign-in of %s: %s", safe_line(account.name), error)
        answer = RedirectResponse(target, 303)
        answer.set_cookie(
            self._cookie.name(is_tls=origin.is_tls),
            self._cookie.text(session),
            path="/",
            secure=origin.is_tls,
            httponly=True,
            samesite="lax",
        )
        return answer

    async def _sign_out(self, request: Request) -> Response:
        session = self.session_of(request)
        if session is not None:
            await _own_fields(request, session)
            self._sessions.sign_out(session)
        answer = RedirectResponse("/", 303)
        is_tls = origin_of(request).is_tls
        answer.delete_cookie(
            self._cookie.name(is_tls=is_tls), secure=is_tls, httponly=True, samesite="lax"
        )
        return answer

    # -- inside --------------------------------------------------------------------------------

    def _sign_in_page(self, request: Request, target: str, why: str, status: int) -> Response:
        context = {"title": "Sign in", "next": safe_next(target), "why": why}
        return self.pages.page(request, TEMPLATE, context, status)

    def _in_sentences(self, endpoint: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                found: Response = await endpoint(request)
            except ConsoleError as error:
                return self.pages.sentence(request, str(error), error.status)
            return found

        return answer

    def _judges(self, account: Account, address: str) -> bool:
        now_ms = self._now_ms()
        asked_ms = self._judged.get((account, address))
        if asked_ms is not None and now_ms - asked_ms < JUDGED_MS:
            return True
        if not self._prover.judges(account.name, address):
            return False
        self._judged[account, address] = now_ms
        while len(self._judged) > MAX_JUDGED:
            self._judged.popitem(last=False)
        return True


def _target(request: Request, query: str) -> str:
    """Path and query as they stand in the URL: a name in a path may have a question mark."""
    raw: bytes = request.scope["raw_path"]
    path = raw.decode("latin-1").partition("?")[0]
    return path + (f"?{query}" if query else "")


def _who(request: Request, account: Account) -> Who:
    origin = origin_of(request)
    return Who(account.name, account.kind.value, origin.address, origin.host)


async def _own_fields(request: Request, session: Session) -> dict[str, str]:
    fields = await form_of(request)
    if not is_right(session, fields):
        raise ConsoleError(
            "This form is of an earlier sign-in. Nothing was done: load the page again.", 403
        )
    return fields

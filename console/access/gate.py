"""Gate: what every request passes before the application sees it, and every answer on its way out.

ASGI, on uvicorn's loop, around the whole application: an answer that Starlette makes of a bug has
the security headers, too. In this order: whence the request comes, whether it names this console,
whether another site sent it, `--read-only`, and the operator's token in the URL, which is exchanged
for a session before any page could show it in a Referer. uvicorn must leave the peer's address
alone (proxy_headers=False) and write no access log, which would have the token.

Tested by tests/console/access/test_gate.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.access.client_address import Origin, Ways
from console.access.csrf import is_foreign
from console.access.operator_token import token_in
from console.access.read_only import READING, REFUSAL, may_pass
from console.access.security_headers import add_security_headers
from tools.report import safe_line

_ORIGIN: Final = "console.origin"


def origin_of(request: Request) -> Origin:
    """Whence a request comes that has passed the gate."""
    return cast(Origin, request.scope[_ORIGIN])


@dataclass(frozen=True, slots=True)
class Gate:
    """An ASGI application around another one."""

    app: ASGIApp
    ways: Ways
    is_read_only: bool
    exchange: Callable[[Request, str], Response]
    """Answers a request whose URL has this token."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's entry."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                add_security_headers(MutableHeaders(scope=message), scope["path"])
            await send(message)

        refusal = await self._refusal(scope)
        await (refusal or self.app)(scope, receive, send_with_headers)

    async def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that does not reach the application."""
        headers = Headers(scope=scope)
        peer = scope.get("client") or ("", 0)
        origin = self.ways.origin(peer[0], headers, scope["scheme"])
        scope[_ORIGIN] = origin
        method, path = scope["method"], scope["path"]
        if not self.ways.knows(origin.host):
            return PlainTextResponse(_unknown_host(origin.host), 421)
        if method not in READING and is_foreign(headers, origin.host):
            return PlainTextResponse(_foreign(origin.host), 403)
        if self.is_read_only and not may_pass(method, path):
            return PlainTextResponse(REFUSAL, 403)
        token = token_in(scope["query_string"].decode("latin-1")) if method == "GET" else None
        if token is None:
            return None
        return await run_in_threadpool(self.exchange, Request(scope), token)


def _unknown_host(host: str) -> str:
    return (
        f"This console is not reached as {safe_line(host[:100])!r}. If it should be, start it with "
        "--host-name and that name; otherwise use its address."
    )


def _foreign(host: str) -> str:
    return (
        f"This was sent by a page of another site than {safe_line(host[:100])!r}. A proxy before "
        "the console must pass the Host header on, or be named by --trusted-proxies and send "
        "X-Forwarded-Host."
    )

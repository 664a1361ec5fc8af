"""A console's access in front of a small application, reached by Starlette's client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

import console
from console.access.access import Access, AccessOptions
from console.access.audit_log import AuditError, AuditLog
from console.access.client_address import Ways
from console.access.gate import origin_of
from console.page import ConsoleError
from remoting.address_patterns import parse_patterns
from tests.console.access.test_sessions import Clock
from tests.console.access.test_sign_in import SECRET, USERS, Peers

BASE = """<title>{{ title }}</title><p id="reader">{{ reader_name }}</p>
{% block content %}{% endblock %}
"""
TEMPLATES = Path(console.__file__).parent / "templates"
_SHOWN = re.compile(r'<p id="reader">(.*?)</p>')


class PlainPages:
    """The console's frame, reduced to who is signed in."""

    def __init__(self, access: Access) -> None:
        self._access = access
        name = "sign_in.html.j2"
        texts = {"base.html.j2": BASE, name: (TEMPLATES / name).read_text()}
        self._environment = Environment(
            loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined
        )
        self._environment.filters["line"] = str

    def page(
        self, request: Request, template: str, context: Mapping[str, Any], status: int
    ) -> Response:
        made = self._environment.get_template(template)
        html = made.render(**{**self._access.frame(request), **context})
        return HTMLResponse(html, status)

    def sentence(self, request: Request, text: str, status: int) -> Response:
        return PlainTextResponse(text, status)


class World:
    """Access, an application of a page, a live page, an action and a bug; and a browser."""

    def __init__(self, directory: Path, peers: Peers | None = None, **options: Any) -> None:
        self.peers = peers or Peers(a=USERS)
        self.clock = self.peers.clock
        self.audit = AuditLog(directory / "audit.log", Clock())
        ways = Ways(
            parse_patterns(options.pop("trusted_proxies", "")), frozenset({"console.example"})
        )
        self.access = Access(
            AccessOptions(8088, ways, **options),
            self.peers,
            lambda: self.peers.brokers,
            self.audit,
            self.clock,
        )
        self.access.pages = PlainPages(self.access)
        self.done: list[dict[str, str]] = []
        routes = [
            *self.access.routes(),
            Route("/", self._page),
            Route("/live.events", self._page),
            Route("/topics/{name:path}", self._page),
            Route("/do/it", self._action, methods=["POST"]),
            Route("/bug", self._bug),
            Route("/static/x.css", lambda _request: PlainTextResponse("x")),
        ]
        self.application = self.access.wrap(Starlette(routes=routes))
        self.token = self.access.token.url("").partition("=")[2]

    def browser(self, base: str = "http://localhost:8088", peer: str = "192.0.2.7") -> Browser:
        """With cookies of its own."""
        return Browser(
            self.application,
            base_url=base,
            client=(peer, 4711),
            follow_redirects=False,
            raise_server_exceptions=False,
        )

    def _page(self, request: Request) -> Response:
        session = self.access.session_of(request)
        name = "" if session is None else session.account.name
        token = "" if session is None else session.csrf_token
        origin = origin_of(request)
        whence = f"{origin.address} {origin.host} {origin.is_tls}"
        return HTMLResponse(f'<p id="reader">{name}</p><i>{token}</i><b>{whence}</b>')

    async def _action(self, request: Request) -> Response:
        try:
            session, fields = await self.access.form(request)
            entry = await run_in_threadpool(
                self.access.intend, request, session, "it", fields, {"csrf_token"}
            )
            await run_in_threadpool(self.access.require_judge, session, fields.get("at", "a"))
        except ConsoleError as error:
            return PlainTextResponse(str(error), error.status)
        except AuditError as error:
            return PlainTextResponse(str(error), 503)
        self.done.append(fields)
        entry.done()
        return RedirectResponse("/", 303)

    def _bug(self, _request: Request) -> Response:
        raise RuntimeError("a bug")


class Browser(TestClient):
    """Keeps cookies; posts forms as a browser does."""

    def post_form(self, url: str, fields: Mapping[str, str], **headers: str) -> Any:
        sent = {"Origin": str(self.base_url).rstrip("/"), **headers}
        return self.post(url, data=dict(fields), headers=sent)

    def sign_in(self, name: str = "alice", secret: str = SECRET, target: str = "/") -> Any:
        return self.post_form("/sign-in", {"name": name, "secret": secret, "next": target})

    def reader(self, url: str = "/") -> str:
        """Who the page says is signed in."""
        found = _SHOWN.search(self.get(url).text)
        return "" if found is None else found[1]

    def csrf_token(self) -> str:
        return self.get("/").text.partition("<i>")[2].partition("</i>")[0]

    def do_it(self, **fields: str) -> Any:
        return self.post_form("/do/it", {"csrf_token": self.csrf_token(), **fields})

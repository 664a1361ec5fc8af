"""The console's web application: routes of views and actions, and what every answer has in common.

Runs in process `console`: Starlette on uvicorn's loop; views run in Starlette's pool of threads, as
a client waits for its answers. A view serves HTML at its path, JSON and CSV beside it, and events.
However many browsers look at the same live page, its regions are made once for each snapshot. Must
not know any request of the protocol.

Tested by tests/console/test_app.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from console.access.rate_limit import network_of
from console.lanes import ANSWER_ERRORS
from console.page import ConsoleError, Page, Query, Reader, View
from console.render import render, render_regions
from console.snapshot import ClusterSnapshot
from console.tables import ShownTable, Table, TableState, arranged, csv_text
from tools.report import safe_line

log = logging.getLogger(__name__)

MAX_STREAMS: Final = 200
MAX_OF_ADDRESS: Final = 50
"""Live pages of one client address, or of one proxy that is not trusted."""
STREAM_THREADS: Final = 8
"""Of the 40 that pages have; live pages make their regions in these, whatever they wait for."""
STREAM_S: Final = 3_600
LOOK_S: Final = 0.2
BEAT_S: Final = 15.0
KEPT_REGIONS: Final = 100
SECTIONS: Final = ("Overview", "Replication", "Traffic", "Topics", "Messages", "Cluster")


@dataclass(frozen=True, slots=True)
class Site:
    """What the application is made of."""

    views: Sequence[View]
    reader_of: Callable[[Request], Reader]
    """Who asks, and what is known now."""
    snapshot: Callable[[], ClusterSnapshot]
    watch: Callable[[int], None] = lambda _by: None
    """Called with 1 and -1 when a live page is opened and closed."""
    frame: Callable[[Request], Mapping[str, Any]] = lambda _request: {}
    """What the frame of every page shows of its reader."""


class _Regions:
    """Live regions made once for each page, reader and snapshot. Those who want the same wait for
    the first on the loop, not in a thread; pages keep most of the pool's threads."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, asyncio.Task[dict[str, str]]] = OrderedDict()
        self._threads = CapacityLimiter(STREAM_THREADS)

    async def get(self, key: Hashable, make: Callable[[], dict[str, str]]) -> dict[str, str]:
        """What was made for this key, or what `make` makes; it raises nothing."""
        task = self._made.get(key)
        if task is None:
            task = asyncio.ensure_future(run_sync(make, limiter=self._threads))
            self._made[key] = task
            while len(self._made) > KEPT_REGIONS:
                self._made.popitem(last=False)
        return await asyncio.shield(task)  # who leaves must not end it for the others


class ConsoleApp:
    """Makes the Starlette application of a Site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._regions = _Regions()
        self._streams: Counter[str] = Counter()
        """Open ones, by the network of the client."""
        self._closing = False

    def close(self) -> None:
        """End the live pages' streams: the server waits for them when it stops. Any thread."""
        self._closing = True

    def application(self, extra_routes: Sequence[BaseRoute] = ()) -> Starlette:
        """The ASGI application. `extra_routes`: sign-in, actions."""
        static = StaticFiles(directory=Path(__file__).parent / "static", check_dir=False)
        routes: list[BaseRoute] = [Mount("/static", static), *extra_routes]
        for view in self._site.views:
            routes += self._routes(view)
        return Starlette(
            routes=routes,
            exception_handlers={404: self._not_found, Exception: self._bug},
        )

    # -- the routes of a view ------------------------------------------------------------------

    def _routes(self, view: View) -> list[BaseRoute]:
        base = "/index" if view.path == "/" else view.path
        return [
            Route(base + ".json", self._guarded(view, self._json)),
            Route(base + ".csv", self._guarded(view, self._csv)),
            Route(base + ".events", self._events(view)),
            Route(view.path, self._guarded(view, self._html if view.template else self._json)),
        ]

    def _guarded(
        self, view: View, answer: Callable[[View, Request], Response]
    ) -> Callable[[Request], Response]:
        """Errors of a reader or a peer are sentences."""

        def endpoint(request: Request) -> Response:
            try:
                return answer(view, request)
            except ConsoleError as error:
                return self.sentence(request, str(error), error.status)
            except ANSWER_ERRORS as error:
                return self.sentence(request, str(error), 502)

        return endpoint

    def _page(self, view: View, request: Request) -> tuple[Page, Query]:
        query = Query({**request.query_params, **_path_parameters(request)})
        return view.function(self._site.reader_of(request), query), query

    def _html(self, view: View, request: Request) -> Response:
        page, _ = self._page(view, request)
        return _html_response(render(view.template, self._context(view, page, request)))

    def _json(self, view: View, request: Request) -> Response:
        page, query = self._page(view, request)
        name = query.text("table")
        if not name:
            return _json_response(page.json_data())
        table = _named(page, name)
        rows = arranged(table, _state(table, page, query))
        keys = [column.key for column in table.columns]
        return _json_response(
            [dict(zip(keys, (cell.value for cell in row), strict=True)) for row in rows]
        )

    def _csv(self, view: View, request: Request) -> Response:
        page, query = self._page(view, request)
        if not page.tables:
            raise ConsoleError("this page has no table", 404)
        table = _named(page, query.text("table") or page.tables[0].name)
        rows = arranged(table, _state(table, page, query))
        return Response(
            csv_text(table.columns, rows).encode("utf-8", "replace"),
            media_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{table.name}.csv"'},
        )

    def _context(self, view: View, page: Page, request: Request) -> dict[str, Any]:
        path = request.url.path
        path = path.removesuffix(".events") or "/"
        path = "/" if path == "/index" else path
        only = len(page.tables) == 1
        query = dict(request.query_params)
        export = "/index" if path == "/" else path
        tables = {
            table.name: ShownTable(table, path, query, export_path=export, only=only)
            for table in page.tables
        }
        text = request.url.query
        return {
            **self._frame(request),
            "title": page.title or view.title,
            "section": view.section,
            "tables": tables,
            "path": path,
            "events_url": f"{export}.events" + (f"?{text}" if text else ""),
            "json_url": f"{export}.json" + (f"?{text}" if text else ""),
            **page.context,
        }

    def _frame(self, request: Request) -> dict[str, Any]:
        """What the frame of every page needs."""
        snapshot = self._site.snapshot()
        sections: dict[str, list[View]] = {name: [] for name in SECTIONS}
        for view in self._site.views:
            if view.section:
                sections[view.section].append(view)
        return {
            "sections": sections,
            "section": "",
            "events_url": "",
            "json_url": "",
            "path": request.url.path,
            "snapshot_ms": snapshot.taken_ms,
            **self._site.frame(request),
        }

    def page(
        self, request: Request, template: str, context: Mapping[str, Any], status: int
    ) -> Response:
        """A page that is no view: sign-in, an action's form."""
        return _html_response(render(template, {**self._frame(request), **context}), status)

    def sentence(self, request: Request, text: str, status: int) -> Response:
        """A page that says one sentence; JSON for who asks for it."""
        text = safe_line(text)[:1_000]
        if request.url.path.endswith((".json", ".csv", ".events")):
            return _json_response({"error": text}, status)
        context = {**self._frame(request), "title": "Not possible", "sentence": text}
        return _html_response(render("sentence.html.j2", context), status)

    def _not_found(self, request: Request, _error: Exception) -> Response:
        return self.sentence(request, f"There is no page {request.url.path[:200]}.", 404)

    def _bug(self, request: Request, error: Exception) -> Response:
        log.error("request %s failed", request.url.path, exc_info=error)
        text = "The console itself failed at this; its log says where. Other pages still work."
        return self.sentence(request, text, 500)

    # -- events --------------------------------------------------------------------------------

    def _events(self, view: View) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            whose = network_of(self._site.reader_of(request).address)
            if self._streams.total() >= MAX_STREAMS:
                return self.sentence(request, f"{MAX_STREAMS} live pages are open already", 503)
            if self._streams[whose] >= MAX_OF_ADDRESS:
                why = f"{MAX_OF_ADDRESS} live pages are open already from your address"
                return self.sentence(request, why, 503)
            stream = self._stream(view, request, whose)
            headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

        return endpoint

    async def _stream(self, view: View, request: Request, whose: str) -> AsyncIterator[str]:
        """The regions that changed, after each snapshot; a beat when nothing does."""
        self._streams[whose] += 1
        self._site.watch(1)
        sent: dict[str, str] = {}
        loop = asyncio.get_running_loop()
        began = beat = loop.time()
        number = -1
        try:
            yield "retry: 2000\n\n"
            while not (
                self._closing or loop.time() - began > STREAM_S or await request.is_disconnected()
            ):
                snapshot = self._site.snapshot()
                if snapshot.number != number:
                    number = snapshot.number
                    regions = await self._live(view, request, number)
                    news = {name: html for name, html in regions.items() if sent.get(name) != html}
                    if news:
                        sent.update(news)
                        beat = loop.time()
                        yield f"data: {json.dumps(news)}\n\n"
                if loop.time() - beat > BEAT_S:
                    beat = loop.time()
                    yield "event: beat\ndata: 1\n\n"
                await asyncio.sleep(LOOK_S)
        finally:
            self._streams -= Counter([whose])  # without those that have none any more
            self._site.watch(-1)

    async def _live(self, view: View, request: Request, number: int) -> dict[str, str]:
        reader = self._site.reader_of(request)
        is_signed_in = reader.account is not None  # an operator's key is that of nobody
        key = (str(request.url), reader.account_key, is_signed_in, reader.may_change, number)
        return await self._regions.get(key, lambda: self._regions_or_why(view, request))

    def _regions_or_why(self, view: View, request: Request) -> dict[str, str]:
        try:
            return self._make_regions(view, request)
        except (ConsoleError, *ANSWER_ERRORS) as error:
            return {"live_error": safe_line(str(error))}
        except Exception:
            log.exception("events of %s failed", request.url.path)
            return {"live_error": "The console itself failed at this; its log says where."}

    def _make_regions(self, view: View, request: Request) -> dict[str, str]:
        page, _ = self._page(view, request)
        return render_regions(view.template, self._context(view, page, request))


def _path_parameters(request: Request) -> dict[str, str]:
    return {name: str(value) for name, value in request.path_params.items()}


def _named(page: Page, name: str) -> Table:
    for table in page.tables:
        if table.name == name:
            return table
    raise ConsoleError(f"this page has no table {name[:40]!r}", 404)


def _state(table: Table, page: Page, query: Query) -> TableState:
    prefix = "" if len(page.tables) == 1 else f"{table.name}."
    return TableState.of(table, query.fields, prefix)


def _html_response(text: str, status: int = 200) -> Response:
    """Half a surrogate pair in a stranger's text cannot be encoded, and becomes a question mark."""
    return HTMLResponse(text.encode("utf-8", "replace"), status)


def _json_response(data: Any, status: int = 200) -> Response:
    """NaN, which JSON does not have, is null."""
    try:
        body = msgspec.json.encode(data, enc_hook=str)
    except UnicodeEncodeError:  # half a surrogate pair in a stranger's text
        tree = json.loads(json.dumps(data, default=str), parse_constant=lambda _: None)
        body = json.dumps(tree).encode()
    return Response(body, status, media_type="application/json")

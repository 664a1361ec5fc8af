"""A console that is served for a browser: some views, and a snapshot that the test sets.

Helper of the tests beside it; nothing is asked of any broker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from jinja2 import ChoiceLoader, DictLoader

from console.app import ConsoleApp, Site
from console.history import History
from console.jobs import Jobs
from console.lanes import Lanes
from console.page import Reader, View
from console.render import environment
from console.snapshot import ClusterSnapshot
from tests.support.deadline import wait_until
from tools.admin_client import AdminClient


def nobody(_account: object) -> AdminClient:
    """No client: these pages ask nobody."""
    raise AssertionError("a page asked a broker")


class ServedSite:
    """What is shown, and where."""

    def __init__(self) -> None:
        self.snapshot = ClusterSnapshot(number=1, taken_ms=1_795_852_803_004)
        self.history = History()
        self.frame: dict[str, Any] = {}
        self.url = ""
        self.watchers = 0

    def renew(self, **changes: Any) -> None:
        """A newer snapshot."""
        self.snapshot = dataclasses.replace(
            self.snapshot, number=self.snapshot.number + 1, **changes
        )

    def reader(self) -> Reader:
        """Who is not signed in."""
        return Reader(
            snapshot=self.snapshot,
            history=self.history,
            lanes=Lanes(nobody, lambda: 0),
            jobs=Jobs(lambda: 0),
            client_of=nobody,
            name_servers=(),
            now_ms=self.snapshot.taken_ms,
            clock_ms=self.snapshot.taken_at_ms,
        )

    def watch(self, by: int) -> None:
        """As the poller counts."""
        self.watchers += by


@contextmanager
def served(views: Sequence[View], templates: Mapping[str, str] = {}) -> Iterator[ServedSite]:
    """Views, and templates that only these tests have."""
    site = ServedSite()
    app = ConsoleApp(
        Site(
            views=views,
            reader_of=lambda _request: site.reader(),
            snapshot=lambda: site.snapshot,
            watch=site.watch,
            frame=lambda _request: site.frame,
        )
    )
    with more_templates(templates), running(app.application(), app.close) as url:
        site.url = url
        yield site


@contextmanager
def more_templates(templates: Mapping[str, str]) -> Iterator[None]:
    made = environment()
    before = made.loader
    assert before is not None
    made.loader = ChoiceLoader([DictLoader(templates), before])
    try:
        yield
    finally:
        made.loader = before


@contextmanager
def running(
    application: Any,
    close: Callable[[], None] = lambda: None,
    *,
    protocol: type[asyncio.Protocol] | None = None,
) -> Iterator[str]:
    """An ASGI application on a port of this machine; its address. `close` ends its streams."""
    config = uvicorn.Config(
        application,
        host="127.0.0.1",
        port=0,
        log_level="warning",
        lifespan="off",
        http=protocol or "auto",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        own = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{own}"
    finally:
        close()
        server.should_exit = True
        thread.join(20)

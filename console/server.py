"""The console as a server: everything is put together, and uvicorn runs it until it is stopped.

Process `console`, main thread. Order of a start: the port, the audit log, then the threads that ask
the cluster; a start that fails says why in one line. Order of an end: jobs stop after their step,
open live pages end, the threads end, the connections close.

Tested by tests/console/test_server.py.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from console.access.access import Access, AccessOptions
from console.access.audit_log import AuditLog
from console.access.client_address import Ways
from console.access.clients import AdminClients, ClientMaker
from console.access.gate import origin_of
from console.access.sign_in import likely_provers
from console.actions import Actions, ActionSite
from console.app import ConsoleApp, Site
from console.cluster_watch import ClusterWatch, WatchOptions, monotonic_ms, wall_ms
from console.downloads import download_routes
from console.dumps import Dumps
from console.jobs import Jobs
from console.page import Reader
from console.report_routes import report_routes
from console.reports import Reports
from console.site import ACTIONS, POLLED_METRICS, VIEWS
from remoting.address_patterns import AddressPatterns, parse_patterns
from remoting.signature import RequestSigner
from tools.admin_client import NameServers
from tools.errors import AdminError

if TYPE_CHECKING:
    from remoting.client_tls import ClientTls

log = logging.getLogger(__name__)

STOP_S: Final = 3
BACKLOG: Final = 128
HEAD_S: Final = 20.0
MAX_HEAD: Final = 16_384
"""Bytes of a request's line and headers: a longer query would come back in every link of a page."""


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """How the console was started."""

    name_servers: NameServers
    audit_file: Path
    host: str = "127.0.0.1"
    port: int = 8088
    is_read_only: bool = False
    host_names: frozenset[str] = frozenset()
    trusted_proxies: str = ""
    """Addresses and patterns, as RocketMQ's white lists have them."""
    certificate: Path | None = None
    key: Path | None = None
    signer: RequestSigner | None = None
    """The console's own account."""
    tls: ClientTls | None = None
    """For the cluster's ports."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """For the views."""
    reports: Path | None = None
    """Into which mqreport writes."""
    dumps: Path | None = None
    """Into which the brokers write what they know of replication."""


class Console:
    """All parts of a console. Opened within a stack that closes them in turn."""

    def __init__(self, options: ConsoleOptions, stack: ExitStack) -> None:
        """Raises AuditError, AdminError."""
        maker = ClientMaker(
            options.name_servers, wall_ms, monotonic_ms, options.signer, options.tls
        )
        self._clients = AdminClients(maker, self._knows)
        stack.callback(self._clients.close)
        audit = AuditLog(options.audit_file, wall_ms)
        stack.callback(audit.close)
        self._reports = None if options.reports is None else Reports(options.reports)
        dumps = None if options.dumps is None else Dumps(options.dumps)
        watch_options = WatchOptions(
            options.name_servers.addresses,
            POLLED_METRICS,
            {**options.values, "audit": audit, "reports": self._reports, "dumps": dumps},
        )
        self.watch = ClusterWatch(watch_options, self._clients.of)
        self.jobs = Jobs(wall_ms)
        ways = Ways(_patterns(options.trusted_proxies), options.host_names)
        self.access = Access(
            AccessOptions(options.port, ways, options.is_read_only, options.name_servers.addresses),
            maker,
            self._proving_brokers,
            audit,
            monotonic_ms,
        )
        self._options = options
        self.application = self._application()

    def start(self, stack: ExitStack) -> None:
        """Begin to ask the cluster."""
        self.watch.start()
        stack.callback(self.watch.stop)
        stack.callback(self.jobs.stop_all)

    def url(self) -> str:
        """What the operator opens: it signs them in."""
        options = self._options
        host = "127.0.0.1" if options.host in ("0.0.0.0", "::", "") else options.host
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if options.certificate is None else "https"
        return self.access.token.url(f"{scheme}://{shown}:{options.port}")

    def reader_of(self, request: Request) -> Reader:
        """Who asks, and what is known now."""
        session = self.access.session_of(request)
        reader = self.watch.reader(
            None if session is None else session.account,
            may_change=self.access.may_change(session),
            jobs=self.jobs,
            address=origin_of(request).address,
        )
        if session is None:
            return reader
        return replace(reader, check_address=self.access.check_of(session))

    def close_pages(self) -> None:
        """End the streams of live pages: the server would wait for them. Any thread."""
        self._app.close()

    def _application(self) -> ASGIApp:
        site = Site(
            views=VIEWS,
            reader_of=self.reader_of,
            snapshot=self.watch.snapshot,
            watch=self.watch.poller.watch,
            frame=self.access.frame,
        )
        app = self._app = ConsoleApp(site)
        self.access.pages = app
        actions = Actions(
            ACTIONS,
            ActionSite(
                access=self.access,
                page=app.page,
                sentence=app.sentence,
                reader_of=self.reader_of,
                jobs=self.jobs,
            ),
        )
        routes = [
            *self.access.routes(),
            *actions.routes(),
            *download_routes(self.reader_of, app.sentence),
            *report_routes(self._reports, app.sentence),
        ]
        made: Starlette = app.application(routes)
        return self.access.wrap(made)

    def _proving_brokers(self) -> list[str]:
        return likely_provers(self.watch.snapshot())

    def _knows(self, address: str) -> bool:
        """Whether a broker has answered there."""
        broker = self.watch.snapshot().broker(address)
        return broker is not None and broker.has_answered


def assistant_watch(options: ConsoleOptions, stack: ExitStack) -> Callable[[], Reader]:
    """For assistants: a reader who is not signed in, of a cluster that is watched from now on."""
    maker = ClientMaker(options.name_servers, wall_ms, monotonic_ms, options.signer, options.tls)
    clients = AdminClients(maker)
    stack.callback(clients.close)
    watch_options = WatchOptions(options.name_servers.addresses, POLLED_METRICS, options.values)
    watch, jobs = ClusterWatch(watch_options, clients.of), Jobs(wall_ms)
    watch.start()
    stack.callback(watch.stop)
    return lambda: watch.reader(None, may_change=False, jobs=jobs)


def listen(host: str, port: int) -> socket.socket:
    """The port. AdminError that names it and the way out."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise AdminError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another with --port"
        ) from error


def serve(options: ConsoleOptions, stack: ExitStack, listening: socket.socket) -> None:
    """Run until SIGTERM or SIGINT."""
    options = replace(options, port=listening.getsockname()[1])
    console = Console(options, stack)
    config = uvicorn.Config(
        console.application,
        log_config=None,
        access_log=False,  # it would hold the token
        server_header=False,
        proxy_headers=False,
        http=_ImpatientProtocol,
        h11_max_incomplete_event_size=MAX_HEAD,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=STOP_S,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        ssl_version=ssl.PROTOCOL_TLS_SERVER,
    )
    raise_descriptor_limit()
    console.start(stack)
    sys.stdout.write(f"The console is at {console.url()}\n")
    sys.stdout.flush()
    _Server(config, console.close_pages).run(sockets=[listening])


class _ImpatientProtocol(H11Protocol):
    """uvicorn's, that closes a connection which has not sent a request's head in time: it would
    hold a descriptor for ever."""

    def connection_made(self, transport: Any) -> None:
        """A browser, or whoever it is, has connected."""
        super().connection_made(transport)
        self.loop.call_later(HEAD_S, self._end_silent)

    def _end_silent(self) -> None:
        no_request = getattr(self, "cycle", None) is None
        if no_request and not self.transport.is_closing():
            self.transport.close()


def raise_descriptor_limit() -> None:
    """As many connections as the kernel allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Server(uvicorn.Server):
    """uvicorn's, that ends the live pages when it is told to stop."""

    def __init__(self, config: uvicorn.Config, close_pages: Callable[[], None]) -> None:
        super().__init__(config)
        self._close_pages = close_pages

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, which raises the signal once more at its end, and closes nothing then."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal."""
        self._close_pages()
        super().handle_exit(sig, frame)


def _patterns(text: str) -> AddressPatterns:
    """Raises AdminError for what is no address."""
    try:
        return parse_patterns(text)
    except ValueError as error:
        raise AdminError(f"--trusted-proxies: {error}") from error

"""RequestDispatcher: passes requests to their processors, and turns exceptions into responses.

Used by both sides of the protocol: the server for each of its ports, the client for requests over
connections that it opened (40, 220, 307, ...). Runs on the loop's thread, processors with an
executor on a thread of that pool. Responses to errors: RequestError -> its code and remark, any
other exception -> SYSTEM_ERROR (logged), an unknown code -> REQUEST_CODE_NOT_SUPPORTED, a full pool
-> SYSTEM_BUSY, a oneway request -> nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_executor import RequestExecutor
from remoting.request_processor import ConnectionLike, RequestProcessor, Route
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

_NS_PER_MS: Final = 1_000_000
OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"


def refusal_of(connection: ConnectionLike, code: int, error: Exception) -> RequestError:
    """What a request of `code` that raised `error` is answered: the request guard's rule, for those
    who answer later, too. Logs what is no RequestError."""
    if isinstance(error, RequestError):
        return error
    log.error("%s: request %s failed", connection.remote_address, code, exc_info=error)
    return RequestError(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


RequestGate = Callable[[ConnectionLike, RemotingCommand], None]
"""Lets requests in (Java: RPCHook.doBeforeRequest): raises RequestError when this peer may not ask
for that. On the request's thread."""


class AnswerObserver(Protocol):
    """Notified of every response."""

    def answered(
        self, request_code: int, code: int, elapsed_ms: float, *, oneway: bool = False
    ) -> None:
        """A request was answered with `code`, `elapsed_ms` after it was received. Any thread; must
        not block."""
        ...


class RequestDispatcher:
    """A route table with its pools. Raises ValueError for a route whose executor is unknown."""

    def __init__(
        self,
        routes: Mapping[int, Route],
        executors: Mapping[str, RequestExecutor] | None = None,
        observer: AnswerObserver | None = None,
        gate: RequestGate | None = None,
    ) -> None:
        """gate: called before the processor, on its thread and within its guard; never for a code
        without a route."""
        executors = executors or {}
        for code, route in routes.items():
            if route.executor is not None and route.executor not in executors:
                raise ValueError(f"request code {code}: no executor named {route.executor}")
        self._routes = routes
        self._executors = executors
        self._observer = observer
        self._gate = gate

    def with_routes(self, routes: Mapping[int, Route]) -> RequestDispatcher:
        """The same for a port with a route table of its own."""
        return RequestDispatcher(routes, self._executors, self._observer, self._gate)

    def shutdown(self) -> None:
        """End the pools, after the requests that wait in them."""
        for executor in self._executors.values():
            executor.shutdown()

    def dispatch(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        """Serve one request, here or in its pool."""
        came_ns = time.monotonic_ns()
        route = self._routes.get(request.code)
        if route is None:
            remark = f" request type {request.code} not supported"
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            self._answer(connection, request, request.response(code, remark), came_ns)
        elif route.executor is None:
            self._process(connection, request, route.processor, came_ns)
        else:
            executor = self._executors[route.executor]
            request.came_ns = came_ns
            self._submit(connection, request, route.processor, executor, came_ns)

    def _submit(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        processor: RequestProcessor,
        executor: RequestExecutor,
        came_ns: int,
    ) -> None:
        def run() -> None:
            self._process(connection, request, processor, came_ns)

        def refuse(remark: str) -> None:
            log.warning("%s: request %s: %s", connection.remote_address, request.code, remark)
            busy = request.response(ResponseCode.SYSTEM_BUSY, remark)
            self._answer(connection, request, busy, came_ns)

        if not executor.try_submit(run, refuse):
            refuse(OVERLOAD)

    def _process(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        processor: RequestProcessor,
        came_ns: int,
    ) -> None:
        """The request guard: any exception of a processor becomes a response."""
        response: RemotingCommand | None
        try:
            if self._gate is not None:
                self._gate(connection, request)
            response = processor.process_request(connection, request)
        except Exception as error:  # noqa: BLE001 - the request guard
            response = _response_to(connection, request, error)
        if response is not None:
            self._answer(connection, request, response, came_ns)

    def refuse(
        self, connection: ConnectionLike, request: RemotingCommand, error: Exception
    ) -> None:
        """The guard of fast routes: answer the request that raised `error` there."""
        came_ns = time.monotonic_ns()
        self._answer(connection, request, _response_to(connection, request, error), came_ns)

    def _answer(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        response: RemotingCommand,
        came_ns: int,
    ) -> None:
        # Counted first: whatever a peer was told is in the counters, also after a kill.
        if self._observer is not None:
            elapsed_ms = (time.monotonic_ns() - came_ns) / _NS_PER_MS
            self._observer.answered(
                request.code, response.code, elapsed_ms, oneway=request.is_oneway
            )
        if not request.is_oneway:
            connection.send_command(response)


def _response_to(
    connection: ConnectionLike, request: RemotingCommand, error: Exception
) -> RemotingCommand:
    refusal = refusal_of(connection, request.code, error)
    return request.response(refusal.code, refusal.remark, refusal.ext_fields)

"""RequestDispatcher: hands the requests of a peer to their processors, and answers what they raise.

Both sides of the protocol use it: the server for each of its ports, the client for what comes over
a connection we opened (40, 220, 307, ...). Runs on the loop's thread, processors with an executor
on that pool's. What is answered:
RequestError -> its code and remark, any other exception -> SYSTEM_ERROR (logged), an unknown code
-> REQUEST_CODE_NOT_SUPPORTED, a full pool -> SYSTEM_BUSY, a oneway request -> nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_processor import ConnectionLike, RequestProcessor, Route
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"


class Executor(Protocol):
    """A bounded thread pool."""

    def try_submit(self, function: Callable[[], None]) -> bool:
        """Run `function` in the pool; False when its waiting line is full."""
        ...


class RequestDispatcher:
    """A route table with its pools. Raises ValueError for a route whose executor is unknown."""

    def __init__(self, routes: Mapping[int, Route], executors: Mapping[str, Executor]) -> None:
        for code, route in routes.items():
            if route.executor is not None and route.executor not in executors:
                raise ValueError(f"request code {code}: no executor named {route.executor}")
        self._routes = routes
        self._executors = executors

    def dispatch(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        """Serve one request, now or in its pool."""
        route = self._routes.get(request.code)
        if route is None:
            remark = f" request type {request.code} not supported"
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            _answer(connection, request, request.response(code, remark))
        elif route.executor is None:
            _process(connection, request, route.processor)
        else:
            self._submit(connection, request, route.processor, self._executors[route.executor])

    def _submit(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        processor: RequestProcessor,
        executor: Executor,
    ) -> None:
        if not executor.try_submit(lambda: _process(connection, request, processor)):
            log.warning("%s: no room for request %s", connection.remote_address, request.code)
            busy = request.response(ResponseCode.SYSTEM_BUSY, OVERLOAD)
            _answer(connection, request, busy)


def _process(
    connection: ConnectionLike, request: RemotingCommand, processor: RequestProcessor
) -> None:
    """The request guard: whatever a processor raises becomes an answer."""
    try:
        response = processor.process_request(connection, request)
    except RequestError as error:
        response = request.response(error.code, error.remark)
    except Exception as error:
        log.exception("%s: request %s failed", connection.remote_address, request.code)
        remark = f"{type(error).__name__}: {error}"
        response = request.response(ResponseCode.SYSTEM_ERROR, remark)
    if response is not None:
        _answer(connection, request, response)


def _answer(
    connection: ConnectionLike, request: RemotingCommand, response: RemotingCommand
) -> None:
    if not request.is_oneway:
        connection.send_command(response)

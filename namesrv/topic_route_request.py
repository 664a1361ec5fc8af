"""Reads the body of request 217, a topic's route, within a limit.

Any thread; for the rules and the processor. Knows no table.
"""

from __future__ import annotations

from typing import Final

from remoting.body.route import TopicRouteData
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode

MAX_ROUTE_BYTES: Final = 256 << 10
"""1,500 brokers; each filter server that is named costs the loop 2 us."""


def read_topic_route(request: RemotingCommand) -> TopicRouteData:
    """Raises RequestError for a route that is too long, BodyError for a bad one."""
    size = len(request.body)
    if size > MAX_ROUTE_BYTES:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"a route of {size} bytes, over the limit of {MAX_ROUTE_BYTES}",
        )
    return TopicRouteData.from_request(request.body)

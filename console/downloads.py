"""Downloads: what is too long for a page: all dead letters of a group, as JSON lines.

In process `console`; read while it is sent, in Starlette's pool of threads, so that it takes the
memory of one pull. Signed-in readers only. What could not be read is a line of its own.

Tested by tests/console/test_server.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from console.errors import ConsoleError
from console.lanes import ANSWER_ERRORS
from console.page import Query, Reader
from tools.dead_letters import Read, Unread, scan

DEAD_LETTERS: Final = "/dead-letters/export"


def download_routes(
    reader_of: Callable[[Request], Reader], sentence: Callable[[Request, str, int], Response]
) -> list[BaseRoute]:
    """Of the application."""

    def endpoint(request: Request) -> Response:
        try:
            lines = dead_letter_lines(reader_of(request), Query(dict(request.query_params)))
            first = list(itertools.islice(lines, 1))  # what refuses all of it does so here
        except ConsoleError as error:
            return sentence(request, str(error), error.status)
        except ANSWER_ERRORS as error:
            return sentence(request, str(error), 502)
        return StreamingResponse(
            itertools.chain(first, lines),
            media_type="application/x-ndjson",
            headers={"Content-Disposition": 'attachment; filename="dead-letters.jsonl"'},
        )

    return [Route(DEAD_LETTERS, endpoint)]


def dead_letter_lines(reader: Reader, query: Query) -> Iterator[bytes]:
    """A line a letter, as `mqadmin exportDlq` writes it."""
    reader.must_sign_in("dead letters")
    return map(_line, scan(reader.client(), query.needed("name")))


def _line(found: Read) -> bytes:
    if isinstance(found, Unread):
        return msgspec.json.encode({"unread": found.what, "reason": found.reason}) + b"\n"
    return msgspec.json.encode(found.export_json()) + b"\n"

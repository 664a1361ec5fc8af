"""Fields of a POST, with a bound on how much of it is read. On the event loop.

Starlette's own reader of such forms has no bound: a body of 16 MiB would be taken. Files are not
uploaded to this console, so that the one encoding of plain forms is enough.

Tested by tests/console/access/test_access.py.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from console.page import ConsoleError

MAX_BODY: Final = 1 << 20
MAX_FIELDS: Final = 5_000
"""A page of messages with a box for each of them."""
_FORM: Final = "application/x-www-form-urlencoded"


async def form_of(request: Request) -> dict[str, str]:
    """The fields; of a name that comes twice the last. ConsoleError for what is no form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise ConsoleError(f"a form is sent as {_FORM}", 415)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise ConsoleError(f"the form is larger than {MAX_BODY >> 20} MiB", 413)
    try:
        pairs = parse_qsl(
            body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS
        )
    except ValueError as error:
        raise ConsoleError(f"the form has more than {MAX_FIELDS} fields", 413) from error
    return dict(pairs)

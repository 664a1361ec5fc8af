"""Serves mqreport's files below /reports/, as they are, and nothing else of their directory.

Starlette's pool of threads. A report needs no script and no other file; its one style element
counts by a digest that the page itself names, which is what the answer's policy allows, too.

Tested by tests/console/test_reports.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from console.reports import Reports

_HEAD: Final = 8_192
_DIGEST: Final = re.compile(rb"style-src '(sha256-[A-Za-z0-9+/]{43}=)'")
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".csv": "text/csv; charset=utf-8",
}
_MISSING: Final = "There is no such report; the verdicts say which dates have one."


def report_routes(
    reports: Reports | None, sentence: Callable[[Request, str, int], Response]
) -> list[BaseRoute]:
    """Of the application; none without a directory."""
    if reports is None:
        return []

    def endpoint(request: Request) -> Response:
        path = reports.file(request.path_params["name"])
        if path is None:
            return sentence(request, _MISSING, 404)
        try:
            headers = {"Content-Security-Policy": policy(path)}
            return FileResponse(path, media_type=_TYPES[path.suffix], headers=headers)
        except OSError:
            return sentence(request, _MISSING, 404)

    return [Route("/reports/{name:path}", endpoint, methods=["GET"])]


def policy(path: Path) -> str:
    """What a served file may do: be shown, with the style that a report names itself."""
    style = "'none'"
    if path.suffix == ".html":
        with path.open("rb") as file:
            match = _DIGEST.search(file.read(_HEAD))
        style = "'none'" if match is None else f"'{match[1].decode()}'"
    return (
        f"default-src 'none'; style-src {style}; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )

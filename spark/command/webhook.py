"""Sends a report's verdict to a webhook: one POST of JSON to an address that the user gave.

Runs on the driver, after the report is written. A failure here is a note and never the report's
failure. An address may hold secrets (`https://user:password@host`, or a secret path): no text that
is shown, and no `repr`, has more of it than scheme and host.
"""

from __future__ import annotations

import base64
import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from spark.config.sla_values import is_web_address
from spark.figures.report_data import EXIT_ERROR, ReportData
from spark.page import budget_steps
from spark.page.headlines import (
    calendar_headlines,
    day_headline,
    one_line,
    short_reasons,
    window_headline,
)
from spark.page.summary import calendar_verdicts

VERSION: Final = 1
"""Of the JSON: raised by a change that would mislead a reader; new fields do not raise it."""
TIMEOUT_S: Final = 10.0
_ALLOWED: Final = "/%:@!$&'()*+,;=~-._?"
"""In a path or query, beside letters and digits; others are written as %XX."""


class AddressError(ValueError):
    """An address that cannot be used; the text does not repeat it."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The message goes to the given address only: an answer 3xx counts as a refusal."""

    def redirect_request(self, *_: Any) -> None:
        """See HTTPRedirectHandler."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """An http or https address. Raises AddressError for any other."""

    address: str = field(repr=False)

    def __post_init__(self) -> None:
        if not is_web_address(self.address):
            raise AddressError("is not an http or https address: write https://host/path")

    @property
    def shown(self) -> str:
        """`https://host:port/…`: fit for a log."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…"

    def find_failure(
        self,
        message: Mapping[str, Any] | Sequence[Any],
        timeout_s: float = TIMEOUT_S,
        headers: Mapping[str, str] | None = None,
    ) -> str | None:
        """Posts `message` as JSON; None when it was accepted, else why not.

        Waits `timeout_s` at most, whatever the other side does: a late POST continues in a
        daemon thread.
        """
        outcome: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(
            target=lambda: outcome.put(self._post(message, headers or {}, timeout_s)),
            name="webhook",
            daemon=True,
        ).start()
        try:
            failure = outcome.get(timeout=timeout_s)
        except queue.Empty:
            failure = _late(timeout_s)
        return None if failure is None else f"{self.shown}: {failure}"

    def _post(
        self,
        message: Mapping[str, Any] | Sequence[Any],
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> str | None:
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            with opener.open(self._request(message, headers), timeout=timeout_s):
                return None
        except urllib.error.HTTPError as error:
            error.close()
            redirects = 300 <= error.code < 400
            return f"answered {error.code}" + (
                ", a redirect: give the address that it leads to" if redirects else ""
            )
        except TimeoutError:
            return _late(timeout_s)
        except (OSError, HTTPException, ValueError) as error:  # the last: no such host's name
            reason = getattr(error, "reason", error)  # urllib's wrapper around the error itself
            if isinstance(reason, TimeoutError):
                return _late(timeout_s)
            return str(getattr(reason, "strerror", None) or type(reason).__name__)

    def _request(
        self, message: Mapping[str, Any] | Sequence[Any], more: Mapping[str, str]
    ) -> urllib.request.Request:
        parts = urlsplit(self.address)
        name, _, host = parts.netloc.rpartition("@")
        path, query = quote(parts.path or "/", _ALLOWED), quote(parts.query, _ALLOWED)
        url = urlunsplit((parts.scheme, host, path, query, ""))
        body = json.dumps(message, ensure_ascii=True).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "mqreport", **more}
        if name:  # urllib would take it for a part of the host's name
            user, _, password = name.partition(":")
            plain = f"{unquote(user)}:{unquote(password)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(plain).decode()}"
        return urllib.request.Request(url, body, headers, method="POST")


def _late(timeout_s: float) -> str:
    return f"no answer within {timeout_s:g} s"


def message_of(data: ReportData, page: str) -> dict[str, Any]:
    """What is posted of a report. `text` says all of it in a line, for chats."""
    day, window = day_headline(data), window_headline(data)
    return {
        "version": VERSION,
        "date": data.date,
        "verdict": data.verdict,
        "reasons": short_reasons(data, day),
        "rolling": {
            "days": data.longest_window,
            "begun": window.begun,
            "verdict": window.verdict,
            "reasons": short_reasons(data, window),
        },
        "calendar": [
            {**verdict, "reasons": short_reasons(data, period)}
            for verdict, period in zip(
                calendar_verdicts(data), calendar_headlines(data), strict=True
            )
        ],
        "budget_steps": budget_steps.for_programs(data),
        "revision": data.revision,
        "exit_on": data.exit_on,
        "exit_code": data.exit_code,
        "page": page,
        "text": f"{one_line(data)}; page: {page}",
    }


def message_of_failure(date: str, error: str) -> dict[str, Any]:
    """What is posted of a date that has no report."""
    return {
        "version": VERSION,
        "date": date,
        "verdict": None,
        "error": error,
        "exit_code": EXIT_ERROR,
        "text": f"{date}: no report: {error}",
    }

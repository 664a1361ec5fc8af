"""Parses the HTTP headers Accept and Accept-Encoding (RFC 9110, section 12).

Pure functions. Any header is parsed in one pass; a malformed quality value is ignored. Knows
nothing of metrics. (prometheus_client's own parser fails on quoted versions and ignores q.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

# Neither splits inside a quoted string; an unterminated string runs to the end.
_ELEMENT: Final = re.compile(r'(?:[^,"]++|"[^"]*+"?+)+')
_PART: Final = re.compile(r'(?:[^;"]++|"[^"]*+"?+)+')
_QUALITY: Final = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?")


class Accepted(NamedTuple):
    """One element of an Accept or Accept-Encoding header."""

    name: str
    """Media range or coding, in lower case."""
    parameters: Mapping[str, str]
    """Without q; names in lower case, values without their quotes."""
    quality: float
    """0: not accepted."""


def parse_accepted(header: str) -> list[Accepted]:
    """The header's elements in order. Repeated headers must be joined with commas first."""
    found = []
    for element in _ELEMENT.findall(header):
        name, *parts = [part.strip() for part in _PART.findall(element)] or [""]
        if name:
            parameters = dict(_parameter(part) for part in parts)
            quality = parameters.pop("q", "1")
            readable = _QUALITY.fullmatch(quality) is not None
            found.append(Accepted(name.lower(), parameters, float(quality) if readable else 1.0))
    return found


def _parameter(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip().lower(), value.strip().strip('"')

"""What an HTTP client accepts: Accept and Accept-Encoding, read as RFC 9110, section 12, says.

Pure. Whatever a header holds, it is read in one pass; what is no quality counts as none given. It
knows no metrics. (prometheus_client's own reading stumbles over quoted versions and knows no q.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

# Neither ends within a quoted string; one that is not closed lasts to the end.
_ELEMENT: Final = re.compile(r'(?:[^,"]|"[^"]*"?)++')
_PART: Final = re.compile(r'(?:[^;"]|"[^"]*"?)++')
_QUALITY: Final = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?")


class Accepted(NamedTuple):
    """One element of such a header."""

    name: str
    """Media range or coding, in lower case."""
    parameters: Mapping[str, str]
    """Without q; names in lower case, values without their quotes."""
    quality: float
    """0: not accepted."""


def parse_accepted(header: str) -> list[Accepted]:
    """Its elements in their order. Several headers of one name: joined by commas."""
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

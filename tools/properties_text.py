"""Settings as brokers and name servers send them: lines "key=value", nothing escaped.

Pure functions. The broker writes them without Java's escapes, so a properties parser would eat
the backslashes.
"""

from __future__ import annotations

from tools.report import safe_line


def parse_lines(body: bytes) -> dict[str, str]:
    """Key to value, in the order of the lines."""
    lines = (line for line in body.decode(errors="replace").splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


def properties_lines(properties: dict[str, str]) -> list[str]:
    """The original's lines, sorted by key."""
    return [f"{key:<50}=  {safe_line(properties[key])}" for key in sorted(properties)]

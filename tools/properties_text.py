"""Settings as brokers and name servers send them: lines "key=value", nothing escaped.

Pure functions. The broker writes them without Java's escapes, so a properties parser would eat
the backslashes; a change goes out as RocketMQ sends it, without escapes too.
"""

from __future__ import annotations

import click

from tools.report import safe_line


def parse_lines(body: bytes) -> dict[str, str]:
    """Key to value, in the order of the lines."""
    lines = (line for line in body.decode(errors="replace").splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


def properties_lines(properties: dict[str, str]) -> list[str]:
    """RocketMQ's lines, sorted by key."""
    return [f"{safe_line(key):<50}=  {safe_line(properties[key])}" for key in sorted(properties)]


def setting_body(key: str, value: str) -> bytes:
    """The body that changes one setting (Java: MixAll.properties2String); a usage
    error if it would be parsed as another key or value."""
    key, value = key.strip(), value.strip()
    if not key or any(char in key for char in "=:#!\\") or key.split() != [key]:
        raise click.UsageError(f"-k: {key!r} is not a valid settings key")
    if "\n" in value or "\r" in value:
        raise click.UsageError("-v: a value must be a single line")
    return f"{key}={value}\n".encode()

"""ContainedInfo: what the container hands to the supervisor of one broker, and what it hears back.

The container writes it as JSON into a memfd whose number is the process's only argument. The
process writes one JSON object as a line into its status pipe: Served, or Failed. Values only; any
process.
"""

from __future__ import annotations

import msgspec


class ContainedInfo(msgspec.Struct, kw_only=True):
    """Everything that the supervisor of a broker in a container inherits; descriptors are numbers
    valid in it."""

    canonical_name: str
    settings: dict[str, str]
    """Those of StartupOptions.child_settings."""
    config_file: str
    namesrv_addresses: tuple[str, ...]
    warnings: tuple[str, ...]
    log_dir: str
    cores: tuple[int, ...]
    """Where all its processes run; empty: anywhere."""
    life_fd: int
    """A pipe whose other end closes when the container ends."""
    status_fd: int


class BrokerStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How the start of a broker went: it serves (`boot_line`), or it does not (`failure`)."""

    boot_line: str = ""
    failure: str = ""
    write_refusal: str = ""
    """Why a broker that serves takes no messages; empty: it takes them."""

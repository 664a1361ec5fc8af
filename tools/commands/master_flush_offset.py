"""resetMasterFlushOffset: the master's flush offset that a slave remembers.

(Java: ResetMasterFlushOffsetSubCommand.) What it is for: docs/replication.md.
"""

from __future__ import annotations

from typing import Annotated

import click

from remoting.headers.ha import ResetMasterFlushOffsetHeader
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.command_line import command
from tools.report import Report


@command("resetMasterFlushOffset")
def reset_master_flush_offset(
    admin: AdminClient,
    address: Annotated[str, "-b --brokerAddr", "Slave, host:port."],
    offset: Annotated[
        int,
        "-o --offset",
        "Position in the commit log up to which the master had flushed.",
        click.IntRange(0, (1 << 63) - 1),
    ],
) -> Report:
    """Reset the master's flush offset at a slave."""
    address = address.strip()
    header = ResetMasterFlushOffsetHeader(master_flush_offset=offset)
    admin.call(address, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)
    text = f"reset master flush offset to {offset} success"
    return Report(text, {"brokerAddr": address, "masterFlushOffset": offset})

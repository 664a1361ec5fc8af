"""adminAudit: what operators have changed at a broker of ours, and what was refused.

Runs in the command's main thread.

Tested by tests/tools/test_mqadmin_admin_audit.py.
"""

from __future__ import annotations

from typing import Annotated, Final

import click
import msgspec

from remoting.body.admin_audit import AdminAuditEntry
from tools.admin_audit import newest_changes, result_text, what_text
from tools.admin_client import AdminClient
from tools.command_line import command
from tools.message_text import second_text
from tools.report import Report, columns, table

_COLUMNS: Final = columns(
    "#No number > | #Time time | #Who who | #From address | #Request name | #What what | "
    "#Result result"
)
_SHOWN: Final = 120
"""Characters of what was asked; --json has the rest."""


@command("adminAudit")
def admin_audit(
    admin: AdminClient,
    address: Annotated[str, "-b --brokerAddr", "Broker address, host:port."],
    count: Annotated[
        int, "-l --lines", "How many of the newest, up to 1000.", click.IntRange(1, 1000)
    ] = 100,
    before: Annotated[
        int | None, "--before NUMBER", "Those before the line of this number.", click.IntRange(1)
    ] = None,
) -> Report:
    """Show what operators changed at a broker of ours, the oldest of the lines first."""
    answer = newest_changes(admin, address, count, before)
    entries = answer.entries[::-1]
    text = table(_COLUMNS, [_row(entry) for entry in entries]).text
    if answer.before_number is not None:
        text += f"\nolder ones: --before {answer.before_number}"
    return Report(text, msgspec.to_builtins(entries))


def _row(entry: AdminAuditEntry) -> tuple[object, ...]:
    what = what_text(entry)
    if len(what) > _SHOWN:
        what = f"{what[:_SHOWN]}…"
    result = result_text(entry)
    if entry.left_out:
        result += f" ({entry.left_out} before it have no line)"
    who = "-" if entry.who is None else entry.who
    return entry.number, second_text(entry.time), who, entry.address, entry.name, what, result

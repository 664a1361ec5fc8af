"""Commands that ask each broker at an address or of a cluster the same thing, and say so of each.

Such a command is a row: whom it asks, what it says of each broker, and the request, which a
function makes of the command's own options without asking anybody. Runs in the command's main
thread. It must not know any request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import click

from remoting.command_custom_header import CommandCustomHeader
from remoting.errors import RemotingError
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.command_line import command_of
from tools.errors import AdminError
from tools.options import option, options_of
from tools.report import Report
from tools.targets import Address, Masters, Members, master_targets, member_targets


@dataclass(frozen=True, slots=True)
class Whom:
    """Which brokers: the options that name them, and how they are found."""

    address: Any
    cluster: Any
    find: Callable[[AdminClient, str | None, str | None], list[str]]


MEMBERS: Final = Whom(Address, Members, member_targets)
MASTERS: Final = Whom(Address, Masters, master_targets)
CREATE_AT_MASTERS: Final = Whom(
    Annotated[str | None, "-b --brokerAddr", "Create it at this broker (host:port)."],
    Annotated[str | None, "-c --clusterName", "Create it at all masters of this cluster."],
    master_targets,
)


@dataclass(frozen=True, slots=True)
class Change:
    """The request, and what is shown beside the brokers that took it."""

    code: RequestCode
    header: CommandCustomHeader | None = None
    body: bytes = b""
    data: dict[str, Any] = field(default_factory=dict)
    """In JSON, after the brokers' addresses."""
    lines: tuple[str, ...] = ()
    """Below the lines about brokers."""


def change(
    name: str,
    whom: Whom,
    said: str,
    *,
    asks: str | Callable[..., str | None] | None = None,
    goes_on: bool = False,
) -> Callable[[Callable[..., Change]], click.Command]:
    """A command out of a function(**options) that makes the request.

    said: the line about a broker, `{}` stands for its address. asks: as for `command`. goes_on: a
    refusal by one broker does not stop the others.
    """

    def decorate(build: Callable[..., Change]) -> click.Command:
        def run(
            admin: AdminClient, address: str | None, cluster: str | None, **options: Any
        ) -> Report:
            wanted = build(**options)
            targets = whom.find(admin, address, cluster)
            done = send_each(admin, targets, wanted, goes_on=goes_on)
            lines = [said.format(target) for target in done]
            return Report("\n".join([*lines, *wanted.lines]), {"brokerAddrs": done, **wanted.data})

        place = [option("address", whom.address), option("cluster", whom.cluster)]
        return command_of(name, run, [*place, *options_of(build)], asks=asks)

    return decorate


def send_each(
    admin: AdminClient, targets: list[str], wanted: Change, *, goes_on: bool = False
) -> list[str]:
    """Ask them one after the other; those that took it. goes_on: AdminError at the end."""
    done, failures = [], []
    for target in targets:
        try:
            admin.call(target, wanted.code, wanted.header, wanted.body)
        except (RemotingError, AdminError) as error:
            if not goes_on:
                raise
            failures.append(str(error))
        else:
            done.append(target)
    if failures:
        succeeded = f"succeeded at brokers: {', '.join(done)}; failed: " if done else ""
        raise AdminError(succeeded + "; ".join(failures))
    return done

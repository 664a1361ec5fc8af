"""What all commands of mqadmin share: common options, confirmation before data is lost, repetition.

Runs once per command in the main thread. A command is a plain function from an AdminClient and
its own options, which its parameters declare (tools/options.py), to reports; `command` makes a
click command of it. It must not know any request.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import click

from remoting.errors import RemotingError, RequestError
from tools.account import find_signer
from tools.admin_client import AdminClient, NameServers
from tools.command_table import COMMANDS
from tools.errors import AdminError
from tools.message_text import second_text
from tools.options import FLAG, options_of
from tools.report import Report, Reports, print_reports, safe_line
from tools.targets import place_text
from tools.tls import find_tls

CONTEXT_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_CANNOT_REDRAW: Final = ("", "dumb", "unknown")
"""What TERM says of a terminal without cursor movements."""
_NAME_SERVERS: Final = "Name servers, host:port;host:port [default: $NAMESRV_ADDR, 127.0.0.1:9876]."
COMMAND_ERRORS: Final = (AdminError, RemotingError, RequestError)
"""Errors that may end a command; each has a message of one line."""


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Clock and waiting of a command; tests replace them (click's context object)."""

    wait: Callable[[float], bool] = field(default_factory=lambda: threading.Event().wait)
    """Waits seconds between repetitions; True ends them."""
    now_ms: Callable[[], int] = wall_clock_ms


@dataclass(frozen=True, slots=True)
class _Common:
    """The common options and their values; `_interval` declares the interval."""

    name_servers: Annotated[str | None, "-n --namesrvAddr ADDRESSES", _NAME_SERVERS]
    as_json: Annotated[bool, "--json", "Print one line of JSON.", FLAG]
    interval: float | None
    yes: Annotated[bool, "--yes", "Do it without asking.", FLAG] = False


def command(
    name: str,
    *,
    asks: str | Callable[..., str | None] | None = None,
    every_s: float | None = None,
    is_view: bool = False,
) -> Callable[[Callable[..., Reports]], click.Command]:
    """A click command called `name` out of a function(admin, **options) that gives reports.

    `asks` is the question to confirm, with the options in it, `{place}` for -b and -c; or it makes
    one from the options; None: nothing is lost with these options. `every_s` is the interval of a
    command that repeats by default. `is_view`: each round reads the same thing; it is shown with
    its time, and a terminal shows only the latest.
    """

    def decorate(function: Callable[..., Reports]) -> click.Command:
        own = options_of(function)
        return command_of(name, function, own, asks=asks, every_s=every_s, is_view=is_view)

    return decorate


def command_of(
    name: str,
    function: Callable[..., Reports],
    own: Sequence[click.Option],
    *,
    asks: str | Callable[..., str | None] | None = None,
    every_s: float | None = None,
    is_view: bool = False,
) -> click.Command:
    """As `command`, with the options of the function."""
    name_servers, as_json, yes = options_of(_Common)
    shared = [name_servers, as_json, _interval(own, every_s), *([] if asks is None else [yes])]

    def callback(**options: Any) -> None:
        common = _Common(**{str(option.name): options.pop(str(option.name)) for option in shared})
        question = None if common.yes else _question(asks, options)
        if question is not None:
            _ask(question)
        _run(name, functools.partial(function, **options), common, is_view=is_view)

    return click.Command(
        name,
        params=[*shared, *own],
        callback=callback,
        help=COMMANDS[name].description + ".",
        short_help=COMMANDS[name].description,
        context_settings=CONTEXT_SETTINGS,
    )


def _question(asks: str | Callable[..., str | None] | None, options: dict[str, Any]) -> str | None:
    if asks is None or callable(asks):
        return asks and asks(**options)
    return asks.format(**options, place=place_text(options.get("address"), options.get("cluster")))


def _interval(own: Sequence[click.Option], every_s: float | None) -> click.Option:
    """-i repeats unless the command uses that letter itself."""
    taken = any("-i" in option.opts for option in own)
    return click.Option(
        [*([] if taken else ["-i"]), "--interval"],
        type=click.FloatRange(min=0.1),
        metavar="SECONDS",
        default=every_s,
        help="Repeat every SECONDS" + ("." if every_s is None else f" [{every_s:g}]."),
    )


def _ask(question: str) -> None:
    """Continue only after a yes; without a terminal --yes is required."""
    if not sys.stdin.isatty():
        raise AdminError(f"{question} Without a terminal, confirm with --yes")
    click.confirm(question, abort=True, err=True)


def _run(
    name: str, function: Callable[[AdminClient], Reports], common: _Common, *, is_view: bool
) -> None:
    """Run a command once or repeatedly; only a failure of the first round ends it."""
    context = click.get_current_context().find_object(CommandContext) or CommandContext()
    servers = NameServers.parse(common.name_servers or os.environ.get("NAMESRV_ADDR"))
    signer = find_signer(os.environ.get("ROCKETMQ_HOME"))
    tls = find_tls(os.environ)
    with AdminClient(servers, context.now_ms, signer, tls) as admin, ExitStack() as stack:
        first = function(admin)
        show: Callable[[Reports], None] = functools.partial(print_reports, as_json=common.as_json)
        if is_view and common.interval is not None and not common.as_json:
            show = _timed(_open_view(stack), context.now_ms)
        show(first)
        while common.interval is not None and not context.wait(common.interval):
            try:
                show(function(admin))
            except COMMAND_ERRORS as error:
                print_error(name, error)


def _open_view(stack: ExitStack) -> Callable[[str], None]:
    """A function that redraws a text in place on a terminal, and prints it elsewhere."""
    if sys.stdout.isatty() and os.environ.get("TERM", "") not in _CANNOT_REDRAW:
        from tools.live_view import LiveView

        return stack.enter_context(LiveView()).show
    return functools.partial(print, flush=True)


def _timed(draw: Callable[[str], None], now_ms: Callable[[], int]) -> Callable[[Reports], None]:
    """Shows a command's results below the time at which they were read."""

    def show(reports: Reports) -> None:
        found = [reports] if isinstance(reports, Report) else list(reports)
        draw("\n".join([second_text(now_ms()), *(report.text for report in found)]))

    return show


def print_error(name: str, error: object) -> None:
    """One line on stderr about a command."""
    prefix = f"mqadmin {name}" if name else "mqadmin"
    print(f"{prefix}: {safe_line(str(error))}", file=sys.stderr, flush=True)

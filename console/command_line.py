"""The command line of mqconsole: options to ConsoleOptions, and the end of a start in one line.

Main thread of process `console`. Exit codes: 0 stopped in order, 1 could not start, 2 wrong usage.

Tested by tests/console/test_command_line.py.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from conf.installation import enter_program
from tools.account import find_signer
from tools.admin_client import NameServers
from tools.errors import AdminError
from tools.report import safe_line
from tools.tls import find_tls

if TYPE_CHECKING:
    from console.server import ConsoleOptions

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
DEFAULT_PORT: Final = 8088
DEFAULT_AUDIT_FILE: Final = Path("~/logs/rocketmqlogs/console-audit.jsonl")
_MISSING: Final = (
    "mqconsole needs packages that are not installed ({name}): run it as bin/mqconsole of a "
    "checkout, or install with the extra: pip install '.[{extra}]'"
)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="A console in the browser for any RocketMQ cluster. It prints the link that signs its "
    "operator in.",
)
@click.option(
    "-n",
    "--namesrvAddr",
    "name_servers",
    metavar="ADDRESSES",
    help="Name servers, host:port;host:port [default: $NAMESRV_ADDR, 127.0.0.1:9876].",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port.",
)
@click.option(
    "--read-only", "is_read_only", is_flag=True, help="Nothing can be changed through it."
)
@click.option(
    "--reports",
    type=click.Path(path_type=Path),
    help="The directory that mqreport writes to: shows its verdicts.",
)
@click.option(
    "--dumps",
    type=click.Path(path_type=Path),
    help="The directory of the brokers' metrics dumps: shows 40 days of their history.",
)
@click.option(
    "--host-name",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers reach it, besides localhost and addresses (repeatable).",
)
@click.option(
    "--trusted-proxies",
    default="",
    metavar="ADDRESSES",
    help="Proxies whose X-Forwarded-* headers count.",
)
@click.option("--certificate", type=click.Path(path_type=Path), help="TLS: the certificate, PEM.")
@click.option("--key", type=click.Path(path_type=Path), help="TLS: its key, PEM.")
@click.option(
    "--audit-file",
    type=click.Path(path_type=Path),
    default=DEFAULT_AUDIT_FILE,
    show_default=True,
    help="Who changed what.",
)
@click.option("--mcp", "is_mcp", is_flag=True, help="Serve assistants on stdin and stdout instead.")
def mqconsole(*, is_mcp: bool, **given: Any) -> None:
    """Run it until it is stopped."""
    logging.basicConfig(
        level=logging.WARNING,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s - %(message)s",
    )
    try:
        options = options_of(**given)
        with ExitStack() as stack:
            if is_mcp:
                _serve_assistants(options, stack)
            else:
                _serve_browsers(options, stack)
    except ModuleNotFoundError as error:
        extra = "console,mcp" if is_mcp else "console"
        raise AdminError(_MISSING.format(name=error.name, extra=extra)) from error


def options_of(
    *,
    name_servers: str | None,
    host_names: Sequence[str],
    audit_file: Path,
    certificate: Path | None,
    key: Path | None,
    **rest: Any,
) -> ConsoleOptions:
    """What the command line says, with the account and TLS of mqadmin. Raises AdminError."""
    from console.server import ConsoleOptions

    if (certificate is None) is not (key is None):
        raise AdminError("--certificate and --key are needed together")
    for path in (certificate, key):
        if path is not None and not os.access(path, os.R_OK):
            raise AdminError(f"{path} cannot be read")
    return ConsoleOptions(
        name_servers=NameServers.parse(name_servers or os.environ.get("NAMESRV_ADDR")),
        audit_file=audit_file.expanduser(),
        host_names=frozenset(name.lower() for name in host_names),
        certificate=certificate,
        key=key,
        signer=find_signer(os.environ.get("ROCKETMQ_HOME")),
        tls=find_tls(os.environ),
        **rest,
    )


def _serve_browsers(options: ConsoleOptions, stack: ExitStack) -> None:
    from console.access.audit_log import AuditError
    from console.server import listen, serve

    listening = stack.enter_context(listen(options.host, options.port))
    try:
        serve(options, stack, listening)
    except AuditError as error:
        raise AdminError(f"{error}; choose another file with --audit-file") from error


def _serve_assistants(options: ConsoleOptions, stack: ExitStack) -> None:
    """No audit log is opened, no port: nothing can be changed."""
    from console.mcp_server import make_server
    from console.server import assistant_watch
    from console.site import VIEWS

    reader = assistant_watch(options, stack)
    make_server(VIEWS, reader).run()


def run() -> int:
    """The console script `mqconsole` of an installed wheel."""
    enter_program("mqconsole", sys.argv[1:], os.environ)
    return main(sys.argv[1:])


def main(arguments: Sequence[str]) -> int:
    """Run it; the exit code."""
    try:
        mqconsole.main(list(arguments), prog_name="mqconsole", standalone_mode=False)
    except click.ClickException as error:
        click.echo(f"mqconsole: {safe_line(error.format_message())}", err=True)
        return EXIT_USAGE
    except AdminError as error:
        click.echo(f"mqconsole: {safe_line(str(error))}", err=True)
        return EXIT_FAILED
    except (KeyboardInterrupt, click.Abort):
        return EXIT_OK
    return EXIT_OK

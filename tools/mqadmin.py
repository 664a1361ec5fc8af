"""mqadmin: the operator's commands, with the names and option letters of RocketMQ.

Runs as a short-lived program: `mqadmin <command> [options]`, `mqadmin help <command>`. Imports
only the module of the requested command. An error is one line on stderr. Exit codes:
0 done, 1 refused or unreachable, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

import click
from click.shell_completion import CompletionItem

from conf.installation import enter_program
from tools.command_line import COMMAND_ERRORS, CONTEXT_SETTINGS, CommandContext, print_error
from tools.command_table import COMMANDS, find_command

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


class LazyGroup(click.Group):
    """A group that finds its commands in the command table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name in any case; None when there is none."""
        name = find_command(cmd_name)
        return super().get_command(ctx, cmd_name) if name is None else load_command(name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, from the table alone (no module of a command is imported), and options."""
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*complete_command(ctx, None, incomplete), *options]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but naming the nearest command."""
        if self.get_command(ctx, args[0]) is None:
            raise click.UsageError(unknown_command(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of all commands."""
        formatter.write(command_list())


def load_command(name: str) -> click.Command:
    """Import the module of a command and find the command in it."""
    module = importlib.import_module(f"tools.commands.{COMMANDS[name].module}")
    return next(
        value
        for value in vars(module).values()
        if isinstance(value, click.Command) and value.name == name
    )


def complete_command(
    _ctx: click.Context, _parameter: click.Parameter | None, incomplete: str
) -> list[CompletionItem]:
    """The commands that begin with `incomplete`, in any case, for the shell to offer."""
    described = {name: entry.description for name, entry in COMMANDS.items()}
    described["help"] = "Show the help of a command."
    return [
        CompletionItem(name, help=text)
        for name, text in described.items()
        if name.lower().startswith(incomplete.lower())
    ]


def unknown_command(name: str) -> str:
    """One line that there is no such command, with the nearest one."""
    folded = {known.lower(): known for known in (*COMMANDS, "help")}
    nearest = get_close_matches(name.lower(), folded, n=1, cutoff=0.4)
    hint = f"the nearest is {folded[nearest[0]]}" if nearest else "mqadmin help lists them all"
    return f"the sub command {name} does not exist; {hint}"


def command_list() -> str:
    """The text of `mqadmin help`."""
    width = max(map(len, COMMANDS))
    lines = [f"   {name:<{width}}  {entry.description}" for name, entry in COMMANDS.items()]
    return "\n".join(
        [
            "The most commonly used mqadmin commands are:",
            *lines,
            "",
            "Every command takes -n ADDRESSES, --json, -h, and -i SECONDS to repeat (--interval",
            "SECONDS where -i means something else); those that ask for confirmation take --yes.",
            "See 'mqadmin help <command>' for more information on a specific command.",
            "'mqadmin --version' prints the version.",
            "",
        ]
    )


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@click.pass_context
def mqadmin(ctx: click.Context) -> None:
    """The group itself: without a command it lists them."""
    if ctx.invoked_subcommand is None:
        click.echo(command_list(), nl=False)


@mqadmin.command("help", context_settings=CONTEXT_SETTINGS, help="Show the help of a command.")
@click.argument("name", required=False, shell_complete=complete_command)
@click.pass_context
def help_command(ctx: click.Context, name: str | None) -> None:
    """Print the list of commands, or the options of one."""
    if name is None:
        click.echo(command_list(), nl=False)
        return
    found = find_command(name)
    if found is None:
        raise click.UsageError(unknown_command(name), ctx.parent)
    with click.Context(load_command(found), parent=ctx.parent, info_name=found) as own:
        click.echo(own.get_help())


def run() -> int:
    """The console script `mqadmin` of an installed wheel."""
    enter_program("mqadmin", sys.argv[1:], os.environ)
    return main(sys.argv[1:])


def main(arguments: Sequence[str], context: CommandContext | None = None) -> int:
    """Run one command; the exit code."""
    logging.getLogger().addHandler(
        logging.NullHandler()
    )  # the client's problems are raised as errors
    name = find_command(arguments[0]) or "" if arguments else ""
    try:
        code = mqadmin.main(
            list(arguments), prog_name="mqadmin", standalone_mode=False, obj=context
        )
    except click.UsageError as error:
        hint = f" (mqadmin help {name} lists its options)" if name else ""
        if isinstance(error, click.NoSuchOption) and not name:
            hint = " (options come after the command; mqadmin help lists the commands)"
        print_error(name, error.format_message() + hint)
        return EXIT_USAGE
    except click.Abort:
        print_error(name, "stopped")
        return EXIT_INTERRUPTED
    except COMMAND_ERRORS as error:
        print_error(name, error)
        return EXIT_FAILED
    return code if isinstance(code, int) else EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

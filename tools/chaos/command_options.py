"""Options that both commands of mqchaos have: seeds, kinds of faults, where it lives, what it says.

Used when the modules of the commands are imported. Tested by tests/tools/chaos/test_mqchaos.py.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import click

EXIT_VIOLATED: Final = 1
CommandT = TypeVar("CommandT", bound=Callable[..., None])
KindT = TypeVar("KindT", bound=enum.StrEnum)


def seed_options(command: CommandT) -> CommandT:
    """--seed and --seeds."""
    options = (
        click.option(
            "--seed", type=int, help="The first seed; unset: a random one, which is printed."
        ),
        click.option(
            "--seeds", default=1, type=click.IntRange(1), help="How many seeds, one by one. [1]"
        ),
    )
    return _with(options, command)


def output_options(command: CommandT) -> CommandT:
    """--dir, --keep, --json and --quiet."""
    options = (
        click.option(
            "--dir",
            "directory",
            type=click.Path(path_type=Path, file_okay=False),
            help="Where it all lives; a seed that held is removed unless --keep. "
            "[a temporary directory]",
        ),
        click.option("--keep", is_flag=True, help="Keep the files of seeds that held, too."),
        click.option(
            "--json", "as_json", is_flag=True, help="The summary of all seeds as JSON, only."
        ),
        click.option("-q", "--quiet", is_flag=True, help="A line a seed."),
    )
    return _with(options, command)


def _with(options: tuple[Callable[[CommandT], CommandT], ...], command: CommandT) -> CommandT:
    """In this order in the help: decorators are applied from the last one on."""
    for option in reversed(options):
        command = option(command)
    return command


def kinds_of(
    kinds: type[KindT],
) -> Callable[[click.Context, click.Parameter, str | None], list[KindT] | None]:
    """The callback of --faults: kinds by their names, separated by commas; None: it was not
    given."""

    def parse(
        _context: click.Context, _option: click.Parameter, text: str | None
    ) -> list[KindT] | None:
        if text is None:
            return None
        try:
            return [kinds(part.strip()) for part in text.split(",") if part.strip()]
        except ValueError as error:
            raise click.BadParameter(f"{error}; the kinds are {','.join(kinds)}") from error

    return parse


def be_quiet(_line: str) -> None:
    """Takes a line of progress that nobody wants."""

"""mqchaos: breaks a scratch group of brokers under load and judges what is left: `bin/mqchaos`.

A short-lived program. It needs no installation beside the broker's, touches nothing but a directory
of its own, and listens on loopback only. Exit codes: 0 every promise held, 1 a violation, 2 wrong
usage, 130 interrupted.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from conf.installation import enter_program
from tools.chaos.chaos_run import ChaosOptions, ChaosRun, summary_line
from tools.chaos.schedule import FaultKind

EXIT_HELD: Final = 0
EXIT_VIOLATED: Final = 1
EXIT_INTERRUPTED: Final = 130
_LONG_S: Final = 300.0
_ALL: Final = ",".join(FaultKind)


def _kinds(_context: click.Context, _option: click.Parameter, text: str) -> list[FaultKind]:
    try:
        return [FaultKind(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise click.BadParameter(f"{error}; the kinds are {_ALL}") from error


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--seed", type=int, help="The first seed; unset: a random one, which is printed.")
@click.option("--seeds", default=1, type=click.IntRange(1), help="How many seeds, one by one. [1]")
@click.option(
    "--seconds", default=15.0, type=click.FloatRange(3), help="Of load and faults, a seed. [15]"
)
@click.option("--long", "is_long", is_flag=True, help=f"{_LONG_S:.0f} seconds a seed.")
@click.option("--faults", default=_ALL, callback=_kinds, help=f"Kinds, of {_ALL}. [all]")
@click.option("--flush", default="async", type=click.Choice(["async", "sync"]), help="[async]")
@click.option(
    "--replication",
    default="sync",
    type=click.Choice(["none", "async", "sync"]),
    help="none: no slave; sync: SYNC_MASTER. [sync]",
)
@click.option(
    "--ack-level",
    default="received",
    type=click.Choice(["received", "validated", "flushed"]),
    help="haAckLevel. [received]",
)
@click.option("--rate", default=2500.0, type=click.FloatRange(1), help="Messages a second. [2500]")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where it all lives; a seed that held is removed unless --keep. [a temporary directory]",
)
@click.option("--keep", is_flag=True, help="Keep the files of seeds that held, too.")
@click.option("-q", "--quiet", is_flag=True, help="A line a seed.")
def chaos(
    seed: int | None,
    seeds: int,
    seconds: float,
    is_long: bool,
    faults: list[FaultKind],
    flush: str,
    replication: str,
    ack_level: str,
    rate: float,
    directory: Path | None,
    keep: bool,
    quiet: bool,
) -> None:
    """Starts a name server, a master and a slave on loopback, sends and consumes, breaks things by
    a seeded schedule, heals, and compares what the clients know with what the brokers hold.

    The same seed gives the same schedule. Nothing outside its own directory is touched.
    """
    options = ChaosOptions(
        seconds=_LONG_S if is_long else seconds,
        kinds=faults,
        flush=flush,
        replication=replication,
        ack_level=ack_level,
        rate=rate,
    )
    first = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    root = directory or Path(tempfile.mkdtemp(prefix="mqchaos-"))
    violated = 0
    for number in range(first, first + seeds):
        place = root / f"seed-{number}"
        try:
            place.mkdir(parents=True)
            run = ChaosRun(place, number, options, _be_quiet if quiet else click.echo)
        except (OSError, ValueError) as error:
            raise click.UsageError(f"cannot run in {place}: {error}") from error
        result = run.run()
        click.echo(summary_line(result))
        for text in result.violations:
            click.echo(f"  {text}")
        violated += bool(result.violations)
        if result.violations or keep:
            click.echo(f"  its logs, files, result.json and timeline.svg: {place}")
        else:
            shutil.rmtree(place)
    if seeds > 1:
        click.echo(f"{seeds - violated} of {seeds} seeds held")
    if violated == 0 and not keep and directory is None:
        shutil.rmtree(root)
    sys.exit(EXIT_VIOLATED if violated else EXIT_HELD)


def _be_quiet(_line: str) -> None:
    """No progress."""


def run() -> int:
    """The console script `mqchaos` of an installed wheel."""
    enter_program("mqchaos", sys.argv[1:], os.environ)
    return main()


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    try:
        chaos(prog_name="mqchaos", standalone_mode=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_VIOLATED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return EXIT_HELD


if __name__ == "__main__":
    sys.exit(main())

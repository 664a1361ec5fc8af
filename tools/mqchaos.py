"""mqchaos: breaks a scratch group of brokers under load and judges what is left: `bin/mqchaos`.

A short-lived program. It needs no installation beside the broker's, touches nothing but a directory
of its own, and listens on loopback only. Exit codes: 0 every promise held, 1 a violation, 2 wrong
usage, 130 interrupted.

Tested by tests/tools/chaos/test_mqchaos.py.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from conf.installation import enter_program
from tools.chaos.chaos_options import ChaosOptions, ChaosResult
from tools.chaos.chaos_run import ChaosRun, Say
from tools.chaos.command_options import (
    EXIT_VIOLATED,
    be_quiet,
    kinds_of,
    output_options,
    seed_options,
)
from tools.chaos.election_command import CONTROLLER, election_chaos
from tools.chaos.run_summary import RunSummary, summary_line
from tools.chaos.schedule import DISK_FAULTS, ON_REQUEST, FaultKind
from tools.chaos.soak_run import SOAK_KINDS, SoakRun

EXIT_HELD: Final = 0
EXIT_INTERRUPTED: Final = 130
_LONG_S: Final = 300.0
_ALL: Final = ",".join(FaultKind)
_DEFAULT: Final = tuple(kind for kind in FaultKind if kind not in ON_REQUEST)
_RATE: Final = 2500.0
_SOAK_RATE: Final = 500.0


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@seed_options
@click.option(
    "--seconds", default=15.0, type=click.FloatRange(3), help="Of load and faults, a seed. [15]"
)
@click.option("--long", "is_long", is_flag=True, help=f"{_LONG_S:.0f} seconds a seed.")
@click.option(
    "--soak",
    "soak_s",
    type=click.FloatRange(40),
    help="One seed for so many seconds, with mixed load: does anything grow?",
)
@click.option(
    "--faults",
    default=None,
    callback=kinds_of(FaultKind),
    help=f"Kinds, of {_ALL}. [all but {', '.join(ON_REQUEST)}; --soak: none that ends processes]",
)
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
@click.option("--slaves", default=1, type=click.IntRange(1, 9), help="With replication. [1]")
@click.option(
    "--in-sync",
    type=click.IntRange(2),
    help="inSyncReplicas of a SYNC_MASTER. [all brokers; with promote: 2]",
)
@click.option(
    "--accounts/--no-accounts",
    default=None,
    help="Access control, and rights that change. [with odd seeds; --soak: never]",
)
@click.option(
    "--rate",
    type=click.FloatRange(1),
    help=f"Messages a second. [{_RATE:.0f}; --soak: {_SOAK_RATE:.0f}]",
)
@output_options
@click.option(
    CONTROLLER,
    is_flag=True,
    expose_value=False,
    help="Three brokers under a controller instead; has options of its own: --controller -h.",
)
def chaos(
    seed: int | None,
    seeds: int,
    seconds: float,
    is_long: bool,
    soak_s: float | None,
    faults: list[FaultKind] | None,
    flush: str,
    replication: str,
    ack_level: str,
    slaves: int,
    in_sync: int | None,
    accounts: bool | None,
    rate: float | None,
    directory: Path | None,
    keep: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Starts a name server, a master and a slave on loopback, sends and consumes, breaks things by
    a seeded schedule, heals, and compares what the clients know with what the brokers hold.

    The same seed gives the same schedule. Nothing outside its own directory is touched.
    """
    is_soak = soak_s is not None
    options = ChaosOptions(
        seconds=soak_s or (_LONG_S if is_long else seconds),
        kinds=faults or (SOAK_KINDS if is_soak else _default_kinds(slaves)),
        flush=flush,
        replication=replication,
        ack_level=ack_level,
        rate=rate or (_SOAK_RATE if is_soak else _RATE),
        slaves=slaves,
        in_sync=in_sync,
        accounts=accounts,
    )
    first = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    root = directory or Path(tempfile.mkdtemp(prefix="mqchaos-"))
    summary = RunSummary.of(shlex.join(["bin/mqchaos", *sys.argv[1:]]), first, options)
    is_quiet = quiet or as_json
    for number in range(first, first + seeds):
        say = be_quiet if is_quiet else click.echo
        result = _run_seed(SoakRun if is_soak else ChaosRun, root, number, options, say)
        summary.add(result)
        _tell(result, root / f"seed-{number}", keep=keep, say=be_quiet if as_json else click.echo)
    if as_json:
        click.echo(json.dumps(summary.as_json(), indent=2))
    elif seeds > 1:
        click.echo("\n".join(summary.text()))
        click.echo(f"{summary.seeds_held} of {seeds} seeds held")
    if not summary.violations and not keep and directory is None:
        shutil.rmtree(root)
    sys.exit(EXIT_VIOLATED if summary.violations else EXIT_HELD)


def _run_seed(
    kind: type[ChaosRun], root: Path, seed: int, options: ChaosOptions, say: Say
) -> ChaosResult:
    place = root / f"seed-{seed}"
    try:
        place.mkdir(parents=True, mode=0o700)
        run = kind(place, seed, options, say)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"cannot run in {place}: {error}") from error
    result = run.run()
    if isinstance(run, SoakRun):
        for line in run.table():
            say(line)
    return result


def _tell(result: ChaosResult, place: Path, *, keep: bool, say: Say) -> None:
    """A line, and what was violated; the files of a seed that held go."""
    say(summary_line(result))
    for text in result.violations:
        say(f"  {text}")
    if result.violations or keep:
        say(f"  its logs, files, result.json and timeline.svg: {place}")
    else:
        shutil.rmtree(place)


def _default_kinds(slaves: int) -> list[FaultKind]:
    """What a power cut may cost is judged for a pair only."""
    return [kind for kind in _DEFAULT if slaves == 1 or kind not in DISK_FAULTS]


def run() -> int:
    """The console script `mqchaos` of an installed wheel."""
    enter_program("mqchaos", sys.argv[1:], os.environ)
    return main()


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        command = election_chaos if CONTROLLER in sys.argv[1:] else chaos
        command(prog_name="mqchaos", standalone_mode=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_VIOLATED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return EXIT_HELD


def _interrupt(_number: int, _frame: object) -> None:
    """Told to end: as by Ctrl-C, so that no broker is left behind."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

"""The command line of `bin/mqchaos --controller`: seeds on groups of three brokers and controllers.

Runs in the process of mqchaos. Tested by tests/tools/chaos/test_election_run.py.
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from tools.chaos.command_options import (
    EXIT_VIOLATED,
    be_quiet,
    kinds_of,
    output_options,
    seed_options,
)
from tools.chaos.election_options import ElectionOptions
from tools.chaos.election_schedule import OF_ETCD, ElectionFault
from tools.chaos.election_series import ElectionSeries, tell
from tools.chaos.election_summary import ElectionSummary

CONTROLLER: Final = "--controller"
_WITH_ETCD: Final = 3
_ALL: Final = ",".join(ElectionFault)


def _settings(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, object]:
    if wrong := [text for text in texts if "=" not in text]:
        raise click.BadParameter(f"{wrong[0]!r} is not key=value")
    return {key: found for key, _, found in (text.partition("=") for text in texts)}


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(CONTROLLER, is_flag=True, expose_value=False, help="This command.")
@seed_options
@click.option("--count", default=3, type=click.IntRange(1), help="Faults a seed. [3]")
@click.option(
    "--faults",
    "kinds",
    default=None,
    callback=kinds_of(ElectionFault),
    help=f"Kinds, of {_ALL}. [all; {', '.join(sorted(OF_ETCD))} only with --etcd]",
)
@click.option("--rate", default=2_400.0, type=click.FloatRange(1), help="Messages a second. [2400]")
@click.option(
    "--etcd",
    "etcd_nodes",
    default=0,
    type=click.IntRange(0, 9),
    help="Nodes of etcd, in which the controllers keep their groups; etcd is on the PATH. [none]",
)
@click.option(
    "--controllers",
    type=click.IntRange(1, 9),
    help="How many; several need --etcd. [1; with --etcd 3]",
)
@click.option(
    "--conf", "settings", multiple=True, callback=_settings, help="key=value of all brokers."
)
@output_options
def election_chaos(
    *,
    seed: int | None,
    seeds: int,
    count: int,
    kinds: list[ElectionFault] | None,
    rate: float,
    etcd_nodes: int,
    controllers: int | None,
    settings: dict[str, object],
    directory: Path | None,
    keep: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Starts three brokers in the safe mode of controller mode, a controller and a name server on
    loopback, loads them, breaks them as the seed says, heals them, and compares what the clients
    know with what the brokers hold.

    The same seed gives the same faults. Five seeds share a group, each with topics of its own.
    """
    number_of_controllers = controllers or (_WITH_ETCD if etcd_nodes else 1)
    if number_of_controllers > 1 and not etcd_nodes:
        raise click.UsageError("several controllers need a store that they share: --etcd 3")
    if etcd_nodes and shutil.which("etcd") is None:
        raise click.UsageError("--etcd: there is no etcd on the PATH (Debian: etcd-server)")
    options = ElectionOptions(
        kinds=list(ElectionFault) if kinds is None else kinds,
        faults=count,
        rate=rate,
        settings=settings,
        controllers=number_of_controllers,
        etcd_nodes=etcd_nodes,
    )
    if not options.usable_kinds():
        raise click.UsageError("no kind of fault is left: those of etcd need a group with etcd")
    first = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    root = directory or Path(tempfile.mkdtemp(prefix="mqchaos-"))
    summary = ElectionSummary(shlex.join(["bin/mqchaos", *sys.argv[1:]]), first)
    say = be_quiet if quiet or as_json else click.echo
    try:
        with ElectionSeries(root, options, keeps=keep, say=say) as series:
            for number in range(first, first + seeds):
                result = series.run(number)
                summary.add(result)
                tell(be_quiet if as_json else click.echo, series, result)
                text = json.dumps(summary.as_json(), indent=2)
                (root / "summary.json").write_text(text + "\n")
    except OSError as error:
        raise click.UsageError(f"cannot run in {root}: {error}") from error
    if as_json:
        click.echo(json.dumps(summary.as_json(), indent=2))
    else:
        click.echo("\n".join(summary.text()))
    if not summary.violations and not keep and directory is None:
        shutil.rmtree(root)
    sys.exit(EXIT_VIOLATED if summary.violations else 0)

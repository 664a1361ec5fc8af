"""`mqreport rules`: writes the Prometheus rules that watch the objectives of sla.yaml.

Runs as its own command; starts no Spark. What the rules are is the business of
spark/config/prometheus_rules.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from spark.command.arguments import RaisingParser, add_sla_option, find_sla
from spark.command.failures import exit_code_of
from spark.command.output import PROGRAM, deliver
from spark.config.prometheus_rules import rules_text


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs `mqreport rules`; returns its exit code. Raises UsageError and SlaError."""
    given = _parser().parse_args(list(arguments))
    text = rules_text(find_sla(given.sla, environment))
    return exit_code_of(lambda: _deliver(text, given.out))


def _deliver(text: str, path: str | None) -> int:
    deliver(text, path)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = RaisingParser(
        prog=f"{PROGRAM} rules",
        allow_abbrev=False,
        description="Prometheus recording and alert rules for the objectives of sla.yaml."
        " More: docs/monitoring.md",
    )
    add_sla_option(parser)
    parser.add_argument("--out", metavar="FILE", help="where the rules go (default: stdout)")
    return parser

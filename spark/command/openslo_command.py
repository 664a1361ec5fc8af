"""`mqreport openslo`: the objectives of sla.yaml as OpenSLO v1 documents, and back.

Runs as its own command; starts no Spark. What the documents are is the business of
spark/config/openslo_documents.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from spark.command.arguments import RaisingParser, add_sla_option, find_sla
from spark.command.failures import exit_code_of
from spark.command.output import PROGRAM, deliver
from spark.config.openslo_documents import documents_text, read_sla_of
from spark.config.sla_text import sla_text


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs `mqreport openslo`; returns its exit code. Raises UsageError and SlaError."""
    given = _parser().parse_args(list(arguments))
    return exit_code_of(lambda: _deliver(given, environment))


def _deliver(given: argparse.Namespace, environment: Mapping[str, str]) -> int:
    if given.command == "export":
        text = documents_text(find_sla(given.sla, environment))
    else:
        text = sla_text(read_sla_of(given.files))
    deliver(text, given.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = RaisingParser(
        prog=f"{PROGRAM} openslo",
        allow_abbrev=False,
        description="The objectives of sla.yaml as OpenSLO v1 documents, and such documents as an"
        " sla.yaml. More: docs/nightly.md",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="export|import")
    export = commands.add_parser("export", help="write OpenSLO documents", allow_abbrev=False)
    add_sla_option(export)
    back = commands.add_parser("import", help="write an sla.yaml", allow_abbrev=False)
    back.add_argument("files", nargs="+", metavar="FILE", help="YAML documents, separated by ---")
    for command in (export, back):
        command.add_argument("--out", metavar="FILE", help="where the text goes (default: stdout)")
    return parser

"""`mqreport openslo`: the objectives of sla.yaml as OpenSLO v1 documents, and back.

Runs as its own command; starts no Spark. What the documents are is the business of
spark/config/openslo_documents.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from spark.command.arguments import PROGRAM, RaisingParser, find_sla
from spark.command.output import say
from spark.config.openslo_documents import documents_text, read_sla_of
from spark.config.openslo_reader import OpenSloError
from spark.config.sla_text import sla_text
from spark.figures.report_data import EXIT_ERROR


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs `mqreport openslo`; returns its exit code. Raises UsageError and SlaError."""
    given = _parser().parse_args(list(arguments))
    try:
        if given.command == "export":
            text = documents_text(find_sla(given.sla, environment))
        else:
            text = sla_text(read_sla_of(given.files))
        if given.out is None:
            say(sys.stdout, text.rstrip("\n"))
        else:
            Path(given.out).write_text(text, encoding="utf-8")
    except OpenSloError as error:
        for problem in error.problems:
            say(sys.stderr, f"{PROGRAM}: {problem}")
        return EXIT_ERROR
    except OSError as error:
        say(sys.stderr, f"{PROGRAM}: {error.filename}: {error.strerror}")
        return EXIT_ERROR
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
    export.add_argument(
        "--sla", metavar="FILE", help="objectives (default: conf/sla.yaml of the installation)"
    )
    back = commands.add_parser("import", help="write an sla.yaml", allow_abbrev=False)
    back.add_argument("files", nargs="+", metavar="FILE", help="YAML documents, separated by ---")
    for command in (export, back):
        command.add_argument("--out", metavar="FILE", help="where the text goes (default: stdout)")
    return parser

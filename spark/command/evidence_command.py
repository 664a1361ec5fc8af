"""`mqreport verify` and `mqreport sign`: what of the results is proved, and by whom.

Run as their own commands; start no Spark. What is looked at is the business of
spark/evidence/verification.py.

Tested by tests/spark/command/test_failures.py.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from spark.command.arguments import RaisingParser, UsageError, add_bounds_option, date_type
from spark.command.failures import exit_code_of
from spark.command.out_lock import is_in_use, state_of
from spark.command.output import PROGRAM, complain, say
from spark.dumps.dump_text import Bounds
from spark.dumps.durable_files import replace_file, sync_directory
from spark.evidence.finding import EDITED
from spark.evidence.links import DIRECTORY
from spark.evidence.signatures import (
    KEYS,
    read_private_key,
    read_public_key,
    signature_name,
)
from spark.evidence.verification import Asked, Verified, verify
from spark.figures.report_data import EXIT_ERROR


def verify_main(arguments: Sequence[str]) -> int:
    """Runs `mqreport verify`; 0 proved, 1 edited, 2 cannot be proved, 3 bad input. Raises
    UsageError."""
    given = _verify_parser().parse_args(list(arguments))
    for path in (given.out, *given.dumps):
        _check_directory(path)
    return exit_code_of(lambda: _verify(given))


def _verify(given: argparse.Namespace) -> int:
    key = None if given.public_key is None else read_public_key(Path(given.public_key))
    asked = Asked(
        out=Path(given.out),
        dumps=[Path(path) for path in given.dumps],
        key=key,
        first=given.begin,
        last=given.end,
        sla=None if given.sla is None else Path(given.sla),
        exclusions=None if given.exclusions is None else Path(given.exclusions),
        head=given.head,
        bounds=Bounds(given.max_dump_file_mb),
    )
    before = _state(asked.out)
    found = verify(asked)
    if found.findings and (is_in_use(asked.out) or state_of(asked.out) != before):
        raise UsageError(
            f"{asked.out}: mqreport wrote to it while it was looked at; verify it again"
        )
    if given.all:
        for finding in found.findings:
            complain(finding.text)
    say(sys.stdout, verified_line(found, has_dumps=bool(given.dumps)))
    return found.code


def _state(out: Path) -> frozenset[tuple[str, int, int]]:
    """Of results that nobody writes now. Raises UsageError."""
    if is_in_use(out):
        raise UsageError(f"{out}: another mqreport is writing to it; wait until it ends")
    return state_of(out)


def verified_line(found: Verified, *, has_dumps: bool) -> str:
    """What stdout gets."""
    what = "dump lines and results" if has_dumps else "results (no dump line was checked)"
    first = found.first
    if first is not None:
        more = len(found.findings) - 1
        others = f" (and {more} more: --all)" if more else ""
        verdict = "NOT PROVED" if first.code == EDITED else "cannot be proved"
        return f"{verdict}: {first.text}{others}"
    days = f"{found.dates[0]} to {found.dates[-1]} ({len(found.dates)} days{_in_part(found)})"
    signers = ", ".join(f"SHA256:{signer}" for signer in found.signers)
    return (
        f"proved: {what} of {days} are those that were signed by {signers};"
        f" head {found.links[-1].digest} (link {found.links[-1].number})"
    )


def _in_part(found: Verified) -> str:
    """`, 2 of them in part: 2026-11-18, …`; nothing where all are whole."""
    if not found.parts:
        return ""
    more = ", …" if len(found.parts) > 1 else ""
    return f", {len(found.parts)} of them in part: {found.parts[0]}{more}"


def sign_main(arguments: Sequence[str]) -> int:
    """Runs `mqreport sign`; 0 signed, 1 something was edited: not signed, 3 bad input. Raises
    UsageError."""
    given = _sign_parser().parse_args(list(arguments))
    _check_directory(given.out)
    return exit_code_of(lambda: _sign(given))


def _sign(given: argparse.Namespace) -> int:
    out = Path(given.out)
    key = read_private_key(Path(given.key))
    _state(out)
    found = verify(Asked(out), with_signatures=False)
    edited = [finding for finding in found.findings if finding.code == EDITED]
    if edited:
        complain(f"not signed: {edited[0].text}")
        return EDITED
    links = [link for link in found.links if given.date in (None, link.date)]
    if not links:
        complain(f"{out}: there is no evidence{f' of {given.date}' if given.date else ''}")
        return EXIT_ERROR
    link = links[-1]
    place = out / DIRECTORY
    content = (place / link.name).read_bytes()
    if hashlib.sha256(content).hexdigest() != link.digest:
        complain(f"not signed: {place / link.name}: was changed while it was looked at")
        return EDITED
    (out / KEYS).mkdir(exist_ok=True)
    replace_file(out / KEYS / f"{key.public.short}.pem", key.public.pem)
    sync_directory(out / KEYS)
    name = signature_name(link.name, key.public.short)
    replace_file(place / name, key.sign(content))
    sync_directory(place)
    say(
        sys.stdout,
        f"signed: link {link.number} of {link.date} and all before it, by"
        f" SHA256:{key.public.fingerprint}; head {link.digest}; {place / name}",
    )
    return 0


def _check_directory(path: str) -> None:
    if "://" in path:
        raise UsageError(f"{path}: only local directories can be checked; copy it")
    if not Path(path).is_dir():
        raise UsageError(f"{path}: there is no such directory")


def _verify_parser() -> argparse.ArgumentParser:
    parser = RaisingParser(
        prog=f"{PROGRAM} verify",
        allow_abbrev=False,
        description="Says in one line what is proved of results and dumps, by whose signature, or"
        " the first place that is not.",
        epilog="Exit codes: 0 proved, 1 not proved: something was edited, 2 cannot be proved"
        " (unsigned, unchained, missing), 3 bad input or error. More: docs/evidence.md.",
    )
    parser.add_argument("out", metavar="OUT", help="--out of the reports, a local directory")
    parser.add_argument(
        "--dumps",
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="metricsDumpPath of all brokers: their lines are checked, too",
    )
    add_bounds_option(parser)
    parser.add_argument("--public-key", metavar="FILE", help="whose signature counts (PEM)")
    for name, dest, text in (("from", "begin", "first"), ("to", "end", "last")):
        parser.add_argument(
            f"--{name}",
            dest=dest,
            type=date_type,
            default=datetime.date.min if name == "from" else datetime.date.max,
            metavar="YYYY-MM-DD",
            help=f"the {text} date whose results and dumps are checked (default: of all)",
        )
    parser.add_argument("--sla", metavar="FILE", help="whether the last date was judged by it")
    parser.add_argument(
        "--exclusions", metavar="FILE", help="whether it still begins as on the last date"
    )
    parser.add_argument("--head", metavar="SHA256", help="a head that an earlier run showed")
    parser.add_argument("--all", action="store_true", help="every finding, on stderr")
    return parser


def _sign_parser() -> argparse.ArgumentParser:
    parser = RaisingParser(
        prog=f"{PROGRAM} sign",
        allow_abbrev=False,
        description="Signs the evidence of a date, and with it all that was made before it.",
        epilog="Exit codes: 0 signed, 1 not signed: something was edited, 3 bad input or error."
        " A key: openssl genpkey -algorithm ed25519 -out FILE. More: docs/evidence.md.",
    )
    parser.add_argument("out", metavar="OUT", help="--out of the reports, a local directory")
    parser.add_argument("--key", required=True, metavar="FILE", help="private key (PEM, chmod 600)")
    parser.add_argument(
        "--date", type=date_type, metavar="YYYY-MM-DD", help="default: the last result made"
    )
    return parser

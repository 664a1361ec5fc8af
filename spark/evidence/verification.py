"""What of `out` is proved: links, signatures, copies, results, dumps; each doubt with its place.

For `mqreport verify` and `mqreport sign`: local files, no Spark. Gives findings in an order that
does not change: the first one is the first place that is not proved.

Tested by tests/spark/evidence/test_verify.py.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spark.config.exclusion_log import LogError, entries_of
from spark.dumps.dump_text import DEFAULT_BOUNDS, Bounds, LeftOutError
from spark.evidence.dump_chain import DateLines, LifeRecord, join
from spark.evidence.file_chain import left_out_problem
from spark.evidence.finding import EDITED, UNPROVED, Finding
from spark.evidence.kept_exclusions import exclusions_over_links
from spark.evidence.links import (
    COPIES,
    DIRECTORY,
    Link,
    LinkError,
    number_and_date,
    parse_link,
    sha256,
)
from spark.evidence.result_files import copies_of, date_of, holes_in, results_of
from spark.evidence.signatures import (
    KEYS,
    SIGNATURE_BYTES,
    KeyFileError,
    PublicKey,
    read_public_key,
    signature_name,
    signer_of,
)

_DUMP: Final = "*.jsonl*"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be verified: `first` and `last` bound the dates whose results and dumps count."""

    out: Path
    dumps: Sequence[Path] = ()
    key: PublicKey | None = None
    first: datetime.date = datetime.date.min
    last: datetime.date = datetime.date.max
    sla: Path | None = None
    exclusions: Path | None = None
    head: str | None = None
    bounds: Bounds = DEFAULT_BOUNDS


@dataclass(slots=True)
class Verified:
    """`links`: the chain; `dates`: those that were looked at; `signers`: fingerprints."""

    links: list[Link]
    dates: list[datetime.date]
    signers: list[str]
    findings: list[Finding]
    parts: list[datetime.date] = field(default_factory=list)
    """Those of `dates` that were reported in part only."""

    @property
    def code(self) -> int:
        """0 proved, else the code of `first`."""
        return self.first.code if self.first else 0

    @property
    def first(self) -> Finding | None:
        """The first place that was edited, else the first that cannot be proved."""
        return min(self.findings, key=lambda finding: finding.code, default=None)


def verify(asked: Asked, *, with_signatures: bool = True) -> Verified:
    """Looks at everything. Raises OSError that names a file."""
    contents, findings = _link_files(asked.out / DIRECTORY)
    links = _chain(contents, findings)
    signers: list[str] = []
    if with_signatures:
        findings += _signatures(asked, contents, signers)
    if asked.head is not None and asked.head not in {link.digest for link in links}:
        findings.append(Finding(EDITED, f"no link has the digest {asked.head} (--head)"))
    latest = {link.date: link for link in links}
    some = {date: latest[date] for date in sorted(latest) if asked.first <= date <= asked.last}
    if not some:
        findings.append(Finding(UNPROVED, f"{asked.out}: has no evidence of these dates"))
    within = [link for link in links if asked.first <= link.date <= asked.last]
    findings += copies_of(asked.out, within)
    findings += exclusions_over_links(asked.out, within)
    findings += results_of(asked.out, (asked.first, asked.last), some, min(latest, default=None))
    findings += holes_in(list(some))
    findings += _given_files(asked, some)
    findings += _inputs(some)
    if asked.dumps:
        findings += _dumps(asked, some)
    parts = [date for date, link in some.items() if link.is_part]
    return Verified(links, list(some), signers, findings, parts)


# -- the chain of links ---------------------------------------------------------------------------


def _link_files(place: Path) -> tuple[dict[str, bytes], list[Finding]]:
    """The links by name, in order."""
    names = sorted(path.name for path in place.glob("*")) if place.is_dir() else []
    links = [name for name in names if number_and_date(name)]
    found = {name: (place / name).read_bytes() for name in links if (place / name).is_file()}
    orphans = [name for name in names if (of := signer_of(name)) and of[0] not in found]
    findings = [Finding(EDITED, f"{name}: signs a link that is not there") for name in orphans]
    findings += [Finding(EDITED, f"link {name}: is no file") for name in links if name not in found]
    return found, findings


def _chain(contents: Mapping[str, bytes], findings: list[Finding]) -> list[Link]:
    """Those that can be read; `findings` get what is wrong."""
    links: list[Link] = []
    expected = 1
    previous: str | None = None
    for name, content in contents.items():
        try:
            link = parse_link(name, content)
        except LinkError as error:
            findings.append(Finding(EDITED, f"link {name}: {error}"))
            number = number_and_date(name)
            expected = (number[0] if number else expected) + 1
            previous = sha256(content)
            continue
        if link.number != expected:
            findings.append(Finding(EDITED, f"link {expected} is missing before {name}"))
        elif link.previous != previous:
            what = f"link {expected - 1}: was replaced" if expected > 1 else f"link {name}"
            findings.append(Finding(EDITED, f"{what}: {name} names another one before it"))
        links.append(link)
        expected, previous = link.number + 1, link.digest
    return links


def _signatures(
    asked: Asked, contents: Mapping[str, bytes], signers: list[str]
) -> Iterator[Finding]:
    place = asked.out / DIRECTORY
    by_link: dict[str, set[str]] = {name: set() for name in contents}
    for path in place.glob("*.sig") if place.is_dir() else ():
        if (named := signer_of(path.name)) and named[0] in by_link:
            by_link[named[0]].add(named[1])
    keys: dict[str, PublicKey] = {} if asked.key is None else {asked.key.short: asked.key}
    signed_up_to = 0
    for number, (name, content) in enumerate(contents.items(), 1):
        for short in sorted(by_link[name]):
            if asked.key is not None and short != asked.key.short:
                continue
            try:
                key = keys.get(short) or read_public_key(asked.out / KEYS / f"{short}.pem")
            except KeyFileError as error:
                yield Finding(UNPROVED, f"link {name}: {error}")
                continue
            keys[short] = key
            signature = _signature(place / signature_name(name, short))
            if key.short != short or not key.has_signed(content, signature):
                yield Finding(EDITED, f"link {name}: its signature by {short} does not fit")
            else:
                signed_up_to = number
                if key.fingerprint not in signers:
                    signers.append(key.fingerprint)
    rest = [
        name
        for name in list(contents)[signed_up_to:]
        if (of := number_and_date(name)) and asked.first <= of[1] <= asked.last
    ]
    others = sorted({short for name in rest for short in by_link[name]})
    if asked.key is not None and others:
        who = ", ".join(others)
        yield Finding(EDITED, f"link {rest[0]}: signed by another key: {who}")
    elif rest:
        yield Finding(UNPROVED, f"link {rest[0]}: is not signed, nor any behind it")
    if asked.key is None and signers:
        yield Finding(UNPROVED, "nobody says whose key signed it: give --public-key")


def _signature(path: Path) -> bytes:
    """What is there; nothing that is larger than a signature is one."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(SIGNATURE_BYTES + 1)


# -- their sources --------------------------------------------------------------------


def _given_files(asked: Asked, links: Mapping[datetime.date, Link]) -> Iterator[Finding]:
    """sla.yaml and the exclusions that the caller has, beside those of the last date."""
    if not links:
        return
    date, link = max(links.items())
    if asked.sla is not None and sha256(asked.sla.read_bytes()) != link.copies.get("sla"):
        kept = _copy_text(asked.out, link, "sla")
        yield Finding(EDITED, f"{asked.sla}: {date} was judged by another one{kept}")
    if asked.exclusions is not None:
        yield from _exclusions(asked.exclusions, date, asked.out, link)


def _exclusions(path: Path, date: datetime.date, out: Path, link: Link) -> Iterator[Finding]:
    now = path.read_bytes()
    try:
        entries_of(now, str(path))
    except LogError as error:
        yield Finding(EDITED, str(error))
        return
    digest = link.copies.get("exclusions")
    kept = out / COPIES / (digest or "")
    if digest is not None and kept.is_file() and not now.startswith(kept.read_bytes()):
        text = f"{path}: does not begin with the entries by which {date} was judged"
        yield Finding(EDITED, text + _copy_text(out, link, "exclusions"))


def _copy_text(out: Path, link: Link, what: str) -> str:
    digest = link.copies.get(what)
    return f" ({out / COPIES / digest})" if digest else " (the built-in one)"


# -- inputs ---------------------------------------------------------------------------------------


def _inputs(links: Mapping[datetime.date, Link]) -> Iterator[Finding]:
    """What the links say of the lines, which need not be there any more."""
    run: list[tuple[datetime.date, LifeRecord]] = []
    last: datetime.date | None = None
    for date, link in links.items():
        for text in link.problems:
            yield Finding(EDITED, f"{date}: when it was reported: {text}")
        unchained = sum(record.unchained for record in link.records)
        if unchained:
            text = f"{date}: {unchained} lines of version 1 are unchained: proved since the report"
            yield Finding(UNPROVED, f"{text} alone")
        if last is not None and date - last != datetime.timedelta(days=1):
            yield from _joined(run)
            run = []
        run += [(date, record) for record in link.records]
        last = date
    yield from _joined(run)


def _joined(records: Sequence[tuple[datetime.date, LifeRecord]]) -> Iterator[Finding]:
    for found in join(records):
        yield Finding(EDITED if found.is_break else UNPROVED, found.text)


def _dumps(asked: Asked, links: Mapping[datetime.date, Link]) -> Iterator[Finding]:
    if not links:
        return
    every: list[tuple[datetime.date, LifeRecord]] = []
    compared: list[Finding] = []
    for date in sorted({*links, *_dump_dates(asked.dumps, min(links), max(links))}):
        left_out: list[str] = []
        lines = DateLines(_files(asked, date, left_out), asked.bounds)
        records = lines.records()
        yield from (Finding(EDITED, f"{date}: {text}") for text in left_out)
        yield from (Finding(EDITED, f"{date}: {text}") for text in lines.file_problems)
        for record in records:
            yield from (Finding(EDITED, f"{date}: {text}") for text in record.problems)
        if date not in links:
            compared.append(Finding(UNPROVED, f"{date}: has dumps and no result"))
        elif not records and links[date].records:
            compared.append(Finding(UNPROVED, f"{date}: its dumps are not there"))
        else:
            compared += _compared(date, lines, records, links[date].records)
        every += [(date, record) for record in records]
    yield from _joined(every)
    yield from compared


def _compared(
    date: datetime.date,
    lines: DateLines,
    records: Sequence[LifeRecord],
    expected: Sequence[LifeRecord],
) -> Iterator[Finding]:
    """The lines that are there beside those that the date's link is about."""
    there = {record.life: record for record in records}
    for old in expected:
        new = there.pop(old.life, None)
        if new is None:
            yield Finding(EDITED, f"{date}: {old.life} line {old.first_seq}: missing, with all")
            continue
        if _plain(new) == _plain(old):
            continue
        same = lines.within(old.life, old.first_seq, old.last_seq)
        if same is not None and _plain(same) == _plain(old):
            yield Finding(UNPROVED, f"{date}: {old.life}: has lines that the result has not read")
            continue
        yield Finding(EDITED, f"{date}: {old.life} {_difference(old, new)}")
    for life in there:
        yield Finding(UNPROVED, f"{date}: {life}: is in no result")


def _plain(record: LifeRecord) -> LifeRecord:
    return dataclasses.replace(record, problems=())


def _difference(old: LifeRecord, new: LifeRecord) -> str:
    if new.first_seq > old.first_seq:
        return f"line {old.first_seq}: missing"
    if new.last_seq < old.last_seq:
        return f"line {new.last_seq + 1}: missing"
    if new.lines != old.lines:
        return f"has {new.lines} lines, the result read {old.lines}"
    if new.last_digest != old.last_digest and new.last_seq == old.last_seq:
        return f"line {old.last_seq}: was changed"
    return f"lines {old.first_seq} to {old.last_seq}: one of them was changed"


def _dump_dates(
    dumps: Sequence[Path], first: datetime.date, last: datetime.date
) -> Iterator[datetime.date]:
    for path in dumps:
        for place in path.glob("dt=*"):
            date = date_of(place)
            if date is not None and first <= date <= last:
                yield date


def _files(asked: Asked, date: datetime.date, left_out: list[str]) -> Iterator[tuple[str, bytes]]:
    """What a report of the date reads: no hidden files, and none in hidden directories. `left_out`
    gets those that are too large to be read."""
    for path in asked.dumps:
        for file in sorted((path / f"dt={date}").rglob(_DUMP)):
            parts = file.relative_to(path).parts
            if file.is_file() and not any(part.startswith((".", "_")) for part in parts):
                try:
                    asked.bounds.check_stored(file.stat().st_size)
                except LeftOutError as error:
                    left_out.append(left_out_problem(str(file), str(error)))
                    continue
                yield str(file), file.read_bytes()

"""What the kept copies of the exclusions say together: entries are only ever appended, and none was
made before a result that has not got it.

For `mqreport verify`. Each link names the copy that its result was judged by. A whole file can be
made anew with right digests; what it was at earlier links cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from spark.config.exclusion_log import Entry, LogError, entries_of, in_force, iso
from spark.evidence.finding import EDITED, UNPROVED, Finding
from spark.evidence.links import COPIES, Link, sha256

_WHAT = "exclusions"


def exclusions_over_links(out: Path, links: Sequence[Link]) -> Iterator[Finding]:
    """Of all links in their order. Those that a later one of their date replaced may have had any
    file. A copy that is not there, or was changed, is a finding of somebody else. Raises OSError
    that names a file."""
    last = {link.date: link.number for link in links}
    before: Link | None = None
    content = b""
    for link in links:
        path = out / COPIES / link.copies.get(_WHAT, "")
        if link.number != last[link.date] or not path.is_file():
            continue
        if before is None or link.copies[_WHAT] != before.copies[_WHAT]:
            now = path.read_bytes()
            if before is not None and not now.startswith(content):
                yield Finding(
                    EDITED,
                    f"link {link.number} of {link.date}: its exclusions do not begin with those of"
                    f" link {before.number} of {before.date}: an entry was changed or removed",
                )
            content = now
        before = link
    if before is not None:
        yield from _back_dated(out, content, before, links)


def _back_dated(
    out: Path, content: bytes, newest: Link, links: Sequence[Link]
) -> Iterator[Finding]:
    """Entries in force that say they were made before the event, and were not there when a result
    was made after it had begun."""
    try:
        entries = in_force(entries_of(content, f"exclusions of link {newest.number}"))
    except LogError as error:
        yield Finding(EDITED, str(error))
        return
    counts: dict[str, int] = {}
    """Entries of each copy that is the beginning of this one, by its digest."""
    for digest in {link.copies[_WHAT] for link in links if _WHAT in link.copies}:
        path = out / COPIES / digest
        size = path.stat().st_size if path.is_file() else 0
        if size and sha256(content[:size]) == digest:
            counts[digest] = content.count(b"\n", 0, size)
    for number, entry in entries.items():
        link = None if entry.is_after_the_event else _without(number, entry, links, counts)
        if link is not None:
            yield Finding(
                UNPROVED,
                f"exclusions of link {newest.number}: entry {number} says that it was made at"
                f" {iso(entry.at_ms)}, before the event; link {link.number} of {link.date}, made"
                " when that had begun, has not got it",
            )


def _without(
    number: int, entry: Entry, links: Sequence[Link], counts: Mapping[str, int]
) -> Link | None:
    """The first link that was made behind the entry's begin, and before any that has it."""
    for link in links:
        digest = link.copies.get(_WHAT)
        count = 0 if digest is None else counts.get(digest)
        if count is None:
            continue  # Judged by another file.
        if count >= number:
            return None
        if link.until_ms is not None and link.until_ms > entry.from_ms:
            return link
    return None

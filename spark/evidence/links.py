"""The chain of results: `<out>/evidence/NNNNNN_DATE.json`, a link for each result that was made.

Pure functions of bytes; the report's job writes links, `mqreport verify` reads them. A link names
the digests of what a date's result was made of and of its files, and the digest of the link before
it, in the order in which the results were made: a date that is made again with another outcome
gets one more link, and the old one stays. Must not know Spark.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark.evidence.dump_chain import LifeRecord, digest_of_records
from spark.vocabulary import DAY_MS

KIND: Final = "mqreport evidence"
VERSION: Final = 1
DIRECTORY: Final = "evidence"
COPIES: Final = f"{DIRECTORY}/files"
"""Below `out`: sla.yaml and the exclusions as they were, each named by its SHA-256."""
_NAME: Final = re.compile(r"(\d{6})_(\d{4}-\d\d-\d\d)\.json")
_PLACE: Final = ("number", "previous", "replaces")
"""What depends on where in the chain a link stands; the rest is about the result."""


class LinkError(ValueError):
    """A link that is none; the text says why."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link as read. `digest`: SHA-256 of the file's bytes, which the next link names."""

    name: str
    digest: str
    number: int
    date: datetime.date
    previous: str | None
    records: tuple[LifeRecord, ...]
    problems: tuple[str, ...]
    """Of the lines, as the report found them."""
    results: Mapping[str, Any]
    copies: Mapping[str, str]
    """SHA-256 of each file that has a copy, by what it is: `sla`, `exclusions`."""
    window: tuple[int, int] | None = None
    """What was reported on, epoch ms; it was over when the link was made. None: nobody says."""

    @property
    def until_ms(self) -> int | None:
        """The end of the window."""
        return None if self.window is None else self.window[1]

    @property
    def is_part(self) -> bool:
        """Whether the date was reported in part only."""
        return self.window is not None and self.window[1] - self.window[0] < DAY_MS


def canonical(value: Any) -> bytes:
    """The one way to write a value: ASCII, sorted keys, no spaces, a final newline."""
    return (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode("ascii")


def sha256(content: bytes) -> str:
    """Hex."""
    return hashlib.sha256(content).hexdigest()


def link_name(number: int, date: str) -> str:
    """The file of a link."""
    return f"{number:06d}_{date}.json"


def number_and_date(name: str) -> tuple[int, datetime.date] | None:
    """Of the file of a link; None for any other file."""
    match = _NAME.fullmatch(name)
    try:
        return (int(match[1]), datetime.date.fromisoformat(match[2])) if match else None
    except ValueError:
        return None


def next_link(
    body: Mapping[str, Any], last: tuple[int, bytes] | None, same_date: tuple[int, bytes] | None
) -> bytes | None:
    """The link to append; None where the date's latest link says the same.

    `last`: number and bytes of the chain's last link; `same_date`: those of the date's latest one.
    """
    if same_date is not None:
        try:
            known = json.loads(same_date[1])
            if {key: known[key] for key in known if key not in _PLACE} == dict(body):
                return None
        except (ValueError, TypeError, AttributeError):
            pass  # Not a link any more: verify says so, and the new one is another.
    return canonical(
        {
            **body,
            "number": 1 if last is None else last[0] + 1,
            "previous": None if last is None else sha256(last[1]),
            "replaces": None if same_date is None else same_date[0],
        }
    )


def _window(found: Mapping[str, Any] | None) -> tuple[int, int] | None:
    return None if found is None else (int(found["start_ms"]), int(found["end_ms"]))


def parse_link(name: str, content: bytes) -> Link:
    """Raises LinkError."""
    named = number_and_date(name)
    if named is None:
        raise LinkError("does not have the name of a link")
    try:
        found = json.loads(content)
        if found["kind"] != KIND or found["v"] != VERSION:
            raise LinkError(f"is of another kind or version than {KIND} {VERSION}")
        link = Link(
            name,
            sha256(content),
            int(found["number"]),
            datetime.date.fromisoformat(found["date"]),
            found["previous"],
            tuple(map(LifeRecord.from_json, found["inputs"]["lives"])),
            tuple(map(str, found["inputs"]["problems"])),
            dict(found["results"]),
            dict(found["copies"]),
            _window(found.get("window")),
        )
        inputs_digest = found["inputs"]["digest"]
    except LinkError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise LinkError(f"cannot be read as a link: {type(error).__name__}: {error}") from error
    if (link.number, link.date) != named:
        raise LinkError(f"says that it is number {link.number} of {link.date}")
    if inputs_digest != digest_of_records(link.records):
        raise LinkError("the digest of its inputs is not that of the lives that it names")
    if canonical(found) != content:
        raise LinkError("is not written as links are")
    return link

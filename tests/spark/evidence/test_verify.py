"""Edits of dumps, results, evidence, signatures: each is found, and the first place is named.

The results are made up; that the job writes such evidence is test_evidence_job.py's business.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import gzip
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark.command import evidence_command
from spark.command.command_line import main
from spark.config.exclusion_log import Entry, appended
from spark.dumps.dump_files import read_lines as read_lines_of_the_report
from spark.evidence import verification
from spark.evidence.dump_chain import DateLines, digest_of_records
from spark.evidence.file_chain import stretches_of_file
from spark.evidence.links import KIND, VERSION, link_name, next_link, sha256
from tests.spark.dump_lines_builder import T0, Life
from tests.spark.evidence.chained_dumps import (
    DAY_MS,
    Broker,
    dates,
    files_of,
    read_lines,
    three_days,
    write_lines,
)

SLA = b"windows: [7, 30]\n"
D1, D2, D3 = dates()


def an_entry(**fields: Any) -> Entry:
    values: dict[str, Any] = {
        "kind": "exclusion",
        "at_ms": T0,
        "who": "Ann",
        "why": "storage moved",
        "ticket": "OPS-1",
        "from_ms": T0,
        "to_ms": T0 + DAY_MS,
    }
    return Entry(**(values | fields))


@dataclass
class Place:
    """A copy of everything: dumps, results, keys."""

    root: Path

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def dumps(self) -> Path:
        return self.root / "dumps"

    def link(self, number: int) -> Path:
        (found,) = (self.out / "evidence").glob(f"{number:06d}_*.json")
        return found

    def signature(self, number: int) -> Path:
        (found,) = (self.out / "evidence").glob(f"{number:06d}_*.sig")
        return found

    def begin_ms(self, date: datetime.date) -> int:
        return T0 + (date - D1).days * DAY_MS

    def appends(self, date: datetime.date, length_ms: int = DAY_MS) -> None:
        """What the job does at the end of a date's report, from the files that are there now."""
        files = (self.dumps / f"dt={date}").rglob("*.jsonl*")
        records = DateLines((path.name, path.read_bytes()) for path in files).records()
        copies = {"sla": SLA}
        if exclusions := (self.root / "exclusions.jsonl").read_bytes():
            copies["exclusions"] = exclusions
        results: dict[str, Any] = {}
        for path in (self.out / f"report/dt={date}").iterdir():
            results[str(path.relative_to(self.out))] = sha256(path.read_bytes())
        table = self.out / f"parquet/replica_days/dt={date}"
        results[str(table.relative_to(self.out))] = sorted(
            sha256(path.read_bytes()) for path in table.glob("*.parquet")
        )
        body = {
            "v": VERSION,
            "kind": KIND,
            "date": str(date),
            "window": {"start_ms": self.begin_ms(date), "end_ms": self.begin_ms(date) + length_ms},
            "inputs": {
                "digest": digest_of_records(records),
                "lives": [record.as_json() for record in records],
                "problems": [],
            },
            "copies": {name: sha256(text) for name, text in copies.items()},
            "results": results,
        }
        place = self.out / "evidence"
        (place / "files").mkdir(parents=True, exist_ok=True)
        for text in copies.values():
            (place / "files" / sha256(text)).write_bytes(text)
        links = sorted(place.glob("*.json"))
        same = [path for path in links if str(date) in path.name]
        last, before = (
            (p[-1:] and (int(p[-1].name[:6]), p[-1].read_bytes())) for p in (links, same)
        )
        content = next_link(body, last or None, before or None)
        if content is not None:
            (place / link_name(len(links) + 1, str(date))).write_bytes(content)

    def signs(self, *arguments: str, key: str = "key.pem") -> int:
        return main(["sign", str(self.out), "--key", str(self.root / key), *arguments], lambda: 0)

    def verifies(self, *arguments: str, dumps: bool = True) -> int:
        given = ["verify", str(self.out), "--public-key", str(self.root / "key.pub"), *arguments]
        given += ["--dumps", str(self.dumps)] if dumps else []
        return main(given, lambda: 0)


def make_key(root: Path, name: str) -> None:
    """As a user does it."""
    private, public = str(root / f"{name}.pem"), str(root / f"{name}.pub")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    (root / f"{name}.pem").chmod(0o600)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("original"))
    make_key(place.root, "key")
    make_key(place.root, "other")
    three_days(place.dumps)
    path = place.root / "exclusions.jsonl"
    content = b""
    for ticket in ("OPS-1", "OPS-2"):
        content += appended(content, an_entry(ticket=ticket), str(path))
    path.write_bytes(content)
    (place.root / "sla.yaml").write_bytes(SLA)
    for date in dates():
        report = place.out / f"report/dt={date}"
        table = place.out / f"parquet/replica_days/dt={date}"
        report.mkdir(parents=True)
        table.mkdir(parents=True)
        for name in ("report.html", "replicas.csv", "incidents.csv", "summary.json"):
            (report / name).write_text(f"{name} of {date}")
        for number in range(2):
            (table / f"part-{number}.parquet").write_bytes(f"PAR1 {number} {date}".encode())
        place.appends(date)
        assert place.signs() == 0
    return place


@pytest.fixture
def place(original: Place, tmp_path: Path) -> Place:
    shutil.copytree(original.root, tmp_path / "copy")
    return Place(tmp_path / "copy")


def excludes(place: Place, *entries: Entry, since: bytes = b"") -> None:
    """The file of exclusions of the next reports: `since` and then these."""
    content = since
    for entry in entries:
        content += appended(content, entry, "")
    (place.root / "exclusions.jsonl").write_bytes(content)


def reports_again(place: Place, date: datetime.date, **window: int) -> None:
    """With another outcome."""
    append(place.out / f"report/dt={date}/report.html")
    place.appends(date, **window)
    place.signs()


Edit = Callable[[Place], None]


def of_line(day: int, file: int, number: int, change: Callable[[list[bytes], int], None]) -> Edit:
    """An edit of the lines of a file of broker `b`."""

    def edit(place: Place) -> None:
        path = files_of(place.dumps, day)[file]
        lines = read_lines(path)
        change(lines, number)
        write_lines(path, lines)

    return edit


def changed(lines: list[bytes], number: int) -> None:
    assert b'"max_offset":1000,' in lines[number]
    lines[number] = lines[number].replace(b'"max_offset":1000,', b'"max_offset":1001,')


def carriage_return(lines: list[bytes], number: int) -> None:
    lines[number] += b"\r"


def removed(lines: list[bytes], number: int) -> None:
    del lines[number]


def swapped(lines: list[bytes], number: int) -> None:
    lines[number], lines[number + 1] = lines[number + 1], lines[number]


def inserted(place: Place) -> None:
    """One in the place of the line that could not be written, as good as it can be made."""
    before, path = files_of(place.dumps, 0)[5:7]
    lines = read_lines(path)
    fields = json.loads(lines[0])
    assert fields["seq"] == 38
    digest = hashlib.sha256(read_lines(before)[-1]).hexdigest()
    assert fields["prev_digest"] == digest
    fields |= {"seq": 37, "ts": fields["ts"] - 1000}
    write_lines(path, [json.dumps(fields, separators=(",", ":")).encode(), *lines])


def twice(lines: list[bytes], number: int) -> None:
    lines.insert(number, lines[number].replace(b'"ready":true', b'"ready":false'))


def garbage(lines: list[bytes], number: int) -> None:
    lines.insert(number, b'{"v":2}')


def of_life(day: int, boot: str, *, keep: int) -> Edit:
    """Removes all of a life of `b` on a day, or but its first so many lines."""

    def edit(place: Place) -> None:
        left = keep
        for path in files_of(place.dumps, day):
            lines = read_lines(path)
            if json.loads(lines[0])["boot"] == boot:
                some = lines[:left]
                left -= len(some)
                write_lines(path, some) if some else path.unlink()

    return edit


def of_file(name: str, change: Callable[[Path], None]) -> Edit:
    def edit(place: Place) -> None:
        (path,) = place.out.glob(name)
        change(path)

    return edit


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def rehashed(place: Place) -> None:
    """The first day is made anew, consistently: result, link, and what the next links name; the
    signatures stay, as their key is not there."""
    names = sorted(path.name for path in (place.out / "evidence").glob("*.json"))
    append(place.out / f"report/dt={D1}/summary.json")
    bodies = [json.loads((place.out / "evidence" / name).read_bytes()) for name in names]
    name = f"report/dt={D1}/summary.json"
    bodies[0]["results"][name] = sha256((place.out / name).read_bytes())
    before: tuple[int, bytes] | None = None
    for name, body in zip(names, bodies, strict=True):
        rest = {key: body[key] for key in body if key not in ("number", "previous", "replaces")}
        content = next_link(rest, before, None)
        assert content is not None
        (place.out / "evidence" / name).write_bytes(content)
        before = (int(name[:6]), content)


def rehashed_one(place: Place) -> None:
    """The same of the first link alone."""
    path = place.link(1)
    body = json.loads(path.read_bytes())
    append(place.out / f"report/dt={D1}/summary.json")
    name = f"report/dt={D1}/summary.json"
    body["results"][name] = sha256((place.out / name).read_bytes())
    rest = {key: body[key] for key in body if key not in ("number", "previous", "replaces")}
    path.write_bytes(next_link(rest, None, None) or b"")
    for signature in (place.out / "evidence").glob("*.sig"):
        if not signature.name.startswith("000003"):
            signature.unlink()


def signed_by_another(place: Place) -> None:
    rehashed(place)
    for path in (place.out / "evidence").glob("*.sig"):
        path.unlink()
    assert place.signs(key="other.pem") == 0


def signed_in_the_name_of_another(place: Place) -> None:
    signed_by_another(place)
    old, new = (fingerprint(place.root / f"{name}.pub")[:16] for name in ("other", "key"))
    for path in (place.out / "evidence").rglob(f"*{old}*"):
        path.rename(path.with_name(path.name.replace(old, new)))


def fingerprint(path: Path) -> str:
    given = ["openssl", "pkey", "-pubin", "-in", str(path), "-outform", "DER"]
    return hashlib.sha256(subprocess.run(given, check=True, capture_output=True).stdout).hexdigest()


def swapped_signatures(place: Place) -> None:
    one, two = place.signature(1), place.signature(2)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def removed_link(number: int) -> Edit:
    def edit(place: Place) -> None:
        place.signature(number).unlink()
        place.link(number).unlink()

    return edit


def file_removed(place: Place) -> None:
    files_of(place.dumps, 0)[3].unlink()


def file_cut(place: Place) -> None:
    path = files_of(place.dumps, 0)[3]
    path.write_bytes(path.read_bytes()[:-30])


def broker_removed(place: Place) -> None:
    for path in list(place.dumps.rglob("broker=other")):
        shutil.rmtree(path)


def removed_last_day(place: Place) -> None:
    removed_link(3)(place)


def unreadable_copy(place: Place) -> None:
    append(place.out / "evidence/files" / sha256(SLA))


B1, B2, B3 = "0000000100000001", "0000000200000001", "0000000300000001"
OF_B = "c/b:0 boot "
EDITS: dict[str, tuple[Edit, str]] = {
    "a number in a line": (of_line(0, 3, 2, changed), f"{OF_B}{B1} line 21: was changed"),
    "a number in a day's last line": (
        of_line(0, -1, -1, changed),
        f"{OF_B}{B1} line 140: was changed",
    ),
    "a number in a life's last line": (
        of_line(1, 11, -1, changed),
        f"{OF_B}{B1} line 212: was changed",
    ),
    "a number in the very last line": (
        of_line(2, -1, -1, changed),
        f"{OF_B}{B3} line 213: was changed",
    ),
    "a carriage return": (of_line(0, 3, 2, carriage_return), f"{OF_B}{B1} line 21: was changed"),
    "a line in the middle removed": (of_line(0, 3, 2, removed), f"{OF_B}{B1} line 21: missing"),
    "the first line of the dumps removed": (of_line(0, 0, 0, removed), f"{OF_B}{B1} line 1: miss"),
    "the first line of a day removed": (of_line(1, 0, 0, removed), f"{OF_B}{B1} line 141: missing"),
    "the first line of a life removed": (of_line(1, 12, 0, removed), f"{OF_B}{B2} line 1: missing"),
    "the last line of a life removed": (of_life(1, B2, keep=2), f"{OF_B}{B2} line 3: missing"),
    "the last line of a day removed": (of_line(0, -1, -1, removed), f"{OF_B}{B1} line 140: miss"),
    "the very last line removed": (of_line(2, -1, -1, removed), f"{OF_B}{B3} line 213: missing"),
    "two lines swapped": (of_line(0, 3, 2, swapped), f"{OF_B}{B1} line 21: stands behind line 22"),
    "a line inserted": (inserted, f"{OF_B}{B1} line 37: was changed"),
    "a line twice": (of_line(0, 3, 2, twice), f"{OF_B}{B1} line 21: is there twice"),
    "a line that is none": (of_line(0, 3, 2, garbage), "line 3: is no line of a broker"),
    "a file removed": (file_removed, f"{OF_B}{B1} lines 19 to 24: missing"),
    "a file broken off": (file_cut, ".jsonl.gz: breaks off"),
    "a life removed": (of_life(1, B2, keep=0), f"{OF_B}{B2} line 1: missing"),
    "a broker removed": (broker_removed, "c/other:0 boot 0000000100000005 line 1: missing"),
    "summary.json": (of_file(f"report/dt={D2}/summary.json", append), "summary.json: was changed"),
    "report.html": (of_file(f"report/dt={D2}/report.html", append), "report.html: was changed"),
    "a csv file": (of_file(f"report/dt={D2}/replicas.csv", append), "replicas.csv: was changed"),
    "a csv file removed": (
        of_file(f"report/dt={D2}/replicas.csv", Path.unlink),
        "replicas.csv: is missing",
    ),
    "a parquet file": (
        of_file(f"parquet/*/dt={D2}/part-1.parquet", append),
        f"parquet/replica_days/dt={D2}: was changed",
    ),
    "a parquet file removed": (
        of_file(f"parquet/*/dt={D2}/part-1.parquet", Path.unlink),
        f"parquet/replica_days/dt={D2}: was changed",
    ),
    "the copy of sla.yaml": (unreadable_copy, f"{sha256(SLA)}: was changed"),
    "a link": (lambda place: append(place.link(2)), f"link 000002_{D2}.json: "),
    "a link made anew": (rehashed_one, "link 1: was replaced"),
    "all links made anew": (rehashed, f"link 000001_{D1}.json: its signature by"),
    "a day in the middle removed": (removed_link(2), "link 2 is missing"),
    "the first day removed": (removed_link(1), "link 1 is missing"),
    "the last day removed": (removed_last_day, f"report/dt={D3}: no link is about it"),
    "a signed link removed": (
        lambda place: place.link(3).unlink(),
        "signs a link that is not there",
    ),
    "swapped signatures": (swapped_signatures, f"link 000001_{D1}.json: its signature by"),
    "another key": (signed_by_another, f"link 000001_{D1}.json: signed by another key"),
    "another key by our name": (
        signed_in_the_name_of_another,
        f"link 000003_{D3}.json: its signature by",
    ),
}


def test_what_nobody_edited_is_proved(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.verifies("--all") == 0, capsys.readouterr()
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith(f"proved: dump lines and results of {D1} to {D3} (3 days)")
    assert f"SHA256:{fingerprint(place.root / 'key.pub')}" in line
    assert sha256(place.link(3).read_bytes()) in line
    assert place.verifies(dumps=False) == 0
    assert "no dump line was checked" in capsys.readouterr().out


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_found(name: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    edit, where = EDITS[name]
    edit(place)
    capsys.readouterr()
    code = place.verifies()
    found = capsys.readouterr().out
    assert (code, found.count("\n")) == (1, 1), found
    assert found.startswith("NOT PROVED: "), found
    assert where in found


BEFORE_THE_REPORT = {
    "a number in a line": 1,
    "a number in a day's last line": 1,
    "a number in a life's last line": 1,
    "a carriage return": 1,
    "a line in the middle removed": 1,
    "the first line of the dumps removed": 1,
    "the first line of a day removed": 1,
    "the first line of a life removed": 1,
    "the last line of a life removed": 1,
    "the last line of a day removed": 1,
    "two lines swapped": 1,
    "a line inserted": 1,
    "a line twice": 1,
    "a line that is none": 1,
    "a file removed": 1,
    "a file broken off": 1,
    "a life removed": 2,
    # What docs/evidence.md says that nobody can find.
    "a number in the very last line": 0,
    "the very last line removed": 0,
    "a broker removed": 0,
}


@pytest.mark.parametrize("name", BEFORE_THE_REPORT)
def test_an_edit_before_the_report(
    name: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """The links and signatures are about the edited lines: the chain of lines alone tells."""
    shutil.rmtree(place.out / "evidence")
    edit, _ = EDITS[name]
    edit(place)
    for date in dates():
        place.appends(date)
    place.signs()
    key = place.root / "key.pem"
    if not list((place.out / "evidence").glob("*.sig")):  # refused: who signs all the same?
        assert BEFORE_THE_REPORT[name] == 1
        content = place.link(3).read_bytes()
        target = place.out / "evidence" / f"{place.link(3).name}.{short_of(place)}.sig"
        raw = place.root / "content"
        raw.write_bytes(content)
        given = ["openssl", "pkeyutl", "-sign", "-inkey", str(key), "-rawin", "-in", str(raw)]
        subprocess.run([*given, "-out", str(target)], check=True)
    capsys.readouterr()
    assert place.verifies() == BEFORE_THE_REPORT[name], capsys.readouterr()


def short_of(place: Place) -> str:
    return fingerprint(place.root / "key.pub")[:16]


def test_the_files_that_the_auditor_has(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    sla, exclusions = place.root / "sla.yaml", place.root / "exclusions.jsonl"
    given = ["--sla", str(sla), "--exclusions", str(exclusions)]
    assert place.verifies(*given) == 0
    content = exclusions.read_bytes()
    later = an_entry(kind="withdrawal", withdraws=1)
    exclusions.write_bytes(content + appended(content, later, ""))
    assert place.verifies(*given) == 0, "an entry that came later is no edit"

    append(sla)
    capsys.readouterr()
    assert place.verifies(*given) == 1
    assert f"{D3} was judged by another one" in capsys.readouterr().out
    assert place.verifies("--exclusions", str(exclusions)) == 0

    exclusions.write_bytes(content.replace(b"storage moved", b"storage mived", 1))
    capsys.readouterr()
    assert place.verifies("--exclusions", str(exclusions)) == 1
    assert "exclusions.jsonl:2: does not follow from line 1" in capsys.readouterr().out

    exclusions.write_bytes(appended(b"", an_entry(ticket="OPS-3"), ""))
    capsys.readouterr()
    assert place.verifies("--exclusions", str(exclusions)) == 1
    assert "does not begin with the entries" in capsys.readouterr().out


def test_a_head_that_was_written_down(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """The last days and their results cut off together leave no trace but this one."""
    head = sha256(place.link(3).read_bytes())
    assert place.verifies("--head", head) == 0
    removed_last_day(place)
    shutil.rmtree(place.out / f"report/dt={D3}")
    assert place.verifies() in (0, 2)
    capsys.readouterr()
    assert place.verifies("--head", head) == 1
    assert head in capsys.readouterr().out


def test_what_cannot_be_proved(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    def says(text: str, *arguments: str) -> None:
        capsys.readouterr()
        assert place.verifies(*arguments) == 2
        found = capsys.readouterr().out
        assert found.startswith("cannot be proved: "), found
        assert text in found

    broker = Broker(place.dumps, "late")
    broker.boots(T0 + DAY_MS)
    broker.writes(T0 + DAY_MS)
    says(f"{D2}: c/late:0 boot 0000000100000004: is in no result")
    shutil.rmtree(files_of(place.dumps, 1, "late")[0].parent)
    shutil.rmtree(place.dumps / f"dt={D1}")
    says(f"{D1}: its dumps are not there")
    assert place.verifies("--from", str(D2)) == 0
    (place.out / f"report/dt={D3}/summary.json").unlink()
    says("summary.json: is missing", "--from", str(D2))
    assert place.verifies("--from", str(D2), "--to", str(D2)) == 0
    place.signature(3).unlink()
    says(f"link 000003_{D3}.json: is not signed", "--from", str(D2))
    assert place.verifies("--from", str(D2), "--to", str(D2)) == 0, "the second is signed"
    says("has no evidence of these dates", "--from", "2030-01-01")
    capsys.readouterr()
    place.signs()
    assert main(["verify", str(place.out), "--from", str(D2), "--to", str(D2)], lambda: 0) == 2
    assert "give --public-key" in capsys.readouterr().out


def test_lines_that_came_after_the_report(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    path = files_of(place.dumps, 2)[-1]
    lines = read_lines(path)
    write_lines(path, lines[:-2])
    for name in ("report", "parquet/replica_days"):
        append(next(iter((place.out / name / f"dt={D3}").iterdir())))
    place.appends(D3)
    assert len(list((place.out / "evidence").glob("*.json"))) == 4, "the old link stays"
    assert place.signs() == 0
    assert place.verifies() == 0
    write_lines(path, lines)
    capsys.readouterr()
    assert place.verifies() == 2
    assert "has lines that the result has not read" in capsys.readouterr().out


def test_a_date_again_with_the_same_outcome_changes_nothing(place: Place) -> None:
    before = sorted(path.name for path in (place.out / "evidence").iterdir())
    place.appends(D2)
    assert sorted(path.name for path in (place.out / "evidence").iterdir()) == before


def test_old_lines_are_unchained(
    tmp_path: Path, original: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path / "copy")
    shutil.copytree(original.root, place.root)
    shutil.rmtree(place.dumps)
    shutil.rmtree(place.out / "evidence")
    three_days(place.dumps, version=1)
    for date in dates():
        place.appends(date)
    assert place.signs() == 0
    capsys.readouterr()
    assert place.verifies() == 2
    assert "lines of version 1 are unchained" in capsys.readouterr().out
    of_line(0, 3, 2, changed)(place)
    assert place.verifies() == 1
    assert f"{D1}: {OF_B}{B1} lines 1 to 140: one of them was changed" in capsys.readouterr().out


def test_a_plain_file_that_grows_and_copies_of_files(place: Place) -> None:
    """A line that is being written is none yet; a copy beside it counts once."""
    path = files_of(place.dumps, 2)[-1]
    text = gzip.decompress(path.read_bytes())
    path.with_suffix("").write_bytes(text + b'{"v":2,')
    assert place.verifies() == 0
    (path.parent / "hidden").mkdir()
    (path.parent / ".copy.jsonl").write_bytes(b"no line\n")
    assert place.verifies() == 0


def test_compacted_dumps_are_proved(place: Place) -> None:
    now = T0 + 30 * DAY_MS
    assert main(["compact", "--dumps", str(place.dumps)], lambda: now) == 0
    assert len(files_of(place.dumps, 0)) == 1
    assert place.verifies() == 0


def test_openssl_checks_a_signature(place: Place) -> None:
    given = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(place.root / "key.pub")]
    given += ["-rawin", "-in", str(place.link(2)), "-sigfile", str(place.signature(2))]
    assert subprocess.run(given, check=False, capture_output=True).returncode == 0


def test_sign_refuses_what_was_edited(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    append(place.out / f"report/dt={D1}/report.html")
    assert place.signs() == 1
    assert "not signed" in capsys.readouterr().err


def test_a_date_can_be_signed(place: Place) -> None:
    for path in (place.out / "evidence").glob("*.sig"):
        path.unlink()
    assert place.signs("--date", str(D2)) == 0
    assert place.signature(2).exists()
    assert place.signs("--date", "2030-01-01") == 3


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        (lambda key: key.chmod(0o640), "chmod 600"),
        (lambda key: key.unlink(), "No such file"),
        (lambda key: key.write_text("no key"), "openssl genpkey"),
        (lambda key: make_rsa(key), "not an ed25519 key"),
    ],
)
def test_keys_that_cannot_be_used(
    prepare: Callable[[Path], None], text: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(place.root / "key.pem")
    assert place.signs() == 3
    assert text in capsys.readouterr().err


def make_rsa(path: Path) -> None:
    subprocess.run(["openssl", "genpkey", "-algorithm", "rsa", "-out", str(path)], check=True)
    path.chmod(0o600)


def test_bad_input(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(place.root / "nothing")], lambda: 0) == 3
    assert main(["verify", "hdfs:///out"], lambda: 0) == 3
    assert place.verifies("--sla", str(place.root / "nothing")) == 3
    assert (
        main(["verify", str(place.out), "--public-key", str(place.root / "key.pem")], lambda: 0)
        == 3
    )
    assert "is not a public key" in capsys.readouterr().err


def after_the_last_line_break(place: Place) -> None:
    """Lines about the outage, where a line that is being written would be."""
    path = files_of(place.dumps, 1)[11]
    lines = read_lines(path)
    fields = json.loads(lines[-1])
    assert fields["boot"] == B1
    forged = [
        json.dumps(fields | {"seq": fields["seq"] + n, "ts": fields["ts"] + n * 60_000}).encode()
        for n in (1, 2)
    ]
    path.unlink()
    path = path.with_suffix("")
    path.write_bytes(b"".join(line + b"\n" for line in lines) + b"\r".join(forged))


def one_after_the_last_line_break(place: Place) -> None:
    after_the_last_line_break(place)
    path = files_of(place.dumps, 1)[11]
    path.write_bytes(path.read_bytes().partition(b"\r")[0])


@pytest.mark.parametrize("edit", [after_the_last_line_break, one_after_the_last_line_break])
def test_what_the_report_reads_is_what_the_chain_covers(
    edit: Edit, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(place)
    content = files_of(place.dumps, 1)[11].read_bytes()
    read = set()
    for line in read_lines_of_the_report(content)[0]:
        with contextlib.suppress(ValueError):
            json.loads(line)
            read.add(sha256(line))
    stretches, _ = stretches_of_file("f", content)
    covered = {line.digest for stretch in stretches.values() for line in stretch.lines}
    assert read == covered
    assert place.verifies() == (0 if len(read) == 12 else 1), capsys.readouterr()


def a_life(place: Place, *, previous: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """A life that never was, as good as it can be made with no other line touched: it fills the
    time between the first life, which `previous` is asked about, and the second."""
    path = files_of(place.dumps, 1)[11]
    last = read_lines(path)[-1]
    fields = json.loads(last)
    assert (fields["boot"], fields["seq"]) == (B1, 212)
    ts, digest = fields["ts"] + 10_000, hashlib.sha256(last).hexdigest()
    before = {"prev_boot": B1, "prev_seq": 212, "prev_digest": digest}
    fields |= {"boot": "f" * 16, "boot_ts": ts, "ts": ts, "seq": 1} | previous(before)
    write_lines(
        path.with_name("1159-0-ffffffff-00000001.jsonl.gz"),
        [json.dumps(fields, separators=(",", ":")).encode()],
    )


@pytest.mark.parametrize(
    ("previous", "code", "text"),
    [
        (lambda before: before, 1, f"{OF_B}{B2}: names the same line before it as"),
        (dict.fromkeys, 2, f"{OF_B}{'f' * 16}: names no life before it"),
        (lambda before: before | {"prev_boot": "e" * 16}, 2, "the life before it, eeee"),
    ],
)
@pytest.mark.parametrize("first", [D1, D2])
def test_a_life_inserted_before_the_report(
    previous: Callable[[dict[str, Any]], dict[str, Any]],
    code: int,
    text: str,
    first: datetime.date,
    place: Place,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It hides an outage; every line behind it is as it was written."""
    shutil.rmtree(place.out / "evidence")
    a_life(place, previous=previous)
    for date in dates():
        if date >= first:
            place.appends(date)
    place.signs()
    capsys.readouterr()
    found = place.verifies("--from", str(first), "--all")
    output = capsys.readouterr()
    assert text in output.out + output.err
    assert found == code


def test_a_life_inserted_that_names_a_later_one(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest life is followed by none yet: it is named, though it began after this one."""
    shutil.rmtree(place.out / "evidence")
    last = read_lines(files_of(place.dumps, 2)[-1])[-1]
    digest = hashlib.sha256(last).hexdigest()
    seq = json.loads(last)["seq"]
    named = {"prev_boot": B3, "prev_seq": seq, "prev_digest": digest}
    a_life(place, previous=lambda before: named)
    for date in dates():
        place.appends(date)
    place.signs()
    capsys.readouterr()
    assert place.verifies() == 2
    assert f"{OF_B}{'f' * 16}: began before {OF_B}{B3}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["part-9", "part-9.orc", "more/part-9.parquet"])
def test_files_that_a_reader_of_a_table_would_read(
    name: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark reads each file of a table's directory, whatever its suffix; a window of later days
    is made of these tables."""
    path = place.out / f"parquet/replica_days/dt={D2}" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"PAR1")
    assert place.verifies() == 1
    assert f"parquet/replica_days/dt={D2}: was changed" in capsys.readouterr().out


BOMB = gzip.compress(b"\n" * 40_000_000)


@pytest.mark.parametrize("name", ["0000-0-00000001-00000001.jsonl.gz", "x y.jsonl"])
def test_a_file_that_is_made_to_be_large_is_named_and_not_unpacked(
    name: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    bomb = place.dumps / f"dt={D2}" / name
    bomb.write_bytes(BOMB)
    capsys.readouterr()
    assert place.verifies() == 1
    line = capsys.readouterr().out
    assert line.startswith(f"NOT PROVED: {D2}: {bomb}: is left out: has more than 100,000 lines")


def test_a_file_that_is_too_large_as_it_lies_is_not_opened(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    large = place.dumps / f"dt={D2}" / "large.jsonl"
    with large.open("wb") as file:
        file.truncate(1_500_000_000)  # of which the disk has nothing
    capsys.readouterr()
    assert place.verifies() == 1
    line = capsys.readouterr().out
    assert f"{large}: is left out: has 1,500 MB, and at most 128 are read" in line
    assert "--max-dump-file-mb 6000 reads it" in line


def test_the_setting_decides_what_is_left_out(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.verifies() == 0
    path = files_of(place.dumps, 2)[0]
    lines = [b"%d " % n + line for n in range(3_000) for line in read_lines(path)[:1]]
    (place.dumps / f"dt={D2}" / "more.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    capsys.readouterr()
    assert place.verifies("--max-dump-file-mb", "4") == 1
    assert "more.jsonl: is left out: has 4 MB, and at most 1 are read" in capsys.readouterr().out
    assert place.verifies("--max-dump-file-mb", "40") == 1
    assert "more.jsonl line 1: is no line of a broker" in capsys.readouterr().out


def test_a_name_with_a_line_break_does_not_add_a_line(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "x\nproved: dump lines and results are those that were signed\x1b[2J"
    life = Life(start_ms=T0 + DAY_MS, cluster=text)
    line = json.dumps(life.line(T0 + DAY_MS + 1_000)).encode()
    (place.dumps / f"dt={D2}" / "evil.jsonl").write_bytes(line + b"\n")
    capsys.readouterr()
    assert place.verifies("--all") == 2
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 1
    assert "x\\u000aproved" in told.out
    assert "\x1b" not in told.out + told.err


def test_a_file_of_exclusions_that_was_made_anew_between_two_reports(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every file is right by its own digests, and every link names the one that it was judged by:
    one beside the other they show that an entry is gone."""
    old = (place.root / "exclusions.jsonl").read_bytes()
    excludes(place, an_entry(kind="withdrawal", withdraws=1), since=old)
    reports_again(place, D2)
    assert place.verifies() == 0, "an entry more"
    excludes(place, an_entry(ticket="OPS-2"))
    reports_again(place, D1)
    capsys.readouterr()
    assert place.verifies() == 1
    text = capsys.readouterr().out
    assert f"link 5 of {D1}: its exclusions do not begin with those of link 4 of {D2}" in text
    assert "an entry was changed or removed" in text
    assert place.verifies("--from", str(D2)) == 0, "each of these dates was judged rightly"


def test_a_wrong_file_of_exclusions_is_forgiven_once_the_date_was_reported_with_the_right_one(
    place: Place,
) -> None:
    old = (place.root / "exclusions.jsonl").read_bytes()
    excludes(place, an_entry(ticket="OPS-2"))
    reports_again(place, D3)
    assert place.verifies() == 1
    excludes(place, an_entry(kind="annotation", at_ms=T0 + 9 * DAY_MS), since=old)
    reports_again(place, D3)
    assert place.verifies() == 0


@pytest.mark.parametrize(
    ("from_ms", "at_ms", "code"),
    [
        (T0 + 2 * DAY_MS, T0, 2),
        (T0 + 2 * DAY_MS, T0 + 2 * DAY_MS, 2),
        (T0 + 2 * DAY_MS, T0 + 2 * DAY_MS + 1_000, 0),  # says itself that it came after the event
        (T0 + 3 * DAY_MS, T0, 0),  # no result of the chain is about that time
    ],
)
def test_an_exclusion_that_was_not_there_before_the_event(
    from_ms: int, at_ms: int, code: int, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """The third day was over, and its exclusions had no such entry."""
    old = (place.root / "exclusions.jsonl").read_bytes()
    late = an_entry(ticket="OPS-3", from_ms=from_ms, to_ms=from_ms + 1_000, at_ms=at_ms)
    excludes(place, late, since=old)
    reports_again(place, D3)
    capsys.readouterr()
    assert place.verifies() == code
    text = capsys.readouterr().out
    assert (f"before the event; link 3 of {D3}, made when that had begun" in text) == (code == 2)
    now = (place.root / "exclusions.jsonl").read_bytes()
    excludes(place, an_entry(kind="withdrawal", withdraws=3), since=now)
    reports_again(place, D3)
    assert place.verifies() == 0, "it does not hold any more"


def test_a_first_exclusion_is_not_older_than_the_results_without_any(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also once a later night was reported without the file."""
    shutil.rmtree(place.out / "evidence")
    for date in (D1, D2):
        (place.root / "exclusions.jsonl").write_bytes(b"")
        place.appends(date)
    excludes(
        place,
        an_entry(from_ms=T0 + DAY_MS, at_ms=T0, to_ms=T0 + 2 * DAY_MS),
        an_entry(from_ms=T0 + 2 * DAY_MS, at_ms=T0, to_ms=T0 + 3 * DAY_MS),
    )
    reports_again(place, D2)
    (place.root / "exclusions.jsonl").write_bytes(b"")
    place.appends(D3)
    assert place.signs() == 0
    capsys.readouterr()
    assert place.verifies("--all") == 2
    (finding,) = capsys.readouterr().err.splitlines()
    assert "exclusions of link 3: entry 1 says that it was made" in finding
    assert f"link 2 of {D2}, made when that had begun, has not got it" in finding


def test_a_date_that_was_never_reported(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(place.out / "evidence")
    shutil.rmtree(place.out / f"report/dt={D2}")
    shutil.rmtree(place.out / f"parquet/replica_days/dt={D2}")
    shutil.rmtree(place.dumps / f"dt={D2}")
    for date in (D1, D3):
        place.appends(date)
    assert place.signs() == 0
    capsys.readouterr()
    assert place.verifies(dumps=False) == 2
    assert capsys.readouterr().out == f"cannot be proved: {D2}: has no result\n"
    assert place.verifies("--from", str(D3), dumps=False) == 0


def test_tables_of_a_date_that_was_never_reported(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would be days of the windows that are made next."""
    later = D3 + datetime.timedelta(days=1)
    for table in ("replica_days", "_staging"):
        path = place.out / f"parquet/{table}/dt={later}/part-0.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"PAR1")
    capsys.readouterr()
    assert place.verifies("--all") == 2
    told = capsys.readouterr()
    assert f"parquet/replica_days/dt={later}: no link is about it" in told.out
    assert "_staging" not in told.err
    assert place.verifies("--to", str(D3)) == 0


def test_a_date_that_was_reported_in_part_is_not_told_as_a_whole_one(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    reports_again(place, D2, length_ms=DAY_MS // 48)
    capsys.readouterr()
    assert place.verifies() == 0
    assert f"{D1} to {D3} (3 days, 1 of them in part: {D2}) are" in capsys.readouterr().out


def no_file(path: Path, kind: str) -> None:
    content = path.read_bytes()
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "short":
        path.write_bytes(content[:-1])
    else:
        with path.open("wb") as file:
            file.write(content)
            file.truncate(50_000_000_000)  # of which the disk has nothing


@pytest.mark.parametrize("kind", ["pipe", "directory", "short", "huge"])
def test_what_is_no_signature(kind: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    no_file(place.signature(2), kind)
    capsys.readouterr()
    assert place.verifies() == 1
    assert f"link 000002_{D2}.json: its signature by" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["pipe", "directory"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (f"evidence/000002_{D2}.json", f"link 000002_{D2}.json: is no file"),
        (f"evidence/files/{sha256(SLA)}", f"{sha256(SLA)}: was changed"),
        (f"report/dt={D2}/report.html", "report.html: was changed"),
        (f"parquet/replica_days/dt={D2}/part-1.parquet", f"dt={D2}: was changed"),
    ],
)
def test_pipes_do_not_stop_it(
    name: str, text: str, kind: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    no_file(place.out / name, kind)
    capsys.readouterr()
    assert place.verifies("--all") == 1
    told = capsys.readouterr()
    assert text in told.out + told.err


def test_a_link_that_changes_between_the_look_and_the_signature_is_not_signed(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.signature(3).unlink()

    def look(asked: verification.Asked, *, with_signatures: bool) -> verification.Verified:
        found = verification.verify(asked, with_signatures=with_signatures)
        append(place.link(3))
        return found

    monkeypatch.setattr(evidence_command, "verify", look)
    assert place.signs() == 1
    assert "was changed while it was looked at" in capsys.readouterr().err
    assert not list((place.out / "evidence").glob("000003*.sig"))


@contextlib.contextmanager
def a_run_writes(place: Place) -> Iterator[None]:
    """It holds the lock as spark/command/report_run.py does."""
    with (place.out / ".mqreport.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def test_while_a_run_writes_nobody_is_accused(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes summary.json away first, and then replaces the tables."""
    capsys.readouterr()
    with a_run_writes(place):
        (place.out / f"report/dt={D2}/summary.json").unlink()
        append(place.out / f"parquet/replica_days/dt={D2}/part-0.parquet")
        assert place.verifies() == 3
        assert place.signs() == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("another mqreport is writing to it; wait until it ends") == 2
    assert place.verifies() == 1, "it was killed, or somebody edited it"
    with a_run_writes(place):
        pass  # looking at it has left no lock behind


def test_a_run_that_came_in_between_is_no_edit(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def look(asked: verification.Asked) -> verification.Verified:
        path = place.out / f"report/dt={D2}/report.html"
        old = path.read_bytes()
        append(path)
        found = verification.verify(asked)
        path.write_bytes(old)
        path.with_name("new").write_bytes(b"summary.json of {D2}")
        path.with_name("new").replace(path.with_name("summary.json"))
        return found

    monkeypatch.setattr(evidence_command, "verify", look)
    capsys.readouterr()
    assert place.verifies() == 3
    told = capsys.readouterr()
    assert (told.out, "while it was looked at; verify it again" in told.err) == ("", True)

"""AuditLog: no change without a line; bounds; crashes and full disks; reading."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conf.secret_names import HIDDEN
from console.access import audit_log
from console.access.audit_log import KEPT_FILES, MAX_LINE, AuditError, AuditLog, Who

ALICE = Who("alice", "user", "192.0.2.7", "console.example")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "console" / "audit.log"


@pytest.fixture
def audit(path: Path) -> Iterator[AuditLog]:
    made = AuditLog(path, lambda: 1_790_000_000_123)
    yield made
    made.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_change_is_two_lines(audit: AuditLog, path: Path) -> None:
    entry = audit.intend(ALICE, "deleteTopic", {"topic": "t", "secret": "s3cret"}, {"secret"})
    (first,) = lines(path)
    entry.done("deleted at 2 brokers")
    first, second = lines(path)
    assert first == {
        "at_ms": 1_790_000_000_123,
        "at": "2026-09-21T14:13:20.123+00:00",
        "id": first["id"],
        "event": "intends",
        "who": "alice",
        "kind": "user",
        "from": "192.0.2.7",
        "console": "console.example",
        "action": "deleteTopic",
        "fields": {"topic": "t"},
    }
    assert second["event"] == "did"
    assert second["id"] == first["id"]
    assert (second["result"], second["why"]) == ("done", "deleted at 2 brokers")
    assert b"s3cret" not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"key": "tls.server.keyPassword", "value": "hunter2"}, {"value": HIDDEN}),
        ({"key": "x", "value": '{"username":"a","password":"hunter2"}'}, {"value": HIDDEN}),
        ({"aclSecretKey": "hunter2"}, {"aclSecretKey": HIDDEN}),
        ({"key": "adminPassword", "value": ""}, {"value": ""}),
        ({"key": "flushDiskType", "value": "SYNC_FLUSH"}, {"value": "SYNC_FLUSH"}),
        ({"topic": "passwords", "body": "a token"}, {"topic": "passwords", "body": "a token"}),
    ],
)
def test_a_secret_is_not_kept_even_of_a_form_that_the_page_refuses(
    audit: AuditLog, path: Path, fields: dict[str, str], kept: dict[str, str]
) -> None:
    audit.intend(ALICE, "changeSetting", fields)
    assert b"hunter2" not in path.read_bytes()
    (line,) = lines(path)
    assert line["fields"] == fields | kept


def test_a_page_shows_changes_with_their_results(audit: AuditLog) -> None:
    endings = {"a": "done", "b": "refused", "c": "failed"}
    entries = [audit.intend(ALICE, action, {}) for action in "abcd"]
    for entry, action in zip(reversed(entries[:3]), "cba", strict=True):
        getattr(entry, endings[action])(f"because of {action}")
    audit.note(ALICE, "signIn")
    shown = [(one["action"], one["result"], one.get("why", "")) for one in audit.newest(10)]
    assert shown == [
        ("signIn", "done", ""),
        ("d", "unknown", ""),
        ("c", "failed", "because of c"),
        ("b", "refused", "because of b"),
        ("a", "done", "because of a"),
    ]
    assert [one["action"] for one in audit.newest(2)] == ["signIn", "d"]
    assert audit.newest(0) == []


def test_lines_are_on_disk_before_the_writer_goes_on(
    audit: AuditLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_size), real(fd)))
    entry = audit.intend(ALICE, "a", {})
    assert synced == [path.stat().st_size]
    entry.done()
    assert synced[1:] == [path.stat().st_size]


@pytest.mark.parametrize("step", ["write", "fsync"])
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    audit: AuditLog, path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    entry = audit.intend(ALICE, "a", {})
    before = path.read_bytes()

    def full(*_arguments: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(AuditError, match="No space left"):
            audit.intend(ALICE, "b", {})
        with pytest.raises(AuditError, match="No space left"):
            entry.done()
    assert path.read_bytes() == before
    audit.intend(ALICE, "c", {})
    assert [one["action"] for one in audit.newest(10)] == ["c", "a"]


def test_half_a_line_is_taken_back(
    audit: AuditLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
        with pytest.raises(AuditError, match="a part of the line"):
            audit.intend(ALICE, "a", {})
    assert path.read_bytes() == b""


def test_a_line_that_a_crash_cut_short_spoils_no_other(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"event":"did","action":"x","result":"done"}\n{"event":"inte')
    audit = AuditLog(path, lambda: 1)
    audit.note(ALICE, "y")
    audit.close()
    audit = AuditLog(path, lambda: 1)
    results = [(one.get("action"), one["event"]) for one in audit.newest(9)]
    audit.close()
    assert results == [("y", "did"), (None, "damaged"), ("x", "did")]


def test_odd_lines_do_no_harm(audit: AuditLog, path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"[1]\n\xff\xfe\n7\n" + b"[" * 300_000 + b"\n" + b"z" * 300_000 + b"\n\n")
    audit.note(ALICE, "y")
    assert [one["event"] for one in audit.newest(100)] == ["did", *["damaged"] * 5]


def test_hostile_texts_stay_on_their_line(audit: AuditLog, path: Path) -> None:
    nasty = 'a\n{"event":"did"}\r\x1b[2J\u2028\u202e\x9b日\udcff"'
    audit.intend(Who(nasty, "user", nasty, nasty), nasty, {nasty: nasty}).failed(nasty)
    data = path.read_bytes()
    assert data.count(b"\n") == 2
    assert data.endswith(b"\n")
    assert set(data) - {10} <= set(range(32, 127))
    (shown,) = audit.newest(10)
    assert (shown["who"], shown["why"], shown["fields"]) == (nasty, nasty, {nasty: nasty})


@pytest.mark.parametrize("char", ["x", "\n", "\U0001f600"])
def test_lines_are_bounded_and_say_what_was_cut(audit: AuditLog, path: Path, char: str) -> None:
    long = char * 20_000
    many = {f"{char * 500}{i}": long for i in range(500)}
    for fields in ({"body": long}, many, {f"f{i}": long for i in range(20)}):
        audit.intend(Who(long, long, long, long), long, fields).done(long)
    assert max(map(len, path.read_bytes().splitlines())) < MAX_LINE
    first = lines(path)[0]
    assert "(20000 characters, SHA-256 " in first["fields"]["body"]
    assert "500 fields" in lines(path)[2]["fields"]


def test_the_file_is_rotated_and_the_oldest_goes(path: Path) -> None:
    audit = AuditLog(path, lambda: 1, max_file=1_000)
    for i in range(200):
        audit.note(ALICE, f"n{i}")
    names = sorted(one.name for one in path.parent.iterdir())
    numbers = [f"audit.log.{i}" for i in range(1, KEPT_FILES + 1)]
    assert names == sorted(["audit.log", "audit.log.lock", *numbers])
    assert all(one.stat().st_size <= 1_000 for one in path.parent.iterdir())
    shown = [one["action"] for one in audit.newest(1_000)]
    assert shown == [f"n{199 - i}" for i in range(len(shown))]
    assert len(shown) > 40
    audit.close()


def test_a_failed_rotation_refuses(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = AuditLog(path, lambda: 1, max_file=300)
    audit.note(ALICE, "a")

    def refused(*_arguments: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refused)
        with pytest.raises(AuditError, match="Permission denied"):
            audit.note(ALICE, "b" * 200)
    audit.note(ALICE, "c" * 200)
    assert [one["action"][0] for one in audit.newest(9)] == ["c", "a"]
    audit.close()


def test_a_second_console_keeps_out(audit: AuditLog, path: Path) -> None:
    with pytest.raises(AuditError, match="Another console"):
        AuditLog(path, lambda: 1)
    audit.note(ALICE, "still")
    assert len(audit.newest(9)) == 1


def test_a_place_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file" / "audit.log", tmp_path):
        with pytest.raises(AuditError, match="cannot be used"):
            AuditLog(bad, lambda: 1)


def test_a_closed_log_refuses(path: Path) -> None:
    audit = AuditLog(path, lambda: 1)
    audit.close()
    with pytest.raises(AuditError, match="is closed"):
        audit.intend(ALICE, "a", {})


def test_no_more_than_a_page_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MAX_SHOWN", 3)
    audit = AuditLog(path, lambda: 1)
    for i in range(5):
        audit.note(ALICE, f"n{i}")
    assert len(audit.newest(1_000_000)) == 3
    audit.close()


def test_a_file_that_was_taken_away_is_begun_anew(audit: AuditLog, path: Path) -> None:
    """A line in a file without a name is on no disk that anybody finds."""
    audit.intend(ALICE, "before", {}).done()
    path.unlink()
    audit.intend(ALICE, "after", {}).done()
    assert [line.get("action") for line in lines(path)] == ["after", None]
    path.rename(path.with_name("moved"))
    audit.note(ALICE, "signIn")
    assert [line["action"] for line in lines(path)] == ["signIn"]


def test_a_rotation_that_fails_each_time_pushes_nothing_out(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is renamed, the next one cannot be made: the third time must not rename more."""
    audit = AuditLog(path, lambda: 1, max_file=300)
    audit.intend(ALICE, "first", {"a": "b" * 100})
    real = AuditLog._open

    def fails(_log: AuditLog) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(AuditLog, "_open", fails)
        for _ in range(KEPT_FILES + 2):
            with pytest.raises(AuditError, match="Too many"):
                audit.intend(ALICE, "refused", {"a": "b" * 200})
    assert AuditLog._open is real
    audit.intend(ALICE, "again", {})
    assert [line["action"] for line in lines(path)] == ["again"]
    assert [line["action"] for line in lines(path.with_name(path.name + ".1"))] == ["first"]
    audit.close()

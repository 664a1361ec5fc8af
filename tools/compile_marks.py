"""What one mqcompile leaves for the next beside the compiled modules: its lock, and a failure.

Files below `rocketmq_compiled`, one of each kind for each kind of Python. Knows nothing of how
modules are compiled.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from conf.compiled_modules import compiled_directory, source_digests


@contextlib.contextmanager
def compile_lock(home: Path, *, waits: bool) -> Iterator[bool]:
    """Held by one process at a time, and by none that has ended. Gives False if another has it;
    with `waits` it waits for that one. Raises OSError."""
    path = _beside(home, "lock")
    path.parent.mkdir(exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def note_failure(home: Path, why: str) -> None:
    """These sources do not compile. Raises OSError."""
    text = json.dumps({"sources": _digest(home), "why": why})
    _beside(home, "failed").write_text(text, encoding="utf-8")


def find_failure(home: Path) -> str:
    """Why these sources did not compile; empty: nobody knows that they do not. Raises OSError."""
    try:
        noted = json.loads(_beside(home, "failed").read_text(encoding="utf-8"))
        return str(noted["why"]) if noted["sources"] == _digest(home) else ""
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""


def forget_failure(home: Path) -> None:
    """They do. Raises OSError."""
    _beside(home, "failed").unlink(missing_ok=True)


def _beside(home: Path, kind: str) -> Path:
    directory = compiled_directory(home)
    return directory.with_name(f"{directory.name}.{kind}")


def _digest(home: Path) -> str:
    """Of all sources."""
    return hashlib.sha256(json.dumps(source_digests(home), sort_keys=True).encode()).hexdigest()

"""Reads the secret that the brokers of one group share (haSharedSecretFile).

Used at the start by the supervisor, which checks it, and by process `ha`, which uses it. Reads one
file; the secret is in no log, no error text and no setting.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

LEAST_SIZE: Final = 16
MOST_SIZE: Final = 4096
_KEY: Final = "haSharedSecretFile"
_MAKE_ONE: Final = "make one with: (umask 077; openssl rand -base64 32 > FILE), the same for both"


class SharedSecretError(Exception):
    """The file cannot be used: the text names the key, the path and the way out."""


def read_shared_secret(path: str | None) -> bytes | None:
    """The secret: the file's bytes without white space around them. None without a path.

    Raises SharedSecretError: it cannot be read, other users may read or change it, or it has
    fewer than LEAST_SIZE or more than MOST_SIZE bytes.
    """
    if not path:
        return None
    try:
        found = _read(path)
    except OSError as error:
        raise SharedSecretError(
            f"{_KEY} {path} cannot be read: {error.strerror or error}; {_MAKE_ONE}, or unset {_KEY}"
        ) from error
    if not LEAST_SIZE <= len(found) <= MOST_SIZE:
        raise SharedSecretError(
            f"{_KEY} {path} holds {len(found)} bytes, {LEAST_SIZE} to {MOST_SIZE} are needed; "
            f"{_MAKE_ONE}"
        )
    return found


def _read(path: str) -> bytes:
    # Not blocking: a pipe would keep the start waiting.
    fd = os.open(Path(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise SharedSecretError(f"{_KEY} {path} is not a file; {_MAKE_ONE}")
        if mode & (stat.S_IRWXO | stat.S_IWGRP):
            raise SharedSecretError(
                f"{_KEY} {path} has mode {stat.S_IMODE(mode):04o}: other users may read or change "
                f"it; chmod 600 {path} (0640 for a group that reads is accepted), and make a new "
                "secret if somebody may have read it"
            )
        return file.read(MOST_SIZE + 2).strip()

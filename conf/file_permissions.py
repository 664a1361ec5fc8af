"""Permissions of files: what this program creates, and which files with secrets others may read.

`set_umask` runs once at a program's start, on its main thread and before it creates anything; the
processes that it starts inherit the mask. Existing files and directories are left alone. Knows no
file by name.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conf.config_fields import setting

_OCTAL: Final = re.compile(r"[0-7]{1,4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePermissionConfig:
    """Settings of what a broker or a name server creates."""

    umask: str = setting(
        "0077",
        "permissions that new files and directories do not get, octal: 0077 for this user only, "
        "0027 lets the group read, 0022 everybody; existing ones stay as they are",
    )


def parse_umask(text: str) -> int:
    """The mask. Raises ValueError: not octal, or the program could not use its own files."""
    mask = int(text, 8) if _OCTAL.fullmatch(text) else -1
    if not 0 <= mask <= 0o777:
        raise ValueError(f"{text:.80}: expected an octal number such as 0077 or 0027")
    if mask & stat.S_IRWXU:
        raise ValueError(
            f"{text}: the broker's own user needs all rights on its files; the first of "
            "the last three digits must be 0, as in 0077"
        )
    return mask


def set_umask(config: FilePermissionConfig) -> None:
    """For this process and those that it starts."""
    os.umask(parse_umask(config.umask))


def exposure_warnings(paths: Iterable[Path]) -> tuple[str, ...]:
    """A sentence for each of these files, which hold secrets, that every user of this machine may
    read or change, or its group change. A path that cannot be examined has none."""
    return tuple(
        f"{path} holds secrets and has mode {mode:04o}: other users of this machine may read or "
        f"change it; chmod 600 {path} (0640 lets a group read)"
        for path in dict.fromkeys(paths)
        if (mode := _mode_of(path)) & (stat.S_IRWXO | stat.S_IWGRP)
    )


def without_others(mode: int) -> int:
    """The permission bits `mode` of a file with secrets, without those of other users."""
    return stat.S_IMODE(mode) & ~stat.S_IRWXO


def _mode_of(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0

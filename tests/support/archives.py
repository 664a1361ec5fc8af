"""Unpacks archives of golden files on every Python: 3.11.2 (Debian 12) knows no filters yet."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, target: Path) -> None:
    """All of a tar file that was made here."""
    with tarfile.open(archive) as opened:
        if hasattr(tarfile, "data_filter"):
            opened.extraction_filter = tarfile.data_filter
        opened.extractall(target)

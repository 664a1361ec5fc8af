"""A copy of the broker's sources, for a test that needs some with, or without, compiled modules."""

from __future__ import annotations

import shutil
from pathlib import Path

from conf.compiled_modules import ROOMS, VARIABLE

_ROOT = Path(__file__).resolve().parents[2]


def copy_broker(home: Path) -> Path:
    """All that `python -m broker` needs, below `home`; compiled modules are not among it."""
    for room in (*ROOMS, "namesrv"):
        # With the files that Python has compiled: they hold for the same time of change.
        shutil.copytree(_ROOT / room, home / room)
    shutil.copy(_ROOT / "setup.cfg", home)
    return home


def environment_of(home: Path) -> dict[str, str]:
    """Of a program that shall run the copy in `home`, by itself on the sources or not."""
    return {
        "PYTHONPATH": str(home),
        "PYTHONSAFEPATH": "1",
        "ROCKETMQ_HOME": str(home),
        VARIABLE: "",
    }

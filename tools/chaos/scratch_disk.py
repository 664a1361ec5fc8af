"""ScratchDisk: the disk of one scratch broker, as far as it can be told to misbehave.

The other end of the broker's own hooks (store/disk_fault_hooks.py, which describes the files of the
control directory): mqchaos writes which fault is on and reads what a power cut leaves. One thread.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Final

VARIABLE: Final = "MQBROKER_DISK_FAULTS"
_NONE: Final = "none"


class ScratchDisk:
    """See the module."""

    def __init__(self, control: Path, root: Path, *, keeps_copies: bool = True) -> None:
        """control: made here, beside the store and on its file system; root: the store.
        keeps_copies: of what is synced, for power cuts; each sync costs one."""
        self.root = root
        self.durable = control / "disk"
        """What is on disk for certain."""
        self._control = control
        (self.durable if keeps_copies else control).mkdir(parents=True)
        self.heal()

    @property
    def environment(self) -> dict[str, str]:
        """What the broker is started with."""
        return {VARIABLE: str(self._control)}

    def set_fault(self, kind: str, *, path: str = "", delay_s: float = 0.0) -> None:
        """From now on."""
        fault = {"root": str(self.root), "kind": kind, "path": path, "delay_s": delay_s}
        temporary = self._control / "fault.json.tmp"
        temporary.write_text(json.dumps(fault))
        temporary.replace(self._control / "fault.json")

    def arm_error(self, path: str) -> None:
        """The next sync of a file whose path holds `path` fails."""
        (self._control / "failed.json").unlink(missing_ok=True)
        (self._control / "armed").touch()
        self.set_fault("fsync_error", path=path)

    def failed_at(self) -> float | None:
        """When that sync failed (time.monotonic); None: not yet."""
        with contextlib.suppress(FileNotFoundError):
            return float(json.loads((self._control / "failed.json").read_bytes())["at_s"])
        return None

    def heal(self) -> None:
        """No fault."""
        self.set_fault(_NONE)
        (self._control / "armed").unlink(missing_ok=True)

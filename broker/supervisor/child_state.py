"""ChildState: what the supervisor knows of one child process, and how that child is started.

Written by the supervisor's loop only; metrics and /readyz read it on the supervisor's other
threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from broker.supervisor.boot_info import BootInfo
from broker.supervisor.forked_process import ForkedProcess
from ipc.control_page import ProcessIndex

if TYPE_CHECKING:
    import subprocess

QUICK_DEATHS: Final = 6
"""So many deaths within a minute end the broker, if the child is vital."""

ChildEntry = Callable[[int], None]
"""What a forked child calls with the descriptor of its boot information: the same as its module
executed."""


@dataclass(slots=True)
class ChildSpec:
    """How to start one child; `boot` is complete but for the parent's pid."""

    name: str
    index: ProcessIndex
    module: str
    boot: BootInfo
    inherited_fds: tuple[int, ...]
    entry: ChildEntry | None = None
    """None: never forked."""
    is_vital: bool = True
    """False: once it has served, the others go on however often it ends."""


@dataclass(slots=True)
class ChildState:
    """What the supervisor knows of one child. Owned by: the supervisor's loop."""

    spec: ChildSpec
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    last_beat: int = -1
    has_beaten: bool = False
    """Since it was started: it serves."""
    has_served: bool = False
    """Since the supervisor started."""
    beat_at_ms: int = 0
    progress: tuple[int, ...] = ()
    """Start beats, processor time and bytes of one that does not serve yet."""
    progress_at_ms: int = 0
    waited_ms: int = 0
    """How long its start has taken when the log said so last."""
    started_ms: int = 0
    """When it was started last."""
    start_at_ms: int = 0
    """When it shall be started again; 0: not now."""
    aborted_at_ms: int = 0
    deaths_ms: deque[int] = field(default_factory=lambda: deque(maxlen=QUICK_DEATHS))
    restarts: int = 0

    @property
    def may_stay_down(self) -> bool:
        """Whether the others go on without it."""
        return self.has_served and not self.spec.is_vital

"""ProcessResources: what process `remoting` starts with; the rest of it is built from these.

Filled by broker/processes/remoting.py from what the supervisor passed on. Values only.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.metrics.kept_sends import KeptSends
from broker.settings.changed_settings import ChangedSettings
from broker.settings.current_role import CurrentRole
from broker.settings.startup_options import StartupOptions
from ipc.bell import Bell
from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.metric_slots import MetricSlots
from ipc.service_thread import FailureHandler


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResources:
    """Settings, shared memory, bells and channels.

    options: the settings at the start, with what requests have changed since; in controller mode
    with the role of a slave, which every part begins with
    bells: "remoting", which wakes this process, "store" and "ha"
    channels: "remoting->store", "remoting->ha" (we ask), "remoting<-ha" (we answer),
        "remoting<-lent" (LinkBorrower)
    metrics_fd: the metric slots of all processes
    on_failure: hears of a thread of ours that died of a bug
    config_file: the -c file, absolute; None when the broker was started without one
    """

    options: StartupOptions
    page: ControlPage
    queue_table_fd: int
    bells: Mapping[str, Bell]
    channels: Mapping[str, socket.socket]
    clock: Clock
    metric_slots: MetricSlots
    metrics_fd: int
    kept_sends: KeptSends | None = None
    config_file: Path | None
    changed: ChangedSettings
    on_failure: FailureHandler
    role: CurrentRole = field(init=False)
    """The broker's role now, one object for all parts."""

    def __post_init__(self) -> None:
        role = CurrentRole(self.options)
        object.__setattr__(self, "role", role)
        object.__setattr__(self, "options", role.applied(self.options))

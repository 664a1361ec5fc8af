"""A BrokerController of real parts that is made but not started, for a look at its routes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.broker_controller import BrokerController
from broker.settings.changed_settings import ChangedSettings
from broker.settings.startup_options import StartupOptions
from broker.wiring.process_resources import ProcessResources
from ipc.bell import Bell
from ipc.clock import SystemClock
from ipc.command_channel import create_channel
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots, create_metric_slots
from ipc.queue_table import create_queue_table
from tests.support.shared_memory import fresh_page


@contextmanager
def built_controller(root: Path) -> Iterator[BrokerController]:
    """A master in the empty directory `root`, with the settings that nobody changed."""
    options = StartupOptions.from_settings(
        {
            "storePathRootDir": str(root),
            "brokerIP1": "127.0.0.1",
            "listenPort": "10911",
            "namesrvAddr": "",
            "rocketmqHome": str(root),
        }
    )
    page = fresh_page()
    names = {"store": ProcessIndex.STORE, "remoting": ProcessIndex.REMOTING, "ha": ProcessIndex.HA}
    bells = {name: Bell(page, index, Bell.create()) for name, index in names.items()}
    names_of_ours = ("remoting->store", "remoting->ha", "remoting<-ha", "remoting<-lent")
    ends = {name: create_channel() for name in names_of_ours}
    ours = {name: pair[0] for name, pair in ends.items()}
    metrics_fd = create_metric_slots()
    metrics = MetricSlots(metrics_fd, ProcessIndex.REMOTING)
    controller = BrokerController(
        ProcessResources(
            options=options,
            page=page,
            queue_table_fd=create_queue_table(),
            bells=bells,
            channels=ours,
            clock=SystemClock(),
            metric_slots=metrics,
            metrics_fd=metrics_fd,
            config_file=None,
            changed=ChangedSettings(ChangedSettings.create()),
            on_failure=lambda _service, _error: None,
        )
    )
    try:
        yield controller
    finally:
        controller._server.shutdown()
        controller.loop.close()
        for pair in ends.values():
            for end in pair:
                end.close()

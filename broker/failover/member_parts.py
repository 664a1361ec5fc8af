"""A member of a group with a controller, put together from the settings.

The composition root of this wing: who owns a broker's log, ports and registrations gives them as
`MemberHost` and starts what `build_member` makes (broker/processes/ha_member.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from broker.failover.controller_client import Calls, ControllerClient
from broker.failover.controller_names import LOOK_UP_PERIOD_MS, ControllerNames
from broker.failover.member import MemberCore
from broker.failover.member_files import MemberFiles
from broker.failover.member_service import MemberHost, MemberService, MemberTimes
from broker.failover.settings import member_settings
from broker.settings.broker_config import BrokerConfig
from broker.settings.controller_mode_config import ControllerModeConfig
from ipc.clock import Clock
from ipc.scheduled_executor import ScheduledExecutor
from ipc.service_thread import FailureHandler

REQUEST_TIMEOUT_MS: Final = 3_000
"""RocketMQ's for each request to a controller."""


class MemberPlace(NamedTuple):
    """What a member must know of its broker beside the settings of its wing."""

    broker_address: str
    """host:port of the service port, as registered."""
    store_root: Path
    in_sync_replicas: int
    confirm_offset: int
    """Of the store's check point (bytes)."""


class Member(NamedTuple):
    """A member that is not started."""

    service: MemberService
    client: ControllerClient
    names: ControllerNames

    def start(self, executor: ScheduledExecutor) -> None:
        """Begin. The first look-up of names is the executor's first task."""
        executor.schedule(
            "look-up-controllers",
            self.names.look_up,
            first_delay_ms=0,
            period_ms=LOOK_UP_PERIOD_MS,
        )
        self.service.start_with(self.client)

    def shutdown(self) -> bool:
        """No event is taken any more. The executor and the connections to controllers, which end
        this broker's life for them, are the caller's to close. False: its thread did not end."""
        return self.service.shutdown()


def build_member(
    config: ControllerModeConfig,
    broker: BrokerConfig,
    place: MemberPlace,
    host: MemberHost,
    calls: Calls,
    clock: Clock,
    *,
    on_failure: FailureHandler | None = None,
) -> Member:
    """Read the member's files, and make its parts. Raises MemberFileError, OSError."""
    settings = member_settings(
        config,
        broker,
        broker_address=place.broker_address,
        in_sync_replicas=place.in_sync_replicas,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )
    root = place.store_root
    files = MemberFiles(config.identity_file(root), config.epoch_file(root))
    found = files.read(settings.cluster_name, settings.broker_name, place.confirm_offset)
    core = MemberCore(settings, found, f"{place.broker_address};{clock.now_ms()}")
    times = MemberTimes(broker.broker_heartbeat_interval, config.sync_controller_metadata_period)
    service = MemberService(core, host, files, clock, times, on_failure=on_failure)
    names = ControllerNames(
        config.controllers, all_addresses=config.fetch_controller_addr_by_dns_lookup
    )
    client = ControllerClient(calls, names, settings, clock, service.deliver)
    return Member(service, client, names)

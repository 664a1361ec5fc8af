"""PreOnlineService put together, for a broker that starts isolated (totalReplicas).

Main thread of process `remoting`; no policy. Never in controller mode, where these settings count
for nothing (settings/controller_mode_rules.py).

Tested by tests/broker/wiring/test_pre_online.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.out.broker_outer_api import BrokerIdentity, BrokerOuterAPI
from broker.slave.group_members import GroupMembers, MemberAddress, resolved
from broker.slave.pre_online import ComeOnline
from broker.slave.pre_online_peers import PreOnlinePeers
from broker.slave.pre_online_service import PreOnlineActions, PreOnlineService
from broker.wiring.process_resources import ProcessResources
from broker.wiring.replication import Replication
from remoting.headers.ha import ExchangeHAInfoRequestHeader

_HA_TIMEOUT_MS: Final = 3_000


def pre_online_service(
    resources: ProcessResources,
    identity: BrokerIdentity,
    api: BrokerOuterAPI,
    replication: Replication,
    come_online: Callable[[ComeOnline], None],
) -> PreOnlineService | None:
    """None: this broker does not start isolated."""
    broker, counters = resources.options.broker, resources.page.counters
    if not broker.begins_isolated:
        return None

    def own_header() -> ExchangeHAInfoRequestHeader:
        own = replication.ha_identity()
        return ExchangeHAInfoRequestHeader(
            master_ha_address=own.ha_address,
            master_flush_offset=own.initial_max_offset,
            master_address=own.broker_address,
        )

    peers = PreOnlinePeers(
        api.client,
        GroupMembers(identity, api),
        own_header,
        lambda: replication.ha.call("ha_status", _HA_TIMEOUT_MS),
        broker_name=identity.broker_name,
        is_ours=replication.is_slave_of_ours,
        is_old_compatible=broker.compatible_with_old_name_srv,
        counters=counters,
    )
    own_address = resolved(identity.broker_id, identity.broker_addr) or identity.broker_addr
    return PreOnlineService(
        MemberAddress(identity.broker_id, own_address),
        broker.pre_online_max_wait,
        peers,
        PreOnlineActions(
            take_back=replication.returning.take_back,
            use_master=replication.use_master,
            come_online=come_online,
        ),
        counters,
        resources.clock,
        on_failure=resources.on_failure,
    )

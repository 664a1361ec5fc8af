"""broker.settings.current_role: what a broker is, and is called, in each role."""

from __future__ import annotations

from broker.settings.current_role import CurrentRole
from broker.settings.startup_options import StartupOptions
from ha.control_slots import MemberRole
from store.message_store_config import BrokerRole


def test_without_controller_mode_the_settings_say_it() -> None:
    slave = StartupOptions.from_settings({"brokerRole": "SLAVE", "brokerId": "3"})
    role = CurrentRole(slave)
    assert (role.changes, role.is_slave, role.broker_id) == (False, True, 3)
    assert role.applied(slave) is slave
    assert not CurrentRole(StartupOptions.from_settings({})).is_slave


def test_a_member_is_what_it_was_told_last() -> None:
    options = StartupOptions.from_settings({"enableControllerMode": "true", "brokerId": "0"})
    role = CurrentRole(options)
    seen = []
    for member, epoch, own_id in (
        (MemberRole.FENCED, 0, None),
        (MemberRole.LEAD, 1, None),
        (MemberRole.FOLLOW, 2, 7),
        (MemberRole.LEAD, 3, None),
        (MemberRole.FENCED, 3, None),
    ):
        role.take(member, epoch)
        if own_id is not None:
            role.follows_as(own_id)
        shown = role.applied(options)
        assert shown.broker.broker_id == role.broker_id
        assert (shown.store.broker_role is BrokerRole.SLAVE) is role.is_slave
        registered = [broker_id for broker_id in (0, 7) if role.is_registered_as(broker_id)]
        seen.append((role.is_slave, role.broker_id, role.master_epoch, registered))
    assert seen == [
        (True, -1, 0, []),
        (False, 0, 1, [0]),
        (True, 7, 2, [7]),
        (False, 0, 3, [0]),
        (True, 7, 3, []),
    ]

"""The commands of process `ha` in controller mode; 1007's bytes are a 5.3.3 broker's."""

from __future__ import annotations

import pytest

from broker.failover.member_commands import member_handlers
from broker.failover.member_host import OrderedRole
from broker.failover.member_service import MemberStatus
from broker.failover.messages import GroupView, RoleNotified
from ha.control_slots import MemberRole
from ha.epochs import epoch_list
from ipc.command_channel import CommandHandler
from remoting.body.controller import EpochEntryCache
from tests.broker.failover.host_world import status
from tests.remoting.golden_controller import golden_command


class Member:
    """A host and a service of which only the facts are there."""

    ordered = OrderedRole(9, MemberRole.FOLLOW, 2, 1, "10.0.0.1:10911", 7)

    def __init__(self, now: MemberStatus) -> None:
        self.status = now
        self.addresses: list[str] = []
        self.notices: list[tuple[RoleNotified, str]] = []

    def notified(self, notice: RoleNotified, remote: str) -> None:
        self.notices.append((notice, remote))

    def handler(self, command: str) -> CommandHandler:
        return member_handlers(
            self,
            self,
            lambda: {"master": True},
            lambda: 693,
            self.addresses.append,
            cluster_name="C",
            broker_name="b",
        )[command]


def test_the_role_that_was_ordered() -> None:
    assert Member(status()).handler("member_role")({}) == {
        "order": 9,
        "role": 1,
        "broker_id": 2,
        "master_broker_id": 1,
        "master_address": "10.0.0.1:10911",
        "master_epoch": 7,
    }


@pytest.mark.parametrize(("is_master", "broker_id"), [(True, 0), (False, 2)])
def test_epochs_as_java_tells_them(is_master: bool, broker_id: int) -> None:
    member = Member(status(is_master=is_master, epochs=epoch_list([(1, 0), (3, 500)])))
    found = EpochEntryCache.from_json(member.handler("epoch_cache")({}))
    assert found.to_json_bytes() == (
        b'{"brokerId":%d,"brokerName":"b","clusterName":"C","epochList":['
        b'{"endOffset":500,"epoch":1,"startOffset":0},'
        b'{"endOffset":9223372036854775807,"epoch":3,"startOffset":500}],"maxOffset":693}'
        % broker_id
    )


def test_a_notice_reaches_the_member_with_its_sender() -> None:
    member = Member(status())
    notice = golden_command("1008 req", "01")
    member.handler("role_notified")(
        {
            "ext_fields": dict(notice.ext_fields),
            "body": notice.body.decode(),
            "remote": "10.0.0.9:5",
        }
    )
    ((found, remote),) = member.notices
    assert remote == "10.0.0.9:5"
    assert isinstance(found.view, GroupView)
    assert str(found.view.master_epoch) == notice.ext_fields["masterEpoch"]


def test_a_notice_that_cannot_be_read_is_refused() -> None:
    member = Member(status())
    with pytest.raises(ValueError, match="masterEpoch"):
        member.handler("role_notified")(
            {"ext_fields": {"masterEpoch": "x"}, "body": "", "remote": "r"}
        )
    member.handler("role_notified")({"ext_fields": {}, "body": "", "remote": "r"})
    assert member.notices == []


def test_the_rest() -> None:
    member = Member(status())
    assert member.handler("master_address")({"ha_address": "10.0.0.1:10912"}) == {}
    assert member.addresses == ["10.0.0.1:10912"]
    assert member.handler("announce_ha_link")({"link": "l"}) == {"connected": False}
    assert member.handler("ha_status")({}) == {"master": True}

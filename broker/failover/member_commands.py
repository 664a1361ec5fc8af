"""Commands of process `remoting` to process `ha` in controller mode. On the main thread of `ha`.

    member_role    {} -> what belongs to the last order (OrderedRole); its order is compared with
                   the slot: an older one means that a newer order is about to be written
    role_notified  {"ext_fields": {...}, "body": text, "remote": "ip:port"} -> {}: 1008 came
    epoch_cache    {} -> the members of EpochEntryCache (1007)
    ha_status      {} -> members of HARuntimeInfo (907)
    master_address {"ha_address": "ip:port"} -> {}: the HA port of the master that is followed
    announce_ha_link: of brokers without a controller; nothing happens

Tested by tests/broker/failover/test_member_commands.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from broker.failover.controller_messages import role_notice_of
from broker.failover.member_host import OrderedRole
from broker.failover.member_service import MemberStatus
from broker.failover.messages import RoleNotified
from ipc.command_channel import Arguments, CommandHandler
from remoting.errors import RequestError

_ENDLESS: Final = 2**63 - 1
"""Where Java says that the last epoch ends."""
_MASTER_ID: Final = 0


class _Host(Protocol):
    @property
    def ordered(self) -> OrderedRole: ...


class _Service(Protocol):
    @property
    def status(self) -> MemberStatus: ...

    def notified(self, notice: RoleNotified, remote: str) -> None: ...


def member_handlers(
    host: _Host,
    service: _Service,
    ha_status: Callable[[], dict[str, Any]],
    log_end: Callable[[], int],
    update_master_address: Callable[[str], None],
    *,
    cluster_name: str,
    broker_name: str,
) -> Mapping[str, CommandHandler]:
    """The handlers by command."""

    def member_role(_arguments: Arguments) -> Arguments:
        return {**host.ordered._asdict(), "role": int(host.ordered.role)}

    def role_notified(arguments: Arguments) -> Arguments:
        try:
            notice = role_notice_of(arguments["ext_fields"], arguments["body"].encode())
        except RequestError as error:
            raise ValueError(str(error)) from error
        if notice is not None:
            service.notified(notice, arguments["remote"])
        return {}

    def epoch_cache(_arguments: Arguments) -> Arguments:
        status = service.status
        return {
            "clusterName": cluster_name,
            "brokerName": broker_name,
            "brokerId": _MASTER_ID if status.is_master else status.broker_id or _MASTER_ID,
            "epochList": _entries(status),
            "maxOffset": log_end(),
        }

    def status(_arguments: Arguments) -> Arguments:
        return ha_status()

    def master_address(arguments: Arguments) -> Arguments:
        update_master_address(arguments["ha_address"])
        return {}

    def announced(_arguments: Arguments) -> Arguments:
        return {"connected": False}

    return {
        "member_role": member_role,
        "role_notified": role_notified,
        "epoch_cache": epoch_cache,
        "ha_status": status,
        "master_address": master_address,
        "announce_ha_link": announced,
    }


def _entries(status: MemberStatus) -> list[dict[str, int]]:
    entries = status.epochs.entries
    ends = [entry.start_offset for entry in entries[1:]] + [_ENDLESS]
    return [
        {"epoch": entry.epoch, "startOffset": entry.start_offset, "endOffset": end}
        for entry, end in zip(entries, ends, strict=False)
    ]

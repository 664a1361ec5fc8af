"""What a member says to a controller, and hears, as commands of RocketMQ's protocol. Pure; any
thread.

Requests 904, 1001 to 1005, 1012 and 1013, their answers, and 1008. An answer that cannot be read is
no answer: the request counts as unanswered, and is asked again. A controller's silence, and a code
that decides nothing, must not pass for a refusal: what was asked may still come into force.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.failover.identity import MAX_BROKER_ID
from broker.failover.messages import Answered, Ask, GroupView, RoleNotified, SendHeartbeat
from broker.failover.settings import MemberSettings
from remoting.body.controller import ElectMasterResponseBody
from remoting.body.sync_state_set import SyncStateSet
from remoting.command_custom_header import CommandCustomHeader, decode_header, encode_header
from remoting.control_characters import holds_control
from remoting.errors import BodyError
from remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
    ControllerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

_CODES: Final = frozenset(ResponseCode)
_FIRST_ID: Final = 1
_MAX_ADDRESS: Final = 300
"""Characters; a host name has 253 at most."""
_MAX_MEMBERS: Final = 1_000
_MAX_BODY: Final = 512 << 10
"""So many members with their addresses. A body is read on the loop of the remoting client, whose
other calls, heartbeats among them, wait meanwhile."""
_SHOWN: Final = 10


# To the controller


def find_leader_command() -> RemotingCommand:
    """1005."""
    return RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO)


def heartbeat_command(beat: SendHeartbeat, settings: MemberSettings) -> RemotingCommand:
    """904."""
    header = ControllerHeartbeatRequestHeader(
        cluster_name=settings.cluster_name,
        broker_addr=settings.broker_address,
        broker_name=settings.broker_name,
        broker_id=beat.broker_id,
        epoch=beat.epoch,
        max_offset=beat.max_offset,
        confirm_offset=beat.confirm_offset,
        heartbeat_timeout_mills=settings.controller_heartbeat_timeout_ms,
        election_priority=settings.election_priority,
    )
    return RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, encode_header(header), oneway=True)


def ask_command(ask: Ask, settings: MemberSettings, now_ms: int) -> RemotingCommand:
    """The request of an `Ask`. now_ms: wall clock; a controller of the jRaft kind looks at it."""
    body = b""
    if ask.code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
        body = SyncStateSet(
            sync_state_set=sorted(ask.sync_state_set),
            sync_state_set_epoch=ask.sync_state_set_epoch,
        ).to_json_bytes()
    return RemotingCommand.request(ask.code, encode_header(_header(ask, settings, now_ms)), body)


def _header(ask: Ask, settings: MemberSettings, now_ms: int) -> CommandCustomHeader:
    cluster_name, broker_name = settings.cluster_name, settings.broker_name
    match ask.code:
        case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
            return GetNextBrokerIdRequestHeader(cluster_name=cluster_name, broker_name=broker_name)
        case RequestCode.CONTROLLER_APPLY_BROKER_ID:
            return ApplyBrokerIdRequestHeader(
                cluster_name=cluster_name,
                broker_name=broker_name,
                applied_broker_id=ask.broker_id,
                register_check_code=ask.register_check_code,
            )
        case RequestCode.CONTROLLER_REGISTER_BROKER:
            return RegisterBrokerToControllerRequestHeader(
                cluster_name=cluster_name,
                broker_name=broker_name,
                broker_id=ask.broker_id,
                broker_address=settings.broker_address,
                invoke_time=now_ms,
            )
        case RequestCode.CONTROLLER_ELECT_MASTER:
            return ElectMasterRequestHeader(
                cluster_name=cluster_name,
                broker_name=broker_name,
                broker_id=ask.broker_id,
                designate_elect=ask.designate_elect,
                invoke_time=now_ms,
            )
        case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
            return AlterSyncStateSetRequestHeader(
                broker_name=broker_name,
                master_broker_id=ask.broker_id,
                master_epoch=ask.master_epoch,
                invoke_time=now_ms,
            )
        case RequestCode.CONTROLLER_GET_REPLICA_INFO:
            return GetReplicaInfoRequestHeader(broker_name=broker_name)
        case _:
            raise ValueError(f"a member asks no controller {ask.code.name}")


# From the controller


def is_address(text: str | None) -> bool:
    """Whether a controller may name this as somebody's address: it is kept, shown in lines of the
    log, and connected to. What it is worth shows when it is."""
    return text is not None and 0 < len(text) <= _MAX_ADDRESS and not holds_control(text)


def answer_of(ask: Ask, response: RemotingCommand, settings: MemberSettings) -> Answered:
    """What the answer to `ask` says. Raises RequestError for a header or a body that cannot be
    read, or is of another group; such an answer counts for nothing."""
    code = ResponseCode.SYSTEM_ERROR
    if response.code in _CODES:
        code = ResponseCode(response.code)
    named = (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
    if code not in named:
        return Answered(ask.ticket, code)
    if len(response.body) > _MAX_BODY:
        raise BodyError("SyncStateSet", f"{len(response.body)} bytes are no answer of a controller")
    fields = response.ext_fields
    match ask.code:
        case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
            return Answered(ask.ticket, code, next_broker_id=_offered_id(fields, settings))
        case RequestCode.CONTROLLER_APPLY_BROKER_ID:
            applied = decode_header(ApplyBrokerIdResponseHeader, fields)
            _check_group(applied.cluster_name, applied.broker_name, settings)
            return Answered(ask.ticket, code)
        case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
            return Answered(ask.ticket, code, _checked(_altered_view(ask, response)))
        case RequestCode.CONTROLLER_ELECT_MASTER:
            return Answered(ask.ticket, code, _checked(_elected_view(response)))
        case RequestCode.CONTROLLER_REGISTER_BROKER:
            return Answered(ask.ticket, code, _checked(_registered_view(response, settings)))
        case _:
            return Answered(ask.ticket, code, _checked(_replica_view(response)))


def _offered_id(fields: Mapping[str, str], settings: MemberSettings) -> int:
    header = decode_header(GetNextBrokerIdResponseHeader, fields)
    _check_group(header.cluster_name, header.broker_name, settings)
    offered = header.next_broker_id
    if offered is None or not _FIRST_ID <= offered <= MAX_BROKER_ID:
        raise BodyError("GetNextBrokerIdResponseHeader", f"nextBrokerId is {offered}")
    return offered


def _check_group(cluster: str | None, name: str | None, settings: MemberSettings) -> None:
    """Raises BodyError if the answer names another group."""
    if cluster not in (None, settings.cluster_name) or name not in (None, settings.broker_name):
        raise BodyError(
            "answer",
            f"of {name!a:.80} in {cluster!a:.80}, not of {settings.broker_name} in "
            f"{settings.cluster_name}",
        )


def _checked(view: GroupView | None) -> GroupView | None:
    """A group as no controller describes it would have SEND_OK wait for the wrong ones, or for
    nobody. Raises BodyError, which names what is wrong."""
    if view is None:
        return None
    members, master = view.sync_state_set, view.master_broker_id
    shown, wrong = sorted(members)[:_SHOWN], None
    if len(members) > _MAX_MEMBERS:
        wrong = f"{len(members)} members; a group has {_MAX_MEMBERS} at most"
    elif any(not _FIRST_ID <= broker_id <= MAX_BROKER_ID for broker_id in members):
        wrong = f"broker ids {shown} in the SyncStateSet; they begin at {_FIRST_ID}"
    elif master is not None and master not in members:
        wrong = f"master {master} outside its SyncStateSet {shown}"
    elif view.master_address is not None and not is_address(view.master_address):
        wrong = f"master's address {view.master_address!a:.80}"
    elif view.master_epoch < 0 or view.sync_state_set_epoch < 0:
        wrong = f"epochs {view.master_epoch} and {view.sync_state_set_epoch}"
    if wrong is not None:
        raise BodyError("SyncStateSet", wrong)
    return view


def _altered_view(ask: Ask, response: RemotingCommand) -> GroupView:
    """The controller takes 1001 only from the master of the epoch that it names."""
    header = decode_header(AlterSyncStateSetResponseHeader, response.ext_fields)
    body = _set_of(response)
    epoch = header.new_sync_state_set_epoch or body.sync_state_set_epoch
    members = frozenset(body.sync_state_set)
    return GroupView(ask.broker_id, None, ask.master_epoch, members, epoch)


def _elected_view(response: RemotingCommand) -> GroupView | None:
    header = decode_header(ElectMasterResponseHeader, response.ext_fields)
    if header.master_epoch is None:
        return None
    body = ElectMasterResponseBody()
    if response.body:
        body = ElectMasterResponseBody.from_json_bytes(response.body)
    return GroupView(
        header.master_broker_id,
        header.master_address,
        header.master_epoch,
        frozenset(body.sync_state_set),
        header.sync_state_set_epoch or 0,
    )


def _registered_view(response: RemotingCommand, settings: MemberSettings) -> GroupView | None:
    """None: no master is alive, or there never was one."""
    header = decode_header(RegisterBrokerToControllerResponseHeader, response.ext_fields)
    _check_group(header.cluster_name, header.broker_name, settings)
    if header.master_epoch is None or header.master_broker_id is None:
        return None
    body = _set_of(response)
    return GroupView(
        header.master_broker_id,
        header.master_address,
        header.master_epoch,
        frozenset(body.sync_state_set),
        header.sync_state_set_epoch or body.sync_state_set_epoch,
    )


def _replica_view(response: RemotingCommand) -> GroupView | None:
    header = decode_header(GetReplicaInfoResponseHeader, response.ext_fields)
    if header.master_epoch is None:
        return None
    body = _set_of(response)
    return GroupView(
        header.master_broker_id,
        header.master_address,
        header.master_epoch,
        frozenset(body.sync_state_set),
        body.sync_state_set_epoch,
    )


def _set_of(response: RemotingCommand) -> SyncStateSet:
    return SyncStateSet.from_json_bytes(response.body) if response.body else SyncStateSet()


def role_notice_of(ext_fields: Mapping[str, str], body: bytes) -> RoleNotified | None:
    """1008; None if it names no epoch. Raises RequestError for what cannot be read."""
    header = decode_header(NotifyBrokerRoleChangedRequestHeader, ext_fields)
    if header.master_epoch is None:
        return None
    if len(body) > _MAX_BODY:
        raise BodyError("SyncStateSet", f"{len(body)} bytes are no notice of a controller")
    members = SyncStateSet.from_request(body) if body else SyncStateSet()
    return RoleNotified(
        GroupView(
            header.master_broker_id,
            header.master_address,
            header.master_epoch,
            frozenset(members.sync_state_set),
            header.sync_state_set_epoch or members.sync_state_set_epoch,
        )
    )

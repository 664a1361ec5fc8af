"""A controller's answers, and its notices (1008), as commands of RocketMQ's protocol.

Pure; any thread. Answers to 1001 to 1004, 1006, 1011 to 1013; their fields, also those of refusals,
are RocketMQ 5.3.3's.

Tested by tests/controller/test_recorded_answers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from controller.controller_service import GroupSeen
from controller.group_state import GroupState
from controller.requests import (
    Answer,
    Request,
)
from remoting.body.broker_member_group import BrokerMemberGroup
from remoting.body.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    ReplicaIdentity,
    ReplicasInfo,
)
from remoting.body.json_bean import JsonBean
from remoting.body.sync_state_set import SyncStateSet
from remoting.command_custom_header import CommandCustomHeader, encode_header
from remoting.headers.controller import (
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdResponseHeader,
    ElectMasterResponseHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

_Fields = Mapping[str, str]


def response_of(command: RemotingCommand, request: Request, answer: Answer) -> RemotingCommand:
    """The answer to `command`, which `request` was read from."""
    remark = answer.remark or None
    header, body = _WRITERS[RequestCode(command.code)](request, answer)
    fields: _Fields | None = None if header is None else encode_header(header)
    return command.response(
        answer.code,
        remark,
        ext_fields=None if fields is None else dict(fields),
        body=b"" if body is None else body.to_json_bytes(),
    )


_Written = tuple[CommandCustomHeader | None, JsonBean | None]


def _altered(_request: Request, answer: Answer) -> _Written:
    group = answer.group
    if answer.code != ResponseCode.SUCCESS or group is None:
        return AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=0), None
    header = AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=group.sync_state_set_epoch)
    return header, sync_state_set_of(group)


def _elected(request: Request, answer: Answer) -> _Written:
    group = answer.group
    named = (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
    if answer.code not in named or group is None:
        return ElectMasterResponseHeader(), None
    header = ElectMasterResponseHeader(
        master_broker_id=group.master_broker_id,
        master_address=group.master_address,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.sync_state_set_epoch,
    )
    members = sorted(group.sync_state_set)
    if answer.code != ResponseCode.SUCCESS:
        return header, ElectMasterResponseBody(sync_state_set=members)
    return header, ElectMasterResponseBody(
        broker_member_group=BrokerMemberGroup(
            cluster=request.cluster_name,
            broker_name=group.broker_name,
            broker_addrs={key: one.address for key, one in sorted(group.replicas.items())},
        ),
        sync_state_set=members,
    )


def _registered(request: Request, answer: Answer) -> _Written:
    names = RegisterBrokerToControllerResponseHeader(
        cluster_name=request.cluster_name, broker_name=request.broker_name
    )
    group = answer.group
    if answer.code != ResponseCode.SUCCESS:
        return names, None
    if group is None or group.master_broker_id is None:
        return names, SyncStateSet()
    header = RegisterBrokerToControllerResponseHeader(
        cluster_name=request.cluster_name,
        broker_name=request.broker_name,
        master_broker_id=group.master_broker_id,
        master_address=group.master_address,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.sync_state_set_epoch,
    )
    return header, sync_state_set_of(group)


def _told(_request: Request, answer: Answer) -> _Written:
    group = answer.group
    if answer.code != ResponseCode.SUCCESS or group is None:
        return GetReplicaInfoResponseHeader(), None
    header = GetReplicaInfoResponseHeader(
        master_broker_id=group.master_broker_id,
        master_address=group.master_address,
        master_epoch=group.master_epoch,
    )
    return header, sync_state_set_of(group)


def _cleaned(_request: Request, _answer: Answer) -> _Written:
    return None, None


def _offered(request: Request, answer: Answer) -> _Written:
    return (
        GetNextBrokerIdResponseHeader(
            cluster_name=request.cluster_name,
            broker_name=request.broker_name,
            next_broker_id=answer.next_broker_id,
        ),
        None,
    )


def _applied(request: Request, _answer: Answer) -> _Written:
    return (
        ApplyBrokerIdResponseHeader(
            cluster_name=request.cluster_name, broker_name=request.broker_name
        ),
        None,
    )


_WRITERS: Final[Mapping[RequestCode, Callable[[Request, Answer], _Written]]] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: _altered,
    RequestCode.CONTROLLER_ELECT_MASTER: _elected,
    RequestCode.CONTROLLER_REGISTER_BROKER: _registered,
    RequestCode.CONTROLLER_GET_REPLICA_INFO: _told,
    RequestCode.CLEAN_BROKER_DATA: _cleaned,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: _offered,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: _applied,
}


def sync_state_set_of(group: GroupState) -> SyncStateSet:
    """Its SyncStateSet, as it stands in bodies."""
    return SyncStateSet(
        sync_state_set=sorted(group.sync_state_set),
        sync_state_set_epoch=group.sync_state_set_epoch,
    )


def replicas_info(seen: Mapping[str, GroupSeen]) -> BrokerReplicasInfo:
    """The answer to 1006, by broker name."""
    return BrokerReplicasInfo(
        replicas_info_table={name: _replicas(one) for name, one in seen.items()}
    )


def _replicas(seen: GroupSeen) -> ReplicasInfo:
    group = seen.group
    rows = {
        broker_id: ReplicaIdentity(
            broker_name=group.broker_name,
            broker_id=broker_id,
            broker_address=one.address,
            alive=broker_id in seen.alive,
        )
        for broker_id, one in sorted(group.replicas.items())
    }
    members = group.sync_state_set
    return ReplicasInfo(
        master_broker_id=group.master_broker_id,
        master_address=group.master_address,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.sync_state_set_epoch,
        in_sync_replicas=[row for key, row in rows.items() if key in members],
        not_in_sync_replicas=[row for key, row in rows.items() if key not in members],
    )


def notice_command(group: GroupState) -> RemotingCommand:
    """1008."""
    header = NotifyBrokerRoleChangedRequestHeader(
        master_address=group.master_address,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.sync_state_set_epoch,
        master_broker_id=group.master_broker_id,
    )
    return RemotingCommand.request(
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        encode_header(header),
        sync_state_set_of(group).to_json_bytes(),
        oneway=True,
    )

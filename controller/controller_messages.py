"""What brokers and operators say to a controller, and its answers, as commands of RocketMQ's
protocol.

Pure; any thread. Requests 904, 1001 to 1004, 1006, 1011 to 1013, and 1008. Fields of the answers,
also of refusals, are those of RocketMQ 5.3.3. What is read here becomes state that is kept and
sent to others, so that sizes and names are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from controller.controller_service import GroupSeen
from controller.election import LogReport
from controller.group_state import GroupState
from controller.live_brokers import Heartbeat
from controller.requests import (
    AlterSyncStateSet,
    Answer,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    GetNextBrokerId,
    GetReplicaInfo,
    RegisterBroker,
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
from remoting.command_custom_header import CommandCustomHeader, decode_header, encode_header
from remoting.control_characters import holds_control
from remoting.errors import RequestError
from remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
    CleanControllerBrokerDataRequestHeader,
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

MAX_MEMBERS: Final = 1_000
"""Brokers of a group; no member of RocketMQ's or ours is told of more."""
_MAX_NAME: Final = 255
_MAX_ADDRESS: Final = 300
_MAX_BODY: Final = 512 << 10
_MAX_TIMEOUT_MS: Final = 600_000
_DEFAULT_TIMEOUT_MS: Final = 10_000
_LOWEST_PRIORITY: Final = 2**31 - 1
_EMPTY_ID: Final = "Heart beat with empty brokerId"

_Fields = Mapping[str, str]


# From brokers and operators


def request_of(command: RemotingCommand) -> Request:
    """What 1001 to 1004 and 1011 to 1013 ask. Raises RequestError."""
    return _READERS[RequestCode(command.code)](command)


def _alter(command: RemotingCommand) -> Request:
    header = decode_header(AlterSyncStateSetRequestHeader, command.ext_fields)
    if len(command.body) > _MAX_BODY:
        raise _refused(f"a body of {len(command.body)} bytes is no SyncStateSet")
    body = SyncStateSet.from_request(command.body)
    members = frozenset(body.sync_state_set)
    if len(members) > MAX_MEMBERS:
        raise _refused(f"{len(members)} members; a group has {MAX_MEMBERS} at most")
    return AlterSyncStateSet(
        "",
        _name(header.broker_name),
        header.master_broker_id,
        header.master_epoch,
        members,
        body.sync_state_set_epoch,
    )


def _elect(command: RemotingCommand) -> Request:
    header = decode_header(ElectMasterRequestHeader, command.ext_fields)
    if header.broker_id <= 0:
        raise _refused(f"broker id {header.broker_id}; ids begin at 1")
    return ElectMaster(
        header.cluster_name, _name(header.broker_name), header.broker_id, header.designate_elect
    )


def _register(command: RemotingCommand) -> Request:
    header = decode_header(RegisterBrokerToControllerRequestHeader, command.ext_fields)
    return RegisterBroker(
        header.cluster_name,
        _name(header.broker_name),
        header.broker_id,
        _address(header.broker_address),
    )


def _replica_info(command: RemotingCommand) -> Request:
    header = decode_header(GetReplicaInfoRequestHeader, command.ext_fields)
    return GetReplicaInfo("", header.broker_name)


def _clean(command: RemotingCommand) -> Request:
    header = decode_header(CleanControllerBrokerDataRequestHeader, command.ext_fields)
    texts = (header.broker_controller_ids_to_clean or "").split(";")
    ids = [text.strip() for text in texts if text.strip()]
    if len(ids) > MAX_MEMBERS or not all(text.isdecimal() and len(text) < 20 for text in ids):
        raise _refused("brokerControllerIdsToClean: expected broker ids, separated by ';'")
    return CleanBrokerData(
        header.cluster_name or "",
        header.broker_name,
        frozenset(map(int, ids)),
        header.is_clean_living_broker,
    )


def _next_id(command: RemotingCommand) -> Request:
    header = decode_header(GetNextBrokerIdRequestHeader, command.ext_fields)
    return GetNextBrokerId(header.cluster_name, header.broker_name)


def _apply(command: RemotingCommand) -> Request:
    header = decode_header(ApplyBrokerIdRequestHeader, command.ext_fields)
    check_code = header.register_check_code
    if len(check_code) > _MAX_ADDRESS or holds_control(check_code):
        raise _refused(f"registerCheckCode {check_code!a:.80}: expected host:port;milliseconds")
    _address(check_code.partition(";")[0])
    if not 0 < header.applied_broker_id < 2**63 - 1:
        raise _refused(f"broker id {header.applied_broker_id}; ids begin at 1")
    return ApplyBrokerId(
        _name(header.cluster_name),
        _name(header.broker_name),
        header.applied_broker_id,
        check_code,
    )


_READERS: Final[Mapping[RequestCode, Callable[[RemotingCommand], Request]]] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: _alter,
    RequestCode.CONTROLLER_ELECT_MASTER: _elect,
    RequestCode.CONTROLLER_REGISTER_BROKER: _register,
    RequestCode.CONTROLLER_GET_REPLICA_INFO: _replica_info,
    RequestCode.CLEAN_BROKER_DATA: _clean,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: _next_id,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: _apply,
}
ASKING_CODES: Final = frozenset(_READERS)
"""The codes that `request_of` reads."""


def heartbeat_of(command: RemotingCommand, channel: int) -> Heartbeat:
    """904 over connection `channel`. Raises RequestError."""
    header = decode_header(ControllerHeartbeatRequestHeader, command.ext_fields)
    if header.broker_id is None:
        raise RequestError(ResponseCode.CONTROLLER_INVALID_REQUEST, _EMPTY_ID)
    timeout_ms = header.heartbeat_timeout_mills
    if timeout_ms is None or timeout_ms <= 0:
        timeout_ms = _DEFAULT_TIMEOUT_MS
    priority = header.election_priority
    return Heartbeat(
        header.broker_name,
        header.broker_id,
        _address(header.broker_addr),
        channel,
        min(timeout_ms, _MAX_TIMEOUT_MS),
        LogReport(
            -1 if header.epoch is None else header.epoch,
            -1 if header.max_offset is None else header.max_offset,
            _LOWEST_PRIORITY if priority is None else priority,
        ),
    )


def broker_names_of(command: RemotingCommand) -> list[str]:
    """1006: the groups that are asked for. Raises RequestError."""
    if not command.body:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "not set any response code")
    if len(command.body) > _MAX_BODY:
        raise _refused(f"a body of {len(command.body)} bytes is no list of broker names")
    try:
        return msgspec.json.decode(command.body, type=list[str])
    except msgspec.MsgspecError as error:
        raise _refused(f"the body is no list of broker names: {error}") from error


def _name(text: str) -> str:
    if not text or len(text) > _MAX_NAME or holds_control(text) or "#" in text:
        raise _refused(
            f"{text!a:.80} cannot be the name of a group or a cluster: 1 to {_MAX_NAME} "
            "characters, no control characters and no '#'"
        )
    return text


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    is_port = port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65_536
    if not host or not colon or not is_port or len(text) > _MAX_ADDRESS or holds_control(text):
        raise _refused(f"{text!a:.80} is no address; expected host:port")
    return text


def _refused(remark: str) -> RequestError:
    return RequestError(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)


# To them


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

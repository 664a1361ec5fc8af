"""What brokers and operators say to a controller, read from commands of RocketMQ's protocol.

Pure; any thread. Requests 904, 1001 to 1004, 1006, 1011 to 1013. What is read here becomes state
that is kept and sent to others, so that sizes and names are bounded.

Tested by tests/controller/test_request_guard.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from controller.election import LogReport
from controller.live_brokers import Heartbeat
from controller.requests import (
    MAX_MEMBERS,
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    GetNextBrokerId,
    GetReplicaInfo,
    RegisterBroker,
    Request,
)
from remoting.body.sync_state_set import SyncStateSet
from remoting.command_custom_header import decode_header
from remoting.control_characters import holds_control
from remoting.errors import RequestError
from remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ControllerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

_MAX_NAME: Final = 255
_MAX_ADDRESS: Final = 300
_MAX_NAMES_BODY: Final = 512 << 10
_MAX_SET_BODY: Final = 32 << 10
"""MAX_MEMBERS ids of 20 digits fit. Heartbeats wait while it is read."""
_MAX_TIMEOUT_MS: Final = 600_000
_DEFAULT_TIMEOUT_MS: Final = 10_000
_LOWEST_PRIORITY: Final = 2**31 - 1
_EMPTY_ID: Final = "Heart beat with empty brokerId"
_read_names: Final = msgspec.json.Decoder(list[str]).decode

_Fields = Mapping[str, str]


def request_of(command: RemotingCommand) -> Request:
    """What 1001 to 1004 and 1011 to 1013 ask. Raises RequestError."""
    return _READERS[RequestCode(command.code)](command)


def _alter(command: RemotingCommand) -> Request:
    header = decode_header(AlterSyncStateSetRequestHeader, command.ext_fields)
    if len(command.body) > _MAX_SET_BODY:
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
        _echoed(header.cluster_name),
        _name(header.broker_name),
        header.broker_id,
        header.designate_elect,
    )


def _register(command: RemotingCommand) -> Request:
    header = decode_header(RegisterBrokerToControllerRequestHeader, command.ext_fields)
    return RegisterBroker(
        _echoed(header.cluster_name),
        _name(header.broker_name),
        header.broker_id,
        _address(header.broker_address),
    )


def _replica_info(command: RemotingCommand) -> Request:
    header = decode_header(GetReplicaInfoRequestHeader, command.ext_fields)
    return GetReplicaInfo("", _echoed(header.broker_name))


def _clean(command: RemotingCommand) -> Request:
    header = decode_header(CleanControllerBrokerDataRequestHeader, command.ext_fields)
    named = (header.broker_controller_ids_to_clean or "").strip()
    ids = [text.strip() for text in named.split(";") if text.strip()]
    # Separators alone are no "all of them".
    if (
        bool(named) is not bool(ids)
        or len(ids) > MAX_MEMBERS
        or not all(text.isascii() and text.isdecimal() and len(text) < 20 for text in ids)
    ):
        raise _refused("brokerControllerIdsToClean: expected broker ids, separated by ';'")
    return CleanBrokerData(
        _echoed(header.cluster_name or ""),
        _echoed(header.broker_name),
        frozenset(map(int, ids)),
        header.is_clean_living_broker,
    )


def _next_id(command: RemotingCommand) -> Request:
    header = decode_header(GetNextBrokerIdRequestHeader, command.ext_fields)
    return GetNextBrokerId(_echoed(header.cluster_name), _echoed(header.broker_name))


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
    if len(command.body) > _MAX_NAMES_BODY:
        raise _refused(f"a body of {len(command.body)} bytes is no list of broker names")
    try:
        return _read_names(command.body)
    except msgspec.MsgspecError as error:
        raise _refused(f"the body is no list of broker names: {error}") from error


def _name(text: str) -> str:
    if not text or len(text) > _MAX_NAME or holds_control(text) or "#" in text:
        raise _refused(
            f"{text!a:.80} cannot be the name of a group or a cluster: 1 to {_MAX_NAME} "
            "characters, no control characters and no '#'"
        )
    return text


def _echoed(text: str) -> str:
    """A name that finds nothing if it is wrong, and goes into the answer as it came."""
    if len(text) > _MAX_NAME:
        raise _refused(f"a name of {len(text)} characters; {_MAX_NAME} at most")
    return text


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65_536
    if not host or not colon or not is_port or len(text) > _MAX_ADDRESS or holds_control(text):
        raise _refused(f"{text!a:.80} is no address; expected host:port")
    return text


def _refused(remark: str) -> RequestError:
    return RequestError(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)

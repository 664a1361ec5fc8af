"""Headers and bodies of the controller's requests, against the frames of Java's 5.3.3.

Each frame is decoded down to its header and its body, written again from these alone, and has to
be the same bytes. Only the order of the fields is taken from the frame: in Java it is a hash map's.
"""

from __future__ import annotations

import pytest

from remoting.body.controller import BrokerReplicasInfo, ElectMasterResponseBody, EpochEntryCache
from remoting.body.json_bean import JsonBean
from remoting.body.sync_state_set import SyncStateSet
from remoting.command_custom_header import CommandCustomHeader, decode_header, encode_header
from remoting.errors import HeaderError
from remoting.headers import controller
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from tests.remoting.golden_controller import GoldenRow, decoded, golden_rows
from tests.support.every_row import check_every_row

SIGNATURE = {"AccessKey", "Signature"}
HEADERS: dict[str, type[CommandCustomHeader]] = {
    "904 req": controller.ControllerHeartbeatRequestHeader,
    "1001 req": controller.AlterSyncStateSetRequestHeader,
    "1001 resp": controller.AlterSyncStateSetResponseHeader,
    "1002 req": controller.ElectMasterRequestHeader,
    "1002 resp": controller.ElectMasterResponseHeader,
    "1003 req": controller.RegisterBrokerToControllerRequestHeader,
    "1003 resp": controller.RegisterBrokerToControllerResponseHeader,
    "1004 req": controller.GetReplicaInfoRequestHeader,
    "1004 resp": controller.GetReplicaInfoResponseHeader,
    "1005 resp": controller.GetMetaDataResponseHeader,
    "1008 req": controller.NotifyBrokerRoleChangedRequestHeader,
    "1012 req": controller.GetNextBrokerIdRequestHeader,
    "1012 resp": controller.GetNextBrokerIdResponseHeader,
    "1013 req": controller.ApplyBrokerIdRequestHeader,
    "1013 resp": controller.ApplyBrokerIdResponseHeader,
}
BODIES: dict[str, type[JsonBean]] = {
    "1001 req": SyncStateSet,
    "1001 resp": SyncStateSet,
    "1002 resp": ElectMasterResponseBody,
    "1003 resp": SyncStateSet,
    "1004 resp": SyncStateSet,
    "1006 resp": BrokerReplicasInfo,
    "1007 resp": EpochEntryCache,
    "1008 req": SyncStateSet,
}
OTHER_BODIES = {"1006 req": b'["cb"]'}


def assert_comes_back(row: GoldenRow) -> None:
    kind, _, frame = row
    command = decoded(frame)
    signed = {key: text for key, text in command.ext_fields.items() if key in SIGNATURE}
    fields = {} if kind not in HEADERS else _written_header(HEADERS[kind], command)
    assert {**fields, **signed} == command.ext_fields
    body = OTHER_BODIES.get(kind, b"")
    if kind in BODIES and command.body:
        bean = BODIES[kind].from_json_bytes(command.body)
        assert BODIES[kind].from_json_bytes(bean.to_json_bytes()) == bean
        body = bean.to_json_bytes()
    written = RemotingCommand(
        command.code,
        language=command.language,
        version=command.version,
        opaque=command.opaque,
        flag=command.flag,
        remark=command.remark,
        ext_fields={key: {**fields, **signed}[key] for key in command.ext_fields} or None,
        body=body,
    )
    assert encode_command(written) == frame


def _written_header(cls: type[CommandCustomHeader], command: RemotingCommand) -> dict[str, str]:
    return encode_header(decode_header(cls, command.ext_fields))


def test_frames_come_back_byte_for_byte() -> None:
    check_every_row(golden_rows(), assert_comes_back, lambda row: f"{row[0]} {row[1]}")


def test_no_kind_of_frame_is_left_out() -> None:
    kinds = {kind for kind, _, _ in golden_rows()}
    assert HEADERS.keys() | BODIES.keys() | OTHER_BODIES.keys() <= kinds
    assert kinds - HEADERS.keys() - BODIES.keys() - OTHER_BODIES.keys() == {"1005 req", "1007 req"}


@pytest.mark.parametrize(
    ("cls", "fields"),
    [
        # What a 5.3.3 controller answers (probe of the five-x captures).
        (controller.GetReplicaInfoResponseHeader, {"masterEpoch": "0"}),
        (controller.GetReplicaInfoResponseHeader, {"masterBrokerId": "99", "masterEpoch": "1"}),
        (controller.ElectMasterResponseHeader, {}),
        (controller.AlterSyncStateSetResponseHeader, {"newSyncStateSetEpoch": "0"}),
    ],
)
def test_what_an_answer_leaves_out_is_none(
    cls: type[CommandCustomHeader], fields: dict[str, str]
) -> None:
    assert encode_header(decode_header(cls, fields)) == fields


@pytest.mark.parametrize(
    ("cls", "field", "text"),
    [
        (controller.GetReplicaInfoResponseHeader, "masterEpoch", str(2**31)),
        (controller.GetReplicaInfoResponseHeader, "masterBrokerId", "one"),
        (controller.AlterSyncStateSetResponseHeader, "newSyncStateSetEpoch", "1.5"),
        (controller.GetNextBrokerIdResponseHeader, "nextBrokerId", str(2**63)),
    ],
)
def test_numbers_that_are_none_are_named(
    cls: type[CommandCustomHeader], field: str, text: str
) -> None:
    with pytest.raises(HeaderError, match=field):
        decode_header(cls, {field: text})

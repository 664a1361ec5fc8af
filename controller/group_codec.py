"""The groups of a controller as the text of its file, and back. Pure; any thread.

    {"format":1,"groups":{NAME:{"version":N,"group":{…}}}}\n
    crc32 XXXXXXXX\n              of the first line, without its end, in hexadecimal

A text that is not exactly that is refused: a controller that knows less than it has answered would
have a second master elected.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Final

import msgspec

from controller.events import Stored
from controller.group_state import GroupState, Replica
from remoting.shared_decoders import decoder_of

FORMAT: Final = 1
_CHECK_SUM: Final = re.compile(rb"crc32 ([0-9A-F]{8})\n")


class GroupsTextError(ValueError):
    """The text is not what a controller writes; the message says where."""


class _Replica(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    address: str
    register_check_code: str


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    cluster_name: str
    replicas: dict[int, _Replica]
    next_broker_id: int
    master_broker_id: int | None
    master_epoch: int
    sync_state_set: list[int]
    sync_state_set_epoch: int


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    group: _Group | None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    groups: dict[str, _Stored]


def encode_groups(groups: Mapping[str, Stored]) -> bytes:
    """The text."""
    rows = {name: _Stored(one.version, _row(one.group)) for name, one in groups.items()}
    text = msgspec.json.encode(_File(FORMAT, rows))
    return b"%s\ncrc32 %08X\n" % (text, zlib.crc32(text))


def _row(group: GroupState | None) -> _Group | None:
    if group is None:
        return None
    return _Group(
        group.cluster_name,
        {
            broker_id: _Replica(one.address, one.register_check_code)
            for broker_id, one in group.replicas.items()
        },
        group.next_broker_id,
        group.master_broker_id,
        group.master_epoch,
        sorted(group.sync_state_set),
        group.sync_state_set_epoch,
    )


def decode_groups(data: bytes) -> dict[str, Stored]:
    """By broker name. Raises GroupsTextError."""
    text, newline, rest = data.partition(b"\n")
    found = _CHECK_SUM.fullmatch(rest)
    if not newline or found is None:
        raise GroupsTextError("it does not end with its check sum: it is cut off, or another file")
    if int(found[1], 16) != zlib.crc32(text):
        raise GroupsTextError("its check sum is not that of its text: it is damaged")
    try:
        file = decoder_of(_File).decode(text)
    except msgspec.MsgspecError as error:
        raise GroupsTextError(str(error)) from error
    if file.format != FORMAT:
        raise GroupsTextError(f"its format is {file.format}, this version reads {FORMAT}")
    return {
        name: Stored(row.version, None if row.group is None else _group(name, row.group))
        for name, row in file.groups.items()
    }


def _group(name: str, row: _Group) -> GroupState:
    group = GroupState(
        cluster_name=row.cluster_name,
        broker_name=name,
        replicas={
            broker_id: Replica(one.address, one.register_check_code)
            for broker_id, one in row.replicas.items()
        },
        next_broker_id=row.next_broker_id,
        master_broker_id=row.master_broker_id,
        master_epoch=row.master_epoch,
        sync_state_set=frozenset(row.sync_state_set),
        sync_state_set_epoch=row.sync_state_set_epoch,
    )
    wrong = _contradiction(group)
    if wrong is not None:
        raise GroupsTextError(f"group {name!a:.80}: {wrong}")
    return group


def _contradiction(group: GroupState) -> str | None:
    """What no controller can have written, with a right check sum or not."""
    master = group.master_broker_id
    if any(not 0 < broker_id < group.next_broker_id for broker_id in group.replicas):
        return f"an id outside 1 to {group.next_broker_id - 1}, which were given"
    if master is not None and master not in group.sync_state_set:
        return f"master {master} is not in its SyncStateSet"
    if not group.sync_state_set <= group.replicas.keys():
        return "its SyncStateSet names ids that it has not"
    if group.master_epoch < 0 or group.sync_state_set_epoch < 0:
        return "an epoch below 0"
    return None

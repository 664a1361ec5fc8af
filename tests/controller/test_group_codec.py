"""The text of the groups' file: what is written is read, and nothing else is."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.events import Stored
from controller.group_codec import GroupsTextError, decode_groups, encode_groups
from controller.group_state import GroupState, Replica

LONE = GroupState("C", "b").with_replica(1, Replica("h:1", "h:1;5")).with_master(1)


@st.composite
def groups(draw: st.DrawFn) -> GroupState:
    group = GroupState(draw(st.text(max_size=5)), "")
    for broker_id in sorted(draw(st.sets(st.integers(1, 9), max_size=5))):
        group = group.with_replica(broker_id, Replica(draw(st.text(max_size=9)), draw(st.text())))
    if group.replicas and draw(st.booleans()):
        group = group.with_master(draw(st.sampled_from(sorted(group.replicas))))
        members = draw(st.sets(st.sampled_from(sorted(group.replicas))))
        master = group.master_broker_id
        assert master is not None
        group = group.with_sync_state_set(frozenset(members | {master}))
    return group


@given(st.dictionaries(st.text(max_size=9), st.tuples(st.integers(0, 9), st.none() | groups())))
def test_what_is_written_is_read(rows: dict[str, tuple[int, GroupState | None]]) -> None:
    stored = {}
    for name, (version, group) in rows.items():
        if group is not None:
            group = GroupState(
                group.cluster_name,
                name,
                group.replicas,
                group.next_broker_id,
                group.master_broker_id,
                group.master_epoch,
                group.sync_state_set,
                group.sync_state_set_epoch,
            )
        stored[name] = Stored(version, group)
    assert decode_groups(encode_groups(stored)) == stored


def test_every_cut_and_every_changed_byte_is_seen() -> None:
    text = encode_groups({"b": Stored(3, LONE)})
    for end in range(len(text)):
        with pytest.raises(GroupsTextError):
            decode_groups(text[:end])
    for at in range(len(text)):
        changed = bytearray(text)
        changed[at] ^= 1
        with pytest.raises(GroupsTextError):
            decode_groups(bytes(changed))
    with pytest.raises(GroupsTextError):
        decode_groups(text + b"\n")


def _signed(change: dict[str, object]) -> bytes:
    """A text with a right check sum whose group has other values."""
    file = json.loads(encode_groups({"b": Stored(3, LONE)}).splitlines()[0])
    file["groups"]["b"]["group"].update(change)
    text = json.dumps(file).encode()
    return b"%s\ncrc32 %08X\n" % (text, zlib.crc32(text))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"masterBrokerId": 2}, "not in its SyncStateSet"),
        ({"syncStateSet": [1, 7]}, "ids that it has not"),
        ({"nextBrokerId": 1}, "outside 1 to 0"),
        ({"masterEpoch": -1}, "below 0"),
        ({"masterEpoch": "1"}, "masterEpoch"),
        ({"more": 1}, "more"),
    ],
)
def test_what_no_controller_writes_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(GroupsTextError, match=words):
        decode_groups(_signed(change))


def test_a_later_format_is_refused_by_its_number() -> None:
    text = b'{"format":2,"groups":{}}'
    with pytest.raises(GroupsTextError, match="format is 2"):
        decode_groups(b"%s\ncrc32 %08X\n" % (text, zlib.crc32(text)))

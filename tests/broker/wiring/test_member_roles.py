"""Roles at run time: what clients are answered, and what stands in the logs, while orders come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from store.message_codec import decode_record
from tests.broker.member_world import Member

REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Member, Member]]:
    members = Member(tmp_path / "a"), Member(tmp_path / "b")
    yield members
    for member in members:
        member.close()


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    found = Member(tmp_path / "a")
    yield found
    found.close()


def code_of(answer: RemotingCommand | None) -> int:
    assert answer is not None
    return answer.code


def bodies(answer: RemotingCommand) -> list[tuple[int, bytes]]:
    """Queue offset and body of what a pull brought."""
    found, at = [], 0
    while at < len(answer.body):
        record, size = decode_record(answer.body, at)
        found.append((record.queue_offset, record.body))
        at += size
    return found


def test_a_member_takes_messages_only_while_it_leads(member: Member) -> None:
    peer = member.connect()
    assert code_of(member.send(peer, b"fenced")) == REFUSED
    member.lead()
    assert code_of(member.send(peer, b"one")) == ResponseCode.SUCCESS
    assert code_of(member.send(peer, b"two")) == ResponseCode.SUCCESS, "the fast path"
    member.follow()
    before = member.log_bytes()
    assert code_of(member.send(peer, b"three")) == REFUSED, "the fast path knew the topic"
    assert member.log_bytes() == before
    assert bodies(member.pull(peer, 0)) == [(0, b"one"), (1, b"two")], "the same connection"


def test_queue_offsets_go_on_behind_what_another_leader_wrote(
    pair: tuple[Member, Member],
) -> None:
    """The truth is the list of the bodies that were answered SUCCESS, in their order."""
    peers = [member.connect() for member in pair]
    sent: list[bytes] = []
    for epoch in range(1, 7):
        leader, follower = pair[epoch % 2], pair[1 - epoch % 2]
        follower.follow(epoch)
        leader.lead(epoch)
        for number in range(epoch):
            body = f"{epoch}-{number}".encode()
            assert code_of(leader.send(peers[epoch % 2], body)) == ResponseCode.SUCCESS
            sent.append(body)
        follower.copy_from(leader)
        expected = list(enumerate(sent))
        assert [bodies(one.pull(peer, 0)) for one, peer in zip(pair, peers, strict=True)] == [
            expected,
            expected,
        ]
    assert pair[0].log_bytes() == pair[1].log_bytes()

"""remoting.requester: the peer in words."""

from __future__ import annotations

import pytest

from remoting.remoting_command import RemotingCommand
from remoting.requester import describe_requester
from tests.broker.broker_fakes import FakeConnection


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "10.0.0.9:1"),
        ({"AccessKey": ""}, "10.0.0.9:1"),
        ({"AccessKey": "rocketmq2"}, "10.0.0.9:1 (access key rocketmq2)"),
        ({"AccessKey": "x" * 100}, f"10.0.0.9:1 (access key {'x' * 80})"),
    ],
)
def test_who_asks(fields: dict[str, str], words: str) -> None:
    request = RemotingCommand.request(25, fields)
    assert describe_requester(FakeConnection("10.0.0.9:1"), request) == words

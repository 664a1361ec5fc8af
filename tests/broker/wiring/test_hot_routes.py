"""HotRoutes: which requests are served from their bytes, and by whom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.wiring.hot_routes import HotRoutes
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.request_code import RequestCode as Code

SINGLES = SimpleNamespace(process_fast="send", process_run="run", process_binary_run="binary run")
SEND: Any = SimpleNamespace(singles=SINGLES, batches=SimpleNamespace(process_fast="batch"))
PULL: Any = SimpleNamespace(process_fast="pull", process_binary="pull binary")
OWN: dict[str, Any] = {
    "pop": "pop",
    "ack": "ack",
    "heartbeat": "heartbeat",
    "end_transaction": "end",
}
BY_CODE = {
    Code.SEND_MESSAGE_V2: "send",
    Code.PULL_MESSAGE: "pull",
    Code.LITE_PULL_MESSAGE: "pull",
    Code.POP_MESSAGE: "pop",
    Code.ACK_MESSAGE: "ack",
    Code.HEART_BEAT: "heartbeat",
    Code.SEND_MESSAGE: "send",
    Code.SEND_BATCH_MESSAGE: "batch",
    Code.END_TRANSACTION: "end",
}


@pytest.mark.parametrize(("code", "handler"), BY_CODE.items())
def test_the_beginning_of_a_header_finds_its_handler(code: Code, handler: str) -> None:
    """As this broker's own encoder, like Java's, writes it: the code first."""
    hot = HotRoutes(send=SEND, pull=PULL, **OWN)
    frame = encode_command(RemotingCommand.request(code, {}))
    header = bytes(frame)[8:]
    routes = (*hot.guarded(), *hot.unguarded())
    assert len(routes) == len(BY_CODE)
    assert [found for prefix, found in routes if header.startswith(prefix)] == [handler]


def test_only_the_end_of_a_transaction_is_unguarded() -> None:
    hot = HotRoutes(send=SEND, pull=PULL, **OWN)
    assert [handler for _prefix, handler in hot.unguarded()] == ["end"]


def test_what_there_is_not_has_no_route() -> None:
    hot = HotRoutes(send=SEND, pull=PULL)
    assert hot.unguarded() == ()
    assert {handler for _prefix, handler in hot.guarded()} == {"send", "pull", "batch"}


def test_binary_headers_by_their_code() -> None:
    hot = HotRoutes(send=SEND, pull=PULL)
    assert dict(hot.binary()) == {
        Code.SEND_MESSAGE_V2: "send",
        Code.SEND_MESSAGE: "send",
        Code.SEND_BATCH_MESSAGE: "batch",
        Code.PULL_MESSAGE: "pull binary",
        Code.LITE_PULL_MESSAGE: "pull binary",
    }


@pytest.mark.parametrize("kind", SerializeType)
def test_sends_of_either_kind_are_taken_in_runs(kind: SerializeType) -> None:
    run = {run.serialize_type: run for run in HotRoutes(send=SEND, pull=PULL).runs()}[kind]
    request = RemotingCommand.request(Code.SEND_MESSAGE_V2, {})
    request.serialize_type = kind
    assert encode_command(request)[8:].startswith(run.prefix)
    assert run.take == ("binary run" if kind else "run")

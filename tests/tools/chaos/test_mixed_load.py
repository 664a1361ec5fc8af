"""The soak's loads and the delayed messages: each lie of a broker is found."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tools.chaos.delayed_load import DelayedLoad, _Delayed
from tools.chaos.frame_client import Pulled
from tools.chaos.mixed_load import TopicChurn, Transactions


def nowhere() -> tuple[str, int]:
    return "127.0.0.1", 9


class LyingClient:
    """A FrameClient whose broker answers 0 to everything and has these bodies in each queue."""

    def __init__(self, *bodies: bytes) -> None:
        self.bodies = bodies
        self.requests: list[RemotingCommand] = []
        self.asked: list[tuple[int, dict[str, Any]]] = []

    def call(self, code: int, fields: dict[str, Any], body: bytes = b"") -> Any:
        self.asked.append((code, fields))
        return SimpleNamespace(code=0, ext_fields={})

    def post(self, *_requests: RemotingCommand) -> None:
        pass

    def take(self, _opaque: int) -> Any:
        fields = {"queueId": "0", "queueOffset": "5", "msgId": "7F000001000000050000000000000123"}
        return SimpleNamespace(code=0, ext_fields=fields)

    def pull(self, _topic: str, _queue_id: int, offset: int) -> Pulled:
        found: Any = [
            SimpleNamespace(body=body, queue_offset=at) for at, body in enumerate(self.bodies)
        ]
        return Pulled(0, len(found), found) if offset == 0 else Pulled(19, offset, [])


def test_delayed_messages_come_early_late_and_never() -> None:
    load = DelayedLoad(nowhere, 1)
    now = time.monotonic()
    for began_s, code in ((now, 0), (now - 7, 0), (now - 9, 11), (now - 9, None)):
        load._messages.append(_Delayed(2, began_s, code))
    load._came(b"0")
    load._came(b"1")
    load._came(b"1")
    load._came(b"9")
    assert not load.has_all(only_ok=False)
    assert load.has_all(only_ok=True)
    assert load.repeated == 1
    load._receiver.start()
    early, invented, lost = load.stop(only_ok=False)
    assert early.startswith("delayed message 0 of level 2 came 5.0")
    assert invented == "delayed: nobody sent b'9'"
    assert lost == "delayed message 2 of level 2, answered 11: never came"
    assert load.text().startswith("4 delayed, 2 came (1 again)")


def test_transactions_are_decided_and_judged() -> None:
    load = Transactions(nowhere, 1)
    client: Any = LyingClient()
    assert all(load.step(client) for _ in range(4))
    ended = [fields for code, fields in client.asked if code == RequestCode.END_TRANSACTION]
    assert [fields["commitOrRollback"] for fields in ended] == [8, 12, 8]
    assert ended[0]["commitLogOffset"] == str(0x123)
    check = {"transactionId": "tx-2", "tranStateTableOffset": "5", "commitLogOffset": "291"}
    client.requests = [RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, check)]
    load.decide_only()
    load.step(client)
    (last,) = [fields for code, fields in client.asked[-2:] if code == RequestCode.END_TRANSACTION]
    assert (last["fromTransactionCheck"], last["commitOrRollback"]) == ("true", 8)
    assert load.judge() == [f"transaction {number} never came" for number in (0, 2, 3)]
    load._at = {0: 0}
    load.step(LyingClient(b"0", b"1", b"2", b"3"))  # type: ignore[arg-type]
    assert load.judge() == ["transaction 1 came and was rolled back"]
    assert load.has_all


def test_what_has_ended_is_ended_once() -> None:
    """Number 6 is committed again, 7 after its rollback; a master that dies meanwhile may not know
    that they have ended."""
    load = Transactions(nowhere, 1)
    client: Any = LyingClient()
    assert all(load.step(client) for _ in range(8))
    ended = [
        (fields["msgId"], fields["commitOrRollback"])
        for code, fields in client.asked
        if code == RequestCode.END_TRANSACTION
    ]
    assert ended[-4:] == [("tx-6", 8), ("tx-6", 8), ("tx-7", 12), ("tx-7", 8)]
    load.decide_only()
    load._at = {0: 0}
    load.step(LyingClient(b"6", b"6", b"7", b"0", b"2", b"3", b"5"))  # type: ignore[arg-type]
    assert load.judge() == [
        "transaction 6 was committed once and came 2 times",
        "transaction 7 came and was rolled back",
    ]
    load.disturb()
    assert load.judge() == []


def test_a_cut_may_take_a_half() -> None:
    load = Transactions(nowhere, 1, lambda _answered_s, code: code == 0)
    client: Any = LyingClient()
    assert load.step(client)
    assert load.judge() == []


def test_queues_that_go_on_otherwise_are_read_again() -> None:
    load = Transactions(nowhere, 1)
    load.decide_only()
    load._at = {0: 0}
    load.step(LyingClient(b"0", b"3"))  # type: ignore[arg-type]
    assert load._places == {0: {(0, 0)}, 3: {(0, 1)}}
    load.read_again()
    load.step(LyingClient(b"3"))  # type: ignore[arg-type]
    assert load._places == {3: {(0, 0)}}


@pytest.mark.parametrize(("body", "cycle", "is_found"), [(b"0", 0, False), (b"2", 7, True)])
def test_a_topic_has_nothing_of_its_former_life(body: bytes, cycle: int, is_found: bool) -> None:
    load = TopicChurn(nowhere, 1)
    load._cycle = cycle
    assert load.step(LyingClient(body))  # type: ignore[arg-type]
    assert bool(load.violations) is is_found


def test_a_topic_whose_deletion_was_not_answered_may_have_them() -> None:
    load = TopicChurn(nowhere, 1)
    load._cycle, load._deleted[2] = 7, False
    load.step(LyingClient(b"2"))  # type: ignore[arg-type]
    assert load.violations == []

"""tools.chaos.pop_load: each lie of a broker about popped messages is found."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from remoting.request_code import RequestCode
from tools.chaos import pop_load
from tools.chaos.pop_load import PopLoad

ACK = RequestCode.ACK_MESSAGE


class PoppingClient:
    """A FrameClient whose broker stores everything and hands out what the test says."""

    def __init__(self) -> None:
        self.next: list[tuple[str, int]] = []
        """(retry flag, number) of the next pop."""
        self.acked: list[dict[str, Any]] = []
        self.ack_code = 0

    def post(self, *_requests: object) -> None:
        pass

    def take(self, _opaque: int) -> Any:
        fields = {"queueId": "0", "queueOffset": "0", "msgId": "0" * 32}
        return SimpleNamespace(code=0, ext_fields=fields)

    def call(self, code: int, fields: dict[str, Any]) -> Any:
        if code == ACK:
            self.acked.append(fields)
            if self.ack_code < 0:
                raise ConnectionResetError
            return SimpleNamespace(code=self.ack_code)
        popped, self.next = self.next, []
        if not popped:
            return SimpleNamespace(code=210)
        flags = dict.fromkeys(flag for flag, _number in popped)
        offsets = {f: [str(n) for flag, n in popped if flag == f] for f in flags}
        found = {
            "startOffsetInfo": ";".join(f"{flag} 0 {offsets[flag][0]}" for flag in flags),
            "msgOffsetInfo": ";".join(f"{flag} 0 {','.join(offsets[flag])}" for flag in flags),
            "popTime": "1",
            "invisibleTime": "4000",
            "reviveQid": "3",
        }
        body = [number for flag in flags for each, number in popped if each == flag]
        return SimpleNamespace(code=0, ext_fields=found, body=body)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> PopLoad:
    def decode(numbers: list[int]) -> list[Any]:
        return [SimpleNamespace(body=b"%d" % n, queue_id=0, queue_offset=n) for n in numbers]

    monkeypatch.setattr(pop_load, "decode_messages", decode)
    return PopLoad(
        lambda: ("127.0.0.1", 1),
        1,
        "chaos",
        may_be_lost=lambda _answered_s, _code: False,
        keeps_acks=True,
    )


def step(load: PopLoad, client: PoppingClient, *popped: tuple[str, int]) -> None:
    client.next = list(popped)
    load.step(client)  # type: ignore[arg-type]


def test_two_of_three_are_acknowledged_and_the_third_comes_again(load: PopLoad) -> None:
    client = PoppingClient()
    for _ in range(3):
        step(load, client)
    step(load, client, ("0", 0), ("0", 1), ("0", 2))
    assert [fields["offset"] for fields in client.acked] == [0, 1]
    assert client.acked[0]["extraInfo"] == "0 1 4000 3 0 chaos 0 0"
    assert load.missing(only_ok=True) == [2, 3]
    step(load, client, ("1", 2))
    assert client.acked[-1]["topic"] == "%RETRY%mqchaos-pops_ChaosPops"
    load.drain()
    step(load, client, ("0", 3), ("0", 4))
    assert load.missing(only_ok=False) == []
    assert load.judge(only_ok=False) == []


def test_what_never_comes_and_what_comes_again_though_acknowledged(load: PopLoad) -> None:
    client = PoppingClient()
    step(load, client)
    step(load, client, ("0", 0))
    step(load, client, ("1", 0))
    assert load.judge(only_ok=True) == [
        "popped message 0 came again, and it was acknowledged",
        "popped message 1: it was not acknowledged and never came again",
        "popped message 2: it was not acknowledged and never came again",
    ]
    step(load, client, ("0", 77))
    assert load.violations[-1] == "popped: nobody sent b'77'"


def test_an_acknowledgement_that_is_refused_is_none(load: PopLoad) -> None:
    client = PoppingClient()
    client.ack_code = 1
    step(load, client)
    step(load, client, ("0", 0))
    assert load.missing(only_ok=True) == [0, 1]


def test_an_acknowledgement_without_an_answer_may_be_stored(load: PopLoad) -> None:
    client = PoppingClient()
    step(load, client)
    client.ack_code = -1
    with pytest.raises(ConnectionResetError):
        step(load, client, ("0", 0))
    assert load.missing(only_ok=True) == [1]
    client.ack_code = 0
    step(load, client, ("1", 0))
    assert load._messages[0].is_acked
    assert load._messages[0].is_in_doubt


def test_what_is_acknowledged_after_the_last_fault_does_not_come_again(load: PopLoad) -> None:
    """Before it, an acknowledgement may be lost with a master; the one after it counts. The queue's
    offset may fall back, and the check point from before give the message out besides."""
    client = PoppingClient()
    load._kept_since_s = math.inf
    step(load, client)
    step(load, client, ("0", 0))
    load.keep_acks()
    step(load, client, ("0", 0))
    step(load, client, ("1", 0))
    step(load, client, ("0", 1))
    load.drain()
    step(load, client, *[("0", number) for number in range(2, load._count)])
    assert load.judge(only_ok=True) == []
    assert load.quiet_s() < 60
    step(load, client, ("1", 0), ("1", 1))
    assert load.judge(only_ok=True) == [
        "popped message 0 came again, and it was acknowledged",
        "popped message 1 came again, and it was acknowledged",
    ]
    assert load.judge(only_ok=True, acks_kept=False) == [], "another master, and nobody's fault"

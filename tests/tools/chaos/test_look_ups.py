"""tools.chaos.look_ups: which messages are looked for, and what is not found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from remoting.request_code import RequestCode
from tools.chaos import look_ups
from tools.chaos.ack_log import Ack, make_body
from tools.chaos.look_ups import key_of, not_found, sample, unique_key_of


def test_the_first_and_the_last_are_looked_for() -> None:
    acks = [Ack(0, n, 0, n, 0, phy_offset=n * 100 if n % 2 else -1) for n in range(200)]
    chosen = sample(acks, 20, 7)
    assert len(chosen) == 20
    assert (chosen[0].sequence, chosen[-1].sequence) == (1, 199)
    assert all(ack.phy_offset > 0 for ack in chosen)
    assert chosen == sample(acks, 20, 7) != sample(acks, 20, 8)
    assert len(sample(acks[:10], 20, 7)) == 5


class Index:
    """A FrameClient whose broker finds what the test says."""

    def __init__(self, found: dict[str, bytes]) -> None:
        self._found = found

    def __call__(self, *_address: object) -> Index:
        return self

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, code: int, fields: dict[str, Any]) -> Any:
        if code == RequestCode.VIEW_MESSAGE_BY_ID:
            wanted = str(fields["offset"])
        else:
            assert ("_UNIQUE_KEY_QUERY" in fields) is not fields["key"].startswith("key-")
            wanted = fields["key"]
        body = self._found.get(wanted)
        return SimpleNamespace(code=22 if body is None else 0, body=body)


def test_each_way_that_does_not_lead_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(body: bytes) -> list[Any]:
        return [SimpleNamespace(body=body)]

    monkeypatch.setattr(look_ups, "decode_messages", decode)
    acks = [Ack(1, n, 0, n, 0, phy_offset=100 * n) for n in range(4)]
    right = {
        name: make_body(1, n, 50)
        for n in range(4)
        for name in (str(100 * n), key_of(1, n), unique_key_of(1, n))
    }
    monkeypatch.setattr(look_ups, "FrameClient", Index(right))
    assert not_found(("", 0), "T", acks) == []
    wrong = {**right, "100": make_body(1, 3, 50)}
    del wrong[key_of(1, 2)], wrong[unique_key_of(1, 3)]
    monkeypatch.setattr(look_ups, "FrameClient", Index(wrong))
    assert [text.partition(": ")[2] for text in not_found(("", 0), "T", acks)] == [
        "not found by its offset id (100)",
        "not found by its key key-1-2",
        f"not found by its unique key {unique_key_of(1, 3)}",
    ]

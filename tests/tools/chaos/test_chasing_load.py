"""Producers that follow the master: what the old one answers late counts, too; and consumers of any
member notice what one of them shows otherwise."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.deadline import wait_until
from tools.chaos import chasing_load
from tools.chaos.ack_log import make_body
from tools.chaos.chasing_load import LATE_S, ChasingProducers, MemberReaders
from tools.chaos.frame_client import Pulled
from tools.chaos.history import FIRST_READER, History

OLD, NEW = ("127.0.0.11", 1), ("127.0.0.12", 2)
WAIT_S = 20.0


class FakeClient:
    """A connection to one of two masters: the old one answers only when it is let."""

    old_answers = threading.Event()

    def __init__(self, peer: tuple[str, int], _timeout_s: float) -> None:
        self.peer = peer
        self.is_open = True

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False

    def post(self, *_requests: object) -> None:
        pass

    def take(self, opaque: int, timeout_s: float | None = None) -> Any:
        assert self.is_open
        if self.peer == OLD and not self.old_answers.wait(timeout_s):
            raise TimeoutError
        fields = {"queueId": "0", "queueOffset": str(opaque), "msgId": "0" * 32}
        return SimpleNamespace(code=0, ext_fields=fields)


@pytest.fixture(autouse=True)
def _faked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chasing_load, "FrameClient", FakeClient)
    FakeClient.old_answers = threading.Event()


def test_a_producer_goes_to_the_new_master_and_hears_the_old_one_out() -> None:
    history, master = History(), [OLD]
    producers = ChasingProducers(
        lambda age_s: OLD if age_s == LATE_S else master[0],
        history,
        "T",
        count=2,
        rate=5_000,
        size=60,
        on_stored=lambda _ack, _body: None,
    )

    def answered_by(peer: tuple[str, int]) -> set[int]:
        return {each.client for each in history.acknowledged() if each.peer == peer}

    producers.start()
    wait_until(lambda: len(history.appends) > 0, WAIT_S)
    master[0] = NEW
    wait_until(lambda: answered_by(NEW) == {0}, WAIT_S)
    assert answered_by(OLD) == set()
    FakeClient.old_answers.set()
    # What the first producer had left there, and the one that is late on purpose.
    wait_until(lambda: answered_by(OLD) == {0, 1}, WAIT_S)
    assert producers.stop()
    sequences = [(each.client, each.sequence) for each in history.appends]
    assert len(sequences) == len(set(sequences))
    assert 1 not in answered_by(NEW)


def pulled(at: int, *sequences: int) -> Pulled:
    messages: list[Any] = [
        SimpleNamespace(queue_offset=at + n, body=make_body(1, sequence, 60))
        for n, sequence in enumerate(sequences)
    ]
    return Pulled(0, at + len(messages), messages)


def test_two_members_that_show_different_records() -> None:
    history = History()
    readers = MemberReaders([lambda: OLD], history, "T", 1)

    def read(number: int, peer: tuple[str, int], at: int, found: Pulled) -> int:
        client: Any = SimpleNamespace(peer=peer, pull=lambda _topic, _queue, _at: found)
        return readers._read(client, number, 0, at)

    assert read(FIRST_READER, OLD, 5, pulled(5, 1, 2)) == 7
    assert read(FIRST_READER + 1, NEW, 6, pulled(6, 2, 3)) == 8
    assert readers.violations == []
    assert read(FIRST_READER + 1, NEW, 7, pulled(7, 4)) == 8
    (text,) = readers.violations
    assert text.startswith(f"{NEW} shows b'1:0000000004:")
    assert "at queue 0 offset 7, where b'1:0000000003:" in text
    assert read(FIRST_READER, NEW, 8, pulled(9, 5)) == 8
    assert readers.violations[1] == f"{NEW}: queue 0 at 8: offsets [9]"
    assert read(FIRST_READER, OLD, 8, Pulled(19, 8, [])) == 8
    assert sorted(readers.seen()) == [(0, 5), (0, 6), (0, 7)]
    assert [(each.queue_offset, len(each.bodies)) for each in history.reads] == [
        *((5, 2), (6, 2), (7, 1)),
    ]

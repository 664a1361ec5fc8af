"""Requests that wait: who wakes them, and what raises when one is run again.

That is answered, and ends nothing.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from broker.pop.ack_message_processor import AckMessageProcessor
from broker.pop.notification_processor import (
    NotificationHeader,
    NotificationProcessor,
    NotificationRequest,
)
from broker.pop.pop_header import PopHeader
from broker.pop.pop_long_polling_service import PollingLimits
from broker.pop.pop_message_processor import PopMessageProcessor
from broker.pop.pop_request import PopRequest
from remoting.connection import Connection
from remoting.remoting_command import RemotingCommand
from store.errors import MessageIllegalError
from store.message_store_config import MessageStoreConfig
from tests.broker.broker_fakes import CONFIG, FakeConnection
from tests.broker.hot_path_world import HotPathWorld, pull_request, send_request

pytestmark = pytest.mark.interpreted

REMARK = "MessageIllegalError: broken on purpose"


def broken(*_arguments: object, **_fields: object) -> NoReturn:
    raise MessageIllegalError("broken on purpose")


class Counts:
    def __init__(self) -> None:
        self.answers: list[tuple[int, int]] = []

    def add_answers(self, request_code: int, code: int, count: int = 1) -> None:
        assert count == 1
        self.answers.append((request_code, code))


def test_a_pop() -> None:
    stats = Counts()
    clock = SimpleNamespace(age_ms=lambda _sent_ms: 0)
    parts = SimpleNamespace(stats=stats, clock=clock, find_topic=broken)
    pops = PopMessageProcessor(CONFIG, MessageStoreConfig(), cast("Any", parts))
    peer = FakeConnection()
    header = PopHeader("G", "T", 0, 1, 1)
    pops.run_again(PopRequest(cast("Connection", peer), 7, header, (None, None), 0))
    [answer] = peer.sent
    assert (answer.code, answer.remark, answer.opaque) == (1, REMARK, 7)
    assert stats.answers == [(200050, 1)]


def test_a_notification() -> None:
    stats = Counts()
    check = SimpleNamespace(check=broken)
    clock = SimpleNamespace(monotonic_ms=lambda: 0)
    notifications = NotificationProcessor(
        cast("Any", check),
        cast("Any", None),
        stats,
        PollingLimits(1, 1, 1),
        cast("Any", clock),
        cast("Any", None),
        CONFIG,
    )
    peer = FakeConnection()
    request = RemotingCommand.request(200054, {})
    header = NotificationHeader("G", "T", 0, 1, False, None)
    asked = NotificationRequest(cast("Connection", peer), request, header, 0)
    notifications._run_again(asked)
    [answer] = peer.sent
    assert (answer.code, answer.remark, answer.opaque) == (1, REMARK, request.opaque)
    assert stats.answers == [(200054, 1)]


@pytest.mark.interpreted
def test_a_pull(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = HotPathWorld(tmp_path)
    client = world.client()
    assert client.call(send_request(b"1")).code == 0
    world.dispatch()
    pull = pull_request(queueOffset=1, sysFlag=2 | 4)
    client.send(pull)
    world.turn()
    assert client.answers() == []
    monkeypatch.setattr(world.pull_processor, "_read", broken)
    assert client.call(send_request(b"2")).code == 0
    world.dispatch()
    world.turn()
    [answer] = client.answers()
    assert (answer.code, answer.remark, answer.opaque) == (1, REMARK, pull.opaque)
    assert client.call(send_request(b"3")).code == 0


def test_the_last_ack_of_an_ordered_queue_wakes_who_waits_for_any_queue() -> None:
    """At once; the queue's own time (ConsumerOrderInfoManager) comes up to 100 ms later."""
    woken: list[tuple[str, str, int]] = []
    left = [2, 1]
    order = SimpleNamespace(
        commit_and_next=lambda *_place: left.pop() + 4, check_block=lambda *_queue: bool(left)
    )
    offsets = SimpleNamespace(
        query_offset=lambda *_place: 5,
        has_offset_reset=lambda *_place: False,
        commit_offset=lambda *_place: None,
    )
    queues = SimpleNamespace(check_ack=lambda *_place: None, check_handle=lambda *_handle: None)
    waiters = SimpleNamespace(queue_is_free=lambda *key: woken.append(key))
    parts = [SimpleNamespace(), queues, offsets, order, waiters, Counts()]
    acks = AckMessageProcessor(*cast("list[Any]", parts))
    for offset, expected in ((5, []), (6, [("T", "G", 3)])):
        fields = {
            "consumerGroup": "G", "topic": "T", "queueId": "3", "offset": str(offset),
            "extraInfo": f"5 1 2 999 0 b 3 {offset}",
        }  # fmt: skip
        answer = acks.process_request(FakeConnection(), RemotingCommand.request(200051, fields))
        assert answer is not None
        assert (answer.code, woken) == (0, expected)

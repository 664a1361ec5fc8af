"""Messages in flight against what clients count: of a group that pops, and of one that pulls, also
after remoting was killed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

import pytest

from remoting.request_code import RequestCode
from tests.broker.metrics_world import samples_of
from tests.faults.test_metrics_kills import base_of, scrape
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker
from tests.support.pop_client import PopClient

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

_TOPIC, _POPPERS, _PULLERS = "InFlight", "poppers", "pullers"
_COUNT: Final = 10
_NAMES: Final = ("lag", "inflight", "ready")


def _shown(broker: OurBroker, group: str) -> tuple[float | None, ...]:
    """(lag, in flight, ready) of the group."""
    found = samples_of(scrape(broker), base=base_of(broker))
    return tuple(
        next(
            (
                value
                for labels, value in found.get(f"rocketmq_consumer_{name}_messages", {}).items()
                if group in labels and "true" not in labels
            ),
            None,
        )
        for name in _NAMES
    )


def _wait(broker: OurBroker, group: str, expected: tuple[float | None, ...]) -> None:
    """Sampled every five seconds."""
    for _ in range(150):
        if _shown(broker, group) == expected:
            return
        time.sleep(0.3)
    assert _shown(broker, group) == expected, group


def _heartbeat(frames: FrameClient, group: str) -> None:
    """As Java's push consumers write it, those that pop, too."""
    subscription = {"topic": _TOPIC, "subString": "*", "subVersion": 1}
    data = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    body = json.dumps({"clientID": f"127.0.0.1@{group}", "consumerDataSet": [data]}).encode()
    assert frames.call(RequestCode.HEART_BEAT, {}, body).code == 0


def _pull(frames: FrameClient, offset: int, count: int, committed: int) -> int:
    """Pull, committing what is consumed; the next offset."""
    fields = {
        "consumerGroup": _PULLERS,
        "topic": _TOPIC,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": count,
        "sysFlag": 0b1,
        "commitOffset": committed,
        "suspendTimeoutMillis": 0,
        "subVersion": 1,
    }
    answer = frames.call(RequestCode.PULL_MESSAGE, fields)
    assert answer.code == 0
    return int(answer.ext_fields["nextBeginOffset"])


def test_in_flight_is_what_the_clients_hold(tmp_path: Path) -> None:
    with OurBroker(tmp_path, brokerName="a").start() as broker:
        with broker.client() as frames:
            for number in range(_COUNT):
                frames.send(_TOPIC, 0, b"%d" % number)
            wait_until(lambda: frames.offset(RequestCode.GET_MAX_OFFSET, _TOPIC, 0) == _COUNT, 30)
            _heartbeat(frames, _PULLERS)
            assert _pull(frames, 0, 4, 0) == 4
            assert _pull(frames, 4, 3, 2) == 7
            popper = PopClient(frames, _POPPERS, "a")
            popped = popper.pop(_TOPIC, queueId=0, maxMsgNums=5).messages
            for message in popped[:2]:
                assert popper.ack(message).code == 0
            held = len(popped) - 2
            _heartbeat(frames, _POPPERS)
            _wait(broker, _POPPERS, (_COUNT - 2, held, _COUNT - len(popped)))
            _wait(broker, _PULLERS, (_COUNT - 2, 7 - 2, _COUNT - 7))
        table = broker.store_dir / "config" / "consumerOffset.json"
        wait_until(lambda: table.exists() and f"{_TOPIC}@{_PULLERS}" in table.read_text(), 30)
        broker.restart_by_kill("remoting")
        with broker.client() as frames:
            _heartbeat(frames, _PULLERS)
            assert _pull(frames, 7, 1, 7) == 8
            _wait(broker, _PULLERS, (_COUNT - 7, 1, _COUNT - 8))

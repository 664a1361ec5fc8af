"""A 5.3.3 producer names the time of delivery, and recalls; whatever client consumes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.clients import AnotherBroker, Client
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until
from tests.support.our_broker import drain

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def test_every_delay_comes_in_time_and_a_recalled_message_never(
    clients: Callable[[str], Client], another_broker: AnotherBroker
) -> None:
    client = clients(CLIENT_5)
    if client.cluster.broker.kind != "ours":
        pytest.skip("about our broker")
    broker = another_broker("timers", {"recallMessageEnable": "true"})
    topic = client.topic(broker=broker)
    producer = client.producer()
    start_ms = time.time_ns() // 1_000_000

    def send(body: str, **delay: int) -> dict[str, Any]:
        sent: dict[str, Any] = client.driver.call(
            "send.one",
            producer=producer.name,
            topic=topic,
            body=body,
            recallable=True,
            queue=0,
            **delay,
        )
        assert sent["status"] == "SEND_OK"
        return sent

    due_ms = {b"ms": 1_500, b"sec": 2_000, b"at": 3_210}
    send("ms", delay_ms=1_500)
    send("sec", delay_sec=2)
    send("at", deliver_ms=start_ms + 3_210)
    gone = send("gone", delay_ms=4_000)
    told = client.driver.call(
        "recall", producer=producer.name, topic=topic, handle=gone["recall_handle"]
    )
    assert told == gone["msg_id"]
    with broker.client() as frames:
        wait_until(lambda: len(drain(frames, topic, 0)) >= 3, "three deliveries")
        wait_until(lambda: time.time_ns() // 1_000_000 > start_ms + 7_000, "the recalled one")
        found = drain(frames, topic, 0)
    assert sorted(message.body for message in found) == sorted(due_ms)
    for message in found:
        assert message.store_timestamp >= start_ms + due_ms[message.body]

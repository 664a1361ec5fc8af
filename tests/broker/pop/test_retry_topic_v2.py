"""enableRetryTopicV2 on a new broker of ours: what is not acknowledged comes back (one broker)."""

from __future__ import annotations

from pathlib import Path

from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tests.support.pop_client import PopClient, PoppedMessage


def test_it_makes_the_retry_topic(tmp_path: Path) -> None:
    settings = {"popCkStayBufferTime": 100, "enableRetryTopicV2": "true"}
    with OurBroker(tmp_path, brokerName="b", **settings) as broker:
        broker.start()
        with broker.client(timeout_s=20) as frames:
            client = PopClient(frames, "G", "b")
            assert frames.send("T", 0, b"x").code == 0
            wait_until(lambda: frames.offset(30, "T", 0) == 1)
            assert len(client.pop("T", invisibleTime=1_000).messages) == 1
            wait_until(lambda: frames.offset(30, "%RETRY%G+T", 0) == 1)
            again: list[PoppedMessage] = []

            def popped() -> bool:
                """V1 and V2 are looked at in turn."""
                again.extend(client.pop("T").messages)
                return bool(again)

            wait_until(popped)
            [one] = again
            assert one.topic == "%RETRY%G+T"
            assert client.ack(one).code == 0
        assert "ERROR" not in broker.log("remoting")

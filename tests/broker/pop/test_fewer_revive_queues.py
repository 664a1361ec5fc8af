"""reviveQueueNum is lowered while pops are open: a live broker, an orderly stop and a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tests.support.pop_client import PopClient

NAME, TOPIC, GROUP = "broker-a", "TFewer", "GFewer"


@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_their_messages_come_again_and_their_acks_count(tmp_path: Path, is_killed: bool) -> None:
    with OurBroker(tmp_path, brokerName=NAME, popCkStayBufferTime=100, reviveQueueNum=4) as broker:
        broker.start()
        with broker.client(timeout_s=10) as frames:
            client = PopClient(frames, GROUP, NAME)
            for number in range(4):
                assert frames.send(TOPIC, 0, b"%d" % number).code == 0
            wait_until(lambda: frames.offset(30, TOPIC, 0) == 4)
            pops = [client.pop(TOPIC, maxMsgNums=1, invisibleTime=5_000) for _ in range(4)]
        popped = [one for answer in pops for one in answer.messages]
        assert sorted(one.handle.split(" ")[3] for one in popped) == ["0", "1", "2", "3"]
        if is_killed:
            broker.crash()
        else:
            broker.terminate()
        broker.settings["reviveQueueNum"] = 1
        broker.start()
        with broker.client(timeout_s=10) as frames:
            client = PopClient(frames, GROUP, NAME)
            assert client.ack(popped[3]).code == 0
            seen: list[bytes] = []
            wait_until(
                lambda: (
                    seen.extend(one.message.body for one in client.pop(TOPIC).messages)
                    or len(seen) >= 3
                ),
                20,
            )
            assert sorted(seen) == sorted(one.message.body for one in popped[:3])
            assert client.pop(TOPIC, pollTime=1_500).code == 210

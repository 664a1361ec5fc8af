"""A broker of ours that slows groups that read cold data, as clients see it, and 2001 to 2004."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker, pull_fields

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TOPIC = "T"
BODY = b"x" * 1_000
MESSAGES = 40
REFUSAL = "This consumer group is reading cold data. It has been flow control"
LIMIT = 3_000
"""A pull of three messages of BODY passes it."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    """Of its log all is cold."""
    broker = OurBroker(
        tmp_path_factory.mktemp("cold"),
        coldDataFlowControlEnable="true",
        accessMessageInMemoryHotRatio=0,
        cgColdReadThreshold=LIMIT,
    )
    with broker.start():
        with broker.client() as client:
            for _ in range(MESSAGES):
                client.send(TOPIC, 0, BODY)
            wait_until(lambda: client.offset(30, TOPIC, 0) == MESSAGES)
        yield broker
        assert broker.terminate() == 0


@pytest.fixture
def client(broker: OurBroker) -> Iterator[FrameClient]:
    with broker.client() as client:
        yield client


def join(client: FrameClient, group: str, kind: str) -> None:
    subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    consumer = {
        "groupName": group,
        "consumeType": kind,
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    body = {"clientID": group, "producerDataSet": [], "consumerDataSet": [consumer]}
    assert client.call(34, {}, json.dumps(body).encode()).code == 0


def fields(group: str, offset: int, count: int) -> dict[str, str]:
    return {**pull_fields(TOPIC, 0, offset, count=count), "consumerGroup": group}


def info(client: FrameClient) -> dict[str, Any]:
    answer = client.call(2003, {})
    assert answer.code == 0
    found: dict[str, Any] = json.loads(answer.body)
    return found


def test_a_push_group_is_told_to_come_again(client: FrameClient) -> None:
    join(client, "push", "CONSUME_PASSIVELY")
    first = client.call(11, fields("push", 0, 3))
    assert first.code == 0
    assert len(first.body) > LIMIT
    assert info(client)["runtimeTable"]["push"]["coldAcc"] in (len(first.body), 0)

    def is_refused() -> bool:
        """Unless the round has ended: then it reads again and has read too much again."""
        answer = client.call(11, fields("push", 3, 3))
        return (answer.code, answer.remark) == (2, REFUSAL)

    assert is_refused() or is_refused()
    # The end of the queue is not cold: long polls go on.
    assert client.call(11, fields("push", MESSAGES, 3)).code == 19
    wait_until(lambda: client.call(11, fields("push", 3, 3)).code == 0, 30)


def test_a_pull_group_waits_and_gets_one_message(client: FrameClient) -> None:
    join(client, "pull", "CONSUME_ACTIVELY")

    def waited() -> bool:
        """Until a pull was held: it takes three seconds, and the group has still its limit."""
        assert client.call(11, fields("pull", 0, 3)).code == 0
        began_s = time.monotonic()
        answer = client.call(11, fields("pull", 3, 3))
        assert answer.code == 0
        return time.monotonic() - began_s >= 3.0

    assert waited() or waited()


def test_an_operators_limits(client: FrameClient) -> None:
    assert client.call(2001, {}, b"push=1\nroomy = 1000000\n").code == 0
    shown = info(client)
    assert shown["configTable"] == {"push": 1, "roomy": 1_000_000}
    assert shown["cgColdReadThreshold"] == LIMIT
    join(client, "roomy", "CONSUME_PASSIVELY")
    for offset in range(0, MESSAGES - 3, 3):
        assert client.call(11, fields("roomy", offset, 3)).code == 0
    for group in (b"push", b"roomy", b"nobody"):
        assert client.call(2002, {}, group).code == 0
    assert info(client)["configTable"] == {}


@pytest.mark.parametrize(
    ("code", "body", "remark"),
    [
        (2001, b"g=many\n", "group 'g': its threshold 'many' is not a number of bytes"),
        (2001, b"g=99999999999999999999\n", "is not a number of bytes"),
        (2001, b"", "the body names no group"),
        (2001, b"\xff", "UnsupportedEncodingException"),
        (2002, b"", "the body names no group"),
    ],
)
def test_limits_that_are_none(client: FrameClient, code: int, body: bytes, remark: str) -> None:
    answer = client.call(code, {}, body)
    assert answer.code in (1, 29)
    assert remark in (answer.remark or "")
    assert info(client)["configTable"] == {}


def test_read_ahead(broker: OurBroker, client: FrameClient) -> None:
    for mode, setting in ((1, "false"), (0, "true")):
        answer = client.call(2004, {"READ_AHEAD_MODE": mode})
        assert answer.remark == f"set commitlog readahead mode success, mode: {mode}"
        assert answer.code == 0
        assert f"dataReadAheadEnable={setting}\n".encode() in client.call(26, {}).body
        advised = "rr" in _flags_of_the_log(broker)
        assert advised == (mode == 1)
        assert client.call(11, fields("faults", 0, 3)).code == 0
    for wrong, code in ({"READ_AHEAD_MODE": "2"}, 29), ({"READ_AHEAD_MODE": "x"}, 1), ({}, 1):
        assert client.call(2004, wrong).code == code


def _flags_of_the_log(broker: OurBroker) -> list[str]:
    """VmFlags of the maps of the first log file in process `remoting`; rr: random reads."""
    flags: list[str] = []
    inside = False
    smaps = Path(f"/proc/{broker.child('remoting')}/smaps").read_text()
    for line in smaps.splitlines():
        if "-" in line.partition(" ")[0]:
            inside = line.endswith(f"commitlog/{0:020d}")
        elif inside and line.startswith("VmFlags:"):
            flags += line.split()[1:]
    return flags


def test_it_is_turned_off_while_the_broker_runs(client: FrameClient) -> None:
    join(client, "push", "CONSUME_PASSIVELY")
    assert client.call(25, {}, b"coldDataFlowControlEnable=false\n").code == 0
    for offset in range(0, MESSAGES - 3, 3):
        assert client.call(11, fields("push", offset, 3)).code == 0

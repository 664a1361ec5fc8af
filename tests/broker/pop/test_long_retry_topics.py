"""Pops of groups and topics with long names: the retry topic has V2 records (one broker).

The truth: what the client was given and did not acknowledge; the bytes of the log as Java's
layout says (docs of MessageExtEncoder: the version-2 magic, and a topic size of two bytes).
"""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from tests.support.broker_group import ASYNC_MASTER, SLAVE, Group, log_of
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker
from tests.support.pop_client import PopClient, PoppedMessage

TOPIC, GROUP = "T".ljust(78, "t"), "G".ljust(78, "g")
RETRY = f"%RETRY%{GROUP}_{TOPIC}"
RETRY_V2 = f"%RETRY%{GROUP}+{TOPIC}"
V2_MAGIC = bytes.fromhex("daa320ab")


def pop_all(client: PopClient, count: int) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []

    def all_there() -> bool:
        found.extend(client.pop(TOPIC, invisibleTime=1_000).messages)
        return len(found) >= count

    wait_until(all_there)
    return found


def send(frames: FrameClient, count: int) -> None:
    for number in range(count):
        assert frames.send(TOPIC, 0, b"body %d" % number).code == 0
    wait_until(lambda: frames.offset(30, TOPIC, 0) == count)


@pytest.mark.parametrize(("v2", "retry"), [("false", RETRY), ("true", RETRY_V2)])
def test_what_is_not_acknowledged_comes_back_twice_and_after_a_kill(
    tmp_path: Path, v2: str, retry: str
) -> None:
    settings = {"popCkStayBufferTime": 100, "enableRetryTopicV2": v2}
    assert len(retry) == 164
    with OurBroker(tmp_path, brokerName="b", **settings) as broker:
        broker.start()
        with broker.client(timeout_s=20) as frames:
            client = PopClient(frames, GROUP, "b")
            send(frames, 3)
            first = pop_all(client, 3)
            assert [one.message.reconsume_times for one in first] == [0, 0, 0]
            again = pop_all(client, 3)
            assert {one.topic for one in again} == {retry}
            assert {one.message.topic for one in again} == {TOPIC}
            assert {one.message.body for one in again} == {b"body 0", b"body 1", b"body 2"}
            assert [one.message.reconsume_times for one in again] == [1, 1, 1]
            wait_until(lambda: frames.offset(30, retry, 0) == 6)
            # A producer may not send there, as in RocketMQ.
            refused = frames.send(retry, 0, b"forged")
            assert refused.code != 0
            assert frames.offset(30, retry, 0) == 6
        assert "ERROR" not in broker.log("remoting")
        broker.crash()
        broker.start()
        with broker.client(timeout_s=20) as frames:
            assert frames.offset(30, retry, 0) == 6
            client = PopClient(frames, GROUP, "b")
            last = pop_all(client, 3)
            assert [one.message.reconsume_times for one in last] == [2, 2, 2]
            for one in last:
                assert client.ack(one).code == 0
            time.sleep(2.5)
            assert client.pop(TOPIC).messages == []
            assert frames.offset(30, retry, 0) == 6
        broker.terminate()
        report = broker.check()
        assert report.is_clean, report.lines()
    stored = b"".join(
        path.read_bytes()[: 1 << 20] for path in sorted(tmp_path.rglob("commitlog/0*"))
    )
    name = struct.pack(">h", 164) + retry.encode()
    assert stored.count(name) == stored.count(V2_MAGIC) == 6
    for part in stored.split(V2_MAGIC)[1:]:
        # Behind the magic 80 bytes to the body's size: IPv4 hosts.
        (size,) = struct.unpack_from(">i", part, 76)
        assert part[80 + size :].startswith(name)


def test_with_the_setting_off_such_a_pop_is_refused(tmp_path: Path) -> None:
    with OurBroker(tmp_path, brokerName="b", autoMessageVersionOnTopicLen="false") as broker:
        broker.start()
        with broker.client(timeout_s=20) as frames:
            send(frames, 1)
            answer = PopClient(frames, GROUP, "b").pop(TOPIC)
            assert (answer.code, answer.messages) == (29, [])
            assert "could not come back" in answer.remark
            assert "at most 127" in answer.remark


@pytest.mark.parametrize("way", ["orderly", "crash"])
def test_with_the_setting_turned_off_the_broker_starts_again(tmp_path: Path, way: str) -> None:
    """It ended six times, and for good: what is stored is of a name that is not storable now."""
    other = {"popCkStayBufferTime": 100, "brokerName": "b"}
    with OurBroker(tmp_path, **other) as broker:
        broker.start()
        with broker.client(timeout_s=20) as frames:
            client = PopClient(frames, GROUP, "b")
            send(frames, 3)
            pop_all(client, 3)
            again = pop_all(client, 3)
            assert {one.topic for one in again} == {RETRY}
            wait_until(lambda: frames.offset(30, RETRY, 0) == 6)
        broker.terminate() if way == "orderly" else broker.crash()
    with OurBroker(tmp_path, **other, autoMessageVersionOnTopicLen="false") as broker:
        broker.start()
        with broker.client(timeout_s=20) as frames:
            assert PopClient(frames, GROUP, "b").pop(TOPIC).code == 29
            assert len(frames.pull(RETRY, 0, 0).messages) == 6
            assert frames.send("other", 0, b"x").code == 0
        broker.terminate()
    with OurBroker(tmp_path, **other) as broker:
        broker.start()
        with broker.client(timeout_s=20) as frames:
            assert frames.offset(30, RETRY, 0) == 6
            client = PopClient(frames, GROUP, "b")
            assert len(pop_all(client, 3)) == 3
            wait_until(lambda: frames.offset(30, RETRY, 0) == 9)
        broker.terminate()
        report = broker.check()
        assert report.is_clean, report.lines()


def test_a_slave_takes_them_and_hands_them_out_as_master(tmp_path: Path) -> None:
    """With V2 names, too, a slave that judges each record doubts none."""
    group = Group(tmp_path)
    pop_settings = {"popCkStayBufferTime": 100, "enableRetryTopicV2": "true"}
    with group.running():
        group.start(group.first, ASYNC_MASTER, **pop_settings)
        group.start(group.second, SLAVE, **pop_settings)
        with group.first.client(timeout_s=20) as frames:
            client = PopClient(frames, GROUP, "broker-a")
            send(frames, 3)
            pop_all(client, 3)
            wait_until(lambda: frames.offset(30, RETRY_V2, 0) == 3)
        with group.second.client(timeout_s=20) as frames:
            wait_until(lambda: frames.offset(30, RETRY_V2, 0) == 3)
        wait_until(lambda: log_of(group.first) == log_of(group.second))
        assert "not a topic name" not in group.second.log("ha")
        assert "refused" not in group.second.log("ha")
        topics = group.second.store_dir / "config" / "topics.json"
        wait_until(lambda: topics.exists() and RETRY_V2 in topics.read_text())
        group.first.crash()
        group.second.crash()
        group.start(group.first, ASYNC_MASTER)
        group.start(group.second, ASYNC_MASTER, **pop_settings)
        with group.second.client(timeout_s=20) as frames:
            again = pop_all(PopClient(frames, GROUP, "broker-a"), 3)
            assert {one.topic for one in again} <= {RETRY_V2, TOPIC}
            assert {one.message.body for one in again} == {b"body 0", b"body 1", b"body 2"}

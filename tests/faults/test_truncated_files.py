"""Somebody truncates a file of the log that is mapped: who touches what is gone gets SIGBUS.

What lies in other files stays, and the broker comes back by itself; the truncated file is filled
up with zeros, and what it lacks is fenced (docs/operations.md, "Damage in the commit log").
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from remoting.response_code import ResponseCode
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker

pytestmark = [pytest.mark.slow]

TOPIC = "Truncated"
FILE_SIZE = 1 << 20
MESSAGES = 60
SIZE = 50_000


def body_of(number: int) -> bytes:
    return b"%03d" % number * (SIZE // 3)


def bodies_by_offset(client: FrameClient, end: int) -> dict[int, bytes]:
    """All that a consumer gets that goes where it is told to."""
    found: dict[int, bytes] = {}
    at = 0
    while at < end:
        pulled = client.pull(TOPIC, 0, at)
        found |= {message.queue_offset: message.body for message in pulled.messages}
        assert pulled.next_offset > at
        at = pulled.next_offset
    return found


@pytest.mark.fault(31)
@pytest.mark.parametrize(
    ("which", "left"),
    [
        ("first", 300_001),
        ("newest", 0),
        pytest.param("first", 0, marks=pytest.mark.long),
        pytest.param("newest", 300_001, marks=pytest.mark.long),
    ],
)
def test_a_truncated_file_costs_what_it_held(tmp_path: Path, which: str, left: int) -> None:
    with OurBroker(tmp_path).start() as broker:
        with broker.client() as client:
            sent = [client.send(TOPIC, 0, body_of(number)) for number in range(MESSAGES)]
            assert {answer.code for answer in sent} == {ResponseCode.SUCCESS}
            wait_until(lambda: client.offset(30, TOPIC, 0) == MESSAGES)
        hit = 0 if which == "first" else sent[-1].phy_offset // FILE_SIZE * FILE_SIZE
        path = broker.store_dir / "commitlog" / f"{hit:020d}"
        with path.open("r+b") as file:
            file.truncate(left)
        expected = {
            answer.queue_offset: body_of(number)
            for number, answer in enumerate(sent)
            if not hit + left - SIZE - 500 < answer.phy_offset < hit + FILE_SIZE
        }
        # Whoever touches the mapping dies of it, whoever maps it then is told; clients try again.
        wait_until(lambda: _is_served(broker, len(sent)), 60)
        told = (broker.output(), broker.log("remoting"), broker.log("store"))
        assert any("SIGBUS" in text or "length" in text for text in told)
        with broker.client() as client:
            end = client.offset(30, TOPIC, 0)
            found = bodies_by_offset(client, end)
            for offset, body in expected.items():
                assert found.get(offset) == body, offset
            after = client.send(TOPIC, 0, b"after")
            assert after.code == ResponseCode.SUCCESS
            assert after.queue_offset >= MESSAGES
        assert f"{path}: truncated to {left} bytes" in broker.log("store")
        for end_it in (broker.terminate, broker.crash):
            end_it()
            broker.start()
            with broker.client() as client:
                found = bodies_by_offset(client, client.offset(30, TOPIC, 0))
            assert expected.items() <= found.items()
            assert found[after.queue_offset] == b"after"


@pytest.mark.fault(31)
def test_a_file_that_was_truncated_while_the_broker_was_down(tmp_path: Path) -> None:
    with OurBroker(tmp_path).start() as broker:
        with broker.client() as client:
            sent = [client.send(TOPIC, 0, body_of(number)) for number in range(MESSAGES)]
        assert broker.terminate() == 0
        path = broker.store_dir / "commitlog" / f"{FILE_SIZE:020d}"
        with path.open("r+b") as file:
            file.truncate(0)
        broker.start()
        assert f"{path}: truncated to 0 bytes" in broker.log("store")
        with broker.client() as client:
            found = bodies_by_offset(client, client.offset(30, TOPIC, 0))
        for number, answer in enumerate(sent):
            if not FILE_SIZE - SIZE - 500 < answer.phy_offset < 2 * FILE_SIZE:
                assert found[answer.queue_offset] == body_of(number)
        assert broker.terminate() == 0


@pytest.mark.fault(31)
@pytest.mark.parametrize("left", [pytest.param(n, marks=pytest.mark.long) for n in (0, 4096, 9000)])
def test_the_current_file_is_truncated_while_messages_come(tmp_path: Path, left: int) -> None:
    """Whichever process notices it first: the broker comes back by itself, and no queue offset is
    answered twice."""
    with OurBroker(tmp_path).start() as broker:
        stop, answered = threading.Event(), [list[int]() for _ in range(4)]
        threads = [
            threading.Thread(target=_send_until, args=(stop, broker, queue_id, offsets))
            for queue_id, offsets in enumerate(answered)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: min(map(len, answered)) > 500, 60)
        files = sorted((broker.store_dir / "commitlog").glob("0*"))
        current = [path for path in files if any(path.read_bytes()[:8])][-1]
        with current.open("r+b") as file:
            file.truncate(left)
        counts = [len(offsets) for offsets in answered]
        wait_until(lambda: all(len(a) > n + 50 for a, n in zip(answered, counts, strict=True)), 60)
        stop.set()
        for thread in threads:
            thread.join()
        for offsets in answered:
            assert len(set(offsets)) == len(offsets)
        assert broker.terminate() == 0


def _send_until(
    stop: threading.Event, broker: OurBroker, queue_id: int, offsets: list[int]
) -> None:
    """Note each queue offset that was answered."""
    while not stop.is_set():
        try:
            with broker.client(timeout_s=5) as client:
                while not stop.is_set():
                    sent = client.send("Load", queue_id, bytes(3_000))
                    if sent.code == ResponseCode.SUCCESS:
                        offsets.append(sent.queue_offset)
        except OSError:
            stop.wait(0.05)


def _is_served(broker: OurBroker, end: int) -> bool:
    """A send, and a pull of everything, one after the other."""
    try:
        with broker.client(timeout_s=10) as client:
            if client.send("Other", 0, b"x").code != ResponseCode.SUCCESS:
                return False
            return bool(bodies_by_offset(client, end))
    except (OSError, AssertionError):
        return False

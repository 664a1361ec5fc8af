"""Damaged consume queues of a real broker, counted by a client: nothing is lost, no offset is used
twice, no answer is shorter than it says.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker

pytestmark = [pytest.mark.slow]

TOPIC = "TopicTest"
COUNT = 300
UNIT = 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OurBroker]:
    broker = OurBroker(tmp_path)
    with broker:
        yield broker


def directory(broker: OurBroker) -> Path:
    return broker.store_dir / "consumequeue" / TOPIC / "0"


def deleted(broker: OurBroker) -> None:
    (directory(broker) / f"{0:020d}").unlink()


def all_deleted(broker: OurBroker) -> None:
    shutil.rmtree(directory(broker).parent)


def zeroed(broker: OurBroker) -> None:
    (directory(broker) / f"{0:020d}").write_bytes(bytes(20_000))


def cut(broker: OurBroker) -> None:
    with (directory(broker) / f"{0:020d}").open("r+b") as file:
        file.truncate(100 * UNIT + 7)


def flipped(broker: OurBroker) -> None:
    for unit, at in ((40, 6), (200, 10), (COUNT - 1, 11)):
        with (directory(broker) / f"{0:020d}").open("r+b") as file:
            file.seek(unit * UNIT + at)
            byte = file.read(1)[0]
            file.seek(unit * UNIT + at)
            file.write(bytes((byte ^ 0x10,)))


DAMAGES = (deleted, all_deleted, zeroed, cut, flipped)
WAYS = ("clean stop", "kill", "running")


def body(number: int) -> bytes:
    return b"%06d" % number + b"x" * (number % 200)


def send(client: FrameClient, numbers: range) -> list[int]:
    """The queue offsets that were given."""
    found = []
    for number in numbers:
        sent = client.send(TOPIC, 0, body(number), key=f"k{number}")
        assert sent.code == 0
        found.append(sent.queue_offset)
    return found


def received(client: FrameClient, until: int) -> list[bytes]:
    """Bodies from offset 0 on as a consumer gets them: it follows nextBeginOffset."""
    bodies: list[bytes] = []
    offset = 0

    def is_done() -> bool:
        nonlocal offset
        pulled = client.pull(TOPIC, 0, offset)
        bodies.extend(message.body for message in pulled.messages)
        assert [m.queue_offset for m in pulled.messages] == list(
            range(offset, offset + len(pulled.messages))
        )
        offset = pulled.next_offset
        return offset >= until

    wait_until(is_done, 20)
    return bodies


CASES = [(damage, way) for way in WAYS for damage in DAMAGES]
SHORT = [(deleted, "clean stop"), (zeroed, "clean stop"), (cut, "kill"), (flipped, "running")]


@pytest.mark.fault(26)
@pytest.mark.parametrize(
    ("damage", "way"),
    [pytest.param(*case, marks=() if case in SHORT else pytest.mark.long) for case in CASES],
)
def test_nothing_is_lost_and_no_offset_is_used_twice(
    broker: OurBroker, damage: Callable[[OurBroker], None], way: str
) -> None:
    broker.start()
    with broker.client() as client:
        assert send(client, range(COUNT)) == list(range(COUNT))
        # The newest record is another queue's: it says nothing of this one's end.
        for number in range(20):
            assert client.send(TOPIC, 1, body(number), key="other").code == 0
        wait_until(lambda: client.offset(30, TOPIC, 0) == COUNT)
        wait_until(lambda: client.offset(30, TOPIC, 1) == 20)
    if way == "clean stop":
        broker.terminate()
    elif way == "kill":
        broker.crash()
    damage(broker)
    if way != "running":
        broker.start()
    with broker.client() as client:
        assert send(client, range(COUNT, COUNT + 10)) == list(range(COUNT, COUNT + 10))
        found = received(client, COUNT + 10)
    assert found == [body(number) for number in range(COUNT + 10)]
    broker.terminate()
    report = broker.check()
    assert report.is_clean, report.lines()

"""A store changes hands between our broker and a Java 5.3.3 broker while pops are open.

What a group was given and what it did with it only this client knows: acknowledged, given
another invisible time, both, or nothing. The next broker hands out what is left when its time has
come, not before, with one attempt more, and nothing of what was acknowledged. The retry topics are
those of V1 or V2 as each broker is set.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from store.message import Message
from store.message_codec import decode_record, encode_record, is_blank_at
from tests.interop import harness
from tests.interop.processes import wait_until
from tests.support.pop_client import PopAnswer, PopClient, PoppedMessage
from tools.chaos.free_ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

NAME, TOPIC, GROUP, QUEUES = "broker-pops", "PopExchange", "GPopExchange", 4
LONG_TOPIC, LONG_GROUP = "PopExchange".ljust(100, "x"), "GPopExchange".ljust(100, "y")
"""Their retry topic has 208 characters: its records are V2."""
INVISIBLE_MS = 6_000
CHANGED_MS = 7_000
CONF = {
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": str(300 * 20),
    "mappedFileSizeTimerLog": "65536",
    "timerWheelEnable": "true",
}


@dataclass
class Ledger:
    """What the client knows, by body."""

    topic: str = TOPIC
    handed_out: dict[bytes, int] = field(default_factory=dict)
    """How often."""
    visible_ms: dict[bytes, int] = field(default_factory=dict)
    """When those come again that are not acknowledged, by the broker's answers."""
    acked: set[bytes] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    """Where handed out messages were."""

    def note(self, answer: PopAnswer) -> list[PoppedMessage]:
        """Judge an answer to a pop."""
        now_ms = int(time.time() * 1000)
        for one in answer.messages:
            body = one.message.body
            assert body not in self.acked, f"{body!r} was acknowledged"
            assert self.visible_ms.get(body, 0) <= now_ms, f"{body!r} comes too early"
            assert one.message.reconsume_times == self.handed_out.get(body, 0), body
            self.handed_out[body] = self.handed_out.get(body, 0) + 1
            self.visible_ms[body] = visible_ms(one)
            self.topics.add(one.topic)
        return answer.messages


def visible_ms(popped: PoppedMessage) -> int:
    _start, pop_time, invisible, *_ = popped.handle.split(" ")
    return int(pop_time) + int(invisible)


@contextmanager
def served(
    kind: str, tmp_path: Path, port: int, *, v2: bool, is_last: bool = False, group: str = GROUP
) -> Iterator[PopClient]:
    """A broker of `kind` on the store; stopped in order, but for the last one."""
    home = tmp_path / f"{kind}-{time.monotonic_ns()}"
    conf = {**CONF, "enableRetryTopicV2": str(v2).lower()}
    broker = harness.broker(
        kind, home, None, name=NAME, port=port, store_dir=tmp_path / "s", conf=conf
    ).start()
    try:
        with broker.client() as frames:
            yield PopClient(frames, group, NAME)
        if not is_last:
            # Java takes half a minute when the machine is busy.
            broker.process.stop(timeout_s=120)
    finally:
        broker.kill()


def send(client: PopClient, ledger: Ledger, first: int, count: int) -> None:
    for number in range(first, first + count):
        wait_until(
            lambda n=number: client.frames.send(ledger.topic, n % QUEUES, b"%d" % n).code == 0,
            "a send",
        )
    wait_until(
        lambda: (
            sum(client.frames.offset(30, ledger.topic, queue) for queue in range(QUEUES))
            >= first + count
        ),
        "all of them in the queues",
    )


def pop(client: PopClient, ledger: Ledger, count: int) -> list[PoppedMessage]:
    return ledger.note(client.pop(ledger.topic, maxMsgNums=count, invisibleTime=INVISIBLE_MS))


def ack(client: PopClient, ledger: Ledger, popped: PoppedMessage) -> None:
    assert client.ack(popped).code == 0
    ledger.acked.add(popped.message.body)


def deal(client: PopClient, ledger: Ledger, popped: list[PoppedMessage]) -> None:
    """Every fourth: acknowledged; left; given another time; given one and acknowledged."""
    for number, one in enumerate(popped):
        if number % 4 >= 2:
            one = client.change(one, CHANGED_MS)
            ledger.visible_ms[one.message.body] = visible_ms(one)
        if number % 4 in (0, 3):
            ack(client, ledger, one)


def open_pops(client: PopClient, ledger: Ledger, count: int) -> None:
    """Hand `count` messages out that were not handed out yet: wholly acknowledged pops, such as
    nobody acknowledges anything of, and mixed ones."""
    known = len(ledger.handed_out)
    for number, size in enumerate((1, 7, 3)):
        popped = pop(client, ledger, size)
        if number == 0:
            ack(client, ledger, popped[0])
    while len(ledger.handed_out) < known + count:
        deal(client, ledger, pop(client, ledger, 8))


def collect(client: PopClient, ledger: Ledger, invisible_ms: int = 60_000) -> list[PoppedMessage]:
    """All that is open comes again."""
    wanted = set(ledger.handed_out) - ledger.acked
    found: list[PoppedMessage] = []

    def is_there() -> bool:
        answer = client.pop(ledger.topic, invisibleTime=invisible_ms)
        found.extend(ledger.note(answer))
        return wanted <= {one.message.body for one in found}

    wait_until(is_there, f"{len(wanted)} messages again", timeout_s=90, poll_s=0.2)
    return found


def finish(client: PopClient, ledger: Ledger, count: int) -> None:
    """Everything comes, and is acknowledged."""
    for one in collect(client, ledger):
        ack(client, ledger, one)
    while len(ledger.acked) < count:
        popped = pop(client, ledger, 32)
        assert popped, f"{count - len(ledger.acked)} messages do not come"
        for one in popped:
            ack(client, ledger, one)
    assert pop(client, ledger, 32) == []


def test_java_goes_on_with_our_pops(tmp_path: Path) -> None:
    port, ledger = free_port(-2, 1), Ledger()
    with served("ours", tmp_path, port, v2=False) as client:
        send(client, ledger, 0, 80)
        open_pops(client, ledger, 50)
    with served(harness.JAVA_5, tmp_path, port, v2=False, is_last=True) as client:
        finish(client, ledger, 80)
    assert ledger.topics == {TOPIC, f"%RETRY%{GROUP}_{TOPIC}"}
    assert set(ledger.handed_out.values()) == {1, 2}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kinds", "versions"),
    [
        (("ours", harness.JAVA_5, "ours"), (False, True, True)),
        ((harness.JAVA_5, "ours", harness.JAVA_5), (False, True, False)),
        ((harness.JAVA_5, "ours", harness.JAVA_5), (True, True, True)),
    ],
)
def test_there_and_back(tmp_path: Path, kinds: tuple[str, ...], versions: tuple[bool, ...]) -> None:
    """versions: whether each broker makes V2 retry topics. Pops of retried messages stay open,
    too."""
    port, ledger = free_port(-2, 1), Ledger()
    with served(kinds[0], tmp_path, port, v2=versions[0]) as client:
        send(client, ledger, 0, 60)
        open_pops(client, ledger, 40)
    with served(kinds[1], tmp_path, port, v2=versions[1]) as client:
        again = collect(client, ledger)
        deal(client, ledger, [one for one in again if one.message.reconsume_times])
        send(client, ledger, 60, 60)
        open_pops(client, ledger, 30)
    with served(kinds[2], tmp_path, port, v2=versions[2], is_last=True) as client:
        finish(client, ledger, 120)
    assert max(ledger.handed_out.values()) >= 3
    is_v2 = any("+" in topic for topic in ledger.topics)
    assert is_v2 or not versions[-1]


@pytest.mark.parametrize(
    "kinds",
    [
        ("ours", harness.JAVA_5, "ours"),
        (harness.JAVA_5, "ours", harness.JAVA_5),
    ],
)
@pytest.mark.long
def test_long_names_there_and_back(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """Each broker reads the V2 records of the other's retry topic and appends its own; the bytes of
    all are of one layout."""
    port, ledger = free_port(-2, 1), Ledger(LONG_TOPIC)
    retry = f"%RETRY%{LONG_GROUP}_{LONG_TOPIC}"
    for number, kind in enumerate(kinds):
        is_last = number == 2
        with served(kind, tmp_path, port, v2=False, is_last=is_last, group=LONG_GROUP) as client:
            if number == 0:
                send(client, ledger, 0, 12)
                while len(ledger.handed_out) < 12:
                    pop(client, ledger, 12)
            elif number == 1:
                again = collect(client, ledger, 10_000)
                assert {one.topic for one in again} == {retry}
            else:
                finish(client, ledger, 12)
            assert client.frames.offset(30, retry, 0) == 12 * number
    copies = [found for found in log_records(tmp_path / "s") if found[0].topic == retry]
    assert len(copies) == 24
    assert [message.queue_offset for message, _raw in copies] == list(range(24))
    for message, raw in copies:
        assert raw[4:8].hex() == "daa320ab"
        # Java's bytes, too, are those that this broker would have written.
        assert encode_record(message) == raw
    for body in ledger.handed_out:
        first, second = (timeless(message) for message, _raw in copies if message.body == body)
        assert first == second


def log_records(store: Path) -> Iterator[tuple[Message, bytes]]:
    """The records of a commit log, decoded and as they are."""
    for path in sorted((store / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while data[at : at + 4] != bytes(4) and not is_blank_at(data, at):
            message, size = decode_record(data, at)
            yield message, data[at : at + size]
            at += size


def timeless(message: Message) -> tuple[bytes, list[bytes]]:
    """Its record without what differs from one copy to the next, and its properties: Java writes
    those of a copy in its hash map's order, 5.3.3 without the one that 5.5.0 and ours add."""
    pairs = sorted(message.properties.strip(b"\x02").split(b"\x02"))
    if harness.JAVA_5 == "java-5.3":
        pairs = [pair for pair in pairs if not pair.startswith(b"ORIGIN_GROUP\x01")]
    changed = {"phy_offset": 0, "queue_offset": 0, "store_timestamp": 0, "reconsume_times": 0}
    return encode_record(replace(message, properties=b"", **changed)), pairs

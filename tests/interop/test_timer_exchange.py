"""A store with timers that wait goes from our broker to a Java 5.3.3 broker and back.

Each delivers what the other took, once, not before its time; what is far stays in wheel and log.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from store.message import Message
from store.timer.timer_checkpoint import load_timer_checkpoint
from store.timer.timer_log import UNIT_SIZE, TimerLogReader
from store.timer.timer_metrics import load_timer_metrics
from store.timer.timer_wheel import TimerWheelReader
from tests.interop import harness
from tests.interop.processes import wait_until
from tests.support.our_broker import FrameClient, drain
from tools.chaos.free_ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC = "TimerExchange"
FAR_S = 3600
TIMER_LOG_SIZE = 4096
"""Some units reach into a second file."""
CONF = {
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": str(300 * 20),
    "mappedFileSizeTimerLog": str(TIMER_LOG_SIZE),
    "autoCreateTopicEnable": "true",
    "timerWheelEnable": "true",
}


def served(
    kind: str, tmp_path: Path, namesrv: str, port: int, **conf: str
) -> AbstractContextManager[FrameClient]:
    home = tmp_path / f"{kind}-{time.monotonic_ns()}"
    broker = harness.broker(
        kind,
        home,
        namesrv,
        name="broker-timers",
        port=port,
        store_dir=tmp_path / "s",
        conf={**CONF, **conf},
    )
    return harness.served(broker)


def send(client: FrameClient, first: int, deliver_ms: list[int]) -> dict[str, int]:
    """Messages with numbers from `first` on; by number: when it is due."""
    sent = {str(first + at): due for at, due in enumerate(deliver_ms)}
    for number, due in sent.items():
        fields = {
            "a": "bench",
            "b": TOPIC,
            "c": "TBW102",
            "d": 4,
            "e": int(number) % 4,
            "f": 0,
            "g": int(time.time() * 1000),
            "h": 0,
            "j": 0,
            "k": "false",
            "m": "false",
            "i": f"KEYS\x01{number}\x02UNIQ_KEY\x01id{number}\x02TIMER_DELIVER_MS\x01{due}",
        }
        answer = client.call(310, fields, number.encode())
        assert answer.code == 0, answer
    return sent


def received(client: FrameClient) -> list[Message]:
    return [message for queue_id in range(4) for message in drain(client, TOPIC, queue_id)]


def wait_for(client: FrameClient, count: int, settle_s: float = 2) -> list[Message]:
    def is_there() -> bool:
        return sum(client.offset(30, TOPIC, queue_id) for queue_id in range(4)) >= count

    wait_until(is_there, f"{count} messages in {TOPIC}", timeout_s=60)
    time.sleep(settle_s)
    found = received(client)
    assert len(found) == count, "a message came twice"
    return found


def waiting(tmp_path: Path) -> int:
    """Units of slots that are still to come, by wheel and log of the stopped broker."""
    store = tmp_path / "s"
    wheel = TimerWheelReader(store / "timerwheel", 1000)
    log = TimerLogReader(store / "timerlog", TIMER_LOG_SIZE)
    checkpoint = load_timer_checkpoint(store / "config" / "timercheck")
    assert checkpoint is not None
    found = 0
    for time_ms in wheel.used_slots(checkpoint.last_read_time_ms):
        slot = wheel.slot(time_ms)
        assert slot is not None
        units = list(log.chain(slot.last_pos))
        assert len(units) == slot.num
        found += len(units)
    wheel.close()
    log.close()
    return found


def wait_until_entered(tmp_path: Path, count: int) -> None:
    """The broker has put `count` units into its log (a stop does not wait for what it has read)."""
    directory = tmp_path / "s" / "timerlog"

    def entered() -> bool:
        # The directory comes with the first unit.
        units = (unit_size for file in directory.glob("*") for unit_size in unit_sizes(file))
        return sum(size == UNIT_SIZE for size in units) >= count

    wait_until(entered, f"{count} units in {directory}", timeout_s=30)


def unit_sizes(file: Path) -> list[int]:
    content = file.read_bytes()
    return [int.from_bytes(content[at : at + 4]) for at in range(0, len(content), UNIT_SIZE)]


@pytest.mark.long
def test_java_repeats_nothing_of_a_slot_that_was_open_at_our_stop(
    tmp_path: Path, namesrv: harness.NameServer
) -> None:
    """Ours delivers at the millisecond, Java when the slot is over: here after ten seconds."""
    slot_ms, port = 10_000, free_port(-2, 1)
    conf = {"timerPrecisionMs": str(slot_ms)}
    with served("ours", tmp_path, namesrv.address, port, **conf) as client:
        begin_ms = (int(time.time() * 1000) // slot_ms + 1) * slot_ms
        sent = send(client, 0, [begin_ms + 200 + each * 10 for each in range(60)])
        sent |= send(client, 60, [begin_ms + slot_ms - 500 + each for each in range(40)])
        wait_until_entered(tmp_path, 100)
        soon = wait_for(client, 60, settle_s=0.2)
    assert time.time() * 1000 < begin_ms + slot_ms - 500, "the rest was to wait"
    assert all(
        message.store_timestamp >= sent[message.find_property("KEYS") or ""] for message in soon
    )
    with served(harness.JAVA_5, tmp_path, namesrv.address, port, **conf) as client:
        found = wait_for(client, 100)
    assert sorted(int(message.find_property("KEYS") or "") for message in found) == list(range(100))


def test_timers_go_to_java_and_back(tmp_path: Path, namesrv: harness.NameServer) -> None:
    port = free_port(-2, 1)
    with served("ours", tmp_path, namesrv.address, port) as client:
        now_ms = int(time.time() * 1000)
        sent = send(client, 0, [now_ms + 10_000 + each * 50 for each in range(70)])
        sent |= send(client, 70, [now_ms + FAR_S * 1000 + each for each in range(20)])
        wait_until_entered(tmp_path, 90)
    assert waiting(tmp_path) == 90
    with served(harness.JAVA_5, tmp_path, namesrv.address, port) as client:
        found = wait_for(client, 70)
        for message in found:
            due = sent[message.find_property("KEYS") or ""]
            # Java rounds down to seconds, and delivers when that second is over.
            assert message.store_timestamp > due - 1000
        now_ms = int(time.time() * 1000)
        sent |= send(client, 90, [now_ms + 20_000 + each * 50 for each in range(30)])
        wait_until_entered(tmp_path, 120)
    assert waiting(tmp_path) == 50
    with served("ours", tmp_path, namesrv.address, port) as client:
        found = wait_for(client, 100)
        numbers = sorted(int(message.find_property("KEYS") or "") for message in found)
        assert numbers == [*range(70), *range(90, 120)]
        for message in found:
            number = message.find_property("KEYS") or ""
            assert message.body == number.encode()
            assert int(number) < 90 or message.store_timestamp >= sent[number]
    assert waiting(tmp_path) == 20
    metrics = load_timer_metrics(tmp_path / "s" / "config" / "timermetrics")
    assert metrics.topics[TOPIC].count == 20

"""How late delayed messages are: `bin/bench delays` (or `python -m tests.bench.delays`).

Starts one broker of ours, sends --rate messages a second of delay level 1 (1 s) for --seconds, so
that as many become due, and reads both copies of each: the one in the schedule topic, whose store
time and level say when it is due, and the delivered one, whose store time says when it came.
Printed: percentiles of the lateness in ms (resolution 1 ms), messages not in their level's order,
and the processor time of the broker for each message, its send, delivery and flush included.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from store.message import Message
from tests.bench.measuring import MIB, quiet_cpu_s
from tests.support.our_broker import FrameClient, OurBroker, drain
from tests.support.stolen_time import StolenTime

TOPIC: Final = "BenchDelays"
SCHEDULE: Final = "SCHEDULE_TOPIC_XXXX"
DELAY_MS: Final = 1_000
_STEP_S: Final = 0.01


def send(client: FrameClient, count: int, rate: float, body: bytes) -> None:
    """`count` messages, evenly, a step's worth at a time; every answer is looked at."""
    began = time.monotonic()
    sent = 0
    while sent < count:
        due = min(count, int((time.monotonic() - began) * rate) + 1)
        opaques = [_post(client, number, body) for number in range(sent, due)]
        for opaque in opaques:
            answer = client.take_send(opaque)
            assert answer.code == 0, answer
        sent = due
        time.sleep(_STEP_S)


def _post(client: FrameClient, number: int, body: bytes) -> int:
    fields = {
        "a": "bench",
        "b": TOPIC,
        "c": "TBW102",
        "d": 4,
        "e": number % 4,
        "f": 0,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": f"KEYS\x01{number}\x02DELAY\x011",
        "j": 0,
        "k": "false",
        "m": "false",
    }
    return client.post(310, fields, body)


def by_key(messages: list[Message]) -> dict[str, Message]:
    """Messages by their number; each once."""
    found = {message.find_property("KEYS") or "": message for message in messages}
    assert len(found) == len(messages), "a message came twice"
    return found


def delivered(client: FrameClient) -> list[Message]:
    """All that is in the topic, in the order of the log."""
    found = [message for queue_id in range(4) for message in drain(client, TOPIC, queue_id)]
    return sorted(found, key=lambda message: message.phy_offset)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=1_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--size", type=int, default=128)
    options = parser.parse_args()
    count = int(options.rate * options.seconds)
    with tempfile.TemporaryDirectory(prefix="bench-delays-") as root:
        large = {"mappedFileSizeCommitLog": 256 * MIB, "mappedFileSizeConsumeQueue": 6_000_000}
        broker = OurBroker(Path(root), **large).start()
        try:
            with FrameClient(("127.0.0.1", broker.ports["main"])) as client:
                stolen = StolenTime()
                before = quiet_cpu_s(broker.pid)
                send(client, count, options.rate, bytes(options.size))
                while len(found := delivered(client)) < count:
                    time.sleep(0.5)
                used = quiet_cpu_s(broker.pid) - before
                report(by_key(drain(client, SCHEDULE, 0)), by_key(found), used, stolen.share())
        finally:
            broker.terminate()


def report(
    waiting: dict[str, Message], found: dict[str, Message], cpu_s: float, stolen: float
) -> None:
    """Print the figures."""
    late = sorted(
        message.store_timestamp - waiting[key].store_timestamp - DELAY_MS
        for key, message in found.items()
    )
    numbers = [int(key) for key in found]
    swapped = sum(a > b for a, b in itertools.pairwise(numbers))
    cuts = statistics.quantiles(late, n=1000, method="inclusive")
    print(
        f"{len(late)} delivered, {swapped} out of order, {100 * stolen:.0f}% of the machine stolen"
    )
    print(
        f"late by ms: least {late[0]}, p50 {cuts[499]:.0f}, p99 {cuts[989]:.0f}, "
        f"p999 {cuts[998]:.0f}, most {late[-1]}"
    )
    print(f"{1e6 * cpu_s / len(late):.0f} us of processor time a message")


if __name__ == "__main__":
    main()

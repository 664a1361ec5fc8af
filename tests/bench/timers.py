"""Timers at their time: `bin/bench timers` (or `python -m tests.bench.timers`).

Starts one broker, ours or with --side java Java's 5.3.3. Fills it with --pending timers that are
due in an hour or later, then with --rate times --seconds timers whose times are spread evenly over
--seconds, and waits until those are delivered. Each delivered message says when it was asked for
(TIMER_DELIVER_MS) and when it was stored. Printed: percentiles of the lateness in ms (negative: too
early; Java rounds down to a second), processor time of the broker while they were due, its
anonymous memory at most, and how fast timers were taken before.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from remoting.remoting_command import RemotingCommand
from tests.bench.measuring import MIB, MemoryWatch, cpu_s, quiet_cpu_s
from tests.interop import harness
from tests.support.our_broker import FrameClient
from tests.support.stolen_time import StolenTime

TOPIC: Final = "BenchTimers"
QUEUES: Final = 4
_FAR_S: Final = 3600
_WINDOW: Final = 500
"""Sends under way."""
_QUIET_S: Final = 5.0
"""Between the last send and the first time."""
_PULL: Final = 1_000
_KINDS: Final = {"ours": "ours", "java": "java-5.3"}
_BACKED_UP: Final = 2


class Sender(FrameClient):
    """Sends timers, many at a time; answers may come in any order."""

    def send_all(self, times_ms: Sequence[int], body: bytes) -> float:
        """Returns sends a second."""
        began = time.monotonic()
        under_way: dict[int, int] = {}
        for number, deliver_ms in enumerate(times_ms):
            under_way[self._post(number, deliver_ms, body)] = deliver_ms
            while len(under_way) >= _WINDOW:
                self._take_answers(under_way, body)
        while under_way:
            self._take_answers(under_way, body)
        return len(times_ms) / (time.monotonic() - began)

    def _post(self, number: int, deliver_ms: int, body: bytes) -> int:
        fields = {
            "a": "bench",
            "b": TOPIC,
            "c": "TBW102",
            "d": QUEUES,
            "e": number % QUEUES,
            "f": 0,
            "g": deliver_ms,
            "h": 0,
            "i": f"UNIQ_KEY\x01{number}\x02TIMER_DELIVER_MS\x01{deliver_ms}",
            "j": 0,
            "k": "false",
            "m": "false",
        }
        return self.post(310, fields, body)

    def _take_answers(self, under_way: dict[int, int], body: bytes) -> None:
        """What is refused because the broker is busy is sent again."""
        for answer in self._answers():
            deliver_ms = under_way.pop(answer.opaque)
            if answer.code == _BACKED_UP:
                time.sleep(0.01)
                under_way[self._post(answer.opaque, deliver_ms, body)] = deliver_ms
            else:
                assert answer.code == 0, answer

    def _answers(self) -> Iterator[RemotingCommand]:
        data = self._sock.recv(1 << 18)
        assert data, "the broker closed the connection"
        self._frames.feed(data)
        while (command := self._frames.next_command()) is not None:
            yield command


def delivered(client: FrameClient, positions: list[int]) -> list[int]:
    """Lateness in ms of what has come since the last call; moves `positions`."""
    late: list[int] = []
    for queue_id in range(QUEUES):
        end = client.offset(30, TOPIC, queue_id)
        while positions[queue_id] < end:
            pulled = client.pull(TOPIC, queue_id, positions[queue_id], count=_PULL)
            for message in pulled.messages:
                asked_ms = int(message.find_property("TIMER_DELIVER_MS") or 0)
                late.append(message.store_timestamp - asked_ms)
            positions[queue_id] = pulled.next_offset
    return late


def measure(broker: harness.Broker, options: argparse.Namespace) -> None:
    """Fill, wait, print."""
    body, count = bytes(options.size), int(options.rate * options.seconds)
    pid = broker.process.pid
    with Sender(("127.0.0.1", broker.port)) as client, MemoryWatch(pid) as memory:
        far_ms = int((time.time() + _FAR_S) * 1000)
        speed = client.send_all(
            [far_ms + random.randrange(_FAR_S * 1000) for _ in range(options.pending)], body
        )
        quiet_cpu_s(pid)
        lead_s = max(count / speed, 1) * 1.5 + _QUIET_S
        first_ms = int((time.time() + lead_s) * 1000)
        times = [first_ms + int(1000 * number / options.rate) for number in range(count)]
        client.send_all(times, body)
        assert time.time() * 1000 < first_ms, "the timers came to be due while they were sent"
        quiet_cpu_s(pid, timeout_s=max(first_ms / 1000 - time.time(), 0.5))
        time.sleep(max(first_ms / 1000 - time.time(), 0))
        stolen, before = StolenTime(), cpu_s(pid)
        time.sleep(options.seconds + 1)
        used = cpu_s(pid) - before
        late: list[int] = []
        positions, deadline = [0] * QUEUES, time.monotonic() + 600
        while len(late) < count and time.monotonic() < deadline:
            late += delivered(client, positions)
            time.sleep(0.5)
    report(options, speed, late, used, memory.highest, stolen.share())


def report(
    options: argparse.Namespace,
    speed: float,
    late: list[int],
    cpu: float,
    memory: int,
    stolen: float,
) -> None:
    """Print the figures."""
    late.sort()
    cuts = statistics.quantiles(late, n=1000, method="inclusive")
    print(
        f"{options.side}: {options.pending} pending (taken at {speed:.0f}/s), {len(late)} of "
        f"{options.rate * options.seconds:.0f} delivered, {100 * stolen:.0f}% of the machine stolen"
    )
    print(
        f"late by ms: least {late[0]}, p50 {cuts[499]:.0f}, p99 {cuts[989]:.0f}, "
        f"p999 {cuts[998]:.0f}, most {late[-1]}"
    )
    print(
        f"processor time {cpu / (options.seconds + 1):.2f} cores while due, "
        f"{memory / MIB:.0f} MiB of anonymous memory"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", choices=sorted(_KINDS), default="ours")
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float, default=10_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--precision", type=int, default=1000, help="timerPrecisionMs")
    options = parser.parse_args()
    settings = {
        "mappedFileSizeCommitLog": str(256 * MIB),
        "timerWheelEnable": "true",
        "timerPrecisionMs": str(options.precision),
        "autoCreateTopicEnable": "true",
        "maxTransferCountOnMessageInMemory": str(_PULL),
        "maxTransferBytesOnMessageInMemory": str(MIB),
        "fileReservedTime": "72",
    }
    with tempfile.TemporaryDirectory(prefix="bench-timers-") as root:
        jvm = ("-Xms1g", "-Xmx2g")
        kind = _KINDS[options.side]
        broker = harness.broker(kind, Path(root), None, conf=settings, jvm=jvm).start()
        try:
            measure(broker, options)
        finally:
            broker.kill()


if __name__ == "__main__":
    main()

"""What is at risk between two lines of the dump: a real pair, judged by the bytes a client wrote.

The slave's process `ha` is stopped for less than a line's interval while a client writes; the
samples of the lines around it show nothing at risk. And `sends` against the client's own count of
answers, over the fast and the general path.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark.dumps.dump_line import decode_line
from tests.faults.test_exposure_after_kills import Exposure
from tests.support.broker_group import ASYNC_MASTER, SLAVE, TOPIC
from tests.support.deadline import wait_until

pytestmark = [pytest.mark.slow]

INTERVAL_S = 5
BODY = b"x" * 1000
DAY_MS = 86_400_000
SUCCESS = 0


class Pair(Exposure):
    """Lines every INTERVAL_S."""

    def start_master(self) -> None:
        self.group.start(
            self.master,
            ASYNC_MASTER,
            metricsDumpPath=self.dumps,
            metricsDumpIntervalSeconds=INTERVAL_S,
        )

    def next_line(self) -> dict[str, Any]:
        """The next one to be written."""
        before = len(self.lines())
        wait_until(lambda: len(self.lines()) > before, 3 * INTERVAL_S)
        return self.lines()[before]

    def send_all(self, count: int) -> int:
        """Bytes that the log grew by at least."""
        with self.master.client() as client:
            for _ in range(count):
                assert client.send(TOPIC, 0, BODY).code == SUCCESS
        return count * len(BODY)


def _is_level(line: dict[str, Any]) -> bool:
    return bool(line["replicas"]) and line["unreplicated_bytes"] == 0 and line["max_offset"] > 0


@pytest.mark.parametrize(
    "kills_ha",
    [
        pytest.param(False, marks=pytest.mark.long, id="stopped"),
        pytest.param(True, id="and ha killed"),
    ],
)
def test_what_no_sample_saw(tmp_path: Path, kills_ha: bool) -> None:
    pair = Pair(tmp_path)
    with pair.group.running():
        pair.start_master()
        pair.group.start(pair.group.second, SLAVE)
        pair.send_all(10)
        wait_until(lambda: _is_level(pair.next_line()), 60)
        before = pair.lines()[-1]

        stopped = pair.group.second.stop("ha")
        written = pair.send_all(200)
        if kills_ha:
            pair.master.restart_by_kill("ha")
            written += pair.send_all(100)
        os.kill(stopped, signal.SIGCONT)
        after = pair.next_line()
        wait_until(lambda: _is_level(pair.next_line()), 60)

        lines = pair.lines()
        last = next(line for line in lines if line["seq"] > before["seq"] and _is_level(line))
        seen = [line for line in lines if before["seq"] < line["seq"] <= last["seq"]]
        if not kills_ha:
            assert after == last, "else the link was cut for longer than between two samples"
            assert after["exposure"]["bytes_at_least"] >= written
        assert max(line["exposure"]["bytes_at_most"] for line in seen) >= written
        assert before["exposure"]["bytes_at_least"] < written
        assert all(line["exposure"] for line in lines[1:]), "null before the first look only"
        for line in lines:
            _check_whole(line)


def _check_whole(line: dict[str, Any]) -> None:
    """It is what the report reads."""
    read = decode_line(json.dumps(line).encode(), line["ts"] // DAY_MS * DAY_MS)
    assert read.v == 2
    for row in read.replicas or ():
        assert row.lag_time is not None
        assert sum(row.lag_time) <= row.state_ms.in_sync


def test_sends_are_those_of_a_client(tmp_path: Path) -> None:
    """The first send of a topic takes the general path, the others the fast one; some are
    refused, one way or the other."""
    pair = Pair(tmp_path)
    counted: Counter[str] = Counter()
    with pair.group.running():
        pair.start_master()
        with pair.master.client() as client:
            posted = [client.post_send(TOPIC, 0, BODY) for _ in range(150)]
            posted += [client.post_send(TOPIC, 999, BODY) for _ in range(5)]
            posted += [client.post_send(TOPIC, 1, b"x" * (5 << 20))]
            posted += [client.post(code, {}, BODY) for code in (10, 310, 320, 310)]
            for opaque in posted:
                code = client.take(opaque).code
                counted["ok" if code == SUCCESS else "refused"] += 1
        assert counted["ok"] == 150
        pair.next_line()
        sends = pair.next_line()["sends"]
        assert sends["ok"] == counted["ok"]
        assert sends["refused"] == counted["refused"]
        assert sum(sends["latency"]["counts"]) == sum(counted.values())

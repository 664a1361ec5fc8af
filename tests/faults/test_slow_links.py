"""A link to the slave with round trips and losses: the log keeps its speed, answers take the round
trip and no less (anchors, test 16). The link is the relay of mqchaos, since this kernel has no
netem; a loss is a stall of all that follows, for a round trip or a retransmission's time-out."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remoting.request_code import RequestCode
from tests.support.deadline import wait_until
from tools.chaos.frame_client import FrameClient, send_request
from tools.chaos.schedule import FaultKind
from tools.chaos.scratch_group import ScratchBroker, ScratchGroup

TOPIC = "SlowLink"
BACKLOG = 96 << 20
BODY = 60_000
ROUNDS = 3
SENDS = 100
LIMIT_S = 120.0


@contextlib.contextmanager
def group(root: Path, role: str) -> Iterator[ScratchGroup]:
    settings = {"flushDiskType": "ASYNC_FLUSH", "mappedFileSizeCommitLog": 128 << 20}
    made = ScratchGroup(root, seed=1, slaves=1, settings=settings, role=role)
    try:
        yield made
    finally:
        made.kill_everything()


def log_end(broker: ScratchBroker) -> int:
    with FrameClient(broker.address, LIMIT_S) as client:
        answer = client.call(RequestCode.GET_BROKER_RUNTIME_INFO, {})
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


def fill(broker: ScratchBroker) -> int:
    with FrameClient(broker.address, LIMIT_S) as client:
        for _ in range(BACKLOG // BODY // 8):
            requests = [send_request(TOPIC, n % 4, bytes(BODY)) for n in range(8)]
            client.post(*requests)
            assert {client.take(request.opaque).code for request in requests} == {0}
    return log_end(broker)


def catch_up_mb_s(pair: ScratchGroup, end: int, round_trip_ms: int) -> float:
    """Of a new slave, from its first bytes on."""
    (slave,), (relay,) = pair.slaves, pair.relays
    relay.set_mode(FaultKind.DELAY if round_trip_ms else None, round_trip_ms)
    shutil.rmtree(slave.directory, ignore_errors=True)
    relay.set_mode(FaultKind.PARTITION)
    slave.start()
    relay.set_mode(FaultKind.DELAY if round_trip_ms else None, round_trip_ms)
    wait_until(lambda: log_end(slave) > 0, LIMIT_S)
    began_s, first = time.monotonic(), log_end(slave)
    wait_until(lambda: log_end(slave) == end, LIMIT_S)
    took_s = time.monotonic() - began_s
    slave.kill_all()
    return (end - first) / took_s / 1e6


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_catching_up_keeps_its_speed_at_two_milliseconds(
    tmp_path: Path, proved: Callable[[str], None]
) -> None:
    with group(tmp_path, "ASYNC_MASTER") as pair:
        pair.master.start()
        end = fill(pair.master)
        speeds: dict[int, list[float]] = {0: [], 2: [], 20: []}
        for _ in range(ROUNDS):
            for round_trip_ms, found in speeds.items():
                found.append(catch_up_mb_s(pair, end, round_trip_ms))
    lan, two, twenty = (statistics.median(found) for found in speeds.values())
    proved(f"catch-up: {lan:.0f} MB/s, {two:.0f} at 2 ms, {twenty:.0f} at 20 ms of round trip")
    assert two >= 0.8 * lan


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_no_answer_is_faster_than_the_round_trip(
    tmp_path: Path, proved: Callable[[str], None]
) -> None:
    """SEND_OK of a SYNC_MASTER says that the slave has it, and the slave is a round trip away."""
    links = [(FaultKind.DELAY, 2), (FaultKind.DELAY, 20), (FaultKind.LOSSY, 2)]
    figures = []
    with group(tmp_path, "SYNC_MASTER") as pair:
        pair.start()
        (relay,) = pair.relays
        with FrameClient(pair.address, LIMIT_S) as client:
            wait_until(lambda: send_s(client)[0] == 0, LIMIT_S)
            for kind, round_trip_ms in links:
                relay.set_mode(kind, round_trip_ms)
                answers = [send_s(client) for _ in range(SENDS)]
                relay.set_mode(None)
                assert {code for code, _seconds in answers} == {0}
                taken_ms = sorted(seconds * 1000 for _code, seconds in answers)
                assert taken_ms[0] >= round_trip_ms
                name = f"{kind} {round_trip_ms} ms"
                figures.append(
                    f"{name}: p50 {taken_ms[SENDS // 2]:.1f}, most {taken_ms[-1]:.0f} ms"
                )
    proved("answers of a SYNC_MASTER, " + "; ".join(figures))


def send_s(client: FrameClient) -> tuple[int, float]:
    """The code of an answer, and its seconds."""
    began_s = time.monotonic()
    request = send_request(TOPIC, 0, b"x")
    client.post(request)
    return client.take(request.opaque).code, time.monotonic() - began_s

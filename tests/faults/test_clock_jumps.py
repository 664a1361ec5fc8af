"""The wall clock jumps under load: what waits does not notice, delayed messages come once, and
retention deletes nothing because of it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from remoting.response_code import ResponseCode
from tests.faults.ledger import Follower, Ledger, Senders, assert_nothing_lost, assert_stops_clean
from tests.faults.shim import compile_shim
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker, drain
from tests.support.pop_client import PopClient

pytestmark = [pytest.mark.slow]

SHIM = Path(__file__).parent / "shifted_clock.c"
HOUR_S = 3600
JUMPS_S = (HOUR_S, -HOUR_S, 24 * HOUR_S)
HOLD_MS = 1_000
DELAYED = "Delayed"
LEVELS = (1, 2)
"""One second and five."""
LEVEL_2_S = 5
POLLING_TIMEOUT = 210
EARLY_S = 0.5
"""A broker's time is that of its loop's turn, which may have begun before the send."""


class Clock:
    """The wall clock of a broker's processes."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "shift"
        self.jump(0)
        library = compile_shim(SHIM, directory)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(self._file)}

    def jump(self, ahead_s: int) -> None:
        """Ahead of the true time, from now on. Written in place: the processes have it mapped."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(ahead_s.to_bytes(8, "little", signed=True))


def send_delayed(client: FrameClient, level: int, body: bytes) -> None:
    fields = {
        "a": "faults",
        "b": DELAYED,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 1,
        "h": 0,
        "i": f"DELAY\x01{level}\x02",
        "j": 0,
        "k": "false",
        "l": 16,
        "m": "false",
    }
    assert client.call(310, fields, body).code == ResponseCode.SUCCESS


def held_s(client: FrameClient, jump_s: int, clock: Clock) -> float:
    """How long a pull that waits is held, when the clock jumps meanwhile."""
    end = client.offset(30, DELAYED, 3)
    began = time.monotonic()
    poll = client.post_pull(DELAYED, 3, end, suspend_ms=HOLD_MS)
    clock.jump(jump_s)
    assert client.take_pull(poll).code == ResponseCode.PULL_NOT_FOUND
    return time.monotonic() - began


def held_pop_s(client: FrameClient, jump_s: int, clock: Clock) -> float:
    """The same of a pop, which says itself when it was sent; the clock is right again at the
    end."""
    pops = PopClient(client, "popping", "broker")
    began = time.monotonic()
    poll = pops.post_pop(DELAYED, queueId=1, pollTime=HOLD_MS, bornTime=int(time.time() * 1000))
    assert client.offset(30, DELAYED, 1) == 0  # so that the pop was read before
    clock.jump(jump_s)
    assert pops.take_pop(poll, DELAYED).code == POLLING_TIMEOUT
    clock.jump(0)
    return time.monotonic() - began


def stored_ahead_s(client: FrameClient) -> float:
    """By how much the broker's clock is ahead, by the time at which it stores a message."""
    sent = client.send(DELAYED, 2, b"now")
    assert sent.code == ResponseCode.SUCCESS
    wait_until(lambda: client.offset(30, DELAYED, 2) > sent.queue_offset)
    (message,) = client.pull(DELAYED, 2, sent.queue_offset).messages
    return message.store_timestamp / 1000 - time.time()


def send_while_it_jumps(client: FrameClient, clock: Clock) -> list[float]:
    """After how many seconds each of the delayed messages has come; the clock is ahead for the
    length of one send, back for that of another."""
    sent_s: dict[bytes, float] = {}
    came_s: dict[bytes, float] = {}
    for jump_s in (24 * HOUR_S, HOUR_S, -HOUR_S, 0):
        clock.jump(jump_s)
        body = f"{jump_s} s".encode()
        sent_s[body] = time.monotonic()
        send_delayed(client, 2, body)
    clock.jump(0)

    def have_come() -> int:
        for message in drain(client, DELAYED, 0):
            came_s.setdefault(message.body, time.monotonic())
        return len(came_s)

    wait_until(lambda: have_come() == len(sent_s), 60)
    return [came_s[body] - sent_s[body] for body in sent_s]


@pytest.mark.fault(33)
def test_a_clock_that_is_set_for_a_moment(tmp_path: Path) -> None:
    """It is right again before anybody looks for due messages, as right after a start: what was
    stored meanwhile waits as long as all else, by this test's own clock (mqchaos, seed 29031)."""
    clock = Clock(tmp_path)
    broker = OurBroker(tmp_path)
    broker.env = clock.environment
    with broker.start(), broker.client(timeout_s=30) as client:
        assert min(send_while_it_jumps(client, clock)) > LEVEL_2_S - EARLY_S


@pytest.mark.fault(33)
def test_jumps_under_load(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    ledger = Ledger()
    # Retention that would delete on any hour what is an hour old, and looks all the time.
    broker = OurBroker(
        tmp_path,
        fileReservedTime=1,
        deleteWhen=";".join(f"{hour:02d}" for hour in range(24)),
        cleanResourceInterval=100,
        flushDiskType="SYNC_FLUSH",
        syncFlushTimeout=5_000,
    )
    broker.env = clock.environment
    log = broker.store_dir / "commitlog"
    sent: list[bytes] = []
    with broker.start(), broker.client(timeout_s=30) as client:
        # Three files that are done and could be deleted.
        for number in range(60):
            assert client.send(DELAYED, 3, b"%d" % number + bytes(60_000)).code == 0
        wait_until(lambda: client.offset(30, DELAYED, 3) == 60)
        files = {path.name for path in log.iterdir()}
        with Follower(broker) as follower:
            with Senders(broker, ledger):
                for jump_s in JUMPS_S:
                    for level in LEVELS:
                        sent.append(f"{jump_s} s, level {level}".encode())
                        send_delayed(client, level, sent[-1])
                    for held in (held_pop_s, held_s):
                        waited_s = held(client, jump_s, clock)
                        assert HOLD_MS / 1000 * 0.5 < waited_s < HOLD_MS / 1000 + 5
                    assert abs(stored_ahead_s(client) - jump_s) < 60, "the clock was moved"
                    ledger.wait_for_more(50)
                    clock.jump(0)
                    ledger.wait_for_more(50)
            follower.assert_has(ledger)
        assert set(ledger.codes) == {ResponseCode.SUCCESS}
        wait_until(lambda: client.offset(30, DELAYED, 0) >= len(sent), 30)
        assert files <= {path.name for path in log.iterdir()}, "a file was deleted"
        assert "ended with code" not in broker.output()
        assert_nothing_lost(broker, ledger)
        # Those that were due by a clock that has gone back again wait no longer than their level.
        arrived = Counter(each.body for each in drain(client, DELAYED, 0))
        assert arrived == Counter(sent)
        assert_stops_clean(broker)

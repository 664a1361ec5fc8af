"""Timers and pops that are pending when something breaks.

A client knows what it was promised: timers by their times, popped messages by their handles.
Whatever happens, nothing is lost, no timer is early, and what was due during the outage comes soon
after it. Where the page cache survives, nothing acknowledged comes back and no popped message comes
before its time, either. Seeded: a failure names its seed. Kills under load: test_pop_kills.py;
recoveries of single files: tests/store/test_timer_message_store.py.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from ipc.clock import WALL_OFFSET, WALL_OFFSET_VARIABLE
from tests.faults.page_cache import PageCache
from tests.support.broker_group import ASYNC_MASTER, SLAVE, SYNC_MASTER, Group
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker, drain
from tests.support.pop_client import PopClient, PoppedMessage
from tests.support.small_disk import small_disk
from tools.chaos.free_ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

NAME: Final = "broker-a"
POPPED, TIMED, GROUP = "PopPending", "TimerPending", "GPending"
SETTINGS: Final[dict[str, object]] = {
    "brokerName": NAME,
    "timerPrecisionMs": 100,
    "popCkStayBufferTime": 1_000,
    "mappedFileSizeTimerLog": 5_200,
}
LATE_MS: Final = 15_000
"""After the outage; generous, for a loaded machine."""
HOUR_MS: Final = 3_600_000


@dataclass
class Pending:
    """What the client was promised. Times by the broker's clock, in ms."""

    seed: int = field(default_factory=lambda: random.randrange(1 << 30))
    due_ms: dict[bytes, int] = field(default_factory=dict)
    """Timers."""
    visible_ms: dict[bytes, int] = field(default_factory=dict)
    """Messages to pop that are not acknowledged; 0: not popped yet."""
    acked: set[bytes] = field(default_factory=set)

    def say(self, what: str) -> str:
        """For a failure."""
        return f"seed {self.seed}: {what}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def make_pending(client: FrameClient, pending: Pending, *, soon_ms: int, count: int = 30) -> None:
    """`count` timers and as many popped messages, all due within `soon_ms`; a third of the popped
    ones is acknowledged, a third gets another invisible time."""
    chance = random.Random(pending.seed)
    for number in range(count):
        body = b"%d-%d" % (number, len(pending.due_ms))
        due = now_ms() + chance.randrange(soon_ms // 3, soon_ms)
        send_timer(client, body, due)
        pending.due_ms[body] = due
        body = b"p%d" % (len(pending.acked) + len(pending.visible_ms))
        assert client.send(POPPED, number % 4, body).code == 0
        pending.visible_ms[body] = 0
    pops = PopClient(client, GROUP, NAME)
    taken: list[PoppedMessage] = []

    def take() -> bool:
        invisible_ms = chance.randrange(soon_ms // 3, soon_ms)
        answer = pops.pop(POPPED, maxMsgNums=chance.choice((1, 3, 8)), invisibleTime=invisible_ms)
        taken.extend(answer.messages)
        return len(taken) >= count

    wait_until(take, 30)
    for one in taken:
        settle(pops, pending, one, chance.randrange(3), chance.randrange(soon_ms // 3, soon_ms))


def settle(
    pops: PopClient, pending: Pending, popped: PoppedMessage, choice: int, changed_ms: int
) -> None:
    if choice == 1:
        popped = pops.change(popped, changed_ms)
    if choice == 2:
        assert pops.ack(popped).code == 0
        pending.acked.add(popped.message.body)
        pending.visible_ms.pop(popped.message.body, None)
        return
    _start, pop_time, invisible, *_ = popped.handle.split(" ")
    pending.visible_ms[popped.message.body] = int(pop_time) + int(invisible)


def send_timer(client: FrameClient, body: bytes, due_ms: int) -> None:
    fields: dict[str, object] = {
        "a": "P", "b": TIMED, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": now_ms(), "h": 0,
        "i": f"UNIQ_KEY\x01{body.decode()}\x02TIMER_DELIVER_MS\x01{due_ms}\x02", "j": 0,
        "k": "false", "l": 16, "m": "false",
    }  # fmt: skip
    answer = client.call(310, fields, body)
    assert answer.code == 0, answer.remark


def judge(broker: OurBroker, pending: Pending, back_ms: int, *, keeps_cache: bool) -> None:
    """All of it comes. back_ms: the end of the outage. keeps_cache: whether the page cache outlived
    it."""
    with broker.client() as client:
        judge_pops(client, pending, back_ms, keeps_cache)
        judge_timers(client, pending, back_ms, keeps_cache)


def judge_pops(client: FrameClient, pending: Pending, back_ms: int, keeps_cache: bool) -> None:
    pops, left = PopClient(client, GROUP, NAME), set(pending.visible_ms)

    def is_done() -> bool:
        for one in pops.pop(POPPED, invisibleTime=10 * LATE_MS).messages:
            body, came_ms = one.message.body, now_ms()
            left.discard(body)
            visible_ms = pending.visible_ms.get(body)
            if keeps_cache:
                assert visible_ms is not None, pending.say(f"{body!r} was acknowledged")
                assert came_ms >= visible_ms, pending.say(f"{body!r} comes too early")
            late_ms = came_ms - max(visible_ms or 0, back_ms)
            assert late_ms < LATE_MS, pending.say(f"{body!r} comes {late_ms} ms late")
            assert pops.ack(one).code == 0
        return not left

    wait_until(is_done, 60)
    assert not left, pending.say(f"lost: {left}")


def judge_timers(client: FrameClient, pending: Pending, back_ms: int, keeps_cache: bool) -> None:
    wait_until(lambda: {m.body for m in drain(client, TIMED, 0)} >= set(pending.due_ms), 60)
    found = drain(client, TIMED, 0)
    first: dict[bytes, int] = {}
    for message in found:
        due_ms = pending.due_ms[message.body]
        assert message.store_timestamp >= due_ms, pending.say(f"{message.body!r} is early")
        first.setdefault(message.body, message.store_timestamp)
    for body, came_ms in first.items():
        late_ms = came_ms - max(pending.due_ms[body], back_ms)
        assert late_ms < LATE_MS, pending.say(f"{body!r} comes {late_ms} ms late")
    times = Counter(message.body for message in found)
    assert not keeps_cache or set(times.values()) == {1}, pending.say(f"twice: {times}")


@pytest.mark.long
@pytest.mark.fault(1)
@pytest.mark.fault(4)
@pytest.mark.parametrize("name", ["remoting", "store", "ha", "supervisor", "all"])
def test_each_process_is_killed(tmp_path: Path, name: str) -> None:
    pending = Pending()
    with OurBroker(tmp_path, listenPort=free_port(-2, 1), **SETTINGS) as broker:
        with broker.start().client() as client:
            make_pending(client, pending, soon_ms=6_000)
        if name in ("all", "supervisor"):
            if name == "all":
                broker.crash()
            else:
                broker.kill(name)
                broker.crash()
            broker.start()
        else:
            broker.restart_by_kill(name, 20)
        judge(broker, pending, now_ms(), keeps_cache=True)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system that reuses no inode."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="pending-", dir=shared if shared.is_dir() else tmp_path
    ) as directory:
        yield Path(directory)


@pytest.mark.fault(2)
@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.long)])
def test_power_cuts(memory: Path, rounds: int, proved: Callable[[str], None]) -> None:
    """SYNC_FLUSH. The cut is at a random moment; the journal of pops and the wheel are as they were
    flushed, or zeros."""
    cache, pending = PageCache(memory), Pending()
    chance = random.Random(pending.seed)
    broker = OurBroker(memory, flushDiskType="SYNC_FLUSH", syncFlushTimeout=20_000, **SETTINGS)
    broker.env = cache.environment("/commitlog/")
    with broker:
        for _ in range(rounds):
            with broker.start().client() as client:
                make_pending(client, pending, soon_ms=4_000, count=12)
            moment = time.monotonic() + chance.uniform(0, 3)
            wait_until(lambda at=moment: time.monotonic() > at)
            broker.crash()
            cache.cut_power(broker.store_dir)
        broker.start()
        judge(broker, pending, now_ms(), keeps_cache=False)
        assert broker.terminate() == 0
        assert broker.check().errors == []
    proved(f"{rounds} power cuts: {len(pending.due_ms)} timers, {len(pending.visible_ms)} pops")


@pytest.mark.long
@pytest.mark.fault(28)
def test_a_full_disk(tmp_path: Path) -> None:
    """Timers and pops become due while nothing can be stored."""
    pending = Pending()
    with small_disk(tmp_path / "small", 64) as disk:
        broker = OurBroker(
            tmp_path, storePathRootDir=disk.path / "store", cleanResourceInterval=200, **SETTINGS
        )
        broker.store_dir = disk.path / "store"
        with broker:
            with broker.start().client() as client:
                make_pending(client, pending, soon_ms=4_000)
                disk.fill()
                first = min(pending.due_ms.values())
                wait_until(lambda: now_ms() > max(pending.due_ms.values()))
                assert client.send(POPPED, 0, b"refused").code != 0 or now_ms() > first
            disk.make_room()
            judge(broker, pending, now_ms(), keeps_cache=True)


@pytest.mark.long
@pytest.mark.fault(11)
def test_a_slave_is_promoted(tmp_path: Path) -> None:
    """What the slave does not know to be acknowledged or delivered may come again."""
    pending = Pending()
    with Group(tmp_path).running() as group:
        first, second = group.first, group.second
        for broker in (first, second):
            broker.settings.update(SETTINGS)
        group.start(first, SYNC_MASTER)
        group.start(second, SLAVE)
        with first.client() as client:
            wait_until(lambda: client.send("T", 0, b"x").code == 0, 30)
            make_pending(client, pending, soon_ms=4_000, count=12)
        topics = second.store_dir / "config" / "topics.json"
        wait_until(lambda: topics.exists() and f'"{TIMED}"' in topics.read_text(), 30)
        first.crash()
        assert second.terminate() == 0
        group.start(second, ASYNC_MASTER)
        judge(second, pending, now_ms(), keeps_cache=False)


@pytest.mark.long
@pytest.mark.fault(33)
def test_the_clock_is_set(tmp_path: Path) -> None:
    """Forth: what is due by the new time comes. Back: what is to come tomorrow comes when the clock
    says so again."""
    offset, pending = tmp_path / "offset", Pending()
    offset.write_bytes(WALL_OFFSET.pack(0))
    broker = OurBroker(tmp_path, **SETTINGS)
    broker.env[WALL_OFFSET_VARIABLE] = str(offset)

    def shift(by_ms: int) -> None:
        with offset.open("r+b") as file:
            file.write(WALL_OFFSET.pack(by_ms))

    with broker, broker.start().client() as client:
        pops = PopClient(client, GROUP, NAME)
        for number in range(3):
            assert client.send(POPPED, 0, b"p%d" % number).code == 0
        wait_until(lambda: client.offset(30, POPPED, 0) == 3)
        hour, tomorrow, acked = pops.pop(POPPED, invisibleTime=HOUR_MS).messages
        assert pops.ack(acked).code == 0
        send_timer(client, b"hour", now_ms() + HOUR_MS)
        assert pops.pop(POPPED).code != 0
        tomorrow = pops.change(tomorrow, 24 * HOUR_MS)
        shift(HOUR_MS + 1_000)
        again = await_popped(pops)
        assert again.message.body == hour.message.body
        wait_until(lambda: [m.body for m in drain(client, TIMED, 0)] == [b"hour"], 30)
        assert pops.ack(again).code == 0
        shift(0)
        assert client.send(POPPED, 0, b"late").code == 0
        late = await_popped(pops, invisibleTime=1_500)
        assert late.message.body == b"late"
        again = await_popped(pops)
        assert (again.message.body, again.message.reconsume_times) == (b"late", 1)
        assert pops.ack(again).code == 0
        shift(24 * HOUR_MS + 60_000)
        assert await_popped(pops).message.body == tomorrow.message.body
        assert pops.pop(POPPED).code != 0
    assert pending.acked == set()


def await_popped(pops: PopClient, **fields: object) -> PoppedMessage:
    """The next message that can be popped; bornTime 0 is the broker's own clock."""
    found: list[PoppedMessage] = []

    def is_there() -> bool:
        found.extend(pops.pop(POPPED, maxMsgNums=1, **fields).messages)
        return bool(found)

    wait_until(is_there, 30)
    return found[0]


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def tear(path: Path) -> None:
    """Every other page is zeros."""
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        with file.open("r+b") as opened:
            for at in range(0, os.fstat(opened.fileno()).st_size, 8192):
                opened.seek(at)
                opened.write(bytes(min(4096, os.fstat(opened.fileno()).st_size - at)))


@pytest.mark.long
@pytest.mark.fault(26)
@pytest.mark.parametrize("damage", [remove, tear])
@pytest.mark.parametrize(
    "names", [("timerwheel",), ("timerlog",), ("timerwheel", "timerlog", "config/timercheck")]
)
def test_wheel_and_log_are_damaged(
    tmp_path: Path, damage: Callable[[Path], None], names: tuple[str, ...]
) -> None:
    """Both are made again from the commit log; popped messages that wait in the timer, too. Without
    the check point what was delivered last is delivered again."""
    pending = Pending()
    with OurBroker(tmp_path, **SETTINGS) as broker:
        with broker.start().client() as client:
            make_pending(client, pending, soon_ms=6_000)
            wait_until(lambda: now_ms() > min(pending.due_ms.values()))
        broker.crash()
        for name in names:
            damage(broker.store_dir / name)
        broker.start()
        with broker.client() as client:
            back_ms = now_ms()
            judge_pops(client, pending, back_ms, keeps_cache=len(names) == 1)
            judge_timers(client, pending, back_ms, keeps_cache=False)

"""Every fault of docs/durability.md against every setting: real pairs, judged by clients' acks.

One function a fault, one case a code (A1 to S4): what may be lost at that code, and on which
broker, is what the page says. Cases that no other test of `bin/test --slow` shows are in that, all
others in `bin/test --long`.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from broker.supervisor.boot_info import EXIT_FLUSH_FAILED
from remoting.response_code import ResponseCode
from store.control_slots import FENCE_COUNT
from tests.faults import page_cache
from tests.faults.durability_pair import FLUSH_INTERVAL_S, SETTINGS, DurabilityPair
from tests.faults.ledger import TOPIC
from tests.faults.shim import compile_shim
from tests.support.broker_group import counters_of, log_of
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tools.chaos.relay import Relay
from tools.chaos.schedule import FaultKind

FULL_DISK: Final = Path(__file__).parent / "full_disk.c"
STALE_S: Final = 1.5
"""ASYNC_FLUSH: an older acknowledgement than this is on disk. The interval, and what a flush of a
busy machine takes; of the machine's own time."""
SLAVE_IS_MISSING: Final = {ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE}
LONG_S: Final = 60.0
Proved = Callable[[str], None]


def every_code(*often: str) -> pytest.MarkDecorator:
    """A case for each setting; those of `often` are in `bin/test --slow`."""
    cases = [
        pytest.param(code, marks=pytest.mark.slow if code in often else pytest.mark.long)
        for code in SETTINGS
    ]
    return pytest.mark.parametrize("pair", cases, indirect=True)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("shims")
    return compile_shim(page_cache.SOURCE, directory), compile_shim(FULL_DISK, directory)


@pytest.fixture
def pair(
    request: pytest.FixtureRequest, libraries: tuple[Path, Path], tmp_path: Path
) -> Iterator[DurabilityPair]:
    """Not started yet."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="durability-", dir=memory if memory.is_dir() else tmp_path
    ) as directory:
        made = DurabilityPair(Path(directory), SETTINGS[request.param], libraries)
        with made.group.running():
            yield made


# -- processes ---------------------------------------------------------------------------------


@every_code()
def test_one_process_is_killed(pair: DurabilityPair, proved: Proved) -> None:
    pair.start()
    took_s = []
    with pair.load() as senders:
        for broker in (pair.master, pair.slave):
            for name in ("ha", "store", "remoting"):
                took_s.append(broker.restart_by_kill(name, LONG_S))
                pair.promises.wait_for_more(30, LONG_S)
        for broker in (pair.slave, pair.master):
            pair.kill_supervisor(broker)
        senders.stop()
    start_s = pair.start_master(pair.master)
    pair.assert_nothing_lost(pair.master)
    pair.start_slave(pair.slave)
    pair.assert_equal()
    slowest = f"{max(took_s):.1f} s"
    proved(pair.proved("each process killed", slowest=slowest, start=f"{start_s:.1f} s"))


@every_code()
def test_all_processes_are_killed(pair: DurabilityPair, proved: Proved) -> None:
    pair.start()
    with pair.load() as senders:
        pair.slave.crash()
        pair.start_slave(pair.slave)
        pair.promises.wait_for_more(100, LONG_S)
        pair.master.crash()
        senders.stop()
    if pair.setting.is_sync_master:
        pair.assert_nothing_lost(pair.slave)
    pair.slave.crash()
    took_s = pair.start_master(pair.master)
    pair.assert_nothing_lost(pair.master)
    pair.start_slave(pair.slave)
    pair.assert_equal()
    proved(pair.proved("both killed", start=f"{took_s:.1f} s"))


# -- machines ----------------------------------------------------------------------------------


def assert_only_the_end_is_lost(pair: DurabilityPair, before: bytes, crashed_s: float) -> int:
    """Of a master with ASYNC_FLUSH: its log is a beginning of the one before, and what is lost was
    younger than the interval. How many messages are lost."""
    after = log_of(pair.master)
    assert before.startswith(after)
    lost = pair.lost(pair.master)
    age_s = max((crashed_s - pair.promises.at_s[place] for place in lost), default=0.0)
    assert age_s < STALE_S
    return len(lost)


def load_until_old_answers(pair: DurabilityPair) -> float:
    """Sends for longer than STALE_S, so that a log that is not flushed is seen, and less than a log
    file, which is flushed when it is full; then the master is killed. When that was."""
    with pair.load(pause_s=0.05) as senders:
        if not pair.setting.is_sync_flush:
            began_s = pair.promises.now_s()
            wait_until(lambda: pair.promises.now_s() > began_s + STALE_S + FLUSH_INTERVAL_S, LONG_S)
        pair.promises.wait_for_more(100, LONG_S)
        crashed_s = pair.promises.now_s()
        pair.master.crash()
        senders.stop()
    return crashed_s


def assert_after_the_crash(pair: DurabilityPair, crashed_s: float) -> str:
    """The master's machine has crashed: with SYNC_FLUSH it has everything, else all but the end."""
    before = log_of(pair.master)
    pair.cut_power(pair.master)
    took_s = pair.start_master(pair.master)
    if pair.setting.is_sync_flush:
        pair.assert_nothing_lost(pair.master)
        return f"the master has all, start {took_s:.1f} s"
    lost = assert_only_the_end_is_lost(pair, before, crashed_s)
    return f"the master lacks the last {lost}, start {took_s:.1f} s"


@every_code("S2")
def test_the_masters_machine_crashes(pair: DurabilityPair, proved: Proved) -> None:
    """What the master lacks then, a slave of a SYNC_MASTER has. That slave is promoted, and the old
    master follows it: it may hold what the slave never got, which was not acknowledged."""
    pair.start()
    crashed_s = load_until_old_answers(pair)
    pair.slave.crash()
    ending = assert_after_the_crash(pair, crashed_s)
    pair.master.crash()
    pair.start_master(pair.slave)
    lost = pair.lost(pair.slave)
    if pair.setting.is_sync_master:
        assert not lost
    pair.forget(lost)
    pair.change_roles()
    pair.start_slave(pair.slave, haTruncateDiverged="true")
    pair.assert_equal()
    proved(pair.proved(f"master's machine crashed, {ending}", slave_lacked=len(lost)))


@every_code("A4")
def test_the_slaves_machine_crashes(pair: DurabilityPair, proved: Proved) -> None:
    """It fetches again what its disk does not have."""
    pair.start()
    with pair.load():
        pair.crash_machine(pair.slave)
        pair.start_slave(pair.slave)
        pair.promises.wait_for_more(100, LONG_S)
        pair.wait_in_sync_under_load()
    pair.assert_equal()
    proved(pair.proved("slave's machine crashed"))


@every_code("S4")
def test_both_machines_crash(pair: DurabilityPair, proved: Proved) -> None:
    """Each broker by itself: what it must have then."""
    pair.start()
    crashed_s = load_until_old_answers(pair)
    pair.crash_machine(pair.slave)
    if pair.setting.is_on_slaves_disk:
        pair.start_master(pair.slave)
        pair.assert_nothing_lost(pair.slave)
        pair.slave.crash()
    proved(pair.proved(f"both machines crashed, {assert_after_the_crash(pair, crashed_s)}"))


# -- disks -------------------------------------------------------------------------------------


@every_code("S3")
def test_a_disk_is_lost(pair: DurabilityPair, proved: Proved) -> None:
    """The master's: the slave is promoted. The slave's: that master comes back as an empty slave,
    and gets the whole history under load."""
    pair.start()
    with pair.load() as senders:
        pair.master.crash()
        senders.stop()
    pair.lose_disk(pair.master)
    pair.slave.crash()
    took_s = pair.start_master(pair.slave)
    lost = pair.lost(pair.slave)
    if pair.setting.is_sync_master:
        assert not lost
    pair.forget(lost)
    pair.change_roles()
    pair.start_slave(pair.slave)
    with pair.load():
        pair.wait_in_sync_under_load()
    pair.assert_equal()
    proved(pair.proved("each disk lost", lost=len(lost), promotion=f"{took_s:.1f} s"))


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["A2"], indirect=True)
def test_a_topic_that_the_promoted_slave_has_not_heard_of(pair: DurabilityPair) -> None:
    """It puts the topic back from its queues and serves its messages."""
    for broker in (pair.master, pair.slave):
        pair.topics_of(broker).unlink()
    pair.start_master(pair.master)
    with pair.master.client() as client:
        client.send("Heard", 0, b"before the slave asks once")
    pair.start_slave(pair.slave, slaveSyncInterval=600_000)
    wait_until(lambda: pair.knows(pair.slave, "Heard"), LONG_S)
    pair.wait_recorded(first_copy=True)
    with pair.load() as senders:
        pair.master.crash()
        senders.stop()
    pair.slave.crash()
    pair.start_master(pair.slave)
    with pair.slave.client() as client:
        assert client.pull(TOPIC, 0, 0).code == ResponseCode.SUCCESS
        assert client.send(TOPIC, 0, b"9:00000001:").code in SLAVE_IS_MISSING
    pair.assert_nothing_lost(pair.slave)


@every_code("S2")
def test_a_full_disk(pair: DurabilityPair, proved: Proved) -> None:
    """The slave's: it waits, and a SYNC_MASTER says so. The master's: sends are refused, pulls go
    on. Room is enough for both to go on."""
    pair.start()
    codes = pair.promises.codes
    with pair.full(pair.slave):
        with pair.load(size=20_000, first=5) as senders:
            if pair.setting.is_sync_master:
                # More than the senders have under way: these have been given up.
                wait_until(lambda: pair.lag() > 200_000 and SLAVE_IS_MISSING & {*codes}, LONG_S)
                senders.stop()
                pair.assert_nothing_lost(pair.slave)
            else:
                wait_until(lambda: pair.lag() > pair.file_size, LONG_S)
        pair.assert_nothing_lost(pair.master)
    pair.assert_equal()
    children = pair.master.children()
    with pair.full(pair.master), pair.load(size=20_000, first=5) as senders:
        wait_until(lambda: codes[ResponseCode.SERVICE_NOT_AVAILABLE] > 10, LONG_S)
        senders.stop()
        pair.assert_nothing_lost()
    wait_until(lambda: pair.code_of_a_send() == ResponseCode.SUCCESS, LONG_S)
    assert pair.master.children() == children
    pair.assert_equal()
    assert set(codes) <= {0, ResponseCode.SERVICE_NOT_AVAILABLE, *SLAVE_IS_MISSING}
    proved(pair.proved("each disk full", refused=codes[ResponseCode.SERVICE_NOT_AVAILABLE]))


@every_code("A2")
def test_the_masters_sync_fails(pair: DurabilityPair, proved: Proved) -> None:
    """It stops; a slave of a SYNC_MASTER has every SEND_OK; started again, the master has, too."""
    pair.start()
    with pair.load() as senders:
        pair.disks[pair.master].fail_once()
        assert pair.master.wait_ended(LONG_S) == EXIT_FLUSH_FAILED
        senders.stop()
    assert pair.disks[pair.master].has_failed
    if pair.setting.is_sync_master:
        pair.assert_nothing_lost(pair.slave)
    took_s = pair.start_master(pair.master)
    with pair.load():
        pair.promises.wait_for_more(50, LONG_S)
    pair.assert_equal()
    proved(pair.proved("master's fdatasync failed", start=f"{took_s:.1f} s"))


@every_code("S4")
def test_the_slaves_sync_fails(pair: DurabilityPair, proved: Proved) -> None:
    """It stops; the statuses of a SYNC_MASTER say so. With `flushed` its disk has every SEND_OK:
    shown by a crash of its machine before the next start."""
    pair.start()
    with pair.load() as senders:
        pair.disks[pair.slave].fail_once()
        assert pair.slave.wait_ended(LONG_S) == EXIT_FLUSH_FAILED
        senders.stop()
    assert pair.disks[pair.slave].has_failed
    code = pair.code_of_a_send()
    assert code in SLAVE_IS_MISSING if pair.setting.is_sync_master else code == 0
    if pair.setting.is_on_slaves_disk:
        pair.master.crash()
        pair.cut_power(pair.slave)
        pair.start_master(pair.slave)
        pair.assert_nothing_lost(pair.slave)
        pair.slave.crash()
        pair.start_master(pair.master)
    pair.start_slave(pair.slave)
    with pair.load():
        pair.wait_in_sync_under_load()
    pair.assert_equal()
    proved(pair.proved(f"slave's fdatasync failed, a send said {code} then"))


# -- bits --------------------------------------------------------------------------------------


def flip_record(broker: OurBroker, number: int) -> None:
    """One bit in the magic of a record of the first log file."""
    path = broker.store_dir / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    at = 0
    for _ in range(number):
        at += int.from_bytes(data[at : at + 4], "big")
    data[at + 4] ^= 0x10
    path.write_bytes(data)


@every_code()
def test_bits_flip_on_both_disks(pair: DurabilityPair, proved: Proved) -> None:
    """Each broker repairs its records with those of the other, byte for byte."""
    pair.start()
    with pair.load():
        pair.promises.wait_for_more(100, LONG_S)
    pair.wait_in_sync()
    before = log_of(pair.master)
    pair.slave.crash()
    pair.master.crash()
    flip_record(pair.master, 30)
    flip_record(pair.slave, 60)
    pair.start_master(pair.master)
    pair.start_slave(pair.slave)
    with counters_of(pair.master) as master, counters_of(pair.slave) as slave:
        wait_until(lambda: master[FENCE_COUNT] == slave[FENCE_COUNT] == 0, LONG_S)
    pair.assert_equal()
    assert log_of(pair.master)[: len(before)] == before
    for broker in (pair.master, pair.slave):
        assert list(broker.store_dir.glob("commitlog-damaged-*"))
    proved(pair.proved("a flipped bit on each disk, both repaired"))


@every_code()
def test_bits_flip_on_the_link(pair: DurabilityPair, proved: Proved) -> None:
    """What is damaged is received again: the same logs, whatever was acknowledged meanwhile."""
    relay = Relay(("127.0.0.1", pair.ha_port), seed=2)
    try:
        pair.start(haMasterAddress=f"127.0.0.1:{relay.port}")
        with pair.load():
            relay.set_mode(FaultKind.FLIP)
            wait_until(lambda: relay.flipped >= 5, LONG_S)
            relay.set_mode(None)
            pair.promises.wait_for_more(30, LONG_S)
        pair.assert_equal()
    finally:
        relay.close()
    proved(pair.proved("bits flipped on the link", flips=relay.flipped))


# -- the network -------------------------------------------------------------------------------


@every_code("A3")
def test_the_network_is_cut(pair: DurabilityPair, proved: Proved) -> None:
    """Cut with both connections open, then a slave that stands still."""
    relay = Relay(("127.0.0.1", pair.ha_port), seed=1)
    try:
        pair.start(haMasterAddress=f"127.0.0.1:{relay.port}")
        with pair.load():
            relay.set_mode(FaultKind.PARTITION)
            codes = while_the_slave_is_away(pair)
            relay.set_mode(None)
            pair.promises.wait_for_more(30, LONG_S)
            pair.wait_in_sync_under_load()
            pid = pair.slave.stop("ha")
            codes |= while_the_slave_is_away(pair)
            os.kill(pid, signal.SIGCONT)
            pair.promises.wait_for_more(30, LONG_S)
        pair.assert_equal()
    finally:
        relay.close()
    proved(pair.proved(f"link cut, slave hung, answers {sorted(codes)} meanwhile"))


def while_the_slave_is_away(pair: DurabilityPair) -> set[int]:
    """No SEND_OK of a SYNC_MASTER, of an ASYNC_MASTER nothing else; the codes."""
    if not pair.setting.is_sync_master:
        codes = {pair.code_of_a_send() for _ in range(20)}
        assert codes == {ResponseCode.SUCCESS}
        return codes
    late = pair.promises.codes[ResponseCode.FLUSH_SLAVE_TIMEOUT]
    # From then on nothing passes: the relay may have been in the middle of a piece.
    wait_until(lambda: pair.promises.codes[ResponseCode.FLUSH_SLAVE_TIMEOUT] > late, LONG_S)
    codes = set()

    def is_given_up() -> bool:
        codes.add(pair.code_of_a_send())
        return ResponseCode.SLAVE_NOT_AVAILABLE in codes

    wait_until(is_given_up, LONG_S)
    assert codes <= SLAVE_IS_MISSING
    return codes

"""The next commit log file is late: who hears SYSTEM_BUSY, who waits, and that nothing freezes."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from remoting.response_code import ResponseCode
from tests.faults.ledger import TOPIC, Ledger, Senders, assert_nothing_lost, assert_stops_clean
from tests.faults.shim import compile_shim
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker, Sent

SHIM = Path(__file__).parent / "slow_fallocate.c"
WORDS = "broker busy, start flow control for a while, period in queue: (\\d+)ms, size of queue: 0"
REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
BODY = bytes(200_000)
LATE = "the next commit log file could not be created in time; see store.log"


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that makes files' allocation wait while a file is there."""
    return compile_shim(SHIM, tmp_path_factory.mktemp("shim"))


def send_until(client: FrameClient, code: int, remark: str = "") -> list[Sent]:
    """Send large messages, one after the other, until one is answered so; all answers."""
    answers: list[Sent] = []

    def is_there() -> bool:
        answers.append(client.send("Filler", 0, BODY))
        return answers[-1].code == code and re.match(remark, answers[-1].remark) is not None

    wait_until(is_there, 40)
    return answers


def test_a_slow_disk(tmp_path: Path, shim: Path) -> None:
    """`store` works but its files are late: sends are refused early with RocketMQ's words,
    everything else is answered meanwhile, and sends go on once a file is there."""
    switch = tmp_path / "the disk is slow"
    ledger = Ledger()
    broker = OurBroker(tmp_path)
    broker.env = {"LD_PRELOAD": str(shim), "SLOW_FALLOCATE": str(switch)}
    with broker.start(), broker.client() as client, broker.client() as other:
        with Senders(broker, ledger):
            ledger.wait_for_more(100)
        # The queues and the index have their files: dispatch must not wait for the disk, too,
        # since a store that does not beat for 30 s is replaced.
        client.send("Filler", 0, b"first", "dispatched")
        wait_until(lambda: client.query("Filler", "dispatched"))
        switch.touch()
        late = send_until(client, ResponseCode.SYSTEM_BUSY)[-1]
        period = re.fullmatch(rf"\[(TIMEOUT|PCBUSY)_CLEAN_QUEUE\]{WORDS}", late.remark)
        assert period is not None, late.remark
        assert int(period[2]) >= 200
        # One that waits and one beside it: the loop answers.
        opaque = client.post_send("Filler", 0, BODY)
        assert other.offset(30, TOPIC, 0) > 0
        assert client.take_send(opaque).code != ResponseCode.SUCCESS
        send_until(client, ResponseCode.SYSTEM_BUSY, re.escape(REJECTED))
        runtime = other.call(28, {}).body.decode()
        blocked = re.search(r'"pageCacheLockTimeMills":"(\d+)"', runtime)
        assert blocked is not None
        assert int(blocked[1]) > 1_000
        switch.unlink()
        send_until(client, ResponseCode.SUCCESS)
        assert "ended with code" not in broker.output()
        assert_nothing_lost(broker, ledger)
        assert_stops_clean(broker)


@pytest.mark.slow
def test_a_slow_disk_with_fast_failure_off(tmp_path: Path, shim: Path) -> None:
    """Sends wait for as long as the line lets them; nobody hears SYSTEM_BUSY."""
    switch = tmp_path / "the disk is slow"
    broker = OurBroker(tmp_path, brokerFastFailureEnable="false")
    broker.env = {"LD_PRELOAD": str(shim), "SLOW_FALLOCATE": str(switch)}
    with broker.start(), broker.client(timeout_s=30) as client:
        switch.touch()
        answers = send_until(client, ResponseCode.SYSTEM_ERROR)
        assert answers[-1].remark == LATE
        switch.unlink()
        answers += send_until(client, ResponseCode.SUCCESS)
        codes = {answer.code for answer in answers}
        assert codes == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}
        assert_stops_clean(broker)


@pytest.mark.slow
def test_a_store_that_stands_still_is_no_slow_disk(tmp_path: Path) -> None:
    """It does not beat: it may be on its way back, or be replaced soon. So sends wait, are refused
    after five seconds with a code that Java's producers try again elsewhere, and go on when it
    does. The supervisor's watchdog (30 s) does not come into it."""
    with OurBroker(tmp_path).start() as broker, broker.client(timeout_s=30) as client:
        assert client.send(TOPIC, 0, b"first").code == ResponseCode.SUCCESS
        pid = broker.stop("store")
        answers = send_until(client, ResponseCode.SYSTEM_ERROR)
        assert answers[-1].remark == LATE
        os.kill(pid, signal.SIGCONT)
        answers += send_until(client, ResponseCode.SUCCESS)
        codes = {answer.code for answer in answers}
        assert codes == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}
        assert "no beat for" not in broker.output()
        assert_stops_clean(broker)

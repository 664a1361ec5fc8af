"""What the terminal and /readyz tell of a broker that was started where it cannot work."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from conf.errors import EXIT_CANNOT_START
from store.dledger.unfinished_import import REPORT_NAME
from tests.faults.shim import compile_shim
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker

FULL_DISK = Path(__file__).parent / "full_disk.c"
TOPIC = "Told"


def readyz(broker: OurBroker) -> tuple[int, str]:
    """Status and text of /readyz."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.ports['metrics']}/readyz") as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_disk_that_cannot_hold_one_log_file(tmp_path: Path) -> None:
    """The terminal, /readyz and a send's answer say why; room brings the sends back."""
    full = tmp_path / "the disk is full"
    full.touch()
    broker = OurBroker(tmp_path)
    shim = compile_shim(FULL_DISK, tmp_path)
    broker.env = {"LD_PRELOAD": str(shim), "FULL_DISK": str(full)}
    with broker.start(), broker.client() as client:
        file = broker.store_dir / "commitlog" / f"{0:020}"
        reason = f"{file}: no room for {1 << 20} bytes (No space left on device); free space"
        wait_until(lambda: broker.output().count("the store rejects writes") == 2)
        *_, early, booted, line = broker.output().splitlines()
        assert "boot success" in booted, "why nothing is taken is said when it is seen, and last"
        for each in (early, line):
            assert "ERROR" in each
            assert reason in each
        assert reason in broker.log("store")
        status, text = readyz(broker)
        assert (status, text.startswith(f"the store rejects writes: {reason}")) == (503, True)
        refused = client.send(TOPIC, 0, b"x")
        assert refused.code == 14
        assert reason in refused.remark
        full.unlink()
        wait_until(lambda: client.send(TOPIC, 0, b"x").code == 0)
        wait_until(lambda: "the store accepts writes again" in broker.output())
        assert readyz(broker) == (200, "ready\n")
        assert broker.output().count("rejects writes") == 2


def test_a_slave_whose_role_was_forgotten(tmp_path: Path) -> None:
    broker = OurBroker(tmp_path, brokerId=1)
    with broker.start(wait=False):
        assert broker.wait_ended() == 253
        assert "brokerId = 1 without brokerRole" in broker.output()
        assert not broker.store_dir.exists()
        broker.settings["brokerRole"] = "ASYNC_MASTER"
        broker.start()
        assert "WARNING" in broker.output()
        assert "brokerId = 1 has no effect" in broker.output()
        assert broker.terminate() == 0


def test_a_home_that_is_not_there(tmp_path: Path) -> None:
    broker = OurBroker(tmp_path)
    broker.env = {"ROCKETMQ_HOME": str(tmp_path / "gone")}
    with broker.start(wait=False):
        assert broker.wait_ended() == 254
        [line] = broker.output().splitlines()
        assert line.startswith("Please set the ROCKETMQ_HOME variable in your environment")
        assert f"{tmp_path / 'gone'} is not a directory" in line
        assert not broker.store_dir.exists()


def test_an_adopted_store_with_the_log_of_the_broker_before(tmp_path: Path) -> None:
    """Its settings name the log that it left, into which this start would write."""
    broker, before = OurBroker(tmp_path), tmp_path / "before"
    for directory in (broker.store_dir / "commitlog", before):
        directory.mkdir(parents=True)
        (directory / ("0" * 20)).write_bytes(bytes(4096))
    (broker.store_dir / REPORT_NAME).touch()
    broker.settings["storePathCommitLog"] = before
    with broker.start(wait=False):
        assert broker.wait_ended(40) == EXIT_CANNOT_START
        output = broker.output()
        assert (
            f"mqbroker: the store cannot be opened: {broker.store_dir}/commitlog: the log" in output
        )
        assert f"storePathCommitLog names {before}; remove that line, or move the files" in output
        assert "boot success" not in output
        assert "Traceback" not in output + broker.logs()
        assert [path.name for path in before.iterdir()] == ["0" * 20], "nothing was made there"

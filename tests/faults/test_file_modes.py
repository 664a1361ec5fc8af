"""What a broker and a name server create is for their user only, whatever the shell's mask is; what
was there is left alone; a file with secrets that others may read is named at the start."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.remoting_command import RemotingCommand
from tests.broker.acl.test_acl_served import ACCOUNTS, OPERATOR, client, home_of
from tests.namesrv.namesrv_peer import Peer
from tests.namesrv.test_namesrv_main import Start, start
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tests.support.own_process import boot_port

__all__ = ["start"]


@pytest.fixture(autouse=True)
def loose_umask() -> Iterator[None]:
    """A shell's default."""
    old = os.umask(0o022)
    yield
    os.umask(old)


def modes_below(*roots: Path) -> dict[str, int]:
    found = [path for root in roots for path in (root, *root.rglob("*"))]
    return {str(path): stat.S_IMODE(path.stat().st_mode) for path in found}


def used(broker: OurBroker) -> None:
    """Until there are all kinds of files: log, queues, index, tables and their backups, dumps."""
    with broker.client() as client:
        for number in range(20):
            assert client.send("Made", 0, b"x", key=f"k{number}").code == 0
        wait_until(lambda: len(client.query("Made", "k19")) == 1)
        client.call(15, {"consumerGroup": "g", "topic": "Made", "queueId": 0, "commitOffset": 3})
    wait_until(lambda: any((broker.store_dir / "metrics").rglob("*.jsonl*")))
    assert broker.terminate() == 0


def test_what_a_broker_creates(tmp_path: Path) -> None:
    broker = OurBroker(tmp_path / "made", metricsDumpIntervalSeconds=1)
    run = tmp_path / "run"
    broker.env = {"ROCKETMQ_RUN_DIR": str(run)}
    with broker.start():
        pid_file = next(run.iterdir())
        assert stat.S_IMODE(pid_file.stat().st_mode) == 0o600
        used(broker)
    found = modes_below(broker.store_dir, broker.log_dir, run)
    assert found == {path: 0o700 if Path(path).is_dir() else 0o600 for path in found}
    parts = {part for path in found for part in Path(path).parts}
    assert parts >= {"commitlog", "consumequeue", "index", "checkpoint", "topics.json"}
    assert parts >= {"consumerOffset.json", "metrics", "otherdays", "remoting.log", "lock"}


def test_what_was_there_is_left_alone(tmp_path: Path) -> None:
    """And what is new is for a group that reads, if the setting says so."""
    broker = OurBroker(tmp_path, umask="0027")
    broker.store_dir.mkdir(mode=0o755)
    broker.log_dir.mkdir(mode=0o755)
    (broker.log_dir / "store.log").write_text("")
    with broker.start():
        pass
    found = modes_below(broker.store_dir, broker.log_dir)
    kept = (broker.store_dir, broker.log_dir, broker.log_dir / "store.log")
    assert [found[str(path)] for path in kept] == [0o755, 0o755, 0o644]
    assert found[str(broker.store_dir / "commitlog")] == 0o750
    assert found[str(broker.log_dir / "broker.log")] == 0o640


def test_access_files_that_others_may_read(tmp_path: Path) -> None:
    """They are named at the start; a change, and what is kept of the old one, is not for others."""
    home = home_of(tmp_path / "home", ACCOUNTS)
    files = [home / "conf" / name for name in ("plain_acl.yml", "tools.yml")]
    broker = OurBroker(tmp_path / "broker", aclEnable="true", rocketmqHome=home)
    with broker.start(), client(broker, OPERATOR) as operator:
        warnings = [line for line in broker.log("broker").splitlines() if "holds secrets" in line]
        assert len(warnings) == 2
        for path in files:
            (line,) = (line for line in warnings if f"{path} holds secrets and" in line)
            assert line.endswith(f"chmod 600 {path} (0640 lets a group read)")
        change = {"accessKey": "new-account", "secretKey": "brand-new-secret"}
        assert operator.call(50, change).code == 0
        for path in (files[0], files[0].with_name("plain_acl.yml.bak")):
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
    files[0].chmod(0o600)
    files[1].chmod(0o600)
    with broker.start():
        last = broker.output()
    assert "holds secrets" not in last


def test_what_a_name_server_creates(start: Start, tmp_path: Path) -> None:
    process: subprocess.Popen[str] = start(kvConfigPath=f"{tmp_path}/kv/kv.json")
    with Peer(boot_port(process, "Name")) as peer:
        for value in ("1", "2"):
            fields = {"namespace": "n", "key": "k", "value": value}
            assert peer.ask(RemotingCommand.request(100, fields)).code == 0
        found = modes_below(tmp_path / "kv", tmp_path / "logs", tmp_path / "run")
    assert len(found) >= 8
    assert found == {path: 0o700 if Path(path).is_dir() else 0o600 for path in found}


def test_a_mask_that_cannot_be_stops_the_start(tmp_path: Path, start: Start) -> None:
    broker = OurBroker(tmp_path / "broker", umask="0777")
    with broker.start(wait=False):
        assert broker.wait_ended(30) == 255
        assert re.search(r"broker\.conf:\d+: umask: 0777: ", broker.output())
    process = start(umask="rwx")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 255
    assert re.search(r"namesrv\.conf:\d+: umask: rwx: expected an octal", errors)

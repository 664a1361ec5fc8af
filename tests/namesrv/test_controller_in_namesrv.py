"""enableControllerInNamesrv: both serve, both end, and a fault of one is never silent."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from conf.errors import StartupExitError
from namesrv.controller_in_namesrv import Pair
from namesrv.namesrv_startup import load_namesrv_options
from remoting.remoting_command import RemotingCommand
from tests.controller.controller_peer import Peer as ControllerPeer
from tests.namesrv.namesrv_peer import DEADLINE_S, Peer, registration, route
from tests.support.own_process import Start, started
from tools.chaos.free_ports import free_port

ROOT = Path(__file__).parents[2]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a name server with these settings; kills what is left at the end."""
    with started("namesrv", tmp_path, {"kvConfigPath": f"{tmp_path}/kv.json"}) as start:
        yield start


def ports_of(process: subprocess.Popen[str]) -> tuple[int, int]:
    """The one line says both."""
    assert process.stdout is not None
    assert process.stdout.readline().startswith("load config properties file OK, ")
    line = process.stdout.readline().strip()
    namesrv, _, controller = line.partition("; ")
    assert namesrv.startswith("The Name Server boot success. serializeType=JSON, address ")
    assert controller.startswith("The Controller Server boot success. serializeType=JSON, address ")
    return int(namesrv.rpartition(":")[2]), int(controller.rpartition(":")[2])


def with_controller(directory: Path, port: int, **more: str) -> dict[str, str]:
    return {
        "enableControllerInNamesrv": "true",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerStorePath": f"{directory}/controller",
        **more,
    }


def test_one_process_serves_both_until_a_signal(tmp_path: Path, start: Start) -> None:
    """SIGINT ends every program of one process in the same way: test_namesrv_main.py."""
    port = free_port()
    process = start(**with_controller(tmp_path, port))
    namesrv_port, controller_port = ports_of(process)
    assert controller_port == port
    with Peer(namesrv_port) as broker, ControllerPeer(port) as controller:
        assert broker.ask(registration("b")).code == 0
        assert broker.ask(route()).code == 0
        fields = controller.call(1005, {}).ext_fields
        assert fields["controllerLeaderAddress"] == f"127.0.0.1:{port}"
        apply = {"clusterName": "C", "brokerName": "b", "appliedBrokerId": 1}
        code = {"registerCheckCode": "127.0.0.1:1;1"}
        assert controller.call(1013, {**apply, **code}).code == 0
        assert controller.call(105, {"topic": "t"}).code == 3, "each has its own requests"
        assert broker.ask(RemotingCommand.request(1005)).code == 3
        changed = controller.call(1009, {}, b"scanInactiveMasterInterval=7000\n")
        assert changed.code == 0, changed.remark
        changed = broker.ask(RemotingCommand.request(318, body=b"scanNotActiveBrokerInterval=9000"))
        assert changed.code == 0, changed.remark
    assert f"127.0.0.1:{port}" in shown_by_mqadmin(port)
    text = (tmp_path / "namesrv.conf").read_text()
    assert "scanInactiveMasterInterval=7000" in text
    assert "scanNotActiveBrokerInterval=9000" in text
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, out + err
    log = (tmp_path / "logs" / "namesrv.log").read_text()
    assert log.index("controller stopped") < log.index("name server stopped")
    assert '"b"' in (tmp_path / "controller" / "groups.json").read_text()


def shown_by_mqadmin(port: int) -> str:
    """The metadata of the controller at this port."""
    command = [sys.executable, "-m", "tools.mqadmin", "getControllerMetaData"]
    shown = subprocess.run(
        [*command, "-a", f"127.0.0.1:{port}"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=True,
    )
    return shown.stdout


def test_a_controller_that_cannot_start_stops_the_start(tmp_path: Path, start: Start) -> None:
    """As in RocketMQ; nobody finds out later that there is none."""
    (tmp_path / "controller").mkdir()
    (tmp_path / "controller" / "groups.json").write_text("no JSON")
    process = start(**with_controller(tmp_path, free_port()))
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 255
    assert "groups.json" in err


class FakeServer:
    """Serves until it is stopped, or fails."""

    def __init__(self, order: list[str], name: str) -> None:
        self._order, self._name = order, name
        self._end = threading.Event()
        self.fault: Exception | None = None

    def run(self) -> None:
        self._end.wait(DEADLINE_S)
        self._order.append(self._name)
        if self.fault is not None:
            raise self.fault

    def request_stop(self) -> None:
        self._end.set()

    def fail(self) -> None:
        self.fault = OSError("a fault")
        self._end.set()


@pytest.mark.parametrize("failing", ["controller", "namesrv"])
def test_a_fault_of_one_ends_both_and_is_raised(failing: str) -> None:
    order: list[str] = []
    both = {name: FakeServer(order, name) for name in ("controller", "namesrv")}
    timer = threading.Timer(0.1, both[failing].fail)
    timer.start()
    with pytest.raises(OSError, match="a fault"):
        Pair(both["namesrv"], both["controller"]).run()
    assert order == [failing, *({"controller", "namesrv"} - {failing})]


def test_a_stop_ends_the_controller_first() -> None:
    order: list[str] = []
    namesrv, controller = FakeServer(order, "namesrv"), FakeServer(order, "controller")
    pair = Pair(namesrv, controller)
    threading.Timer(0.1, pair.request_stop).start()
    pair.run()
    assert order == ["controller", "namesrv"]


def test_ports_and_settings_of_both(tmp_path: Path) -> None:
    text = "enableControllerInNamesrv=true\nlistenPort=9999\nleaderWarmUpMillis=700\n"
    options = load_namesrv_options(["-c", _write(tmp_path, text)], {"ROCKETMQ_HOME": str(tmp_path)})
    assert options.controller is not None
    assert (options.server.listen_port, options.controller.server.listen_port) == (9999, 9877)
    assert options.controller.controller.leader_warm_up_millis == 700
    assert options.warnings == ()
    path = _write(tmp_path, f"{text}jRaftGroupId=x\n")
    raft = load_namesrv_options(["-c", path], {"ROCKETMQ_HOME": str(tmp_path)})
    assert "jRaftGroupId" in raft.warnings[0], "what a controller ignores, this one ignores, too"
    _write(tmp_path, text)
    with pytest.raises(StartupExitError) as shown:
        load_namesrv_options(["-p", "-c", _write(tmp_path, text)], {})
    assert "leaderWarmUpMillis=700" in shown.value.text
    assert "orderMessageEnable=false" in shown.value.text


def test_without_it_the_controllers_settings_have_no_effect(tmp_path: Path) -> None:
    text = "controllerStorePath=/x\n"
    options = load_namesrv_options(["-c", _write(tmp_path, text)], {"ROCKETMQ_HOME": str(tmp_path)})
    assert options.controller is None
    assert any("controllerStorePath" in warning for warning in options.warnings)


def test_a_wrong_setting_of_the_controller_stops_the_start(tmp_path: Path) -> None:
    text = "enableControllerInNamesrv=true\ncontrollerSelfAddress=nonsense\n"
    with pytest.raises(StartupExitError) as refused:
        load_namesrv_options(["-c", _write(tmp_path, text)], {"ROCKETMQ_HOME": str(tmp_path)})
    assert "controllerSelfAddress" in refused.value.text


def _write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "n.conf"
    path.write_text(text)
    return str(path)

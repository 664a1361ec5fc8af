"""A broker container as real processes: brokers come, go and die while the others run."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.container.broker_container import BrokerContainer
from broker.container.container_startup import load_container_options
from remoting.errors import RequestError
from remoting.request_code import RequestCode
from tests.broker.container.container_world import (
    CLUSTER,
    START_S,
    OurContainer,
    broker_file,
    fixed_port,
    our_container,
)
from tests.support.deadline import wait_until
from tests.support.our_broker import HOME
from tools.chaos.processes import is_running, titled_children

pytestmark = pytest.mark.timeout(240)

TOPIC = "ContainerTopic"


def add(container: OurContainer, path: Path) -> tuple[int, str]:
    with container.client() as client:
        answer = client.call(902, {"configPath": path})
    return answer.code, answer.remark or ""


def remove(container: OurContainer, name: str, broker_id: int = 0) -> tuple[int, str]:
    fields = {"brokerClusterName": CLUSTER, "brokerName": name, "brokerId": broker_id}
    with container.client() as client:
        answer = client.call(903, fields)
    return answer.code, answer.remark or ""


def send(container: OurContainer, name: str) -> None:
    with container.broker_client(name) as client:
        sent = client.send(TOPIC, 0, name.encode())
        assert sent.code == 0, sent


def test_brokers_come_go_and_die_beside_each_other(tmp_path: Path) -> None:
    first = broker_file(tmp_path, "a", listenPort=fixed_port(), metricsPort=0)
    second = broker_file(tmp_path, "b")
    with our_container(tmp_path) as container:
        container.start(first)
        address = container.wait_registered("a")["a"]
        send(container, "a")
        _refused_without_a_trace(container, tmp_path, first)

        assert add(container, second) == (0, "")
        container.wait_registered("a", "b")
        send(container, "b")
        _store_is_killed(container, dies="a", lives="b")
        _supervisor_is_killed(container, dies="b", lives="a")
        assert add(container, second) == (0, ""), "it may come again"
        send(container, "b")
        _supervisor_is_stopped_by_its_operator(container, second)
        _name_server_ends_and_cannot_start(container, tmp_path / "namesrv" / "kvConfig.json")

        assert (container.log_dir / f"{CLUSTER}_a_0" / "store.log").exists()
        assert container.terminate() == 0
        assert not (tmp_path / "a" / "abort").exists(), "an orderly stop"

        # As in RocketMQ: what was added is not kept.
        container.start(first)
        assert container.wait_registered("a") == {"a": address}
        with container.broker_client("a") as client:
            assert client.offset(30, TOPIC, 0) >= 1
        assert container.terminate() == 0


def _refused_without_a_trace(container: OurContainer, root: Path, first: Path) -> None:
    before = container.all_pids()
    port = dict(line.split("=") for line in first.read_text().split())["listenPort"]
    taken = fixed_port()
    os.mkfifo(root / "pipe")
    refused = {
        root / "pipe": "addBroker properties empty: ",
        root / "nowhere.conf": "addBroker properties empty: ",
        first: f"{CLUSTER}_a_0 has already been added to current broker container",
        broker_file(root, "c", listenPort=port): f"start broker failed, {CLUSTER}_c_0: listenPort",
        broker_file(root, "d", storePathRootDir=root / "a"): "is already storePathRootDir of",
        broker_file(root, "e", listenPort=taken, haListenPort=container.port): "in use by another",
        broker_file(root, "f", brokerRole="SLAVE"): "slave broker id must be > 0",
    }
    for path, words in refused.items():
        code, remark = add(container, path)
        assert code == 1
        assert words in remark
    assert remove(container, "nobody") == (211, "Broker not exist")
    assert remove(container, "a", 1) == (211, "Broker not exist")
    assert container.all_pids() == before
    assert container.registered().keys() == {"a"}
    with container.client() as client:
        assert client.call(105, {"topic": TOPIC}).code == 3
        assert b"brokerConfigPaths=" in client.call(26, {}).body


def _store_is_killed(container: OurContainer, *, dies: str, lives: str) -> None:
    """The broker's own supervisor starts it again."""
    supervisors = container.supervisors()
    other = titled_children(supervisors[lives])
    store = titled_children(supervisors[dies])["store"]
    os.kill(store, signal.SIGKILL)
    send(container, lives)
    wait_until(lambda: titled_children(supervisors[dies]).get("store", store) != store, START_S)
    send(container, dies)
    assert container.supervisors() == supervisors
    assert titled_children(supervisors[lives]) == other


def _supervisor_is_killed(container: OurContainer, *, dies: str, lives: str) -> None:
    """The broker's processes end, too; it leaves the container, which goes on."""
    supervisors = container.supervisors()
    processes = titled_children(supervisors[dies]).values()
    os.kill(supervisors[dies], signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, processes)), START_S)
    wait_until(lambda: f"{CLUSTER}_{dies}_0: ended with code -9" in container.output(), START_S)
    assert remove(container, dies) == (211, "Broker not exist")
    assert container.supervisors() == {lives: supervisors[lives]}
    send(container, lives)


def _supervisor_is_stopped_by_its_operator(container: OurContainer, path: Path) -> None:
    """Whoever is impatient with removeBroker may send the signal."""
    os.kill(container.supervisors()["b"], signal.SIGTERM)
    wait_until(lambda: f"{CLUSTER}_b_0: ended with code 0" in container.output(), START_S)
    assert str(path) in container.output()
    container.wait_registered("a")


def _name_server_ends_and_cannot_start(container: OurContainer, file: Path) -> None:
    """It is started again and again; the brokers serve the clients that know them."""
    supervisors, broker = container.supervisors(), container.broker_client("a")
    file.parent.mkdir()
    file.write_text("{")
    os.kill(titled_children(container.pid)["namesrv"], signal.SIGKILL)
    wait_until(lambda: "namesrv: ended with code 3, starting again" in container.output(), START_S)
    with broker:
        assert broker.send(TOPIC, 0, b"no name server").code == 0
    assert container.supervisors() == supervisors
    file.unlink()
    with container.client_of_name_server() as client:
        assert client.call(RequestCode.GET_BROKER_CLUSTER_INFO, {}).code == 0


def test_a_long_start_holds_up_no_other(tmp_path: Path) -> None:
    """What a recovery of an hour is to the others, here a process that stands still is."""
    slow, quick = broker_file(tmp_path, "slow"), broker_file(tmp_path, "quick")
    with our_container(tmp_path) as container, ThreadPoolExecutor(1) as pool:
        container.start()
        before = set(container.all_pids())
        adding = pool.submit(add, container, slow)
        wait_until(lambda: set(container.all_pids()) - before, START_S)
        (pid,) = set(container.all_pids()) - before
        os.kill(pid, signal.SIGSTOP)
        assert add(container, quick) == (0, "")
        container.wait_registered("quick")
        assert add(container, slow)[0] == 1, "it is there already"
        assert remove(container, "quick") == (0, "")
        assert not adding.done()
        assert remove(container, "slow") == (0, ""), "its start is given up"
        assert adding.result()[0] == 1
        assert "it was removed in the meantime" in adding.result()[1]
        assert container.supervisors() == {}
        assert add(container, slow) == (0, "")
        assert container.terminate() == 0


def test_a_file_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    """Every later addBroker waited for it: the settings were read under the lock of all."""
    os.mkfifo(tmp_path / "pipe")
    hanging = broker_file(tmp_path, "h", **{"tls.config.file": tmp_path / "pipe"})
    with our_container(tmp_path) as container, ThreadPoolExecutor(2) as pool:
        container.start()
        first = pool.submit(add, container, hanging)
        time.sleep(1)
        second = pool.submit(add, container, tmp_path / "none.conf")
        try:
            assert "addBroker properties empty" in second.result(20)[1]
            assert not first.done()
        finally:
            (tmp_path / "pipe").write_text("tls.test.mode.enable=perhaps\n")
        assert "tls.test.mode.enable" in first.result(20)[1]
        assert container.terminate() == 0


def test_a_container_that_stops_starts_no_broker(tmp_path: Path) -> None:
    options = load_container_options([], {"ROCKETMQ_HOME": str(HOME)})
    container = BrokerContainer(
        options, "", {}, life_fd=-1, is_pinning=lambda: False, say=lambda _line: None
    )
    container.stop_starting()
    with pytest.raises(RequestError, match="start broker failed, the broker container stops"):
        container.add_broker(broker_file(tmp_path, "a"))
    assert container.brokers() == []


def test_a_container_that_cannot_start_all_its_brokers_starts_none(tmp_path: Path) -> None:
    first = broker_file(tmp_path, "a")
    with our_container(tmp_path) as container:
        twice = broker_file(tmp_path, "b", storePathRootDir=tmp_path / "a")
        container.start(first, twice, wait=False)
        assert container.wait_ended() == 255
        assert "storePathRootDir" in container.output()
        assert "boot success" not in container.output()

        blocked = tmp_path / "a file"
        blocked.write_text("")
        broken = broker_file(tmp_path, "b", storePathRootDir=blocked / "store")
        container.start(first, broken, wait=False)
        assert container.wait_ended() == 255
        assert f"{CLUSTER}_b_0: " in container.output()
        assert "; the broker container stops" in container.output()
        assert not (tmp_path / "a" / "abort").exists(), "the other one was stopped in order"


def test_a_stop_while_brokers_start(tmp_path: Path) -> None:
    with our_container(tmp_path) as container:
        container.start(broker_file(tmp_path, "a"), wait=False)
        wait_until(lambda: "container boot success" in container.output(), START_S)
        wait_until(lambda: len(container.all_pids()) > 2, START_S)
        assert container.terminate() == 0
        assert "Traceback" not in container.output()
        assert not (tmp_path / "a" / "abort").exists()


def test_brokers_outlive_no_container(tmp_path: Path) -> None:
    with our_container(tmp_path) as container:
        container.start(broker_file(tmp_path, "a"))
        pids = container.all_pids()
        assert len(pids) == 6, "container, name server, supervisor, store, ha, remoting"
        os.kill(container.pid, signal.SIGKILL)
        container.wait_ended()
        wait_until(lambda: not any(map(is_running, pids)), START_S)
        assert not (tmp_path / "a" / "abort").exists(), "they stopped in order"

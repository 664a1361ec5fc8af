"""902, 903, 25 and 26 at the container's port, without a process: codes, remarks, who may ask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.container.broker_container_processor import BrokerContainerProcessor, OperatorsOnly
from broker.container.broker_identity import BrokerIdentity
from broker.container.container_settings import ContainerSettings
from broker.container.container_startup import load_container_options
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.remoting_serializable import loads_lenient
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import FakeConnection

HOME = {"ROCKETMQ_HOME": str(Path(__file__).parents[3])}
PINNING = "brokerCpuPinningEnable"


class FakeBrokers:
    """Remembers what was asked."""

    def __init__(self) -> None:
        self.added: list[Path] = []
        self.removed: list[BrokerIdentity] = []

    def add_broker(self, path: Path) -> BrokerIdentity:
        self.added.append(path)
        return BrokerIdentity("c", "b", 0)

    def remove_broker(self, identity: BrokerIdentity) -> None:
        self.removed.append(identity)


class World:
    def __init__(self, tmp_path: Path, more: str = "") -> None:
        self.conf = tmp_path / "container.conf"
        self.conf.write_text(f"# ours\nlistenPort=10811\nnamesrvAddr=127.0.0.1:9876\n{more}")
        options = load_container_options(["-c", str(self.conf)], HOME)
        self.settings = ContainerSettings(options, lambda: 1_700_000_000_000)
        self.brokers = FakeBrokers()
        self.processor = BrokerContainerProcessor(self.brokers, self.settings)

    def ask(
        self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        request = RemotingCommand.request(code, dict(fields or {}), body)
        return self.processor.process_request(FakeConnection(), request)

    def refusal(
        self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> tuple[int, str]:
        with pytest.raises(RequestError) as caught:
            self.ask(code, fields, body)
        return caught.value.code, caught.value.remark


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_adding_and_removing(world: World) -> None:
    answer = world.ask(902, {"configPath": "/x/b.conf"})
    assert (answer.code, answer.remark) == (0, None)
    fields = {"brokerClusterName": "c", "brokerName": "b", "brokerId": "1"}
    answer = world.ask(903, fields)
    assert (answer.code, answer.remark) == (0, None)
    assert world.brokers.added == [Path("/x/b.conf")]
    assert world.brokers.removed == [BrokerIdentity("c", "b", 1)]


@pytest.mark.parametrize("fields", [{}, {"configPath": ""}])
def test_adding_without_a_path(world: World, fields: dict[str, str]) -> None:
    words = "addBroker config path is empty"
    assert world.refusal(902, fields) == (ResponseCode.SYSTEM_ERROR, words)
    assert world.brokers.added == []


def test_removing_without_a_field(world: World) -> None:
    with pytest.raises(Exception, match="brokerId") as caught:
        world.ask(903, {"brokerClusterName": "c", "brokerName": "b"})
    assert type(caught.value).__name__ == "HeaderError"
    assert world.brokers.removed == []


def test_settings_in_force(world: World) -> None:
    answer = world.ask(26)
    lines = answer.body.decode().splitlines()
    assert lines == sorted(lines, key=lambda line: line.partition("=")[0])
    assert {"listenPort=10811", "namesrvAddr=127.0.0.1:9876", f"{PINNING}=false"} <= set(lines)
    assert loads_lenient(answer.ext_fields["version"].encode())["counter"] == 0


def test_a_change(world: World) -> None:
    answer = world.ask(25, body=f"{PINNING}=true\n".encode())
    assert answer.code == 0
    assert answer.remark == f"applied now: {PINNING}; saved to {world.conf}"
    assert world.settings.container.broker_cpu_pinning_enable
    assert world.conf.read_text().startswith("# ours\nlistenPort=10811\n")
    assert f"{PINNING}=true\n" in world.conf.read_text()
    after = world.ask(26)
    assert f"{PINNING}=true" in after.body.decode().splitlines()
    assert loads_lenient(after.ext_fields["version"].encode())["counter"] == 1


@pytest.mark.parametrize("key", ["brokerConfigPaths", "rocketmqHome", "configBlackList"])
def test_the_black_list(world: World, key: str) -> None:
    before = world.conf.read_text()
    assert world.refusal(25, body=f"{PINNING}=true\n{key}=/x\n".encode()) == (
        ResponseCode.NO_PERMISSION,
        "Can not update config in black list.",
    )
    assert world.conf.read_text() == before
    assert not world.settings.container.broker_cpu_pinning_enable


@pytest.mark.parametrize("listed", [PINNING, f"a; {PINNING} ;b"])
def test_the_operators_black_list(tmp_path: Path, listed: str) -> None:
    refused = World(tmp_path, f"configBlackList={listed}\n").refusal(
        25, body=f"{PINNING}=true\n".encode()
    )
    assert refused == (ResponseCode.NO_PERMISSION, "Can not update config in black list.")


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"listenPort=1\n", ResponseCode.NO_PERMISSION, "Can not update config 'listenPort': it"),
        (b"brokerCpuPinningEnable=some\n", ResponseCode.SYSTEM_ERROR, "expected true or false"),
        (b"\xff\xfe", ResponseCode.SYSTEM_ERROR, "UnsupportedEncodingException"),
        (b"\n" * 250_000, ResponseCode.SYSTEM_ERROR, "250000 lines, the limit is 4096; split it"),
    ],
)
def test_a_change_that_is_refused(world: World, body: bytes, code: int, words: str) -> None:
    before = world.conf.read_text()
    answered, remark = world.refusal(25, body=body)
    assert answered == code
    assert words in remark
    assert world.conf.read_text() == before


def test_who_may_ask() -> None:
    gate = OperatorsOnly("127.0.0.0/8")
    stranger, own = FakeConnection("10.0.0.1:4000"), FakeConnection("127.0.0.1:4000")
    gate.check(stranger, RemotingCommand.request(26))
    for code in (902, 903, 25):
        gate.check(own, RemotingCommand.request(code))
        with pytest.raises(RequestError, match="adminAllowedAddresses") as caught:
            gate.check(stranger, RemotingCommand.request(code))
        assert caught.value.code == ResponseCode.NO_PERMISSION

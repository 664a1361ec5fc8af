"""The command channel between two ends: answers, errors, deadlines, late answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from ha.ha_config import HaConfig
from ha.replica_registry import MAX_REMEMBERED
from ipc.clock import SystemClock
from ipc.command_channel import (
    MAX_PACKET,
    CommandClient,
    CommandError,
    CommandServer,
    create_channel,
)
from tests.broker.broker_fakes import FakeClock
from tests.support.deadline import wait_until
from tests.support.readiness import events_of

TIMEOUT_MS = 5_000
SENT_MS = 300
"""Too short for an answer that nobody gives; enough for the request to be on its way."""


class World:
    def __init__(self) -> None:
        self.asking, self.answering = create_channel()
        self.clock = FakeClock()
        self.server_clock = FakeClock()
        self.seen: list[dict[str, Any]] = []
        self.large = ""
        handlers = {
            "echo": self.echo,
            "fail": self.fail,
            "late": self.late,
            "large": lambda _arguments: {"text": self.large},
        }
        self.server = CommandServer(self.answering, handlers, self.server_clock)
        self.client = CommandClient(self.asking, "store", SystemClock())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def echo(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self.seen.append(arguments)
        return {"echo": arguments}

    def fail(self, arguments: dict[str, Any]) -> dict[str, Any]:
        kinds = {"os": OSError("disk"), "value": ValueError("bad"), "time": TimeoutError("behind")}
        raise kinds[arguments["kind"]]

    def late(self, _arguments: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _serve(self) -> None:
        while not self._stop.is_set():
            if not self.server.step():
                self._stop.wait(0.001)

    def start(self) -> World:
        self._thread.start()
        return self

    def close(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.asking.close()
        self.answering.close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_command_is_answered(world: World) -> None:
    world.start()
    arguments = {"topic": "Tü", "barrier": 2**60}
    assert world.client.call("echo", TIMEOUT_MS, **arguments) == {"echo": arguments}
    assert world.seen == [arguments]


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("unknown", {}, "process store: unknown command unknown"),
        ("fail", {"kind": "os"}, "process store: OSError: disk"),
        ("fail", {"kind": "value"}, "ValueError: bad"),
        ("fail", {"kind": "time"}, "TimeoutError: behind"),
        ("fail", {}, "KeyError: 'kind'"),
    ],
)
def test_errors_name_process_and_command(
    world: World, command: str, arguments: dict[str, Any], words: str
) -> None:
    world.start()
    with pytest.raises(CommandError, match=words) as caught:
        world.client.call(command, TIMEOUT_MS, **arguments)
    assert str(caught.value).startswith(command)
    assert world.client.call("echo", TIMEOUT_MS) == {"echo": {}}


def test_nobody_answers(world: World) -> None:
    with pytest.raises(CommandError, match="echo: no response from process store"):
        world.client.call("echo", 20)


def test_no_time_left(world: World) -> None:
    with pytest.raises(CommandError, match="no response from process store: timeout"):
        world.client.call("echo", 0)


def test_a_request_that_is_too_large_is_not_sent(world: World) -> None:
    world.start()
    with pytest.raises(CommandError, match="is too large"):
        world.client.call("echo", TIMEOUT_MS, topic="x" * MAX_PACKET)
    nearly = "x" * (MAX_PACKET - 1000)
    assert world.client.call("echo", TIMEOUT_MS, topic=nearly)["echo"] == {"topic": nearly}


def test_a_late_answer_is_not_taken_for_the_next_ones(world: World) -> None:
    with pytest.raises(CommandError):
        world.client.call("late", SENT_MS)
    assert world.server.step()
    world.start()
    assert world.client.call("echo", TIMEOUT_MS, n=1) == {"echo": {"n": 1}}


def test_a_request_whose_deadline_has_passed_is_dropped(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CommandError):
        world.client.call("echo", SENT_MS)
    world.server_clock.monotonic = SystemClock().monotonic_ms() + 10 * SENT_MS
    assert world.server.step()
    assert world.seen == []
    assert "echo: dropped" in caplog.text
    assert not world.server.step()


def test_a_restarted_client_does_not_take_its_predecessors_answers(world: World) -> None:
    with pytest.raises(CommandError):
        world.client.call("late", SENT_MS)
    world.server.step()
    world.start()
    again = CommandClient(world.asking, "store", SystemClock())
    assert again.call("echo", TIMEOUT_MS, n=2) == {"echo": {"n": 2}}


def test_calls_of_many_threads_wait_their_turn(world: World) -> None:
    world.start()
    results: list[tuple[int, Any]] = []

    def ask(number: int) -> None:
        for _ in range(10):
            results.append((number, world.client.call("echo", TIMEOUT_MS, n=number)))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 40
    assert all(result == {"echo": {"n": number}} for number, result in results)


def test_a_slow_answer_keeps_nobody_from_asking(world: World) -> None:
    """The other one's answer is received by the one that waits, and the other way round."""
    results: dict[str, Any] = {}

    def ask(name: str) -> threading.Thread:
        call = world.client.call
        thread = threading.Thread(
            target=lambda: results.update({name: call("echo", TIMEOUT_MS, n=name)})
        )
        thread.start()
        return thread

    threads, requests = [], []
    for name in ("slow", "quick", "quicker"):
        threads.append(ask(name))
        wait_until(lambda: events_of(world.answering))
        requests.append(world.server.receive())
    for name in ("quicker", "quick", "slow"):
        assert name not in results
        request = requests.pop()
        assert request is not None
        world.server.answer(request)
        wait_until(lambda: len(results) == 3 - len(requests))
    for thread in threads:
        thread.join()
    assert results == {name: {"echo": {"n": name}} for name in ("slow", "quick", "quicker")}


def test_who_gives_up_hands_the_receiving_on(world: World) -> None:
    """The one that receives runs out of time; the other one gets its answer nevertheless."""
    first = threading.Thread(target=lambda: _ignore(lambda: world.client.call("late", 100)))
    first.start()
    wait_until(lambda: world.client._receiving)
    second: list[Any] = []
    waiting = threading.Thread(target=lambda: second.append(world.client.call("echo", TIMEOUT_MS)))
    waiting.start()
    first.join()
    assert second == []
    world.start()
    waiting.join()
    assert second == [{"echo": {}}]


def test_an_answer_that_is_none(world: World) -> None:
    """As one of a packet that was cut off."""
    for bad in (b'{"id":5,"result":{"a', b"[]", b"\xff"):
        threading.Timer(0.01, world.answering.send, [bad]).start()
        with pytest.raises(CommandError, match="echo: malformed response from process store"):
            world.client.call("echo", TIMEOUT_MS)


def test_an_answer_that_is_too_large_is_an_error(world: World) -> None:
    world.start()
    world.large = "x" * MAX_PACKET
    with pytest.raises(
        CommandError, match=r"large: process store: response of 2\d+ bytes is too la"
    ):
        world.client.call("large", TIMEOUT_MS)
    assert world.client.call("echo", TIMEOUT_MS, n=1) == {"echo": {"n": 1}}


def test_a_packet_that_the_kernel_refuses_is_an_error(world: World) -> None:
    world.answering.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    world.large = "x" * 100_000
    world.start()
    with pytest.raises(CommandError, match="large: process store: Message too long"):
        world.client.call("large", TIMEOUT_MS)


def test_the_status_of_many_replicas_fits() -> None:
    """Those that are connected at most by default, and those that are remembered."""
    replica = {
        "addr": "255.255.255.255:65535",
        **dict.fromkeys(("slaveAckOffset", "diff", "transferFromWhere"), 1 << 50),
        **dict.fromkeys(("startOffset", "lagBytes", "transferredByteInSecond"), 1 << 50),
        **dict.fromkeys(("inSync", "counted", "lagSecondsExact"), False),
        "id": f"{'b' * 127}:123456789",
        "state": "disconnected",
        "lagSeconds": 123456789.123,
        **dict.fromkeys(("connectedSince", "disconnectedSince"), 1_700_000_000_000),
        "lastErrorTimestamp": 1_700_000_000_000,
        "lastError": "e" * 500,
        "reconnects": 1 << 50,
        "stateSeconds": dict.fromkeys(("in_sync", "catching_up", "disconnected"), 123456789.123),
    }
    count = HaConfig().ha_max_connections + MAX_REMEMBERED
    assert len(msgspec.json.encode([replica] * count)) < MAX_PACKET * 0.6


def _ignore(function: Any) -> None:
    try:
        function()
    except CommandError:
        return


def test_step_without_a_request(world: World) -> None:
    assert not world.server.step()
    assert world.server.fileno() == world.answering.fileno()


def test_packets_are_the_documented_json(world: World) -> None:
    with pytest.raises(CommandError):
        world.client.call("echo", 10, topic="T")
    packet = msgspec.json.decode(world.answering.recv(MAX_PACKET))
    assert packet.keys() == {"id", "command", "deadline_ms", "arguments"}
    assert (packet["command"], packet["arguments"]) == ("echo", {"topic": "T"})

"""905 over real sockets: what the brokers of a group get from the name server, and when."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from namesrv.min_broker_id_notifier import MinBrokerIdNotifier
from namesrv.registrations import MinBrokerIdChange
from remoting.remoting_command import RemotingCommand
from tests.support.frame_decoder import FrameDecoder

_LIMIT_S = 30.0


class Broker:
    """A listening port; the first command that somebody sends there."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(_LIMIT_S)
        self.address = "{}:{}".format(*self._listening.getsockname())

    def receive(self) -> RemotingCommand:
        sock, _ = self._listening.accept()
        with sock:
            sock.settimeout(_LIMIT_S)
            decoder = FrameDecoder()
            while (command := decoder.next_command()) is None:
                decoder.feed(sock.recv(65536))
            return command

    def has_caller(self) -> bool:
        self._listening.settimeout(0.05)
        try:
            self._listening.accept()[0].close()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    found = [Broker() for _ in range(2)]
    yield found
    for broker in found:
        broker.close()


@pytest.fixture
def notifier() -> Iterator[Callable[[bool], MinBrokerIdNotifier]]:
    made: list[MinBrokerIdNotifier] = []

    def make(enabled: bool) -> MinBrokerIdNotifier:
        made.append(MinBrokerIdNotifier(lambda: enabled))
        return made[-1]

    yield make
    for each in made:
        each.shutdown()


def test_those_that_are_left_are_told(
    brokers: list[Broker], notifier: Callable[[bool], MinBrokerIdNotifier]
) -> None:
    addrs = {1: brokers[0].address, 2: brokers[1].address}
    change = MinBrokerIdChange("b", addrs, "10.0.0.9:10911")
    notifier(True).notify(change)
    for broker in brokers:
        command = broker.receive()
        assert (command.code, command.is_oneway) == (905, True)
        assert dict(command.ext_fields) == {
            "minBrokerId": "1",
            "brokerName": "b",
            "minBrokerAddr": brokers[0].address,
            "offlineBrokerAddr": "10.0.0.9:10911",
        }


def test_a_newcomer_is_not_told_of_itself(
    brokers: list[Broker], notifier: Callable[[bool], MinBrokerIdNotifier]
) -> None:
    addrs = {0: brokers[0].address, 1: brokers[1].address}
    change = MinBrokerIdChange("b", addrs, ha_broker_addr="10.0.0.1:10912")
    notifier(True).notify(change)
    fields: dict[str, Any] = dict(brokers[1].receive().ext_fields)
    assert fields["haBrokerAddr"] == "10.0.0.1:10912"
    assert "offlineBrokerAddr" not in fields
    assert not brokers[0].has_caller()


def test_without_the_setting_nobody_is_told(
    brokers: list[Broker], notifier: Callable[[bool], MinBrokerIdNotifier]
) -> None:
    notifier(False).notify(MinBrokerIdChange("b", {1: brokers[0].address}, "10.0.0.9:10911"))
    assert not brokers[0].has_caller()


def test_a_broker_that_is_not_there_holds_nobody_up(
    brokers: list[Broker], notifier: Callable[[bool], MinBrokerIdNotifier]
) -> None:
    brokers[0].close()
    change = MinBrokerIdChange("b", {1: brokers[0].address, 2: brokers[1].address}, "gone:1")
    notifier(True).notify(change)
    assert brokers[1].receive().ext_fields["minBrokerId"] == "1"


def test_after_the_stop_nothing_is_sent(
    brokers: list[Broker], notifier: Callable[[bool], MinBrokerIdNotifier]
) -> None:
    made = notifier(True)
    change = MinBrokerIdChange("b", {1: brokers[0].address}, "gone:1")
    made.notify(change)
    assert brokers[0].receive().code == 905
    made.shutdown()
    made.shutdown()
    made.notify(replace(change))
    assert not brokers[0].has_caller()

"""The mqadmin of 5.3.3 adds a broker to a container of ours and removes it again, while clients
send to the brokers that stay."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from remoting.request_code import RequestCode
from tests.broker.container.container_world import (
    CLUSTER,
    START_S,
    OurContainer,
    broker_file,
    our_container,
)
from tests.interop.driver import Driver
from tests.interop.java_peers import CLIENT_5
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

TOPIC = "SentMeanwhile"
IDENTITY = f"{CLUSTER}:c:0"
_PAUSE_S = 0.05
_TRIES = 5


class Sender:
    """Sends to one broker over one connection, again and again, on a thread."""

    def __init__(self, client: FrameClient) -> None:
        self._client = client
        self._end = threading.Event()
        self.codes: Counter[int] = Counter()
        self.error: OSError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._end.wait(_PAUSE_S):
                self.codes[self._client.send(TOPIC, 0, b"x").code] += 1
        except OSError as error:
            self.error = error

    def moves_on(self) -> None:
        """Until three more have been answered."""
        wanted = self.codes.total() + 3
        wait_until(lambda: self.error or self.codes.total() >= wanted, START_S)

    def end(self) -> int:
        """How many were answered, all with SEND_OK."""
        self._end.set()
        self._thread.join(START_S)
        self._client.close()
        assert self.error is None
        assert set(self.codes) == {0}
        return self.codes.total()


def test_java_adds_and_removes_a_broker_while_others_are_sent_to(
    drivers: Callable[[str], Driver], tmp_path: Path
) -> None:
    tool = drivers(CLIENT_5)
    first, second = (broker_file(tmp_path, name) for name in "ab")
    third = broker_file(tmp_path, "c")
    with our_container(tmp_path) as container:
        container.start(first, second)
        container.wait_registered("a", "b")
        stay = container.supervisors()
        senders = [Sender(container.broker_client(name)) for name in "ab"]

        _add(tool, container, third)
        container.wait_registered("a", "b", "c")
        with container.broker_client("c") as client:
            assert client.send(TOPIC, 0, b"x").code == 0
        shown = tool.mqadmin("getBrokerConfig", "-b", container.address)
        assert re.search(r"^brokerConfigPaths +=  .*/a.conf:.*/b.conf$", shown, re.MULTILINE), shown

        told = tool.mqadmin("removeBroker", "-c", container.address, "-b", IDENTITY)
        assert told == f"remove broker from {container.address} success\n"
        container.wait_registered("a", "b")
        assert container.supervisors() == stay
        assert not (tmp_path / "c" / "abort").exists(), "it was stopped in order"

        for sender in senders:
            sender.moves_on()
        assert all(sender.end() > 3 for sender in senders)
        assert container.terminate() == 0


def _add(tool: Driver, container: OurContainer, path: Path) -> None:
    """The tool gives up after 5 s, which the start may take on a busy machine: it is repeated."""
    for _ in range(_TRIES):
        told = tool.mqadmin("addBroker", "-c", container.address, "-b", str(path))
        if told == f"add broker to {container.address} success\n":
            return
        with container.client() as client:
            cluster, name, broker_id = IDENTITY.split(":")
            fields = {"brokerClusterName": cluster, "brokerName": name, "brokerId": broker_id}
            assert client.call(RequestCode.REMOVE_BROKER, fields).code == 0, told
    raise AssertionError(told)

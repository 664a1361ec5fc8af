"""No descriptors left: who is connected is served, nobody spins, and it ends with the shortage."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.response_code import ResponseCode
from tests.faults.ledger import assert_stops_clean
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker

pytestmark = [pytest.mark.slow]

TOPIC = "Few"
SPARE = 10
CROWD = 60
LOOK_S = 1.0
FEW = 1_024
CREATE_TOPIC = 17


@contextlib.contextmanager
def only_so_many(pid: int) -> Iterator[None]:
    """The process may open SPARE descriptors more than it has."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + SPARE, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def processor_s(pid: int) -> float:
    """What a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def crowd(stack: contextlib.ExitStack, port: int) -> None:
    """Connections that the kernel takes; the process cannot."""
    for _ in range(CROWD):
        stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))


@pytest.mark.fault(32)
def test_more_connections_than_descriptors(tmp_path: Path) -> None:
    with OurBroker(tmp_path).start() as broker, broker.client() as client:
        children = broker.children()
        assert client.send(TOPIC, 0, b"first").code == ResponseCode.SUCCESS
        ports = {"remoting": "main", "namesrv": "namesrv", "ha": "ha"}
        with contextlib.ExitStack() as stack:
            for process in ports:
                stack.enter_context(only_so_many(children[process]))
            with contextlib.ExitStack() as connections:
                for listener in ports.values():
                    crowd(connections, broker.ports[listener])
                before = {name: processor_s(children[name]) for name in ports}
                began = time.monotonic()
                while time.monotonic() - began < LOOK_S:
                    assert client.send(TOPIC, 0, b"during").code == ResponseCode.SUCCESS
                    time.sleep(0.02)
                passed_s = time.monotonic() - began
                for name in ports:
                    used_s = processor_s(children[name]) - before[name]
                    assert used_s < passed_s / 2, f"{name} spins: {used_s:.2f} s"
        for name, listener in ports.items():
            assert "descriptor" in broker.log(name) or "Too many open files" in broker.log(name)
            if listener != "ha":
                wait_until(lambda at=listener: is_served(broker, at), 20)  # type: ignore[misc]
        assert broker.children() == children
        assert_stops_clean(broker)


def is_served(broker: OurBroker, listener: str) -> bool:
    """Whether a new client gets an answer."""
    code = 105 if listener == "namesrv" else 30
    try:
        with broker.client(listener, timeout_s=5) as client:
            client.call(code, {"topic": TOPIC, "queueId": 0})
    except OSError:
        return False
    return True


def make_queues(client: FrameClient, topic: str, count: int) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": count,
        "writeQueueNums": count,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    assert client.call(CREATE_TOPIC, fields).code == ResponseCode.SUCCESS


@pytest.mark.fault(32)
@pytest.mark.parametrize(
    ("topics", "queues"), [(1, 1_500), pytest.param(100, 1_000, marks=pytest.mark.long)]
)
@pytest.mark.timeout(1_800)
def test_more_queues_than_descriptors(tmp_path: Path, topics: int, queues: int) -> None:
    names = [f"Few{number}" for number in range(topics)]
    # A file of a queue holds 100 units: 2,000 bytes of disk for each queue.
    broker = OurBroker(tmp_path, mappedFileSizeConsumeQueue=2_000)
    broker.start(wait=False)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (FEW, FEW))
    with broker:
        broker.wait_booted()
        for name, pid in broker.children().items():
            assert resource.prlimit(pid, resource.RLIMIT_NOFILE)[1] == FEW, name
        children = broker.children()
        with broker.client(timeout_s=120) as client:
            for topic in names:
                make_queues(client, topic, queues)
                opaques = [client.post_send(topic, n, b"%d" % n) for n in range(queues)]
                assert {client.take_send(opaque).code for opaque in opaques} == {0}
            for topic in (names[0], names[-1]):
                wait_until(lambda t=topic: client.offset(30, t, queues - 1) == 1, 120)  # type: ignore[misc]
                for queue_id in range(queues):
                    (message,) = client.pull(topic, queue_id, 0).messages
                    assert message.body == b"%d" % queue_id
        assert broker.children() == children
        assert_stops_clean(broker)

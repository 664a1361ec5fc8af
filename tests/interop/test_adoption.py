"""A Java broker with storeType=defaultRocksDB, then ours on what bin/mqadopt makes of its store,
then the Java broker on what it makes of ours: every message at its place, offsets, pops, and a
queue whose messages have all expired."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adopt.command_line import DONE, main
from remoting.request_code import RequestCode
from tests.interop import harness
from tests.interop.processes import wait_until
from tests.support.our_broker import FrameClient
from tests.support.pop_client import PopClient, PoppedMessage

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(600),
]

CLUSTER, NAME = "InteropCluster", "adopted"
FILES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "20000",
    "timerWheelEnable": "true",
}
ROCKS = {"storeType": "defaultRocksDB"}
POPS = {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
BODY = bytes(range(256)) * 8
"""Some 400 fill a file of the log."""
INVISIBLE_MS = 100_000


class Turns:
    """One broker name and several directories, one after the other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._turn = 0
        self.sent: dict[tuple[str, int], list[bytes]] = {}

    @contextmanager
    def open(self, kind: str, store: Path, **conf: str) -> Iterator[FrameClient]:
        """Until it has stopped in order."""
        self._turn += 1
        broker = harness.broker(
            kind,
            self._directory / f"turn-{self._turn}",
            None,
            name=NAME,
            store_dir=store,
            conf={**FILES, **conf},
        )
        with harness.served(broker) as client:
            yield client

    def send(self, client: FrameClient, topic: str, count: int) -> None:
        """To two queues, each at the next offset of its queue."""
        for number in range(count):
            known = self.sent.setdefault((topic, number % 2), [])
            body = b"%s %d %d" % (topic.encode(), number % 2, len(known)) + BODY
            sent = client.send(topic, number % 2, body, key=f"k{len(known)}")
            assert (sent.code, sent.queue_offset) == (0, len(known)), sent
            known.append(body)

    def check(self, client: FrameClient, *, expired: tuple[str, ...] = ()) -> None:
        """Every message is at its place, once the queues are built."""
        for (topic, queue), bodies in self.sent.items():
            wait_for_end(client, topic, queue, len(bodies))
            if topic in expired:
                continue
            at = client.offset(RequestCode.GET_MIN_OFFSET, topic, queue)
            while at < len(bodies):
                pulled = client.pull(topic, queue, at)
                assert pulled.messages, (topic, queue, at, pulled)
                for message in pulled.messages:
                    assert (message.queue_offset, message.body) == (at, bodies[at])
                    at += 1


def wait_for_end(client: FrameClient, topic: str, queue: int, end: int) -> None:
    wait_until(
        lambda: client.offset(RequestCode.GET_MAX_OFFSET, topic, queue) == end,
        f"{end} in {topic} {queue}",
        60,
    )


def make_group(client: FrameClient, group: str) -> None:
    body = b'{"groupName":"%s"}' % group.encode()
    assert client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0


def pop(group: PopClient) -> list[PoppedMessage]:
    return group.pop("Popped", invisibleTime=INVISIBLE_MS).messages


def commit(client: FrameClient, group: str, topic: str, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": 1, "commitOffset": offset}
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0


def committed(client: FrameClient, group: str, topic: str) -> int:
    fields = {"consumerGroup": group, "topic": topic, "queueId": 1}
    answer = client.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    assert answer.code == 0, answer.remark
    return int(answer.ext_fields["offset"])


@pytest.mark.parametrize(
    ("kind", "config"), [("java-5.3", "v1"), ("java-5.3", "v2"), ("java-5.5", "v1")]
)
def test_a_rocksdb_store_comes_and_goes_back(tmp_path: Path, kind: str, config: str) -> None:
    turns = Turns(tmp_path)
    java, ours, back = (tmp_path / name for name in ("java", "ours", "back"))
    settings = {**ROCKS, "configManagerVersion": config}
    with turns.open(kind, java, **settings) as client:
        turns.send(client, "Old", 20)
        turns.send(client, "New", 1500)
        make_group(client, "G")
        commit(client, "G", "New", 321)
    assert main([str(java), "--to", str(ours)]) == DONE
    with turns.open("ours", ours) as client:
        turns.check(client)
        assert committed(client, "G", "New") == 321
        turns.send(client, "New", 300)
        commit(client, "G", "New", 654)
    # What retention does one day.
    sorted((ours / "commitlog").iterdir())[0].unlink()
    with turns.open("ours", ours) as client:
        turns.check(client, expired=("Old",))
    assert main([str(ours), "--to-rocksdb", "--to", str(back)]) == DONE
    with turns.open(kind, back, **ROCKS) as client:
        turns.check(client, expired=("Old",))
        assert committed(client, "G", "New") == 654
        turns.send(client, "New", 100)
        turns.send(client, "Old", 10)
    with turns.open(kind, back, **ROCKS) as client:
        turns.check(client, expired=("Old",))
        assert client.pull("Old", 0, 10).messages[0].body == turns.sent["Old", 0][10]
    assert main([str(back), "--to", str(tmp_path / "again")]) == DONE


def test_open_pops_of_the_kv_service_come_over(tmp_path: Path) -> None:
    """Acknowledged before, acknowledged after with the old handle, and not at all."""
    turns = Turns(tmp_path)
    java, ours = tmp_path / "java", tmp_path / "ours"
    with turns.open("java-5.3", java, **ROCKS, **POPS) as client:
        turns.send(client, "Popped", 16)
        make_group(client, "GPop")
        group = PopClient(client, "GPop", NAME)
        popped = [m for _ in range(2) for m in pop(group)]
        assert len(popped) == 16
        first, *others = [m for m in popped if m.queue_id == 0]
        for each in others[:2]:
            assert group.ack(each).code == 0
    names = ("--broker-name", NAME, "--cluster", CLUSTER)
    assert main([str(java), "--to", str(ours), *names]) == DONE
    with turns.open("ours", ours) as client:
        turns.check(client)
        group = PopClient(client, "GPop", NAME)
        for each in (first, others[2]):
            assert group.ack(each).code == 0
        retried = "%RETRY%GPop_Popped"
        wait_until(
            lambda: client.offset(RequestCode.GET_MAX_OFFSET, retried, 0) >= 12, "12 again", 240
        )
        again = [m.body for at in range(12) for m in client.pull(retried, 0, at, count=1).messages]
        acked = {m.message.body for m in (first, *others[:3])}
        assert sorted(again) == sorted(
            m.message.body for m in popped if m.message.body not in acked
        )

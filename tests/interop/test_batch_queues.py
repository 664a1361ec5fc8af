"""Topics with batch consume queues: a store goes from a Java 5.3.3 broker to ours and back.

Both are asked the same and answer the same; what each builds from the log is the same, byte for
byte; Java's producer sends batches that its consumer gets one by one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from store.message_codec import decode_record
from tests.broker.send.test_send_message_processor import batch_body
from tests.interop import harness
from tests.interop.clients import Client, Cluster
from tests.interop.driver import Driver, by_queue
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until
from tests.interop.test_producers import content
from tests.support.our_broker import FrameClient, drain

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "Batches"
CONF = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "mapperFileSizeBatchConsumeQueue": str(20 * 46),
    "autoCreateTopicEnable": "true",
}
QUEUE = {"topic": TOPIC, "queueId": "0"}
ROUNDS = 30


def served(kind: str, home: Path, store: Path) -> AbstractContextManager[FrameClient]:
    return harness.served(harness.broker(kind, home, None, store_dir=store, conf=CONF))


def create(client: FrameClient, topic: str = TOPIC, queues: int = 1) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": "+queue.type=BatchCQ",
    }
    assert client.call(17, fields).code == 0


def send(client: FrameClient, code: int, body: bytes, **fields: Any) -> tuple[int, dict[str, str]]:
    """The code, and what the answer says about the message's place."""
    header = {
        "a": "P",
        "b": TOPIC,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 1,
        "h": 0,
        "i": "",
        "j": 0,
        "k": "false",
        "m": str(code == 320).lower(),
        **fields,
    }
    answer = client.call(code, header, body)
    names = ("queueId", "queueOffset", "transactionId", "batchUniqId")
    return answer.code, {
        name: answer.ext_fields[name] for name in names if name in answer.ext_fields
    }


def send_round(client: FrameClient, number: int) -> list[tuple[int, dict[str, str]]]:
    """Everything that can be sent to such a topic, and what must not."""
    key = f"UNIQ_KEY\x01id{number}\x02KEYS\x01k{number}"
    three = batch_body(*((0, b"%d-%d" % (number, each), b"TAGS\x01t") for each in range(3)))
    return [
        send(client, 320, three, i=key),
        send(client, 310, b"plain", i="TAGS\x01t"),
        send(client, 320, batch_body((0, b"a", b""), (0, b"b", b"KEYS\x01x")), i=""),
        send(client, 310, three, i=f"{key}\x02INNER_NUM\x013\x02", f=192),
        send(client, 310, b"wrong", i="INNER_NUM\x013"),
    ]


def pull(
    client: FrameClient, offset: int, subscription: str = "*", most: int = 32
) -> tuple[Any, ...]:
    fields = {
        **QUEUE,
        "consumerGroup": "G",
        "queueOffset": offset,
        "maxMsgNums": most,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": subscription,
        "subVersion": 1,
        "expressionType": "TAG",
    }
    answer = client.call(11, fields)
    records, at = [], 0
    while at < len(answer.body):
        record, size = decode_record(memoryview(answer.body), at)
        records.append((record.queue_offset, record.sys_flag, record.body))
        at += size
    names = ("nextBeginOffset", "minOffset", "maxOffset")
    return answer.code, *(answer.ext_fields[name] for name in names), records


def answers(client: FrameClient, high: int) -> list[Any]:
    """What is asked of both brokers."""
    found: list[Any] = [pull(client, offset) for offset in range(-1, high + 2)]
    found += [pull(client, offset, "t") for offset in range(0, high, 5)]
    found += [pull(client, offset, most=most) for offset in (0, 1, 4) for most in (1, 3, 5, 9)]
    found += [client.call(code, QUEUE).ext_fields["offset"] for code in (30, 31)]
    found.append(client.call(32, QUEUE).ext_fields)
    first = int(found[-1]["timestamp"])
    for later in (-1, 0, 1, 10**10):
        asked = {**QUEUE, "timestamp": first + later}
        found.append(client.call(29, asked).ext_fields["offset"])
    for index, count in ((0, 5), (1, 5), (4, 1), (high - 1, 9)):
        asked = {**QUEUE, "index": index, "count": count, "consumerGroup": "nobody"}
        found.append(client.call(321, {**asked}).body)
    return found


def wait_dispatched(client: FrameClient, high: int) -> None:
    wait_until(lambda: client.call(30, QUEUE).ext_fields["offset"] == str(high), "dispatched")


def batch_files(store: Path) -> dict[str, bytes]:
    """Those that hold anything, without the zeros behind."""
    root = store / "batchconsumequeue"
    found = {
        str(path.relative_to(root)): path.read_bytes().rstrip(b"\0")
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    return {name: data for name, data in found.items() if data}


@pytest.mark.long
def test_a_store_is_handed_over_and_back(tmp_path: Path) -> None:
    store, high = tmp_path / "store", 0
    seen: list[Any] = []
    for turn, kind in enumerate((harness.JAVA_5, "ours", harness.JAVA_5)):
        with served(kind, tmp_path / f"turn-{turn}", store) as client:
            if not turn:
                create(client)
            else:
                assert answers(client, high) == seen
            places = [send_round(client, turn * ROUNDS + each) for each in range(ROUNDS)]
            offsets = [fields.get("queueOffset") for each in places for _code, fields in each]
            assert offsets[:4] == [str(high), str(high + 3), str(high + 4), str(high + 6)]
            assert {tuple(code for code, _ in each) for each in places} == {(0, 0, 0, 0, 13)}
            high += 9 * ROUNDS
            wait_dispatched(client, high)
            seen = answers(client, high)
        copy = tmp_path / f"copy-{turn}"
        shutil.copytree(store, copy)
        shutil.rmtree(copy / "batchconsumequeue")
        with served("ours", tmp_path / f"rebuild-{turn}", copy) as client:
            wait_dispatched(client, high)
        assert batch_files(copy) == batch_files(store)


def test_javas_producer_and_consumer(
    cluster: Cluster, drivers: Callable[[str], Driver], tmp_path: Path
) -> None:
    """A 5.3.3 producer's batches are stored as one record each; its consumer gets single messages,
    and mqadmin finds them by their queue offsets."""
    client = Client(drivers(CLIENT_5), cluster)
    topic = client.group().replace("group", "batches")
    with cluster.broker.client() as broker:
        create(broker, topic, 2)
        producer = client.producer()
        sent = producer.send(topic, "batch", 300) + producer.send(topic, "sync", 20, first=300)
        received = client.drain(topic, 320)
        assert content(received) == content(sent)
        for entries in by_queue(received).values():
            assert [entry.queue_offset for entry in entries] == list(range(len(entries)))
        by_place = {(e.queue_id, e.queue_offset): (e.seq, e.digest) for e in received}
        assert by_place == {(e.queue_id, e.queue_offset): (e.seq, e.digest) for e in sent}
        records = [drain(broker, topic, queue_id) for queue_id in range(2)]
        flags = [record.sys_flag & 0xC0 for each in records for record in each]
        assert (flags.count(0), flags.count(0xC0)) == (20, len({e.msg_id for e in sent}) - 20)
    told = client.driver.mqadmin("topicStatus", "-n", client.namesrv, "-t", topic)
    ends = [line.split()[:4] for line in told.splitlines() if line.startswith(cluster.broker.name)]
    counts = {queue[1]: len(entries) for queue, entries in by_queue(received).items()}
    assert [(int(end[1]), int(end[2]), int(end[3])) for end in ends] == [
        (queue_id, 0, counts[queue_id]) for queue_id in sorted(counts)
    ]
    asked = ("-t", topic, "-b", cluster.broker.name, "-i", "0", "-o", "1", "-n", client.namesrv)
    found = client.driver.mqadmin("queryMsgByOffset", *asked)
    assert f"Topic:               {topic}" in found
    client.end()

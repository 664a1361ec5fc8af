"""What the load generator sends and counts, against a broker of ours; no time is asserted."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.message import Message
from tests.bench import idle
from tests.bench.guards import acl
from tests.bench.measuring import (
    LIMITS,
    build_loadgen,
    loadgen_has_openssl,
    run_load,
    side_broker,
)
from tests.interop import harness
from tests.interop.processes import wait_until
from tests.support.our_broker import SMALL_FILES, FrameClient, drain

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

QUEUES = 4
SIGNED = ("account=loadgen:loadgen-secret",)
CONF = {
    **{key: str(value) for key, value in SMALL_FILES.items()},
    "enablePropertyFilter": "true",
    "maxMessageSize": "100000",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Broker]:
    served = harness.broker("ours", tmp_path_factory.mktemp("loadgen"), None, conf=CONF)
    try:
        yield served.start()
    finally:
        served.kill()


@pytest.fixture
def client(broker: harness.Broker) -> Iterator[FrameClient]:
    with broker.client() as frames:
        yield frames


def wait_for(client: FrameClient, topic: str, count: int) -> None:
    """Until all messages of a topic are in its queues: dispatch follows a send."""

    def there() -> int:
        return sum(client.offset(30, topic, queue_id) for queue_id in range(QUEUES))

    wait_until(lambda: there() >= count, f"{count} messages of {topic}")


def stored(client: FrameClient, topic: str, count: int) -> list[list[Message]]:
    """The messages of each queue, `count` in all."""
    wait_for(client, topic, count)
    return [drain(client, topic, queue_id) for queue_id in range(QUEUES)]


def test_a_send_is_a_message(broker: harness.Broker, client: FrameClient) -> None:
    figures = run_load("send", broker, "Plain", 2, 8, 83, 100)
    assert (figures["total"], figures["not_success"]) == (83, 0)
    queues = stored(client, "Plain", 83)
    assert [len(queue) for queue in queues] == [21, 21, 21, 20]
    assert all(message.body == b"x" * 100 for queue in queues for message in queue)
    assert queues[3][0].property_map()["TAGS"] == "TagA"


def test_a_batch_is_sixteen_messages(broker: harness.Broker, client: FrameClient) -> None:
    figures = run_load("send", broker, "Batch", 2, 2, 128, 1024, "batch=16")
    assert (figures["total"], figures["not_success"]) == (128, 0)
    queues = stored(client, "Batch", 128)
    assert [len(queue) for queue in queues] == [32] * QUEUES
    assert all(message.body == b"x" * 1024 for queue in queues for message in queue)
    properties = queues[2][31].property_map()
    assert {"KEYS": "key-02", "TAGS": "TagA", "WAIT": "true"}.items() <= properties.items()
    assert "UNIQ_KEY" in properties


@pytest.mark.parametrize("expression", ["tag=Tag0", "sql=level < 1", "sql=level BETWEEN 0 AND 0"])
def test_a_filter_keeps_one_of_ten(
    broker: harness.Broker, client: FrameClient, expression: str
) -> None:
    topic = "Kinds" + "".join(filter(str.isalnum, expression))
    sent = run_load("send", broker, topic, 1, 16, 400, 10, "kinds=10")
    assert sent["kind0"] == 40
    run_load("send", broker, topic, 1, 1, 4, 10)
    wait_for(client, topic, 404)
    pulled = run_load("pull", broker, topic, "GKinds", QUEUES, 32, expression)
    assert (pulled["msgs"], pulled["received"]) == (404, 40)
    everything = run_load("pull", broker, topic, "GKinds", QUEUES, 32)
    assert (everything["msgs"], everything["received"]) == (404, 404)


def test_kinds_are_spread_over_the_queues(broker: harness.Broker, client: FrameClient) -> None:
    assert run_load("send", broker, "Spread", 1, 1, 43, 10, "kinds=10")["kind0"] == 7
    levels = [
        [int(message.property_map()["level"]) for message in queue]
        for queue in stored(client, "Spread", 43)
    ]
    assert levels == [[*range(10), 0], [*range(10), 0], [*range(10), 0], [*range(10)]]


def test_delayed_sends_wait_in_their_level(broker: harness.Broker, client: FrameClient) -> None:
    run_load("send", broker, "Delayed", 1, 4, 12, 10, "delay=18")
    level = ("SCHEDULE_TOPIC_XXXX", 17)
    wait_until(lambda: client.offset(30, *level) >= 12, "twelve messages of level 18")
    assert client.offset(30, *level) == 12
    assert sum(client.offset(30, "Delayed", queue_id) for queue_id in range(QUEUES)) == 0


def test_transactions_are_committed(broker: harness.Broker, client: FrameClient) -> None:
    figures = run_load("send", broker, "Committed", 2, 8, 50, 10, "transaction=true")
    assert (figures["total"], figures["not_success"]) == (50, 0)
    assert sum(map(len, stored(client, "Committed", 50))) == 50
    assert client.offset(30, "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 50


def test_an_orderly_pull_holds_the_locks(broker: harness.Broker, client: FrameClient) -> None:
    run_load("send", broker, "Orderly", 1, 1, 8, 10)
    wait_for(client, "Orderly", 8)
    pulled = run_load("pull", broker, "Orderly", "GOrderly", QUEUES, 32, "lock=broker-a")
    assert pulled["received"] == 8
    queue = b'{"brokerName":"broker-a","queueId":0,"topic":"Orderly"}'
    body = b'{"clientId":"another","consumerGroup":"GOrderly","mqSet":[' + queue + b"]}"
    answer = client.call(41, {}, body)
    assert (answer.code, answer.body) == (0, b'{"lockOKMQSet":[]}')


def test_each_message_comes_once_to_a_waiting_consumer(
    broker: harness.Broker, client: FrameClient
) -> None:
    run_load("send", broker, "Awaited", 1, 1, 4, 128)
    for run in range(2):
        wait_for(client, "Awaited", 4 + run * 203)
        figures = run_load("longpoll", broker, "Awaited", "GAwaited", QUEUES, 1000, 203, 128)
        counts = ("total", "received", "missing", "duplicates", "not_success")
        assert [figures[name] for name in counts] == [203, 203, 0, 0, 0]
        assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["max_us"]
    assert sum(map(len, stored(client, "Awaited", 410))) == 4 + 2 * 203


def test_an_open_loop_sends_all(broker: harness.Broker, client: FrameClient) -> None:
    assert run_load("send", broker, "Open", 2, 8, 150, 10, "rate=2000")["not_success"] == 0
    assert sum(map(len, stored(client, "Open", 150))) == 150


def test_refused_sends_are_counted(broker: harness.Broker) -> None:
    figures = run_load("send", broker, "Large", 1, 2, 6, 100_001)
    assert (figures["total"], figures["not_success"], figures["first_code"]) == (6, 6, 13)
    figures = run_load("send", broker, "Large", 1, 2, 32, 10_000, "batch=16")
    assert (figures["total"], figures["not_success"]) == (32, 32)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Broker]:
    """With an account that every request is to be signed with. TLS is offered, too, as by
    default."""
    if not loadgen_has_openssl():
        pytest.skip("no headers of OpenSSL")
    directory = tmp_path_factory.mktemp("guarded")
    guard = acl("ours", directory)
    served = harness.broker("ours", directory, None, conf={**CONF, **guard.settings})
    try:
        yield served.start()
    finally:
        served.kill()


@pytest.mark.parametrize("more", [[], ["batch=16"], ["kinds=10"], ["tls=true"]])
def test_signed_sends_are_taken(guarded: harness.Broker, more: list[str]) -> None:
    """16 distinct frames at most: each is right, or the broker would say so."""
    figures = run_load("send", guarded, "Signed", 2, 8, 160, 100, *SIGNED, *more)
    assert (figures["total"], figures["not_success"]) == (160, 0)


@pytest.mark.parametrize("account", [None, "account=loadgen:wrong", "account=stranger:secret"])
def test_other_sends_are_refused(guarded: harness.Broker, account: str | None) -> None:
    figures = run_load("send", guarded, "Signed", 1, 1, 2, 10, *([account] if account else []))
    assert (figures["not_success"], figures["first_code"]) == (2, 1)


def test_what_goes_over_tls_arrives(broker: harness.Broker, client: FrameClient) -> None:
    if not loadgen_has_openssl():
        pytest.skip("no headers of OpenSSL")
    assert run_load("send", broker, "Hidden", 1, 1, 4, 100, "tls=true")["tls"] in (1.2, 1.3)
    figures = run_load("send", broker, "Hidden", 2, 32, 196, 40_000, "tls=true")
    assert (figures["total"], figures["not_success"]) == (196, 0)
    assert sum(map(len, stored(client, "Hidden", 200))) == 200
    pulled = run_load("pull", broker, "Hidden", "GHidden", QUEUES, 32, "tls=true")
    assert (pulled["msgs"], pulled["received"]) == (200, 200)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["8", "10", "account=nobody"], "account must be ACCESS_KEY:SECRET_KEY"),
        (["8", "10", "rat=5"], "no such option: rat=5"),
        (["8", "10", "batch=16"], "TOTAL must be a multiple of batch"),
        (["16", "10", "batch=16", "kinds=2"], "a batch has no kinds"),
        (["8", "10", "kinds=11"], "kinds must be 1 to 10"),
        (["0", "10"], "must be 1 or more"),
    ],
)
def test_what_it_cannot_do_is_refused(arguments: list[str], words: str) -> None:
    command = [str(build_loadgen()), "send", "127.0.0.1", "1", "T", "1", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert words in done.stderr


def test_binary_headers(broker: harness.Broker, client: FrameClient) -> None:
    figures = run_load("send", broker, "Binary", 2, 8, 83, 100, "binary=true")
    assert (figures["total"], figures["not_success"]) == (83, 0)
    plain = run_load("send", broker, "NotBinary", 2, 8, 83, 100)
    assert plain["not_success"] == 0
    assert [as_sent(queue) for queue in stored(client, "Binary", 83)] == [
        as_sent(queue) for queue in stored(client, "NotBinary", 83)
    ]


def as_sent(messages: list[Message]) -> list[tuple[bytes, bytes, int]]:
    """Body, properties and flag of each."""
    return [(one.body, one.properties, one.flag) for one in messages]


@pytest.mark.long
def test_both_limits_answer_with_the_same_bytes(tmp_path: Path) -> None:
    """But for the moment at which a record was stored."""
    answers = [conversation(side, tmp_path / side) for side in LIMITS]
    assert len(answers[0]) > 1000
    assert answers[0] == answers[1]


def conversation(side: str, directory: Path) -> bytes:
    """What a limit answers to two sends of different bodies, and to pulls of both and of none."""
    fields = {"b": "Same", "e": "02", "f": "4", "g": "1700000000000", "h": "0", "i": "K\1v\2W\1x"}
    pulls = [
        {"topic": "Same", "queueId": "2", "queueOffset": str(at), "maxMsgNums": "32"}
        for at in (0, 2)
    ]
    frames = [
        *(idle.frame(310, number, {**fields}, b"x" * size) for number, size in ((7, 3), (8, 300))),
        *(idle.frame(11, 9 + number, {**pull}) for number, pull in enumerate(pulls)),
    ]
    limit = side_broker(side, directory)
    limit.start()
    try:
        received = bytearray()
        with socket.create_connection(("127.0.0.1", limit.port), 10) as sock:
            for frame in frames:
                sock.sendall(frame)
                whole = len(received)
                while len(received) < whole + 4 or len(received) < whole + frame_size(
                    received, whole
                ):
                    received += sock.recv(1 << 16)
    finally:
        limit.kill()
    return bytes(without_store_times(received))


def frame_size(data: bytearray, at: int) -> int:
    return 4 + int.from_bytes(data[at : at + 4], "big")


def without_store_times(data: bytearray) -> bytearray:
    """Zeroes where records have them, 56 bytes from their start; a magic code is at 4."""
    magic = (-626843481).to_bytes(4, "big", signed=True)
    at = data.find(magic)
    while at >= 0:
        data[at + 52 : at + 60] = bytes(8)
        at = data.find(magic, at + 1)
    return data

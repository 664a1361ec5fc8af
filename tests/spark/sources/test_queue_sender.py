"""Sends of a task: batches, shards, refusals, brokers that fail."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import pytest

from remoting.body.route import BrokerData, QueueData, TopicRouteData
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from spark.sources.cluster import Cluster
from spark.sources.errors import NoNameServerError, NoRightError
from spark.sources.options import Connection
from spark.sources.outgoing import OutgoingRow, RowError
from spark.sources.queue_sender import QueueSender, SendRules
from store.batch_codec import iterate_batch
from store.java_hash import string_hash
from store.message_properties import parse_properties
from tests.spark.sources.fake_queues import FakeQueues, away
from tests.tools.fake_cluster import FakeCluster, running_cluster

Refuse = Callable[[RemotingCommand], tuple[int, str] | None]


def row(
    number: int, *, shard: str | None = None, body: bytes = b"x", topic: str = "T"
) -> OutgoingRow:
    return OutgoingRow(number, topic, shard, body, {"TAGS": "t"}, number, is_delayed=False)


class Sends:
    """Records what was stored, in order: (queue id, body, flag)."""

    def __init__(self, server: FakeCluster) -> None:
        self.stored: list[tuple[int, bytes, int]] = []
        self.properties: list[dict[str, str]] = []
        self.requests = 0
        self.refuse: Refuse = lambda request: None
        server.answers |= {
            RequestCode.SEND_BATCH_MESSAGE: self.answer,
            RequestCode.SEND_MESSAGE_V2: self.answer,
        }

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        self.requests += 1
        refused = self.refuse(request)
        if refused is not None and refused[0] not in (10, 11, 12):
            return request.response(*refused)
        fields = request.ext_fields
        queue_id = int(fields["e"])
        if fields["m"] == "true":
            for item in iterate_batch(request.body):
                self.stored.append((queue_id, bytes(item.body), item.flag))
                self.properties.append(parse_properties(bytes(item.properties).decode()))
        else:
            self.stored.append((queue_id, request.body, int(fields["h"])))
            self.properties.append(parse_properties(fields["i"]))
        answer = {"msgId": "m", "queueId": str(queue_id), "queueOffset": "0"}
        return request.response(0 if refused is None else refused[0], None, answer)


@pytest.fixture
def sends(server: FakeCluster, stored: FakeQueues) -> Sends:
    stored.topic("T", [[], [], [], []])
    stored.topic("%RETRY%g", [[]])
    return Sends(server)


def sender(client: Cluster, **rules: object) -> QueueSender:
    return QueueSender(client, SendRules("g", **rules))  # type: ignore[arg-type]


def test_a_batch_for_many_rows(client: Cluster, sends: Sends) -> None:
    made = sender(client)
    for number in range(100):
        made.put(row(number, body=b"%d" % number))
    assert not sends.stored
    made.flush()
    assert sends.requests == 1
    assert [(body, flag) for _, body, flag in sends.stored] == [(b"%d" % n, n) for n in range(100)]
    assert made.sent == 100
    assert len({each["UNIQ_KEY"] for each in sends.properties}) == 100
    assert sends.properties[0]["TAGS"] == "t"


def test_what_waits_is_bounded(client: Cluster, stored: FakeQueues, sends: Sends) -> None:
    stored.topic("Many", [[] for _ in range(100)])
    made = sender(client, send_bytes=1000)
    for number in range(400):
        made.put(row(number, shard=str(number), body=bytes(300), topic="Many"))
        assert number + 1 - made.sent < 40
    made.flush()
    assert made.sent == 400


def test_batches_are_bounded(client: Cluster, sends: Sends) -> None:
    made = sender(client, send_bytes=1000)
    for number in range(50):
        made.put(row(number, body=bytes(200)))
    made.put(row(50, body=bytes(5000)))
    made.flush()
    assert made.sent == len(sends.stored) == 51
    assert sends.requests > 10


def test_a_row_that_is_longer_than_a_batch_goes_alone(client: Cluster, sends: Sends) -> None:
    """A body of more than sendBytes (256 KiB) ended the task with an IndexError where no other row
    was waiting."""
    with_long = sender(client, send_bytes=1000)
    for number in range(3):
        with_long.put(row(number, body=b"%d" % number * 1001))
    with_long.put(row(3))
    with_long.flush()
    assert [body[:1] for _, body, _ in sends.stored] == [b"0", b"1", b"2", b"x"]
    assert (sends.requests, with_long.sent) == (4, 4)


def test_queues_in_turn_without_a_shard(client: Cluster, sends: Sends) -> None:
    made = sender(client, send_bytes=300)
    for number in range(40):
        made.put(row(number, body=bytes(150)))
    made.flush()
    assert {queue_id for queue_id, _, _ in sends.stored} == {0, 1, 2, 3}


def test_a_shard_is_a_queue_and_in_order(client: Cluster, sends: Sends) -> None:
    made = sender(client, send_bytes=500)
    for number in range(200):
        made.put(row(number, shard=f"customer-{number % 9}"))
    made.flush()
    for shard in range(9):
        flags = [flag for _, _, flag in sends.stored if flag % 9 == shard]
        queues = {queue_id for queue_id, _, flag in sends.stored if flag % 9 == shard}
        assert flags == sorted(flags)
        assert queues == {abs(string_hash(f"customer-{shard}")) % 4}


def test_delayed_rows_and_retry_topics_go_alone(client: Cluster, sends: Sends) -> None:
    made = sender(client)
    delayed = row(1, shard="a")
    delayed.is_delayed = True
    made.put(row(0, shard="a"))
    made.put(delayed)
    assert [flag for _, _, flag in sends.stored] == [0, 1]
    made.put(row(2, topic="%RETRY%g"))
    assert sends.requests == 3


def test_the_row_at_fault_is_named(client: Cluster, sends: Sends) -> None:
    def refuse(request: RemotingCommand) -> tuple[int, str] | None:
        return (13, "the message is illegal") if b"bad" in request.body else None

    sends.refuse = refuse
    made = sender(client)
    for number in range(10):
        made.put(row(number, body=b"bad" if number == 6 else b"good"))
    with pytest.raises(RowError, match=r"row 6 \(topic T\): .*message is illegal"):
        made.flush()
    assert [flag for _, _, flag in sends.stored] == list(range(6))


def test_a_batch_that_is_too_long_for_the_broker_is_sent_in_parts(
    client: Cluster, sends: Sends
) -> None:
    def refuse(request: RemotingCommand) -> tuple[int, str] | None:
        return (13, "too long") if len(request.body) > 2000 else None

    sends.refuse = refuse
    made = sender(client)
    for number in range(300):
        made.put(row(number, body=bytes(100), shard="a"))
        if number % 50 == 49:
            made.flush()
    assert [flag for _, _, flag in sends.stored] == list(range(300))
    assert sends.requests < 200, "batches become shorter"


def test_no_right_is_told_at_once(client: Cluster, sends: Sends) -> None:
    sends.refuse = lambda request: (1, "org.apache.rocketmq.acl.common.AclException: no")
    made = sender(client)
    made.put(row(0))
    with pytest.raises(NoRightError, match="row 0"):
        made.flush()
    assert sends.requests == 1


def test_a_system_topic_is_told_at_once(client: Cluster, sends: Sends) -> None:
    sends.refuse = lambda request: (16, "Sending message to topic[T] is forbidden.")
    made = sender(client)
    made.put(row(0))
    with pytest.raises(RowError, match=r"row 0 .*topic\[T\] is forbidden\. Only brokers write"):
        made.flush()
    assert sends.requests == 1


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR, 16])
def test_a_broker_that_is_busy_is_asked_again(client: Cluster, sends: Sends, code: int) -> None:
    sends.refuse = lambda request: (code, "sending is forbidden") if sends.requests < 2 else None
    made = sender(client)
    made.put(row(0))
    made.flush()
    assert (sends.requests, made.sent) == (2, 1)


def test_a_broker_that_stays_busy_is_an_error(client: Cluster, sends: Sends) -> None:
    sends.refuse = lambda request: (2, "busy")
    made = sender(client)
    made.put(row(5))
    with pytest.raises(RowError, match=r"row 5 .*not stored for 300 ms \(option retryMs\).*busy"):
        made.flush()


def test_what_is_stored_less_safely(client: Cluster, sends: Sends) -> None:
    sends.refuse = lambda request: (11, "")
    made = sender(client)
    made.put(row(0))
    with pytest.raises(RowError, match=r"SLAVE_NOT_AVAILABLE.*acceptDegraded"):
        made.flush()
    taking = sender(client, accept_degraded=True)
    taking.put(row(0))
    taking.flush()
    assert (taking.sent, taking.degraded) == (1, 1)


@pytest.mark.parametrize("shard", [None, "a"])
def test_name_servers_that_are_away_at_the_start(
    client: Cluster, sends: Sends, shard: str | None
) -> None:
    waited = away(client)
    made = sender(client)
    made.put(row(0, shard=shard))
    made.flush()
    assert (made.sent, waited) == (1, [0.1])


@pytest.mark.parametrize("shard", [None, "a"])
def test_name_servers_that_stay_away(shard: str | None) -> None:
    servers = ("127.0.0.1:1", "127.0.0.1:2")
    said = r"127\.0\.0\.1:1.*127\.0\.0\.1:2.*asked for 150 ms \(option retryMs\)"
    with Cluster(Connection(servers, retry_ms=150)) as client:
        made = sender(client)

        def send() -> None:
            made.put(row(0, shard=shard))
            made.flush()

        with pytest.raises(NoNameServerError, match=said):
            send()


# -- two brokers -------------------------------------------------------------------------------


@pytest.fixture
def pair(server: FakeCluster, stored: FakeQueues) -> Iterator[tuple[Sends, Sends, Cluster]]:
    """Brokers broker-g and broker-h, with a queue each."""
    with running_cluster() as second:
        stored.routes["T"] = TopicRouteData(
            broker_datas=[
                BrokerData(cluster="c", broker_name=name, broker_addrs={0: each.address})
                for name, each in (("broker-g", server), ("broker-h", second))
            ],
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=1, write_queue_nums=1, perm=6)
                for name in ("broker-g", "broker-h")
            ],
        )
        stored.queues["T"] = [[]]
        connection = Connection((server.address,), timeout_ms=2_000, retry_ms=300)
        with Cluster(connection) as cluster:
            yield Sends(server), Sends(second), cluster


def test_another_broker_takes_what_one_does_not(pair: tuple[Sends, Sends, Cluster]) -> None:
    first, second, cluster = pair
    first.refuse = lambda request: (2, "busy")
    made = sender(cluster, send_bytes=100)
    for number in range(20):
        made.put(row(number))
    made.flush()
    assert not first.stored
    assert first.requests == 1
    assert sorted(flag for _, _, flag in second.stored) == list(range(20))


def test_a_shard_waits_for_its_broker(pair: tuple[Sends, Sends, Cluster]) -> None:
    first, second, cluster = pair
    for each in pair[:2]:
        each.refuse = lambda request, each=each: (2, "busy") if each.requests < 2 else None  # type: ignore[misc]
    made = sender(cluster)
    for number in range(20):
        made.put(row(number, shard=str(number % 5)))
    made.flush()
    for shard in range(5):
        is_first = abs(string_hash(str(shard))) % 2 == 0
        there, elsewhere = (first, second) if is_first else (second, first)
        assert [flag for _, _, flag in there.stored if flag % 5 == shard] == [*range(shard, 20, 5)]
        assert not [flag for _, _, flag in elsewhere.stored if flag % 5 == shard]


def test_a_shard_keeps_its_queue_while_a_master_is_missing(
    pair: tuple[Sends, Sends, Cluster], stored: FakeQueues
) -> None:
    _, second, cluster = pair
    route = stored.routes["T"]
    gone = dataclasses.replace(
        route,
        broker_datas=[
            dataclasses.replace(data, broker_addrs={1: "127.0.0.1:1"})
            if data.broker_name == "broker-g"
            else data
            for data in route.broker_datas
        ],
    )
    stored.routes["T"] = gone
    shard = next(str(number) for number in range(9) if abs(string_hash(str(number))) % 2 == 0)
    made = sender(cluster)
    made.put(row(0, shard=shard))
    with pytest.raises(RowError, match="broker-g has no master"):
        made.flush()
    assert not second.stored
    made.put(row(1, shard=shard))
    cluster.pause = lambda _: stored.routes.update(T=route)
    made.flush()
    assert made.sent == 1

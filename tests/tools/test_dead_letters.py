"""Dead letters as they are read: where they came from, which are there, what is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remoting.body.route import BrokerData, ClusterInfo
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.stored_queues import Stored, StoredQueues
from tests.tools.test_message_decoder import one, record
from tools.admin_client import AdminClient, NameServers
from tools.dead_letters import (
    DeadLetter,
    Read,
    Unread,
    count_dead_letters,
    find,
    groups_with_dead_letters,
    newest,
    scan,
)
from tools.errors import AdminError
from tools.message_puller import TimeSpan

DLQ = "%DLQ%g"


@pytest.fixture
def admin(cluster: FakeCluster) -> Iterator[AdminClient]:
    with AdminClient(NameServers.parse(cluster.address), lambda: 5_000_000) as client:
        yield client


@pytest.fixture
def stored(cluster: FakeCluster) -> StoredQueues:
    """Brokers that know themselves, and no topic."""
    data = BrokerData(cluster="c", broker_name="broker-g", broker_addrs={0: cluster.address})
    info = ClusterInfo(broker_addr_table={"broker-g": data}, cluster_addr_table={"c": ["broker-g"]})
    cluster.always(RequestCode.GET_BROKER_CLUSTER_INFO, body=info.to_json_bytes())
    return StoredQueues(cluster)


def letter(**properties: str) -> DeadLetter:
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    return DeadLetter("g", one(record(topic=DLQ.encode(), properties=text.encode())))


def places(found: list[Read]) -> list[tuple[int, int]]:
    return [
        (each.message.queue_id, each.message.queue_offset)
        for each in found
        if isinstance(each, DeadLetter)
    ]


def stored_times(found: list[Read]) -> list[int]:
    return [each.message.store_timestamp for each in found if isinstance(each, DeadLetter)]


def unread(found: list[Read]) -> list[str]:
    return [str(each) for each in found if isinstance(each, Unread)]


class TestOrigin:
    @pytest.mark.parametrize(
        ("properties", "expected"),
        [
            ({"RETRY_TOPIC": "orders"}, "orders"),
            ({"RETRY_TOPIC": "%RETRY%g", "DLQ_ORIGIN_TOPIC": "orders"}, "orders"),
            ({"RETRY_TOPIC": "old", "DLQ_ORIGIN_TOPIC": "orders"}, "orders"),
            ({"RETRY_TOPIC": "orders", "DLQ_ORIGIN_TOPIC": "%RETRY%g"}, "orders"),
            ({"RETRY_TOPIC": "%RETRY%g_orders"}, "orders"),
            ({"RETRY_TOPIC": "%RETRY%g+orders"}, "orders"),
            ({"RETRY_TOPIC": "%RETRY%other_orders"}, None),
            ({"RETRY_TOPIC": "%RETRY%g"}, None),
            ({"RETRY_TOPIC": "%DLQ%g"}, None),
            ({"TAGS": "a"}, None),
        ],
    )
    def test_topic(self, properties: dict[str, str], expected: str | None) -> None:
        assert letter(**properties).origin_topic == expected

    def test_id(self) -> None:
        assert letter(ORIGIN_MESSAGE_ID="A", DLQ_ORIGIN_MESSAGE_ID="B").origin_id == "B"
        assert letter(ORIGIN_MESSAGE_ID="A").origin_id == "A"
        assert letter(TAGS="a").origin_id is None


def test_what_the_sender_wrote_is_kept_and_nothing_else() -> None:
    own = {
        "KEYS": "k1 k2",
        "TAGS": "a",
        "UNIQ_KEY": "7F",
        "__SHARDINGKEY": "s",
        "INSTANCE_ID": "i",
        "BUYER_ID": "b",
        "CORRELATION_ID": "c",
        "REPLY_TO_CLIENT": "r",
        "own": "größer",
    }
    written = {
        "RETRY_TOPIC": "t",
        "ORIGIN_MESSAGE_ID": "o",
        "DLQ_ORIGIN_TOPIC": "t",
        "DLQ_ORIGIN_MESSAGE_ID": "o",
        "RECONSUME_TIME": "16",
        "MAX_RECONSUME_TIMES": "16",
        "CONSUME_START_TIME": "1",
        "MIN_OFFSET": "0",
        "MAX_OFFSET": "9",
        "REAL_TOPIC": "x",
        "REAL_QID": "1",
        "DELAY": "0",
        "WAIT": "false",
        "TRAN_MSG": "true",
        "PGROUP": "p",
        "__transactionId__": "t",
        "TRANSACTION_CHECK_TIMES": "3",
        "TRAN_PREPARED_QUEUE_OFFSET": "3",
        "POP_CK": "1 2 3",
        "1ST_POP_TIME": "1",
        "TIMER_OUT_MS": "1",
        "TIMER_DELIVER_MS": "1",
        "TIMER_DELAY_SEC": "1",
        "TIMER_DELAY_MS": "1",
        "TIMER_DEL_UNIQKEY": "t+u",
        "CLUSTER": "c",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "INNER_NUM": "2",
        "__CRC32#": "1",
        "__RMQ.TRANSIENT.TOPIC_SYS_FLAG": "1",
    }
    assert letter(**own, **written).own_properties() == own


class TestScan:
    def test_queue_after_queue(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic(DLQ, [[Stored()] * 7, [], [Stored()] * 2])
        expected = [(0, n) for n in range(7)] + [(2, n) for n in range(2)]
        # The record's own queue id is not the queue's here.
        assert [place[1] for place in places(list(scan(admin, "g")))] == [e[1] for e in expected]

    @pytest.mark.parametrize(
        ("times", "expected"),
        [
            (TimeSpan(20, None), [20, 30]),
            (TimeSpan(None, 30), [10, 20]),
            (TimeSpan(None, 99), [10, 20, 30]),
            (TimeSpan(99, None), []),
            (TimeSpan(11, 21), [20]),
        ],
    )
    def test_between_times(
        self, admin: AdminClient, stored: StoredQueues, times: TimeSpan, expected: list[int]
    ) -> None:
        stored.topic(DLQ, [[Stored(stored_ms=each) for each in (10, 20, 30)]])
        assert stored_times(list(scan(admin, "g", times))) == expected

    def test_what_dies_meanwhile_is_not_met(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic(DLQ, [[Stored()] * 4, [Stored()]])
        found = scan(admin, "g")
        next(found)
        for queue in stored.queues[DLQ]:
            queue.append(queue[0])
        assert len(list(found)) == 4

    def test_a_queue_that_is_refused_is_said(
        self, admin: AdminClient, stored: StoredQueues
    ) -> None:
        stored.topic(DLQ, [[Stored()], [Stored()], [Stored()]])
        stored.refused[DLQ, 1] = (16, "no permission")
        found = list(scan(admin, "g"))
        assert len(places(found)) == 2
        (problem,) = unread(found)
        assert problem.startswith("broker-g queue 1: ")
        assert "no permission" in problem

    def test_what_retention_took_is_said(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic(DLQ, [[Stored()] * 9])
        found = scan(admin, "g")
        early = [next(found) for _ in range(3)]
        stored.first[DLQ, 0] = 5
        rest = list(found)
        assert len(places(early + rest)) == 3 + 4
        assert unread(rest) == ["broker-g queue 0: offsets 3 to 4 are no longer there"]

    def test_a_tail_that_is_lost_is_said(self, admin: AdminClient, stored: StoredQueues) -> None:
        """After a failover a queue may be shorter than it was."""
        stored.topic(DLQ, [[Stored()] * 9])
        found = scan(admin, "g")
        next(found)
        del stored.queues[DLQ][0][3:]
        assert unread(list(found)) == [
            "broker-g queue 0: nothing at offset 3 and behind it: NO_NEW_MSG"
        ]

    def test_a_group_without_dead_letters(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic("orders")
        with pytest.raises(AdminError, match="topic %DLQ%g does not exist"):
            list(scan(admin, "g"))

    def test_a_topic_of_4_8_may_not_be_read(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic(DLQ, perm=2)
        with pytest.raises(AdminError, match="%DLQ%g has no queue that can be read"):
            list(scan(admin, "g"))


class TestFind:
    def test_by_both_kinds_of_ids(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic(DLQ, [[Stored({"UNIQ_KEY": "AB"}), Stored({"UNIQ_KEY": "CD"})]])
        found = list(find(admin, "g", ["CD", stored.letter_id(DLQ, 0, 0), "CD"]))
        assert stored_times(found) == [20_000, 10_000]
        assert len(found) == 2

    def test_one_that_died_twice(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic(DLQ, [[Stored({"UNIQ_KEY": "AB"}), Stored({"UNIQ_KEY": "AB"})]])
        assert stored_times(list(find(admin, "g", ["AB"]))) == [10_000, 20_000]

    @pytest.mark.parametrize("wanted", ["nothing", "x" * 300, "00" * 16, "\x00<b>"])
    def test_what_is_none(self, admin: AdminClient, stored: StoredQueues, wanted: str) -> None:
        stored.topic(DLQ, [[Stored()]])
        (found,) = find(admin, "g", [wanted])
        assert isinstance(found, Unread)
        assert found.what == wanted

    def test_a_message_of_another_topic_is_none(
        self, admin: AdminClient, stored: StoredQueues
    ) -> None:
        stored.topic(DLQ, [[Stored()]])
        stored.topic("orders", [[Stored()]])
        (found,) = find(admin, "g", [stored.letter_id("orders", 0, 0)])
        assert str(found).endswith(": group g has no dead letter with this id")

    def test_the_others_are_found_all_the_same(
        self, admin: AdminClient, stored: StoredQueues
    ) -> None:
        stored.topic(DLQ, [[Stored({"UNIQ_KEY": "AB"})]])
        found = list(find(admin, "g", ["none", "AB"]))
        assert [isinstance(each, Unread) for each in found] == [True, False]


def test_the_newest(admin: AdminClient, stored: StoredQueues) -> None:
    stored.topic(DLQ, [[Stored(body=b"x" * 100_000)] * 4])
    found, problems = newest(admin, "g", 2)
    assert problems == []
    assert max(len(each.message.body) for each in found) < 5_000
    summaries = [each.summary_json(60_000) for each in found]
    assert [(each["ageMs"], each["bodySize"]) for each in summaries] == [
        (20_000, 100_000),
        (30_000, 100_000),
    ]


def test_groups(admin: AdminClient, stored: StoredQueues) -> None:
    assert groups_with_dead_letters(["orders", "%DLQ%b", "%RETRY%x", "%DLQ%a"]) == ["a", "b"]
    stored.topic(DLQ, [[Stored()] * 7, [], [Stored(stored_ms=99)]])
    stored.first[DLQ, 0] = 2
    found = count_dead_letters(admin, "g")
    assert (found.count, found.last_ms) == (6, 70_000)

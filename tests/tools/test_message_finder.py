"""Finding messages for pages: the newest, by id, with brokers that are dead, lie or refuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from remoting.body.message_queue import MessageQueue
from remoting.body.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from remoting.body.topic_queue_mapping import TopicQueueMappingInfo
from remoting.errors import RemotingConnectError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.stored_queues import Stored, StoredQueues
from tests.tools.test_message_decoder import record
from tools.admin_client import AdminClient, BrokerAddress, NameServers
from tools.broker_members import BrokerMembers
from tools.errors import AdminError
from tools.message_decoder import encode_message_id
from tools.message_finder import (
    KeyQuery,
    _who_may_have,
    find_by_key,
    find_by_offset_id,
    find_by_queue_offset,
    find_newest,
)
from tools.message_puller import MessagePuller, TimeSpan

DEAD = "127.0.0.1:1"


@pytest.fixture
def admin(cluster: FakeCluster) -> Iterator[AdminClient]:
    """A client of the fake cluster."""
    with AdminClient(NameServers.parse(cluster.address), lambda: 5_000_000) as client:
        yield client


@pytest.fixture
def stored(cluster: FakeCluster) -> StoredQueues:
    """A cluster with no topic yet."""
    return StoredQueues(cluster)


def times(messages: list[int]) -> list[Stored]:
    return [Stored(stored_ms=each) for each in messages]


class TestNewest:
    def test_over_all_queues(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic("T", [times([10, 40, 50, 80]), times([20, 30, 60, 70]), []])
        found = find_newest(admin, "T", 5)
        assert [message.store_timestamp for message in found.messages] == [80, 70, 60, 50, 40]
        assert found.problems == []

    def test_many_windows(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic("T", [times(list(range(1, 101)))])
        found = find_newest(admin, "T", 1000).messages
        assert [message.store_timestamp for message in found] == list(range(100, 0, -1))

    def test_only_what_is_needed_is_read(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        stored.topic("T", [times(list(range(1, 101)))])
        assert len(find_newest(admin, "T", 3).messages) == 3
        offsets = [
            int(r.ext_fields["queueOffset"]) for r in cluster.asked(RequestCode.PULL_MESSAGE)
        ]
        assert min(offsets) == 92

    def test_costs_few_requests(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        """The route, the offsets of all queues, and a pull of each that has a message."""
        stored.topic("T", [times([10]), times([20]), *[[]] * 14])
        find_newest(admin, "T", 50)
        assert len(cluster.requests) == 2 + 2

    def test_times_are_asked_about_where_there_is_something(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        stored.topic("T", [times([10]), times([20]), *[[]] * 14])
        assert len(find_newest(admin, "T", 50, times=TimeSpan(5, 25)).messages) == 2
        assert len(cluster.asked(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)) == 2 * 2

    def test_a_broker_that_refuses_to_say_where_its_queues_end(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        stored.topic("T", [times([10]), times([20])])
        for answer in ((16, b""), (0, b"no json")):
            cluster.always(RequestCode.GET_TOPIC_STATS_INFO, answer[0], body=answer[1])
            assert len(find_newest(admin, "T", 50).messages) == 2

    def test_no_offset_is_moved(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        stored.topic("T", [times([10])])
        find_newest(admin, "T", 3)
        (pull,) = cluster.asked(RequestCode.PULL_MESSAGE)
        assert int(pull.ext_fields["sysFlag"]) & 1 == 0, "FLAG_COMMIT_OFFSET"
        assert cluster.asked(RequestCode.UPDATE_CONSUMER_OFFSET) == []

    @pytest.mark.parametrize(
        ("begin_ms", "end_ms", "expected"),
        [
            (20, None, [40, 30, 20]),
            (21, None, [40, 30]),
            (None, 30, [20, 10]),
            (None, 31, [30, 20, 10]),
            (None, 1000, [40, 30, 20, 10]),
            (20, 40, [30, 20]),
            (1000, 2000, []),
            (40, 41, [40]),
        ],
    )
    def test_between_times(
        self,
        admin: AdminClient,
        stored: StoredQueues,
        begin_ms: int | None,
        end_ms: int | None,
        expected: list[int],
    ) -> None:
        stored.topic("T", [times([10, 20, 30, 40])])
        found = find_newest(admin, "T", 9, times=TimeSpan(begin_ms, end_ms)).messages
        assert [message.store_timestamp for message in found] == expected

    def test_a_queue_that_cannot_be_read(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic("T", [times([10]), times([20])])
        stored.refused["T", 1] = (16, "no permission")
        found = find_newest(admin, "T", 5)
        assert [message.store_timestamp for message in found.messages] == [10]
        (problem,) = found.problems
        assert problem.startswith("broker-g queue 1: ")
        assert "NO_PERMISSION (16): no permission" in problem

    def test_a_queue_that_lies_about_its_end(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        stored.topic("T", [times([10])])
        cluster.always(RequestCode.GET_TOPIC_STATS_INFO, 1)
        cluster.always(RequestCode.GET_MAX_OFFSET, fields={"offset": str(1 << 62)})
        assert [message.queue_offset for message in find_newest(admin, "T", 5).messages] == [0]
        assert len(cluster.asked(RequestCode.PULL_MESSAGE)) < 70

    @pytest.mark.parametrize("goes_on", [True, False])
    def test_gaps(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster, goes_on: bool
    ) -> None:
        """A pull into a gap brings the next message, as of a compaction topic, or only its place,
        as of a static topic that was remapped."""
        places = (0, 100, 101, 20_500)
        cluster.always(RequestCode.GET_TOPIC_STATS_INFO, 1)
        stored.topic("T", [[]])

        def pull(request: RemotingCommand) -> RemotingCommand:
            offset = int(request.ext_fields["queueOffset"])
            found = min((place for place in places if place >= offset), default=20_501)
            fields = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "20501"}
            if found > offset and not goes_on:
                return request.response(20, None, fields | {"nextBeginOffset": str(found)})
            body = record(queue_offset=found, stored_ms=found)
            return request.response(0, None, fields | {"nextBeginOffset": str(found + 1)}, body)

        cluster.answers[RequestCode.PULL_MESSAGE] = pull
        cluster.always(RequestCode.GET_MAX_OFFSET, fields={"offset": "20501"})
        found = find_newest(admin, "T", 9)
        assert [message.queue_offset for message in found.messages] == [20_500, 101, 100, 0]
        assert found.problems == []

    def test_bodies_are_cut(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic("T", [[Stored(body=b"x" * 100_000)]])
        (message,) = find_newest(admin, "T", 5, max_body=10).messages
        assert (message.body, message.stored_body_size) == (b"x" * 10, 100_000)

    def test_a_topic_that_cannot_be_read(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic("T", perm=2)
        with pytest.raises(AdminError, match="no queue that can be read"):
            find_newest(admin, "T", 5)


class TestMembers:
    def test_a_slave_answers_for_a_dead_master(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        stored.topic("T", [times([10])])
        members = BrokerData(
            cluster="c", broker_name="broker-g", broker_addrs={1: cluster.address, 0: DEAD}
        )
        stored.routes["T"] = replace(stored.routes["T"], broker_datas=[members])
        assert len(find_newest(admin, "T", 5).messages) == 1
        assert len(find_by_key(admin, KeyQuery(topic="T", key="none")).problems) == 0

    def test_who_did_not_answer_is_asked_last(
        self, admin: AdminClient, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        members = BrokerData(broker_name="b", broker_addrs={1: cluster.address, 0: DEAD})
        asked: list[str] = []
        real = admin.call

        def call(address: str, *args: object, **options: object) -> object:
            asked.append(address)
            return real(address, *args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(admin, "call", call)
        cluster.always(RequestCode.GET_BROKER_RUNTIME_INFO)
        found = BrokerMembers(admin, TopicRouteData(broker_datas=[members]))
        for _ in range(2):
            found.ask("b", RequestCode.GET_BROKER_RUNTIME_INFO, None)
        assert asked == [DEAD, cluster.address, cluster.address]

    def test_nobody_answers(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic("T", [times([10])])
        members = BrokerData(broker_name="broker-g", broker_addrs={0: DEAD})
        stored.routes["T"] = replace(stored.routes["T"], broker_datas=[members])
        (problem,) = find_newest(admin, "T", 5).problems
        assert problem.startswith(f"broker-g queue 0: {DEAD}: ")
        with pytest.raises(RemotingConnectError):
            MessagePuller(admin, "T").min_offset(
                MessageQueue(broker_name="broker-g", queue_id=0, topic="T")
            )


class TestStaticTopics:
    def test_logic_queues_are_read_where_they_are_led(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        stored.topic("T", [times([10]), times([20])])
        both = [
            BrokerData(broker_name=name, broker_addrs={0: cluster.address}) for name in ("a", "b")
        ]
        physical = [
            QueueData(broker_name=name, read_queue_nums=7, write_queue_nums=7, perm=6)
            for name in ("a", "b")
        ]
        mappings = {
            "a": TopicQueueMappingInfo(bname="a", epoch=1, curr_id_map={0: 5, 1: 6}),
            "b": TopicQueueMappingInfo(bname="b", epoch=2, curr_id_map={1: 4}),
        }
        stored.routes["T"] = TopicRouteData(
            broker_datas=both, queue_datas=physical, topic_queue_mapping_by_broker=mappings
        )
        queues = MessagePuller(admin, "T").queues()
        assert [(q.broker_name, q.queue_id) for q in queues] == [("a", 0), ("b", 1)]
        found = find_newest(admin, "T", 5).messages
        assert [(m.broker_name, m.store_timestamp) for m in found] == [("b", 20), ("a", 10)]
        assert cluster.asked(RequestCode.GET_TOPIC_STATS_INFO) == [], "those are physical queues"

    def test_offsets_are_those_of_the_logic_queue(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        stored.topic("T", [times([10])])
        pull = cluster.answers[RequestCode.PULL_MESSAGE]

        def with_delta(request: RemotingCommand) -> RemotingCommand:
            answer = pull(request)
            answer.ext_fields["offsetDelta"] = "500"
            return answer

        cluster.answers[RequestCode.PULL_MESSAGE] = with_delta
        queue = MessageQueue(broker_name="broker-g", queue_id=0, topic="T")
        (message,) = MessagePuller(admin, "T").pull(queue, 0, 1).messages
        assert message.queue_offset == 500


class TestByPlace:
    def known(self, cluster: FakeCluster, *addresses: str) -> None:
        data = BrokerData(
            cluster="c", broker_name="broker-g", broker_addrs=dict(enumerate(addresses))
        )
        info = ClusterInfo(
            broker_addr_table={"broker-g": data}, cluster_addr_table={"c": ["broker-g"]}
        )
        cluster.always(RequestCode.GET_BROKER_CLUSTER_INFO, body=info.to_json_bytes())

    def test_an_offset_id(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        stored.topic("T", [times([10, 20])])
        self.known(cluster, cluster.address)
        wanted = stored.letter_id("T", 0, 1)
        assert find_by_offset_id(admin, wanted).store_timestamp == 20
        assert find_by_offset_id(admin, wanted.lower()).store_timestamp == 20

    def test_an_id_leads_to_no_other_address(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        """Who makes an id could else have the console connect to any host."""
        stored.topic("T", [times([10])])
        self.known(cluster, DEAD)
        with pytest.raises(AdminError, match="no broker of this cluster has a message"):
            find_by_offset_id(admin, stored.letter_id("T", 0, 0))
        assert cluster.asked(RequestCode.VIEW_MESSAGE_BY_ID) == []

    def test_a_replica_has_the_same_message(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        stored.topic("T", [times([10])])
        self.known(cluster, DEAD, cluster.address)
        assert find_by_offset_id(admin, stored.letter_id("T", 0, 0)).store_timestamp == 10

    def test_who_is_asked(self) -> None:
        """Not every broker of a large cluster, when the id's own one is there."""
        one, two = (
            [BrokerAddress("c", name, number, f"{name}{number}:1") for number in (0, 1)]
            for name in ("a", "b")
        )
        assert _who_may_have(one + two, "b1:1") == [two[1], two[0]]
        assert _who_may_have(one + two, "x:1") == [one[0], two[0], one[1], two[1]]

    def test_another_message_at_the_same_offset(
        self, admin: AdminClient, stored: StoredQueues, cluster: FakeCluster
    ) -> None:
        stored.topic("T", [times([10])])
        self.known(cluster, cluster.address)
        elsewhere = encode_message_id(bytes([10, 0, 0, 1]), 10911, 0)
        with pytest.raises(AdminError, match="no broker of this cluster has a message"):
            find_by_offset_id(admin, elsewhere)

    def test_a_place_in_a_queue(self, admin: AdminClient, stored: StoredQueues) -> None:
        stored.topic("T", [times([10, 20])])
        queue = MessageQueue(broker_name="broker-g", queue_id=0, topic="T")
        assert find_by_queue_offset(admin, queue, 1).store_timestamp == 20
        with pytest.raises(AdminError, match="no message at offset 2: NO_NEW_MSG"):
            find_by_queue_offset(admin, queue, 2)


class TestByKey:
    def test_a_broker_that_refuses_is_a_problem(
        self, admin: AdminClient, stored: StoredQueues
    ) -> None:
        stored.topic("T", [[Stored({"KEYS": "a b"}), Stored({"KEYS": "abc"})]])
        query = KeyQuery(topic="T", key="b")
        assert [m.queue_offset for m in find_by_key(admin, query).messages] == [0]
        stored.refused["T", -1] = (1, "index is off")
        (problem,) = find_by_key(admin, query).problems
        assert problem.endswith("index is off")

"""mqadmin startMonitoring: rounds, what they report, and what they leave out."""

from __future__ import annotations

import pytest

from remoting.body.client_connection import Connection, ConsumerConnection
from remoting.body.consumer_running_info import ConsumerRunningInfo, ProcessQueueInfo
from remoting.body.heartbeat import SubscriptionData
from remoting.body.message_queue import MessageQueue
from remoting.body.reset_offset import OffsetMovedEvent
from remoting.body.stats import ConsumeStats, OffsetWrapper
from remoting.mq_version import V3_1_8_SNAPSHOT
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import GOLDEN_HOURS, Bench
from tests.tools.test_message_decoder import record

NOW_MS = int(GOLDEN_HOURS * 3_600_000)
BEGIN = f"[MONITOR] {'=' * 41}beginRound"
END = f"[MONITOR] {'=' * 41}endRound"
QUEUE = MessageQueue(broker_name="broker-g", queue_id=1, topic="GTopic")


class World:
    """One group with members and a backlog; a topic of events that grows."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.event_end = 0
        cluster.always(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            body=b'{"topicList":["GTopic","%RETRY%g"]}',
        )
        queues = {QUEUE: OffsetWrapper(broker_offset=9, consumer_offset=4, last_timestamp=1500)}
        other = MessageQueue(broker_name="broker-g", queue_id=0, topic="GTopic")
        queues[other] = OffsetWrapper(broker_offset=3, consumer_offset=5)
        body = ConsumeStats(offset_table=queues).to_json_bytes()
        cluster.always(RequestCode.GET_CONSUME_STATS, body=body)
        cluster.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self.route
        cluster.answers[RequestCode.GET_MAX_OFFSET] = self.max_offset
        cluster.answers[RequestCode.PULL_MESSAGE] = self.pull
        self.members({"a": self.info()})

    def route(self, request: RemotingCommand) -> RemotingCommand:
        text = (
            f'{{"brokerDatas":[{{"brokerAddrs":{{"0":"{self.cluster.address}"}},'
            '"brokerName":"broker-g"}],'
            '"queueDatas":[{"brokerName":"broker-g","perm":6,"readQueueNums":1}]}'
        )
        return request.response(0, body=text.encode())

    def max_offset(self, request: RemotingCommand) -> RemotingCommand:
        events = request.ext_fields["topic"] == "OFFSET_MOVED_EVENT"
        return request.response(0, None, {"offset": str(self.event_end if events else 9)})

    def pull(self, request: RemotingCommand) -> RemotingCommand:
        """Events, or one message stored at 2000."""
        offset = int(request.ext_fields["queueOffset"])
        fields = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "9"}
        fields["nextBeginOffset"] = str(offset + 1)
        body = b"hello"
        if request.ext_fields["topic"] == "OFFSET_MOVED_EVENT":
            body = OffsetMovedEvent(
                consumer_group="g", message_queue=QUEUE, offset_request=offset, offset_new=8
            ).to_json_bytes()
        return request.response(0, None, fields, record(body=body))

    @staticmethod
    def info(expression: str = "*", *, waits: bool = False) -> ConsumerRunningInfo:
        state = ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=0 if waits else NOW_MS)
        return ConsumerRunningInfo(
            properties={
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CONSUMER_START_TIMESTAMP": "1",
            },
            subscription_set=[SubscriptionData(topic="GTopic", sub_string=expression)],
            mq_table={QUEUE: state},
        )

    def members(
        self, infos: dict[str, ConsumerRunningInfo | None], version: int = V3_1_8_SNAPSHOT
    ) -> None:
        connections = [
            Connection(client_id=name, client_addr="x:1", version=version) for name in infos
        ]
        body = ConsumerConnection(connection_set=connections).to_json_bytes()
        self.cluster.always(RequestCode.GET_CONSUMER_CONNECTION_LIST, body=body)

        def answer(request: RemotingCommand) -> RemotingCommand:
            found = infos[request.ext_fields["clientId"]]
            if found is None:
                return request.response(1, "offline")
            return request.response(0, body=found.to_json_bytes())

        self.cluster.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = answer


@pytest.fixture
def world(cluster: FakeCluster) -> World:
    return World(cluster)


UNDONE = (
    "[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup=g, topic=GTopic, undoneMsgsTotal=5, "
    "undoneMsgsSingleMQ=5, undoneMsgsDelayTimeMills=500]"
)


def test_a_round_every_minute(mqadmin: Bench, world: World) -> None:
    mqadmin.rounds = 2
    outcome = mqadmin.run("startMonitoring")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [BEGIN, UNDONE, END] * 2
    assert mqadmin.waits == [60.0, 60.0]


def test_another_interval(mqadmin: Bench, world: World) -> None:
    mqadmin.run("startMonitoring", "-i", "5")
    assert mqadmin.waits == [5.0]


def test_a_round_as_json(mqadmin: Bench, world: World) -> None:
    assert mqadmin.run_json("startMonitoring") == [
        {
            "report": "undoneMsgs",
            "consumerGroup": "g",
            "topic": "GTopic",
            "undoneMsgsTotal": 5,
            "undoneMsgsSingleMQ": 5,
            "undoneMsgsDelayTimeMills": 500,
        }
    ]


def test_what_looks_wrong_in_the_members(mqadmin: Bench, world: World) -> None:
    world.members({"a": world.info(waits=True), "b": world.info("TagA")})
    out = mqadmin.run("startMonitoring").out.splitlines()
    notify = "[MONITOR]  [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: g, "
    problem = (
        "a MessageQueue [topic=GTopic, brokerName=broker-g, queueId=1] can't consume for a while, "
        f"maybe blocked, {NOW_MS}ms"
    )
    assert out == [
        BEGIN,
        UNDONE,
        f"{notify}Subscription different",
        f"{notify}ClientId: a, {problem}",
        END,
    ]
    assert mqadmin.run_json("startMonitoring")[1:] == [
        {"report": "subscriptionDifferent", "consumerGroup": "g"},
        {"report": "processQueue", "consumerGroup": "g", "clientId": "a", "problems": [problem]},
    ]


def test_members_that_cannot_tell(mqadmin: Bench, world: World) -> None:
    world.members({"a": None})
    outcome = mqadmin.run("startMonitoring")
    assert outcome.out.splitlines() == [BEGIN, UNDONE, END]
    assert "mqadmin startMonitoring: group g: client a: " in outcome.err
    world.members({"a": None}, version=V3_1_8_SNAPSHOT - 1)
    assert mqadmin.run("startMonitoring").err == ""


def test_a_group_that_is_offline(mqadmin: Bench, world: World) -> None:
    world.cluster.always(RequestCode.GET_CONSUMER_CONNECTION_LIST, 206, "nobody")
    assert mqadmin.run("startMonitoring").out.splitlines() == [BEGIN, END]


def test_a_group_whose_broker_refuses(mqadmin: Bench, world: World) -> None:
    world.cluster.always(RequestCode.GET_CONSUME_STATS, 1, "broken")
    outcome = mqadmin.run("startMonitoring")
    assert outcome.out.splitlines() == [BEGIN, END]
    assert outcome.err == (
        f"mqadmin startMonitoring: group g: {world.cluster.address} answered SYSTEM_ERROR (1): "
        "broken\n"
    )


def test_a_delay_that_nobody_tells(mqadmin: Bench, world: World) -> None:
    world.cluster.always(RequestCode.GET_MAX_OFFSET, 1, "broken")
    outcome = mqadmin.run("startMonitoring")
    assert outcome.out.splitlines()[1] == UNDONE.replace("Mills=500", "Mills=0")
    assert "group g: cannot determine the delay in GTopic: " in outcome.err
    assert "topic OFFSET_MOVED_EVENT: " in outcome.err


def test_moved_offsets_since_the_round_before(mqadmin: Bench, world: World) -> None:
    world.event_end = 3
    mqadmin.rounds = 2

    def wait(seconds: float) -> bool:
        mqadmin.waits.append(seconds)
        world.event_end += 1
        return len(mqadmin.waits) > 2

    mqadmin._wait = wait  # type: ignore[method-assign]
    lines = mqadmin.run("startMonitoring").out.splitlines()
    event = (
        "[MONITOR] reportDeleteMsgsEvent: DeleteMsgsEvent [offsetMovedEvent=OffsetMovedEvent "
        "[consumerGroup=g, messageQueue=MessageQueue [topic=GTopic, brokerName=broker-g, "
        "queueId=1], offsetRequest={}, offsetNew=8], eventTimestamp=2000]"
    )
    rounds = [BEGIN, UNDONE, END, BEGIN, UNDONE, event.format(3), END]
    assert lines == [*rounds, BEGIN, UNDONE, event.format(4), END]


def test_without_the_topic_of_events(mqadmin: Bench, world: World) -> None:
    found = world.route

    def route(request: RemotingCommand) -> RemotingCommand:
        if request.ext_fields["topic"] == "OFFSET_MOVED_EVENT":
            return request.response(17, "no route")
        return found(request)

    world.cluster.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
    outcome = mqadmin.run("startMonitoring")
    assert (outcome.out.splitlines(), outcome.err) == ([BEGIN, UNDONE, END], "")

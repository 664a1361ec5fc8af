"""One topic: rates, what is kept, settings as brokers of 4.9 and 5.x tell them. No broker."""

from __future__ import annotations

from typing import Any

import pytest

from console import topic_answers
from console.page import Reader
from console.render import count
from console.replies import MOST_AT_ONCE
from console.views import topics
from remoting.body.message_queue import MessageQueue
from remoting.body.stats import BrokerStatsData, BrokerStatsItem, TopicOffset, TopicStatsTable
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from tests.console.pages import HOSTILE, NOW, Peers, page, peer_reader, rows, seen, shown

B, C = "b0:10911", "c0:10911"
LIST, TOPIC = topics.VIEWS[:2]
ITEM = BrokerStatsItem(sum=70, tps=2.5)
FLOW = BrokerStatsData(stats_minute=ITEM, stats_day=BrokerStatsItem(sum=1_000))


def route(*names: str) -> dict[str, Any]:
    queues = {"readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicSysFlag": 0}
    return {
        "queueDatas": [{**queues, "brokerName": name} for name in names],
        "brokerDatas": [
            {"cluster": "C", "brokerName": name, "brokerAddrs": {"0": f"{name}0:10911"}}
            for name in names
        ],
    }


def stats(broker: str, *queues: tuple[int, int]) -> bytes:
    table = {
        MessageQueue(topic="T", broker_name=broker, queue_id=n): TopicOffset(
            min_offset=low, max_offset=high, last_update_timestamp=NOW - 5_000
        )
        for n, (low, high) in enumerate(queues)
    }
    return TopicStatsTable(offset_table=table).to_json_bytes()


def oldest(ms: int) -> Any:
    """As an answer to 32: its time is in the header."""

    def reply(_header: Any) -> RemotingCommand:
        response = RemotingCommand.request(Code.GET_EARLIEST_MSG_STORETIME, {}).response(0)
        response.ext_fields = {"timestamp": str(ms)}
        return response

    return reply


def config(**more: Any) -> dict[str, Any]:
    numbers = {"readQueueNums": 4, "writeQueueNums": 3, "perm": 2, "topicFilterType": "SINGLE_TAG"}
    return {"topicName": "T", **numbers, "topicSysFlag": 0, "order": True, **more}


def answers(**more: Any) -> dict[tuple[str, int], Any]:
    return {
        ("ns:1", Code.GET_ROUTEINFO_BY_TOPIC): route("b"),
        (B, Code.GET_TOPIC_STATS_INFO): stats("b", (5, 9), (3, 3)),
        (B, Code.QUERY_TOPIC_CONSUME_BY_WHO): {"groupList": [f"g{n:02}" for n in range(25)]},
        (B, Code.GET_TOPIC_CONFIG): config(attributes={"message.type": "FIFO"}),
        (B, Code.GET_EARLIEST_MSG_STORETIME): oldest(NOW - 60_000),
        (B, Code.VIEW_BROKER_STATS_DATA): FLOW.to_json_bytes(),
    }


def who(found: dict[tuple[str, int], Any], *names: str, **more: Any) -> Reader:
    return peer_reader(Peers(found), *(seen(name) for name in names or ("b",)), **more)


def test_rates_and_what_is_kept() -> None:
    peers = Peers(answers())
    found = page(topics.topic_page, peer_reader(peers, seen("b")), name="T")
    full, empty = rows(found, "queues")
    assert (full["oldestTimestamp"], empty["oldestTimestamp"]) == (NOW - 60_000, None)
    assert peers.codes(B).count(Code.GET_EARLIEST_MSG_STORETIME) == 1, "none of an empty queue"
    text = shown(TOPIC, who(answers()), {"name": "T"})
    assert f"In: 2.5 messages a second, {count(1_000)} in the last day" in text
    assert "The oldest message that brokers have told of is of" in text
    first, *_, last = rows(found, "consumers")
    assert (first["group"], first["outTps"], first["outMsg24Hour"]) == ("g00", 2.5, 1_000)
    assert (last["group"], last["outTps"]) == ("g24", None)


def test_rates_are_those_of_the_groups_on_the_shown_page() -> None:
    peers = Peers(answers())
    query = {"name": "T", "consumers.page": "2"}
    found = page(topics.topic_page, peer_reader(peers, seen("b")), **query)
    told = [row["group"] for row in rows(found, "consumers") if row["outTps"] is not None]
    assert told == [f"g{n}" for n in range(10, 20)]
    keys = {
        header.stats_key for _, code, header in peers.asked if code == Code.VIEW_BROKER_STATS_DATA
    }
    assert keys == {"T", *(f"T@{group}" for group in told)}


def test_what_is_not_told_yet_is_said() -> None:
    found = answers()
    del found[B, Code.VIEW_BROKER_STATS_DATA], found[B, Code.GET_EARLIEST_MSG_STORETIME]
    assert "In: not told yet" in shown(TOPIC, who(found), {"name": "T"})


def test_settings_of_5x_and_of_4_9() -> None:
    found = answers()
    found["ns:1", Code.GET_ROUTEINFO_BY_TOPIC] = route("b", "c")
    found[C, Code.GET_TOPIC_STATS_INFO] = stats("c", (0, 1))
    found[C, Code.GET_ALL_TOPIC_CONFIG] = {"topicConfigTable": {"T": config(), "U": config()}}
    peers = Peers(found)
    settings = rows(page(topics.topic_page, peer_reader(peers, seen("b")), name="T"), "settings")
    of_5x, of_4_9 = settings
    assert of_5x == {
        "brokerName": "b",
        "readQueueNums": 4,
        "writeQueueNums": 3,
        "perm": "write",
        "messageType": "FIFO",
        "order": "yes",
        "attributes": "message.type=FIFO",
    }
    assert (of_4_9["brokerName"], of_4_9["messageType"]) == ("c", None)
    assert Code.GET_ALL_TOPIC_CONFIG not in peers.codes(B), "the table of all is for 4.9 alone"


def test_a_topic_of_many_brokers_asks_few() -> None:
    names = [f"n{number:02}" for number in range(40)]
    found: dict[tuple[str, int], Any] = {("ns:1", Code.GET_ROUTEINFO_BY_TOPIC): route(*names)}
    for number, name in enumerate(names):
        at = f"{name}0:10911"
        found[at, Code.GET_TOPIC_STATS_INFO] = stats(name, *([(0, 9)] * 3))
        found[at, Code.GET_TOPIC_CONFIG] = config()
        found[at, Code.GET_EARLIEST_MSG_STORETIME] = oldest(NOW - number)
        found[at, Code.VIEW_BROKER_STATS_DATA] = FLOW.to_json_bytes()
        found[at, Code.QUERY_TOPIC_CONSUME_BY_WHO] = {"groupList": ["g"]}
    peers = Peers(found)
    text = shown(TOPIC, peer_reader(peers, seen("n00")), {"name": "T"})
    assert f"those of the first {MOST_AT_ONCE} of 40 brokers" in text
    assert "In: 30.0 messages a second" in text
    asked = [code for _, code, _ in peers.asked]
    assert asked.count(Code.GET_EARLIEST_MSG_STORETIME) == topic_answers.MOST_QUEUES
    assert asked.count(Code.GET_TOPIC_CONFIG) == MOST_AT_ONCE
    assert asked.count(Code.VIEW_BROKER_STATS_DATA) == 2 * MOST_AT_ONCE


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"7", b'{"topicName":"T","perm":"x"}', b"\xff" * 99],
)
def test_settings_that_cannot_be_read_are_a_sentence(body: bytes) -> None:
    found = answers() | {(B, Code.GET_TOPIC_CONFIG): body}
    text = shown(TOPIC, who(found), {"name": "T"})
    assert "settings: broker b0:10911: " in text


def test_hostile_figures_and_names() -> None:
    huge = BrokerStatsItem(sum=2**62, tps=1e308)
    found = answers() | {
        (B, Code.VIEW_BROKER_STATS_DATA): BrokerStatsData(
            stats_minute=huge, stats_day=huge
        ).to_json_bytes(),
        (B, Code.QUERY_TOPIC_CONSUME_BY_WHO): {"groupList": [HOSTILE] * 3},
        (B, Code.GET_TOPIC_CONFIG): config(perm=99, attributes={HOSTILE: HOSTILE}),
        (B, Code.GET_EARLIEST_MSG_STORETIME): oldest(2**62),
    }
    text = shown(TOPIC, who(found), {"name": "T"})
    assert "<img src=x" not in text
    assert "In: not told yet" in text
    assert len(text) < 100_000


def test_a_topic_without_a_master_still_has_a_page() -> None:
    gone = route("b")
    gone["brokerDatas"][0]["brokerAddrs"] = {}
    found = {("ns:1", Code.GET_ROUTEINFO_BY_TOPIC): gone}
    text = shown(TOPIC, who(found), {"name": "T"})
    assert "no master" in text
    assert "No broker tells them." in text


def test_the_json_is_what_topic_status_prints() -> None:
    found = page(topics.topic_page, who(answers()), name="T").json_data()
    assert found[0] == {
        "brokerName": "b",
        "queueId": 0,
        "minOffset": 5,
        "maxOffset": 9,
        "lastUpdateTimestamp": NOW - 5_000,
    }


def test_the_json_of_the_list_is_what_topic_list_prints() -> None:
    reader = who({}, topics=("A", "%RETRY%g", "TBW102"))
    assert page(topics.topics, reader).json_data() == ["A", "%RETRY%g", "TBW102"]
    assert page(topics.topics, reader, kind="retry").json_data() == ["%RETRY%g"]

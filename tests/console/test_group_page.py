"""A group's page, and one member's: who has which queue, what members say of themselves. No broker.

A member is hostile: it sends what it likes, as late as it likes.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from console import group_answers
from console.access.account import OPERATOR
from console.metric_names import LAG_MS
from console.page import ConsoleError, Reader
from console.snapshot import BrokerSeen, Metrics, Told
from console.views import clients, groups, search
from remoting.body.client_connection import Connection, ConsumerConnection
from remoting.body.consumer_running_info import (
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from remoting.body.heartbeat import ConsumeType, MessageModel, SubscriptionData
from remoting.body.message_queue import MessageQueue
from remoting.body.stats import ConsumeStats, OffsetWrapper
from remoting.request_code import RequestCode as Code
from tests.console.pages import HOSTILE, NOW, Peers, java, page, peer_reader, rows, seen, shown
from tests.console.test_topic_page import route

B, C = "b0:10911", "c0:10911"
_, GROUP = groups.VIEWS[:2]
CLIENT, STACK = clients.VIEWS
QUEUES = [MessageQueue(topic="T", broker_name="b", queue_id=n) for n in range(4)]
MEMBERS = Code.GET_CONSUMER_CONNECTION_LIST
RUNNING = Code.GET_CONSUMER_RUNNING_INFO


def connection(*names: str) -> ConsumerConnection:
    return ConsumerConnection(
        connection_set=[Connection(client_id=name, client_addr="10.0.0.9:1") for name in names],
        subscription_table={"T": SubscriptionData(topic="T", sub_string="TagA")},
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
    )


def info(*queues: MessageQueue, **more: Any) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        mq_table={queue: ProcessQueueInfo(commit_offset=7, locked=True) for queue in queues},
        **more,
    )


FULL = info(
    QUEUES[0],
    properties={"PROP_NAMESERVER_ADDR": "ns:1", "aclSecretKey": "hunter2", "x": '{"password":"h"}'},
    subscription_set=[SubscriptionData(topic="T", sub_string="TagA")],
    status_table={"T": ConsumeStatus(consume_oktps=12.5, pull_rt=3.0)},
    jstack='main\n  at "<b>x</b>"\x1b[2J',
)


def answers(says: dict[str, Any], *names: str) -> dict[tuple[str, int], Any]:
    """A group of these members; `says` what each answers."""
    stats = {
        queue: OffsetWrapper(broker_offset=10, consumer_offset=4, last_timestamp=NOW - 9_000)
        for queue in QUEUES
    }

    def reply(header: Any) -> Any:
        said = says.get(header.client_id, (1, "the consumer does not answer"))
        return said.to_json_bytes() if isinstance(said, ConsumerRunningInfo) else said

    return {
        ("ns:1", Code.GET_ROUTEINFO_BY_TOPIC): route("b"),
        (B, Code.GET_CONSUME_STATS): ConsumeStats(offset_table=stats).to_json_bytes(),
        (B, MEMBERS): connection(*(names or says)).to_json_bytes(),
        (B, RUNNING): reply,
    }


def who(found: dict[tuple[str, int], Any], **more: Any) -> Reader:
    return peer_reader(Peers(found), seen("b"), **more)


# -- owners of queues --------------------------------------------------------------------------


def test_each_queue_has_its_owner() -> None:
    says = {"one@h": info(QUEUES[0], QUEUES[1]), "two@h": info(QUEUES[1], QUEUES[2])}
    reader = who(answers(says))
    found = page(groups.group_page, reader, name="g")
    owner = {row["queueId"]: row["clientId"] for row in rows(found, "queues")}
    assert owner == {0: "one@h", 1: "one@h", 2: "two@h", 3: None}
    text = shown(GROUP, reader, {"name": "g"})
    assert "one@h and 1 more" in text
    assert 'href="/client?id=two%40h&amp;group=g"' in text


def test_members_that_do_not_say_are_a_sentence_and_not_all_are_asked() -> None:
    """Each may hold one of the broker's threads for ten seconds."""
    names = [f"c{n}@h" for n in range(100)]
    peers = Peers(answers({}, *names))
    found = page(groups.group_page, peer_reader(peers, seen("b")), name="g")
    assert peers.codes(B).count(RUNNING) == group_answers.MOST_SILENT
    said = found.context["sentences"]
    assert said[0].startswith("c0@h does not say which queues it has: ")
    assert said[-1] == "97 further members are not asked which queues they have."


def test_of_many_members_the_first_are_asked() -> None:
    says = {f"c{n}@h": info(QUEUES[n % 4]) for n in range(100)}
    peers = Peers(answers(says))
    found = page(groups.group_page, peer_reader(peers, seen("b")), name="g")
    assert peers.codes(B).count(RUNNING) == group_answers.MOST_ASKED
    assert found.context["sentences"] == [
        "80 further members are not asked which queues they have."
    ]
    assert len(rows(found, "members")) == 100


def test_members_whose_answer_is_not_there_yet() -> None:
    peers = Peers(answers({"one@h": info()}))
    reader = peer_reader(peers, seen("b"))
    lanes: Any = reader.lanes
    lanes.silent_questions = {"owned queues"}
    said = page(groups.group_page, reader, name="g").context["sentences"]
    assert said == ["1 of the members asked have not said yet which queues they have."]


def test_members_are_those_of_the_first_broker_that_has_any() -> None:
    found = answers({"one@h": info()})
    found["ns:1", Code.GET_ROUTEINFO_BY_TOPIC] = route("a", "b", "c")
    found["a0:10911", MEMBERS] = (206, "nobody is online")
    found[C, MEMBERS] = connection("other@h").to_json_bytes()
    names = [
        row["clientId"] for row in rows(page(groups.group_page, who(found), name="g"), "members")
    ]
    assert names == ["one@h"]


def test_a_list_of_members_without_end_is_cut() -> None:
    many = answers({}, *(f"c{n}" for n in range(6_000)))
    found = page(groups.group_page, who(many), name="g")
    assert len(rows(found, "members")) == group_answers.MOST_MEMBERS
    assert "The first 5000 of 6000 members are shown." in found.context["sentences"]
    many[B, MEMBERS] = b'{"connectionSet":[' + b" " * group_answers.MOST_BYTES
    assert (
        "the console reads at most"
        in page(groups.group_page, who(many), name="g").context["problem"]
    )


# -- one member --------------------------------------------------------------------------------


def test_a_member_and_what_it_says() -> None:
    reader = who(answers({"one@h": FULL}))
    query = {"id": "one@h", "group": "g"}
    found = page(clients.client, reader, **query)
    (queue,) = rows(found, "queues")
    assert (queue["topic"], queue["commitOffset"], queue["state"]) == ("T", 7, "locked")
    (rates,) = rows(found, "rates")
    assert (rates["consumeOKTPS"], rates["pullRT"]) == (12.5, 3.0)
    assert rows(found, "subscriptions") == [{"topic": "T", "subString": "TagA"}]
    text = shown(CLIENT, reader, query)
    assert "10.0.0.9:1" in text
    assert "JAVA" in text
    assert "hunter2" not in text + json.dumps(found.json_data())
    assert "password" not in text + json.dumps(found.json_data())
    assert found.json_data()["queues"][0]["commitOffset"] == 7, "as consumerStatus prints it"
    assert "/client/stack" not in text


def test_a_stack_is_asked_for_on_its_page_alone() -> None:
    peers = Peers(answers({"one@h": FULL}))
    query = {"id": "one@h", "group": "g"}
    guest = peer_reader(peers, seen("b"))
    with pytest.raises(ConsoleError, match="Sign in"):
        page(clients.stack, guest, **query)
    signed = peer_reader(peers, seen("b"), account=OPERATOR)
    assert "/client/stack?id=one%40h&amp;group=g" in shown(CLIENT, signed, query)
    asked = [header.jstack_enable for _, code, header in peers.asked if code == RUNNING]
    assert asked == [False]
    text = shown(STACK, signed, query)
    assert "main\n  at" in text
    assert "<b>" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("view", [CLIENT, STACK])
def test_a_client_that_cannot_say_more_is_a_sentence(view: Any) -> None:
    reader = who(answers({}, "go@h"), account=OPERATOR)
    text = shown(view, reader, {"id": "go@h", "group": "g"})
    assert "clients in other languages than Java often cannot" in text
    assert "does not answer" in text


def test_who_is_not_online_has_no_page() -> None:
    query = {"id": "gone@h", "group": "g"}
    with pytest.raises(ConsoleError, match="no client gone@h of group g is online") as caught:
        page(clients.client, who(answers({"one@h": FULL})), **query)
    assert caught.value.status == 404
    silent = answers({"one@h": FULL})
    del silent[B, MEMBERS]
    with pytest.raises(ConsoleError, match="not supported"):
        page(clients.client, who(silent), **query)


def test_a_hostile_member() -> None:
    many = [MessageQueue(topic=HOSTILE, broker_name="b", queue_id=n) for n in range(1_500)]
    said = info(
        *many,
        properties={HOSTILE: HOSTILE},
        status_table={HOSTILE: ConsumeStatus(pull_tps=1e308, consume_failed_msgs=2**62)},
        jstack="x" * 600_000,
    )
    reader = who(answers({HOSTILE: said}), account=OPERATOR)
    query = {"id": HOSTILE, "group": "g"}
    assert len(rows(page(clients.client, reader, **query), "queues")) == group_answers.MOST_SHOWN
    text = shown(CLIENT, reader, query)
    assert "The first 1000 of 1500 queues are shown." in text
    assert "<img src=x" not in text
    assert len(shown(STACK, reader, query)) < group_answers.MOST_STACK + 50_000
    assert "<img src=x" not in shown(GROUP, reader, {"name": "g"})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{{{{{{",
        b'{"mqTable":7}',
        b'{"properties":{"a":{}}}',
        b"\xff" * 50,
        b'{"mqTable":{' + b'{"topic":"T"}:{},' * 20_000 + b"}}",
    ],
)
def test_what_cannot_be_read_is_a_sentence_soon(body: bytes) -> None:
    reader = who(answers({"one@h": body}), account=OPERATOR)
    began = time.process_time()
    for view in (CLIENT, STACK):
        assert shown(view, reader, {"id": "one@h", "group": "g"})
    shown(GROUP, reader, {"name": "g"})
    assert time.process_time() - began < 10


def test_what_is_too_large_is_not_read() -> None:
    body = info(QUEUES[0]).to_json_bytes()
    much = body + b" " * (group_answers.MOST_BYTES + 1 - len(body))
    reader = who(answers({"one@h": much}), account=OPERATOR)
    for view in (CLIENT, STACK):
        text = shown(view, reader, {"id": "one@h", "group": "g"})
        assert "the console reads at most" in text
    (said,) = page(groups.group_page, reader, name="g").context["sentences"]
    assert "2,097,153 bytes to GET_CONSUMER_RUNNING_INFO: the console reads at most" in said


# -- how old what waits is ---------------------------------------------------------------------


def waits(*brokers: Any) -> Reader:
    return peer_reader(Peers(answers({"one@h": info()})), *brokers)


def metrics(group: str, topic: str, *ages: float) -> dict[str, Any]:
    return {
        LAG_MS: [
            ({"consumer_group": group, "topic": topic, "is_retry": str(n)}, age)
            for n, age in enumerate(ages)
        ]
    }


def test_the_age_of_what_waits_is_exact_where_its_broker_tells() -> None:
    """A group that pops has two series for a topic: what comes again is the other."""
    reader = waits(seen("b", metrics=metrics("g", "T", 3_000, 5_000)))
    (row,) = rows(page(groups.group_page, reader, name="g"), "topics")
    assert row == {
        "topic": "T",
        "brokerName": "b",
        "diff": 24,
        "oldestMs": 5_000,
        "known": groups.EXACT,
    }
    assert "≤: its broker does not tell" not in shown(GROUP, reader, {"name": "g"})


@pytest.mark.parametrize(
    "broker",
    [
        java("b"),
        seen("b"),
        seen("b", metrics=metrics("other", "T", 5_000)),
        seen("b", metrics=metrics("g", "other", 5_000)),
        seen("b", metrics=metrics("g", "T", 0)),
        seen("b", metrics=Told(Metrics(metrics("g", "T", 5_000)), NOW - 60_000)),
    ],
)
def test_else_it_is_a_bound_and_says_so(broker: BrokerSeen) -> None:
    reader = waits(broker)
    (row,) = rows(page(groups.group_page, reader, name="g"), "topics")
    assert (row["oldestMs"], row["known"]) == (9_000, groups.AT_MOST)
    assert "≤: its broker does not tell" in shown(GROUP, reader, {"name": "g"})


def test_what_has_no_bound_is_not_known() -> None:
    """One queue of the topic was never consumed: the oldest that waits there may be of any age."""
    found = answers({"one@h": info()})
    stats = {
        QUEUES[0]: OffsetWrapper(broker_offset=9, consumer_offset=4, last_timestamp=NOW - 9_000),
        QUEUES[1]: OffsetWrapper(broker_offset=9),
        MessageQueue(topic="U", broker_name="b", queue_id=0): OffsetWrapper(
            broker_offset=9, consumer_offset=9
        ),
    }
    found[B, Code.GET_CONSUME_STATS] = ConsumeStats(offset_table=stats).to_json_bytes()
    told = {
        row["topic"]: row for row in rows(page(groups.group_page, who(found), name="g"), "topics")
    }
    assert (told["T"]["diff"], told["T"]["oldestMs"], told["T"]["known"]) == (14, None, None)
    assert (told["U"]["diff"], told["U"]["oldestMs"], told["U"]["known"]) == (0, 0, groups.EXACT)


# -- what commands print, and search -----------------------------------------------------------


def test_the_json_is_what_consumer_progress_prints() -> None:
    found = page(groups.group_page, who(answers({"one@h": info(QUEUES[0])})), name="g").json_data()
    assert (found["diffTotal"], found["consumeTps"]) == (24, 0.0)
    first, second, *_ = found["queues"]
    assert first == {
        "topic": "T",
        "brokerName": "b",
        "queueId": 0,
        "brokerOffset": 10,
        "consumerOffset": 4,
        "diff": 6,
        "lastTimestamp": NOW - 9_000,
        "clientIP": "one",
    }
    assert second["clientIP"] is None


def listed(**more: Any) -> Peers:
    table = {"subscriptionGroupTable": {"g": {"groupName": "g"}, "h": {"groupName": "h"}}}
    return Peers(answers({"one@h": info()}) | {(B, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG): table})


def test_the_json_of_the_list_is_what_consumer_progress_prints() -> None:
    reader = peer_reader(listed(), seen("b"))
    found = page(groups.groups, reader, begins="g").json_data()
    assert found == [
        {
            "group": "g",
            "count": 1,
            "version": "V3_0_0_SNAPSHOT",
            "type": "PUSH",
            "model": "CLUSTERING",
            "tps": 0.0,
            "diffTotal": 24,
        }
    ]


def test_a_group_whose_brokers_have_not_told_is_not_offline() -> None:
    for kind in ("members", "group progress"):
        reader = peer_reader(listed(), seen("b"))
        lanes: Any = reader.lanes
        lanes.silent_questions = {kind}
        assert page(groups.groups, reader).json_data() == []


def test_a_search_finds_clients_that_pages_have_seen() -> None:
    peers = Peers(answers({"one@h": info(), HOSTILE: info()}))
    reader = peer_reader(peers, seen("b"))
    assert rows(page(search.search, reader, q="one@"), "hits") == []
    page(groups.group_page, reader, name="g")
    asked = peers.codes(B).count(MEMBERS)
    for text in ("ONE@", "10.0.0.9"):
        found = page(search.search, reader, q=text)
        hits = [hit["name"] for hit in rows(found, "hits") if hit["kind"] == "client"]
        assert "one@h 10.0.0.9:1" in hits
    assert peers.codes(B).count(MEMBERS) == asked, "a search asks nobody about a group"
    text = shown(search.VIEWS[0], reader, {"q": "10.0.0.9"})
    assert "/client?id=one%40h&amp;group=g" in text
    assert "<img src=x" not in text

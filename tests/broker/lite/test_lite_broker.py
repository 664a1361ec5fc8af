"""Lite topics of one real broker: what a client of 5.5 sees, and what is left after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remoting.lite_names import to_lmq_name
from remoting.remoting_serializable import loads_lenient
from remoting.request_code import RequestCode
from tests.broker.lite.lite_client import PARENT, LiteClient, send_lite
from tests.support.deadline import wait_until
from tests.support.lite_parent import make_group, make_parent
from tests.support.our_broker import FrameClient, OurBroker

NAME = "b55"
GROUPS: dict[str, dict[str, str]] = {
    "GLite": {},
    "GOther": {},
    "GEx": {"lite.sub.model": "Exclusive"},
    "GEx0": {"lite.sub.model": "Exclusive", "lite.sub.reset.offset.exclusive": "true"},
    "GWild": {"lite.sub.wildcard": "true"},
}

ENDS = {"lite__topic__expiration": "30"}

pytestmark = pytest.mark.timeout(120)


@contextmanager
def lite_broker(root: Path) -> Iterator[OurBroker]:
    """With the parent and the groups."""
    settings = {
        "brokerName": NAME,
        "enableLmq": "true",
        "enableMultiDispatch": "true",
        "maxLiteSubscriptionCount": 60,
        "liteLagCountMetricsEnable": "true",
        "liteLagLatencyMetricsEnable": "true",
        "flushConsumerOffsetInterval": 200,
    }
    with OurBroker(root, **settings) as broker:
        broker.start()
        with broker.client() as frames:
            make_parent(frames, PARENT, **ENDS)
            for name, attributes in GROUPS.items():
                make_group(frames, name, PARENT, attributes)
        yield broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBroker]:
    with lite_broker(tmp_path_factory.mktemp("lite")) as broker:
        yield broker


@pytest.fixture
def frames(broker: OurBroker) -> Iterator[FrameClient]:
    with broker.client(timeout_s=10) as frames:
        yield frames


@pytest.fixture
def lite(request: pytest.FixtureRequest) -> str:
    """Each test has lite topics of its own."""
    return request.node.name.replace("[", "-").replace("]", "")[5:50]


def client(frames: FrameClient, name: str, group: str = "GLite") -> LiteClient:
    return LiteClient(frames, group, name, NAME)


def send(frames: FrameClient, lite: str, *bodies: bytes) -> None:
    """Until they can be read."""
    lmq = to_lmq_name(PARENT, lite)
    before = frames.offset(30, lmq, 0)
    for body in bodies:
        answer = send_lite(frames, lite, body)
        assert answer.code == 0, answer.remark
    wait_until(lambda: frames.offset(30, lmq, 0) == before + len(bodies))


def test_messages_of_two_lite_topics_come_in_one_answer_and_once(
    frames: FrameClient, lite: str
) -> None:
    one = client(frames, lite)
    one.subscribe(f"{lite}1", f"{lite}2")
    send(frames, f"{lite}1", b"a", b"b")
    send(frames, f"{lite}2", b"c")
    popped = one.pop(pollTime=5_000)
    while len(popped) < 3:
        popped += one.pop(pollTime=5_000)
        if len(popped) == 1:
            assert one.ack(popped[0]).code == 0
    assert sorted((each.body, each.lite[-1], each.attempts) for each in popped) == [
        (b"a", "1", 0),
        (b"b", "1", 0),
        (b"c", "2", 0),
    ]
    for each in popped:
        assert one.ack(each).code == 0
    assert one.pop() == []


def test_a_waiting_pop_is_woken_by_a_message_and_by_an_ack(
    broker: OurBroker, frames: FrameClient, lite: str
) -> None:
    one = client(frames, lite)
    one.subscribe(lite)
    waiting = one.post_pop(pollTime=15_000)
    with broker.client(timeout_s=10) as others:
        send(others, lite, b"a")
        (first,) = one.take_pop(waiting)
        waiting = one.post_pop(pollTime=15_000)
        send(others, lite, b"b")
        other = client(others, f"{lite}-other")
        assert other.ack(first).code == 0
        (second,) = one.take_pop(waiting)
    assert (first.body, second.body, second.offset) == (b"a", b"b", 1)


def test_a_failed_message_comes_again_soon_and_with_its_attempt(
    frames: FrameClient, lite: str
) -> None:
    """As client-java 5.2.0 asks: without the name of the lite topic."""
    one = client(frames, lite)
    send(frames, lite, b"a", b"b")
    one.subscribe(lite)
    first, second = one.pop(pollTime=5_000)
    assert one.ack(second).code == 0
    answer = one.change_time(first, 300, liteTopic="")
    assert answer.code == 0
    assert answer.ext_fields["reviveQid"] == "999"
    assert one.pop() == []
    again = one.pop(pollTime=10_000)
    assert [(each.body, each.attempts) for each in again] == [(b"a", 1), (b"b", 1)]
    send(frames, lite, b"c")
    for each in again:
        assert one.ack(each).code == 0
    (third,) = one.pop(pollTime=5_000)
    assert (third.body, third.attempts) == (b"c", 0)


def test_a_suspended_lite_topic_does_not_count_the_attempt(frames: FrameClient, lite: str) -> None:
    one = client(frames, lite)
    send(frames, lite, b"a", b"b")
    one.subscribe(lite)
    first, _second = one.pop(pollTime=5_000)
    assert one.change_time(first, 200, suspend="true").code == 0
    again = one.pop(pollTime=10_000)
    assert [(each.body, each.attempts) for each in again] == [(b"a", 0), (b"b", 0)]
    assert one.change_time(again[0], 0).code == 0
    assert one.change_time(again[1], 0).code == 0
    last = one.pop(pollTime=10_000)
    assert [(each.body, each.attempts) for each in last] == [(b"a", 1), (b"b", 1)]


def test_forged_handles_move_nothing(frames: FrameClient, lite: str) -> None:
    one, thief = client(frames, lite), client(frames, f"{lite}-thief", "GOther")
    send(frames, lite, b"a", b"b")
    one.subscribe(lite)
    first, second = one.pop(pollTime=5_000)
    assert thief.change_time(first, 0, liteTopic="").code == 0
    assert thief.change_time(first, 0).code == 0
    assert thief.ack(second).code == 0
    old = first.handle.split(" ")
    old[1] = str(int(old[1]) - 1)
    assert one.ack(first, extraInfo=" ".join(old)).code == 0
    assert one.change_time(first, 0, extraInfo=" ".join(old)).code == 0
    assert one.change_time(first, 0, liteTopic="", extraInfo=f"{first.handle} x").code == 0
    assert one.ack(first, consumerGroup="GUnknown").code == 29
    assert one.ack(first, offset=9).code == 208
    assert one.ack(first, queueId=1).code == 29
    usual = first.handle.replace(" 999 ", " 0 ")
    assert one.ack(first, extraInfo=usual).code == 29
    assert one.ack(first, liteTopic="").code in (0, 208)
    assert one.pop() == []
    assert thief.pop() == []
    assert one.ack(first).code == 0
    assert one.ack(second).code == 0
    assert one.pop() == []


def test_in_an_exclusive_group_the_older_client_is_told(
    broker: OurBroker, frames: FrameClient, lite: str
) -> None:
    older = client(frames, f"{lite}-1", "GEx0")
    send(frames, lite, b"a")
    older.subscribe(lite)
    (popped,) = older.pop(pollTime=5_000)
    assert older.ack(popped).code == 0
    with broker.client(timeout_s=10) as others:
        newer = client(others, f"{lite}-2", "GEx0")
        newer.subscribe(lite)
        notice = frames.take_request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE)
        assert notice.ext_fields == {
            "clientId": f"{lite}-1",
            "liteTopic": lite,
            "consumerGroup": "GEx0",
        }
        assert [each.body for each in newer.pop(pollTime=5_000)] == [b"a"]
        assert older.change("COMPLETE_ADD", lite).code == 0
        assert (
            frames.take_request(RequestCode.NOTIFY_UNSUBSCRIBE_LITE).ext_fields["liteTopic"] == lite
        )


def test_a_wildcard_client_gets_what_was_there_and_what_comes(
    frames: FrameClient, lite: str
) -> None:
    send(frames, f"{lite}1", b"a")
    wild = client(frames, lite, "GWild")
    answer = wild.change("PARTIAL_ADD", lite)
    assert (answer.code, answer.remark) == (
        604,
        "java.lang.IllegalStateException: subscribe lite operation is not supported for this group",
    )
    assert wild.change("COMPLETE_ADD").code == 0
    send(frames, f"{lite}2", b"b")
    seen: set[str] = set()
    while not {f"{lite}1", f"{lite}2"} <= seen:
        popped = wild.pop(pollTime=5_000)
        assert popped
        for each in popped:
            seen.add(each.lite)
            assert wild.ack(each).code == 0
    assert wild.change("COMPLETE_REMOVE").code == 0


def test_limits(frames: FrameClient, lite: str) -> None:
    one = client(frames, lite)
    answer = one.change("PARTIAL_ADD", *(f"{lite}{number}" for number in range(100)))
    assert (answer.code, answer.remark) == (2018, "lite subscription quota exceeded 60")
    assert one.change("COMPLETE_REMOVE").code == 0
    assert one.change("PARTIAL_ADD", "a b").code == 604
    assert frames.call(200071, {}, b"").remark == "Request body is null."


def test_pops_that_are_refused(frames: FrameClient, lite: str) -> None:
    one = client(frames, lite)

    def refused(**others: object) -> tuple[int, str]:
        answer = frames.take(one.post_pop(**others))
        return answer.code, answer.remark or ""

    assert refused(maxMsgNum=33)[0] == 29
    assert refused(topic="TNone")[0] == 17
    assert refused(consumerGroup="GNone")[0] == 26
    assert refused(topic="TBW102") == (29, "the topic [TBW102] message type not match")
    assert refused(bornTime=1)[0] == 210
    assert refused(invisibleTime=-1)[0] == 29
    assert refused() == (210, "NO_MESSAGE_IN_QUEUE")


def test_operators_see_what_there_is(frames: FrameClient, lite: str) -> None:
    one = client(frames, lite)
    send(frames, lite, b"a", b"b")
    one.subscribe(lite)
    assert len(one.pop(pollTime=5_000)) == 2

    def body(code: int, **fields: object) -> dict[str, object]:
        answer = frames.call(code, fields)
        assert answer.code == 0, answer.remark
        return json.loads(answer.body) if answer.body else {}

    whole = body(200074)
    assert whole["topicMeta"] == {PARENT: 30}
    assert sorted(whole["groupMeta"][PARENT]) == sorted(GROUPS)  # type: ignore[index]
    assert body(200075, topic=PARENT)["ttl"] == 30
    found = body(200076, parentTopic=PARENT, liteTopic=lite)
    assert {"clientId": lite, "group": "GLite"} in found["subscriber"]  # type: ignore[operator]
    assert found["topicOffset"]["maxOffset"] == 2  # type: ignore[index]
    mine = body(200077, parentTopic=PARENT, group="GLite", clientId=lite)
    assert (mine["liteTopicCount"], mine["liteTopicSet"]) == (1, [f"%LMQ%${PARENT}${lite}"])
    assert body(200077, parentTopic=PARENT, group="GLite", clientId="x")["liteTopicCount"] == -1
    lags = body(200078, group="GLite", topK=500)["lagCountTopK"]
    assert [row["lagCount"] for row in lags if row["liteTopic"] == lite] == [2]  # type: ignore
    one_lag = body(200078, group="GLite", liteTopic=lite)
    assert one_lag["totalLagCount"] == 2
    wrapper = one_lag["liteTopicOffsetWrapper"]
    assert (wrapper["brokerOffset"], wrapper["consumerOffset"]) == (2, 0)  # type: ignore[index]
    assert one_lag["earliestUnconsumedTimestamp"] > 0  # type: ignore[operator]
    assert body(200079, group="GLite") == {}
    assert frames.call(200077, {"maxCount": 0}).code == 29
    assert frames.call(200075, {"topic": "TNone"}).code == 17


def test_a_lite_group_has_metrics(frames: FrameClient, lite: str) -> None:
    one = client(frames, lite, "GOther")
    send(frames, lite, b"a", b"b")
    one.subscribe(lite)
    assert len(one.pop(pollTime=5_000)) == 2

    def shown(name: str) -> dict[str, float]:
        """By group; nothing before the first sample."""
        answer = frames.call(RequestCode.GET_METRICS, {"names": f"rocketmq_consumer_{name}"})
        found = json.loads(answer.body)["metrics"].values()
        return {labels["consumer_group"]: value for series in found for labels, value in series}

    wait_until(lambda: shown("lag_messages").get("GOther") == 2, timeout_s=15)
    assert shown("ready_messages")["GOther"] == 2
    assert shown("lag_latency")["GOther"] > 0
    assert shown("lag_messages").keys() == GROUPS.keys()


def test_after_a_restart_what_was_out_comes_again_and_the_rest_does_not(
    broker: OurBroker, lite: str
) -> None:
    with broker.client(timeout_s=10) as frames:
        one = client(frames, lite)
        send(frames, lite, b"a", b"b", b"c")
        one.subscribe(lite)
        popped = one.pop(pollTime=5_000)
        assert [each.body for each in popped] == [b"a", b"b", b"c"]
        assert one.ack(popped[0]).code == 0
        send(frames, f"{lite}-anew", b"d")
        one.subscribe(f"{lite}-anew")
        (anew,) = one.pop(pollTime=5_000)
        assert one.ack(anew).code == 0
    broker.terminate()
    path = broker.store_dir / "config" / "lmqConsumerOffset.json"
    table = loads_lenient(path.read_bytes())
    place = anew.message.phy_offset
    assert table["knownTo"] > place, "the log's end"
    # As if a kill had come before the end of that lite topic was saved, and it had begun again.
    path.write_text(json.dumps(table | {"knownTo": place}))
    broker.start()
    with broker.client(timeout_s=10) as frames:
        one = client(frames, lite)
        assert one.ack(popped[1]).code == 0
        assert one.change("COMPLETE_ADD", lite).code == 0
        assert [each.body for each in one.pop(pollTime=5_000)] == [b"c"]
        one.subscribe(f"{lite}-anew")
        assert [each.body for each in one.pop(pollTime=5_000)] == [b"d"]


def test_a_parent_takes_its_lite_topics_with_it(tmp_path: Path) -> None:
    with lite_broker(tmp_path) as broker, broker.client(timeout_s=10) as frames:
        one = client(frames, "c1")
        send(frames, "s1", b"a")
        one.subscribe("s1")
        (popped,) = one.pop(pollTime=5_000)
        assert one.ack(popped).code == 0
        name = f"%LMQ%${PARENT}$s1"
        where = {"consumerGroup": "GLite", "topic": name, "queueId": 0}
        assert frames.call(14, where).ext_fields["offset"] == "1"
        assert frames.call(215, {"topic": PARENT}).code == 0
        assert frames.offset(30, name, 0) == 0
        assert json.loads(frames.call(200074, {}).body)["currentLmqNum"] == 0
        wait_until(lambda: frames.call(14, where).ext_fields.get("offset") != "1")
        make_parent(frames, PARENT, **ENDS)
        send(frames, "s1", b"new")
        one.subscribe("s1")
        assert [each.body for each in one.pop(pollTime=5_000)] == [b"new"]
        assert frames.call(207, {"groupName": "GLite", "cleanOffset": "false"}).code == 0
        wait_until(lambda: json.loads(frames.call(200074, {}).body)["liteSubscriptionCount"] == 0)

"""The commands of lite topics, against what mqadmin 5.5.0 printed of the same answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from remoting.body.route import BrokerData, TopicRouteData
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tests.remoting.lite_frames import FRAMES, lite_command
from tests.tools.fake_cluster import FakeCluster
from tests.tools.mqadmin_bench import Bench, words

PRINTED = Path(FRAMES).with_name("mqadmin.txt")
CLIENT = "vm@1075@1@2s2k26ksv"
IN_GROUP = ["-p", "TLite", "-g", "GLite"]


def printed(command: str) -> list[list[str]]:
    """The words of each line that 5.5.0 printed, of every run of the command."""
    runs = PRINTED.read_text(encoding="utf-8").split("$ get")
    runs = [part.split("$ trigger")[0] for part in runs]
    text = next(run for run in runs if run.startswith(command)).partition("\n")[2]
    return words(text)


@pytest.fixture
def lite(cluster: FakeCluster) -> FakeCluster:
    """A broker b55 that answers as 5.5.0 did; of 200078 by what is asked."""
    data = BrokerData(cluster="C", broker_name="b55", broker_addrs={0: cluster.address})
    route = TopicRouteData(broker_datas=[data])
    cluster.always(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=route.to_json_bytes())
    for code in range(200074, 200080):
        answer = lite_command(f"{code}/01", "response")
        cluster.always(RequestCode(code), remark=answer.remark, body=bytes(answer.body))
    return cluster


def of_one(cluster: FakeCluster) -> None:
    answer = lite_command("200078/02", "response")
    cluster.always(RequestCode.GET_LITE_GROUP_INFO, body=bytes(answer.body))


def lines(mqadmin: Bench, *arguments: str) -> list[list[str]]:
    outcome = mqadmin.run(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    return words(outcome.out)


def test_the_broker(mqadmin: Bench, lite: FakeCluster) -> None:
    found = lines(mqadmin, "getBrokerLiteInfo", "-b", lite.address, "-d")
    golden = printed("BrokerLiteInfo")
    golden[1][0] = lite.address
    # 5.5.0 asked again for what it printed; one client had come.
    assert [found[0], found[2:]] == [golden[0], golden[2:]]
    assert found[1] == [lite.address, "default", "20000", "4", "3", "4", "13", "7", "3"]
    assert lines(mqadmin, "getBrokerLiteInfo", "-b", lite.address) == found[:2]


def test_a_parent(mqadmin: Bench, lite: FakeCluster) -> None:
    assert lines(mqadmin, "getParentTopicInfo", "-p", "TLite") == printed("ParentTopicInfo")


def test_a_lite_topic(mqadmin: Bench, lite: FakeCluster) -> None:
    asked = ["getLiteTopicInfo", "-p", "TLite", "-l", "s1"]
    golden = printed("LiteTopicInfo")
    assert lines(mqadmin, *asked, "-s") == golden
    assert lines(mqadmin, *asked) == golden[:-1]
    (request, _) = lite.asked(RequestCode.GET_LITE_TOPIC_INFO)
    assert request.ext_fields == lite_command("200076/01").ext_fields


def test_a_client(mqadmin: Bench, lite: FakeCluster) -> None:
    asked = ["getLiteClientInfo", *IN_GROUP, "-c", CLIENT]
    golden = printed("LiteClientInfo")
    assert lines(mqadmin, *asked, "-s") == golden
    assert lines(mqadmin, *asked) == golden[:-1]
    (request, _) = lite.asked(RequestCode.GET_LITE_CLIENT_INFO)
    assert request.ext_fields == lite_command("200077/01").ext_fields


def test_a_group(mqadmin: Bench, lite: FakeCluster) -> None:
    """The times are of no message yet collected: 5.5.0 shows the moment, ours that there is
    none."""
    found = lines(mqadmin, "getLiteGroupInfo", *IN_GROUP, "-k", "5")
    golden = printed("LiteGroupInfo")
    size = len(found)
    golden[2] = ["Min", "Unconsumed", "Timestamp:", "-"]
    assert found == golden[:size]
    of_one(lite)
    mqadmin.now_ms = 1795740002461 + 57_999
    assert lines(mqadmin, "getLiteGroupInfo", *IN_GROUP, "-l", "s1") == golden[size:]
    first, second = lite.asked(RequestCode.GET_LITE_GROUP_INFO)
    assert first.ext_fields == lite_command("200078/01").ext_fields
    assert second.ext_fields == lite_command("200078/02").ext_fields


def test_a_group_that_has_not_begun(mqadmin: Bench, lite: FakeCluster) -> None:
    body = b'{"totalLagCount":-1,"earliestUnconsumedTimestamp":-1}'
    lite.always(RequestCode.GET_LITE_GROUP_INFO, body=body)
    found = lines(mqadmin, "getLiteGroupInfo", *IN_GROUP, "-l", "never")
    assert found[2:] == [
        ["b55", "-", "-", "-", "-"],
        ["Total", "Lag", "Count:", "0"],
        ["Min", "Unconsumed", "Timestamp:", "-"],
    ]


def test_another_look(mqadmin: Bench, lite: FakeCluster) -> None:
    found = lines(mqadmin, "triggerLiteDispatch", *IN_GROUP)
    assert found == [
        ["Group", "And", "Topic", "Info:", "[GLite]", "[TLite]"],
        ["b55", "dispatched"],
    ]
    asked = ["triggerLiteDispatch", *IN_GROUP, "-c", CLIENT, "-b"]
    assert mqadmin.run_json(*asked, "b55") == {"brokerNames": ["b55"]}
    first, second = lite.asked(RequestCode.TRIGGER_LITE_DISPATCH)
    assert first.ext_fields == lite_command("200079/01").ext_fields
    assert second.ext_fields == {"group": "GLite", "clientId": CLIENT}
    other = mqadmin.run(*asked, "b56")
    assert (other.code, other.out) == (1, "")
    assert "TLite has no broker b56; it has b55" in other.err


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["getParentTopicInfo", "-p", "TLite"], RequestCode.GET_PARENT_TOPIC_INFO, 0),
        (["triggerLiteDispatch", *IN_GROUP], RequestCode.TRIGGER_LITE_DISPATCH, 1),
    ],
)
def test_a_broker_that_refuses(
    mqadmin: Bench, lite: FakeCluster, arguments: list[str], code: RequestCode, exit_code: int
) -> None:
    """What is read of the other one is shown; a change that was not made is a failure."""
    data = [
        BrokerData(cluster="C", broker_name=name, broker_addrs={0: lite.address})
        for name in ("b55", "b56")
    ]
    route = TopicRouteData(broker_datas=data)
    lite.always(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=route.to_json_bytes())
    words_of_it = "Topic [TLite] type not match."
    answer = lite.answers[code]
    lite.answers[code] = lambda request: (
        request.response(ResponseCode.INVALID_PARAMETER, words_of_it)
        if len(lite.asked(code)) == 2
        else answer(request)
    )
    outcome = mqadmin.run(*arguments)
    assert (outcome.code, words_of_it in outcome.err) == (exit_code, True)
    assert ("b55" in outcome.out, "b56" in outcome.out) == (exit_code == 0, False)
    lite.always(code, ResponseCode.INVALID_PARAMETER, words_of_it)
    outcome = mqadmin.run(*arguments)
    assert (outcome.code, outcome.out) == (1, "")

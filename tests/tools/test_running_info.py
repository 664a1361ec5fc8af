"""What consumers tell of themselves: its text, and what counts as wrong in it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from remoting.body.consumer_running_info import (
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from remoting.body.heartbeat import SubscriptionData
from remoting.body.message_queue import MessageQueue
from tools.running_info import format_running_info, queue_problems, same_subscription

NOW_MS = 1_795_177_732_468
QUEUE = MessageQueue(broker_name="b", queue_id=1, topic="T")
OTHER_QUEUE = MessageQueue(broker_name="a", queue_id=0, topic="T")


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def member(
    *subscriptions: tuple[str, str],
    kind: str = "CONSUME_PASSIVELY",
    age_ms: int = 1_000_000,
    orderly: str = "false",
    queues: dict[MessageQueue, ProcessQueueInfo] | None = None,
) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        properties={
            "PROP_CONSUME_TYPE": kind,
            "PROP_CONSUMER_START_TIMESTAMP": str(NOW_MS - age_ms),
            "PROP_CONSUMEORDERLY": orderly,
        },
        subscription_set=[SubscriptionData(topic=t, sub_string=s) for t, s in subscriptions],
        mq_table=queues or {},
    )


def test_the_whole_text() -> None:
    info = ConsumerRunningInfo(
        properties={"consumerGroup": "g", "evil\x1b": "a\nb"},
        subscription_set=[
            SubscriptionData(topic="T", sub_string="TagA"),
            SubscriptionData(topic="S", sub_string="*"),
        ],
        mq_table={
            QUEUE: ProcessQueueInfo(commit_offset=7, locked=True, last_pull_timestamp=NOW_MS),
            OTHER_QUEUE: ProcessQueueInfo(),
        },
        status_table={"T": ConsumeStatus(pull_rt=1.5, consume_failed_msgs=3)},
        jstack="TID: 1\n  at x\x07",
    )
    state = (
        "ProcessQueueInfo [commitOffset={}, cachedMsgMinOffset=0, cachedMsgMaxOffset=0, "
        "cachedMsgCount=0, cachedMsgSizeInMiB=0, transactionMsgMinOffset=0, "
        "transactionMsgMaxOffset=0, transactionMsgCount=0, locked={}, tryUnlockTimes=0, "
        "lastLockTimestamp=19700101000000000, droped=false, lastPullTimestamp={}, "
        "lastConsumeTimestamp=19700101000000000]"
    )
    assert format_running_info(info).splitlines() == [
        "#Consumer Properties#",
        f"{'consumerGroup':<40}: g",
        f"{'evil':<35}".rstrip() + "\\x1b" + " " * 35 + ": a\\x0ab",
        "",
        "",
        "#Consumer Subscription#",
        f"001 Topic: {'S':<40} ClassFilter: false    SubExpression: *",
        f"002 Topic: {'T':<40} ClassFilter: false    SubExpression: TagA",
        "",
        "",
        "#Consumer Offset#",
        f"{'#Topic':<64}  {'#Broker Name':<32}  #QID  {'#Consumer Offset':<20}",
        f"{'T':<32}  {'a':<32}  0     {0:<20}",
        f"{'T':<32}  {'b':<32}  1     {7:<20}",
        "",
        "",
        "#Consumer MQ Detail#",
        f"{'#Topic':<64}  {'#Broker Name':<32}  #QID  {'#ProcessQueueInfo':<20}",
        f"{'T':<64}  {'a':<32}  0     {state.format(0, 'false', '19700101000000000')}",
        f"{'T':<64}  {'b':<32}  1     {state.format(7, 'true', '20261120122852468')}",
        "",
        "",
        "#Consumer RT&TPS#",
        f"{'#Topic':<64}        #Pull RT      #Pull TPS    #Consume RT #ConsumeOK TPS "
        "#ConsumeFailed TPS  #ConsumeFailedMsgsInHour",
        f"{'T':<32}            1.50           0.00           0.00           0.00 "
        "              0.00                         3",
        "",
        "",
        "#Consumer jstack#",
        "TID: 1",
        "  at x\\x07",
    ]


def test_without_threads_that_part_is_missing() -> None:
    assert "#Consumer jstack#" not in format_running_info(member(("T", "*")))


class TestSameSubscription:
    def test_of_nobody(self) -> None:
        assert same_subscription({}, NOW_MS)

    def test_equal_in_any_order(self) -> None:
        infos = {"a": member(("T", "*"), ("S", "x")), "b": member(("S", "x"), ("T", "*"))}
        assert same_subscription(infos, NOW_MS)

    def test_different(self) -> None:
        infos = {"a": member(("T", "*")), "b": member(("T", "TagA"))}
        assert not same_subscription(infos, NOW_MS)

    def test_to_nothing(self) -> None:
        assert not same_subscription({"a": member()}, NOW_MS)

    @pytest.mark.parametrize(
        "first",
        [
            member(("T", "*"), age_ms=120_000),
            member(("T", "*"), kind="CONSUME_ACTIVELY"),
            ConsumerRunningInfo(),
            ConsumerRunningInfo(properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}),
        ],
    )
    def test_not_judged_for_young_and_pull_consumers(self, first: ConsumerRunningInfo) -> None:
        assert same_subscription({"a": first, "b": member(("S", "*"))}, NOW_MS)


class TestQueueProblems:
    NAME = "c MessageQueue [topic=T, brokerName=b, queueId=1]"

    def problems(self, state: ProcessQueueInfo, **kind: str) -> list[str]:
        return queue_problems("c", member(("T", "*"), queues={QUEUE: state}, **kind), NOW_MS)

    def test_cached_messages_that_wait(self) -> None:
        state = ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=NOW_MS - 60_001)
        assert self.problems(state) == [
            f"{self.NAME} can't consume for a while, maybe blocked, 60001ms"
        ]

    @pytest.mark.parametrize(
        "state",
        [
            ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=NOW_MS - 60_000),
            ProcessQueueInfo(cached_msg_count=0, last_consume_timestamp=0),
        ],
    )
    def test_none(self, state: ProcessQueueInfo) -> None:
        assert self.problems(state) == []

    def test_pull_consumers_have_none(self) -> None:
        state = ProcessQueueInfo(cached_msg_count=1)
        assert self.problems(state, kind="CONSUME_ACTIVELY") == []

    def test_orderly_without_lock(self) -> None:
        state = ProcessQueueInfo(last_lock_timestamp=NOW_MS - 5)
        assert self.problems(state, orderly="true") == [f"{self.NAME} can't lock for a while, 5ms"]

    def test_orderly_that_cannot_unlock(self) -> None:
        state = ProcessQueueInfo(locked=True, droped=True, try_unlock_times=4)
        assert self.problems(state, orderly="true") == [f"{self.NAME} unlock 4 times, still failed"]

    @pytest.mark.parametrize(
        "state",
        [
            ProcessQueueInfo(locked=True, droped=True),
            ProcessQueueInfo(locked=True, try_unlock_times=4),
        ],
    )
    def test_orderly_without_trouble(self, state: ProcessQueueInfo) -> None:
        assert self.problems(state, orderly="true") == []

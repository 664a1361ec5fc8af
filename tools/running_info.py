"""The running info of consumers: RocketMQ's text of it, and anomalies.

Pure functions. Texts come from clients: each line loses its control characters. A client that
does not send its consume type counts as a pull consumer, for which nothing is reported.
(Java: ConsumerRunningInfo.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from remoting.body.consumer_running_info import ConsumerRunningInfo, ProcessQueueInfo
from remoting.body.heartbeat import ConsumeType
from remoting.body.message_queue import MessageQueue
from tools.message_text import compact_time_text, queue_text
from tools.report import safe_line, safe_text

CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"

SETTLED_MS: Final = 120_000
"""A consumer started more recently may still wait for the others' subscriptions."""

BLOCKED_MS: Final = 60_000
"""Cached messages may wait this long for the listener."""


def format_running_info(info: ConsumerRunningInfo) -> str:
    """All of it, in RocketMQ's six parts."""
    lines = ["#Consumer Properties#"]
    lines += [f"{key:<40}: {value}" for key, value in info.properties.items()]
    lines += ["", "", "#Consumer Subscription#", *_subscription_lines(info)]
    lines += ["", "", "#Consumer Offset#"]
    lines.append(f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  {'#Consumer Offset':<20}")
    queues = sorted(info.mq_table.items(), key=lambda item: _queue_order(item[0]))
    lines += [
        f"{q.topic:<32}  {q.broker_name:<32}  {q.queue_id:<4}  {state.commit_offset:<20}"
        for q, state in queues
    ]
    lines += ["", "", "#Consumer MQ Detail#"]
    lines.append(f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  {'#ProcessQueueInfo':<20}")
    lines += [
        f"{q.topic:<64}  {q.broker_name:<32}  {q.queue_id:<4}  {process_queue_text(state)}"
        for q, state in queues
    ]
    lines += ["", "", "#Consumer RT&TPS#", *_rate_lines(info)]
    text = "\n".join(safe_line(line) for line in lines)
    if info.jstack is not None:
        text += f"\n\n\n#Consumer jstack#\n{safe_text(info.jstack)}"
    return text


def _subscription_lines(info: ConsumerRunningInfo) -> list[str]:
    subscriptions = sorted(info.subscription_set, key=lambda data: data.topic)
    return [
        f"{i:03d} Topic: {data.topic:<40} ClassFilter: {str(data.class_filter_mode).lower():<8} "
        f"SubExpression: {'null' if data.sub_string is None else data.sub_string}"
        for i, data in enumerate(subscriptions, start=1)
    ]


def _rate_lines(info: ConsumerRunningInfo) -> list[str]:
    lines = [
        f"{'#Topic':<64}  {'#Pull RT':>14} {'#Pull TPS':>14} {'#Consume RT':>14} "
        f"{'#ConsumeOK TPS':>14} {'#ConsumeFailed TPS':>18} {'#ConsumeFailedMsgsInHour':>25}"
    ]
    lines += [
        f"{topic:<32}  {rates.pull_rt:14.2f} {rates.pull_tps:14.2f} {rates.consume_rt:14.2f} "
        f"{rates.consume_oktps:14.2f} {rates.consume_failed_tps:18.2f} "
        f"{rates.consume_failed_msgs:25d}"
        for topic, rates in sorted(info.status_table.items())
    ]
    return lines


def _queue_order(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def process_queue_text(state: ProcessQueueInfo) -> str:
    """A queue's consumer side as Java's ProcessQueueInfo prints itself."""
    return (
        f"ProcessQueueInfo [commitOffset={state.commit_offset}, "
        f"cachedMsgMinOffset={state.cached_msg_min_offset}, "
        f"cachedMsgMaxOffset={state.cached_msg_max_offset}, "
        f"cachedMsgCount={state.cached_msg_count}, "
        f"cachedMsgSizeInMiB={state.cached_msg_size_in_mi_b}, "
        f"transactionMsgMinOffset={state.transaction_msg_min_offset}, "
        f"transactionMsgMaxOffset={state.transaction_msg_max_offset}, "
        f"transactionMsgCount={state.transaction_msg_count}, "
        f"locked={str(state.locked).lower()}, tryUnlockTimes={state.try_unlock_times}, "
        f"lastLockTimestamp={compact_time_text(state.last_lock_timestamp)}, "
        f"droped={str(state.droped).lower()}, "
        f"lastPullTimestamp={compact_time_text(state.last_pull_timestamp)}, "
        f"lastConsumeTimestamp={compact_time_text(state.last_consume_timestamp)}]"
    )


def same_subscription(infos: Mapping[str, ConsumerRunningInfo], now_ms: int) -> bool:
    """Whether all members (by client id) have the same, non-empty subscription.

    True for pull consumers, and shortly after the first member's start.
    """
    members = [infos[client_id] for client_id in sorted(infos)]
    if not members or not _pushes(members[0]) or not _settled(members[0], now_ms):
        return True
    wanted = [sorted((s.topic, s.sub_string or "") for s in m.subscription_set) for m in members]
    return bool(wanted[0]) and all(subscriptions == wanted[0] for subscriptions in wanted)


def _pushes(info: ConsumerRunningInfo) -> bool:
    return info.properties.get(CONSUME_TYPE) == ConsumeType.CONSUME_PASSIVELY


def _settled(info: ConsumerRunningInfo, now_ms: int) -> bool:
    start = info.properties.get(START_TIMESTAMP, "")
    return start.isascii() and start.isdigit() and now_ms - int(start) > SETTLED_MS


def queue_problems(client_id: str, info: ConsumerRunningInfo, now_ms: int) -> list[str]:
    """One line for each queue whose messages make no progress."""
    if not _pushes(info):
        return []
    orderly = info.properties.get(CONSUME_ORDERLY, "").lower() == "true"
    problems = []
    for queue in sorted(info.mq_table, key=_queue_order):
        state = info.mq_table[queue]
        problem = _orderly_problem(state, now_ms) if orderly else _blocked(state, now_ms)
        if problem is not None:
            problems.append(safe_line(f"{client_id} {queue_text(queue)} {problem}"))
    return problems


def _orderly_problem(state: ProcessQueueInfo, now_ms: int) -> str | None:
    if not state.locked:
        return f"can't lock for a while, {now_ms - state.last_lock_timestamp}ms"
    if state.droped and state.try_unlock_times > 0:
        return f"unlock {state.try_unlock_times} times, still failed"
    return None


def _blocked(state: ProcessQueueInfo, now_ms: int) -> str | None:
    waited_ms = now_ms - state.last_consume_timestamp
    if waited_ms > BLOCKED_MS and state.cached_msg_count > 0:
        return f"can't consume for a while, maybe blocked, {waited_ms}ms"
    return None

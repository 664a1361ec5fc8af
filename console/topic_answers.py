"""What brokers tell of one topic beyond its ends: its settings, its oldest messages, its rates.

Rates and times of oldest messages are one request for each group and queue: they are asked behind
all that pages wait for, of few, and are there when the page is loaded again. Any thread.

Tested by tests/console/test_topic_page.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from console.lanes import ANSWER_ERRORS, Question
from console.page import Reader
from console.questions import tree_of
from console.replies import MOST_AT_ONCE, ask_all
from remoting.body.message_queue import MessageQueue
from remoting.body.topic_config import TopicConfig
from remoting.command_custom_header import decode_header
from remoting.headers.query import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
)
from remoting.headers.topic import GetTopicConfigRequestHeader
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import AdminClient
from tools.commands.stats import GROUP_GET_NUMS, TOPIC_PUT_NUMS, Flow, flow
from tools.errors import AdminError

CONFIG_AGE_MS: Final = 30_000
TABLE_AGE_MS: Final = 300_000
"""A broker of 4.9 tells a topic's settings with those of all others only."""
SLOW_AGE_MS: Final = 60_000
"""Of rates, which brokers count by the minute, and of oldest messages."""
MOST_QUEUES: Final = 16
"""Whose oldest message is asked for."""
MOST_TOKENS: Final = 2_000_000
CONFIG_BYTES: Final = 2_000
_UNSUPPORTED: Final = "unsupported"


@dataclass(frozen=True, slots=True)
class Settings:
    """How one broker has a topic."""

    broker_name: str
    config: TopicConfig | None = None
    is_of_5x: bool = False
    """Whether it can tell attributes."""
    problem: str | None = None


def topic_settings(
    reader: Reader, topic: str, masters: Sequence[tuple[str, str]]
) -> list[Settings]:
    """Of the first masters (name and address), asked side by side."""
    masters = masters[:MOST_AT_ONCE]
    question = _config(topic)
    answers = ask_all(reader, [(at, question) for _, at in masters], CONFIG_AGE_MS)
    old = [at for (_, at), answer in zip(masters, answers, strict=True) if _is_old(answer.value)]
    table = _config_of_table(topic)
    tables = dict(zip(old, ask_all(reader, [(at, table) for at in old], TABLE_AGE_MS), strict=True))
    found = []
    for (name, address), answer in zip(masters, answers, strict=True):
        told = tables.get(address, answer)
        config = told.value if isinstance(told.value, TopicConfig) else None
        found.append(Settings(name, config, address not in tables, told.error))
    return found


def _is_old(value: object) -> bool:
    return value == _UNSUPPORTED


def _config(topic: str) -> Question[TopicConfig | str | None]:
    """351, which 5.x knows."""
    header = GetTopicConfigRequestHeader(topic=topic)

    def ask(client: AdminClient, address: str) -> TopicConfig | str | None:
        code = RequestCode.GET_TOPIC_CONFIG
        none, unknown = ResponseCode.TOPIC_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        response = client.call(address, code, header, accept=(ResponseCode.SUCCESS, none, unknown))
        if response.code == unknown:
            return _UNSUPPORTED
        return None if response.code == none else _read(address, _tree(address, response.body))

    return Question(("topic config", topic), ask)


def _config_of_table(topic: str) -> Question[TopicConfig | None]:
    """Out of the table of all topics (21)."""

    def ask(client: AdminClient, address: str) -> TopicConfig | None:
        tree = _tree(address, client.call(address, RequestCode.GET_ALL_TOPIC_CONFIG).body)
        table = tree.get("topicConfigTable") if isinstance(tree, dict) else None
        found = table.get(topic) if isinstance(table, dict) else None
        return None if found is None else _read(address, found)

    return Question(("topic config of table", topic), ask, size_of=lambda _config: CONFIG_BYTES)


def _tree(address: str, body: bytes) -> object:
    return tree_of(body, MOST_TOKENS, f"broker {address}: its topics")


def _read(address: str, tree: object) -> TopicConfig:
    try:
        return TopicConfig.from_json(tree)
    except ValueError as error:
        raise AdminError(f"broker {address}: the topic cannot be read: {error}") from error


# -- the oldest messages ---------------------------------------------------------------------------


def oldest_times(
    reader: Reader, queues: Iterable[tuple[MessageQueue, str]]
) -> dict[MessageQueue, int]:
    """When the oldest message of each of the first queues was stored (wall clock ms), as far as
    brokers have told; `queues` with their masters' addresses."""
    found = {}
    for queue, address in list(queues)[:MOST_QUEUES]:
        answer = reader.ask(address, _oldest(queue), SLOW_AGE_MS, is_later=True)
        if answer.value is not None and answer.value > 0:
            found[queue] = answer.value
    return found


def _oldest(queue: MessageQueue) -> Question[int]:
    header = GetEarliestMsgStoretimeRequestHeader(topic=queue.topic, queue_id=queue.queue_id)

    def ask(client: AdminClient, address: str) -> int:
        response = client.call(address, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return decode_header(GetEarliestMsgStoretimeResponseHeader, response.ext_fields).timestamp

    return Question(("oldest", queue.topic, queue.queue_id), ask)


# -- rates -----------------------------------------------------------------------------------------


def flow_in(reader: Reader, topic: str, brokers: Sequence[str]) -> Flow | None:
    """Messages that came; None as long as a broker has not told."""
    return _flow(reader, brokers, TOPIC_PUT_NUMS, topic)


def flow_out(reader: Reader, topic: str, group: str, brokers: Sequence[str]) -> Flow | None:
    """Messages that a group got."""
    return _flow(reader, brokers, GROUP_GET_NUMS, f"{topic}@{group}")


def _flow(reader: Reader, brokers: Sequence[str], name: str, key: str) -> Flow | None:
    try:
        return flow(reader.laned(SLOW_AGE_MS, is_later=True), brokers[:MOST_AT_ONCE], name, key)
    except ANSWER_ERRORS:
        return None

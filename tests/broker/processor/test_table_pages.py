"""Pages of 21 and 201, read as RocketMQ 5.5 does (BrokerOuterAPI, MQClientAPIImpl)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.processor.table_pages import TablePages
from broker.settings.broker_config import BrokerConfig
from remoting.body.data_version import DataVersion
from remoting.body.subscription_group_config import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper
from remoting.body.topic_queue_mapping import TopicQueueMappingDetail
from remoting.errors import BodyError, RequestError
from tests.broker.broker_fakes import CONFIG

VERSION = DataVersion(counter=7, timestamp=1_000)


def topics(count: int, version: DataVersion = VERSION) -> TopicConfigSerializeWrapper:
    """Not in the order of their names."""
    names = [f"t{number:05}" for number in reversed(range(count))]
    return TopicConfigSerializeWrapper(
        data_version=version,
        topic_config_table={name: TopicConfig(topic_name=name) for name in names},
        topic_queue_mapping_detail_map={
            name: TopicQueueMappingDetail(topic=name) for name in names[::2]
        },
    )


def config(**settings: Any) -> BrokerConfig:
    return replace(CONFIG, **settings)


Ask = Callable[[int, int, str], tuple[list[str], DataVersion, int | None]]
"""The loop of a peer of 5.5 gives topicSeq, maxTopicNum, dataVersion."""


def asking(table: Callable[[], TopicConfigSerializeWrapper], limit: int) -> Ask:
    pages = TablePages(config(split_metadata_size=limit).page_limit)

    def ask(seq: int, most: int, version: str) -> tuple[list[str], DataVersion, int | None]:
        fields = {"topicSeq": str(seq), "maxTopicNum": str(most), "dataVersion": version}
        page, answer = pages.of_topics(table(), fields)
        total = answer.get("totalTopicNum")
        return [*page.topic_config_table], page.data_version, total and int(total)  # type: ignore[return-value]

    return ask


def as_java_writes(version: DataVersion) -> str:
    """A version without an epoch has epoch 0 there."""
    fields = {"counter": version.counter, "stateVersion": version.state_version or 0}
    return json.dumps({**fields, "timestamp": version.timestamp})


def java_peer(ask: Ask, most: int) -> tuple[list[str], int]:
    """What the loop of BrokerOuterAPI.getAllTopicConfig collects, and how often it asks."""
    seq, known, names, asked = 0, None, list[str](), 0
    while True:
        asked += 1
        assert asked < 1_000
        page, version, total = ask(seq, most, "" if known is None else as_java_writes(known))
        names += page
        seq += len(page)
        known = known or version
        if total is None:
            return names, asked
        if known != version:
            known, seq, names = version, 0, []
            continue
        if seq >= total - 1:
            return names, asked


@pytest.mark.parametrize("most", [1, 2, 3, 5])
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_a_peer_of_5_5_gets_every_name(most: int, limit: int) -> None:
    """Also where only the last one would be left, for which it does not ask."""
    for count in range(15):
        names, asked = java_peer(asking(lambda: topics(count), limit), most)  # noqa: B023
        assert names == sorted(topics(count).topic_config_table)
        assert asked <= max(1, -(-count // min(most, limit)))


def test_five_thousand_topics_are_three_pages() -> None:
    names, asked = java_peer(asking(lambda: topics(5_000), 2_000), 10_000)
    assert (len(names), asked) == (5_000, 3)


def test_a_table_that_changes_between_two_pages_is_read_anew() -> None:
    tables = [topics(6), topics(6), *[topics(7, replace(VERSION, counter=8))] * 9]
    names, asked = java_peer(asking(lambda: tables.pop(0), 2), 2)
    assert (names, asked) == (sorted(topics(7).topic_config_table), 2 + 1 + 3)


def test_who_asks_for_no_page_gets_all_and_no_number() -> None:
    """A peer that is told a number asks on."""
    whole = topics(5)
    for pages in (
        TablePages(2),
        TablePages(config(enable_split_metadata=False).page_limit),
    ):
        assert pages.of_topics(whole, {}) == (whole, {})
        assert pages.of_topics(whole, {"AccessKey": "k"}) == (whole, {})
    off = TablePages(config(enable_split_metadata=False).page_limit)
    assert off.of_topics(whole, {"topicSeq": "0", "maxTopicNum": "2"}) == (whole, {})


def test_a_page_has_the_rows_of_its_names_only() -> None:
    pages = TablePages(2)
    page, fields = pages.of_topics(topics(6), {"topicSeq": "0"})
    assert fields == {"totalTopicNum": "6"}
    assert [*page.topic_config_table] == ["t00000", "t00001"]
    assert set(page.topic_queue_mapping_detail_map or ()) == {"t00001"}
    groups = SubscriptionGroupWrapper(
        data_version=VERSION,
        subscription_group_table={
            name: SubscriptionGroupConfig(group_name=name) for name in "fbdaec"
        },
        forbidden_table={"f": {"t": 1}, "a": {"t": 1}},
    )
    found, fields = pages.of_groups(groups, {"groupSeq": "0", "maxGroupNum": "9"})
    assert fields == {"totalGroupNum": "6"}
    assert [*found.subscription_group_table] == ["a", "b"]
    assert found.forbidden_table == {"a": {"t": 1}}
    version = as_java_writes(VERSION)
    found, _ = pages.of_groups(groups, {"groupSeq": "4", "dataVersion": version})
    assert [*found.subscription_group_table] == ["e", "f"]
    assert pages.of_groups(groups, {}) == (groups, {})
    assert (
        pages.of_groups(replace(groups, forbidden_table=None), {"groupSeq": "0"})[0].forbidden_table
        is None
    ), "what 4.9 writes"


@pytest.mark.parametrize(
    "fields",
    [
        {"topicSeq": "-1"},
        {"topicSeq": "0", "maxTopicNum": "0"},
        {"topicSeq": "0", "maxTopicNum": "-5"},
        {"topicSeq": "x"},
        {"topicSeq": "2", "dataVersion": "{"},
    ],
)
def test_what_is_no_page_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(RequestError):
        TablePages(2_000).of_topics(topics(5), fields)


@pytest.mark.parametrize("known", ["", "  ", '{"counter":6,"timestamp":1000}', "{}"])
def test_a_later_page_of_another_table_is_the_first_one(known: str) -> None:
    fields = {"topicSeq": "2", "maxTopicNum": "2", "dataVersion": known}
    page, _ = TablePages(2_000).of_topics(topics(5), fields)
    assert [*page.topic_config_table] == ["t00000", "t00001"]
    page, _ = TablePages(2_000).of_topics(topics(5), {**fields, "topicSeq": "2147483647"})
    assert [*page.topic_config_table] == ["t00000", "t00001"]
    version = as_java_writes(VERSION)
    fields = {**fields, "topicSeq": "2147483647", "dataVersion": version}
    assert TablePages(2_000).of_topics(topics(5), fields)[0].topic_config_table == {}


def test_a_version_that_is_no_text_is_an_error_of_the_peer() -> None:
    """JSON can name half of a character, which no encoding has."""
    with pytest.raises(BodyError):
        TablePages(5).of_topics(topics(9), {"topicSeq": "1", "dataVersion": "\ud800"})

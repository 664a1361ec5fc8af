"""A master's tables in pages, whoever the master is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from broker.out.broker_outer_api import BrokerOuterAPI
from broker.processor.table_pages import TablePages
from broker.slave.paged_tables import GROUPS, TOPICS, fetch_table
from remoting.body.data_version import DataVersion
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.broker.broker_fakes import CONFIG

VERSION = {"counter": 3, "stateVersion": 0, "timestamp": 9}


class Master:
    """AdminBrokerProcessor of 5.5.0: getAllTopicConfig, TopicConfigManager.subTopicConfigTable."""

    def __init__(self, count: int, limit: int = 2_000) -> None:
        self.names = [f"t{number:05}" for number in range(count)]
        self.version: dict[str, int] = dict(VERSION)
        self.limit = limit
        self.asked: list[dict[str, str]] = []
        self.changes_at: set[int] = set()
        """Requests before which a topic is added."""

    def get_page(
        self, broker: str, code: RequestCode, fields: Mapping[str, str], timeout_ms: int
    ) -> RemotingCommand | None:
        assert (broker, code, timeout_ms) == ("m:1", RequestCode.GET_ALL_TOPIC_CONFIG, 3_000)
        if len(self.asked) in self.changes_at:
            self.names.append(f"t{len(self.names):05}")
            self.version = {**self.version, "counter": self.version["counter"] + 1}
        self.asked.append(dict(fields))
        names = self.names
        if fields:
            begin, most = int(fields["topicSeq"]), min(self.limit, int(fields["maxTopicNum"]))
            text = fields["dataVersion"]
            if begin and (not text.strip() or json.loads(text) != self.version):
                begin = 0
            names = names[begin : begin + most]
        return self.answer(names, {"totalTopicNum": str(len(self.names))})

    def answer(self, names: list[str], fields: dict[str, str]) -> RemotingCommand:
        body = {
            "dataVersion": self.version,
            "mappingDataVersion": VERSION,
            "topicConfigTable": {name: {"topicName": name} for name in names},
            "topicQueueMappingDetailMap": {name: {"topic": name} for name in names[::2]},
        }
        return RemotingCommand(code=0, body=json.dumps(body).encode(), ext_fields=fields)


class OldMaster(Master):
    """It ignores what asks for a page."""

    def get_page(
        self, broker: str, code: RequestCode, fields: Mapping[str, str], timeout_ms: int
    ) -> RemotingCommand | None:
        self.asked.append(dict(fields))
        return self.answer(self.names, {})


class OurMaster(Master):
    """A broker of ours."""

    def get_page(
        self, broker: str, code: RequestCode, fields: Mapping[str, str], timeout_ms: int
    ) -> RemotingCommand | None:
        self.asked.append(dict(fields))
        whole = TopicConfigSerializeWrapper(
            data_version=DataVersion.from_json(self.version),
            topic_config_table={name: TopicConfig(topic_name=name) for name in self.names},
        )
        page, answer = TablePages(CONFIG.page_limit).of_topics(whole, fields)
        return RemotingCommand(code=0, body=page.to_json_bytes(), ext_fields=answer)


def fetched(master: Master) -> dict[str, Any]:
    found = fetch_table(cast("BrokerOuterAPI", master), "m:1", TOPICS)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", [Master, OurMaster])
@pytest.mark.parametrize("count", [1, 1_999, 2_000, 2_001, 4_001, 5_000])
def test_every_topic_of_a_master_that_pages(kind: type[Master], count: int) -> None:
    master = kind(count)
    found = fetched(master)
    assert [*found["topicConfigTable"]] == master.names
    assert found["dataVersion"] == master.version
    assert len(master.asked) <= -(-count // 2_000)


def test_mappings_come_with_their_pages() -> None:
    master = Master(10, limit=4)
    assert [*fetched(master)["topicQueueMappingDetailMap"]] == master.names[::2]


def test_a_master_of_5_3_or_4_9_is_asked_once() -> None:
    master = OldMaster(5_000)
    assert [*fetched(master)["topicConfigTable"]] == master.names
    assert len(master.asked) == 1


def test_what_changes_between_two_pages_is_read_anew() -> None:
    master = Master(10, limit=4)
    master.changes_at = {2}
    found = fetched(master)
    assert [*found["topicConfigTable"]] == master.names
    assert found["dataVersion"] == master.version
    assert len(master.asked) == 3 + 3


def test_what_goes_on_changing_is_asked_for_whole() -> None:
    master = Master(10, limit=4)
    master.changes_at = set(range(1, 99))
    assert [*fetched(master)["topicConfigTable"]] == master.names
    assert master.asked[-1] == {}
    assert len(master.asked) == 3 * 2 + 1


def test_pages_that_bring_nothing_new_do_not_go_on_for_ever() -> None:
    master = Master(10, limit=4)
    body = master.answer(master.names[:4], {"totalTopicNum": "10"})
    asked: list[object] = []
    master.get_page = lambda *what: asked.append(what) or body  # type: ignore[method-assign,func-returns-value]
    assert len(fetched(master)["topicConfigTable"]) == 4
    assert len(asked) == 3 * 2 + 1


def test_groups_are_paged_by_names_of_their_own() -> None:
    asked: list[dict[str, str]] = []

    def get_page(_broker: str, code: int, fields: dict[str, str], _ms: int) -> RemotingCommand:
        asked.append(fields)
        begin = int(fields["groupSeq"])
        body = {
            "dataVersion": VERSION,
            "subscriptionGroupTable": {f"g{begin}": {"groupName": f"g{begin}"}},
            "forbiddenTable": {f"g{begin}": {"t": 1}},
        }
        answer = {"totalGroupNum": "3"}
        return RemotingCommand(code=0, body=json.dumps(body).encode(), ext_fields=answer)

    master = type("M", (), {"get_page": staticmethod(get_page)})
    found = fetch_table(cast("BrokerOuterAPI", master), "m:1", GROUPS)
    assert found is not None
    assert [*found["subscriptionGroupTable"]] == [*found["forbiddenTable"]] == ["g0", "g1", "g2"]
    assert [fields["maxGroupNum"] for fields in asked] == ["2000"] * 3


def test_no_table_is_none() -> None:
    master = type("M", (), {"get_page": staticmethod(lambda *_: None)})
    assert fetch_table(cast("BrokerOuterAPI", master), "m:1", TOPICS) is None

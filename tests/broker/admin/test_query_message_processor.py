"""broker.admin.query_message_processor: by key, by unique key, by id."""

from __future__ import annotations

import pytest

from broker.admin import query_message_processor
from broker.admin.query_message_processor import QueryMessageProcessor
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from store.message import Message
from store.message_codec import encode_host, encode_record
from tests.broker.broker_fakes import (
    FakeConnection,
    FakeStore,
    assert_same_head,
    golden,
    request_of,
)


def processor_of(store: FakeStore) -> QueryMessageProcessor:
    return QueryMessageProcessor(store, default_query_max_num=32, max_msgs_num_batch=64)


def record(phy_offset: int, topic: str = "t", body_size: int = 3) -> bytes:
    host = encode_host("10.0.0.1", 10911)
    return encode_record(
        Message(
            topic=topic,
            queue_id=0,
            phy_offset=phy_offset,
            body=bytes(body_size),
            born_host=host,
            store_host=host,
        )
    )


def ask(store: FakeStore, request: RemotingCommand) -> RemotingCommand:
    try:
        answer = processor_of(store).process_request(FakeConnection(), request)
    except RequestError as error:
        return request.response(error.code, error.remark)
    assert answer is not None
    return answer


def query(key: str = "k", max_num: int = 64, **more: str) -> RemotingCommand:
    return request_of(
        12, topic="t", key=key, maxNum=max_num, beginTimestamp=1, endTimestamp=9, **more
    )


@pytest.mark.parametrize("number", [1, 2])
def test_queries_of_java(number: int) -> None:
    request, java = golden(12, number)
    assert java is not None
    store = FakeStore()
    store.index["GTopic", request.ext_fields["key"]] = [405]
    store.records[405] = java.body
    ours = ask(store, request)
    java.ext_fields["indexLastUpdateTimestamp"] = "1795177744588"
    java.ext_fields["indexLastUpdatePhyoffset"] = "24364"
    assert_same_head(ours, java)
    assert ours.body == java.body


def test_a_view_of_java() -> None:
    request, java = golden(33)
    assert java is not None
    store = FakeStore(records={405: java.body})
    ours = ask(store, request)
    assert_same_head(ours, java)
    assert ours.body == java.body


def test_no_message_at_an_offset() -> None:
    answer = ask(FakeStore(), request_of(33, offset=7))
    assert (answer.code, answer.remark) == (1, "can not find message by the offset, 7")


def test_records_come_oldest_first_and_once() -> None:
    store = FakeStore(records={1: record(1), 2: record(2), 5: record(5)})
    store.index["t", "k"] = [5, 1, 3, 5]
    assert ask(store, query()).body == record(1) + record(5), "3 is not readable any more"


def test_a_key_made_to_match_another_topics_hash_finds_nothing() -> None:
    store = FakeStore(records={1: record(1, "other"), 2: record(2)})
    store.index["t", "k"] = [1, 2]
    assert ask(store, query()).body == record(2)
    store.index["t", "k"] = [1]
    assert ask(store, query()).code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("max_num", "more", "asked"),
    [
        (10, {}, 10),
        (1_000, {}, 64),
        (-5, {}, 0),
        (1_000, {"_UNIQUE_KEY_QUERY": "true"}, 32),
        (10, {"_UNIQUE_KEY_QUERY": "false"}, 10),
    ],
)
def test_how_many(max_num: int, more: dict[str, str], asked: int) -> None:
    store = FakeStore()
    ask(store, query(max_num=max_num, **more))
    assert store.index_queries == [("t", "k", asked, 1, 9)]


def test_nothing_found() -> None:
    answer = ask(FakeStore(), query())
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark == "can not find message, maybe time range not correct"
    assert answer.ext_fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


@pytest.mark.parametrize(("sizes", "given"), [((60, 60), 1), ((200, 10), 1), ((40, 60, 1), 2)])
def test_the_answer_stays_below_the_frame_limit(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], given: int
) -> None:
    base = len(record(0, body_size=0))
    limit = 100 + base * min(2, len(sizes))
    monkeypatch.setattr(query_message_processor, "MAX_ANSWER_SIZE", limit)
    records = {n: record(n, body_size=size) for n, size in enumerate(sizes)}
    store = FakeStore(records=records)
    store.index["t", "k"] = list(range(len(sizes)))
    expected = b"".join(records[n] for n in range(given))
    assert ask(store, query()).body == expected


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"indexType": "T", "lastKey": ""}, "T#k"),
        ({"indexType": "K"}, "k"),
        ({"indexType": "U"}, "k"),
        ({"indexType": ""}, "k"),
        ({"indexType": "t"}, "k"),
        ({"indexType": "T", "_UNIQUE_KEY_QUERY": "true"}, "k"),
    ],
    ids=str,
)
def test_what_the_key_is_clients_of_5_5_say(more: dict[str, str], key: str) -> None:
    store = FakeStore()
    store.index["t", key] = [7]
    store.records[7] = record(7)
    assert ask(store, query(**more)).body == record(7)
    assert [asked[:2] for asked in store.index_queries] == [("t", key)]


def test_the_index_is_not_read_without_its_setting() -> None:
    store = FakeStore(records={7: record(7)})
    store.index["t", "k"] = [7]
    processor = QueryMessageProcessor(
        store, default_query_max_num=32, max_msgs_num_batch=64, reads_index=False
    )
    answer = processor.process_request(FakeConnection(), query())
    assert answer is not None
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert store.index_queries == []

"""TablePages: answers to 21 and 201 page by page, for peers of 5.5 that ask so.

Pure, any thread; for the processors of the topic table and of the group table. A page holds names
in their order, and the answer says how many there are: only then, since it makes a peer ask on. A
peer that asks for a later page with another data version than the table's gets the first one, sees
the version and begins anew. Follows AdminBrokerProcessor of RocketMQ 5.5, whose peers ask no more
when one name is missing: here no page leaves a single one.

Tested by tests/broker/processor/test_table_pages.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from remoting.body.data_version import DataVersion
from remoting.body.subscription_group_config import SubscriptionGroupWrapper
from remoting.body.topic_config import TopicConfigSerializeWrapper
from remoting.command_custom_header import decode_header, encode_header
from remoting.errors import HeaderError
from remoting.headers.admin import (
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
)
from remoting.headers.topic import GetAllTopicConfigRequestHeader, GetAllTopicConfigResponseHeader

_V = TypeVar("_V")


class TablePages:
    """Immutable."""

    def __init__(self, limit: int) -> None:
        """limit: names of a page at most; 0: everybody gets all of them."""
        self._limit = limit

    def of_topics(
        self, whole: TopicConfigSerializeWrapper, ext_fields: Mapping[str, str]
    ) -> tuple[TopicConfigSerializeWrapper, dict[str, str]]:
        """What a 21 asks for of the table, and the fields of its answer. Raises HeaderError."""
        asked = decode_header(GetAllTopicConfigRequestHeader, ext_fields)
        table, most = whole.topic_config_table, asked.max_topic_num
        if not self._limit or (asked.topic_seq, asked.data_version, most) == (None, None, None):
            return whole, {}
        fields = (asked.topic_seq or 0, asked.data_version, self._most(most))
        names = _names(table, whole.data_version, *fields, type(asked).__name__)
        mappings = whole.topic_queue_mapping_detail_map
        page = replace(
            whole,
            topic_config_table=_only(table, names),
            topic_queue_mapping_detail_map=None if mappings is None else _only(mappings, names),
        )
        return page, encode_header(GetAllTopicConfigResponseHeader(total_topic_num=len(table)))

    def of_groups(
        self, whole: SubscriptionGroupWrapper, ext_fields: Mapping[str, str]
    ) -> tuple[SubscriptionGroupWrapper, dict[str, str]]:
        """What a 201 asks for of the table, and the fields of its answer. Raises HeaderError."""
        asked = decode_header(GetAllSubscriptionGroupRequestHeader, ext_fields)
        table, most = whole.subscription_group_table, asked.max_group_num
        if not self._limit or (asked.group_seq, asked.data_version, most) == (None, None, None):
            return whole, {}
        fields = (asked.group_seq or 0, asked.data_version, self._most(most))
        names = _names(table, whole.data_version, *fields, type(asked).__name__)
        forbidden = whole.forbidden_table
        page = replace(
            whole,
            subscription_group_table=_only(table, names),
            forbidden_table=None if forbidden is None else _only(forbidden, names),
        )
        return page, encode_header(
            GetAllSubscriptionGroupResponseHeader(total_group_num=len(table))
        )

    def _most(self, asked: int | None) -> int:
        return self._limit if asked is None else min(self._limit, asked)


def _names(
    table: Iterable[str],
    version: DataVersion,
    begin: int,
    known: str | None,
    most: int,
    header: str,
) -> list[str]:
    """Up to `most` names from the `begin`th on; one more if it is the last."""
    if begin < 0 or most < 1:
        raise HeaderError(header, "maxNum", f"{most} names from {begin} on are no page")
    if begin and not _is_same(known, version):
        begin = 0
    names = sorted(table)
    end = begin + most
    return names[begin : end + 1] if end + 1 == len(names) else names[begin:end]


def _is_same(known: str | None, version: DataVersion) -> bool:
    """Whether the text is the table's version. Java writes a state version of 0 that was not
    there."""
    if not known or known.isspace():
        return False
    other = DataVersion.from_request(known.encode("utf-8", "replace"))
    return _numbers(other) == _numbers(version)


def _numbers(version: DataVersion) -> tuple[int, int, int]:
    return version.counter, version.timestamp, version.state_version or 0


def _only(table: Mapping[str, _V], names: list[str]) -> dict[str, _V]:
    return {name: table[name] for name in names if name in table}

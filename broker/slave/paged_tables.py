"""Fetches a master's topics (21) or groups (201): in pages from one of 5.5, whole from any other.

A master that does not know pages ignores what asks for one and answers with all; only one that
pages says how many there are. A table that changes between two pages is asked for anew, and whole
when it goes on changing. Runs on the thread of SlaveSynchronize; keeps nothing.

Tested by tests/broker/slave/test_paged_tables.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from broker.json_config_manager import parse_object
from broker.slave.sync_status import TIMEOUT_MS
from remoting.request_code import RequestCode

if TYPE_CHECKING:
    from broker.out.broker_outer_api import BrokerOuterAPI

PAGE: Final = 2_000
_TRIES: Final = 3

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PagedTable:
    """A table by names, and another that has rows of some of them; wire names."""

    code: RequestCode
    rows: str
    more_rows: str
    begin: str
    most: str
    total: str


TOPICS: Final = PagedTable(
    RequestCode.GET_ALL_TOPIC_CONFIG,
    "topicConfigTable",
    "topicQueueMappingDetailMap",
    "topicSeq",
    "maxTopicNum",
    "totalTopicNum",
)
GROUPS: Final = PagedTable(
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    "subscriptionGroupTable",
    "forbiddenTable",
    "groupSeq",
    "maxGroupNum",
    "totalGroupNum",
)


def fetch_table(api: BrokerOuterAPI, broker: str, kind: PagedTable) -> Tree | None:
    """The whole table of the broker at "ip:port"; None: it has none. Raises RemotingError,
    BrokerAnswerError, ValueError."""
    for _ in range(_TRIES):
        first = _ask(api, broker, kind, _page_fields(kind, 0, ""))
        if first is None:
            return None
        tree, total = first
        if total is None or _append_rest(api, broker, kind, tree, total):
            return tree
    whole = _ask(api, broker, kind, {})
    return None if whole is None else whole[0]


def _append_rest(
    api: BrokerOuterAPI, broker: str, kind: PagedTable, tree: Tree, total: int
) -> bool:
    """Add the pages after the first; False if they are of another table than that."""
    version = tree.get("dataVersion")
    rows = _rows(tree, kind.rows)
    while len(rows) < total:
        known = len(rows)
        found = _ask(api, broker, kind, _page_fields(kind, known, json.dumps(version)))
        if found is None or found[0].get("dataVersion") != version:
            return False
        for name in (kind.rows, kind.more_rows):
            if added := _rows(found[0], name):
                _rows(tree, name).update(added)
        if len(rows) == known:
            return False
    return True


def _rows(tree: Tree, name: str) -> Tree:
    """Raises ValueError."""
    if tree.get(name) is None:
        tree[name] = {}
    rows = tree[name]
    if not isinstance(rows, dict):
        raise ValueError(f"{name} is no table: {rows!r:.80}")
    return rows


def _page_fields(kind: PagedTable, begin: int, version: str) -> dict[str, str]:
    return {kind.begin: str(begin), kind.most: str(PAGE), "dataVersion": version}


def _ask(
    api: BrokerOuterAPI, broker: str, kind: PagedTable, fields: Mapping[str, str]
) -> tuple[Tree, int | None] | None:
    """A page, or all, and how many rows there are; None: not said."""
    answer = api.get_page(broker, kind.code, fields, TIMEOUT_MS)
    if answer is None:
        return None
    total = answer.ext_fields.get(kind.total, "")
    is_number = len(total) < 10 and total.isascii() and total.isdecimal()
    return parse_object(answer.body), int(total) if is_number else None

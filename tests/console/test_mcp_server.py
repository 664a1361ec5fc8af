"""The MCP server, asked by the SDK's own client in this process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from mcp import Client

from console.cluster_watch import monotonic_ms
from console.history import History
from console.jobs import Jobs
from console.lanes import Lanes
from console.mcp_server import MAX_TEXT, answer, make_server, tool_name
from console.page import ConsoleError, Page, Query, Reader, View
from console.snapshot import ClusterSnapshot
from console.tables import Table
from tools.report import columns


def reader() -> Reader:
    lanes = Lanes(lambda _account: None, monotonic_ms)  # type: ignore[arg-type,return-value]
    return Reader(
        ClusterSnapshot(), History(), lanes, Jobs(lambda: 0), lambda _account: None, (), 0, 0
    )  # type: ignore[arg-type,return-value]


def rows(_reader: Reader, query: Query) -> Page:
    """Rows of a table.

    count: how many.
    """
    count = query.number("count", 3, 0, 1_000_000)
    table = Table("rows", "Rows", columns("N n >"), [[n] for n in range(count)])
    return Page(tables=[table])


def bodies(found: Reader, _query: Query) -> Page:
    """What only a signed-in reader sees."""
    found.must_sign_in("message bodies")
    return Page()


VIEWS = [
    View("/", "Overview", "Overview", "x", rows),
    View("/a/b", "Rows", "", "x", rows),
    View("/bodies", "Bodies", "", "x", bodies),
]


def test_every_view_is_a_tool_that_reads() -> None:
    async def ask() -> tuple[list[Any], Any]:
        async with Client(make_server(VIEWS, reader)) as client:
            tools = await client.list_tools()
            result = await client.call_tool("a_b", {"query": {"count": "2"}})
            return tools.tools, result

    tools, result = asyncio.run(ask())
    assert [tool.name for tool in tools] == ["overview", "a_b", "bodies"]
    assert "Rows of a table. count: how many." in tools[1].description
    assert json.loads(result.content[0].text) == [{"n": 0}, {"n": 1}]


def test_long_lists_say_how_long_they_are() -> None:
    found = json.loads(answer(VIEWS[0], reader, {"count": "1000"}, 2))
    assert found == {"first": [{"n": 0}, {"n": 1}], "of": 1000}
    assert len(json.loads(answer(VIEWS[0], reader, {"count": "1000"}, 10**9))["first"]) == 200


def test_errors_are_sentences_and_nobody_is_signed_in() -> None:
    assert "whole number" in json.loads(answer(VIEWS[0], reader, {"count": "x"}, 5))["error"]
    assert "Sign in" in json.loads(answer(VIEWS[2], reader, {}, 5))["error"]


def test_a_text_that_is_too_long_is_refused() -> None:
    def long(_reader: Reader, _query: Query) -> Page:
        return Page(data="x" * MAX_TEXT)

    found = answer(View("/x", "X", "", "x", long), reader, {}, 5)
    assert "too many" in json.loads(found)["error"]


def test_names() -> None:
    assert tool_name(View("/replication/group", "G", "", "x", rows)) == "replication_group"
    with pytest.raises(ConsoleError):
        Query({"a": "x" * 2_000}).text("a")

"""broker.filter.message_filter: the properties of stored records, judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.filter.message_filter import ExpressionForRetryMessageFilter, ExpressionMessageFilter
from broker.filter.selector import Selector
from broker.filter.selector_parser import compile_selector
from store.message import Message
from store.message_codec import encode_record

HOST = bytes(8)
MESSAGE = Message(
    topic="T",
    queue_id=0,
    flag=0,
    queue_offset=0,
    phy_offset=0,
    sys_flag=0,
    born_timestamp=0,
    born_host=HOST,
    store_timestamp=0,
    store_host=HOST,
    reconsume_times=0,
    prepared_transaction_offset=0,
    body=b"body",
    properties=b"",
)


def record(properties: str | bytes, **changes: object) -> memoryview:
    """A record with seven bytes before it, as in the middle of a file."""
    raw = properties if isinstance(properties, bytes) else properties.encode()
    message = replace(MESSAGE, properties=raw, **changes)  # type: ignore[arg-type]
    return memoryview(bytes(7) + encode_record(message) + b"what follows")


def matches(expression: str, view: memoryview) -> bool:
    return ExpressionMessageFilter(compile_selector(expression)).matches(view, 7)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ("a\x016\x02b\x01x", True),
        ("b\x01x\x02a\x016\x02", True),
        ("a\x014", False),
        ("a\x014\x02a\x016", True),
        ("A\x016", False),
        ("", False),
        ("a\x01", False),
        (b"b\x01\xff\xfe\x02a\x016", True),
    ],
)
def test_by_properties(properties: str | bytes, expected: bool) -> None:
    assert matches("a > 5", record(properties)) is expected


def test_values_are_unicode() -> None:
    view = record("名\x01x\x02a\x01中文🚀")
    assert matches("a = '中文🚀'", view)
    assert matches("TAGS IS NULL", view)


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x30])
def test_ipv6_hosts(sys_flag: int) -> None:
    born, stored = (bytes(20 if sys_flag & bit else 8) for bit in (0x10, 0x20))
    view = record("a\x016", sys_flag=sys_flag, born_host=born, store_host=stored)
    assert matches("a = 6", view)


@pytest.mark.parametrize(
    "view",
    [
        memoryview(bytes(200)),
        memoryview(record("a\x014")[:-20]),
        memoryview(bytes(8)),
    ],
)
def test_what_is_no_record_is_given_out(view: memoryview) -> None:
    assert matches("a > 5", view)
    assert ExpressionForRetryMessageFilter(Table({}), "G").matches(view, 7)


class Table:
    """Selectors."""

    def __init__(self, expressions: dict[tuple[str, str], str]) -> None:
        self.expressions = expressions

    def find_selector(self, topic: str, group: str) -> Selector | None:
        text = self.expressions.get((topic, group))
        return None if text is None else compile_selector(text)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ("RETRY_TOPIC\x01T\x02a\x016", True),
        ("RETRY_TOPIC\x01T\x02a\x014", False),
        ("RETRY_TOPIC\x01U\x02a\x014", True),
        ("a\x014", True),
    ],
)
def test_a_retried_message_is_judged_by_its_topic(properties: str, expected: bool) -> None:
    table = Table({("T", "G"): "a > 5", ("U", "H"): "a > 5"})
    found = ExpressionForRetryMessageFilter(table, "G")
    assert found.matches(record(properties), 7) is expected

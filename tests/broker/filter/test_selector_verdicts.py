"""broker.filter.selector_verdicts: the verdicts of each record alone, however often asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.filter.message_filter import ExpressionMessageFilter
from broker.filter.selector import Selector
from broker.filter.selector_parser import compile_selector
from broker.filter.selector_verdicts import VerdictTable
from store.message_properties import format_properties, parse_properties
from tests.broker.broker_fakes import FakeClock
from tests.broker.filter.test_message_filter import record
from tests.broker.filter.test_selector_parser import TREES, VERDICTS, text_of

NEVER = 1 << 60


class Row:
    """Properties as they lie in a log, something between them."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.begins: list[int] = []
        self.ends: list[int] = []
        data = bytearray()
        for text in texts:
            data += b"a\x015\x02"  # What lies before belongs to another record.
            self.begins.append(len(data))
            data += text
            self.ends.append(len(data))
            data += b"\x02a\x017"
        self.view = memoryview(bytes(data))


def matches(table: VerdictTable, selector: Selector, texts: Sequence[bytes]) -> list[int]:
    row = Row(texts)
    found, looked_at = table.of(selector).find_matches(
        row.view, row.begins, row.ends, len(texts) + 1, NEVER
    )
    assert looked_at == len(texts)
    return found


def expected(selector: Selector, texts: Sequence[bytes]) -> list[int]:
    """One by one, every property decoded."""
    parsed = [parse_properties(text.decode("utf-8", "replace")) for text in texts]
    return [number for number, each in enumerate(parsed) if selector.matches(each)]


def table() -> VerdictTable:
    return VerdictTable(FakeClock().monotonic_ms)


NAMES = [b"a", b"b", b"c", b"aa", b"", b"\xe5\x90\x8d"]
VALUES = [b"x", b"5", b"-7", b"12", b"", b"3000000000", b"true", b"5\x015", b"\xff\xfe", b"\xe4"]
PAIRS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=6)
TEXTS = PAIRS.map(lambda pairs: b"\x02".join(name + b"\x01" + value for name, value in pairs))
LOOSE = st.lists(st.sampled_from([b"a", b"b", b"5", b"\x01", b"\x02", b"\xff"]), max_size=12)


@given(TREES, st.lists(st.one_of(TEXTS, LOOSE.map(b"".join)), min_size=1, max_size=8))
def test_the_same_as_one_by_one(tree: Any, texts: list[bytes]) -> None:
    selector = compile_selector(text_of(tree))
    verdicts = table()
    for _ in range(2):  # New values, then known ones.
        assert matches(verdicts, selector, texts) == expected(selector, texts)


def rows_of_java() -> Iterator[tuple[str, list[bytes], list[int]]]:
    """Expressions; the properties that can be stored (Java was asked of others, too); which of them
    Java says match."""
    for line in VERDICTS.read_text("utf-8").strip().split("\n"):
        case = json.loads(line)
        asked = zip(case["properties"], case["java"] or "", strict=False)
        stored = [(format_properties(each), said) for each, said in asked if is_storable(each)]
        texts = [text.encode() for text, _ in stored]
        yield case["expression"], texts, [n for n, (_, said) in enumerate(stored) if said == "T"]


def is_storable(properties: dict[str, str]) -> bool:
    return parse_properties(format_properties(properties)) == properties


def test_java_says_the_same() -> None:
    verdicts = table()
    rows = [row for row in rows_of_java() if row[1]]
    assert len(rows) > 300
    for expression, texts, of_java in rows:
        assert matches(verdicts, compile_selector(expression), texts) == of_java, expression


@pytest.mark.parametrize("expression", ["a > 5", "a > 5 AND b IS NULL"])
def test_the_same_as_of_the_records(expression: str) -> None:
    selector = compile_selector(expression)
    texts = ["a\x016", "a\x014\x02b\x01x", "b\x01x\x02a\x019", "", "a\x01", "a\x016\x02a\x01"]
    by_record = ExpressionMessageFilter(selector)
    wanted = [n for n, text in enumerate(texts) if by_record.matches(record(text), 7)]
    assert matches(table(), selector, [text.encode() for text in texts]) == wanted


def test_an_expression_without_properties() -> None:
    assert matches(table(), compile_selector("TRUE"), [b"", b"a\x015"]) == [0, 1]
    assert matches(table(), compile_selector("1 = 2"), [b"", b"a\x015"]) == []


@pytest.mark.parametrize("expression", ["a = 1", "a = 1 AND b IS NULL"])
def test_it_ends_behind_the_last_one_wanted(expression: str) -> None:
    row = Row([b"a\x01%d" % (number % 2) for number in range(10)])
    verdicts = table().of(compile_selector(expression))
    for _ in range(2):
        found = verdicts.find_matches(row.view, row.begins, row.ends, 2, NEVER)
        assert found == ([1, 3], 4)


@pytest.mark.parametrize("expression", ["a >= 0", "a >= 0 AND b IS NULL"])
def test_it_ends_when_the_time_is_up_and_goes_on_with_what_it_knows(expression: str) -> None:
    clock = FakeClock()
    verdicts = VerdictTable(clock.monotonic_ms).of(compile_selector(expression))
    row = Row([b"a\x01%d" % number for number in range(10)])
    late = clock.monotonic_ms()
    assert verdicts.find_matches(row.view, row.begins, row.ends, 99, late) == ([0], 1)
    assert verdicts.find_matches(row.view, row.begins, row.ends, 99, late) == ([0, 1], 2)
    assert len(verdicts.find_matches(row.view, row.begins, row.ends, 99, late + 1)[0]) == 10


def test_what_is_kept_has_an_end() -> None:
    verdicts = table()
    selector = compile_selector("a = 1 OR b = 'x'")
    for start in range(0, 3_000, 500):
        texts = [b"a\x01%d" % number for number in range(start, start + 500)]
        assert matches(verdicts, selector, texts) == expected(selector, texts)
    assert 0 < len(verdicts.of(selector)._known) <= 1_024
    long = b"b\x01" + b"x" * 300
    kept = len(verdicts.of(selector)._known)
    assert matches(verdicts, selector, [long]) == []
    assert len(verdicts.of(selector)._known) == kept
    for number in range(40):
        verdicts.of(compile_selector(f"a = {number}"))
    assert len(verdicts._known) <= 16


def test_one_expression_does_not_know_what_another_said() -> None:
    verdicts, texts = table(), [b"a\x016"]
    assert matches(verdicts, compile_selector("a > 5"), texts) == [0]
    assert matches(verdicts, compile_selector("a < 5"), texts) == []

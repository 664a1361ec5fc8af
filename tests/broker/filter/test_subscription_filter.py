"""Tag expressions as FilterAPI reads them."""

from __future__ import annotations

import pytest

from broker.filter import subscription_filter
from broker.filter.subscription_filter import TagExpressions, parse_tag_expression
from store.java_hash import string_hash


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        (None, None),
        ("", None),
        ("*", None),
        ("A", ["A"]),
        ("A||B", ["A", "B"]),
        (" A  ||  B ", ["A", "B"]),
        ("A||", ["A"]),
        ("||A", ["A"]),
        ("A|| ||B", ["A", "B"]),
        ("A|B", ["A|B"]),
        ("A|||B", ["A", "|B"]),
        (" ", []),
        (" || ", []),
        (" * ", ["*"]),
        ("标签", ["标签"]),
    ],
)
def test_codes(text: str | None, tags: list[str] | None) -> None:
    expected = None if tags is None else frozenset(map(string_hash, tags))
    assert parse_tag_expression(text) == expected
    assert TagExpressions().codes(text) == expected


@pytest.mark.parametrize("text", ["||", "||||"])
def test_only_bars_cannot_be_parsed(text: str) -> None:
    expressions = TagExpressions()
    for _ in range(2):
        with pytest.raises(ValueError, match="split error"):
            expressions.codes(text)


def test_codes_are_the_int32_of_java() -> None:
    assert parse_tag_expression("polygenelubricants") == frozenset({-(2**31)})
    assert parse_tag_expression("TagA") == frozenset({2598919})


def test_parsed_texts_are_remembered_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_filter, "_CACHE_LIMIT", 3)
    expressions = TagExpressions()
    assert expressions.codes("A") is expressions.codes("A")
    for n in range(10):
        expressions.codes(f"T{n}")
        assert len(expressions._parsed) <= 3
    expressions.codes("x" * 100_000)
    assert all(len(text or "") < 5000 for text in expressions._parsed)

"""Tag expressions as FilterAPI reads them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.filter import subscription_filter
from broker.filter.subscription_filter import (
    SubscribedCodes,
    TagExpressions,
    parse_tag_expression,
)
from remoting.body.heartbeat import SubscriptionData
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


def heard(*codes: int, topic: str = "T") -> SubscriptionData:
    return SubscriptionData(topic=topic, code_set=list(codes))


def test_the_codes_of_a_subscription_are_made_once() -> None:
    subscribed, subscription = SubscribedCodes(), heard(1, 2, 2)
    codes = subscribed.codes("G", subscription)
    assert codes == {1, 2}
    assert subscribed.codes("G", subscription) is codes
    assert subscribed.codes("H", heard(3)) == {3}
    assert subscribed.codes("G", heard(4, topic="U")) == {4}
    assert subscribed.codes("G", subscription) is codes
    newer = replace(subscription, code_set=[5])
    assert subscribed.codes("G", newer) == {5}
    assert subscribed.codes("G", subscription) == {1, 2}


def test_few_codes_of_subscriptions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups, topics and codes are a peer's to name."""
    monkeypatch.setattr(subscription_filter, "_MOST_CODES", 10)
    monkeypatch.setattr(subscription_filter, "_CACHE_LIMIT", 4)
    subscribed = SubscribedCodes()
    for number in range(50):
        subscription = heard(*range(number % 13))
        for _ in range(2):
            found = subscribed.codes(f"G{number % 9}", subscription)
            assert found == frozenset(range(number % 13))
        kept = [len(codes) for _of, codes in subscribed._kept.values()]
        assert len(kept) <= 4
        assert sum(kept) == subscribed._count <= 10


def test_many_long_expressions_are_not_all_kept() -> None:
    """10,000 of 4,096 characters, each with 1,300 tags, took a GiB."""
    kept = TagExpressions()
    for number in range(600):
        kept.codes(f"{number:04d}||".ljust(4_096, "x"))
    assert sum(len(each or "") for each in kept._parsed) <= 1 << 20
    assert kept.codes("a") == parse_tag_expression("a")

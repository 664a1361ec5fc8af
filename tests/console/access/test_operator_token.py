"""The operator's token: right, wrong, and out of the URL."""

from __future__ import annotations

import pytest

from console.access.operator_token import OperatorToken, token_in, without_token


def test_only_the_printed_token_is_right() -> None:
    token = OperatorToken()
    url = token.url("http://127.0.0.1:8088")
    assert url.startswith("http://127.0.0.1:8088/?token=")
    text = url.partition("=")[2]
    assert len(text) >= 43
    assert token.is_right(text)
    for wrong in ("", text[:-1], text + "x", text.swapcase(), "é", "\udcff", "x" * 1_000_000):
        assert not token.is_right(wrong)
    assert not token.is_right(OperatorToken().url("").partition("=")[2])


@pytest.mark.parametrize(
    ("query", "token", "rest"),
    [
        ("", None, ""),
        ("q=token", None, "q=token"),
        ("tokens=1", None, "tokens=1"),
        ("token=abc", "abc", ""),
        ("q=a+b%26&token=a%2Bb&page=2&empty=", "a+b", "q=a+b%26&page=2&empty="),
        ("token=1&token=2", "2", ""),
        ("token", None, ""),
        ("token=", None, ""),
        ("q=%FF&token=x", "x", "q=%EF%BF%BD"),
    ],
)
def test_the_token_of_a_query(query: str, token: str | None, rest: str) -> None:
    assert token_in(query) == token
    assert without_token(query) == rest

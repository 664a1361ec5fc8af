"""Numbers in headers as Java reads them."""

from __future__ import annotations

import pytest

from remoting.errors import HeaderError
from remoting.header_numbers import plain_numbers
from remoting.response_code import ResponseCode


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("0", "0"),
        ("00", "0"),
        ("+1", "1"),
        ("-1", "-1"),
        ("-0", "0"),
        ("007", "7"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
    ],
)
def test_numbers_are_made_plain(text: str, plain: str) -> None:
    fields = {"n": text, "other": "00x"}
    assert plain_numbers("Header", fields, ["n", "absent"]) == {"n": plain, "other": "00x"}
    assert fields["n"] == text


@pytest.mark.parametrize(
    "text", ["", " ", "x", "1 ", " 1", "1.0", "1e3", "0x1", "--1", "1_0", "٣", "²", "1" * 20, "\n1"]
)
def test_everything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(HeaderError, match="is not a number") as caught:
        plain_numbers("Header", {"n": text}, ["n"])
    assert (caught.value.header, caught.value.field) == ("Header", "n")
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_short_names_are_shown_as_people_know_them() -> None:
    with pytest.raises(HeaderError) as caught:
        plain_numbers("Header", {"e": "x"}, "e", shown={"e": "queueId"})
    assert caught.value.remark.startswith("Header.queueId: ")


def test_a_long_text_is_cut_in_the_remark() -> None:
    with pytest.raises(HeaderError) as caught:
        plain_numbers("Header", {"n": "1" * 100_000}, ["n"])
    assert len(caught.value.remark) < 120

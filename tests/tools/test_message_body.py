"""What is shown of bodies: every kind, hostile ones, and those of 16 MiB."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.message_body import SHOWN_CHARS, DecodedBody, decode_body


class TestText:
    def test_any_language(self) -> None:
        assert decode_body("größer ≥ 中文\n".encode()) == DecodedBody(
            "text", "größer ≥ 中文\n", is_cut=False, size=20
        )

    def test_nothing(self) -> None:
        assert decode_body(b"") == DecodedBody("text", "", is_cut=False, size=0)

    def test_control_characters_are_escaped(self) -> None:
        shown = decode_body(b"a long line and \x1b[2J then more of it\r\n").text
        assert shown == "a long line and \\x1b[2J then more of it\\x0d\n"

    def test_markup_stays_as_it_is(self) -> None:
        """Escaping for a page is the page's."""
        assert decode_body(b"<script>").text == "<script>"

    @pytest.mark.parametrize("shown", [5, 6, 7, 8, 9])
    def test_a_cut_within_a_character(self, shown: int) -> None:
        found = decode_body("中文中文".encode(), shown_chars=shown)
        assert (found.kind, found.text, found.is_cut) == ("text", "中文中文"[: shown // 3], True)

    def test_a_body_that_was_cut_before(self) -> None:
        found = decode_body("中文".encode()[:-1], is_whole=False)
        assert (found.kind, found.text, found.is_cut) == ("text", "中", True)

    def test_escapes_count(self) -> None:
        found = decode_body((b"x" * 31 + b"\x1b") * 10, shown_chars=320)
        assert (len(found.text), found.is_cut) == (320, True)


class TestJson:
    def test_is_indented(self) -> None:
        found = decode_body(b' {"a":[1,2.10],"b":"\\u0007<"}')
        assert found.kind == "json"
        assert found.text == '{\n  "a": [\n    1,\n    2.10\n  ],\n  "b": "\\u0007<"\n}'

    def test_says_what_was_sent(self) -> None:
        """No number is rounded, no key of two is lost."""
        shown = decode_body(b'{"n":12345678901234567890123.10,"n":1e400}').text
        assert "12345678901234567890123.10" in shown
        assert shown.count('"n"') == 2

    @pytest.mark.parametrize(
        "body", [b'{"a":1', b"[1,]", b'{"a":NaN}', b"{} {}", b"{", b"17", b'"x"']
    )
    def test_what_is_none(self, body: bytes) -> None:
        assert decode_body(body) == DecodedBody("text", body.decode(), is_cut=False, size=len(body))

    def test_a_part_of_it_is_text(self) -> None:
        found = decode_body(b'{"a":1}', is_whole=False)
        assert (found.kind, found.text, found.is_cut) == ("text", '{"a":1}', True)

    def test_indented_it_would_be_too_long(self) -> None:
        body = json.dumps([1] * 20_000).encode()
        found = decode_body(body)
        assert (found.kind, found.text, found.is_cut) == ("json", body.decode(), False)

    def test_controls_in_it_are_escaped(self) -> None:
        shown = decode_body('{"a":"\x7f\x9b[2J and more of it"}'.encode()).text
        assert shown == '{\n  "a": "\\x7f\\x9b[2J and more of it"\n}'

    def test_deep_ones_are_not_indented(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They would take 36 MB, for nothing."""
        monkeypatch.delattr("msgspec.json.format")
        body = b"[" * 900 + b"1" + b",1" * 20_000 + b"]" * 900
        found = decode_body(body)
        assert (found.kind, found.text) == ("json", body.decode())

    def test_deeper_than_a_parser_goes(self) -> None:
        assert decode_body(b"[" * 30_000 + b"]" * 30_000).kind == "text"


class TestHex:
    def test_looks_like_hexdumps(self) -> None:
        found = decode_body(bytes(range(14, 50)))
        assert found.kind == "hex"
        assert found.text.splitlines() == [
            "00000000  0e 0f 10 11 12 13 14 15  16 17 18 19 1a 1b 1c 1d  |................|",
            "00000010  1e 1f 20 21 22 23 24 25  26 27 28 29 2a 2b 2c 2d  |.. !\"#$%&'()*+,-|",
            "00000020  2e 2f 30 31                                       |./01|",
        ]

    @pytest.mark.parametrize(
        "body", [b"\xff\xfe", b"text\0text", b"\x01\x02\x03\x04abcdef", b"\xc3"]
    )
    def test_what_is_no_text(self, body: bytes) -> None:
        assert decode_body(body).kind == "hex"

    def test_a_nul_in_a_long_text(self) -> None:
        assert decode_body(b"a long text " * 100 + b"\0").kind == "hex"

    def test_has_a_limit(self) -> None:
        found = decode_body(b"\xff" * 1_000_000)
        assert SHOWN_CHARS - 100 < len(found.text) <= SHOWN_CHARS
        assert (found.is_cut, found.size) == (True, 1_000_000)


@pytest.mark.parametrize("piece", [b"x", b"\0", b"[", b'{"a":', b"\x1b", b"\xe4\xb8\xad", b'"'])
def test_16_mib(piece: bytes) -> None:
    found = decode_body(piece * ((16 << 20) // len(piece)))
    assert len(found.text) <= SHOWN_CHARS
    assert found.is_cut


@given(st.binary(max_size=300), st.integers(1, 200))
def test_any_bytes(body: bytes, shown_chars: int) -> None:
    found = decode_body(body, shown_chars=shown_chars)
    assert len(found.text) <= max(shown_chars, 78)
    assert found.text.replace("\n", "").replace("\t", "").isprintable() or not found.text.isascii()

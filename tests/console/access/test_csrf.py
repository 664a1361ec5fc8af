"""Cross-site requests, and where a form may lead."""

from __future__ import annotations

import pytest

from console.access.account import OPERATOR
from console.access.csrf import FIELD, MAX_NEXT, is_foreign, is_right, safe_next
from console.access.sessions import Session

HOST = "console.example:8088"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": f"http://{HOST}"},
        {"origin": f"https://{HOST.upper()}", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
)
def test_our_own_pages_post(headers: dict[str, str]) -> None:
    assert not is_foreign(headers, HOST)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://console.example"},
        {"origin": "http://console.example:3000"},
        {"origin": f"http://{HOST}.evil.example"},
        {"origin": f"http://evil.example#{HOST}"},
        {"origin": "null"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": f"http://{HOST}"},
        {"sec-fetch-site": "odd"},
    ],
)
def test_other_sites_do_not(headers: dict[str, str]) -> None:
    assert is_foreign(headers, HOST)


def test_a_form_needs_the_sessions_own_token() -> None:
    session, other = Session(OPERATOR, "", 0), Session(OPERATOR, "", 0)
    assert is_right(session, {FIELD: session.csrf_token})
    for wrong in (other.csrf_token, "", session.csrf_token[:-1], session.id, "é", "\udcff"):
        assert not is_right(session, {FIELD: wrong})
    assert not is_right(session, {})


@pytest.mark.parametrize("url", ["/", "/topics?q=a&page=2", "/topics/%2F%2Fx", "/t/日本", "/a//b"])
def test_a_form_leads_to_a_page_of_the_console(url: str) -> None:
    assert safe_next(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "topics",
        "//evil.example",
        "///evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "/a\r\nSet-Cookie: x=1",
        "/\u2028",
        "/\u202egnp",
        "/\udcff",
        " /topics",
        "/" + "a" * MAX_NEXT,
    ],
)
def test_and_to_no_other_place(url: str) -> None:
    assert safe_next(url) == "/"

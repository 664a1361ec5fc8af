"""The headers of every answer."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders

from console.access.security_headers import add_security_headers


def headers_of(path: str, **own: str) -> MutableHeaders:
    headers = MutableHeaders({name.replace("_", "-"): text for name, text in own.items()})
    add_security_headers(headers, path)
    return headers


def test_a_page_runs_only_our_scripts_and_is_kept_nowhere() -> None:
    headers = headers_of("/")
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self'" in policy
    assert "base-uri 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


def test_only_our_own_files_are_kept() -> None:
    assert headers_of("/static/console.css")["cache-control"] == "no-cache"
    for path in ("/statics", "/topics/static/", "/"):
        assert headers_of(path)["cache-control"] == "no-store"


def test_what_a_page_says_itself_stays() -> None:
    headers = headers_of("/", cache_control="private", content_security_policy="sandbox")
    assert headers["cache-control"] == "private"
    assert headers["content-security-policy"] == "sandbox"
    assert headers["x-frame-options"] == "DENY"

"""Messages for Slack: within its limits, and nothing in a name means anything to it."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.command.slack import MAX_TEXT, escaped, failure_payload, report_payload
from spark.config.objectives import PolicyStep
from tests.spark.demo_report import demo_report, large_report
from tests.spark.told_reports import HOSTILE, PAGE, told_report


def utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def check(payload: dict[str, Any]) -> list[str]:
    """Slack's rules, as docs.slack.dev has them; the blocks' texts."""
    assert set(payload) == {"text", "blocks"}
    assert 1 <= len(payload["blocks"]) <= 50
    texts = []
    for block in payload["blocks"]:
        assert set(block) == {"type", "text"}
        assert block["type"] == "section"
        assert set(block["text"]) == {"type", "text", "verbatim"}
        assert block["text"]["type"] == "mrkdwn"
        texts.append(block["text"]["text"])
    for text in (payload["text"], *texts):
        assert 1 <= utf16_units(text) <= 3_000
        # Our own link to the page is the only one.
        plain = re.sub(r"^<https?://[^<>|\s]+\|Report>$", "", text)
        assert not set("<>") & set(plain)
        assert all(re.match("&(amp|lt|gt);", plain[m.start() :]) for m in re.finditer("&", plain))
    assert json.loads(json.dumps(payload).encode()) == payload
    return texts


def test_a_report() -> None:
    texts = check(report_payload(demo_report(), "https://r.example.com/report.html?a=1&b=2"))
    assert texts[0] == "*2026-03-14 breached; 30 days insufficient data*"
    assert texts[1].splitlines()[0] == (
        "• DefaultCluster/broker-a/broker-a:1: availability 99.681 % &lt; 99.9 %: 4 min 35 s bad of"
        " 1 min 26.4 s allowed"
    )
    assert texts[-1] == "<https://r.example.com/report.html?a=1&amp;b=2|Report>"
    assert check(report_payload(demo_report(), PAGE))[-1] == f"Report: {PAGE}"
    assert (
        check(report_payload(demo_report(), "https://h/a|b>c"))[-1] == "Report: https://h/a|b&gt;c"
    )


def test_a_failure() -> None:
    assert check(failure_payload("2026-03-10", "a < b & c")) == [
        *("*2026-03-10: no report*", "a &lt; b &amp; c")
    ]
    check(failure_payload("2026-03-10", HOSTILE))


@pytest.mark.parametrize("count", [1, 60])
def test_hostile_names_and_many_reasons(count: int) -> None:
    policy = tuple(PolicyStep(n, f"{n}<&>" * 9, notify=True) for n in range(1, 60))
    data = told_report(day="breached", window="breached", used=9, replica=HOSTILE, policy=policy)
    row = {**data.replica_days[0], "cluster": "&" * 400, "reasons": ["<" * 400] * count}
    found = type(data)(
        *(data.date, data.w0_ms, data.w1_ms, "breached"),
        replica_days=[row] * count,
        windows=[{**data.windows[0], "budget_used_ratio": n / 100} for n in range(60)],
        budget_policy=policy,
    )
    texts = check(report_payload(found, "https://h/" + "p" * 4_000))
    assert len(texts) > 3
    assert texts[-1].startswith("Report: https://h/")


def test_a_large_report() -> None:
    check(report_payload(large_report(12), PAGE))


@given(st.text(alphabet=st.characters(), max_size=60), st.integers(1, 80))
def test_what_is_cut_is_a_beginning(text: str, limit: int) -> None:
    found = escaped(text, limit)
    assert utf16_units(found) <= limit
    whole = html.escape(text.encode(errors="replace").decode(), quote=False)
    assert found == whole or (found.endswith("…") and whole.startswith(found[:-1]))
    assert html.escape(html.unescape(found), quote=False) == found or "&" in text
    assert utf16_units(escaped("&" * MAX_TEXT, MAX_TEXT)) <= MAX_TEXT

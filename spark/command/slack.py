"""A report as the message of a Slack incoming webhook: text and blocks within Slack's limits.

Pure functions, run on the driver. Names that others chose stand in it: whatever Slack would read as
a link, a mention or a channel is escaped.

Limits: docs.slack.dev/reference/block-kit/blocks (50 blocks in a message) and …/section-block
(3,000 characters of text); escaping: docs.slack.dev/messaging/formatting-message-text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from spark.config.sla_values import is_web_address
from spark.figures import wording
from spark.figures.report_data import ReportData
from spark.page import budget_steps
from spark.page.headlines import day_headline, one_line, short_reasons, window_headlines

MAX_TEXT: Final = 3_000
"""Characters of a block's text. Slack counts UTF-16 units."""
MAX_BLOCKS: Final = 50
_MORE: Final = "…"
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def report_payload(data: ReportData, page: str) -> dict[str, Any]:
    """Verdicts, reasons, steps of the error-budget policy, the page."""
    day, windows = day_headline(data), window_headlines(data)
    lines = [f"• {text}" for text in short_reasons(data, day)]
    lines += [
        f"• {window.span}: {text}" for window in windows for text in short_reasons(data, window)
    ]
    lines += [f"• {text}" for text in budget_steps.by_label(data)]
    verdicts = (f"{window.span} {window.verdict}" for window in windows)
    title = "; ".join([f"{data.date} {day.verdict}", *verdicts])
    return _payload(title, lines, one_line(data), page)


def failure_payload(date: str, why: str) -> dict[str, Any]:
    """Of a date that has no report."""
    return _payload(f"{date}: no report", [why], f"{date}: no report: {why}", "")


def _payload(title: str, lines: Iterable[str], text: str, page: str) -> dict[str, Any]:
    head = f"*{escaped(title, MAX_TEXT - 2)}*"
    link = _link(page) if page else ""
    texts = [head, *_packed(escaped(line, MAX_TEXT) for line in lines), *([link] if link else [])]
    if len(texts) > MAX_BLOCKS:
        texts = [*texts[: MAX_BLOCKS - 2], _MORE, texts[-1]]
    return {
        "text": escaped(text, MAX_TEXT),
        "blocks": [
            # verbatim: Slack makes no links of what looks like one.
            {"type": "section", "text": {"type": "mrkdwn", "text": one, "verbatim": True}}
            for one in texts
        ],
    }


def _packed(lines: Iterable[str]) -> Iterator[str]:
    """As many lines in a block as it may have."""
    block = ""
    for line in lines:
        joined = f"{block}\n{line}" if block else line
        if _length(joined) > MAX_TEXT:
            yield block
            joined = line
        block = joined
    if block:
        yield block


def escaped(text: str, limit: int) -> str:
    """At most `limit` characters, none of them a sign of Slack's; what is left out is `…`."""
    parts = [_ESCAPES.get(sign, sign) for sign in text.encode(errors="replace").decode()]
    if sum(map(_length, parts)) <= limit:
        return "".join(parts)
    found, room = [], limit - len(_MORE)
    for part in parts:
        room -= _length(part)
        if room < 0:
            break
        found.append(part)
    return "".join([*found, _MORE])


def _length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _link(page: str) -> str:
    """A web address becomes a link; a path is only shown."""
    shown = escaped(page, MAX_TEXT - 20)
    is_link = is_web_address(page) and not {"|", "<", ">"} & set(page) and _length(shown) < 2_900
    return f"<{shown}|Report>" if is_link else f"Report: {escaped(wording.excerpt(page), 2_900)}"

"""Row: SQL92 expressions and tag expressions, and what messages answer to them."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Sequence
from pathlib import Path

from broker.filter.selector import InvalidSelectorError
from broker.filter.selector_parser import compile_selector
from broker.filter.subscription_filter import parse_tag_expression
from remoting.errors import RequestError
from tests.fuzz.target import Stateless, Target

_VERDICTS = Path(__file__).parents[1] / "broker" / "filter" / "java_verdicts.jsonl"
_MESSAGES: Sequence[dict[str, str]] = (
    {},
    {"a": "1", "b": "x", "c": "true"},
    {"a": "1e400", "b": "", "c": "-0", "TAGS": "t", "KEYS": "k"},
    {"a": "9" * 400, "b": "NaN", "c": "٣"},
)


def _evaluated(data: bytes) -> None:
    text = data.decode(errors="replace")
    with contextlib.suppress(ValueError):  # Only bars; the pull is refused.
        parse_tag_expression(text)
    try:
        selector = compile_selector(text)
    except InvalidSelectorError:
        return
    for properties in _MESSAGES:
        assert selector.matches(properties) in (True, False)


@functools.cache
def _seeds() -> Sequence[bytes]:
    lines = _VERDICTS.read_text("utf-8").strip().split("\n")
    texts = [json.loads(line)["expression"] for line in lines]
    return [text.encode("utf-8", "surrogatepass") for text in texts][::3]


_WORDS = b"AND OR NOT BETWEEN IN IS NULL TRUE FALSE LIKE CONTAINS ( ) , = <> > < >= <= ' - + . 1e9"

ROWS = (
    Target(
        name="sql92",
        what="filter expressions (SQL92, tags), evaluated on odd properties",
        world=lambda _root: Stateless(_evaluated, (RequestError,)),
        seeds=_seeds,
        rooms=("broker",),
        tokens=lambda: [b" %b " % word for word in _WORDS.split()] + [b"a", b"b", b"'x'", b"||"],
        largest=2048,
    ),
)

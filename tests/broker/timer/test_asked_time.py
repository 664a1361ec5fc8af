"""broker.timer.asked_time: when a record of the timer topic asks to be delivered."""

from __future__ import annotations

import pytest

from broker.timer.asked_time import find_asked_ms
from store.message_codec import RecordHead

OUT_MS = 1_795_391_992_000
STORED_MS = OUT_MS - 7_000


def asked(*pairs: str, born_ms: int = STORED_MS - 30, topic: str = "T") -> int | None:
    names = [f"TIMER_OUT_MS={OUT_MS}", f"REAL_TOPIC={topic}", "REAL_QID=0"]
    text = "\x02".join(pair.replace("=", "\x01") for pair in [*pairs, *names])
    return find_asked_ms(RecordHead(0, born_ms, STORED_MS, text.encode()), 1000)


@pytest.mark.parametrize(
    ("pairs", "after_ms"),
    [
        ([f"TIMER_DELIVER_MS={OUT_MS + 1}"], 1),
        ([f"TIMER_DELIVER_MS={OUT_MS + 1000}"], 1000),
        ([f"TIMER_DELIVER_MS={OUT_MS}"], None),
        ([f"TIMER_DELIVER_MS={OUT_MS + 1001}"], None),
        (["TIMER_DELIVER_MS=soon"], None),
        ([], None),
        (["TIMER_DELAY_MS=7250"], 250),
        (["TIMER_DELAY_SEC=8"], 1000),
        (["TIMER_DELAY_MS=8001"], None),
        # The hook's clock was in this slot already, the turn had begun before.
        (["TIMER_DELAY_MS=6999"], 1),
        # A second goes before ms, and those before a time.
        (["TIMER_DELAY_MS=7900", "TIMER_DELAY_SEC=8"], 1000),
        ([f"TIMER_DELIVER_MS={OUT_MS + 1}", "TIMER_DELAY_MS=7900"], 900),
        (["TIMER_DELAY_MS=x", f"TIMER_DELIVER_MS={OUT_MS + 1}"], None),
        (["TIMER_DELAY_MS=", f"TIMER_DELIVER_MS={OUT_MS + 5}"], 5),
        ([f"TIMER_DELIVER_MS={OUT_MS + 5}", "TIMER_ROLL_TIMES=1"], 5),
        (["TIMER_DELAY_MS=7250", "TIMER_ROLL_TIMES=1"], None),
        ([f"TIMER_DELIVER_MS={OUT_MS + 5}", "TIMER_DEL_UNIQKEY=T+1"], None),
    ],
)
def test_the_time(pairs: list[str], after_ms: int | None) -> None:
    assert asked(*pairs) == (None if after_ms is None else OUT_MS + after_ms)


def test_a_delay_counts_from_the_later_of_two_clocks() -> None:
    assert asked("TIMER_DELAY_MS=7250", born_ms=STORED_MS + 40) == OUT_MS + 290
    assert asked("TIMER_DELAY_MS=7250", born_ms=STORED_MS + 100_000) is None


@pytest.mark.parametrize("topic", ["rmq_sys_REVIVE_LOG_C", ""])
def test_a_topic_that_keeps_its_order(topic: str) -> None:
    assert asked(f"TIMER_DELIVER_MS={OUT_MS + 1}", topic=topic) is None


def test_a_record_without_its_slot() -> None:
    for out in ("", "TIMER_OUT_MS\x01-5\x02", "TIMER_OUT_MS\x01x\x02"):
        text = f"{out}REAL_TOPIC\x01T\x02TIMER_DELIVER_MS\x01{OUT_MS}"
        assert find_asked_ms(RecordHead(0, 0, 0, text.encode()), 1000) is None

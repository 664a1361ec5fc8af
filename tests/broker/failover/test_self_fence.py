"""The lease of a master: which answers renew it."""

from __future__ import annotations

from broker.failover.self_fence import SelfFence


def test_what_was_asked_before_confirms_nothing() -> None:
    fence = SelfFence(1_000, since_ms=500)
    fence.confirmed(500)
    assert fence.until_ms == 0
    fence.confirmed(501)
    assert fence.until_ms == 1_501


def test_an_answer_that_is_overtaken_takes_nothing_back() -> None:
    """Answers may come in another order than their requests left."""
    fence = SelfFence(1_000)
    assert fence.until_ms == 0
    fence.confirmed(500)
    fence.confirmed(200)
    assert fence.until_ms == 1_500
    fence.confirmed(900)
    assert fence.until_ms == 1_900

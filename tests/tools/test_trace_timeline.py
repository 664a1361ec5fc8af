"""A message's life put together: each kind of step, their order, what is missing or hostile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.test_message_decoder import one, record
from tests.tools.test_message_trace import KEY, trace
from tools.message_decoder import MessageExt
from tools.trace_timeline import Timeline, TimelineStep, timeline


def pub(time: int, *, success: str = "true", group: str = "pg", cost: int = 7) -> str:
    head = ["Pub", str(time), "region", group, "T", KEY, "tag", "keys", "10.0.0.1:10911"]
    return trace(*head, "5", str(cost), "0", "offset-id", success, "host")


def before(time: int, request: str = "r", *, group: str = "cg", retries: str = "0") -> str:
    return trace("SubBefore", str(time), "region", group, request, KEY, retries, "keys")


def after(time: int, request: str = "r", *, code: str = "0", cost: str = "9") -> str:
    success = "true" if code == "0" else "false"
    return trace("SubAfter", request, KEY, cost, success, "keys", code, str(time), "cg")


def end(time: int, state: str = "COMMIT_MESSAGE", *, check: str = "false") -> str:
    head = ["EndTransaction", str(time), "region", "pg", "T", KEY, "tag", "keys", "10.0.0.1:10911"]
    return trace(*head, "2", "id", state, check)


def recall(time: int, success: str = "true") -> str:
    return trace("Recall", str(time), "region", "pg", "T", KEY, success)


def life(*texts: str, stored: MessageExt | None = None) -> Timeline:
    return timeline(KEY, [one(record(body=text.encode())) for text in texts], stored)


def told(found: Timeline) -> list[tuple[str, int]]:
    return [(step.what, step.time_ms) for step in found.steps]


def test_a_whole_life_in_order() -> None:
    stored = one(record(topic=b"T", stored_ms=105))
    found = life(after(129), before(120), pub(100), stored=stored)
    assert found.steps == [
        TimelineStep(
            what="sent",
            time_ms=100,
            who="pg",
            where="127.0.0.1",
            duration_ms=7,
            success=True,
            detail="10.0.0.1:10911",
        ),
        TimelineStep(
            what="stored",
            time_ms=105,
            who="T",
            where="127.0.0.2:10911",
            success=True,
            detail="queue 3, offset 5",
        ),
        TimelineStep(
            what="consumed",
            time_ms=120,
            who="cg",
            where="127.0.0.1",
            duration_ms=9,
            success=True,
            detail="success",
        ),
    ]
    assert found.damaged == 0


def test_steps_of_one_moment() -> None:
    stored = one(record(stored_ms=100))
    found = life(before(100), end(100), pub(100), stored=stored)
    assert [what for what, _ in told(found)] == ["sent", "stored", "ended", "delivered"]


def test_a_listener_that_did_not_come_back() -> None:
    (step,) = life(before(120, retries="2")).steps
    assert (step.what, step.success, step.duration_ms) == ("delivered", None, None)
    assert step.detail == "retry 2"


@pytest.mark.parametrize(
    ("code", "detail"),
    [("1", "timed out"), ("2", "exception"), ("3", "returned null"), ("4", "failed")],
)
def test_a_listener_that_failed(code: str, detail: str) -> None:
    (step,) = life(before(120, retries="1") + after(130, code=code)).steps
    assert (step.what, step.success, step.detail) == ("consumed", False, f"retry 1, {detail}")


def test_each_delivery_has_its_own_end() -> None:
    found = life(
        before(120, "a") + before(220, "b", retries="1"),
        after(230, "b") + after(130, "a", code="4"),
    )
    assert [(s.time_ms, s.success) for s in found.steps] == [(120, False), (220, True)]


def test_an_end_without_its_begin() -> None:
    (step,) = life(after(130, cost="9")).steps
    assert (step.what, step.time_ms) == ("consumed", 121)


def test_clients_of_4_7_tell_no_time_and_no_group() -> None:
    old = trace("SubAfter", "r", KEY, "9", "true", "keys")
    (step,) = life(before(120, group="own") + old).steps
    assert (step.time_ms, step.who, step.detail) == (120, "own", "success")
    (step,) = life(old).steps
    assert (step.time_ms, step.who) == (0, "")


def test_transactions() -> None:
    found = life(end(200, check="true"), end(150, "UNKNOW"))
    assert [(s.what, s.detail) for s in found.steps] == [
        ("ended", "UNKNOW to 10.0.0.1:10911"),
        ("checked", "COMMIT_MESSAGE to 10.0.0.1:10911"),
    ]


def test_a_recall() -> None:
    (step,) = life(recall(200, "false")).steps
    assert (step.what, step.success) == ("recalled", False)


def test_json() -> None:
    (step,) = life(recall(200)).steps
    assert step.to_json() == {
        "what": "recalled",
        "timestamp": 200,
        "who": "pg",
        "where": "127.0.0.1",
        "durationMs": None,
        "success": True,
        "detail": "",
    }


def test_other_messages_are_left_out() -> None:
    assert life((pub(1) + before(2) + after(3)).replace(KEY, "other")) == Timeline()


@pytest.mark.parametrize(
    "text",
    [trace("SubBefore", "x", "r", "g", "q", KEY, "0"), trace("EndTransaction", "1"), recall(1, "")],
)
def test_damaged_ones_are_counted(text: str) -> None:
    found = life(text + pub(100))
    assert (told(found), found.damaged) == ([("sent", 100)], 1)


@given(st.lists(st.binary(max_size=100), max_size=4))
def test_no_bytes_raise(bodies: list[bytes]) -> None:
    timeline(KEY, [one(record(body=body)) for body in bodies])

"""Requests about pops and timers with a wrong or odd value in them, and what a broker answers.

One table for the golden of a Java 5.3.3 broker, for Java live and for ours. A row differs from a
good request in what its name says. The broker under test runs with SETTINGS and is filled by
`prepare` first.
"""

from __future__ import annotations

import base64
import json
import re
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient

NAME: Final = "broker-odd"
TOPIC, UNREADABLE, EMPTY = "TOdd", "TOddUnreadable", "TOddEmpty"
GROUP, CLOSED = "GOdd", "GOddClosed"
SETTINGS: Final = {
    "timerWheelEnable": "true",
    "recallMessageEnable": "true",
    "autoCreateSubscriptionGroup": "false",
    "autoCreateTopicEnable": "false",
    "timerMaxDelaySec": "3600",
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "mappedFileSizeTimerLog": "65536",
}
MESSAGES: Final = 300
"""In queue 0 of TOPIC; its other queues are empty."""

POP, PEEK, NOTIFY, POLLING_INFO = 200050, 200052, 200054, 200055
ACK, BATCH_ACK, CHANGE = 200051, 200151, 200053
QUERY_ASSIGNMENT, SET_MODE, RECALL, SEND, SEND_BATCH = 400, 401, 370, 310, 320

Fields = dict[str, object]


@dataclass(frozen=True, slots=True)
class Row:
    """One request."""

    name: str
    code: int
    fields: Fields
    body: bytes = b""


Answer = tuple[int, str, list[str]]
"""What is compared: the code; the remark, without addresses and links, EXCEPTION for Java's text of
one; the names of the fields of a success."""

EXCEPTION: Final = "(an exception)"
GOLDEN: Final = Path(__file__).parents[1] / "golden" / "pop" / "odd-requests-5.3.3.json"
_JAVA_TEXT: Final = re.compile(r"java\.|Exception|[A-Za-z]+\.java")
_LINK: Final = re.compile(r",? ?\nSee https?://\S+ for further details\.")

DIFFERENCES: Final = {
    r"\d+ \w+=(|x|1\.5|\d{10,})": "no number, or none of its size: RocketMQ takes 0",
    r"\d+ without (queueId|maxMsgNums|invisibleTime|consumerGroup)|200151 c=None": (
        "what is needed is missing: RocketMQ takes 0, or an ack of no group"
    ),
    r"200050 invisibleTime=\d+": (
        "longer than a check point can wait: RocketMQ hands out and never stores its check point"
    ),
    r"200052 maxMsgNums=2147483647": "RocketMQ asks for so much memory",
    r"20005[03] invisibleTime=-\d": "less than none: RocketMQ takes it for none",
    r"20005[13] handle's (start=-?[17]|pop_time=(0|-1)|invisible=-1|revive=(-1|8))": (
        "a number that this broker cannot have handed out: RocketMQ stores what nobody will read"
    ),
    r"20005[13] (handle's broker=another|handle 13)|200151 (so=-1|rq=(-1|9))": "the same",
    r"20005[13] handle's (pop_time|invisible)=4611686018427387904": (
        "an ack that cannot be stored: RocketMQ says 0"
    ),
    r"20005[13] group=(g b)?|200151 c=": "no group has such a name: RocketMQ stores its acks",
    r"200053 handle's (start|pop_time|invisible)=x": "one code, a remark that says why",
    r"200151 (nothing|empty|no acks|null)": "one code, a remark that says why",
    r"200151 a list": "one more word for nothing",
    r"310 TIMER_\w+=٦٠": "digits of other scripts are none",
    r"310 a wrong level": "refused in words",
    r"310 recalls what is past": "TIMER_DEL_UNIQKEY is refused whatever its time",
    r"320 a timer around": "a batch cannot wait: RocketMQ stores it at once",
}
"""Rows (by pattern) that ours answers otherwise, and why."""


def is_accepted(row: str) -> bool:
    """Whether ours may answer a row otherwise."""
    return any(re.fullmatch(pattern, row) for pattern in DIFFERENCES)


def golden() -> dict[str, Answer]:
    """A Java 5.3.3 broker's answers, by row."""
    found = json.loads(GOLDEN.read_text())
    return {name: (code, remark, fields) for name, (code, remark, fields) in found.items()}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# -- good requests ---------------------------------------------------------------------------------


def _pop_fields() -> Fields:
    return {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "maxMsgNums": 1,
        "invisibleTime": 60_000, "pollTime": 0, "bornTime": now_ms(), "initMode": 0,
        "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip


def handle(**others: object) -> str:
    """The text with which a popped message is acknowledged, as of a pop a moment ago."""
    parts: Fields = {
        "start": 0, "pop_time": now_ms() - 1_000, "invisible": 60_000, "revive": 0, "retry": 0,
        "broker": NAME, "queue": 0, "offset": 0, **others,
    }  # fmt: skip
    return " ".join(map(str, parts.values()))


def _ack_fields() -> Fields:
    return {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "extraInfo": handle(), "offset": 0,
    }  # fmt: skip


def _change_fields() -> Fields:
    return {**_ack_fields(), "invisibleTime": 30_000}


def _peek_fields() -> Fields:
    return {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "maxMsgNums": 1}


def _notify_fields() -> Fields:
    return {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "pollTime": 0, "bornTime": now_ms(),
    }  # fmt: skip


def _info_fields() -> Fields:
    return {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}


def _send_fields() -> Fields:
    return {
        "a": "P", "b": TOPIC, "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": now_ms(), "h": 0,
        "i": "", "j": 0, "k": "false", "m": "false",
    }  # fmt: skip


def recall_handle(*parts: object) -> str:
    return base64.urlsafe_b64encode(" ".join(map(str, parts)).encode()).decode()


def _recall_fields() -> Fields:
    due_ms = now_ms() + 60_000
    return {
        "topic": TOPIC, "producerGroup": "P",
        "recallHandle": recall_handle("v1", TOPIC, NAME, due_ms, "0102"),
    }  # fmt: skip


# -- the table -------------------------------------------------------------------------------------

_NUMBERS: Final = {
    POP: ("queueId", "maxMsgNums", "invisibleTime", "pollTime", "initMode", "bornTime"),
    ACK: ("queueId", "offset"),
    CHANGE: ("queueId", "offset", "invisibleTime"),
    PEEK: ("queueId", "maxMsgNums"),
    NOTIFY: ("queueId", "pollTime", "bornTime"),
    POLLING_INFO: ("queueId",),
}
_GOOD: Final[dict[int, Callable[[], Fields]]] = {
    POP: _pop_fields,
    ACK: _ack_fields,
    CHANGE: _change_fields,
    PEEK: _peek_fields,
    NOTIFY: _notify_fields,
    POLLING_INFO: _info_fields,
}
_ODD_NUMBERS: Final = (-1, -2, 0, 2, 4, 33, 2**31 - 1, 2**31, 2**62, 2**63, "", "x", "1.5")


def rows() -> Iterator[Row]:
    """All of them; times in them are of now."""
    yield from _numbers()
    yield from _missing()
    yield from _names()
    yield from _pops()
    yield from _handles()
    yield from _batch_acks()
    yield from _modes()
    yield from _recalls()
    yield from _timers()


def _row(name: str, code: int, **changes: object) -> Row:
    """A good request with these fields changed; None: without the field."""
    fields = {**_GOOD[code](), **changes}
    return Row(f"{code} {name}", code, {k: v for k, v in fields.items() if v is not None})


def _numbers() -> Iterator[Row]:
    for code, names in _NUMBERS.items():
        for name in names:
            for value in _ODD_NUMBERS:
                # Who waits is not answered.
                if name != "pollTime" or value not in {2**31 - 1, 2**31, 2**62}:
                    yield _row(f"{name}={value}", code, **{name: value})


def _missing() -> Iterator[Row]:
    for code, good in _GOOD.items():
        for name in good():
            yield _row(f"without {name}", code, **{name: None})


def _names() -> Iterator[Row]:
    for code in _GOOD:
        for topic in ("TNowhere", "", UNREADABLE, EMPTY, "a b", "%RETRY%" + GROUP):
            yield _row(f"topic={topic}", code, topic=topic)
        for group in ("GNobody", "", CLOSED, "g b"):
            yield _row(f"group={group}", code, consumerGroup=group)


def _pops() -> Iterator[Row]:
    for kind, text in (
        ("TAG", "a ||"), ("TAG", "||"), ("TAG", ""), ("SQL92", "a = "), ("SQL92", ""),
        ("SQL92", "a > 1"), ("XPATH", "a"), ("", "a"), (None, "a"), (None, None), ("TAG", None),
    ):  # fmt: skip
        yield _row(f"{kind} {text}", POP, expType=kind, exp=text)
    for order in ("true", "TRUE", "maybe", "", None, 1):
        yield _row(f"order={order}", POP, order=order)
    yield _row("late", POP, bornTime=now_ms() - 600)
    yield _row("of tomorrow", POP, bornTime=now_ms() + 86_400_000)


def _handles() -> Iterator[Row]:
    for code in (ACK, CHANGE):
        for text in ("", "x", "1 2", "0 1 2 3 4 5 6", handle() + " 77", handle().replace(" ", "")):
            yield _row(f"handle {len(text)}", code, extraInfo=text)
        for part, values in {
            "start": (-1, 7, "x"),
            "pop_time": (0, -1, 2**62, "x"),
            "invisible": (0, -1, 2**62, "x"),
            "revive": (-1, 7, 8, 999, "x"),
            "retry": (1, 2, 3, "x"),
            "broker": ("another", ""),
            "queue": (3, 9, "x"),
            "offset": (2, 999, "x"),
        }.items():
            for value in values:
                yield _row(f"handle's {part}={value}", code, extraInfo=handle(**{part: value}))


def _batch_acks() -> Iterator[Row]:
    entry = {
        "c": GROUP, "t": TOPIC, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": now_ms() - 1_000,
        "it": 60_000, "b": base64.b64encode(b"\x01").decode(),
    }  # fmt: skip
    for name, body in (
        ("nothing", ""), ("no json", "{"), ("a list", "[]"), ("empty", "{}"),
        ("no acks", '{"brokerName":"b","acks":[]}'), ("null", '{"acks":null}'),
    ):  # fmt: skip
        yield Row(f"{BATCH_ACK} {name}", BATCH_ACK, {}, body.encode())
    for field, values in {
        "t": ("TNowhere", None), "c": ("GNobody", None), "r": ("1", "3", None), "so": (-1, 9),
        "q": (-1, 4, 9), "rq": (-1, 9, 999), "b": ("", "!", None),
    }.items():  # fmt: skip
        for value in values:
            changed = {**entry, field: value}
            if value is None:
                del changed[field]
            body = json.dumps({"brokerName": NAME, "acks": [changed]})
            yield Row(f"{BATCH_ACK} {field}={value}", BATCH_ACK, {}, body.encode())


def _modes() -> Iterator[Row]:
    mode = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0}
    asked = {
        "topic": TOPIC, "consumerGroup": GROUP, "clientId": "c", "messageModel": "CLUSTERING",
        "strategyName": "AVG",
    }  # fmt: skip
    for code, good, changes in (
        (SET_MODE, mode, {
            "topic": ("TNowhere", "%RETRY%" + GROUP, "", None),
            "consumerGroup": ("GNobody", "", None),
            "mode": ("PUSH", "pop", 1, None),
            "popShareQueueNum": (-1, 9, "x", None),
        }),
        (QUERY_ASSIGNMENT, asked, {
            "topic": ("TNowhere", "", None),
            "consumerGroup": ("GNobody", "", None),
            "clientId": ("", None),
            "messageModel": ("ALL", None),
            "strategyName": ("BEST", None),
        }),
    ):  # fmt: skip
        for body in ("", "{", "[]", "{}"):
            yield Row(f"{code} body {body}", code, {}, body.encode())
        for field, values in changes.items():
            for value in values:
                changed: dict[str, Any] = {**good, field: value}
                if value is None:
                    del changed[field]
                yield Row(f"{code} {field}={value}", code, {}, json.dumps(changed).encode())


def _recalls() -> Iterator[Row]:
    due_ms = now_ms() + 60_000
    good = _recall_fields()
    for name, text in (
        ("good", str(good["recallHandle"])),
        ("without padding", str(good["recallHandle"]).rstrip("=")),
        ("empty", ""), ("?", "?"), ("+/", "+/+/"), ("one part", recall_handle("v1")),
        ("v2", recall_handle("v2", TOPIC, NAME, due_ms, "0102")),
        ("four parts", recall_handle("v1", TOPIC, NAME, due_ms)),
        ("six parts", recall_handle("v1", TOPIC, NAME, due_ms, "0102", "more")),
        ("another topic", recall_handle("v1", EMPTY, NAME, due_ms, "0102")),
        ("another broker", recall_handle("v1", TOPIC, "another", due_ms, "0102")),
        ("past", recall_handle("v1", TOPIC, NAME, now_ms() - 1, "0102")),
        ("too far", recall_handle("v1", TOPIC, NAME, now_ms() + 3_700_000, "0102")),
        ("no time", recall_handle("v1", TOPIC, NAME, "soon", "0102")),
        ("negative time", recall_handle("v1", TOPIC, NAME, -5, "0102")),
        ("no id", recall_handle("v1", TOPIC, NAME, due_ms, "")),
    ):  # fmt: skip
        yield Row(f"{RECALL} {name}", RECALL, {**good, "recallHandle": text})
    for name in good:
        fields = {key: value for key, value in good.items() if key != name}
        yield Row(f"{RECALL} without {name}", RECALL, fields)
    for topic in ("TNowhere", "", EMPTY, UNREADABLE):
        yield Row(f"{RECALL} topic={topic}", RECALL, {**good, "topic": topic})


def _timers() -> Iterator[Row]:
    soon_ms = now_ms() + 60_000
    odd = ("", " 60", "+60", "-60", "0", "60.5", "1e3", "soon", 2**31, 2**63, "٦٠")
    for name, limit in (("TIMER_DELAY_SEC", 3_600), ("TIMER_DELAY_MS", 3_600_000)):
        for value in (*odd, limit, limit + 1, limit * 1000):
            yield _timer(f"{name}={value}", {name: value})
    for value in (*odd, soon_ms + 3_600_000):
        name = "too far" if value == soon_ms + 3_600_000 else str(value)
        yield _timer(f"TIMER_DELIVER_MS={name}", {"TIMER_DELIVER_MS": value})
    for name, properties in {
        "seconds and a wrong moment": {"TIMER_DELAY_SEC": 60, "TIMER_DELIVER_MS": "x"},
        "wrong seconds and a moment": {"TIMER_DELAY_SEC": "x", "TIMER_DELIVER_MS": soon_ms},
        "ms and wrong seconds": {"TIMER_DELAY_MS": 60_000, "TIMER_DELAY_SEC": "x"},
        "a level and a wrong time": {"DELAY": 1, "TIMER_DELAY_SEC": "x"},
        "a wrong level": {"DELAY": "x", "TIMER_DELAY_SEC": 60},
        "recalls what is past": {"TIMER_DELAY_SEC": -1, "TIMER_DEL_UNIQKEY": "T+1"},
        "came from the wheel": {"TIMER_OUT_MS": 1, "TIMER_DELAY_SEC": "x"},
        "rolled": {"TIMER_ROLL_TIMES": "x", "TIMER_DELAY_SEC": 60},
        "reserved names": {"REAL_TOPIC": "x", "REAL_QID": "y", "TIMER_DELAY_SEC": 60},
    }.items():
        yield _timer(name, properties)
    batch = {**_send_fields(), "i": "TIMER_DELAY_SEC\x0160\x02"}
    inner = b"\0\0\0\x16\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1x\0"
    yield Row(f"{SEND_BATCH} a timer around", SEND_BATCH, {**batch, "m": "true"}, inner + b"\0")


def _timer(name: str, properties: Fields) -> Row:
    pairs = {"UNIQ_KEY": "0102", **properties}
    text = "".join(f"{key}\x01{value}\x02" for key, value in pairs.items())
    return Row(f"{SEND} {name}", SEND, {**_send_fields(), "i": text}, b"x")


# -- asking ----------------------------------------------------------------------------------------


def prepare(client: FrameClient) -> None:
    """Topics, groups and messages."""
    for topic, perm in ((TOPIC, 6), (UNREADABLE, 2), (EMPTY, 6)):
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4,
            "perm": perm, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        answer = client.call(17, fields)
        assert answer.code == 0, answer.remark
    groups = {group_of(row) for row in rows() if row.fields.get("consumerGroup") == GROUP}
    for group in sorted({*groups, GROUP, CLOSED}):
        _make_group(client, group, is_open=group != CLOSED)
    for _ in range(MESSAGES):  # One by one: Java answers in any order.
        assert client.send(TOPIC, 0, b"x").code == 0
    wait_until(lambda: client.offset(30, TOPIC, 0) == MESSAGES)


def _make_group(client: FrameClient, group: str, *, is_open: bool = True) -> None:
    config = {"groupName": group, "consumeEnable": is_open, "retryQueueNums": 1}
    answer = client.call(200, {}, json.dumps(config).encode())
    assert answer.code == 0, answer.remark


def group_of(row: Row) -> str:
    """One for each code, and of its own where it matters what the group did before."""
    if not re.match(
        r"200050 ((without )?(initMode|order)|(TAG|SQL92|XPATH|None|) )|.* revive=999", row.name
    ):
        return f"{GROUP}-{row.code}"
    return f"{GROUP}-{zlib.crc32(row.name.encode()):x}"


def ask(client: FrameClient, row: Row) -> Answer:
    """A row's answer."""
    fields = dict(row.fields)
    if fields.get("consumerGroup") == GROUP:
        fields["consumerGroup"] = group_of(row)
    answer = client.call(row.code, fields, row.body)
    remark = answer.remark or ""
    if _JAVA_TEXT.search(remark):
        return answer.code, EXCEPTION, []
    remark = re.sub(r"/?127\.0\.0\.1:\d+", "ADDRESS", _LINK.sub("", remark))
    remark = remark.replace(group_of(row), GROUP)
    return answer.code, remark, [] if answer.code else sorted(answer.ext_fields)


def ask_all(client: FrameClient) -> dict[str, Answer]:
    """Every row's answer, by its name."""
    prepare(client)
    answers = {}
    for row in rows():
        assert row.name not in answers, row.name
        answers[row.name] = ask(client, row)
    return answers

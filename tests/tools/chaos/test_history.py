"""History: what is written of a run, line by line."""

from __future__ import annotations

import json
from pathlib import Path

from tools.chaos.ack_log import make_body
from tools.chaos.history import Append, History, Read, value_of

PEER = ("127.0.0.11", 10911)


def answered(append: Append, code: int, offset: int, return_s: float) -> Append:
    append.code, append.queue_offset, append.return_s = code, offset, return_s
    return append


def test_the_lines_of_a_run(tmp_path: Path) -> None:
    history = History()
    history.sends(answered(Append(3, 41, 1, 1.0, PEER), 0, 7, 1.5))
    history.sends(answered(Append(3, 42, 2, 1.1, PEER), 12, 8, 1.6))
    history.sends(Append(3, 43, 3, 1.2, PEER))
    history.saw(Read(100, 1, 2.0, 2.25, 7, [make_body(3, 41, 60)], PEER))
    history.write(tmp_path / "history.jsonl", {1: [make_body(3, 41, 60), b"nobody sent this"]})
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    *found, final = lines
    common = {"op": "append", "client": 3}
    assert found == [
        {
            **common,
            "queue": 1,
            "call": 1_000_000,
            "return": 1_500_000,
            "value": "3:41",
            "offset": 7,
        },
        # 12 says that it may or may not survive: nothing is known of its end.
        {**common, "queue": 2, "call": 1_100_000, "return": None, "value": "3:42", "offset": None},
        {**common, "queue": 3, "call": 1_200_000, "return": None, "value": "3:43", "offset": None},
        {
            "op": "read",
            "client": 100,
            "queue": 1,
            "offset": 7,
            "values": ["3:41"],
            "call": 2_000_000,
            "return": 2_250_000,
        },
    ]
    assert final.pop("return") == final.pop("call") + 1
    other = "?" + b"nobody sent this".hex()
    last = {"op": "final", "client": 0, "queue": 1, "offset": 0, "values": ["3:41", other]}
    assert final == last
    assert value_of(make_body(3, 41, 60)[:-1]).startswith("?")


def test_counts() -> None:
    history = History()
    for sequence, code in enumerate((0, 0, 14, 12)):
        history.sends(answered(Append(1, sequence, 0, 1.0, PEER), code, sequence, 2.0))
    history.sends(Append(2, 9, 0, 1.0, PEER))
    assert history.codes() == {0: 2, 14: 1, 12: 1, -1: 1}
    assert history.sent() == {1: 4, 2: 10}
    assert [append.sequence for append in history.acknowledged()] == [0, 1]

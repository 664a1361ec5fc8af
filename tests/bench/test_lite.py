"""bin/bench lite: its frames, its arithmetic, and a tiny run."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench import lite
from tests.bench.lite import Bench, Link, LiteFigures, Load, lite_name, send_frame, written_up_to
from tests.bench.measuring import SOURCES
from tests.bench.pop import frame


def header_of(data: bytes) -> dict[str, Any]:
    length, header_length = struct.unpack_from(">ii", data)
    assert len(data) == 4 + length
    header: dict[str, Any] = json.loads(data[8 : 8 + header_length])
    return header


def test_a_message_names_its_lite_topic_as_a_property() -> None:
    fields = header_of(send_frame(7))["extFields"]
    assert fields["b"] == lite.PARENT
    assert fields["e"] == "3"
    assert fields["i"] == f"__LITE_TOPIC\x01{lite_name(7)}\x02"


def test_answers_are_counted_however_they_are_cut() -> None:
    link = Link.__new__(Link)
    link.sock, other = socket.socketpair()
    link._data = bytearray()
    answers = b"".join(frame(json.dumps({"code": code}), b"body") for code in (0, 1, 0))
    with link.sock, other:
        other.sendall(answers[:30])
        assert list(link.receive()) == [({"code": 0}, b"body")]
        other.sendall(answers[30:])
        assert [header["code"] for header, _body in link.receive()] == [1, 0]
        other.sendall(answers)
        assert link.ask_all([b"x", b"y", b"z"]) == 2
        assert other.recv(10) == b"xyz"


def test_a_cost_is_microseconds_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter((2.0, 2.5))
    monkeypatch.setattr(lite, "quiet_cpu_s", lambda _pid: next(used))
    bench = Bench.__new__(Bench)
    bench._broker = SimpleNamespace(process=SimpleNamespace(pid=1))
    assert bench._cost(lambda: None, 1000) == 500


def test_up_to_where_a_checkpoint_says_that_queues_are_written(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(struct.pack(">qqqqqq", 1, 2, 3, 4, 5, 600) + bytes(4048))
    assert written_up_to(path) == 600


def test_figures_without_ways_say_so() -> None:
    figures = LiteFigures(
        topics=1000,
        clients=50,
        before_mib=10,
        after_mib=20,
        first_us=300,
        subscription_us=20,
        send_us=71,
        later_us=21,
        way_us=float("nan"),
        wake_ms=float("nan"),
        wake_p99_ms=float("nan"),
        stolen=0,
    )
    assert "send 71.0 and 21.0 later, no ways measured" in str(figures)


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_tiny_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lite, "_WRITE_MS", 200)
    load = Load(topics=20, clients=4, sends=30, wakes=5, links=2)
    figures = lite.measure(SOURCES, tmp_path, load)
    assert (figures.topics, figures.clients) == (20, 4)
    assert 0 < figures.wake_ms <= figures.wake_p99_ms
    assert figures.after_mib > 0
    assert "wake-up p50" in str(figures)

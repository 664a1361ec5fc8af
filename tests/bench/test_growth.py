"""What of `bin/bench growth` needs no clock: options, verdicts, requests, page, pictures."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.bench import growth, growth_page
from tests.bench.growth_curves import CURVES, Point, Report, Verdict, label, points_up_to, series
from tests.bench.growth_reasons import REASONS
from tests.bench.growth_states import MEASURES
from tests.bench.growth_traffic import (
    GroupPulls,
    Sends,
    check_success,
    drive,
    pull_frame,
    send_frame,
    take_headers,
    walk,
)
from tests.bench.idle import frame, take_frames


def point(at: float, *costs: float, side: str = "ours", kind: str = "send") -> Point:
    return Point(
        side=side,
        kind=kind,
        at=at,
        msg_per_s=[100_000.0 + cost for cost in costs],
        cpu_us=list(costs),
        refused=0,
        stolen=0.02,
    )


def report(java: str = "-", **curves: Sequence[Point]) -> Report:
    return Report(
        date="2026-11-25",
        java_version=java,
        machine={"cpus": 2, "kernel": "6.1"},
        python="3.11.9",
        messages=1_000,
        rounds=3,
        curves=curves,
    )


# -- curves and verdicts ---------------------------------------------------------------------------


def test_every_curve_is_measured_and_begins_and_ends_where_it_says() -> None:
    assert MEASURES.keys() == CURVES.keys()
    ends = {name: (curve.points[0], curve.points[-1]) for name, curve in CURVES.items()}
    assert ends == {
        "stored": (0, 20),
        "topics": (10, 20_000),
        "connections": (1, 5_000),
        "parked": (0, 20_000),
        "size": (16, 1 << 20),
        "slaves": (1, 4),
        "groups": (1, 200),
    }
    for curve in CURVES.values():
        for points in (curve.points, curve.quick):
            assert list(points) == sorted(set(points))
        assert curve.quick[-1] < curve.points[-1]


def test_reasons_are_of_curves_and_loads_that_there_are() -> None:
    known = {f"{name} {kind}" for name in CURVES for kind in ("send", "pull")}
    assert REASONS.keys() <= known


@pytest.mark.parametrize(
    ("costs", "word", "highest"),
    [
        ((10.0, 13.0), "flat", 1.3),
        ((10.0, 13.1), "grows", 1.31),
        ((10.0, 20.0, 10.0), "flat", 2.0),
        ((13.0, 10.0), "flat", 1.0),
        ((13.1, 10.0), "falls", 1.0),
    ],
)
def test_flat_is_the_last_point_within_1_3_times_the_first(
    costs: tuple[float, ...], word: str, highest: float
) -> None:
    verdict = Verdict.of(costs)
    assert verdict.word == word
    assert verdict.highest == pytest.approx(highest)


def test_there_is_no_verdict_without_two_points_that_cost_something() -> None:
    with pytest.raises(ValueError, match="two points"):
        Verdict.of([1.0])
    with pytest.raises(ValueError, match="more messages are needed"):
        Verdict.of([0.0, 1.0])


def test_a_curve_can_end_elsewhere() -> None:
    assert points_up_to((0, 1, 4, 20), 4) == (0, 1, 4)
    assert points_up_to((0, 1, 4, 20), 5) == (0, 1, 4, 5)
    assert points_up_to((0, 1, 4, 20), 99) == (0, 1, 4, 20, 99)
    assert points_up_to((0, 0.5, 20), 2.5) == (0, 0.5, 2.5)
    for most in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="must be a number above 0"):
            points_up_to((0, 1, 4, 20), most)
    with pytest.raises(ValueError, match="must be a whole number"):
        points_up_to((1, 2, 3), 2.5)


def test_labels() -> None:
    sizes = (16, 1_024, 65_536, 1 << 20)
    assert [label("size", at) for at in sizes] == ["16 B", "1 KiB", "64 KiB", "1 MiB"]
    assert [label("stored", at) for at in (0, 0.5, 20)] == ["0", "0.5", "20"]
    assert label("topics", 20_000) == "20,000"


def test_a_point_is_the_median_of_its_rounds() -> None:
    found = point(1, 3.0, 1.0, 2.0)
    assert (found.cost, found.speed) == (2.0, 100_002.0)


def test_series_are_in_order() -> None:
    found = series([point(5, 1.0), point(1, 1.0), point(1, 1.0, kind="pull")])
    assert {key: [one.at for one in points] for key, points in found.items()} == {
        ("ours", "send"): [1, 5],
        ("ours", "pull"): [1],
    }


# -- options ---------------------------------------------------------------------------------------


def test_the_defaults_are_the_whole_curves() -> None:
    options = growth.parse([])
    assert options.plan == {name: curve.points for name, curve in CURVES.items()}
    assert (options.messages, options.rounds, options.java) == (200_000, 3, False)


def test_quick_is_less_of_everything() -> None:
    options = growth.parse(["--quick", "--curves", "size,groups", "--max", "groups=7"])
    assert options.plan == {"size": CURVES["size"].quick, "groups": (1, 5, 7)}
    assert (options.messages, options.rounds) == (20_000, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--curves", "topics,toppics"], "no curve toppics; known: stored, topics"),
        (["--max", "stord=5"], "no curve stord"),
        (["--max", "stored"], "--max stored: not CURVE=NUMBER"),
        (["--max", "stored=much"], "--max stored=much: not CURVE=NUMBER"),
        (["--max", "slaves=1"], "--max slaves=1: must be a number above 1, where the curve begins"),
        (["--max", "slaves=1.5"], "--max slaves=1.5: must be a whole number"),
        (["--curves", "size", "--max", "slaves=2"], "--max slaves: not among the chosen curves"),
        (["--messages", "0"], "--messages and --rounds must be at least 1"),
        (["--rounds", "0"], "--messages and --rounds must be at least 1"),
    ],
)
def test_wrong_options_are_refused_in_words(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        growth.parse(arguments)
    assert refused.value.code == 2
    assert words in capsys.readouterr().err


def test_descriptors_for_connections_and_for_parked_pulls() -> None:
    assert growth.descriptors({"connections": (1, 5_000), "parked": (0, 20_000)}) == 5_200
    assert growth.descriptors({"parked": (0, 20_000)}) == 300
    assert growth.descriptors({"size": (16, 32)}) == 200


def test_a_disk_that_would_get_too_full_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimpleNamespace(f_blocks=100, f_bfree=30, f_bavail=30, f_frsize=10**9)
    monkeypatch.setattr(os, "statvfs", lambda _path: disk)
    growth.check_disk(Path("/x/growth-1"), {"stored": (0, 10)})
    with pytest.raises(SystemExit) as refused:
        growth.check_disk(Path("/x/growth-1"), {"stored": (0, 20)})
    assert str(refused.value) == (
        "growth: 28 GB of disk are needed, /x takes 18 GB until it is 88% full: "
        "name another disk with --dir or end at --max stored=10"
    )


def test_other_curves_are_kept_when_they_were_measured_alike(tmp_path: Path) -> None:
    before, path = report(size=size_curve(), stored=[point(0, 8.0)]), tmp_path / "growth.json"
    path.write_text(before.to_json())
    assert growth.kept(path, dataclasses.replace(before, curves={})) == before.curves
    with pytest.raises(SystemExit, match="of another day, machine, or count of rounds"):
        growth.kept(path, dataclasses.replace(before, rounds=before.rounds + 1))
    path.write_text("{}")
    with pytest.raises(SystemExit, match=r"--keep: .*no report of bin/bench growth"):
        growth.kept(path, before)


# -- requests --------------------------------------------------------------------------------------


def test_headers_are_taken_when_their_frames_are_whole() -> None:
    first, second = frame(0, 1, {}, b"body"), frame(11, 2, {})
    data = bytearray(first + second[:-1])
    [header] = take_headers(data)
    assert json.loads(header)["opaque"] == 1
    assert bytes(data) == second[:-1]


def test_requests_are_those_of_clients() -> None:
    [send] = take_frames(bytearray(send_frame("T", 3)))
    assert (send["code"], send["extFields"]["b"], send["extFields"]["e"]) == (310, "T", "3")
    [pull] = take_frames(bytearray(pull_frame("G", "T", 1, 64)))
    fields = pull["extFields"]
    assert pull["code"] == 11
    assert (fields["consumerGroup"], fields["queueOffset"], fields["commitOffset"]) == (
        "G",
        "64",
        "64",
    )


def test_an_answer_that_is_no_success_ends_the_load() -> None:
    check_success(b'{"code":0,"flag":1}')
    check_success(b'{"flag":1,"code":0}')
    with pytest.raises(RuntimeError, match=r"refused: .*no room"):
        check_success(b'{"code":14,"remark":"no room"}')


def test_sends_that_find_the_broker_busy_are_counted() -> None:
    sends = Sends([send_frame("T", 0)])
    for header in (b'{"code":0,"flag":1}', b'{"code":2,"flag":1}', b'{"code":2,"flag":1}'):
        sends.answered(0, header)
    assert sends.refused == 2
    with pytest.raises(RuntimeError, match='"code":1'):
        sends.answered(0, b'{"code":1,"flag":1}')


def test_groups_pull_in_turn_and_begin_again() -> None:
    pulls = GroupPulls("T", 1, groups=2, queue_messages=64)
    seen = []
    for _ in range(6):
        [asked] = take_frames(bytearray(pulls.request(0)))
        fields = asked["extFields"]
        offset = int(fields["queueOffset"])
        seen.append((fields["consumerGroup"], offset))
        answer = {"code": 0, "extFields": {"nextBeginOffset": str(offset + 32)}}
        pulls.answered(0, json.dumps(answer, separators=(",", ":")).encode())
    first, second = "growth-group-0", "growth-group-1"
    assert seen == [(first, 0), (second, 0), (first, 32), (second, 32), (first, 0), (second, 0)]
    assert pulls.messages == 6 * 32


class Answering:
    """A server that answers each request with SUCCESS; how many came on each connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.counts: list[int] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.counts.append(0)
            number = len(self.counts) - 1
            threading.Thread(target=self._serve, args=(sock, number), daemon=True).start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        received = bytearray()
        with sock:
            while data := sock.recv(1 << 16):
                received += data
                came = len(take_headers(received))
                self.counts[number] += came
                sock.sendall(frame(0, 1, {}) * came)

    def close(self) -> None:
        self._listener.close()


def test_every_request_is_sent_and_answered() -> None:
    server = Answering()
    try:
        seconds = drive(server.port, Sends([send_frame("T", 0)]), lanes=3, window=5, total=100)
        assert seconds > 0
        assert sum(server.counts) == 100
        assert len(server.counts) == 3
        assert min(server.counts) >= 5
    finally:
        server.close()


def test_one_in_flight_goes_round_the_connections() -> None:
    server = Answering()
    try:
        socks = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        walk(socks, send_frame("T", 0), 7)
        assert sorted(server.counts) == [2, 2, 3]
        for sock in socks:
            sock.close()
    finally:
        server.close()


# -- page and pictures -----------------------------------------------------------------------------


def test_a_report_is_read_as_it_was_written() -> None:
    written = report(topics=[point(10, 8.0, 9.0, 10.0), point(20, 9.0)])
    assert Report.from_json(written.to_json()) == written


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"curves": {"no such": []}}', '{"curves": {"size": [{"at": 1}]}}'],
)
def test_what_is_no_report_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no report of bin/bench growth"):
        Report.from_json(text)
    path = tmp_path / "growth.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match=r"growth_page: .*growth\.json: no report"):
        growth_page.main(["--json", str(path)])


PAGE = """\
## Message size

4 connections × 16 in flight, a new topic each time; then pulls of the same messages, 32 at most a \
request. Of bodies over 4 KiB as many bytes are sent as of those of 4 KiB.

![Processor time a message over size of a body](pictures/growth-size.svg)

| size of a body | this broker, sends: messages/s | this broker, sends: µs \
| this broker, pulls: messages/s | this broker, pulls: µs | Java, sends: messages/s \
| Java, sends: µs |
| --- | --- | --- | --- | --- | --- | --- |
| 16 B | 100,010 | 10.0 | 100,002 | 2.00 | 100,020 | 20.0 |
| 1 KiB | 100,030 | 30.0 | 100,003 | 3.00 | 100,020 | 20.0 |
| 64 KiB | 100,011 | 11.0 | 100,004 | 4.00 | – | – |

This broker, sends: flat, 1.10× (between them up to 3.00×). It breathes.

This broker, pulls: **grows**, 2.00×. Reason not found yet.

Java, sends: flat, 1.00×.
"""


def size_curve() -> list[Point]:
    return [
        point(16, 10.0),
        point(16, 2.0, kind="pull"),
        point(1_024, 30.0),
        point(1_024, 3.0, kind="pull"),
        point(65_536, 11.0),
        point(65_536, 4.0, kind="pull"),
        point(16, 20.0, side="java"),
        point(1_024, 20.0, side="java"),
    ]


def test_the_page_has_tables_verdicts_and_the_reasons_that_were_found() -> None:
    found = report("4.9.7", size=size_curve(), topics=[point(10, 8.0), point(20_000, 8.0)])
    text = growth_page.document(found, {"size send": "It breathes.", "topics send": "Not needed."})
    assert PAGE in text
    assert "Not needed." not in text
    assert (
        "| [Message size](#message-size) | 16 B → 64 KiB | this broker, pulls | 2.00 → 4.00 | 2.00 "
        "| **grows** |\n" in text
    )
    assert "Java's broker is 4.9.7." in text
    assert "2026-11-25: 2 cores, Linux 6.1, Python 3.11.9; 3 × 1,000 messages" in text


def test_refused_sends_are_said() -> None:
    points = [point(1, 8.0), dataclasses.replace(point(2, 8.0), refused=1_234)]
    assert "1,234 sends were refused" in growth_page.document(report(slaves=points), {})


def test_the_same_report_gives_the_same_page_and_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="extra bench of setup.cfg, which bin/bench installs")
    found = report(size=size_curve(), stored=[point(0, 8.0, 9.0), point(20, 900.0)])
    source = tmp_path / "growth.json"
    source.write_text(found.to_json())
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        growth_page.main(["--json", str(source), "--page", str(tmp_path / name / "growth.md")])
    one, two = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in files}
        for name in ("one", "two")
        for files in [sorted(p for p in (tmp_path / name).rglob("*") if p.is_file())]
    )
    assert one == two
    assert {str(path) for path in one} == {
        "growth.md",
        "pictures/growth-size.svg",
        "pictures/growth-stored.svg",
    }
    for path, data in one.items():
        if path.suffix == ".svg":
            assert len(data) < 40_000
            assert not re.search(rb"\d\d:\d\d|20\d\d-\d\d|dc:date|dc:creator", data)
    size = one[Path("pictures/growth-size.svg")].decode()
    for words in ("Message size", "this broker, sends", "Java 4.9, sends", "64 KiB"):
        assert words in size

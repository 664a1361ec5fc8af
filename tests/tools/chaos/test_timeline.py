"""tools.chaos.timeline: an SVG that says what happened."""

from __future__ import annotations

from xml.etree import ElementTree

from tools.chaos.schedule import Fault, FaultKind
from tools.chaos.timeline import Curve, draw_timeline


def test_bars_and_faults_stand_where_they_happened() -> None:
    faults = [
        Fault(FaultKind.KILL, 1.0, 0.5, "master", "store"),
        Fault(FaultKind.CUT, 3.0, 1.0, "link"),
    ]
    text = draw_timeline("a <title>", [0, 100, 50, 0], 1.0, faults, "held")
    root = ElementTree.fromstring(text)
    rects = root.findall("{http://www.w3.org/2000/svg}rect")
    bars = [rect for rect in rects if rect.get("fill") == "#4878a8"]
    marks = [rect for rect in rects if rect.get("fill") == "#c05a3c"]
    assert [float(bar.get("height", "")) for bar in bars] == [0, 160, 80, 0]
    # The rows are in the order of their names: "link cut" comes before "master kill".
    starts = [float(bar.get("x", "")) for bar in bars]
    assert [float(mark.get("x", "")) for mark in marks] == [starts[3], starts[1]]
    assert "kill store of master" in text
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "a <title>: held"


def test_curves_share_the_time_of_the_bars() -> None:
    lines = {"a <b>": [(0.0, 0.0), (2.0, 5.0), (4.0, 10.0)]}
    text = draw_timeline("t", [1, 1, 1, 1], 1.0, [], "held", [Curve("memory MB", lines)])
    root = ElementTree.fromstring(text)
    line = root.find("{http://www.w3.org/2000/svg}polyline")
    assert line is not None
    points = [tuple(map(float, point.split(","))) for point in line.get("points", "").split()]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert (x0, x1) == (70, 70 + 440)
    assert x2 == 70 + 880
    assert (y0 - y1, y0 - y2) == (45, 90)
    assert line.findtext("{http://www.w3.org/2000/svg}title") == "a <b>"


def test_nothing_happened() -> None:
    ElementTree.fromstring(draw_timeline("empty", [], 0.25, [], "held"))

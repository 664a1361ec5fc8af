"""History: from dumps where there are some, else from what the console saw; gaps stay gaps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from console.dumps import Dumps
from console.figures import STATE
from console.page import ConsoleError
from console.views import history
from tests.console.pages import HOSTILE, NOW, java, page, reader, rows, seen, shown
from tests.spark.dump_lines_builder import T0, Life, replica, write_dump
from tests.tools.test_ha_status import MASTER

HISTORY, PLOT = history.VIEWS
GROUP = {"cluster": "c", "name": "b"}


@pytest.fixture
def dumps(tmp_path: Path) -> Dumps:
    life = Life()
    lines = life.lines(T0, 4, replicas=[replica(lag_ms=500)])
    lines += life.lines(T0 + 20_000, 2, replicas=[replica(state="disconnected", lag_ms=9_000)])
    write_dump(tmp_path, lines + life.lines(T0 + 30_000, 1, replicas=[replica()]))
    return Dumps(tmp_path)


def test_incidents_in_words_and_as_marks(dumps: Dumps) -> None:
    who = replace(reader(), now_ms=T0 + 60_000, options={"dumps": dumps})
    found = page(history.history, who, **GROUP)
    (_, gone) = rows(found, "incidents")
    assert (gone["who"], gone["what"]) == ("b:1", "disconnected")
    assert (gone["from"], gone["to"], gone["lasted"]) == (T0 + 20_000, T0 + 30_000, 10_000)
    assert found.context["sentences"] == ["From 1 files of the brokers' own dumps."]
    plot = page(history.history_plot, who, **GROUP).data
    assert plot["incidents"][1] == {
        "from": T0 + 20_000,
        "to": T0 + 30_000,
        "kind": "b:1 disconnected",
    }
    lag = plot["series"][0]
    values = dict(zip(plot["times"], lag["values"], strict=True))
    assert (values[T0], values[T0 + 20_000], values[T0 + 40_000]) == (0.5, 9.0, None)


@pytest.mark.parametrize("span", ["day", "40days"])
def test_longer_spans(dumps: Dumps, span: str) -> None:
    who = replace(reader(), now_ms=T0 + 86_000_000, options={"dumps": dumps})
    plot = page(history.history_plot, who, **GROUP, span=span).data
    assert max(v for v in plot["series"][0]["values"] if v is not None) == 9.0
    assert len(plot["times"]) <= 1_922


def test_files_that_are_not_read_yet_are_said(
    dumps: Dumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(dumps, "_monotonic_s", lambda: next(ticks) * 10)
    who = replace(reader(), now_ms=T0 + 60_000, options={"dumps": dumps})
    (said,) = page(history.history, who, **GROUP).context["sentences"]
    assert said.startswith("0 of 1 files of the brokers' own dumps are read so far")


def test_without_dumps_it_is_what_the_console_saw() -> None:
    who = reader(java("b", ha=MASTER))
    owner = ("b0:10911 b:1", STATE)
    for at, value in ((30_000, 0.0), (25_000, 2.0), (20_000, 2.0), (10_000, 2.0), (5_000, 1.0)):
        who.history.add(NOW - at, {owner: value})
    found = page(history.history, who, cluster="C", name="b")
    assert [
        (row["what"], NOW - row["from"], NOW - row["to"]) for row in rows(found, "incidents")
    ] == [
        ("disconnected", 25_000, 15_000),
        ("disconnected", 10_000, 5_000),
        ("catching_up", 5_000, 0),
    ]
    assert found.context["sentences"] == [
        "What this console has seen since it was started, six hours at most.",
        "Brokers of another make keep no history of their replication.",
    ]


def test_ours_without_dumps_says_the_way_to_them() -> None:
    found = page(history.history, reader(seen(ha=MASTER)), cluster="C", name="b", span="day")
    assert "--dumps" in found.context["sentences"][1]


def test_an_empty_directory_is_said(tmp_path: Path) -> None:
    who = replace(reader(seen(ha=MASTER)), options={"dumps": Dumps(tmp_path)})
    found = page(history.history, who, cluster="C", name="b")
    assert found.context["sentences"][-1] == (
        "The directory of --dumps has no file of this group and time."
    )


def test_groups_to_choose_from_and_unknown_ones() -> None:
    who = reader(seen(HOSTILE, ha=MASTER))
    assert "<img" not in shown(HISTORY, who)
    assert "<img" not in shown(HISTORY, who, {"cluster": "C", "name": HOSTILE})
    assert len(rows(page(history.history, who), "incidents")) == 1
    with pytest.raises(ConsoleError, match="there is no broker group"):
        page(history.history, who, cluster="C", name="x")
    with pytest.raises(ConsoleError, match="span must be one of"):
        page(history.history, who, cluster="C", name="x", span="year")

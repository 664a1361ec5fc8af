"""Writes docs/growth.md and its pictures from what `bin/bench growth` measured.

`.venv/bin/python -m tests.bench.growth_page` reads tests/bench/out/growth.json (--json names
another one). Each curve has its table, its picture, and whether the cost of a message is flat; why
it is not stands in tests/bench/growth_reasons.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench.growth_curves import (
    CURVES,
    FLAT_WITHIN,
    Curve,
    Point,
    Report,
    Verdict,
    label,
    series,
)
from tests.bench.growth_reasons import REASONS
from tests.bench.measuring import OUT_DIR

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "growth.md"
PICTURES: Final = "pictures"
"""Beside the page."""
COMMAND: Final = ".venv/bin/python -m tests.bench.growth_page"
NO_REASON: Final = "Reason not found yet."
_SIDES: Final = {"ours": "this broker", "java": "Java"}
_KINDS: Final = {"send": "sends", "pull": "pulls"}


def document(report: Report, reasons: Mapping[str, str]) -> str:
    """The whole page."""
    parts = [
        "# How the cost of a message grows",
        f"<!-- Generated: {COMMAND} -->",
        _introduction(report),
        "## In short",
        _summary(report),
    ]
    for name, points in report.curves.items():
        parts += _curve(CURVES[name], points, reasons)
    return "\n\n".join(parts) + "\n"


def _introduction(report: Report) -> str:
    beside = "" if report.java_version == "-" else f" Java's broker is {report.java_version}."
    stolen = max((point.stolen for points in report.curves.values() for point in points), default=0)
    return (
        f"`bin/bench growth`, {report.date}: {report.machine['cpus']} cores, Linux"
        f" {report.machine['kernel']}, Python {report.python}; {report.rounds} ×"
        f" {report.messages:,} messages at each point unless its curve says otherwise, medians."
        f"{beside} The host took at most {stolen:.0%} of the machine away in a round.\n\n"
        "Cost is processor time of all processes of the broker, from the first message until it is"
        " quiet again: dispatch and flush count, and so does what it does by itself meanwhile. Flat"
        f" means that the last point costs at most {FLAT_WITHIN:g} times what the first does, and"
        f" at least 1/{FLAT_WITHIN:g} of it. In the pictures a bar reaches from the lowest"
        " round to the highest."
    )


def _summary(report: Report) -> str:
    rows = []
    for name, points in report.curves.items():
        for (side, kind), of_it in series(points).items():
            verdict = _verdict(of_it)
            grown = f"{label(name, of_it[0].at)} → {label(name, of_it[-1].at)}"
            cost = f"{_figure(of_it[0].cost)} → {_figure(of_it[-1].cost)}"
            title = f"[{CURVES[name].title}](#{_anchor(CURVES[name])})"
            load = f"{_SIDES[side]}, {_KINDS[kind]}"
            rows.append((title, grown, load, cost, f"{verdict.ratio:.2f}", _word(verdict)))
    head = ("what grows", "from, to", "load", "µs a message", "ratio", "")
    return _table(head, rows)


def _anchor(curve: Curve) -> str:
    return curve.title.lower().replace(" ", "-")


def _curve(curve: Curve, points: Sequence[Point], reasons: Mapping[str, str]) -> Iterator[str]:
    found = series(points)
    yield f"## {curve.title}"
    yield curve.setup
    yield f"![Processor time a message over {curve.axis}]({PICTURES}/growth-{curve.name}.svg)"
    loads = [f"{_SIDES[side]}, {_KINDS[kind]}" for side, kind in found]
    head = [curve.axis, *(f"{load}: {unit}" for load in loads for unit in ("messages/s", "µs"))]
    yield _table(head, _rows(curve, list(found.values())))
    refused = sum(point.refused for point in points)
    if refused:
        yield f"{refused:,} sends were refused; they are in no figure."
    for (side, kind), of_it in found.items():
        yield _judgement(curve, side, kind, of_it, reasons)


def _rows(curve: Curve, lines: Sequence[Sequence[Point]]) -> Iterator[list[str]]:
    """A row for each point that any load has."""
    for at in sorted({point.at for line in lines for point in line}):
        row = [label(curve.name, at)]
        for line in lines:
            here = next((point for point in line if point.at == at), None)
            row += [f"{here.speed:,.0f}", _figure(here.cost)] if here else ["–", "–"]
        yield row


def _judgement(
    curve: Curve, side: str, kind: str, points: Sequence[Point], reasons: Mapping[str, str]
) -> str:
    verdict = _verdict(points)
    text = f"{_SIDES[side].capitalize()}, {_KINDS[kind]}: {_word(verdict)}, {verdict.ratio:.2f}×"
    between = verdict.highest > FLAT_WITHIN * max(1.0, verdict.ratio)
    text += f" (between them up to {verdict.highest:.2f}×)." if between else "."
    if side != "ours" or (verdict.word == "flat" and not between):
        return text
    return f"{text} {reasons.get(f'{curve.name} {kind}', NO_REASON)}"


def _verdict(points: Sequence[Point]) -> Verdict:
    return Verdict.of([point.cost for point in points])


def _word(verdict: Verdict) -> str:
    return verdict.word if verdict.word == "flat" else f"**{verdict.word}**"


def _figure(cost: float) -> str:
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:.1f}" if cost >= 10 else f"{cost:.2f}"


def _table(head: Sequence[str], rows: Iterator[list[str]] | Sequence[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="growth_page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, default=OUT_DIR / "growth.json")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    try:
        report = Report.from_json(options.json.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"growth_page: {options.json}: {error}") from error
    from tests.bench.growth_pictures import draw_all

    text = document(report, REASONS)
    for path in [options.page, *draw_all(report, options.page.parent / PICTURES)]:
        print(f"written: {path}")
    options.page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

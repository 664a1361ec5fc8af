"""Writes the tables of docs/performance.md, and its pictures, from what was measured.

`.venv/bin/python -m tests.bench.performance_page` reads the JSON files that `bin/bench compare`,
`replication`, `idle`, `cores` and `cores --groups` keep in tests/bench/out (--from names another
directory), and replaces what stands between the marks of each section. A section whose file is not
there is left as it is. No table there is written by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench.cores_groups import HEAD, group_rows
from tests.bench.cores_model import GAINS, HOSTS, RECORD_KB, Model, java_at_best, models
from tests.bench.measuring import KINDS, OUT_DIR

Data = Mapping[str, Any]

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
PICTURES: Final = "pictures"
"""Beside the page."""
ROWS_PICTURE: Final = "performance-rows.svg"
CORES_PICTURE: Final = "performance-cores.svg"
COMMAND: Final = ".venv/bin/python -m tests.bench.performance_page"
FIGURES: Final = {
    "msg_per_s": "messages/s",
    "cpu_us": "CPU",
    "p50_us": "p50",
    "p99_us": "p99",
    "p999_us": "p99.9",
    "publish_p50_us": "publish p50",
    "publish_p99_us": "publish p99",
    "of_limit": "of the limit",
    "seconds": "seconds",
    "mib": "MiB",
    "rss_mib": "MiB, what is shared counted for each",
    "parked_percent": "% of a core, parked",
    "request_us": "CPU a request",
    "p99_ms": "p99 of waking, ms",
}
"""What goals of compare are about, in words."""
_MAINS: Final = {
    "seconds": "{:.2f} s",
    "mib": "{:,.0f} MiB",
    "msg_per_s": "{:,.0f}",
    "request_us": "{:.0f} µs",
}
PUBLISHED: Final = (
    (8, 141_724, "1 KB, 256 threads of synchronous sends, ecs.g7.2xlarge (pull request 10526)"),
    (32, 100_000, "four masters together (issue 6025)"),
    (48, 108_000, "ASYNC_MASTER (issue 1515)"),
)
"""Java brokers: cores of the machine, messages a second, how; each of apache/rocketmq."""


def replaced(page: str, section: str, text: str) -> str:
    """The page with another text between a section's marks. Raises ValueError without them."""
    begin, end = marks(section)
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"no section between {begin} and {end}")
    return f"{head}{begin}\n\n{text.strip()}\n\n{end}{tail}"


def marks(section: str) -> tuple[str, str]:
    """The lines around what is generated."""
    return f"<!-- {section}, generated: {COMMAND} -->", f"<!-- {section}, end -->"


def compare_text(data: Data) -> str:
    """Every row of bin/bench compare, compiled first, which is what a user gets; its goals."""
    run, machine, rows = data["run"], data["machine"], data["rows"]
    goals = [goal for row in rows for goal in row["goals"] if goal["held"] is not None]
    held = {kind: [goal["held"] for goal in goals if goal["kind"] == kind] for kind in KINDS}
    took = f"{run['took_s'] / 60:.1f} minutes"
    names = side_names(data)
    parts = [
        f"`bin/bench compare`, {run['date']}, {took}: {machine_text(machine)}."
        f" {_rounds(run['rounds'])}, {run['counts']:.0%} of"
        f" the messages and {run['seconds']:.0%} of the time of a whole run."
        f" {machine['quiet']['text'].capitalize()}. Times and"
        " processor time in µs. The limits are those of tests/bench/stripped_broker.py and .c,"
        " which decode, copy and answer, and do nothing else.",
        "Goals that are held: "
        + ", ".join(f"{sum(each)} of {len(each)} {kind}" for kind, each in held.items())
        + ".",
        f"![How far each goal is reached]({PICTURES}/{ROWS_PICTURE})",
        "Messages a second, or what else a row is about, and ratios to both Javas:",
        _table(
            ("row", *names.values(), *(f"{kind} / Java" for kind in KINDS)),
            (_speed_row(row, list(names)) for row in rows),
        ),
        "p50, p99 and CPU a message, each compiled / sources / the Javas:",
        _table(
            ("row", "p50", "p99", "CPU a message", "of the limit", "of that in C"),
            (_time_row(row, list(names)) for row in rows),
        ),
        "Goals are ratios to a Java, but for shares of the limit, seconds and what has no Java:",
        _table(
            ("row", "figure", "beside", "compiled", "goal", "", "sources", "goal", ""),
            (cells for row in rows for cells in goal_rows(row, names)),
        ),
        *(_failed(row) for row in rows if row["failures"]),
        *(_cost(row, names) for row in rows if row["costs"]),
    ]
    return "\n\n".join(parts)


def side_names(data: Data) -> dict[str, str]:
    """The sides in the order in which they are shown, with the releases of Java."""
    javas = {side: f"Java {version}" for side, version in data["java_versions"].items()}
    return {**dict(zip(KINDS, KINDS, strict=True)), **javas}


def machine_text(machine: Data) -> str:
    """What it ran on, in words."""
    return (
        f"{machine['usable_cpus']} cores ({machine['cpu_model']}), {machine['memory'] / 1e9:.0f} GB"
        f" of memory, Linux {machine['kernel']}, Python {machine['python']}, {machine['java']}"
    )


def _rounds(count: int) -> str:
    return "One round" if count == 1 else f"Medians of {count} rounds"


def _speed_row(row: Data, sides: Sequence[str]) -> list[str]:
    figures = [row["sides"][side] or {} for side in sides]
    main = next((name for name in _MAINS if any(name in each for each in figures)), "msg_per_s")
    cells = [_cell(each, main) for each in figures]
    ratios = [
        " / ".join(
            "–" if main not in found else f"{found[main]:.2f}"
            for java, found in row["ratios"][kind].items()
            if java in sides
        )
        for kind in KINDS
    ]
    return [row["shape"], *cells, *ratios]


def _cell(figures: Data, name: str) -> str:
    if name not in figures:
        return "–"
    return _MAINS[name].format(figures[name])


def _time_row(row: Data, sides: Sequence[str]) -> list[str]:
    figures = [row["sides"][side] or {} for side in sides]
    shares = [
        " / ".join(
            f"{each[name]:.0%}" if name in each else "–"
            for each in (row["sides"][kind] or {} for kind in KINDS)
        )
        for name in ("of_limit", "of_c")
    ]
    return [
        row["shape"],
        *(_several(figures, name, "{:,.0f}") for name in ("p50_us", "p99_us")),
        _several(figures, "cpu_us", "{:.1f}"),
        *("–" if share == "– / –" else share for share in shares),
    ]


def _several(figures: Sequence[Data], name: str, form: str) -> str:
    texts = [form.format(side[name]) if name in side else "–" for side in figures]
    return "–" if set(texts) == {"–"} else " / ".join(texts)


def goal_rows(row: Data, names: Mapping[str, str]) -> Iterator[list[str]]:
    """For instance "send-1x1-128", "p50", "Java 4.9.7", "0.43", "0.50", "held", "0.60" …"""
    of_figure: dict[tuple[str, str], dict[str, Data]] = {}
    for goal in row["goals"]:
        beside = names.get(goal["anchor"], "Java") if goal["of_ratio"] else "–"
        of_figure.setdefault((goal["figure"], beside), {})[goal["kind"]] = goal
    for (figure, beside), goals in of_figure.items():
        name = "ratio" if (figure, beside == "–") == ("seconds", False) else FIGURES[figure]
        cells = [_goal_cells(goals.get(kind)) for kind in KINDS]
        yield [row["shape"], name, beside, *(cell for each in cells for cell in each)]


def _goal_cells(goal: Data | None) -> list[str]:
    if goal is None:
        return ["–"] * 3
    if goal["reached"] is None:
        return ["–", f"{goal['limit']:.2f}", "not measured"]
    verdict = "held" if goal["held"] else "**missed**"
    return [f"{goal['reached']:.2f}", f"{goal['limit']:.2f}", verdict]


def _failed(row: Data) -> str:
    words = "; ".join(text.splitlines()[0].rstrip(":") for text in row["failures"])
    return f"**{row['shape']} failed**: {words}."


def _cost(row: Data, names: Mapping[str, str]) -> str:
    costs = [
        f"{names[side]} has {cost['msg_per_s']:.0%} of the speed and {cost['cpu_us']:+.1f} µs"
        + (f" with TLS {row['sides'][side]['tls']:.1f}" if "tls" in row["sides"][side] else "")
        for side, cost in row["costs"].items()
    ]
    return f"{row['shape']} beside {row['beside']}: {', '.join(costs)}."


def lines_text(data: Data, command: str) -> str:
    """The figures of bin/bench replication or idle, beside their goals."""
    java = f"; Java is {data['java_version']}" if "java_version" in data else ""
    run = data["run"]
    about = f"`{command}`, {run['date']}: {machine_text(data['machine'])}{java}."
    if "rounds" in run:
        about += f" {_rounds(run['rounds'])}, {run['counts']:.0%} of the messages of a whole run."

    def rows() -> Iterator[list[str]]:
        for row in data["rows"]:
            figures = [
                "–" if row[name] is None else _figure(row[name]) for name in ("ours", "java")
            ]
            ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}"
            yield [row["name"].strip(), *figures, ratio, _line_goal(row["goal"])]

    return f"{about}\n\n{_table(('figure', 'ours', 'Java', 'ratio', 'goal'), rows())}"


def _line_goal(goal: Data | None) -> str:
    if goal is None:
        return ""
    what = "ratio " if goal["of_ratio"] else ""
    if goal["reached"] is None:
        return f"{what}{goal['limit']:g}: not measured"
    return f"{what}{goal['limit']:g}: {'held' if goal['held'] else '**missed**'}"


def _figure(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.2f}"


def cores_text(data: Data) -> str:
    """The layouts of bin/bench cores, and the model."""
    found = models(data)
    parts = [
        f"`bin/bench cores`, {data['run']['date']}: {machine_text(data['machine'])};"
        f" {_rounds(data['run']['rounds']).lower()}. Messages of 1 KiB, all groups together; the"
        " load generators run on the same two cores. Processor time is that of all processes of a"
        " kind, until they are quiet again.",
        _table(
            ("layout", "load", "messages/s", "p99, µs", "µs a message", "cores busy meanwhile"),
            _layout_rows(data),
        ),
        "**What it brings**, messages/s as multiples:",
        _table(("what", *found), _gains(data, list(found))),
        "**Model.** With r µs of `remoting` and s µs of all other processes for a message, and e of"
        " what one group's figures promise kept when two work at once, N cores take"
        " (N / 2) · e / max(r, s) messages a second with a group on each pair of cores"
        " (`--auto`), and N · e / (r + s) with a group on each core. A Java broker is one process:"
        " with its r, at most N / r.",
        _table(
            ("load", "r", "s", "e", *(f"{cores} cores" for cores in HOSTS)),
            _model_rows(data, found),
        ),
        "Millions of messages a second, from pairs to cores; what is above two cores is"
        " **extrapolated, not measured**. " + _boundary(found),
        f"![Messages a second over cores]({PICTURES}/{CORES_PICTURE})",
        "Java's published figures (apache/rocketmq): each is what one machine with its own disk"
        " took from its own clients, not what a Java broker could take there. A Java broker uses"
        " all cores of a host in one process.",
        _table(
            ("cores", "messages/s", "how"),
            ([str(cores), f"{speed:,}", how] for cores, speed, how in PUBLISHED),
        ),
    ]
    return "\n\n".join(parts)


def groups_text(data: Data) -> str:
    """The layouts of bin/bench cores --groups."""
    head = (
        f"`bin/bench cores --groups`, {data['run']['date']}: {machine_text(data['machine'])};"
        f" {_rounds(data['run']['rounds']).lower()},"
        f" {data['machine']['compiled_modules']} compiled modules. Messages of 1 KiB, all groups"
        " together. On one core: with all processes of all groups there, the load generators on"
        " the other; on two: with all on both. Processor time a message: that of `remoting`, and"
        ' of all other processes of all groups. "Of the first": beside the fewest groups on the'
        " same cores."
    )
    rows = sorted(group_rows(data), key=lambda row: row[:2])
    return f"{head}\n\n{_table(HEAD, iter(rows))}"


def _layout_rows(data: Data) -> Iterator[list[str]]:
    for layout in data["layouts"]:
        for load, one in layout["loads"].items():
            costs = [f"{name} {us:.1f}" for name, us in one["cpu_us"].items() if us >= 0.1]
            busy = [f"{name} {part:.2f}" for name, part in one["cores"].items() if part >= 0.01]
            p99 = f"{one['p99_us']:,.0f}" if one["p99_us"] else "–"
            costs.append(f"loadgen {one['load_us']:.1f}")
            speed = f"{one['msg_per_s']:,.0f}"
            yield [layout["name"], load, speed, p99, ", ".join(costs), ", ".join(busy)]


def _gains(data: Data, loads: Sequence[str]) -> Iterator[list[str]]:
    layouts = {layout["name"]: layout["loads"] for layout in data["layouts"]}
    for words, of, against in GAINS:
        if of in layouts and against in layouts:
            speeds = [
                (layouts[of][load]["msg_per_s"], layouts[against][load]["msg_per_s"])
                for load in loads
            ]
            yield [words, *(f"{one / other:.2f}" for one, other in speeds)]


def _model_rows(data: Data, found: Mapping[str, Model]) -> Iterator[list[str]]:
    for load, model in found.items():
        inputs = (f"{figure:.1f}" for figure in (model.remoting_us, model.others_us))
        speeds = [
            f"{model.on_pairs(cores) / 1e6:.2f} to {model.on_each(cores) / 1e6:.2f}"
            for cores in HOSTS
        ]
        yield [load, *inputs, f"{model.kept:.2f}", *speeds]
        java_us = java_at_best(data, load)
        if java_us is not None:
            most = [f"≤ {cores / java_us:.2f}" for cores in HOSTS]
            yield [f"{load}, Java {data['java_version']}", f"{java_us:.1f}", "–", "–", *most]


def _boundary(found: Mapping[str, Model]) -> str:
    sends = [model.on_each(HOSTS[-1]) for load, model in found.items() if load.startswith("send")]
    most = max(sends, default=0.0)
    return (
        "It assumes clients on other machines, queues spread over all groups, and that many groups"
        " disturb each other no more than two do here: caches, memory and the kernel's network"
        f" stack are shared by more of them there. At {most / 1e6:.1f} million sends a second of"
        f" 1 KiB, {most * RECORD_KB / 1e6:.1f} GB/s have to pass network and disk, which end first"
        " on most machines."
    )


def _table(head: Sequence[str], rows: Iterator[list[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


SECTIONS: Final[Mapping[str, Callable[[Data], str]]] = {
    "compare": compare_text,
    "replication": lambda data: lines_text(data, "bin/bench replication"),
    "idle": lambda data: lines_text(data, "bin/bench idle"),
    "cores": cores_text,
    "cores-groups": groups_text,
}
"""By the name of the command, of its JSON file and of the section."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="performance_page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--from", dest="source", type=Path, default=OUT_DIR, metavar="DIR")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    from tests.bench.performance_pictures import draw

    page = options.page.read_text(encoding="utf-8")
    for section, text_of in SECTIONS.items():
        path = options.source / f"{section}.json"
        if not path.exists():
            print(f"{section}: left as it is, there is no {path}")
            continue
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            page = replaced(page, section, text_of(data))
        except (ValueError, KeyError, TypeError) as error:
            command = section.replace("-", " --")
            words = f"cannot be shown, run bin/bench {command} again: {error!r:.200}"
            raise SystemExit(f"performance_page: {path}: {words}") from error
        for picture in draw(section, data, options.page.parent / PICTURES):
            print(f"written: {picture}")
    options.page.write_text(page, encoding="utf-8")
    print(f"written: {options.page}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""The kept inputs: tests/fuzz/corpus/<target>/ and, of findings, tests/fuzz/crashes/<target>/.

A file is one input. An input of a crash that needs the ones before it is not kept there: such a
crash gets a test of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.fuzz.execution import Finding, name_of
from tests.fuzz.target import Target

_HERE = Path(__file__).parent
CORPUS = _HERE / "corpus"
CRASHES = _HERE / "crashes"
KEPT_BYTES = 14_000
"""Of each target."""


def read_inputs(directory: Path) -> list[bytes]:
    """The inputs of a directory, by name."""
    return [path.read_bytes() for path in sorted(directory.glob("*")) if path.is_file()]


def inputs_of(target: Target) -> list[bytes]:
    """Its seeds, what was kept, and every past crash; each once."""
    kept = read_inputs(CORPUS / target.name) + read_inputs(CRASHES / target.name)
    return list(dict.fromkeys([*target.seeds(), *kept]))


def keep(target: Target, found: Iterable[bytes]) -> int:
    """Keep inputs, the smallest first, as long as there is room. How many."""
    directory = CORPUS / target.name
    directory.mkdir(parents=True, exist_ok=True)
    known = set(inputs_of(target))
    room = KEPT_BYTES - sum(map(len, read_inputs(directory)))
    count = 0
    for data in sorted(set(found) - known, key=len):
        if len(data) > room:
            break
        (directory / name_of(data)).write_bytes(data)
        room -= len(data)
        count += 1
    return count


def save_finding(directory: Path, data: bytes, finding: Finding) -> Path:
    """The input, and beside it what it did. Returns the input's path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name_of(data)
    path.write_bytes(data)
    path.with_suffix(".txt").write_text(f"{finding.key}\n\n{finding.text}\n")
    return path

"""Runs the cells of a notebook of examples/notebooks in this process, without Jupyter.

In the one Spark session of the tests: `getOrCreate` in a notebook finds that one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples" / "notebooks"


def executed(name: str) -> dict[str, Any]:
    """The names that the cells of a notebook made."""
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    assert notebook["nbformat"] == 4
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), "clear its outputs"
            exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), names)
    return names

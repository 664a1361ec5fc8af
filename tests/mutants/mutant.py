"""Mutant: a change of a few lines that breaks one promise of the product, and who must notice it.

Each is a file of `patches/`, in TOML: `module` (a path from the checkout), `old` and `new` (exact
text; `old` stands once in the module), `breaks` (a sentence: the promise), `checks` (node ids of
pytest, of tests that are in every run) and, where fitting, `mqchaos` (its options). Nothing here
changes a checkout: a mutant is applied to a copy.
"""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PATCHES: Final = Path(__file__).with_name("patches")
_KEYS: Final = {"module", "old", "new", "breaks", "checks"}
_MORE_KEYS: Final = {"mqchaos"}


class MutantError(ValueError):
    """A patch that says nothing sensible, or does not fit the checkout: the text names it."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One of them; `name` is its file's."""

    name: str
    module: str
    old: str
    new: str
    breaks: str
    checks: tuple[str, ...]
    mqchaos: str = ""

    def changed(self, root: Path) -> str:
        """The module's text with the change. Raises MutantError: it does not apply exactly once."""
        path = root / self.module
        try:
            text = path.read_text()
        except OSError as error:
            raise MutantError(f"{self.name}: {path}: {error.strerror}") from error
        if (count := text.count(self.old)) != 1:
            raise MutantError(
                f"{self.name}: its old text is {count} times in {self.module}, not once; make the "
                "patch anew for what the module says now"
            )
        changed = text.replace(self.old, self.new)
        try:
            ast.parse(changed)
        except SyntaxError as error:
            raise MutantError(f"{self.name}: {self.module} would be no Python: {error}") from error
        return changed

    def missing_checks(self, root: Path) -> list[str]:
        """The checks that are no test of the tree."""
        return [check for check in self.checks if not _is_there(root, check)]


def load_mutants(directory: Path = PATCHES) -> list[Mutant]:
    """All of them, by name. Raises MutantError."""
    return [_load(path) for path in sorted(directory.glob("*.toml"))]


def _load(path: Path) -> Mutant:
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise MutantError(f"{path}: {error}") from error
    if missing := _KEYS - found.keys():
        raise MutantError(f"{path}: lacks {', '.join(sorted(missing))}")
    if unknown := found.keys() - _KEYS - _MORE_KEYS:
        raise MutantError(f"{path}: {', '.join(sorted(unknown))} is unknown")
    if found["old"] == found["new"] or not found["checks"]:
        raise MutantError(f"{path}: it changes nothing, or names no check")
    # In TOML a text of several lines ends with its last line's end.
    return Mutant(path.stem, **{**found, "checks": tuple(found["checks"])})


def _is_there(root: Path, check: str) -> bool:
    file, _, rest = check.partition("::")
    path = root / file
    if not rest or not path.is_file():
        return False
    body = ast.parse(path.read_text()).body
    *classes, function = rest.partition("[")[0].split("::")
    for name in classes:
        found = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
        body = found[0].body if found else []
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(node, functions) and node.name == function for node in body)

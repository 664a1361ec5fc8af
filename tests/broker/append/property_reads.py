"""Which properties product code reads from records: found in its syntax trees.

A read is a call of one of the functions that find a property by its name, or of a function that
passes one of its own parameters on to such a function. The name is looked up in the module where
the call is; one that comes from a loop over a constant is each of its members. What is written or
looked for as text has the name with its separator in a string.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[3]
ROOMS: Final = ("broker", "store", "ha")
FIND: Final = "find_property"
_FIRST: Final = frozenset({"store.message_properties", "broker.append.send_properties"})
"""Where functions of that name are; a method of that name is Message's."""
_PAIR: Final = re.compile(r"([A-Z0-9_][A-Z0-9_#.]+)\x01")
_ALL: Final = frozenset({"parse_properties", "property_map"})
"""What makes all properties of a record."""


@dataclass
class Reads:
    """What was found. unknown: calls whose name cannot be told from the code, and what reads
    all."""

    names: dict[str, set[str]] = field(default_factory=dict)
    """Property to the modules that read or write it."""
    unknown: list[str] = field(default_factory=list)

    def add(self, names: Iterable[str | bytes], module: str) -> None:
        for name in names:
            text = name.decode() if isinstance(name, bytes) else name
            self.names.setdefault(text.rstrip("\x01"), set()).add(module)


@dataclass(frozen=True)
class _Module:
    name: str
    module: ModuleType
    tree: ast.Module


def _modules() -> Iterator[_Module]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if "propert" not in source.lower() and "\\x01" not in source:
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[-1] in ("__init__", "__main__"):
                continue
            name = ".".join(parts)
            yield _Module(name, importlib.import_module(name), ast.parse(source))


class _Walk:
    """Finds the calls of readers; a function that passes a parameter on becomes one."""

    def __init__(self) -> None:
        self.modules = list(_modules())
        self.readers: dict[tuple[str, str], int] = {(name, FIND): 1 for name in _FIRST}
        """(module, function) to the place of the name among the arguments."""
        self.calls: list[tuple[_Module, ast.FunctionDef, ast.Call]] = []
        self.all_read: list[str] = []
        for module in self.modules:
            for function in _functions(module.tree):
                self._collect(module, function)

    def run(self) -> Reads:
        known = 0
        while known != len(self.readers):
            known = len(self.readers)
            reads = Reads(unknown=[*self.all_read])
            for module, function, call in self.calls:
                self._look(module, function, call, reads)
        for module in self.modules:
            reads.add(_pairs(module.tree), module.name)
        return reads

    def _collect(self, module: _Module, function: ast.FunctionDef) -> None:
        for node in ast.walk(function):
            if isinstance(node, ast.Name | ast.Attribute) and _called(node) in _ALL:
                self.all_read.append(f"{module.name}:{node.lineno} {ast.unparse(node)}")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                is_method = isinstance(node.func, ast.Attribute)
                if not is_method or _called(node.func) == FIND:
                    self.calls.append((module, function, node))

    def _look(
        self, module: _Module, function: ast.FunctionDef, call: ast.Call, reads: Reads
    ) -> None:
        name = self._name_of(module, call)
        if isinstance(name, ast.Call) and isinstance(name.func, ast.Attribute):
            name = name.func.value  # name.encode()
        if name is None:
            return
        parameters = [each.arg for each in function.args.args]
        if isinstance(name, ast.Name) and name.id in parameters:
            self.readers.setdefault((module.name, function.name), parameters.index(name.id))
            return
        try:
            reads.add(_values(module.module, function, name), module.name)
        except LookupError:
            reads.unknown.append(f"{module.name}:{call.lineno} {ast.unparse(call)}")

    def _name_of(self, module: _Module, call: ast.Call) -> ast.expr | None:
        """The argument that names the property, of a call of a reader."""
        function = call.func
        if isinstance(function, ast.Attribute):
            return call.args[0] if function.attr == FIND else None
        if not isinstance(function, ast.Name):
            return None
        found = getattr(module.module, function.id, None)
        home = getattr(found, "__module__", None)
        place = self.readers.get((home, getattr(found, "__name__", "")))
        return None if place is None or len(call.args) <= place else call.args[place]


def _called(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _values(module: ModuleType, function: ast.FunctionDef, name: ast.expr) -> list[str | bytes]:
    """What an expression may be: in its module, or for each turn of the loop that it comes from."""
    try:
        return [_evaluated(module, name)]
    except LookupError:
        pass
    if isinstance(name, ast.Name):
        for node in ast.walk(function):
            if isinstance(node, ast.For | ast.comprehension):
                targets = [t.id for t in ast.walk(node.target) if isinstance(t, ast.Name)]
                if name.id in targets:
                    turns = _evaluated(module, node.iter)
                    at = targets.index(name.id)
                    return [turn if isinstance(turn, str | bytes) else turn[at] for turn in turns]
    raise LookupError(ast.unparse(name))


def _evaluated(module: ModuleType, expression: ast.expr) -> Any:
    """Raises LookupError where it is made of more than the module's own names."""
    try:
        return eval(compile(ast.Expression(expression), "", "eval"), vars(module))
    except NameError as error:
        raise LookupError(ast.unparse(expression)) from error


def _pairs(tree: ast.Module) -> Iterator[str]:
    """Names with their separator in the strings of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            value = node.value
            text = value if isinstance(value, str) else value.decode("latin-1")
            yield from _PAIR.findall(text)


@functools.cache
def property_reads() -> Reads:
    """Of all product code that touches records."""
    return _Walk().run()

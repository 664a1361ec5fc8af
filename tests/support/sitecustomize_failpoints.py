"""A sitecustomize for brokers of tests: functions of the product that raise for marked records.

Copied as `sitecustomize.py` into a directory of PYTHONPATH, so that every interpreter of the broker
runs it at its start, and what it forks has it, too; the product knows nothing of it. FAILPOINTS in
the environment names the functions (`module:function` or `module:Class.function`, separated by
commas); each raises for arguments that hold POISON from the moment its module is imported.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

_MARK = b"POISON"


def _is_marked(value: Any, depth: int = 0) -> bool:
    if isinstance(value, memoryview):
        value = value.tobytes()
    if isinstance(value, bytes):
        return _MARK in value
    if isinstance(value, str):
        return _MARK.decode() in value
    if depth:
        return False
    return any(
        _is_marked(getattr(value, name, None), 1) for name in ("properties", "body", "topic")
    )


def _failpoint(usual: Any) -> Any:
    def raising(*arguments: Any, **named: Any) -> Any:
        if any(map(_is_marked, arguments)):
            raise IndexError("a failpoint")
        return usual(*arguments, **named)

    return raising


class _Finder:
    def __init__(self, targets: dict[str, list[str]]) -> None:
        self.targets = targets

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> Any:
        functions = self.targets.pop(name, None)
        if functions is None:
            return None
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module  # type: ignore[union-attr]

        def load_and_patch(module: Any) -> None:
            load(module)
            for path in functions:
                owner, function = module, path
                if "." in path:
                    kind, function = path.split(".")
                    owner = getattr(module, kind)
                setattr(owner, function, _failpoint(getattr(owner, function)))

        spec.loader.exec_module = load_and_patch  # type: ignore[union-attr, method-assign]
        return spec


_targets: dict[str, list[str]] = {}
for _each in filter(None, os.environ.get("FAILPOINTS", "").split(",")):
    _module, _, _function = _each.partition(":")
    _targets.setdefault(_module, []).append(_function)
sys.meta_path.insert(0, _Finder(_targets))  # type: ignore[arg-type]

"""Failpoints: functions that raise when they are given a record with POISON in it.

`poison` replaces a function by its name, as `module.function` or `module.Class.function`; what it
is given decides, not how often it was called, so that a restart meets the same.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

POISON = b"POISON"


class PoisonError(IndexError):
    """Raised by a failpoint: an error that no code expects."""


def holds_poison(value: object) -> bool:
    """Whether a record, or what was read of it, has the mark."""
    if isinstance(value, bytes | bytearray):
        return POISON in value
    if isinstance(value, memoryview):
        return POISON in value.tobytes()
    if isinstance(value, str):
        return POISON.decode() in value
    parts = (getattr(value, name, None) for name in ("properties", "body", "topic"))
    return any(holds_poison(part) for part in parts if part is not None)


def poison(patch: pytest.MonkeyPatch, *targets: str) -> None:
    """Each of these functions raises PoisonError for what holds POISON from now on."""
    for target in targets:
        owner, name, usual = find_function(target)
        patch.setattr(owner, name, failpoint(usual))


def find_function(target: str) -> tuple[Any, str, Callable[..., Any]]:
    """The module or class that has the function, its name there, and itself."""
    path, _, name = target.rpartition(".")
    try:
        owner: Any = importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, kind = path.rpartition(".")
        owner = getattr(importlib.import_module(module), kind)
    return owner, name, getattr(owner, name)


def failpoint(usual: Callable[..., Any]) -> Callable[..., Any]:
    """`usual`, but for records with POISON."""

    def raising(*arguments: Any, **named: Any) -> Any:
        if any(map(holds_poison, (*arguments, *named.values()))):
            raise PoisonError("poison")
        return usual(*arguments, **named)

    return raising

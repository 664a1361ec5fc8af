"""Chooses the selectors library: `selectors2`, else the standard one.

Every selector of the product (the remoting loops and the HA threads) is created here. selectors2
2.0.2 imports `collections.Mapping`, which Python 3.10 removed: the alias is restored during its
import only. If it cannot be imported, the standard `selectors` has the same API. The environment
variable ROCKETMQ_SELECTORS=standard forces the latter; tests run on both.
"""

from __future__ import annotations

import collections
import collections.abc
import importlib
import os
import selectors
from types import ModuleType

EVENT_READ = selectors.EVENT_READ
EVENT_WRITE = selectors.EVENT_WRITE


def _import_selectors2() -> ModuleType:
    lent = not hasattr(collections, "Mapping")
    if lent:
        collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]
    try:
        return importlib.import_module("selectors2")
    finally:
        if lent:
            del collections.Mapping  # type: ignore[attr-defined]


def load_selectors() -> ModuleType:
    """The selectors module in use: `selectors2` if it can be imported, else `selectors`."""
    if os.environ.get("ROCKETMQ_SELECTORS") == "standard":
        return selectors
    try:
        return _import_selectors2()
    except (ImportError, AttributeError):
        return selectors


_module = load_selectors()
SELECTORS_NAME: str = _module.__name__


def new_selector() -> selectors.BaseSelector:
    """The most efficient selector of the platform (epoll on Linux)."""
    selector: selectors.BaseSelector = _module.DefaultSelector()
    return selector

"""Python's search for garbage, while very many objects are made that stay or leave none.

Each full search looks at all objects that there are: for those of a syntax tree of each module, or
of all tests of a run, that is as long as making them.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


def search_seldom() -> None:
    """As the processes of a broker do (broker/processes/child.py)."""
    gc.set_threshold(50_000, 50, 50)


@contextlib.contextmanager
def not_searched() -> Iterator[None]:
    """Nothing is searched for meanwhile, nor ever in what there is at the end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

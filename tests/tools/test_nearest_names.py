"""Names that are most like a text, in linear time."""

from __future__ import annotations

from typing import Any

import pytest

from tools import nearest_names as module
from tools.admin_client import unknown
from tools.nearest_names import nearest_names


def test_names_are_compared_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing takes time by the square of the lengths: a guest may ask again and again."""
    compared: list[int] = []
    real = module.get_close_matches

    def counted(word: str, possible: Any, **more: Any) -> list[str]:
        compared.append(len(possible))
        return real(word, possible, **more)

    monkeypatch.setattr(module, "get_close_matches", counted)
    many = [f"Order-{n:05}" for n in range(20_000)]
    assert nearest_names("Ordre-00007", many, 3)[0] == "Order-00007"
    assert compared == [module.COMPARED]
    assert nearest_names("x" * 1_000, many, 3) == []
    assert nearest_names("abc", ["abd" + "x" * 1_000], 3) == []
    assert unknown("topic", "Ordre-00007", many).endswith("the nearest is Order-00007")
    assert compared == [module.COMPARED, 0, module.COMPARED]


def test_short_names_are_found_too() -> None:
    assert unknown("cluster", "b", ["a", "b2", "c"]) == (
        "cluster b does not exist; the nearest is b2"
    )
    assert unknown("cluster", "x", ["abc"]) == "cluster x does not exist"

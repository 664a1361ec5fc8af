"""The seam between us and the selectors library."""

from __future__ import annotations

import collections
import importlib
import selectors

import pytest

from remoting import selector_seam
from remoting.selector_seam import EVENT_READ, EVENT_WRITE, load_selectors, new_selector


def test_selectors2_is_used_where_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETMQ_SELECTORS", raising=False)
    assert load_selectors().__name__ == "selectors2"


def test_the_variable_forces_the_standard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_SELECTORS", "standard")
    assert load_selectors() is selectors


@pytest.mark.parametrize("error", [ImportError, AttributeError])
def test_a_library_that_does_not_import_is_replaced(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(name: str) -> None:
        raise error(name)

    monkeypatch.delenv("ROCKETMQ_SELECTORS", raising=False)
    monkeypatch.setattr(importlib, "import_module", fail)
    assert load_selectors() is selectors


def test_the_lent_alias_is_taken_back() -> None:
    load_selectors()
    assert not hasattr(collections, "Mapping")


def test_the_event_masks_are_those_of_the_library_in_use() -> None:
    module = selector_seam._module
    assert (module.EVENT_READ, module.EVENT_WRITE) == (EVENT_READ, EVENT_WRITE) == (1, 2)


def test_a_new_selector_is_of_the_best_kind() -> None:
    selector = new_selector()
    assert "Epoll" in type(selector).__name__
    selector.close()

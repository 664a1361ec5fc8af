"""broker.filter.filter_factory: each text compiled once, within a budget."""

from __future__ import annotations

import subprocess
import sys

import pytest

from broker.filter import filter_factory, selector_parser
from broker.filter.filter_factory import FilterFactory, is_tag_type
from broker.filter.selector import InvalidSelectorError
from broker.filter.selector_parser import compile_selector


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were really compiled."""
    texts: list[str] = []

    def compile_and_note(text: str) -> object:
        texts.append(text)
        return compile_selector(text)

    monkeypatch.setattr(selector_parser, "compile_selector", compile_and_note)
    return texts


@pytest.mark.parametrize(
    ("kind", "is_tag"),
    [(None, True), ("", True), ("TAG", True), ("tag", False), ("SQL92", False), ("JS", False)],
)
def test_tag_types(kind: str | None, is_tag: bool) -> None:
    assert is_tag_type(kind) is is_tag


def test_a_text_is_compiled_once(compiled: list[str]) -> None:
    factory = FilterFactory()
    first = factory.compile("SQL92", "a = 'x'")
    assert factory.compile("SQL92", "a = 'x'") is first
    assert first.matches({"a": "x"})
    assert compiled == ["a = 'x'"]


def test_a_wrong_text_is_compiled_once_and_refused_each_time(compiled: list[str]) -> None:
    factory = FilterFactory()
    errors = []
    for _ in range(2):
        with pytest.raises(InvalidSelectorError) as refused:
            factory.compile("SQL92", "a =")
        errors.append(refused.value)
    assert compiled == ["a ="]
    assert errors[0] is not errors[1]
    assert [str(error) for error in errors] == ["the expression is incomplete"] * 2


@pytest.mark.parametrize("text", [None, ""])
def test_no_text_is_no_expression(text: str | None) -> None:
    with pytest.raises(InvalidSelectorError, match="the expression is incomplete"):
        FilterFactory().compile("SQL92", text)


def test_other_types_are_unknown() -> None:
    with pytest.raises(InvalidSelectorError) as refused:
        FilterFactory().compile("sql92", "a = 5")
    assert str(refused.value) == "unknown filter type sql92, use TAG or SQL92"


def test_what_is_kept_has_a_limit(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_factory, "_CACHED_CHARACTERS", 64 * 3)
    factory = FilterFactory()
    for number in (1, 2, 3, 1, 4, 1):
        factory.compile("SQL92", f"a = {number}")
    assert [text[-1] for text in compiled] == ["1", "2", "3", "4", "1"]


def test_a_text_beyond_the_whole_budget_is_not_kept(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_factory, "_CACHED_CHARACTERS", 100)
    factory = FilterFactory()
    long = "a = 5" + " " * 100
    for text in ("a = 1", long, long, "a = 1"):
        factory.compile("SQL92", text)
    assert compiled == ["a = 1", long, long]


def test_what_compiles_is_there_once_it_is_prepared() -> None:
    """A broker with property filters imports it at its start, not in a turn of its loop."""
    program = (
        "import sys\n"
        "from broker.filter.filter_factory import prepare_to_compile\n"
        "print('lark' in sys.modules)\n"
        "prepare_to_compile()\n"
        "print('lark' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.split() == [b"False", b"True"]

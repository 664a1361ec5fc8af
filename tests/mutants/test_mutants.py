"""Mutants of the product: each is still a change of it, and the checks that it names notice it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutants.mutant import ROOT, Mutant, MutantError, load_mutants
from tests.mutants.mutant_runs import MutantTree, judge_all
from tests.mutants.mutants_document import DOCUMENT, generated
from tests.support.every_row import every_row

MUTANTS = load_mutants()


def a_mutant(**changes: object) -> Mutant:
    standard: dict[str, object] = {
        "name": "m",
        "module": "product.py",
        "old": "a + b",
        "new": "a - b",
        "breaks": "Sums are sums.",
        "checks": ("test_product.py::test_sum",),
    }
    return Mutant(**{**standard, **changes})  # type: ignore[arg-type]


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 30


@every_row("mutant", MUTANTS)
def test_a_patch_applies_once_and_its_checks_are_there(mutant: Mutant) -> None:
    assert mutant.changed(ROOT) != (ROOT / mutant.module).read_text()
    assert mutant.missing_checks(ROOT) == []
    assert mutant.breaks.endswith(".")


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == generated(MUTANTS)


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """A tree with one function, a test that notices its mutant and one that does not."""
    root = tmp_path / "product"
    root.mkdir()
    (root / "product.py").write_text("def total(a: int, b: int) -> int:\n    return a + b\n")
    (root / "test_product.py").write_text(
        "from product import total\n\n\n"
        "def test_sum() -> None:\n    assert total(2, 2) == 4\n\n\n"
        "def test_nothing() -> None:\n    assert total(2, 0) == 2\n\n\n"
        "class TestWithin:\n    def test_it(self) -> None:\n        assert total(1, 1) == 2\n"
    )
    return root


def test_who_notices_and_who_does_not(product: Path, tmp_path: Path) -> None:
    tree = MutantTree(tmp_path / "copy", product)
    before = (product / "product.py").read_bytes()
    mutants = [
        a_mutant(),
        a_mutant(name="unseen", checks=("test_product.py::test_nothing",)),
        a_mutant(name="within", checks=("test_product.py::TestWithin::test_it",)),
        a_mutant(name="no_import", old="def total", new="def other"),
    ]
    outcomes = judge_all(tree, mutants)
    assert {name: found.has_failed for name, found in outcomes.items()} == {
        "m": True,
        "unseen": False,
        "within": True,
        # Nothing was tested: that is no noticing.
        "no_import": False,
    }
    assert (product / "product.py").read_bytes() == before
    assert (tmp_path / "copy" / "product.py").read_bytes() == before


def test_checks_that_fail_anyway_say_nothing(product: Path, tmp_path: Path) -> None:
    path = product / "product.py"
    path.write_text(path.read_text().replace("a + b", "(a + b) * 3"))
    with pytest.raises(MutantError, match="the checks fail without a mutant"):
        judge_all(MutantTree(tmp_path / "copy", product), [a_mutant()])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"old": "c + d"}, "its old text is 0 times in product.py"),
        ({"old": "a"}, r"its old text is \d+ times in product.py, not once"),
        ({"module": "elsewhere.py"}, "elsewhere.py: No such file"),
        ({"new": "a +"}, "product.py would be no Python"),
    ],
)
def test_a_patch_that_does_not_fit(product: Path, changes: dict[str, str], words: str) -> None:
    with pytest.raises(MutantError, match=words):
        a_mutant(**changes).changed(product)


@pytest.mark.parametrize(
    "check",
    [
        *("test_product.py", "test_other.py::test_sum", "test_product.py::test_som"),
        *("test_product.py::TestOther::test_it", "test_product.py::test_it"),
    ],
)
def test_a_check_that_is_none(product: Path, check: str) -> None:
    mutant = a_mutant(checks=(check, "test_product.py::test_sum[7]"))
    assert mutant.missing_checks(product) == [check]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("old = 1 = 2", "m.toml: "),
        ('old = "a"\nnew = "b"\nbreaks = "c."\nchecks = ["d"]\n', "lacks module"),
        (
            'old = "a"\nnew = "a"\nbreaks = "c."\nchecks = ["d"]\nmodule = "m"\n',
            "it changes nothing, or names no check",
        ),
        (
            'old = "a"\nnew = "b"\nbreaks = "c."\nchecks = ["d"]\nmodule = "m"\nfoo = 1\n',
            "foo is unknown",
        ),
    ],
)
def test_a_file_that_is_no_patch(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(MutantError, match=words):
        load_mutants(tmp_path)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_every_mutant_is_noticed(tmp_path: Path, proved: Callable[[str], None]) -> None:
    outcomes = judge_all(MutantTree(tmp_path / "tree"), MUTANTS)
    unseen = {name: found.end for name, found in outcomes.items() if not found.has_failed}
    assert not unseen
    proved(f"{len(outcomes)} mutants of the product were noticed")

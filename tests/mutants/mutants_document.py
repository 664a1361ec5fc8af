"""Writes docs/mutants.md: the mutants of the product, and who has to notice each.

`.venv/bin/python -m tests.mutants.mutants_document`; a test holds that it is up to date.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import ROOT, Mutant, load_mutants

DOCUMENT: Final = ROOT / "docs" / "mutants.md"
_HEAD: Final = """\
# Mutants: judges that can fail

A promise is worth what would be noticed if it were broken. Each row is a change of a few lines of
the product (`tests/mutants/patches`, as data: the module, the text and its replacement), the
promise that it breaks, and the tests that have to fail then. `bin/test` holds that each still
applies and that its tests exist; `bin/test --long` applies them one by one in a temporary copy and
requires exit code 1 of pytest: failed tests, no collection error.

```console
$ .venv/bin/python -m tests.mutants                       # all of them, some minutes
$ .venv/bin/python -m tests.mutants --only delay_is_early
```

Where the last column has options, `bin/mqchaos` with them is a fitting run against the mutant, too
([chaos.md](chaos.md)); which of them its default mix was seen to notice is said there.

<!-- Everything is generated: .venv/bin/python -m tests.mutants.mutants_document -->

| mutant | module | promise that it breaks | noticed by | bin/mqchaos |
|---|---|---|---|---|
"""


def generated(mutants: Sequence[Mutant]) -> str:
    """The whole document."""
    return _HEAD + "".join(map(_row, mutants))


def _row(mutant: Mutant) -> str:
    chaos = f"`{mutant.mqchaos}`" if mutant.mqchaos else ""
    checks = ", ".join(mutant.checks)
    return f"| {mutant.name} | {mutant.module} | {mutant.breaks} | {checks} | {chaos} |\n"


if __name__ == "__main__":
    DOCUMENT.write_text(generated(load_mutants()))

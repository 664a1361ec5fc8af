"""Writes docs/mutants.md: the mutants of the product, and who has to notice each.

`.venv/bin/python -m tests.mutants.mutants_document`; a test holds that it is up to date.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import ROOT, Mutant, load_mutants

DOCUMENT: Final = ROOT / "docs" / "mutants.md"
_HEAD: Final = """\
# Mutants: judges that can fail

A promise is worth what would be noticed if it were broken. Each item is a change of a few lines of
the product (`tests/mutants/patches`, as data: the module, the text and its replacement), the
promise that it breaks, and the tests that have to fail then. `bin/test` holds that each still
applies and that its tests exist; `bin/test --long` applies them one by one in a temporary copy and
requires exit code 1 of pytest: failed tests, no collection error.

```console
$ .venv/bin/python -m tests.mutants                       # all of them, some minutes
$ .venv/bin/python -m tests.mutants --only delay_is_early
```

A line of `bin/mqchaos` below a mutant is a run that suits it
([chaos.md](chaos.md)); which of them its default mix was seen to notice is said there.

<!-- Everything is generated: .venv/bin/python -m tests.mutants.mutants_document -->

"""


def generated(mutants: Sequence[Mutant]) -> str:
    """The whole document."""
    return _HEAD + "".join(map(_item, mutants))


def _item(mutant: Mutant) -> str:
    """One mutant, the promise that it breaks, and a line for each test that notices."""
    text = textwrap.wrap(
        f"**{mutant.name}** ({mutant.module}): {mutant.breaks}",
        100,
        initial_indent="- ",
        subsequent_indent="  ",
        break_on_hyphens=False,
    )
    lines = [*text, *(f"  - {check}" for check in mutant.checks)]
    if mutant.mqchaos:
        lines.append(f"  - `bin/mqchaos {mutant.mqchaos}`")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(generated(load_mutants()))

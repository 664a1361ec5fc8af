"""docs/mqadmin.md tells where RocketMQ's mqadmin prints something else against ours."""

from __future__ import annotations

from pathlib import Path

from tests.interop.admin_differences import ANSWERED, NOTHING_FOR, as_markdown
from tests.interop.admin_steps import BEYOND, PHASES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mqadmin.md"
SECTION = "## Side by side with RocketMQ's mqadmin\n"


def test_the_page_has_these_lists() -> None:
    section = PAGE.read_text(encoding="utf-8").partition(SECTION)[2].partition("\n## ")[0]
    assert section.endswith(f"\n\n{as_markdown()}")


def test_what_only_5_x_has_is_asked_once() -> None:
    asked = [step.command for step in BEYOND.steps]
    assert sorted(asked) == sorted([*NOTHING_FOR, *ANSWERED])
    assert not set(asked) & {step.command for phase in PHASES for step in phase.steps}

"""CheckReport: what the store checker found, as counts, errors and notes.

Pure data for one thread. An error means that the directory is damaged; a note is worth reading
but harmless, or will be put right by the recovery that an `abort` file announces.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_SHOWN: Final = 10


@dataclass(slots=True)
class CheckReport:
    """`unclean`: an abort file is there, so the tail of every file may be unfinished."""

    directory: str
    unclean: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def count(self, what: str, number: int = 1) -> None:
        """Add to a count that the verdict shows."""
        self.counts[what] = self.counts.get(what, 0) + number

    def error(self, text: str) -> None:
        """The store is damaged: `text` says where and what."""
        self.errors.append(text)

    def note(self, text: str) -> None:
        """Worth reading, no damage."""
        self.notes.append(text)

    def unfinished(self, text: str) -> None:
        """Damage in a store that was closed; a note in one that was not."""
        if self.unclean:
            self.note(f"{text} (the abort file is there: recovery will look after it)")
        else:
            self.error(text)

    @property
    def is_clean(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def lines(self) -> list[str]:
        """The verdict for people: counts, notes, the first errors, one last line."""
        counts = ", ".join(f"{number} {what}" for what, number in self.counts.items())
        found = [f"{self.directory}: {counts or 'nothing'}"]
        found += _some("note", self.notes) + _some("ERROR", self.errors)
        verdict = "clean" if self.is_clean else f"DAMAGED, {len(self.errors)} errors"
        return [*found, f"{self.directory}: {verdict}"]


def _some(word: str, texts: list[str]) -> list[str]:
    shown = [f"  {word}: {text}" for text in texts[:_SHOWN]]
    if len(texts) > _SHOWN:
        shown.append(f"  {word}: … and {len(texts) - _SHOWN} more")
    return shown

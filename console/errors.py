"""ConsoleError: why a page or an action cannot be had, in words for its reader. Pure data."""

from __future__ import annotations


class ConsoleError(Exception):
    """The reader gets this sentence, with the status."""

    def __init__(self, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status

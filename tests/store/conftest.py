"""Descriptors of stores that tests leave as a kill would: closed, or a worker has none left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from store.consume_queue_files import ConsumeQueueFiles


@pytest.fixture(autouse=True)
def queue_files_are_closed() -> Iterator[None]:
    made: list[ConsumeQueueFiles] = []
    begin: Callable[..., None] = ConsumeQueueFiles.__init__

    def noted(self: ConsumeQueueFiles, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsumeQueueFiles, "__init__", noted)
        yield
    for each in made:
        ConsumeQueueFiles.close(each)  # A kill writes nothing before.

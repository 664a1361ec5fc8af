"""ConsumeQueueFiles: how many files the writer may keep open."""

from __future__ import annotations

import resource

import pytest

from store.consume_queue_files import writers_open_files


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1_024, 400),
        (2_000, 1_200),
        (20_000, 17_400),
        (655_350, 20_000),
        (resource.RLIM_INFINITY, 20_000),
    ],
)
def test_the_writer_keeps_most_of_its_descriptors_for_queues(
    monkeypatch: pytest.MonkeyPatch, limit: int, expected: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (limit, limit))
    assert writers_open_files() == expected

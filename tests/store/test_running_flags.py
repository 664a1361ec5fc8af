from __future__ import annotations

import pytest

from store.running_flags import RunningFlag, RunningFlags


def test_flags_are_published_and_over_with_their_last_holder(
    caplog: pytest.LogCaptureFixture,
) -> None:
    published: list[tuple[int, str]] = []
    flags = RunningFlags(lambda value, reason: published.append((value, reason)))
    assert flags.set(RunningFlag.DISK_FULL, "91%", by="clean")
    assert not flags.set(RunningFlag.DISK_FULL, "92%", by="clean")
    assert flags.set(RunningFlag.DISK_FULL, "ENOSPC", by="allocate")
    assert flags.is_set(RunningFlag.DISK_FULL)
    assert flags.is_queue_writable
    assert flags.clear(RunningFlag.DISK_FULL, "80%", by="clean")
    assert not flags.clear(RunningFlag.DISK_FULL, "80%", by="clean")
    assert flags.is_set(RunningFlag.DISK_FULL)
    assert flags.clear(RunningFlag.DISK_FULL, "room", by="allocate")
    assert published == [(0, ""), (16, "91%"), (16, "91%; ENOSPC"), (16, "ENOSPC"), (0, "")]
    assert flags.value == 0
    assert caplog.text.count("91%") == 1
    assert "92%" not in caplog.text


@pytest.mark.parametrize(
    ("flag", "queues_go_on"),
    [
        (RunningFlag.NOT_READABLE, True),
        (RunningFlag.NOT_WRITABLE, False),
        (RunningFlag.WRITE_LOGICS_QUEUE_ERROR, False),
        (RunningFlag.WRITE_INDEX_FILE_ERROR, False),
        (RunningFlag.DISK_FULL, True),
    ],
)
def test_which_reasons_stop_the_queues(flag: RunningFlag, queues_go_on: bool) -> None:
    flags = RunningFlags(lambda value, reason: None)
    flags.set(flag, "test", by="test")
    assert flags.is_queue_writable is queues_go_on

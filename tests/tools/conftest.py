"""Fixtures of the operator's tools: a fake cluster and mqadmin in front of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.fake_cluster import FakeCluster, running_cluster
from tests.tools.mqadmin_bench import Bench


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """The golden cluster, played by one server."""
    with running_cluster() as running:
        yield running


@pytest.fixture
def mqadmin(
    cluster: FakeCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Bench]:
    """mqadmin in UTC, as the golden outputs; bodies of messages go to tmp_path."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield Bench(cluster, capsys)
    monkeypatch.undo()
    time.tzset()

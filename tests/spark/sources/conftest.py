"""Fixtures of the sources: a fake cluster with records as brokers store them, and our client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark.sources.cluster import Cluster
from spark.sources.options import Connection
from tests.spark.sources.fake_queues import FakeQueues
from tests.tools.fake_cluster import FakeCluster, running_cluster


@pytest.fixture
def server() -> Iterator[FakeCluster]:
    """The name server, and the broker broker-g."""
    with running_cluster() as running:
        yield running


@pytest.fixture
def stored(server: FakeCluster) -> FakeQueues:
    """A cluster with no topic yet."""
    return FakeQueues(server)


@pytest.fixture
def client(server: FakeCluster) -> Iterator[Cluster]:
    """Ours; it does not wait between two tries."""
    with Cluster(Connection((server.address,), timeout_ms=2_000, retry_ms=300)) as cluster:
        yield cluster

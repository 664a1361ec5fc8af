"""A master and a slave that are not started yet, and a relay between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_group import Group
from tools.chaos.relay import Relay


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with Group(tmp_path).running() as found:
        yield found


@pytest.fixture
def relay(group: Group) -> Iterator[Relay]:
    """To the master's HA port."""
    relay = Relay(("127.0.0.1", int(str(group.first.settings["listenPort"])) + 1), 1)
    yield relay
    relay.close()

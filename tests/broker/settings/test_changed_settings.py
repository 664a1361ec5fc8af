"""broker.settings.changed_settings: a started-again process sees what was changed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from broker.settings.changed_settings import ChangedSettings


@pytest.fixture
def fd() -> Iterator[int]:
    fd = ChangedSettings.create()
    yield fd
    os.close(fd)


def test_nothing_was_changed(fd: int) -> None:
    assert ChangedSettings(fd).read() == {}


def test_the_last_table_counts(fd: int) -> None:
    writer, reader = ChangedSettings(fd), ChangedSettings(os.dup(fd))
    long = {"deleteWhen": "04;16", "brokerPermission": "4"}
    writer.write(long)
    assert reader.read() == long
    writer.write({"brokerPermission": "6"})
    assert reader.read() == {"brokerPermission": "6"}

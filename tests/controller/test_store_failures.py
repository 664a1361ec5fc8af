"""A disk that fails at any step of a write.

Nothing is answered that is not stored, nothing that was stored is lost, and it goes on by itself.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import controller.controller_service as service_module
from controller.embedded_store import EmbeddedStore
from controller.events import Stored, Swap
from controller.group_state import GroupState, Replica
from tests.controller.controller_peer import Peer, running

GROUP = {"clusterName": "C", "brokerName": "b"}
ONE = GroupState("C", "b").with_replica(1, Replica("127.0.0.1:1", "127.0.0.1:1;1"))
TWO = ONE.with_replica(2, Replica("127.0.0.1:2", "127.0.0.1:2;1"))
STEPS = [("open", 1), ("open", 2), ("fsync", 1), ("fsync", 2), ("link", 1), ("replace", 1)]
STEPS += [("replace", 2)]
"""A function of os and the call of it, of one write, that fails."""


class Failing:
    """Lets calls of an os function fail: from the given one on, so many."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, first: int, count: int) -> None:
        self._real: Callable[..., Any] = getattr(os, name)
        self._until_first, self.left = first - 1, count
        self._name, self._patch = name, patch
        patch.setattr(f"conf.atomic_file.os.{name}", self)

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        if self._until_first > 0:
            self._until_first -= 1
        elif self.left > 0:
            self.left -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._real(*arguments, **more)


def read(directory: Path, copy: Path) -> dict[str, Stored]:
    """What a start would find there now, as after a kill."""
    shutil.copytree(directory, copy)
    store = EmbeddedStore(copy)
    try:
        return store.open()
    finally:
        store.close()


@pytest.mark.parametrize(("name", "first"), STEPS)
def test_a_kill_at_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, name: str, first: int
) -> None:
    directory = tmp_path / "store"
    store = EmbeddedStore(directory)
    store.open()
    store.swap(Swap("b", 1, 0, 1, ONE))
    with pytest.MonkeyPatch.context() as patch:
        Failing(patch, name, first, 1)
        with pytest.raises(OSError, match="No space"):
            store.swap(Swap("b", 2, 1, 1, TWO))
    found = read(directory, tmp_path / "copy")["b"]
    assert found in (Stored(1, ONE), Stored(2, TWO))
    assert store.load("b") == found, "the running one knows it as well"
    store.close()


@pytest.mark.parametrize(("name", "first"), STEPS)
def test_what_is_answered_is_stored(tmp_path: Path, name: str, first: int) -> None:
    """Two attempts fail; then the disk has room again."""
    with (
        pytest.MonkeyPatch.context() as patch,
        running(tmp_path) as port,
        Peer(port) as peer,
        Peer(port) as other,
    ):
        patch.setattr(service_module, "_RETRY_S", 0.01)
        for number in (1, 2):
            address = f"127.0.0.1:{number}"
            if number == 2:
                failing = Failing(patch, name, first, 2)
            apply = {**GROUP, "appliedBrokerId": number, "registerCheckCode": f"{address};1"}
            asked = peer.post(1013, apply)
            assert other.call(1005, {}).code == 0
            assert peer.take(asked).code == 0
            group = read(tmp_path / "store", tmp_path / f"copy{number}")["b"].group
            assert group is not None
            assert group.replicas[number].address == address
        assert failing.left == 0

"""Consume queues, index and checkpoint of a real broker, damaged each alone and together.

All three are derived from the log: whatever their bytes are, the offsets of before are served, and
keys are found. Missing ones: test_killed_processes.py; single units of queues:
test_damaged_queues.py. A flipped bit in an entry of the index is not found: it has no checksum.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.ledger import (
    Ledger,
    Senders,
    assert_keys_found,
    assert_nothing_lost,
    assert_stops_clean,
)
from tests.support.our_broker import OurBroker

pytestmark = [pytest.mark.slow]

DERIVED = ("consumequeue", "index", "checkpoint")


def zeros(data: bytes) -> bytes:
    return bytes(len(data))


def garbage(data: bytes) -> bytes:
    return random.Random(len(data)).randbytes(len(data))


def empty(_data: bytes) -> bytes:
    return b""


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2 + 3]


DAMAGES = (zeros, garbage, empty, cut)


def damage(broker: OurBroker, name: str, change: Callable[[bytes], bytes]) -> None:
    path = broker.store_dir / name
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            file.write_bytes(change(file.read_bytes()))


SETS = [*((name,) for name in DERIVED), DERIVED]
SHORT = [(garbage, DERIVED)]


@pytest.mark.fault(26)
@pytest.mark.parametrize(
    "crashed", [True, pytest.param(False, marks=pytest.mark.long)], ids=["crashed", "stopped"]
)
@pytest.mark.parametrize(
    ("change", "names"),
    [
        pytest.param(
            change,
            names,
            id=f"{change.__name__}-{'+'.join(names)}",
            marks=() if (change, names) in SHORT else pytest.mark.long,
        )
        for change in DAMAGES
        for names in SETS
    ],
)
def test_derived_files_are_built_again(
    tmp_path: Path, names: tuple[str, ...], change: Callable[[bytes], bytes], crashed: bool
) -> None:
    ledger = Ledger()
    with OurBroker(tmp_path).start() as broker:
        with Senders(broker, ledger):
            ledger.wait_for_more(800)
        if crashed:
            broker.crash()
        else:
            assert_stops_clean(broker)
        for name in names:
            damage(broker, name, change)
        broker.start()
        with Senders(broker, ledger):
            ledger.wait_for_more(50)
        assert_nothing_lost(broker, ledger)
        assert_keys_found(broker, ledger)
        assert_stops_clean(broker)

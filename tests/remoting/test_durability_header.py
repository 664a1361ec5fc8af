from __future__ import annotations

import pytest

from remoting.headers.durability import (
    Durability,
    ask_for_durability,
    asks_for_durability,
    durability_fields,
    read_durability,
)

MEMORY, FLUSHED, REPLICATED, REPLICA_FLUSHED = Durability


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, None),
        ({"durability": "MEMORY"}, MEMORY),
        ({"durability": "MEMORY, FLUSHED"}, MEMORY | FLUSHED),
        ({"durability": "REPLICA_FLUSHED,OF_A_LATER_VERSION"}, REPLICA_FLUSHED),
        ({"durability": ""}, Durability(0)),
    ],
)
def test_reading(fields: dict[str, str], found: Durability | None) -> None:
    assert read_durability(fields) == found


def test_writing() -> None:
    assert durability_fields(MEMORY | FLUSHED, 2) == {"durability": "MEMORY,FLUSHED"}
    assert durability_fields(MEMORY | REPLICATED, 2) == {
        "durability": "MEMORY,REPLICATED",
        "replicas": "2",
    }


def test_asking() -> None:
    assert ask_for_durability() == {"reportDurability": "true"}
    assert asks_for_durability(ask_for_durability())
    assert not asks_for_durability({})

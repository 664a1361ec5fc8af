"""The broker of the golden frames of admin requests."""

from __future__ import annotations

from pathlib import Path

from tests.broker.processor_world import World

NEWEST = {0: 1795177732730, 1: 1795177733668, 2: 1795177737677, 3: 1795177742683}


def golden_world(tmp_path: Path) -> World:
    """GTopic and GTxTopic as they stood when Java was asked."""
    world = World(tmp_path)
    world.topic("GTopic", 4)
    world.topic("GTxTopic", 4)
    world.topic("%RETRY%G_group", 1)
    world.topic("%RETRY%G_orderly_group", 1)
    for queue_id, count in ((0, 6), (1, 4), (2, 14), (3, 6)):
        world.store.fill("GTopic", queue_id, count, NEWEST[queue_id])
    world.store.fill("GTxTopic", 0, 1, 1795177734281)
    world.store.fill("GTxTopic", 2, 1, 1795177737740)
    for group in ("G_group", "G_orderly_group"):
        world.commit(group, "GTopic", 6, 4, 14, 6)
        world.commit(group, f"%RETRY%{group}", 0)
    world.commit("G_group", "GTxTopic", 1, 0, 1, 0)
    return world

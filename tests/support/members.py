"""Which brokers of a group a controller knows, by its answer to 1006."""

from __future__ import annotations

from remoting.body.controller import ReplicasInfo


def ids_in_sync(info: ReplicasInfo | None) -> set[int | None]:
    """The SyncStateSet; empty without an answer."""
    return set() if info is None else {one.broker_id for one in info.in_sync_replicas}


def known_ids(info: ReplicasInfo | None) -> set[int | None]:
    """All that have an id, in the set or not."""
    outside = () if info is None else info.not_in_sync_replicas
    return ids_in_sync(info) | {one.broker_id for one in outside}

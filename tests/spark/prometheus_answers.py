"""Answers of a Prometheus server for tests, built by hand: one target, one value at a time.

answer = Answer(step_s=15)
answer.broker("h:5557", moments)              # a master with everything that a line needs
answer.set("rocketmq_ready", {moment: 0}, instance="h:5557")
paths = answer.write(tmp_path / "a.json")
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

T0 = 1_773_100_800
"""2026-03-10 00:00 UTC, seconds."""
BASE = {"cluster": "c", "node_type": "broker", "node_id": "b", "job": "mq"}


def grid(count: int, step_s: int = 15, start_s: int = T0) -> list[int]:
    return [start_s + i * step_s for i in range(count)]


class Answer:
    """Series by labels; `set` adds and replaces values."""

    def __init__(self) -> None:
        self.series: dict[tuple[tuple[str, str], ...], dict[float, Any]] = {}

    def set(self, name: str, values: Mapping[int, Any], **labels: str) -> None:
        key = tuple(sorted({"__name__": name, **BASE, "instance": "h:5557", **labels}.items()))
        self.series.setdefault(key, {}).update(values)

    def flat(self, name: str, moments: Iterable[int], value: float, **labels: str) -> None:
        self.set(name, dict.fromkeys(moments, value), **labels)

    def broker(self, moments: list[int], *, start_s: float | None = None, **labels: str) -> None:
        """What master and slave both show. `start_s`: of the process."""
        self.flat("rocketmq_ready", moments, 1, **labels)
        self.set("rocketmq_scraped_at", {t: t - 2.25 for t in moments}, **labels)
        for kind, value in {"min": 0, "max": 1000, "replicated": 900}.items():
            self.flat("rocketmq_store_offset_bytes", moments, value, kind=kind, **labels)
        for process in ("store", "ha"):
            self.flat("rocketmq_process_up", moments, 1, process=process, **labels)
            self.flat("rocketmq_process_restarts_total", moments, 0, process=process, **labels)
        if start_s is not None:
            self.flat("process_start_time_seconds", moments, start_s, **labels)

    def master(self, moments: list[int], *, start_s: float | None = None, **labels: str) -> None:
        """A broker with one replica `b:1` that is in sync."""
        self.broker(moments, start_s=start_s, **labels)
        self.flat("rocketmq_ha_unreplicated_bytes", moments, 100, **labels)
        self.flat("rocketmq_ha_oldest_unreplicated_seconds", moments, 0.25, **labels)
        replica = {"replica": "b:1", "role": "SYNC_MASTER", **labels}
        for name, value in {
            "replica_connected": 1,
            "replica_in_sync": 1,
            "ack_offset_bytes": 900,
            "replica_lag_bytes": 100,
            "replica_lag_seconds": 0.25,
            "replica_lag_exact": 1,
        }.items():
            self.flat(f"rocketmq_ha_{name}", moments, value, **replica)
        for state in ("in_sync", "catching_up", "disconnected"):
            values = {t: float(t - moments[0]) if state == "in_sync" else 0.0 for t in moments}
            self.set(
                "rocketmq_ha_state_seconds_total", values, replica="b:1", state=state, **labels
            )

    def slave(self, moments: list[int], instance: str) -> None:
        """Its metadata is 1.5 s old, but for the topics, which it never got."""
        self.broker(moments, instance=instance)
        self.flat("rocketmq_ha_client_connected", moments, 1, instance=instance)
        self.flat(
            "rocketmq_slave_sync_age_seconds",
            moments,
            1.5,
            kind="consumer_offsets",
            instance=instance,
        )
        for kind in ("topics", "consumer_offsets"):
            self.flat(
                "rocketmq_slave_sync_failures_total", moments, 2, kind=kind, instance=instance
            )

    def drop(self, *names: str) -> None:
        """Removes every series of these metrics."""
        self.series = {
            key: points for key, points in self.series.items() if dict(key)["__name__"] not in names
        }

    def cut(self, moments: Iterable[int]) -> None:
        """Removes all values at these moments."""
        for points in self.series.values():
            for moment in moments:
                points.pop(moment, None)

    def json(self) -> dict[str, Any]:
        result = [
            {
                "metric": dict(key),
                "values": [
                    [t, v if isinstance(v, str) else f"{v:.17g}"] for t, v in sorted(points.items())
                ],
            }
            for key, points in self.series.items()
            if points
        ]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(self.json()), encoding="utf-8")
        return path

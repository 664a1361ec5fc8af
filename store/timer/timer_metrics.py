"""TimerMetrics: how many timers wait for each topic, as the file `config/timermetrics` says it.

Counted by process `store`, which sees units come and slots pass; the file is what tools, Java and
code 61 read. Recalls count -1. Corresponds to RocketMQ's TimerMetrics.

    {"dataVersion":{"counter":n,"stateVersion":0,"timestamp":ms},
     "timingCount":{topic:{"count":n,"timeStamp":ms}}}
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from store.errors import DiskFullError
from store.mapped_file import NO_SPACE, make_directory

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TopicMetric:
    """Waiting timers of one topic, and when (wall clock ms) the count was changed last."""

    count: int
    timestamp_ms: int


@dataclass(slots=True)
class TimerMetrics:
    """The table. Not thread-safe: it belongs to whoever made it."""

    topics: dict[str, TopicMetric] = field(default_factory=dict)
    counter: int = 0
    state_version: int = 0
    timestamp_ms: int = 0

    def add(self, topic: str, change: int, now_ms: int) -> None:
        """A timer of `topic` came (+1), or was delivered or recalled (-1)."""
        found = self.topics.get(topic)
        if found is None:
            self.topics[topic] = TopicMetric(change, now_ms)
        else:
            found.count += change
            found.timestamp_ms = now_ms
        self.counter += 1
        self.timestamp_ms = now_ms

    def encode(self) -> bytes:
        """The file, and the body of code 61."""
        version = {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp_ms,
        }
        counts = {
            topic: {"count": found.count, "timeStamp": found.timestamp_ms}
            for topic, found in self.topics.items()
        }
        text = json.dumps({"dataVersion": version, "timingCount": counts}, separators=(",", ":"))
        return text.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises ValueError."""
        try:
            found = json.loads(data)
            version = found.get("dataVersion") or {}
            topics = {
                topic: TopicMetric(int(each["count"]), int(each.get("timeStamp") or 0))
                for topic, each in (found.get("timingCount") or {}).items()
            }
            numbers = [int(version.get(key) or 0) for key in _VERSION]
        except (AttributeError, KeyError, OverflowError, TypeError) as error:
            raise ValueError(f"timer metrics: {error!r}") from error
        return cls(topics, *numbers)


_VERSION = ("counter", "stateVersion", "timestamp")


def load_timer_metrics(path: Path) -> TimerMetrics:
    """The file; empty when it is missing or unreadable, which is logged."""
    try:
        return TimerMetrics.decode(path.read_bytes())
    except FileNotFoundError:
        return TimerMetrics()
    except (OSError, ValueError) as error:
        log.warning("%s: ignored, recounting timers: %s", path, error)
        return TimerMetrics()


def write_timer_metrics(path: Path, metrics: TimerMetrics) -> None:
    """Replace the file. Not flushed: after a power cut it is counted anew. Raises DiskFullError,
    OSError."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        make_directory(path.parent)
        temporary.write_bytes(metrics.encode())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise DiskFullError(f"{path}: {error.strerror}") from error
        raise

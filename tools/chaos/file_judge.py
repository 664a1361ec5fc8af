"""What the files of a group say: the tables while its brokers run, since a kill may come at any
moment, and, once they have stopped, equal logs and whole stores. Any thread."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.chaos import checks
from tools.chaos.scratch_group import ScratchBroker, ScratchGroup


def table_violations(group: ScratchGroup, topics: Sequence[str]) -> list[str]:
    """topics: those that were used all the time. Raises OSError."""
    found = []
    for broker in group.brokers:
        saved = _saved_topics(broker)
        missing = [topic for topic in topics if topic not in saved]
        found += [f"{broker.name}: topic {topic} is not in its table's file" for topic in missing]
    return found


def file_violations(group: ScratchGroup) -> list[str]:
    """Of brokers that have ended. Raises OSError."""
    found = []
    for slave in group.slaves:
        found += checks.no_prefix_of_files(group.master.log_files(), slave.log_files())
    for broker in group.brokers:
        found += _store_check(broker)
    return found


def _saved_topics(broker: ScratchBroker) -> set[str]:
    try:
        text = (broker.store / "config" / "topics.json").read_text()
    except FileNotFoundError:
        return set()
    return set(json.loads(text).get("topicConfigTable", {}))


def _store_check(broker: ScratchBroker) -> list[str]:
    command = [sys.executable, "-m", "store.check", str(broker.store), "--hash-slots", "10000"]
    root = Path(__file__).parents[2]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    if checked.returncode == 0:
        return []
    return [f"store.check of {broker.name}: {checked.stdout[-500:]}"]

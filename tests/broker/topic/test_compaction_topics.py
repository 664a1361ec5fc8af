"""Which topics are compaction topics, by topics.json as process `store` reads it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from broker.topic.compaction_topics import CompactionTopics


def write(path: Path, **topics: str | None) -> None:
    table = {
        name: {"topicName": name, "attributes": policy and {"cleanup.policy": policy}}
        for name, policy in topics.items()
    }
    text = json.dumps({"dataVersion": {}, "topicConfigTable": table})
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    os.replace(temporary, path)


def test_topics_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    topics = CompactionTopics(path)
    assert topics.find() == set()
    write(path, A="COMPACTION", B="DELETE", C=None)
    assert topics.find() == {"A"}
    assert topics.find() is topics.find()
    write(path, B="COMPACTION", C="COMPACTION")
    assert topics.find() == {"B", "C"}
    write(path, C=None)
    assert topics.find() == set()


@pytest.mark.parametrize("text", [b"", b"\0\0", b'{"COMPACTION', b"[]COMPACTION"])
def test_a_file_that_cannot_be_read(tmp_path: Path, text: bytes) -> None:
    """Its copy counts; without one, what was known."""
    path = tmp_path / "topics.json"
    write(path, A="COMPACTION")
    topics = CompactionTopics(path)
    assert topics.find() == {"A"}
    path.write_bytes(text)
    assert topics.find() == {"A"}
    write(tmp_path / "topics.json.bak", B="COMPACTION")
    path.write_bytes(text + b" ")
    assert topics.find() == {"B"}

"""The parent topic of lite topics, and groups bound to it, as operators make them: for tests and
benches of ours and Java's brokers."""

from __future__ import annotations

import json
from typing import Any

from tests.support.our_broker import FrameClient


def parent_fields(topic: str, **attributes: str) -> dict[str, Any]:
    """Of 17; a dot in an attribute's name is written as two underscores."""
    own = {key.replace("__", "."): value for key, value in attributes.items()}
    pairs = {"message.type": "LITE", **own}
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        "attributes": ",".join(f"+{key}={value}" for key, value in pairs.items()),
    }


def group_body(group: str, topic: str, attributes: dict[str, str] | None = None) -> dict[str, Any]:
    """Of 200: a group of this parent."""
    pairs = {"lite.bind.topic": topic, **(attributes or {})}
    return {"groupName": group, "attributes": {f"+{key}": value for key, value in pairs.items()}}


def make_parent(frames: FrameClient, topic: str, **attributes: str) -> None:
    """See parent_fields."""
    answer = frames.call(17, parent_fields(topic, **attributes))
    assert answer.code == 0, answer.remark


def make_group(
    frames: FrameClient, group: str, topic: str, attributes: dict[str, str] | None = None
) -> None:
    """See group_body."""
    body = json.dumps(group_body(group, topic, attributes)).encode()
    answer = frames.call(200, {}, body)
    assert answer.code == 0, answer.remark

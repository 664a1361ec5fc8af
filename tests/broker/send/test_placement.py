"""Placement: which delayed and half messages take the fast path. That it stores the same as the
general path is in tests/broker/test_twins.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remoting.remoting_command import RemotingCommand
from remoting.request_processor import ConnectionLike
from tests.broker.hot_path_world import Client, HotPathWorld, send_request
from tests.remoting.golden_frames import GOLDEN, GoldenFrame

HALF = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U\x02WAIT\x01true"
DELAYED = "KEYS\x01k\x02UNIQ_KEY\x01U\x02WAIT\x01true\x02DELAY\x013"


def world_of(root: Path, **kinds: Any) -> HotPathWorld:
    """A world whose fast path knows its topic and the half topic."""
    world = HotPathWorld(root, **{"file_size": 1 << 20, **kinds})
    world.topic()
    client = world.client("10.1.2.3", 4710)
    for text in ("", HALF):
        client.send(send_request(properties=text))
        world.turn()
    return world


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "text", [HALF, DELAYED, DELAYED + "\x02", "DELAY\x0118", "TRAN_MSG\x01true"]
)
@pytest.mark.parametrize("flags", [0, 1])
def test_the_fast_path_is_really_taken(tmp_path: Path, text: str, flags: int) -> None:
    """Else the comparison above compares nothing."""
    world = world_of(tmp_path)
    count = len(world.records())
    forbid_general(world)
    sys_flag = flags | (4 if "TRAN" in text else 0)
    answer = world.client().call(send_request(properties=text, sys_flag=sys_flag, queue_id=2))
    assert (answer.code, answer.ext_fields["queueId"]) == (0, "2")
    assert len(world.records()) == count + 1
    assert world.records()[-1].sys_flag == flags


@pytest.mark.interpreted
@pytest.mark.parametrize("number", [8, 9, 10])
def test_golden_half_messages_take_it(tmp_path: Path, number: int) -> None:
    """Those of a Java client; what the general path stores of them is compared with Java's log."""
    world = HotPathWorld(tmp_path)
    path = GOLDEN / "wire-json" / "310-SEND_MESSAGE_V2" / f"{number:02d}.req.bin"
    frame = GoldenFrame(path, "request").frame
    client = world.client("10.1.2.3", 4711)
    first = client.call(frame)
    forbid_general(world)
    second = client.call(frame)
    stored, again = world.records()
    assert again == replace(stored, phy_offset=again.phy_offset, queue_offset=1)
    assert second.ext_fields.keys() == first.ext_fields.keys()
    assert second.ext_fields["queueOffset"] == "1"


def forbid_general(world: HotPathWorld) -> None:
    def refuse(connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand | None:
        pytest.fail("the general path was taken")

    world.send_processor.process_request = refuse  # type: ignore[method-assign]


def general_calls(world: HotPathWorld, client: Client, text: str) -> int:
    """How often the general path serves one send with these properties."""
    calls = []
    ordinary = world.send_processor._serve

    def serve(*args: Any) -> RemotingCommand | None:
        calls.append(args)
        return ordinary(*args)

    world.send_processor._serve = serve  # type: ignore[method-assign]
    try:
        assert client.call(send_request(properties=text)).code == 0
    finally:
        world.send_processor._serve = ordinary  # type: ignore[method-assign]
    return len(calls)


@pytest.mark.interpreted
def test_the_half_topic_is_made_and_announced_on_the_general_path(tmp_path: Path) -> None:
    """As after each change of topics: it may be gone."""
    world = HotPathWorld(tmp_path)
    world.topic()
    client = world.client()
    assert client.call(send_request()).code == 0
    assert [general_calls(world, client, HALF) for _ in range(3)] == [1, 0, 0]
    world.send_processor.on_topics_changed()
    assert client.call(send_request()).code == 0
    assert [general_calls(world, client, HALF) for _ in range(3)] == [1, 0, 0]


def test_each_level_is_counted_for_its_queue(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    client = world.client()
    before = world.log.position
    for level in (3, 3, 18):
        client.send(send_request(properties=f"DELAY\x01{level}"))
    size = (world.log.position - before) // 3
    world.turn()
    assert [answer.code for answer in client.answers()] == [0, 0, 0]
    assert sorted(world.stats.queue_puts) == [
        ("SCHEDULE_TOPIC_XXXX", 2, 2 * size),
        ("SCHEDULE_TOPIC_XXXX", 17, size + 1),
    ]

"""tools.chaos.table_load: what a broker does not know any more of tables that were changed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remoting.request_code import RequestCode as Code
from tools.chaos import table_load
from tools.chaos.table_load import TableChanges

SET = {
    Code.UPDATE_AND_CREATE_TOPIC: "topics",
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: "groups",
    Code.SET_MESSAGE_REQUEST_MODE: "modes",
}


class Broker:
    """What is set and asked for, by code; a FrameClient to it."""

    def __init__(self) -> None:
        self.topics: dict[str, Any] = {}
        self.groups: dict[str, Any] = {}
        self.modes: dict[str, Any] = {}
        self.delays = {"3": 0}
        self.refuses: set[str] = set()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, code: int, fields: dict[str, Any], body: bytes = b"") -> Any:
        asked = json.loads(body) if body else fields
        name = SET.get(Code(code), "")
        if name in self.refuses:
            return SimpleNamespace(code=1, remark="refused", body=b"")
        if name == "topics":
            numbers = ("readQueueNums", "writeQueueNums", "perm")
            self.topics[asked["topic"]] = {key: asked[key] for key in numbers}
        elif name == "groups":
            self.groups[asked["groupName"]] = asked
        elif name == "modes":
            self.modes[asked["topic"]] = {asked["consumerGroup"]: asked}
        answers = {
            Code.GET_ALL_TOPIC_CONFIG: {"topicConfigTable": self.topics},
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {"subscriptionGroupTable": self.groups},
            Code.GET_ALL_MESSAGE_REQUEST_MODE: {"messageRequestModeMap": self.modes},
        }
        answer = answers.get(Code(code))
        text = json.dumps(answer).encode()
        if code == Code.GET_ALL_DELAY_OFFSET:
            text = b'{"offsetTable":{%s}}' % b",".join(
                b"%s:%d" % (level.encode(), offset) for level, offset in self.delays.items()
            )
        return SimpleNamespace(code=0, remark=None, body=text)


class World:
    """A load, its broker, and the clock: a second a step."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.load = TableChanges(lambda: ("127.0.0.1", 1), 1)
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.now_s += 1.0
            self.load.step(self.broker)  # type: ignore[arg-type]

    def lacks(self, as_of_s: float) -> list[str]:
        return self.load.violations_of(("127.0.0.1", 1), as_of_s, "it")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(table_load, "FrameClient", lambda *_: found.broker)
    monkeypatch.setattr(table_load, "time", SimpleNamespace(monotonic=found.monotonic))
    return found


def test_what_was_set_is_known(world: World) -> None:
    world.steps(30)
    assert world.lacks(30.0) == []


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("topics", "it knows nothing of it, topic ChaosTable0 was last set to "),
        ("groups", "it knows nothing of it, consumer group ChaosTable0 was last set to "),
        ("modes", "it knows nothing of it, mode of requests of ChaosTable0 was last set to "),
    ],
)
def test_a_table_that_is_gone(world: World, table: str, said: str) -> None:
    world.steps(9)
    setattr(world.broker, table, {})
    found = world.lacks(9.0)
    assert len(found) == 3
    assert found[0].startswith(said)


def test_a_topic_made_anew_with_other_numbers(world: World) -> None:
    world.steps(9)
    world.broker.topics["ChaosTable1"] = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    (found,) = world.lacks(9.0)
    assert found.startswith("it knows (4, 4, 6), topic ChaosTable1 was last set to (5, 1, 4)")


def test_old_values_are_known_too_late_only(world: World) -> None:
    """What was changed after the time that is asked for may be missing, what was before may not."""
    world.steps(9)
    old = dict(world.broker.topics)
    world.steps(9)
    world.broker.topics = old
    assert world.lacks(9.5) == []
    assert len(world.lacks(18.0)) == 3


def test_what_was_refused_or_not_answered_may_be_known_or_not(world: World) -> None:
    world.steps(9)
    world.broker.refuses = {"topics", "groups", "modes"}
    world.steps(9)
    assert world.lacks(18.0) == []
    world.broker.refuses.clear()
    call = world.broker.call

    def loses_the_answer(code: int, fields: dict[str, Any], body: bytes = b"") -> Any:
        call(code, fields, body)
        raise ConnectionResetError

    world.broker.call = loses_the_answer  # type: ignore[method-assign]
    for _ in range(9):
        with pytest.raises(ConnectionResetError):
            world.steps(1)
    world.broker.call = call  # type: ignore[method-assign]
    assert world.lacks(27.0) == []


def test_a_lost_master_promised_nothing_of_the_last_seconds(world: World) -> None:
    world.steps(9)
    old = dict(world.broker.groups)
    world.steps(9)
    world.broker.groups = old
    world.load.forget_since(9.5)
    assert world.lacks(18.0) == []
    world.broker.groups = {}
    assert len(world.lacks(18.0)) == 3


def test_each_is_changed_once_more_at_the_end(world: World) -> None:
    world.steps(3)
    old = dict(world.broker.topics)
    world.load.finish()
    assert world.lacks(3.0) == world.load.violations == []
    world.broker.topics = old
    assert len(world.lacks(3.0)) == 3
    world.broker.refuses = {"groups"}
    world.load.finish()
    assert world.load.violations == ["a change of a table was refused after the faults"]


def test_delay_offsets_of_a_file(world: World, tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    world.steps(2)
    world.broker.delays["3"] = 7
    world.steps(2)
    world.broker.delays["3"] = 9
    world.steps(1)

    def found(as_of_s: float) -> list[str]:
        return world.load.delay_violations(path, as_of_s, "slave")

    assert found(2.5) == []
    assert found(4.5) == [
        "slave has delay offset 0 of level 3 in its file, the master had 7 in good time"
    ]
    path.write_text('{\n\t"offsetTable":{3:7\n\t}\n}')
    assert found(4.5) == []
    assert len(found(5.5)) == 1
    # A master that goes back, as after a power cut, is followed.
    world.broker.delays["3"] = 5
    world.steps(1)
    path.write_text('{"offsetTable":{3:5}}')
    assert found(5.5) == []

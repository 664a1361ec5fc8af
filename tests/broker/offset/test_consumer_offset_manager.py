"""broker.offset.consumer_offset_manager: commits, queries, clean-up, the exact file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.json_config_manager import ConfigFileError
from broker.offset.consumer_offset_manager import (
    ConsumerOffsetManager,
    merged_offset,
    parse_offset_table,
)
from broker.offset.lmq_consumer_offset_manager import LmqConsumerOffsetManager
from broker.wiring.broker_tables import OWN_GROUPS
from remoting.errors import RequestError
from tests.broker.broker_fakes import GOLDEN_CONFIG, golden, json_of


def manager_of(tmp_path: Path) -> ConsumerOffsetManager:
    manager = ConsumerOffsetManager(tmp_path / "consumerOffset.json")
    manager.load()
    return manager


def commit(manager: ConsumerOffsetManager, group: str, topic: str, *offsets: int) -> None:
    for queue_id, offset in enumerate(offsets):
        manager.commit_offset("10.0.0.1:1", group, topic, queue_id, offset)


def test_commit_and_query(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = manager_of(tmp_path)
    assert manager.query_offset("g", "t", 0) is None
    commit(manager, "g", "t", 5, 7)
    assert manager.query_offset("g", "t", 1) == 7
    assert manager.query_offset("g", "t", 2) is None
    assert manager.query_offset("other", "t", 0) is None
    assert "below the stored" not in caplog.text
    commit(manager, "g", "t", 3)
    assert manager.query_offset("g", "t", 0) == 3, "taken as sent"
    assert "group g: 10.0.0.1:1 committed t@0 offset 3 below the stored 5" in caplog.text
    assert manager.query_offsets("g", "t") == {0: 3, 1: 7}


def test_what_is_committed_is_saved(tmp_path: Path) -> None:
    """Also one that goes back, and one that somebody resets; what has not changed is not written
    again."""
    manager = manager_of(tmp_path)
    for offset in (5, 7, 3):
        commit(manager, "g", "t", offset)
        assert manager.save_if_changed()
        assert manager_of(tmp_path).query_offset("g", "t", 0) == offset
    manager.assign_reset_offset("10.0.0.1:1", "g", "t", 0, 1)
    assert manager.save_if_changed()
    assert manager_of(tmp_path).query_offset("g", "t", 0) == 1
    manager.path.unlink()
    assert manager.save_if_changed()
    assert not manager.path.exists()


def test_who_hears_that_an_offset_was_set_back(tmp_path: Path) -> None:
    """Pops (their journal said otherwise after a kill), and who counts how long groups lag: of the
    same, whoever did it."""
    manager, table = manager_of(tmp_path), {"t@g": {0: 2, 1: 2}}
    heard: list[tuple[str, int]] = []
    manager.set_backs.hear = lambda key, queue_id: heard.append((key, queue_id))
    manager.set_backs.watch(["t@g"])

    def told(count: int = 1) -> list[tuple[str, int]]:
        assert manager.set_backs.of("t@g") == count
        manager.set_backs.watch([])
        manager.set_backs.watch(["t@g"])
        last = sorted(each for each in heard if each[0] == "t@g")
        heard.clear()
        return last

    commit(manager, "g", "t", 5, 7)
    commit(manager, "g", "t", 6, 8)
    assert told(0) == []
    commit(manager, "g", "t", 6, 3)
    assert told() == [("t@g", 1)]
    manager.assign_reset_offset("10.0.0.1:1", "g", "t", 0, 9)
    assert told() == [("t@g", 0)], "a reset forward, too: nobody has consumed that"
    commit(manager, "h", "t", 1)
    manager.clone_offset("h", "g", "t")
    assert told() == [("t@g", 0)]
    manager.remove_queue("g", "t", 0)
    assert told() == [("t@g", 0)]
    manager.merge_from_master({"t@g": {0: 5, 1: 5}}, {})
    assert told(0) == []
    manager.merge_from_master(table, {"t@g": {0: 5, 1: 2}})
    assert told() == [("t@g", 0)]
    manager.replace_from_master({"t@g": {0: 1, 1: 1}})
    assert told(2) == [("t@g", 0), ("t@g", 1)]
    manager.limit_to(lambda _topic, queue_id: queue_id)
    assert told() == [("t@g", 0)]
    manager.remove_group("g")
    assert told() == [("t@g", 0), ("t@g", 1)]


@pytest.mark.parametrize("lmq", [False, True])
def test_a_group_of_the_brokers_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, lmq: bool
) -> None:
    """Whoever commits for it would say how far transactions are checked and pops revived: what is
    before that would be lost."""
    ordinary = tmp_path / "consumerOffset.json"
    manager = ConsumerOffsetManager(ordinary, OWN_GROUPS)
    if lmq:
        manager = LmqConsumerOffsetManager(tmp_path / "lmq.json", ordinary, OWN_GROUPS)
    manager.load()
    for group in OWN_GROUPS:
        manager.commit_own_offset("broker", group, "t", 0, 5)
        commit(manager, group, "t", 2**62)
        manager.assign_reset_offset("10.0.0.1:1", group, "t", 0, 2**62)
        assert manager.query_offset(group, "t", 0) == 5
        with pytest.raises(RequestError, match="are the broker's own"):
            manager.check_not_own(group)
        assert f"group {group}: rejected offset {2**62} of 10.0.0.1:1 for t@0: only" in caplog.text
    commit(manager, "g", "t", 7)
    assert manager.query_offset("g", "t", 0) == 7
    manager.check_not_own("g")


def test_topics_and_groups(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    commit(manager, "g", "t", 1)
    commit(manager, "g", "%RETRY%g", 1)
    commit(manager, "h", "t", 1)
    commit(manager, "odd@group", "t", 1)
    assert manager.topics_of_group("g") == ["t", "%RETRY%g"]
    assert manager.groups_of_topic("t") == ["g", "h"], "keys with two separators are skipped"


@pytest.mark.parametrize("name", ["group", "topic"])
def test_what_is_deleted_leaves_no_offset_of_any_kind(tmp_path: Path, name: str) -> None:
    """One of its name that is made later would go on from there."""
    manager = manager_of(tmp_path)
    commit(manager, "g", "t", 5)
    manager.commit_pull_offset("g", "t", 0, 7)
    manager.assign_reset_offset("operator", "g", "t", 0, 3)
    if name == "group":
        manager.remove_group("g")
    else:
        manager.remove_topic("t")
    assert manager.query_offset("g", "t", 0) is None
    assert manager.query_pull_offset("g", "t", 0) is None
    assert not manager.has_offset_reset("g", "t", 0)
    assert manager.take_reset_offset("g", "t", 0) is None


def test_clean_up(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    for group in ("g", "gg"):
        for topic in ("t", "tt"):
            commit(manager, group, topic, 1)
    assert manager.remove_group("g") == 2
    assert manager.remove_topic("t") == 1
    assert manager.remove_topic("t") == 0
    assert manager.query_offsets("gg", "tt") == {0: 1}
    assert json_of(manager.encode()) == {"offsetTable": {"tt@gg": {"0": 1}}}


def test_clone(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    commit(manager, "g", "t", 4, 5)
    manager.clone_offset("g", "copy", "t")
    manager.clone_offset("nobody", "copy2", "t")
    commit(manager, "g", "t", 9)
    assert manager.query_offsets("copy", "t") == {0: 4, 1: 5}
    assert manager.query_offsets("copy2", "t") == {}


def test_merge_keeps_other_rows(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    commit(manager, "g", "t", 1, 20)
    commit(manager, "h", "t", 2)
    assert manager.merge_from_master({"t@g": {0: 8, 1: 9, 2: 0}, "t@i": {}}, {}) == 2
    assert manager.query_offsets("g", "t") == {0: 8, 1: 20, 2: 0}
    assert manager.query_offsets("h", "t") == {0: 2}
    assert manager.groups_of_topic("t") == ["g", "h"]
    changes = manager.changes
    assert manager.merge_from_master({"t@g": {0: 8}}, {"t@g": {0: 8}}) == 0
    assert manager.changes == changes, "nothing to save"


@pytest.mark.parametrize(
    ("stored", "master", "seen", "kept"),
    [
        (None, 5, None, 5),
        (None, 5, 9, 5),
        (7, 5, None, 7),
        (5, 7, None, 7),
        (7, 5, 5, 7),
        (7, 6, 5, 7),
        (7, 4, 5, 4),
        (3, 4, 5, 4),
        (7, 0, 5, 0),
    ],
)
def test_a_slave_keeps_the_larger_offset_but_for_a_reset(
    stored: int | None, master: int, seen: int | None, kept: int
) -> None:
    assert merged_offset(stored, master, seen) == kept


_OFFSETS = st.dictionaries(
    st.sampled_from(["t@g", "t@h", "%RETRY%g@g"]),
    st.dictionaries(st.integers(0, 2), st.integers(0, 20), max_size=3),
    max_size=3,
)


@given(st.lists(st.tuples(_OFFSETS, _OFFSETS), max_size=8))
def test_a_slave_is_never_behind_its_master_and_resets_arrive(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]],
) -> None:
    """Rounds of (commits here, the master's whole table): an independent model of the rule."""
    manager = manager_of(tmp_path_factory.mktemp("merge"))
    model: dict[tuple[str, int], int] = {}
    seen: dict[str, dict[int, int]] = {}
    for commits, table in rounds:
        for key, queues in commits.items():
            topic, group = key.split("@")
            for queue_id, offset in queues.items():
                manager.commit_offset("r", group, topic, queue_id, offset)
                model[key, queue_id] = offset
        manager.merge_from_master(table, seen)
        for key, queues in table.items():
            for queue_id, offset in queues.items():
                before = model.get((key, queue_id), -1)
                last = seen.get(key, {}).get(queue_id, -1)
                model[key, queue_id] = offset if offset < last else max(before, offset)
                assert manager.query_offset(*key.split("@")[::-1], queue_id) is not None
            seen.setdefault(key, {}).update(queues)
    stored = json_of(manager.encode())["offsetTable"]
    flat = {(key, int(q)): offset for key, row in stored.items() for q, offset in row.items()}
    assert flat == model


def test_a_master_takes_larger_offsets_up_to_the_end_of_each_queue(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    commit(manager, "g", "t", 5, 5, 50)
    ends = {("t", 0): 100, ("t", 1): 100, ("t", 2): 10, ("t", 3): 7, ("%RETRY%g", 0): 2}
    table = {
        "t@g": {0: 9, 1: 3, 2: 60, 3: 12},
        "unknown@g": {0: 4},
        "%RETRY%g@g": {0: 1},
        "t@new": {0: 0},
    }
    assert manager.raise_to(table, lambda topic, queue: ends.get((topic, queue), 0)) == 3
    assert manager.query_offsets("g", "t") == {0: 9, 1: 5, 2: 50, 3: 7}
    assert manager.query_offsets("g", "%RETRY%g") == {0: 1}
    assert manager.topics_of_group("g") == ["t", "%RETRY%g"], "nothing of an unknown queue"
    assert manager.groups_of_topic("t") == ["g"], "offset 0 says nothing"


@given(_OFFSETS, _OFFSETS, st.integers(0, 20))
def test_a_returning_master_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    own: dict[str, dict[int, int]],
    slave: dict[str, dict[int, int]],
    end: int,
) -> None:
    manager = manager_of(tmp_path_factory.mktemp("raise"))
    manager.merge_from_master(own, {})
    manager.raise_to(slave, lambda _topic, _queue: end)
    for key in own.keys() | slave.keys():
        topic, group = key.split("@")
        for queue_id in range(3):
            before = own.get(key, {}).get(queue_id)
            offered = min(slave.get(key, {}).get(queue_id, 0), end)
            expected = max(before or 0, offered) or before
            assert manager.query_offset(group, topic, queue_id) == expected


def test_forget_but_for_what_the_master_still_has(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    for topic, group in (("t", "g"), ("t", "h"), ("u", "g"), ("u", "h")):
        commit(manager, group, topic, 1)
    assert manager.forget({"t"}, {"g"}, keep={"t@h": {}}) == 2
    assert manager.topics_of_group("g") == []
    assert manager.topics_of_group("h") == ["t", "u"]


def test_the_file_is_javas_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    java = (GOLDEN_CONFIG / "consumerOffset.json").read_bytes()
    path.write_bytes(java)
    manager = manager_of(tmp_path)
    manager.persist()
    assert path.read_bytes() == java
    assert manager.query_offset("G_orderly_group", "GTopic", 2) == 14


def test_the_body_of_an_empty_table(tmp_path: Path) -> None:
    _, answer = golden(43)
    assert answer is not None
    assert manager_of(tmp_path).encode() == answer.body == b'{"offsetTable":{}}'


def test_keys_are_bare_integers(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    commit(manager, "g", "t", 5, 6)
    assert manager.encode() == b'{"offsetTable":{"t@g":{0:5,1:6}}}'


def test_a_file_of_5_x_is_read(tmp_path: Path) -> None:
    text = (
        '{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2},"groupTopicMap":{"g":["t"]},'
        '"offsetTable":{"t@g":{0:5,"1":6}}}'
    )
    (tmp_path / "consumerOffset.json").write_text(text)
    assert manager_of(tmp_path).query_offsets("g", "t") == {0: 5, 1: 6}


@pytest.mark.parametrize(
    "text",
    [
        '{"numbers":{}}',
        '{"offsetTable":null}',
        '{"offsetTable":[]}',
        '{"offsetTable":{"t@g":5}}',
        '{"offsetTable":{"t@g":{"x":5}}}',
        '{"offsetTable":{"t@g":{0:9223372036854775808}}}',
    ],
)
def test_a_file_that_is_no_offset_table_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "consumerOffset.json").write_text(text)
    with pytest.raises(ConfigFileError):
        manager_of(tmp_path)


def test_a_table_that_is_missing_is_not_empty() -> None:
    with pytest.raises(ValueError, match="no offsetTable"):
        parse_offset_table({})


@given(
    st.dictionaries(
        st.from_regex(r"\A[%|a-zA-Z0-9_-]{1,8}@[a-z]{1,5}\Z"),
        st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1), max_size=4),
        max_size=4,
    )
)
def test_what_is_saved_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, dict[int, int]]
) -> None:
    directory = tmp_path_factory.mktemp("offsets")
    manager = manager_of(directory)
    manager.merge_from_master(table, {})
    assert manager.save_if_changed()
    saved = directory / "consumerOffset.json"
    loaded = parse_offset_table(json_of(saved.read_bytes())) if saved.exists() else {}
    assert loaded == {key: queues for key, queues in table.items() if queues}


def test_a_walk_survives_commits(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    for number in range(2_000):
        commit(manager, "g", f"t{number}", 1)
        if number % 500 == 0:
            manager.encode()
    assert len(manager.topics_of_group("g")) == 2_000


def test_no_offset_lies_beyond_the_end_of_its_queue(tmp_path: Path) -> None:
    manager = ConsumerOffsetManager(tmp_path / "consumerOffset.json")
    for topic, queue_id, offset in (("T", 0, 90), ("T", 1, 90), ("Unknown", 0, 90)):
        manager.commit_offset("test:1", "G", topic, queue_id, offset)
    ends = {("T", 0): 70, ("T", 1): 90}
    assert manager.limit_to(lambda topic, queue_id: ends.get((topic, queue_id))) == 1
    assert manager.query_offsets("G", "T") == {0: 70, 1: 90}
    assert manager.query_offset("G", "Unknown", 0) == 90

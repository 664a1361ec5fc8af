"""broker.consumer_offset_manager: commits, queries, clean-up, the exact file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.consumer_offset_manager import ConsumerOffsetManager, parse_offset_table
from broker.json_config_manager import ConfigFileError
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


def test_topics_and_groups(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    commit(manager, "g", "t", 1)
    commit(manager, "g", "%RETRY%g", 1)
    commit(manager, "h", "t", 1)
    commit(manager, "odd@group", "t", 1)
    assert manager.topics_of_group("g") == ["t", "%RETRY%g"]
    assert manager.groups_of_topic("t") == ["g", "h"], "keys with two separators are skipped"


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
    commit(manager, "g", "t", 1)
    commit(manager, "h", "t", 2)
    manager.merge({"t@g": {0: 8, 1: 9}})
    assert manager.query_offsets("g", "t") == {0: 8, 1: 9}
    assert manager.query_offsets("h", "t") == {0: 2}


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
    manager.merge(table)
    assert manager.save_if_changed()
    assert parse_offset_table(json_of((directory / "consumerOffset.json").read_bytes())) == table


def test_a_walk_survives_commits(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    for number in range(2_000):
        commit(manager, "g", f"t{number}", 1)
        if number % 500 == 0:
            manager.encode()
    assert len(manager.topics_of_group("g")) == 2_000

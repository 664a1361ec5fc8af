"""broker.filter.consumer_filter_manager: who filters what, for how long, and its file."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from broker.filter.consumer_filter_manager import ConsumerFilterManager
from broker.filter.filter_factory import FilterFactory
from broker.filter.selector import Selector
from broker.json_config_manager import ConfigFileError
from broker.settings.broker_config import BrokerConfig
from remoting.body.heartbeat import SubscriptionData
from tests.broker.broker_fakes import CONFIG, FakeClock

HOUR_MS = 3_600_000
NOW = FakeClock().now
LOGGER = "broker.filter.consumer_filter_manager"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def manager(tmp_path: Path, clock: FakeClock) -> ConsumerFilterManager:
    return make(tmp_path, clock)


def make(tmp_path: Path, clock: FakeClock, config: BrokerConfig = CONFIG) -> ConsumerFilterManager:
    made = ConsumerFilterManager(tmp_path / "consumerFilter.json", config, clock)
    made.load()
    return made


def sql(topic: str, expression: str | None, version: int = 1) -> SubscriptionData:
    return SubscriptionData(
        topic=topic, sub_string=expression, expression_type="SQL92", sub_version=version
    )


def state(manager: ConsumerFilterManager, topic: str = "T") -> tuple[str | None, int, int, int]:
    """(expression, version, born, dead) of group G."""
    found = manager.find(topic, "G")
    assert found is not None
    data = found.data
    return data.expression, found.client_version, data.born_time, data.dead_time


# -- heartbeats --------------------------------------------------------------------------------


def test_a_subscription_makes_a_filter(manager: ConsumerFilterManager) -> None:
    manager.register("G", [sql("T", "a > 5", 7), SubscriptionData(topic="U", sub_string="A")])
    assert state(manager) == ("a > 5", 7, NOW, 0)
    selector = manager.find_selector("T", "G")
    assert selector is not None
    assert selector.matches({"a": "6"})
    assert manager.find("U", "G") is manager.find("T", "H") is None
    assert manager.find_selector("U", "G") is manager.find_selector("T", "H") is None


@pytest.mark.parametrize("expression", [None, ""])
def test_without_an_expression_there_is_no_filter(
    manager: ConsumerFilterManager, expression: str | None
) -> None:
    manager.register("G", [sql("T", expression)])
    assert manager.find("T", "G") is None
    assert manager.changes == 0


@pytest.mark.parametrize(
    ("subscription", "reason"),
    [
        (sql("T", "a ="), "the expression is incomplete"),
        (
            SubscriptionData(topic="T", sub_string="a", expression_type="JS"),
            "unknown filter type JS, use TAG or SQL92",
        ),
    ],
)
def test_a_wrong_expression_is_no_filter_and_said(
    manager: ConsumerFilterManager,
    caplog: pytest.LogCaptureFixture,
    subscription: SubscriptionData,
    reason: str,
) -> None:
    manager.register("G", [subscription])
    assert manager.find("T", "G") is None
    text = subscription.sub_string
    assert caplog.messages == [f"group G, topic T: no filter {text!r}: {reason}"]


def test_what_has_no_effect_is_said(
    manager: ConsumerFilterManager, caplog: pytest.LogCaptureFixture
) -> None:
    manager.register("G", [sql("T", "a > 5 LIKE 'x'")])
    assert caplog.messages[0] == (
        "group G, topic T: text after the end of the filter expression is ignored, as in RocketMQ: "
        "\"LIKE 'x'\""
    )


def test_a_newer_version_replaces(manager: ConsumerFilterManager, clock: FakeClock) -> None:
    manager.register("G", [sql("T", "a > 5", 7)])
    clock.advance(5)
    manager.register("G", [sql("T", "a > 6", 8)])
    assert state(manager) == ("a > 6", 8, NOW + 5, 0)


def test_a_newer_version_of_the_same_text_keeps_the_filter(
    manager: ConsumerFilterManager, clock: FakeClock
) -> None:
    manager.register("G", [sql("T", "a > 5", 7)])
    selector = manager.find_selector("T", "G")
    clock.advance(5)
    manager.unregister("G")
    manager.register("G", [sql("T", "a > 5", 8)])
    assert state(manager) == ("a > 5", 8, NOW, 0)
    assert manager.find_selector("T", "G") is selector


@pytest.mark.parametrize("version", [6, 7])
def test_an_older_or_the_same_version_is_ignored(
    manager: ConsumerFilterManager, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    manager.register("G", [sql("T", "a > 5", 7)])
    changes = manager.changes
    manager.register("G", [sql("T", "a > 6", version)])
    assert state(manager) == ("a > 5", 7, NOW, 0)
    assert manager.changes == changes
    assert caplog.messages[-1] == (
        f"group G, topic T: ignored 'a > 6' of version {version}, the current version is 7: 'a > 5'"
    )


def test_a_heartbeat_that_says_nothing_new_changes_nothing(manager: ConsumerFilterManager) -> None:
    manager.register("G", [sql("T", "a > 5", 7)])
    changes = manager.changes
    manager.register("G", [sql("T", "a > 5", 7)])
    assert manager.changes == changes


def test_a_newer_wrong_expression_removes_the_filter(manager: ConsumerFilterManager) -> None:
    manager.register("G", [sql("T", "a > 5", 7), sql("U", "b", 7)])
    manager.register("G", [sql("T", "a >", 8), sql("U", "b", 7)])
    assert manager.find("T", "G") is None
    assert manager.find("U", "G") is not None
    manager.register("G", [sql("U", "b >", 8)])
    assert manager.snapshot() == {"filterDataByTopic": {}}


def test_another_heartbeat_may_be_quicker(
    manager: ConsumerFilterManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer version wins, although the older one was compiled last."""
    compile_really = FilterFactory.compile

    def compile_slowly(self: FilterFactory, kind: str, text: str | None) -> Selector:
        if text == "a > 7":
            manager.register("G", [sql("T", "a > 8", 8)])
        return compile_really(self, kind, text)

    monkeypatch.setattr(FilterFactory, "compile", compile_slowly)
    manager.register("G", [sql("T", "a > 7", 7)])
    assert state(manager)[:2] == ("a > 8", 8)


# -- death -------------------------------------------------------------------------------------


def test_a_group_that_leaves_takes_nothing_with_it(
    manager: ConsumerFilterManager, clock: FakeClock
) -> None:
    manager.register("G", [sql("T", "a > 5", 7), sql("U", "b", 7)])
    manager.register("H", [sql("T", "a > 5", 7)])
    clock.advance(5)
    manager.unregister("G")
    manager.unregister("nobody")
    assert state(manager) == ("a > 5", 7, NOW, NOW + 5)
    assert state(manager, "U")[3] == NOW + 5
    other = manager.find("T", "H")
    assert other is not None
    assert (other.is_dead, other.row().dead) == (False, False)
    clock.advance(5)
    manager.unregister("G")
    assert state(manager)[3] == NOW + 5
    manager.register("G", [sql("T", "a > 5", 7), sql("U", "b", 6)])
    assert state(manager) == ("a > 5", 7, NOW, 0)
    assert state(manager, "U")[3] == NOW + 5


def test_a_topic_that_is_not_named_any_more_is_dead(
    manager: ConsumerFilterManager, clock: FakeClock
) -> None:
    manager.register("G", [sql("T", "a > 5"), sql("U", "b")])
    clock.advance(5)
    manager.register("G", [SubscriptionData(topic="U", sub_string="*")])
    assert state(manager)[3] == NOW + 5
    assert state(manager, "U")[3] == 0


def test_a_filter_born_and_left_in_one_instant_is_dead(manager: ConsumerFilterManager) -> None:
    manager.register("G", [sql("T", "a > 5")])
    manager.unregister("G")
    found = manager.find("T", "G")
    assert found is not None
    assert found.is_dead


def test_the_dead_are_removed_after_a_while(
    manager: ConsumerFilterManager, clock: FakeClock
) -> None:
    manager.register("G", [sql("T", "a > 5")])
    manager.register("H", [sql("T", "a > 5")])
    manager.unregister("G")
    clock.advance(24 * HOUR_MS - 1)
    manager.clean()
    assert manager.find("T", "G") is not None
    clock.advance(1)
    assert manager.save_if_changed()
    assert manager.find("T", "G") is None
    assert manager.find("T", "H") is not None
    assert '"G"' not in manager.path.read_text()


def test_the_span_is_a_setting(tmp_path: Path, clock: FakeClock) -> None:
    manager = make(tmp_path, clock, replace(CONFIG, filter_data_clean_time_span=0))
    manager.register("G", [sql("T", "a > 5")])
    manager.unregister("G")
    manager.clean()
    assert manager.find("T", "G") is None


# -- file --------------------------------------------------------------------------------------

JAVA_FILE = """{
	"filterDataByTopic":{
		"TopicTest":{
			"groupFilterData":{
				"G":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[%s]
					},
					"bornTime":1700000000000,
					"clientVersion":17,
					"consumerGroup":"G",
					"dead":false,
					"deadTime":0,
					"expression":"a > 5",
					"expressionType":"SQL92",
					"topic":"TopicTest"
				},
				"G2":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[%s]
					},
					"bornTime":1700000000000,
					"clientVersion":18,
					"consumerGroup":"G2",
					"dead":true,
					"deadTime":1700000000006,
					"expression":"a = '中'",
					"expressionType":"SQL92",
					"topic":"TopicTest"
				}
			},
			"topic":"TopicTest"
		}
	}
}"""
"""As a Java broker writes it, members in its order; test_bloom_filter.py proves the positions."""


def test_the_file_is_javas(manager: ConsumerFilterManager, clock: FakeClock) -> None:
    manager.register("G", [sql("TopicTest", "a > 5", 17)])
    manager.register("G2", [sql("TopicTest", "a = '中'", 18)])
    clock.advance(6)
    manager.unregister("G2")
    assert manager.save_if_changed()
    positions = []
    for group in ("G", "G2"):
        found = manager.find("TopicTest", group)
        assert found is not None
        assert found.data.bloom_filter_data is not None
        positions.append(",".join(map(str, found.data.bloom_filter_data.bit_pos)))
    ours = json.loads(manager.path.read_text("utf-8"), object_pairs_hook=list)
    assert ours == json.loads(JAVA_FILE % tuple(positions), object_pairs_hook=list)


def test_loaded_groups_count_as_away(
    manager: ConsumerFilterManager, tmp_path: Path, clock: FakeClock
) -> None:
    manager.register("G", [sql("T", "a > 5", 7)])
    clock.advance(10_000)
    manager.register("G", [sql("U", "b", 7), sql("T", "a > 5", 7)])
    clock.advance(10_000)
    manager.register("H", [sql("T", "c", 7)])
    manager.unregister("H")
    assert manager.save_if_changed()
    clock.advance(15_000)
    again = make(tmp_path, clock)
    assert state(again) == ("a > 5", 7, NOW, NOW + 5_000)
    assert state(again, "U") == ("b", 7, NOW + 10_000, NOW + 10_000)
    dead = again.find("T", "H")
    assert dead is not None
    assert dead.data.dead_time == NOW + 20_000
    selector = again.find_selector("T", "G")
    assert selector is not None
    assert selector.matches({"a": "6"})
    again.register("G", [sql("T", "a > 5", 7)])
    assert state(again) == ("a > 5", 7, NOW, 0)


def test_a_changed_bloom_filter_keeps_the_table(
    manager: ConsumerFilterManager, tmp_path: Path, clock: FakeClock
) -> None:
    manager.register("G", [sql("T", "a > 5", 7)])
    assert manager.save_if_changed()
    again = make(tmp_path, clock, replace(CONFIG, expect_consumer_num_use_filter=64))
    found = again.find("T", "G")
    assert found is not None
    assert found.data.bloom_filter_data is not None
    assert found.data.bloom_filter_data.bit_num == 216


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('"expression":"a >","expressionType":"SQL92"', "'a >': the expression is incomplete"),
        ('"expression":"a > 5"', "'a > 5': unknown filter type , use TAG or SQL92"),
        ('"expressionType":"SQL92"', "None: the expression is incomplete"),
    ],
)
def test_a_row_that_cannot_be_compiled_is_left_out(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture, row: str, words: str
) -> None:
    rows = f'{{"G":{{"consumerGroup":"G","topic":"T",{row}}},"H":{{"consumerGroup":"H","topic":"T"'
    text = f'{{"filterDataByTopic":{{"T":{{"groupFilterData":{rows},"expression":"a > 5",'
    text += '"expressionType":"SQL92","clientVersion":3}},"topic":"T"}}}'
    (tmp_path / "consumerFilter.json").write_text(text)
    with caplog.at_level(logging.WARNING, LOGGER):
        manager = make(tmp_path, clock)
    assert manager.find("T", "G") is None
    found = manager.find("T", "H")
    assert found is not None
    assert found.client_version == 3
    (message,) = caplog.messages
    assert words in message


def test_a_broken_file_stops_the_start(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "consumerFilter.json").write_text('{"filterDataByTopic":{"T":5}}')
    with pytest.raises(ConfigFileError):
        make(tmp_path, clock)


def test_a_first_start_has_no_filters(manager: ConsumerFilterManager) -> None:
    assert manager.snapshot() == {"filterDataByTopic": {}}
    assert manager.save_if_changed()
    assert not manager.path.exists()

"""broker.out.broker_registration: when, with what, and what the answers do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.out.broker_outer_api import BrokerOuterAPI, RegisterBrokerResult
from broker.out.broker_registration import FIRST_DELAY_MS, BrokerRegistration, masked_by_permission
from broker.settings.broker_config import BrokerConfig
from broker.topic.new_topics import NewTopics
from broker.topic.system_topics import SystemTopics
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.broker_member_group import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from remoting.body.register_broker import RegisterBrokerBody
from remoting.body.topic_config import TopicConfig
from remoting.body.topic_queue_mapping import TopicQueueMappingInfo
from remoting.remoting_command import RemotingCommand
from tests.broker.broker_fakes import CONFIG, FakeClock
from tests.broker.out.test_broker_outer_api import (
    IDENTITY,
    TOPICS,
    Behaviour,
    FakeClient,
    answer,
    fails,
)


class World:
    def __init__(
        self,
        tmp_path: Path,
        config: BrokerConfig = CONFIG,
        broker_id: int = 0,
        **behaviours: Behaviour,
    ) -> None:
        self.clock = FakeClock()
        self.executor = ScheduledExecutor(self.clock)
        self.client = FakeClient()
        self.client.behaviours = behaviours or {"n": answer()}
        self.topics = TopicConfigManager(
            tmp_path / "topics.json", config, self.clock, SystemTopics()
        )
        self.topics.load()
        self.missing: list[int] = []
        self.masters: list[tuple[str | None, str | None]] = []
        self.mappings: dict[str, TopicQueueMappingInfo] = {}
        self.registration = BrokerRegistration(
            config,
            replace(IDENTITY, broker_id=broker_id),
            BrokerOuterAPI(self.client, list(self.client.behaviours)),
            self.topics,
            self.executor,
            on_master=lambda master, ha: self.masters.append((master, ha)),
            note_missing=self.missing.append,
            mapping_infos=lambda topics: {
                topic: info for topic, info in self.mappings.items() if topic in topics
            },
        )
        self.topics.add_listener(self.registration.on_topic_change)
        new_topics = NewTopics(
            self.registration.register_new,
            lambda run: run(),
            capacity=1,
            start=lambda run: self.executor.submit("rounds", run),
        )
        self.topics.add_listener(new_topics.on_topic_change)

    def codes(self) -> list[int]:
        """Request codes since the last call."""
        codes = [command.code for _, command in self.client.calls]
        self.client.calls.clear()
        return codes

    def wait(self, delay_ms: int) -> list[int]:
        """Let time pass; the request codes of what was due at its end."""
        self.codes()
        self.clock.advance(delay_ms)
        self.executor.run_due()
        return self.codes()

    def send(self, topic: str) -> None:
        self.topics.prepare_for_send(topic, "TBW102", 4, unit_mode=False, remote="r")


def registered(command: RemotingCommand) -> dict[str, TopicConfig]:
    body = RegisterBrokerBody.from_json_bytes(command.body)
    return body.topic_config_serialize_wrapper.topic_config_table


@pytest.mark.parametrize(
    ("configured", "period_ms"), [(30_000, 30_000), (1_000, 10_000), (99_000, 60_000)]
)
def test_rhythm(tmp_path: Path, configured: int, period_ms: int) -> None:
    world = World(tmp_path, replace(CONFIG, register_name_server_period=configured))
    ready: list[int] = []
    world.registration.start(lambda: ready.append(1))
    assert world.codes() == [], "start does not wait"
    world.executor.run_due()
    assert (world.codes(), ready) == ([103], [1])
    world.clock.advance(FIRST_DELAY_MS)
    world.executor.run_due()
    assert world.codes() == [103]
    world.clock.advance(period_ms - 1)
    world.executor.run_due()
    assert world.codes() == []
    world.clock.advance(1)
    world.executor.run_due()
    assert world.codes() == [103]


def test_ready_is_told_though_no_name_server_answers(tmp_path: Path) -> None:
    world = World(tmp_path, n=fails("n"))
    ready: list[int] = []
    world.registration.start(lambda: ready.append(1))
    world.executor.run_due()
    assert ready == [1]
    assert world.masters == []


def test_without_force_an_unchanged_table_is_not_sent(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        replace(CONFIG, force_register=False),
        n=lambda command: command.response(0, None, {"changed": "false"}),
    )
    world.registration.start()
    world.executor.run_due()
    assert world.codes() == [103], "the first one is always sent"
    world.clock.advance(FIRST_DELAY_MS)
    world.executor.run_due()
    assert world.codes() == [322]
    world.client.behaviours["n"] = lambda command: command.response(0, None, {"changed": "true"})
    world.clock.advance(30_000)
    world.executor.run_due()
    assert world.codes() == [322, 103]


def test_a_topic_of_mqadmin_is_registered_before_it_is_answered(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topics.update(TopicConfig(topic_name="t"))
    [(_, command)] = world.client.calls
    assert registered(command) == {"t": TopicConfig(topic_name="t")}
    body = RegisterBrokerBody.from_json_bytes(command.body)
    assert body.topic_config_serialize_wrapper.data_version == world.topics.data_version


def test_new_topics_are_registered_together_and_soon(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(100):
        world.send(f"t{number}")
    assert world.client.calls == []
    world.executor.run_due()
    [(_, command)] = world.client.calls
    assert set(registered(command)) == {f"t{number}" for number in range(100)}
    world.send("later")
    world.executor.run_due()
    assert set(registered(world.client.calls[-1][1])) == {"later"}


def test_every_part_of_the_table_has_an_edition_of_its_own(tmp_path: Path) -> None:
    """A name server ignores a registration with the edition that it has."""
    world = World(tmp_path)
    world.topics.add_listener(lambda *_: world.topics.bump_data_version())
    world.send("t")
    world.executor.run_due()
    world.topics.update(TopicConfig(topic_name="u"))
    world.registration.register_new(["t"])
    world.registration.register_new(["u", "gone"])
    bodies = [RegisterBrokerBody.from_json_bytes(command.body) for _, command in world.client.calls]
    wrappers = [body.topic_config_serialize_wrapper for body in bodies]
    assert [set(each.topic_config_table) for each in wrappers] == [{"t"}, {"u"}, {"t"}, {"u"}]
    assert len({each.data_version.counter for each in wrappers}) == 4
    assert wrappers[-1].data_version == world.topics.data_version


def test_new_topics_do_not_wait_for_a_regular_registration(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world.registration._lock:
        world.registration.register_new(["TBW102"])
    assert world.codes() == [103]


def test_a_deletion_waits_for_the_regular_registration(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topics.update(TopicConfig(topic_name="t"))
    world.codes()
    world.topics.delete("t")
    world.executor.run_due()
    assert world.codes() == []


def test_order_topics_come_with_the_answers_that_are_waited_for(tmp_path: Path) -> None:
    world = World(tmp_path, n=answer(b'{"table":{"t":"broker-g:4"}}'))
    world.topics.update(TopicConfig(topic_name="t"))
    assert world.topics.is_order_topic("t"), "with that of the topic's own registration"
    world.client.behaviours["n"] = answer(b'{"table":{}}')
    world.registration.register_new(["t"])
    assert world.topics.is_order_topic("t"), "nobody looks at this answer"
    world.client.behaviours["n"] = answer()
    world.registration.register_all(check_order=True, force=True)
    assert world.topics.is_order_topic("t"), "no table changes nothing"
    world.client.behaviours["n"] = answer(b'{"table":{}}')
    world.registration.register_all(check_order=True, force=True)
    assert not world.topics.is_order_topic("t")


def test_the_first_name_server_that_knows_a_master_counts(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        broker_id=1,
        young=answer(),
        old=answer(masterAddr="m:1", haServerAddr="m:2"),
        other=answer(masterAddr="x:1", haServerAddr="x:2"),
    )
    register = world.registration.register_all
    register(check_order=True, force=True)
    assert world.masters == [("m:1", "m:2")]
    # The order of the setting, not of arrival: a slave must not go to and fro.
    arrivals = {name: world.client.behaviours[name] for name in ("other", "old", "young")}
    api = BrokerOuterAPI(world.client, list(arrivals))
    api.register_broker_all = _reversed(api.register_broker_all)  # type: ignore[method-assign]
    world.registration._api = api
    register(check_order=True, force=True)
    assert world.masters[-1] == ("x:1", "x:2")


def _reversed(
    register: Callable[..., list[RegisterBrokerResult]],
) -> Callable[..., list[RegisterBrokerResult]]:
    return lambda *args, **kwargs: register(*args, **kwargs)[::-1]


def test_every_answer_tells_the_listener_and_silence_does_not(tmp_path: Path) -> None:
    world = World(tmp_path, broker_id=1, n=answer(masterAddr="m:1", haServerAddr="m:2"))
    world.registration.start()
    world.wait(0)
    world.client.behaviours["n"] = answer(masterAddr="x:1", haServerAddr="x:2")
    world.wait(FIRST_DELAY_MS)
    world.client.behaviours["n"] = fails("n")
    world.wait(30_000)
    assert world.masters == [("m:1", "m:2"), ("x:1", "x:2")], "the master may well be alive"
    world.client.behaviours["n"] = answer()
    world.wait(30_000)
    assert world.masters[-1] == (None, None)


def test_a_slave_registers_always_it_would_not_hear_of_a_move(tmp_path: Path) -> None:
    config = replace(CONFIG, force_register=False)
    world = World(tmp_path, config, broker_id=1, n=answer(masterAddr="m:1"))
    world.registration.start()
    assert world.wait(0) == [103]
    assert world.wait(FIRST_DELAY_MS) == [103]


def test_a_slave_leaves_the_order_of_topics_to_its_master(tmp_path: Path) -> None:
    world = World(tmp_path, broker_id=1, n=answer(b'{"table":{"t":"broker-g:4"}}'))
    world.topics.update(TopicConfig(topic_name="t"))
    version = world.topics.data_version
    world.registration.register_all(check_order=True, force=True)
    assert world.topics.data_version == version


@pytest.mark.parametrize("behaviour", [answer(), fails("n")])
def test_a_slave_without_a_master_asks_often(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, behaviour: Behaviour
) -> None:
    world = World(tmp_path, broker_id=1, n=behaviour)
    world.registration.start()
    assert world.wait(0) == [103]
    assert [world.wait(pause) for pause in (999, 1, 1_999, 1, 3_999, 1)] == [[], [103]] * 3
    assert caplog.text.count("retrying every") == 1
    assert 103 in world.wait(3_000), "the regular one, at 10 s"
    assert world.wait(1_999) == []
    assert world.wait(1) == [103], "5 s after the one before"
    world.client.behaviours["n"] = answer(masterAddr="m:1", haServerAddr="m:2")
    assert world.wait(5_000) == [103]
    assert world.masters[-1] == ("m:1", "m:2")
    assert world.wait(5_000) == [], "known now"
    assert caplog.text.count("retrying every") == 1


def test_a_slave_whose_master_is_gone_asks_often_again(tmp_path: Path) -> None:
    world = World(tmp_path, broker_id=1, n=answer(masterAddr="m:1"))
    world.registration.start()
    world.wait(0)
    world.client.behaviours["n"] = answer()
    assert world.wait(FIRST_DELAY_MS) == [103]
    assert world.wait(1_000) == [103]
    world.client.behaviours["n"] = fails("n")
    assert world.wait(2_000) == [103]


def test_masters_and_brokers_without_name_servers_search_nobody(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.registration.start()
    world.wait(0)
    assert world.wait(5_000) == []
    world = World(tmp_path, broker_id=1, n=answer())
    world.registration._api.update_name_server_addresses([])
    world.registration.start()
    world.wait(0)
    world.clock.advance(5_000)
    assert world.executor.run_due() == 0


def test_a_refused_registration_is_repeated_soon(tmp_path: Path) -> None:
    """A name server asks a silent holder first, and lets its successor in some seconds later."""
    refused = [True]

    def refuses(command: RemotingCommand) -> RemotingCommand:
        return command.response(16, "held by another host") if refused else answer()(command)

    world = World(tmp_path, n=refuses, other=answer())
    world.registration.start()
    assert world.wait(0) == [103, 103]
    assert [len(world.wait(pause)) for pause in (999, 1, 1_999, 1, 3_999)] == [0, 2, 0, 2, 0]
    refused.clear()
    assert world.wait(1) == [103, 103]
    assert world.missing == [1, 1, 1, 0]
    assert world.wait(2_000) == []


def test_a_slave_whose_master_is_silent_asks_within_a_second(tmp_path: Path) -> None:
    """A name server of RocketMQ 4.9 answers nothing but registrations."""
    world = World(tmp_path, broker_id=1, n=answer(masterAddr="m:1"))
    world.registration.start()
    world.wait(0)
    for _ in range(3):
        world.registration.master_is_silent()
    assert world.wait(999) == []
    assert world.wait(1) == [901, 103]
    assert world.wait(3_000) == []
    world.registration.master_is_silent()
    assert world.wait(1_000) == [901, 103]
    world.registration.unregister()
    world.registration.master_is_silent()
    assert 103 not in world.wait(1_000)


def test_it_registers_only_if_there_is_another_master(tmp_path: Path) -> None:
    """Else all slaves of a site that is lost would send all their topics every second."""
    master = ["m:1"]

    def answers(command: RemotingCommand) -> RemotingCommand:
        if command.code == 103:
            return answer(masterAddr=master[0])(command)
        group = BrokerMemberGroup(
            cluster="c", broker_name="b", broker_addrs={0: master[0], 1: "s:1"}
        )
        body = GetBrokerMemberGroupResponseBody(broker_member_group=group).to_json_bytes()
        return command.response(0, body=body)

    world = World(tmp_path, broker_id=1, n=answers, other=answers)
    world.registration.start()
    world.wait(0)
    world.registration.master_is_silent()
    assert world.wait(1_000) == [901, 901]
    master[0] = "m:2"
    world.registration.master_is_silent()
    assert world.wait(1_000) == [901, 901, 103, 103]
    assert world.masters[-1][0] == "m:2"


def test_a_search_waits_for_no_registration_under_way(tmp_path: Path) -> None:
    world = World(tmp_path, broker_id=1, n=answer())
    world.registration.start()
    world.wait(0)
    with world.registration._lock:
        assert world.wait(1_000) == []
    assert world.wait(2_000) == [103]


def test_a_search_ends_with_the_broker(tmp_path: Path) -> None:
    world = World(tmp_path, broker_id=1, n=answer())
    world.registration.start()
    world.wait(0)
    world.registration.unregister()
    assert world.wait(5_000) == []
    world.clock.advance(5_000)
    world.executor.run_due()
    assert world.registration._search_delay_ms == 0


def test_what_must_be_in_order_before_clients_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    order: list[str] = []
    world.client.behaviours["n"] = lambda command: (
        order.append("registered") or answer()(command)  # type: ignore[func-returns-value]
    )
    world.registration.start(
        lambda: order.append("ready"), before_first=lambda: order.append("before")
    )
    world.executor.run_due()
    assert order == ["before", "registered", "ready"]

    def fail() -> None:
        raise RuntimeError("boom")

    world.registration.start(lambda: order.append("ready"), before_first=fail)
    world.executor.run_due()
    assert order[3:] == ["registered", "ready"], "a failure there is logged and holds up nobody"
    assert "boom" in caplog.text


@pytest.mark.parametrize(("permission", "perm"), [(6, 7), (7, 7), (4, 4), (2, 2), (0, 0)])
def test_the_brokers_permission_masks_the_topics(permission: int, perm: int) -> None:
    config = TopicConfig(topic_name="t", perm=7, order=True, topic_sys_flag=1)
    wrapper = replace(TOPICS, topic_config_table={"t": config})
    masked = masked_by_permission(wrapper, permission)
    found = masked.topic_config_table["t"]
    assert found.perm == perm
    assert (found == config) is (permission & 6 == 6)
    assert masked.data_version == TOPICS.data_version


def test_leaving(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.registration.start()
    world.executor.run_due()
    world.codes()
    world.registration.unregister()
    assert world.codes() == [104]
    world.clock.advance(60_000)
    world.executor.run_due()
    world.topics.update(TopicConfig(topic_name="t"))
    world.send("u")
    world.executor.run_due()
    assert world.codes() == [], "it must not come back"


class TestANameServerThatLostUs:
    """It forgets a broker with its connection; a restarted one knows nobody."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        world = World(tmp_path, n=answer(), m=answer())
        world.registration.start()
        world.wait(FIRST_DELAY_MS)
        world.wait(1)
        return world

    def lost(self, world: World, address: str) -> None:
        assert world.client.connection_listener is not None
        world.client.connection_listener(address)

    def test_is_registered_with_soon(self, world: World) -> None:
        self.lost(world, "n")
        assert world.codes() == [], "not on the loop's thread"
        assert world.wait(1_000) == [103, 103]
        assert world.wait(20_000) == []

    def test_is_tried_again_until_the_regular_time_is_nearer(self, world: World) -> None:
        world.client.behaviours["n"] = fails("n")
        self.lost(world, "n")
        waited = 0
        for delay_ms in (1_000, 2_000, 4_000, 8_000):
            assert world.wait(delay_ms - 1) == []
            assert world.wait(1) == [103, 103]
            waited += delay_ms
        assert world.wait(30_000 - waited - 2) == []
        assert world.wait(2) == [103, 103], "the regular one"

    def test_that_comes_back_is_registered_with_once(self, world: World) -> None:
        world.client.behaviours["n"] = fails("n")
        self.lost(world, "n")
        assert world.wait(1_000) == [103, 103]
        world.client.behaviours["n"] = answer()
        self.lost(world, "n")
        assert world.wait(2_000) == [103, 103]
        assert world.wait(20_000) == []

    def test_a_slave_may_be_there_before_its_master(self, tmp_path: Path) -> None:
        """Both come back to a name server that was started again."""
        world = World(tmp_path, broker_id=1, n=answer(masterAddr="m:1", haServerAddr="m:2"))
        world.registration.start()
        world.wait(FIRST_DELAY_MS)
        world.wait(1)
        world.client.behaviours["n"] = answer()
        self.lost(world, "n")
        world.wait(1_000)
        assert world.masters[-1] == (None, None)
        world.client.behaviours["n"] = answer(masterAddr="m:1", haServerAddr="m:2")
        world.wait(1_000)
        assert world.masters[-1] == ("m:1", "m:2")

    def test_other_peers_do_not_matter(self, world: World) -> None:
        self.lost(world, "10.0.0.9:10911")
        assert world.wait(20_000) == []

    def test_nor_does_what_is_closed_at_the_stop(self, world: World) -> None:
        world.registration.unregister()
        self.lost(world, "n")
        assert world.wait(20_000) == []


def test_static_topics_are_registered_with_their_mapping(tmp_path: Path) -> None:
    """Uncompressed: 4.9's compressed form, which ours is, cannot hold them."""
    world = World(tmp_path, replace(CONFIG, compressed_register=True))
    info = TopicQueueMappingInfo(topic="T", total_queues=1, bname="broker-g", curr_id_map={0: 0})
    world.mappings = {"T": info, "gone": info}
    world.topics.update(TopicConfig(topic_name="U"))
    world.topics.update(TopicConfig(topic_name="T"))
    world.registration.register_all(check_order=False, force=True)
    headers = [command.ext_fields["compressed"] for _, command in world.client.calls]
    assert headers == ["true", "false", "false"]
    for _, command in world.client.calls[1:]:
        body = RegisterBrokerBody.from_json_bytes(command.body)
        mappings = body.topic_config_serialize_wrapper.topic_queue_mapping_info_map
        assert mappings == {"T": info}

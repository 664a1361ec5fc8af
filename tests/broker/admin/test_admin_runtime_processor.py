"""broker.admin.admin_runtime_processor: settings, state, counters, clean-up commands."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.admin.admin_runtime_processor import AdminRuntimeProcessor
from broker.metrics.runtime_info import RuntimeInfo
from broker.metrics.store_stats_service import StoreStatsService
from remoting.body.data_version import DataVersion
from remoting.remoting_command import RemotingCommand
from tests.broker.broker_fakes import (
    FakeConnection,
    assert_same_answer,
    assert_same_head,
    golden,
    json_of,
    request_of,
)
from tests.broker.metrics.test_runtime_info import info_of
from tests.broker.processor_world import World


class Configs:
    def __init__(self) -> None:
        self.updates: list[tuple[str, str]] = []

    def update(self, text: str, who: str) -> str:
        self.updates.append((text, who))
        return "applied now: x; saved to y"

    def all_configs(self) -> Mapping[str, str]:
        return {
            "useTLS": "false",
            "brokerName": "broker-g",
            "deleteWhen": "04",
            "messageStorePlugIn": "",
        }

    def data_version(self) -> DataVersion:
        return DataVersion(counter=0, timestamp=1795177712320)


class Runtime:
    def __init__(self, world: World) -> None:
        self.service = StoreStatsService(world.clock)

    def runtime_info(self) -> RuntimeInfo:
        return info_of(self.service)


def processor_of(world: World, configs: Configs | None = None) -> AdminRuntimeProcessor:
    return AdminRuntimeProcessor(
        configs=configs or Configs(),
        runtime=Runtime(world).runtime_info,
        totals=world.totals,
        stats=world.stats,
        commands=world.store,
    )


def test_settings_in_javas_form(tmp_path: Path) -> None:
    world = World(tmp_path)
    request, java = golden(26)
    assert java is not None
    ours = world.ask(processor_of(world), request)
    assert_same_head(ours, java)
    processors = len(os.sched_getaffinity(0))
    assert ours.body == (
        b"clientCallbackExecutorThreads=%d\nfilterServerNums=0\nuseTLS=false\n"
        b"brokerName=broker-g\ndeleteWhen=04\nmessageStorePlugIn=\n" % processors
    )


def test_a_change_of_settings_from_java(tmp_path: Path) -> None:
    world, configs = World(tmp_path), Configs()
    request, java = golden(25)
    assert java is not None
    answer = world.ask(processor_of(world, configs), request)
    assert (answer.code, answer.remark, answer.body) == (
        java.code,
        "applied now: x; saved to y",
        java.body,
    )
    assert configs.updates == [
        ("defaultQueryMaxNum=33\n", "127.0.0.1:40000 (access key rocketmq2)")
    ]


def test_a_change_of_settings_that_is_no_text(tmp_path: Path) -> None:
    world, configs = World(tmp_path), Configs()
    request = RemotingCommand.request(25, body=b"a=\xff")
    answer = world.ask(processor_of(world, configs), request)
    assert (answer.code, answer.remark) == (
        1,
        "UnsupportedEncodingException 'utf-8' codec can't decode byte 0xff in position 2: "
        "invalid start byte",
    )
    assert configs.updates == []


@pytest.mark.parametrize("number", [1, 2])
def test_every_runtime_key_of_java(tmp_path: Path, number: int) -> None:
    world = World(tmp_path)
    request, java = golden(28, number)
    assert java is not None
    ours = world.ask(processor_of(world), request)
    assert_same_head(ours, java)
    theirs = set(json_of(java.body)["table"])
    mine = set(json_of(ours.body)["table"])
    timers = {key for key in mine if key.startswith("timer")}  # 5.x's
    assert len(timers) == 5
    assert mine - theirs - timers == {"getTransferredTps", "brokerActive", "haProtocol"}
    assert theirs <= mine


@pytest.mark.parametrize("number", [1, 2])
def test_counters_of_java(tmp_path: Path, number: int) -> None:
    world = World(tmp_path)
    request, answer = golden(315, number)
    world.stats.put_counters("GTopic")
    world.stats.get_counters("GTopic", "G_group")
    world.stats.sample_minute()
    assert_same_answer(world.ask(processor_of(world), request), answer)


def test_counters_that_count(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.stats.put_counters("t").nums.add(30, 15)
    world.stats.sample_minute()
    world.stats.sample_hour()
    world.stats.sample_day()
    request = request_of(315, statsName="TOPIC_PUT_NUMS", statsKey="t")
    body = json_of(world.ask(processor_of(world), request).body)
    assert body["statsMinute"] == {"avgpt": 2.0, "sum": 30, "tps": 3.0}
    assert body["statsHour"] == {"avgpt": 2.0, "sum": 30, "tps": 0.05}
    assert body["statsDay"]["sum"] == 30


def test_no_such_counter(tmp_path: Path) -> None:
    world = World(tmp_path)
    answer = world.ask(processor_of(world), request_of(315, statsName="NO", statsKey="t"))
    assert (answer.code, answer.remark) == (1, "The stats <NO> <t> not exist")


@pytest.mark.parametrize(
    ("code", "command"), [(306, "clean_expired_consume_queue"), (329, "delete_expired_commit_log")]
)
def test_clean_up_goes_to_the_store(tmp_path: Path, code: int, command: str) -> None:
    world = World(tmp_path)
    answer = world.ask(processor_of(world), RemotingCommand.request(code))
    assert (answer.code, answer.remark, answer.body) == (0, None, b"")
    assert world.store.commands == [(command,)]
    world.store.failure = TimeoutError("store")
    with pytest.raises(TimeoutError):
        processor_of(world).process_request(FakeConnection(), RemotingCommand.request(code))

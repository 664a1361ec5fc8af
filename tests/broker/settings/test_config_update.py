"""config_update: the allow-list holds, nothing happens by halves, who did it is known."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from broker.settings.broker_config import BrokerConfig
from broker.settings.changeable_keys import CHANGEABLE
from broker.settings.changed_settings import ChangedSettings
from broker.settings.config_update import BrokerConfigUpdate
from broker.settings.startup_options import StartupOptions
from broker.settings.supervisor_config import SupervisorConfig
from conf.logging_setup import LoggingConfig
from conf.settings_file import read_settings_file
from ha.ha_config import HaConfig
from ipc.command_channel import CommandError
from remoting.errors import RequestError
from remoting.remoting_config import RemotingClientConfig, RemotingServerConfig
from remoting.response_code import ResponseCode
from store.message_store_config import BrokerRole, FlushDiskType, MessageStoreConfig
from tests.broker.broker_fakes import FakeClock

MEMORY = ChangedSettings.create()
WHO = "10.0.0.9:1 (access key rocketmq2)"
FILE = "# ours\nlistenPort = 10911\n\nbrokerPermission = 6\n! end\n"


class User:
    """A SettingsUser that remembers."""

    def __init__(self) -> None:
        self.offered: list[tuple[dict[str, str], set[str]]] = []
        self.used: list[tuple[StartupOptions, set[str]]] = []
        self.failures: list[CommandError | None] = []
        """Of the next offers."""

    def offer(self, options: StartupOptions, keys: Collection[str]) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        settings = options.settings()
        self.offered.append(({key: settings[key] for key in keys}, set(keys)))

    def use(self, options: StartupOptions, keys: Collection[str]) -> None:
        self.used.append((options, set(keys)))


class World:
    def __init__(
        self, tmp_path: Path, *, file: bool = True, name: str = "broker.conf", **broker: object
    ) -> None:
        self.clock = FakeClock()
        self.user = User()
        self.changed = ChangedSettings(MEMORY)
        self.changed.write({})
        self.path = tmp_path / name
        if file:
            self.path.write_text(FILE)
        self.options = StartupOptions(
            broker=BrokerConfig(**broker),  # type: ignore[arg-type]
            server=RemotingServerConfig(),
            client=RemotingClientConfig(),
            store=MessageStoreConfig(store_path_root_dir=str(tmp_path / "store")),
            ha=HaConfig(),
            supervisor=SupervisorConfig(),
            logging=LoggingConfig(),
        )
        self.make(file=file)

    def make(self, *, file: bool = True) -> None:
        self.updates = BrokerConfigUpdate(
            self.options,
            self.clock,
            config_file=self.path if file else None,
            user=self.user,
            changed=self.changed,
        )

    def value(self, key: str) -> str:
        return self.updates.all_configs()[key]

    def refused(self, text: str) -> tuple[int, str]:
        """The refusal of `text`, which changes nothing."""
        before = dict(self.updates.all_configs()), self.updates.data_version()
        with pytest.raises(RequestError) as caught:
            self.updates.update(text, WHO)
        assert (dict(self.updates.all_configs()), self.updates.data_version()) == before
        assert self.path.read_text() == FILE
        assert (self.user.used, self.changed.read()) == ([], {})
        return caught.value.code, caught.value.remark


def test_every_setting_is_shown_as_a_start_reads_it(tmp_path: Path) -> None:
    world = World(tmp_path, start_accept_send_request_time_stamp=42)
    shown = world.updates.all_configs()
    assert shown == world.options.settings()
    assert shown["startAcceptSendRequestTimeStamp"] == "42"
    assert StartupOptions.from_settings(shown).settings() == shown
    assert world.updates.data_version().timestamp == world.clock.now_ms()


def test_settings_that_apply_now(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path)
    first = world.updates.data_version()
    world.clock.advance(7)
    remark = world.updates.update("brokerPermission=4\nslaveReadEnable=TRUE\n", WHO)
    assert remark == f"applied now: brokerPermission, slaveReadEnable; saved to {world.path}"
    assert (world.value("brokerPermission"), world.value("slaveReadEnable")) == ("4", "true")
    assert world.path.read_text() == (
        "# ours\nlistenPort = 10911\n\nbrokerPermission=4\n! end\nslaveReadEnable=true\n"
    )
    ((options, keys),) = world.user.used
    assert (options.broker.broker_permission, options.broker.slave_read_enable) == (4, True)
    assert keys == {"brokerPermission", "slaveReadEnable"}
    assert world.changed.read() == {"brokerPermission": "4", "slaveReadEnable": "true"}
    version = world.updates.data_version()
    assert (version.counter, version.timestamp) == (first.counter + 1, world.clock.now_ms())
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("broker.audit", f"{WHO} changed brokerPermission from '6' to '4', applies now"),
        ("broker.audit", f"{WHO} changed slaveReadEnable from 'false' to 'true', applies now"),
    ]


def test_settings_that_apply_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    remark = world.updates.update("flushDiskType=SYNC_FLUSH\nbrokerPermission=2\n", WHO)
    assert remark == (
        "applied now: brokerPermission; applies after a restart: flushDiskType; "
        f"saved to {world.path}"
    )
    assert world.value("flushDiskType") == "ASYNC_FLUSH", "what is in force"
    assert "flushDiskType=SYNC_FLUSH\n" in world.path.read_text()
    assert world.changed.read() == {"brokerPermission": "2"}, "a lone process is no restart"
    ((options, keys),) = world.user.used
    assert (options.store.flush_disk_type.name, keys) == ("ASYNC_FLUSH", {"brokerPermission"})
    world.updates.update("flushDiskType=ASYNC_FLUSH", WHO)
    assert caplog.messages[-1] == (
        f"{WHO} changed flushDiskType from 'SYNC_FLUSH' to 'ASYNC_FLUSH', applies after a restart"
    )
    assert world.changed.read() == {"brokerPermission": "2"}


def test_a_process_that_starts_again_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.updates.update("brokerPermission=2", WHO)
    world.options = StartupOptions.from_settings(
        {**world.options.settings(), **world.changed.read()}
    )
    world.make()
    assert world.value("brokerPermission") == "2"
    world.updates.update("slaveReadEnable=true", WHO)
    assert world.changed.read() == {"brokerPermission": "2", "slaveReadEnable": "true"}


def test_a_restart_takes_what_was_saved(tmp_path: Path) -> None:
    world = World(tmp_path, name="broker.yaml")
    world.path.write_text("# ours\nbrokerPermission: 6 # both\ndeleteWhen: 04\n")
    world.updates.update("deleteWhen=04;16\nflushDiskType=SYNC_FLUSH", WHO)
    assert world.path.read_text() == (
        "# ours\nbrokerPermission: 6 # both\ndeleteWhen: 04;16\nflushDiskType: SYNC_FLUSH\n"
    )
    file = {setting.key: setting.text for setting in read_settings_file(world.path)}
    store = StartupOptions.from_settings(file).store
    assert (store.delete_hours, store.flush_disk_type) == ({4, 16}, FlushDiskType.SYNC_FLUSH)


def test_what_the_store_holds_is_offered_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.updates.update("fileReservedTime=24\nflushDiskType=SYNC_FLUSH", WHO)
    assert world.user.offered == [({"fileReservedTime": "24"}, {"fileReservedTime"})]


def test_without_a_file_the_way_out_is_said(tmp_path: Path) -> None:
    world = World(tmp_path, file=False)
    remark = world.updates.update("longPollingEnable=false", WHO)
    path = tmp_path / "store" / "config" / "broker.properties"
    assert remark == (
        f"applied now: longPollingEnable; saved to {path}, which is used only when starting with "
        f"-c {path}"
    )
    assert path.read_text() == "longPollingEnable=false\n"


def test_an_empty_request_is_no_change(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.updates.update("# nothing\n", WHO) == "nothing to change"
    assert world.path.read_text() == FILE
    assert (world.user.offered, world.updates.data_version().counter) == ([], 0)


FILE_ONLY = "it can only be changed in the settings file before a start"
NEVER = [
    key
    for key in StartupOptions.from_settings({}).settings()
    if key not in CHANGEABLE and key != "configBlackList"
]


@pytest.mark.parametrize("key", NEVER)
def test_every_other_setting_is_refused(tmp_path: Path, key: str) -> None:
    found = World(tmp_path).refused(f"slaveReadEnable=true\n{key}=/tmp/x\n")
    assert found == (
        ResponseCode.NO_PERMISSION,
        f"Can not update config {key!r}: {FILE_ONLY}. Nothing is changed",
    )


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("configBlackList", "it is in configBlackList"),
        ("brokerConfigPath", "it is in configBlackList"),
        ("slaveReadEnable", "it is in configBlackList"),
        ("transferMsgByHeap", "it has no effect in this broker"),
        ("noSuchKey", "there is no such setting; getBrokerConfig lists all"),
        ("__class__", "there is no such setting; getBrokerConfig lists all"),
    ],
)
def test_refusals_say_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str, reason: str
) -> None:
    black = "configBlackList;brokerConfigPath; slaveReadEnable"
    world = World(tmp_path, config_black_list=black)
    found = world.refused(f"brokerPermission=4\n{key}=true\n")
    assert found == (
        ResponseCode.NO_PERMISSION,
        f"Can not update config {key!r}: {reason}. Nothing is changed",
    )
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("broker.audit", f"{WHO} tried to change {key!r}, refused: {reason}")
    ]


ROLE = (
    "Can not update config 'brokerRole': switching between master and slave is only possible "
    "in the settings file before a start; brokerId and the data must match. Nothing is changed"
)


def test_a_master_becomes_no_slave(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.refused("brokerRole=SLAVE") == (ResponseCode.NO_PERMISSION, ROLE)
    remark = world.updates.update("brokerRole=SYNC_MASTER", WHO)
    assert remark == f"applies after a restart: brokerRole; saved to {world.path}"


def test_a_slave_becomes_no_master(tmp_path: Path) -> None:
    world = World(tmp_path)
    store = MessageStoreConfig(store_path_root_dir=str(tmp_path), broker_role=BrokerRole.SLAVE)
    world.options = StartupOptions(
        broker=BrokerConfig(broker_id=1),
        server=RemotingServerConfig(),
        client=RemotingClientConfig(),
        store=store,
        ha=HaConfig(),
        supervisor=SupervisorConfig(),
        logging=LoggingConfig(),
    )
    world.make()
    assert world.refused("brokerRole=ASYNC_MASTER") == (ResponseCode.NO_PERMISSION, ROLE)


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        (
            "brokerPermission=9",
            f"request 25 from {WHO}: brokerPermission = 9: expected a whole number in 0..7. "
            "Nothing is changed",
        ),
        (
            "slaveReadEnable=maybe",
            f"request 25 from {WHO}: slaveReadEnable = maybe: expected true or false. "
            "Nothing is changed",
        ),
        (
            "deleteWhen=25",
            "deleteWhen = 25: expected hours 00..23 separated by ';'. Nothing is changed",
        ),
        (
            "flushDiskType=NEVER",
            f"request 25 from {WHO}: flushDiskType = NEVER: expected one of SYNC_FLUSH, "
            "ASYNC_FLUSH. Nothing is changed",
        ),
        (
            "diskSpaceWarningLevelRatio=50\nbrokerPermission=4",
            "diskSpaceCleanForciblyRatio = 85 is above diskSpaceWarningLevelRatio = 50: sends "
            "would be refused before space is made; lower the first. Nothing is changed",
        ),
        (
            "=x",
            f"not properties text: request 25 from {WHO}:1: the key is missing before '='",
        ),
    ],
)
def test_a_value_that_cannot_be_taken(tmp_path: Path, text: str, remark: str) -> None:
    world = World(tmp_path)
    assert world.refused(f"{text}\nlongPollingEnable=false") == (ResponseCode.SYSTEM_ERROR, remark)
    assert world.user.offered == []


def test_a_store_that_does_not_answer(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.user.failures = [
        CommandError("change_retention: no response from process store: timeout")
    ]
    assert world.refused("fileReservedTime=24") == (
        ResponseCode.SYSTEM_ERROR,
        "change_retention: no response from process store: timeout. Nothing is changed; try again",
    )


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.path.with_name("broker.conf.tmp").mkdir()
    code, remark = world.refused("fileReservedTime=24\nbrokerPermission=4")
    assert (code, remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"{world.path}: the settings file cannot be written: Is a directory. Nothing is changed",
    )
    keys = {"fileReservedTime", "brokerPermission"}
    assert world.user.offered == [
        ({"fileReservedTime": "24", "brokerPermission": "4"}, keys),
        ({"fileReservedTime": "72", "brokerPermission": "6"}, keys),
    ], "what the store took is taken back"


def test_a_store_that_does_not_take_it_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.path.with_name("broker.conf.tmp").mkdir()
    world.user.failures = [None, CommandError("change_retention: no response from process store")]
    assert world.refused("fileReservedTime=24") == (
        ResponseCode.SYSTEM_ERROR,
        f"{world.path}: the settings file cannot be written: Is a directory. Nothing is saved, but "
        "the new values may be in effect until a restart: change_retention: no response from "
        "process store",
    )


def test_a_file_that_only_a_person_can_edit(tmp_path: Path) -> None:
    world = World(tmp_path, name="broker.yaml")
    world.path.write_text("{brokerPermission: 6, brokerId: 0}")
    with pytest.raises(RequestError, match="has a form that cannot be edited automatically"):
        world.updates.update("brokerPermission=4", WHO)
    assert world.value("brokerPermission") == "6"

"""broker.broker_startup: flags, file, derived values, words and exit codes of mqbroker."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.broker_startup import load_startup_options
from broker.settings.controller_mode_config import ControllerModeConfig
from broker.settings.startup_options import StartupOptions
from conf.errors import StartupExitError

HOME = {"ROCKETMQ_HOME": "/opt/mq"}
CONF = Path(__file__).parents[2] / "conf"


def load(tmp_path: Path, text: str = "", *arguments: str) -> StartupOptions:
    path = tmp_path / "b.conf"
    path.write_text(text)
    return load_startup_options(["-c", str(path), *arguments], HOME)


def exit_of(arguments: list[str], environment: dict[str, str]) -> StartupExitError:
    with pytest.raises(StartupExitError) as caught:
        load_startup_options(arguments, environment)
    return caught.value


def test_defaults() -> None:
    options = load_startup_options([], HOME)
    assert (options.server.listen_port, options.ha.ha_listen_port) == (10911, 10912)
    assert options.broker.rocketmq_home == "/opt/mq"
    assert options.namesrv_addresses == ()
    assert options.config_file is None
    assert options.supervisor.metrics_port == 5557


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("", 10912),
        ("listenPort=20911", 20912),
        ("listenPort=0", 0),
        ("haListenPort=7000", 7000),
        ("haListenPort=0", 0),
    ],
)
def test_ha_port_follows_the_listen_port(tmp_path: Path, text: str, port: int) -> None:
    options = load(tmp_path, text)
    assert (options.ha.ha_listen_port, options.settings()["haListenPort"]) == (port, str(port))


def test_command_line_wins_over_file_over_environment(tmp_path: Path) -> None:
    environment = HOME | {"NAMESRV_ADDR": "e:1"}
    path = tmp_path / "b.conf"
    path.write_text("namesrvAddr=f:1;g:2\n")
    assert load_startup_options([], environment).namesrv_addresses == ("e:1",)
    file = ["-c", str(path)]
    assert load_startup_options(file, environment).namesrv_addresses == ("f:1", "g:2")
    assert load_startup_options([*file, "-n", "c:1"], environment).namesrv_addresses == ("c:1",)


@pytest.mark.parametrize("number", ["", "brokerId=0\n", "brokerId=-1\n"])
def test_a_slave_needs_an_id(tmp_path: Path, number: str) -> None:
    assert load(tmp_path, "brokerId=7\nbrokerRole=SLAVE\n").broker.broker_id == 7
    with pytest.raises(StartupExitError) as caught:
        load(tmp_path, f"{number}brokerRole=SLAVE\n")
    assert caught.value.exit_code == 253
    assert caught.value.text.startswith("Slave's brokerId must be > 0: set brokerId=1")


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_a_master_gets_id_0(tmp_path: Path, role: str) -> None:
    """As in RocketMQ; that its brokerId has no effect is told."""
    quiet = load(tmp_path, f"brokerRole={role}\nbrokerId=0\n")
    assert (quiet.broker.broker_id, quiet.warnings) == (0, ())
    options = load(tmp_path, f"brokerRole={role}\nbrokerId=7\n")
    assert options.broker.broker_id == 0
    [warning] = options.warnings
    assert warning == (
        f"{tmp_path}/b.conf:2: brokerId = 7 has no effect: with brokerRole = {role} it is the "
        "master of its group, with id 0; set brokerId=0, or brokerRole=SLAVE for a slave"
    )


@pytest.mark.parametrize("number", [1, -1])
def test_a_slave_whose_role_was_forgotten_is_no_master(tmp_path: Path, number: int) -> None:
    with pytest.raises(StartupExitError) as caught:
        load(tmp_path, f"brokerName=b\nbrokerId={number}\n")
    assert (caught.value.exit_code, caught.value.to_stdout) == (253, False)
    assert caught.value.text == (
        f"{tmp_path}/b.conf:2: brokerId = {number} without brokerRole: it would start as a "
        "master, with id 0, although the group may already have one; set brokerRole=SLAVE for a "
        "slave, brokerId=0 for a master"
    )
    assert load(tmp_path, "brokerId=0\n").warnings == ()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "its own name server knows its master only if that registers there"),
        ("haMasterAddress=10.0.0.1:10912\n", "its own name server knows its master"),
        ("embeddedNamesrvEnable=false\n", "it has no name server to learn its master from"),
    ],
)
def test_a_slave_that_nobody_tells_of_its_master(tmp_path: Path, lines: str, words: str) -> None:
    slave = f"brokerRole=SLAVE\nbrokerId=1\n{lines}"
    [warning] = load(tmp_path, slave).warnings
    assert words in warning
    assert "-n or namesrvAddr" in warning
    assert load(tmp_path, slave, "-n", "a:1").warnings == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("haTrustedAddresses=10.0.0.0/33", "b.conf:1: haTrustedAddresses: '10.0.0.0/33' is no"),
        ("#\nhaTrustedAddresses=127.0.0.1,here", "b.conf:2: haTrustedAddresses: 'here' is no"),
        ("haTlsEnable=true", "b.conf:1: haTlsEnable=true needs haTlsCertificate"),
        (
            "enableControllerInNamesrv=true",
            "b.conf:1: enableControllerInNamesrv = true: it belongs in the file of bin/mqnamesrv: "
            "a broker's own name server has no controller; set it to false or remove the line",
        ),
        (
            "haTlsEnable=true\nhaTlsCertificate=/nowhere/c.pem",
            "b.conf:2: haTlsCertificate /nowhere/c.pem cannot be read: No such file",
        ),
        (
            "haSharedSecretFile=/nowhere/secret",
            "b.conf:1: haSharedSecretFile /nowhere/secret cannot be read: No such file",
        ),
        ("#\nhaSharedSecretFile=/dev/null", "b.conf:2: haSharedSecretFile /dev/null is not a file"),
        ("haMasterAddress=10.0.0.1", "b.conf:1: haMasterAddress = 10.0.0.1: expected ip:port"),
        ("brokerName=a\\tb", "b.conf:1: brokerName = 'a\\tb': it holds a control character"),
        ("haMasterAddress=10.0.0.1:0", "expected ip:port of the master's HA port"),
        ("haMasterAddress=:10912", "expected ip:port"),
    ],
)
def test_replication_settings_that_cannot_work(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(StartupExitError) as caught:
        load(tmp_path, f"{text}\n")
    assert caught.value.exit_code == 255
    assert not caught.value.to_stdout
    assert problem in caught.value.text


def test_replication_settings_that_work(tmp_path: Path) -> None:
    """A haMasterAddress of less than six characters is none, as in the original."""
    text = "haTrustedAddresses=10.0.0.0/8;::1 192.168.1.7\nhaMasterAddress=null\n"
    assert load(tmp_path, text).ha.ha_master_address == "null"
    assert load(tmp_path, "haMasterAddress=master-1:10912").ha.ha_master_address
    assert load(tmp_path, "haTlsCertificate=/nowhere").ha.ha_tls_enable is False


@pytest.mark.parametrize(
    ("text", "trusted"),
    [("", None), ("haTrustedAddresses=\n", None), ("haTrustedAddresses=10.0.0.1\n", "10.0.0.1")],
)
def test_trusted_addresses_reach_process_ha_and_an_empty_value_is_unset(
    tmp_path: Path, text: str, trusted: str | None
) -> None:
    options = load(tmp_path, text)
    assert options.ha.ha_trusted_addresses == trusted
    again = StartupOptions.from_settings(options.child_settings())
    assert again.ha.ha_trusted_addresses == trusted


MEMBER = "enableControllerMode=true\ncontrollerAddr=c1:9878;c2:9878\n"
SAFE = "allAckInSyncStateSet=true\nminInSyncReplicas=2\n"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        pytest.param(
            "enableControllerMode=true\n",
            ["controllerAddr: enableControllerMode needs it; expected host:port"],
            id="no controllers",
        ),
        pytest.param(
            "enableControllerMode=true\ncontrollerAddr= ; ;\n",
            ["b.conf:2: controllerAddr: enableControllerMode needs it"],
            id="an empty list",
        ),
        pytest.param(
            "controllerAddr=c1:9878;c2\n",
            ["b.conf:1: controllerAddr: 'c2': expected host:port of each controller"],
            id="a name without a port, even without the mode",
        ),
        pytest.param(
            f"{MEMBER}brokerIP1=fd00::1\n",
            ["b.conf:3: brokerIP1: 'fd00::1': the ports of a broker are IPv4"],
            id="an address that nobody reaches",
        ),
        pytest.param("controllerAddr=c1:0\n", ["controllerAddr: 'c1:0'"], id="a port that is none"),
        pytest.param("controllerAddr=c1:65536\n", ["'c1:65536'"], id="a port that is too large"),
        pytest.param(
            "controllerAddr=[::::]:1\n", ["'[::::]:1': no IPv6 address"], id="no IPv6 address"
        ),
        pytest.param("controllerAddr=c 1:1\n", ["'c 1:1'"], id="a name that is none"),
        pytest.param(
            f"{MEMBER}controllerHeartBeatTimeoutMills=1500\n",
            ["b.conf:3: controllerHeartBeatTimeoutMills: 1500 is less than twice brokerHeartbeat"],
            id="a timeout within a lost heartbeat",
        ),
        pytest.param(
            f"{MEMBER}brokerName=a#b\n",
            ["b.conf:3: brokerName: 'a#b' holds '#'"],
            id="a name that an identity cannot hold",
        ),
        pytest.param(
            f"{MEMBER}storePathEpochFile=/s/x\nstorePathBrokerIdentity=/s/x\n",
            ["storePathEpochFile: storePathBrokerIdentity names the same file"],
            id="one file for two things",
        ),
        pytest.param(
            f"{MEMBER}storePathRootDir=/s\nstorePathEpochFile=/s/x/../brokerIdentity-temp\n",
            ["storePathEpochFile: storePathBrokerIdentity names the same file"],
            id="one file for two things, by other names",
        ),
        pytest.param(
            "minInSyncReplicas=0\n",
            ["b.conf:1: minInSyncReplicas = 0: expected a whole number"],
            id="a value outside its range",
        ),
    ],
)
def test_settings_of_a_member_that_do_not_fit_together(
    tmp_path: Path, text: str, problems: list[str]
) -> None:
    with pytest.raises(StartupExitError) as caught:
        load(tmp_path, text)
    assert caught.value.exit_code == 255
    assert [problem for problem in problems if problem not in caught.value.text] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "brokerRole=SLAVE\nbrokerId=-1\n",
        "brokerRole=SYNC_MASTER\n",
        "brokerRole=SLAVE\nbrokerId=0\n",
        "brokerId=3\n",
    ],
)
def test_a_member_begins_as_a_slave_whatever_is_set(tmp_path: Path, text: str) -> None:
    options = load(tmp_path, f"{MEMBER}{SAFE}storePathRootDir={tmp_path}\n{text}", "-n", "a:1")
    assert (options.store.is_slave, options.broker.broker_id) == (True, 1)
    assert options.ha.in_sync_replicas == 1
    is_of_the_examples = "SYNC" not in text and "=0" not in text and "=3" not in text
    assert (options.warnings == ()) == is_of_the_examples


def test_a_member_that_has_an_id_is_known_by_it(tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_bytes(b"DefaultCluster#b#17")
    options = load(tmp_path, f"{MEMBER}storePathRootDir={tmp_path}\n", "-n", "a:1")
    assert options.broker.broker_id == 17


@pytest.mark.parametrize(
    ("text", "level"), [("", "received"), ("flushDiskType=SYNC_FLUSH\n", "flushed")]
)
def test_a_member_s_copy_counts_as_the_master_s_does(tmp_path: Path, text: str, level: str) -> None:
    options = load(tmp_path, f"{MEMBER}{SAFE}storePathRootDir={tmp_path}\n{text}", "-n", "a:1")
    assert options.ha.ha_ack_level.name == level


def test_what_has_no_effect_in_controller_mode_is_named_once(tmp_path: Path) -> None:
    more = "enableSlaveActingMaster=true\nhaMasterAddress=a:10912\nhaTruncateDiverged=true\n"
    more += "totalReplicas=3\n"
    text = f"{MEMBER}{SAFE}storePathRootDir={tmp_path}\nbrokerRole=SLAVE\n{more}"
    options = load(tmp_path, text, "-n", "a:1")
    (warning,) = options.warnings
    for key in (
        *("enableSlaveActingMaster", "haMasterAddress", "haTruncateDiverged"),
        "totalReplicas",
    ):
        assert key in warning
    assert "brokerRole" not in warning
    assert not options.broker.enable_slave_acting_master
    assert not options.broker.begins_isolated


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "SEND_OK means that this broker has the message: what is answered while"),
        (
            "inSyncReplicas=2\n",
            "SEND_OK means that 2 brokers have the message, and an election",
        ),
        ("allAckInSyncStateSet=true\n", "which may be this broker alone"),
        (SAFE, None),
    ],
)
def test_a_weak_send_ok_is_told(tmp_path: Path, text: str, words: str | None) -> None:
    options = load(tmp_path, f"{MEMBER}storePathRootDir={tmp_path}\n{text}", "-n", "a:1")
    found = [warning for warning in options.warnings if "SEND_OK" in warning]
    assert [words in warning for warning in found if words] == ([] if words is None else [True])
    assert all("safe mode" in warning for warning in found)


def test_a_member_without_name_servers_is_warned(tmp_path: Path) -> None:
    options = load(tmp_path, f"{MEMBER}{SAFE}storePathRootDir={tmp_path}\n")
    (warning,) = options.warnings
    assert warning.startswith("enableControllerMode without namesrvAddr")


def test_settings_of_controller_mode_without_it(tmp_path: Path) -> None:
    controllers = "controllerAddr= a.b:1;[::1]:2;;a.b:01\n"
    text = f"enableControllerMode=false\nallAckInSyncStateSet=true\n{controllers}"
    options = load(tmp_path, text)
    assert options.controller_mode.controllers == ("a.b:1", "[::1]:2")
    again = StartupOptions.from_settings(options.child_settings())
    assert again.controller_mode == options.controller_mode
    (warning,) = options.warnings
    assert warning.startswith("these settings have no effect without enableControllerMode: ")
    assert "allAckInSyncStateSet" in warning
    assert "b.conf:3)" in warning


def test_files_of_a_member() -> None:
    root = Path("/store")
    usual = ControllerModeConfig()
    assert usual.epoch_file(root) == root / "epochFileCheckpoint"
    assert usual.identity_file(root) == root / "brokerIdentity"
    elsewhere = ControllerModeConfig(store_path_epoch_file="/e", store_path_broker_identity="/i")
    assert (elsewhere.epoch_file(root), elsewhere.identity_file(root)) == (Path("/e"), Path("/i"))


def test_the_secret_of_the_group(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("the secret of this group\n")
    path.chmod(0o600)
    options = load(tmp_path, f"haSharedSecretFile={path}\n")
    assert options.ha.ha_shared_secret_file == str(path)
    assert "the secret of this group" not in repr(options.child_settings())
    path.chmod(0o644)
    with pytest.raises(StartupExitError, match="other users may read"):
        load(tmp_path, f"haSharedSecretFile={path}\n")


def test_settings_read_back_in_a_child(tmp_path: Path) -> None:
    text = "brokerName=b\nflushDiskType=SYNC_FLUSH\nlistenPort=0\ntraceOn=false\n"
    options = load(tmp_path, text, "-n", "a:1")
    again = StartupOptions.from_settings(options.settings())
    assert again.settings() == options.settings()
    assert (again.broker, again.store, again.ha) == (options.broker, options.store, options.ha)


def test_print_all_and_important() -> None:
    everything = exit_of(["-p"], HOME)
    important = exit_of(["-m"], HOME)
    assert (everything.exit_code, important.exit_code) == (0, 0)
    lines = everything.text.splitlines()
    assert {"listenPort=10911", "haListenPort=10912", "brokerRole=ASYNC_MASTER"} <= set(lines)
    assert set(important.text.splitlines()) < set(lines)
    assert "autoCreateTopicEnable=true" in important.text.splitlines()
    assert "listenPort=10911" not in important.text.splitlines()


def test_exit_codes(tmp_path: Path) -> None:
    assert exit_of([], {}).exit_code == 254
    assert exit_of(["-n", "nonsense"], HOME).exit_code == 253
    assert exit_of(["-n", ""], HOME).exit_code == 253
    assert exit_of(["-x"], HOME).exit_code == 1
    bad = tmp_path / "bad.conf"
    bad.write_text("brokerNmae=x\nlistenPort=65535\nhaListenPrt=1\n")
    refused = exit_of(["-c", str(bad)], HOME)
    assert refused.exit_code == 255
    assert f"{bad}:1: unknown key 'brokerNmae'; did you mean 'brokerName'?" in refused.text
    assert not refused.to_stdout
    bad.write_text("#\ndeleteWhen=4pm\n")
    assert f"{bad}:2: deleteWhen = 4pm: expected hours" in exit_of(["-c", str(bad)], HOME).text
    bad.write_text("listenPort=65535\n")
    assert "haListenPort = 65536: expected" in exit_of(["-c", str(bad)], HOME).text


@pytest.mark.parametrize("path", sorted(CONF.glob("2m-*/*")), ids=lambda path: path.name)
def test_shipped_clusters_load(path: Path) -> None:
    options = load_startup_options(["-c", str(path), "-n", "a:1"], HOME)
    assert options.warnings == ()
    assert options.broker.broker_name == path.stem.removesuffix("-s")
    is_slave = path.stem.endswith("-s")
    assert (options.store.broker_role.name == "SLAVE") == is_slave
    assert options.broker.broker_id == (1 if is_slave else 0)


def test_shipped_conf_and_yaml_say_the_same() -> None:
    conf = load_startup_options(["-c", str(CONF / "broker.conf")], HOME)
    yaml = load_startup_options(["-c", str(CONF / "broker.yaml")], HOME)
    assert conf.settings() == yaml.settings()
    assert conf.broker.broker_name == "broker-a"
    assert conf.store.delete_when == "04"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("fetchNamesrvAddrByAddressServer=true", ""),
        (
            "fetchNamesrvAddrByAddressServer=true\nnamesrvAddr=a:1",
            "fetchNamesrvAddrByAddressServer has no effect",
        ),
        (
            "fetchNameSrvAddrByDnsLookup=true",
            "fetchNameSrvAddrByDnsLookup has no effect without namesrvAddr",
        ),
        ("fetchNameSrvAddrByDnsLookup=true\nnamesrvAddr=a:1", ""),
    ],
)
def test_ways_to_find_name_servers(tmp_path: Path, text: str, warning: str) -> None:
    found = [line for line in load(tmp_path, text).warnings if "fetchName" in line]
    assert [line.startswith(warning) for line in found] == ([True] if warning else [])

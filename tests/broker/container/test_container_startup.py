"""The command line and settings of mqbrokercontainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker import broker_startup
from broker.container import container_startup
from broker.container.container_startup import load_container_options
from conf.config_fields import field_specs
from conf.config_loader import build
from conf.errors import StartupExitError
from namesrv.namesrv_config import NamesrvConfig

HOME = {"ROCKETMQ_HOME": str(Path(__file__).parents[3])}


def conf(tmp_path: Path, text: str) -> str:
    path = tmp_path / "container.conf"
    path.write_text(text)
    return str(path)


def failure(arguments: list[str], environment: dict[str, str] = HOME) -> StartupExitError:
    with pytest.raises(StartupExitError) as caught:
        load_container_options(arguments, environment)
    return caught.value


def test_rocketmqs_sample_file(tmp_path: Path) -> None:
    """conf/container of 5.3.3; its name server lookup is off."""
    text = (
        "listenPort=10811\nnamesrvAddr=172.22.144.49:9876\n"
        "fetchNamesrvAddrByAddressServer=false\n"
        "brokerConfigPaths=/root/a.conf:/root/b.conf\n"
    )
    options = load_container_options(["-c", conf(tmp_path, text)], HOME)
    assert options.server.listen_port == 10811
    assert options.namesrv_addresses == ("172.22.144.49:9876",)
    assert not options.embeds_namesrv
    assert options.broker_files == (Path("/root/a.conf"), Path("/root/b.conf"))


def test_b_comes_before_the_file(tmp_path: Path) -> None:
    path = conf(tmp_path, "brokerConfigPaths=/root/a.conf\n")
    options = load_container_options(["-c", path, "-b", "/x/c.conf: /x/d.conf:"], HOME)
    assert options.broker_files == (Path("/x/c.conf"), Path("/x/d.conf"))


def test_without_brokers_it_is_an_empty_container() -> None:
    options = load_container_options([], HOME)
    assert (options.broker_files, options.server.listen_port) == ((), 10811)
    assert options.embeds_namesrv


def test_what_tls_cannot_have_is_told(tmp_path: Path) -> None:
    path = conf(tmp_path, "tls.ciphers=TLS_AES_256_GCM_SHA384\ntls.protocols=TLSv1.1,TLSv1.3\n")
    one, other = load_container_options(["-c", path], HOME).warnings
    assert "TLSv1.1 not spoken here" in one
    assert "cannot choose among the suites of TLS 1.3" in other


def test_what_holds_for_every_broker(tmp_path: Path) -> None:
    text = "listenPort=1\nbindAddress=127.0.0.1\nuseTLS=false\nlogLevel=WARN\n"
    options = load_container_options(["-c", conf(tmp_path, text)], HOME)
    shared = {setting.key: setting.text for setting in options.transport}
    assert shared == {"bindAddress": "127.0.0.1", "useTLS": "false"}
    assert options.fallbacks == {"logLevel": "WARN"}


def test_its_name_server_has_the_settings_of_an_embedded_one(tmp_path: Path) -> None:
    """Whatever bin/mqbroker may say of the name server that it brings, a container may, too."""
    of_broker, of_namesrv, own = (
        {spec.key for cls in classes for spec in field_specs(cls)}
        for classes in (
            broker_startup.KEYS.classes,
            (NamesrvConfig,),
            container_startup.KEYS.classes,
        )
    )
    assert of_broker & of_namesrv <= own
    text = "supportActingMaster=true\nnotifyMinBrokerIdChanged=true\n"
    options = load_container_options(["-c", conf(tmp_path, text)], HOME)
    namesrv = build(NamesrvConfig, options.settings())
    assert namesrv.support_acting_master
    assert namesrv.notify_min_broker_id_changed


def test_printed_settings() -> None:
    error = failure(["-p"])
    assert error.exit_code == 0
    assert {"listenPort=10811", "brokerConfigPaths=", "embeddedNamesrvPort=9876"} <= set(
        error.text.splitlines()
    )
    important = failure(["-m"]).text
    assert "brokerContainerIP=" in important
    assert "listenPort" not in important


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--auto", "-b", "/x/a.conf"], 253, "--auto chooses the brokers itself"),
        (["-n", "nowhere"], 253, "The Name Server Address[nowhere] illegal"),
        (["-c", "/nowhere/container.conf"], 255, "/nowhere/container.conf"),
        (["--brokers"], 1, "usage: mqbrokercontainer"),
    ],
)
def test_misuse(arguments: list[str], code: int, words: str) -> None:
    error = failure(arguments)
    assert error.exit_code == code
    assert words in error.text


def test_bad_settings_name_their_line(tmp_path: Path) -> None:
    path = conf(tmp_path, "listenPort=10811\nmetricsPort=5557\nadminAllowedAddresses=*\n")
    assert f"{path}:2: unknown key 'metricsPort'" in failure(["-c", path]).text
    path = conf(tmp_path, "adminAllowedAddresses=everybody\n")
    assert f"{path}:1: adminAllowedAddresses" in failure(["-c", path]).text
    assert failure([], {}).exit_code == 254

"""From a settings file to a controller's options, or to one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.errors import StartupExitError
from controller.controller_startup import ControllerOptions, load_controller_options

HOME = {"ROCKETMQ_HOME": "/"}
ETCD = {
    "controllerStore": "etcd",
    "etcdEndpoints": "a:1,b:1;c:1",
    "controllerDLegerPeers": "n0-x:9877;n1-y:9877",
}


def load(tmp_path: Path, **settings: str) -> ControllerOptions:
    path = tmp_path / "controller.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return load_controller_options(["-c", str(path)], HOME)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"controllerStore": "zk"}, "controllerStore = 'zk' is not known; embedded or etcd"),
        ({"controllerDLegerPeers": "n0-a:1;n1-b:1"}, "names 2 controllers"),
        ({"controllerDLegerPeers": "n1-127.0.0.1:1"}, "controllerDLegerSelfId"),
        ({"controllerDLegerPeers": "n0-127.0.0.1"}, "expected id-host:port"),
        ({"controllerDLegerPeers": "n0-127.0.0.1:99999"}, "a port of 1 to 65535"),
        ({"controllerDLegerPeers": "n0-127.0.0.1:0"}, "a port of 1 to 65535"),
        ({"controllerSelfAddress": "127.0.0.1"}, "controllerSelfAddress = '127.0.0.1': expected"),
        ({"controllerSelfAddress": "h:65536"}, "a port of 1 to 65535"),
        (
            {"controllerSelfAddress": "h:1", "controllerDLegerPeers": "n0-a:1;n1-b:1"},
            "names 2 controllers",
        ),
        ({"controllerSelfAddress": "h:1", "controllerDLegerPeers": "x"}, "expected id-host:port"),
        ({"controllerDLegerPeers": "n0-a:1;n0-b:1"}, "names n0-b:1 twice"),
        ({**ETCD, "controllerDLegerPeers": "n0-a:1;n1-a:1"}, "names n1-a:1 twice"),
        ({**ETCD, "controllerDLegerPeers": "n1-a:1;n2-b:1"}, "none of them is controllerDLeger"),
        ({**ETCD, "controllerDLegerPeers": ""}, "set controllerDLegerPeers, or controllerSelf"),
        ({**ETCD, "controllerDLegerGroup": "a/b"}, "controllerDLegerGroup = 'a/b': in etcd"),
        ({**ETCD, "etcdEndpoints": " ; "}, "etcdEndpoints is not set"),
        ({**ETCD, "etcdEndpoints": "a:1,ftp://b:1"}, "etcdEndpoints = 'ftp://b:1': expected host"),
        ({**ETCD, "etcdEndpoints": "a:0"}, "a port of 1 to 65535"),
        ({**ETCD, "etcdEndpoints": "a:1/v3"}, "etcdEndpoints = 'a:1/v3': expected host:port"),
        ({**ETCD, "etcdKeyPrefix": "/a//b"}, "etcdKeyPrefix = '/a//b': expected"),
        ({**ETCD, "etcdKeyPrefix": ""}, "etcdKeyPrefix = '': expected"),
        ({**ETCD, "etcdUser": "u"}, "etcdUser is set and etcdPasswordFile is not"),
        ({**ETCD, "etcdPasswordFile": "/p"}, "etcdPasswordFile is set and etcdUser is not"),
        ({**ETCD, "etcdUser": "u", "etcdPasswordFile": "/nowhere"}, "cannot be read: No such"),
        (
            {**ETCD, "etcdUser": "u", "etcdPasswordFile": "/p", "etcdTokenFile": "/t"},
            "one way to log in",
        ),
        ({**ETCD, "etcdCertFile": "/c"}, "etcdCertFile is set and etcdKeyFile is not"),
        ({**ETCD, "etcdKeyFile": "/c"}, "etcdKeyFile is set and etcdCertFile is not"),
        (
            {**ETCD, "etcdEndpoints": "http://a:1", "etcdTrustedCaFile": "/c"},
            "etcdTrustedCaFile is set and no endpoint in etcdEndpoints begins with https://",
        ),
        ({**ETCD, "etcdTrustedCaFile": "/nowhere"}, "etcdTrustedCaFile = /nowhere cannot be used"),
        (
            {**ETCD, "etcdEndpoints": "https://a:1", "etcdCertFile": "/c", "etcdKeyFile": "/k"},
            "etcdCertFile = /c and etcdKeyFile = /k cannot be used",
        ),
        ({**ETCD, "etcdLeaseSeconds": "2"}, "etcdLeaseSeconds"),
        ({"jRaftInitConf": "a:1,b:2"}, "several controllers"),
        ({**ETCD, "jRaftInitConf": "a:1;b:2"}, "name them in controllerDLegerPeers"),
        ({"adminAllowedAddresses": "x"}, "adminAllowedAddresses"),
        ({"registerAllowedAddresses": "x"}, "registerAllowedAddresses"),
        ({"enableElectUncleanMster": "true"}, "enableElectUncleanMaster"),
        ({"leaderWarmUpMillis": "0"}, "leaderWarmUpMillis"),
    ],
)
def test_a_start_that_fails_names_the_setting(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(StartupExitError) as raised:
        load(tmp_path, **settings)
    assert words in raised.value.text


def test_a_file_of_rocketmq_works(tmp_path: Path) -> None:
    """Its port is that of its peer, whatever listenPort says."""
    options = load(
        tmp_path,
        controllerDLegerGroup="group1",
        controllerDLegerPeers="n0-127.0.0.1:9877;",
        controllerDLegerSelfId="n0",
        listenPort="19876",
        controllerType="DLedger",
        electMasterMaxRetryCount="3",
    )
    assert options.server.listen_port == 9877
    assert options.controller.address == "127.0.0.1:9877"
    ignored, port = options.warnings
    assert "controllerType" in ignored
    assert port == f"listenPort ({tmp_path}/controller.conf:4) has no effect: " + (
        "controllerDLegerPeers names 9877"
    )


def test_several_controllers_with_an_etcd(tmp_path: Path) -> None:
    options = load(tmp_path, **ETCD, controllerDLegerSelfId="n1")
    assert options.warnings == ()
    assert options.server.listen_port == 9877
    assert (options.controller.address, options.controller.peers_text) == (
        *("y:9877", "n0:x:9877;n1:y:9877;"),
    )
    assert [str(one) for one in options.etcd.endpoints()] == [
        *("http://a:1", "http://b:1", "http://c:1"),
    ]
    one = load(tmp_path, **{**ETCD, "controllerDLegerPeers": ""}, controllerSelfAddress="h:7")
    assert (one.controller.address, one.controller.peers_text) == ("h:7", "")


@pytest.mark.parametrize(
    ("endpoints", "count"),
    [("a:1", 1), ("a:1,b:1", 2), ("a:1,a:1,b:1", 2), ("https://a:1,https://[::1]:2", 2)],
)
def test_an_etcd_without_high_availability_is_said(
    tmp_path: Path, endpoints: str, count: int
) -> None:
    (warning,) = load(tmp_path, **{**ETCD, "etcdEndpoints": endpoints}).warnings
    assert f"etcdEndpoints names {count}, fewer than 3" in warning
    assert "not highly available" in warning


def test_other_warnings_of_etcd(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, etcdEndpoints="a:1", etcdUser="u").warnings
    assert warning == "without controllerStore=etcd no effect: etcdEndpoints, etcdUser"
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("secret")
    (warning,) = load(tmp_path, **ETCD, etcdUser="u", etcdPasswordFile=str(password)).warnings
    assert "password and token go over the network as they are" in warning


def test_the_address_that_is_told_is_not_the_port(tmp_path: Path) -> None:
    """Behind NAT: brokers are told controllerSelfAddress; the port is that of the peer."""
    peers = {"controllerDLegerPeers": " n0-10.1.1.1:9870 ; ", "controllerSelfAddress": "h:7"}
    options = load(tmp_path, **peers)
    assert (options.server.listen_port, options.controller.address) == (9870, "h:7")
    options = load(tmp_path, controllerDLegerPeers=" ; ;", controllerSelfAddress="h:7")
    assert (options.server.listen_port, options.controller.address) == (9877, "h:7")


def test_without_peers_the_port_is_its_own(tmp_path: Path) -> None:
    assert load(tmp_path).server.listen_port == 9877
    options = load(tmp_path, listenPort="1234")
    assert (options.server.listen_port, options.controller.address) == (1234, None)


@pytest.mark.parametrize("flag", ["-h", "-p"])
def test_flags(flag: str) -> None:
    with pytest.raises(StartupExitError) as raised:
        load_controller_options([flag], {})
    assert raised.value.exit_code == 0
    assert ("usage: mqcontroller" if flag == "-h" else "controllerStore=embedded") in (
        raised.value.text
    )

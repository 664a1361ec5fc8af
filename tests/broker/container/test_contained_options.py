"""What a broker in a container is started with, and which brokers cannot be there together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.container.broker_container import BrokerContainer
from broker.container.broker_identity import BrokerIdentity
from broker.container.contained_options import (
    BrokerSettingsError,
    ContainedOptions,
    UnreadableSettingsError,
    load_contained_options,
)
from broker.container.container_startup import load_container_options

HOME = {"ROCKETMQ_HOME": str(Path(__file__).parents[3])}
NAMESRV = "127.0.0.1:9876"


class Files:
    """Settings files of a container and its brokers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.container_text = f"namesrvAddr={NAMESRV}\n"

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.write_text(text)
        return path

    def load(self, text: str, name: str = "broker.conf") -> ContainedOptions:
        path = self.write(name, text)
        container = self.write("container.conf", self.container_text)
        options = load_container_options(["-c", str(container)], HOME)
        return load_contained_options(path, options, NAMESRV, HOME)

    def configured(self, *texts: str) -> list[ContainedOptions]:
        """Those that a container with these brokers would start."""
        paths = [self.write(f"broker-{number}.conf", text) for number, text in enumerate(texts)]
        container = self.write("container.conf", self.container_text)
        joined = ":".join(map(str, paths))
        options = load_container_options(["-c", str(container), "-b", joined], HOME)
        return BrokerContainer(
            options,
            NAMESRV,
            HOME,
            life_fd=-1,
            is_pinning=lambda: False,
            say=lambda _line: None,
        ).load_configured()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def broker(name: str, port: int, **settings: object) -> str:
    lines = {"brokerName": name, "listenPort": port, "storePathRootDir": f"/s/{name}", **settings}
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def test_identity_and_name_servers(files: Files) -> None:
    contained = files.load("brokerClusterName=c\nbrokerName=b\nbrokerId=2\nbrokerRole=SLAVE\n")
    assert contained.identity == BrokerIdentity("c", "b", 2)
    assert contained.identity.canonical_name == "c_b_2"
    assert contained.options.namesrv_addresses == (NAMESRV,)
    assert contained.options.config_file == files.root / "broker.conf"
    assert not contained.options.supervisor.embedded_namesrv_enable


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("", 5557),
        ("listenPort=10921\n", 5567),
        ("listenPort=20911\n", 15557),
        ("listenPort=0\n", 0),
        ("listenPort=6377\n", 0),
        ("listenPort=10921\nmetricsPort=7000\n", 7000),
        ("listenPort=10921\nmetricsPromExporterPort=7001\n", 7001),
    ],
)
def test_the_exporters_port_follows_listen_port(files: Files, text: str, port: int) -> None:
    assert files.load(text).options.supervisor.metrics_port == port


def test_the_containers_network_settings_hold(files: Files) -> None:
    """A broker's own file may add to them."""
    files.container_text += "bindAddress=127.0.0.1\nserverSocketBacklog=7\nlogDir=/l\n"
    contained = files.load(
        "namesrvAddr=10.0.0.1:9876\nbindAddress=0.0.0.0\nserverSocketBacklog=7\n"
        "connectTimeoutMillis=77\n"
    )
    options = contained.options
    assert options.server.bind_address == "127.0.0.1"
    assert options.client.connect_timeout_millis == 77
    assert options.logging.log_dir == "/l"
    told = [words for words in options.warnings if "no effect in a broker container" in words]
    assert len(told) == 2
    assert f"{files.root / 'broker.conf'}:1: namesrvAddr = 10.0.0.1:9876" in told[0]
    assert "bindAddress = 0.0.0.0 has no effect in a broker container, whose own is 127" in told[1]


def test_the_logs_directory_is_the_brokers_own_if_it_says_so(files: Files) -> None:
    files.container_text += "logDir=/l\n"
    assert files.load("logDir=/mine\n").options.logging.log_dir == "/mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("brokerRole=SLAVE\n", "slave broker id must be > 0"),
        (
            "enableControllerMode=true\ncontrollerAddr=c:1\nbrokerRole=SLAVE\nbrokerId=-1\n",
            "enableControllerMode is not available in a broker container",
        ),
        ("brokerId=0\nbrokerRole=SLAVE\n", "slave broker id must be > 0"),
        ("totalReplicas=1\ninSyncReplicas=2\n", "invalid replicas number"),
        ("inSyncReplicas=1\nminInSyncReplicas=2\n", "invalid replicas number"),
        ("listenPort=many\n", "broker.conf:1: listenPort = many: expected a whole number"),
        ("listenprot=1\n", "unknown key 'listenprot'; did you mean 'listenPort'?"),
        ("enableDLegerCommitLog=true\n", "DLedger is not available"),
        ("duplicationEnable=true\n", "duplication mode is not available"),
        ("brokerId=1\n", "without brokerRole"),
    ],
)
def test_bad_settings(files: Files, text: str, words: str) -> None:
    with pytest.raises(BrokerSettingsError) as caught:
        files.load(text)
    assert words in str(caught.value)


def test_replicas_in_order(files: Files) -> None:
    """RocketMQ's sample of a broker in a container."""
    assert files.load("totalReplicas=2\ninSyncReplicas=2\nminInSyncReplicas=1\n")


def test_a_file_that_cannot_be_read(files: Files) -> None:
    options = load_container_options([], HOME)
    with pytest.raises(UnreadableSettingsError, match="nowhere"):
        load_contained_options(files.root / "nowhere.conf", options, NAMESRV, HOME)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_what_is_no_plain_file_is_not_opened(files: Files, kind: str) -> None:
    """A pipe without a writer would hold the container's request thread, and its stop."""
    os.mkfifo(files.root / "pipe")
    path = {"pipe": files.root / "pipe", "device": Path("/dev/zero"), "directory": files.root}[kind]
    options = load_container_options([], HOME)
    with pytest.raises(UnreadableSettingsError, match="not a regular file"):
        load_contained_options(path, options, NAMESRV, HOME)


@pytest.mark.timeout(20)
def test_a_plain_file_without_an_end_is_not_read_to_it(files: Files) -> None:
    """20 GiB of zeros, which take no room on the disk, ended the container."""
    path = files.root / "sparse.conf"
    with path.open("wb") as file:
        file.truncate(20 << 30)
    options = load_container_options([], HOME)
    with pytest.raises(UnreadableSettingsError, match="over 1048576 bytes: this is no settings"):
        load_contained_options(path, options, NAMESRV, HOME)


def test_a_nul_is_refused_with_its_place(files: Files) -> None:
    options = load_container_options([], HOME)
    with pytest.raises(UnreadableSettingsError, match=r"'/x\\x00y': .*embedded null"):
        load_contained_options(Path("/x\0y"), options, NAMESRV, HOME)
    with pytest.raises(
        UnreadableSettingsError, match=r"broker\.conf:1: storePathRootDir has a NUL"
    ):
        files.load("storePathRootDir=/s\0\n")


@pytest.mark.parametrize("key", ["brokerName", "brokerClusterName"])
def test_no_name_leads_out_of_the_log_directory(files: Files, key: str) -> None:
    with pytest.raises(BrokerSettingsError, match=rf"broker\.conf: {key} = \.\./\.\./etc: a name"):
        files.load(f"{key}=../../etc\n")


def test_brokers_beside_each_other(files: Files) -> None:
    """A master and a slave of one group may be in one container."""
    slave = broker("b", 10931, storePathRootDir="/s/b-1", brokerId=1, brokerRole="SLAVE")
    found = files.configured(broker("a", 10911), broker("b", 10921), slave)
    assert [each.identity.canonical_name for each in found] == [
        "DefaultCluster_a_0",
        "DefaultCluster_b_0",
        "DefaultCluster_b_1",
    ]


def test_ports_that_the_system_chooses_do_not_clash(files: Files) -> None:
    assert len(files.configured(broker("a", 0), broker("b", 0))) == 2


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (
            broker("a", 10921),
            "DefaultCluster_a_0 has already been added to current broker container",
        ),
        (broker("b", 10911), "DefaultCluster_b_0: listenPort = 10911 is already listenPort of Def"),
        (broker("b", 10913), "listenPort - 2 = 10911 is already listenPort of DefaultCluster_a_0"),
        (broker("b", 10912), "listenPort = 10912 is already haListenPort of DefaultCluster_a_0"),
        (broker("b", 10921, metricsPort=5557), "metricsPort = 5557 is already metricsPort of"),
        (broker("b", 10811), "listenPort = 10811 is already listenPort of the broker container"),
        (
            broker("b", 10921, storePathRootDir="/s/../s/a"),
            "storePathRootDir = /s/a is already storePathRootDir of DefaultCluster_a_0",
        ),
        (
            broker("b", 10921, storePathCommitLog="/s/a/commitlog"),
            "storePathCommitLog = /s/a/commitlog is already storePathCommitLog of",
        ),
        (
            broker("b", 10921, storePathCommitLog="/s/b/commitlog,/s/a/commitlog"),
            "storePathCommitLog = /s/a/commitlog is already storePathCommitLog of",
        ),
        (
            broker("b", 10921, readOnlyCommitLogStorePaths="/s/a/commitlog"),
            "storePathCommitLog = /s/a/commitlog is already storePathCommitLog of",
        ),
        (
            broker("b", 10921, storePathRootDir="/s/a/consumequeue/b"),
            "storePathRootDir = /s/a/consumequeue/b and storePathRootDir/consumequeue = /s/a/cons",
        ),
        (
            broker("b", 10921, storePathCommitLog="/s"),
            "storePathCommitLog = /s and storePathRootDir = /s/a overlap, which is of DefaultC",
        ),
    ],
)
def test_what_two_brokers_cannot_share(files: Files, second: str, words: str) -> None:
    with pytest.raises(BrokerSettingsError) as caught:
        files.configured(broker("a", 10911), second)
    assert words in str(caught.value)


def test_two_identities_with_one_log_directory(files: Files) -> None:
    first = broker("b_c", 10911, brokerClusterName="a")
    second = broker("c", 10921, brokerClusterName="a_b")
    with pytest.raises(BrokerSettingsError, match="/l/a_b_c_0 is already log directory of a_b_c_0"):
        files.configured(first + "logDir=/l\n", second + "logDir=/l\n")
    assert files.configured(first + "logDir=/l\n", second + "logDir=/m\n")


def test_one_store_beside_another_inside_a_root(files: Files) -> None:
    """Operators do this; a store leaves alone what it does not know in its root."""
    assert files.configured(broker("a", 10911), broker("b", 10921, storePathRootDir="/s/a/b"))


def test_the_same_port_at_two_addresses(files: Files) -> None:
    apart = [broker(name, 10911, bindAddress=f"127.0.0.{n}") for n, name in ((2, "a"), (3, "b"))]
    assert len(files.configured(*apart)) == 2
    with pytest.raises(BrokerSettingsError, match="listenPort = 10911 is already"):
        files.configured(apart[0], broker("b", 10911))

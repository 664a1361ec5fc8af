"""Java clients, mqadmin and a Java broker over TLS: who may is served, nobody else is."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from spark.sources.errors import NoNameServerError
from tests.interop import harness
from tests.interop.clients import Client, Cluster, registered, wait_registered
from tests.interop.driver import Driver, DriverError
from tests.interop.java_peers import CLIENT_VERSIONS, QUICK_JVM
from tests.interop.processes import PeerError, wait_until
from tests.interop.spark_rows import read_entries, read_lags
from tests.support.tls_files import Authority, Pair, client_context

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TEST_MODE = ("-Dtls.enable=true",)
KINDS = ("sync", "async", "oneway", "batch")


@dataclass(frozen=True)
class Guarded:
    """An enforcing name server and broker of ours that ask for certificates."""

    cluster: Cluster
    directory: Path
    authority: Authority
    server: Pair
    client: Pair

    def options(self, pair: Pair | None) -> tuple[str, ...]:
        """JVM options of a client that trusts only our authority, with its certificate."""
        return tuple(
            f"-D{key}={text}" for key, text in self.authority.client_settings(pair).items()
        )


def server_settings(authority: Authority, server: Pair) -> dict[str, str]:
    return {
        "tls.server.mode": "enforcing",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(server.certificate),
        "tls.server.keyPath": str(server.key),
        "tls.server.keyPassword": "server-secret",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": str(authority.trust),
    }


@pytest.fixture(scope="module")
def jvms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Driver]]:
    """A JVM for each client version and each set of options, started at its first use."""
    started: dict[tuple[str, ...], Driver] = {}

    def get(version: str, options: tuple[str, ...]) -> Driver:
        key = (version, *options)
        if key not in started:
            started[key] = Driver(version, tmp_path_factory.mktemp(f"tls-{version}"), options)
        return started[key]

    yield get
    for driver in started.values():
        driver.close()


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory,
    broker_kind: str,
    namesrv_kind: str,
    jvms: Callable[..., Driver],
) -> Iterator[Guarded]:
    if (broker_kind, namesrv_kind) != ("ours", "ours"):
        pytest.skip("Java's servers take these settings in another way")
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory / "files")
    server = authority.issue("server", password="server-secret")
    client = authority.issue("client")  # Netty 4.1 cannot read a key that is encrypted today
    settings = server_settings(authority, server)
    namesrv = harness.name_server("ours", directory / "namesrv", settings=settings).start()
    found = Guarded(
        Cluster(namesrv, harness.broker("ours", directory / "broker", namesrv.address)),
        directory,
        authority,
        server,
        client,
    )
    found.cluster.broker.configure(**{**settings, **found.authority.client_settings(client)})
    found.cluster.broker.start()
    wait_registered(jvms("4.9.8", found.options(client)), namesrv.address, found.cluster.broker)
    yield found
    found.cluster.broker.stop()
    namesrv.stop()


@pytest.fixture(params=CLIENT_VERSIONS, ids=lambda version: f"client-{version}")
def known(
    request: pytest.FixtureRequest, guarded: Guarded, jvms: Callable[..., Driver]
) -> Iterator[Client]:
    """A client with a certificate."""
    made = Client(jvms(request.param, guarded.options(guarded.client)), guarded.cluster)
    yield made
    made.end()


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_tls_and_plain_clients_share_the_ports(
    cluster: Cluster, jvms: Callable[..., Driver], drivers: Callable[[str], Driver], version: str
) -> None:
    """Nothing is configured: permissive, and the server's certificate is made by itself."""
    secure, plain = Client(jvms(version, TEST_MODE), cluster), Client(drivers(version), cluster)
    topic = secure.topic()
    sent = secure.producer().send(topic, "sync", 100)
    sent += plain.producer().send(topic, "sync", 100, first=100)
    for client in (secure, plain):
        received = client.push(topic).wait_for(200)
        assert sorted(e.digest for e in received) == sorted(e.digest for e in sent)
        client.end()


@pytest.mark.parametrize("kind", KINDS)
def test_who_has_a_certificate_sends_and_consumes(known: Client, kind: str) -> None:
    topic = known.topic()
    sent = known.producer().send(topic, kind, 200)
    received = known.push(topic).wait_for(200)
    assert sorted(e.digest for e in received) == sorted(e.digest for e in sent)


def test_spark_reads_with_a_certificate(known: Client, guarded: Guarded) -> None:
    """docs/spark_sources.md; without one of the files nobody is served."""
    topic = known.topic()
    known.producer().send(topic, "sync", 20)
    files = {
        "tlsTrustCertFile": str(guarded.authority.trust),
        "tlsCertFile": str(guarded.client.certificate),
        "tlsKeyFile": str(guarded.client.key),
    }
    wait_until(lambda: len(read_entries(known.namesrv, topic, **files)) == 20, "all are read")
    consumer = known.push(topic)
    consumer.wait_for(20)
    for of in (consumer.group, ""):
        wait_until(partial(_has_consumed_all, known, topic, of, files), "its progress")
    for given in ({}, {"tls": "true"}, {"tlsTrustCertFile": str(guarded.server.certificate)}):
        with pytest.raises(NoNameServerError):
            read_entries(known.namesrv, topic, retryMs="0", **given)
        with pytest.raises(NoNameServerError):
            read_lags(known.namesrv, retryMs="0", **given)


def _has_consumed_all(known: Client, topic: str, group: str, files: dict[str, str]) -> bool:
    """The 20 messages: one group, or all; from the format `rocketmq_lag`."""
    rows = read_lags(known.namesrv, group, topics=topic, **files)
    consumed: int = sum(row["consumer_offset"] for row in rows if not row["is_retry"])
    return consumed == 20


def test_large_messages_pass(known: Client) -> None:
    """64 KiB, 1 MiB and just under 4 MiB are among them."""
    topic = known.topic()
    sent = known.producer().send(topic, "sync", 12, profile="volume")
    received = known.lite(topic).wait_for(12)
    assert sorted(e.digest for e in received) == sorted(e.digest for e in sent)


@pytest.mark.parametrize(
    ("who", "version"),
    [
        *(("plain", version) for version in CLIENT_VERSIONS),
        # A JVM each: the broker's answer is the same.
        *(("nameless", CLIENT_VERSIONS[0]), ("stranger", CLIENT_VERSIONS[1])),
        pytest.param("nameless", CLIENT_VERSIONS[1], marks=pytest.mark.long),
        pytest.param("stranger", CLIENT_VERSIONS[0], marks=pytest.mark.long),
    ],
)
def test_nobody_else_is_served(
    guarded: Guarded,
    jvms: Callable[..., Driver],
    drivers: Callable[[str], Driver],
    version: str,
    who: str,
    tmp_path: Path,
) -> None:
    if who == "plain":
        driver = drivers(version)
    elif who == "nameless":
        driver = jvms(version, guarded.options(None))
    else:
        other = Authority(tmp_path, "other").issue("stranger")
        driver = Driver(version, tmp_path / "jvm", guarded.options(other))
    where = {"namesrv": guarded.cluster.address, "broker": guarded.cluster.broker.address}
    # A 4.9 client may overlook that a connection has ended, and then waits until its timeout.
    with pytest.raises(DriverError, match=r"(?i)connect|send request|wait response on the channel"):
        driver.call("topic.create", topic="never", queues=1, **where)
    listed = ("topicList", "-n", guarded.cluster.address)
    options = guarded.options(guarded.client)
    topics = harness.our_admin(guarded.directory, *listed, java_options=options).split()
    assert "TBW102" in topics
    assert "never" not in topics
    if who == "stranger":
        driver.close()


def test_mqadmin_of_java_asks_over_tls(guarded: Guarded) -> None:
    options = guarded.options(guarded.client)
    command = ("clusterList", "-n", guarded.cluster.address)
    for line in ("4.9", "5.3"):
        shown = harness.java_admin(line, guarded.directory, *command, jvm=options)
        assert guarded.cluster.broker.address in shown, line


def test_our_mqadmin_asks_over_tls(guarded: Guarded) -> None:
    command = ("clusterList", "-n", guarded.cluster.address)
    options = guarded.options(guarded.client)
    shown = harness.our_admin(guarded.directory, *command, java_options=options)
    assert guarded.cluster.broker.address in shown
    with pytest.raises(PeerError, match="connection closed"):
        harness.our_admin(guarded.directory, *command)


def serial(port: int, guarded: Guarded) -> int | None:
    """Of the certificate that a new connection is shown; None when there is none."""
    context = client_context(guarded.authority.trust, guarded.client)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain) as sock,
    ):
        shown = sock.getpeercert()
    return None if not shown else int(str(shown["serialNumber"]), 16)


def test_changed_files_count_for_new_connections(guarded: Guarded, known: Client) -> None:
    """On every port; who is connected goes on."""
    topic = known.topic()
    producer = known.producer()
    producer.send(topic, "sync", 10)
    broker = guarded.cluster.broker
    ports = (broker.port, broker.port - 2, int(guarded.cluster.address.rpartition(":")[2]))
    before = [serial(port, guarded) for port in ports]
    assert len(set(before)) == 1
    guarded.authority.issue("server", password="server-secret")
    wait_until(
        lambda: not set(before) & {serial(port, guarded) for port in ports},
        "the new certificate shown on every port",
    )
    producer.send(topic, "sync", 10, first=10)
    assert len(known.push(topic).wait_for(20)) == 20


@pytest.mark.slow
def test_a_java_broker_registers_over_tls(
    guarded: Guarded, tmp_path: Path, jvms: Callable[..., Driver]
) -> None:
    """Its own server has no certificate, and must not look for one."""
    options = guarded.options(guarded.client)
    jvm = (*QUICK_JVM, "-Xms256m", "-Xmx512m", *options, "-Dtls.server.mode=disabled")
    where = guarded.cluster.address
    broker = harness.broker("java-4.9", tmp_path, where, name="broker-java", jvm=jvm).start()
    driver = jvms("4.9.8", options)
    wait_registered(driver, where, broker)
    assert sorted(registered(driver, where)) == ["broker-a", "broker-java"]
    broker.stop()
    gone = "the stopped broker is gone from the name server"
    wait_until(lambda: "broker-java" not in registered(driver, where), gone)


@pytest.mark.slow
def test_our_broker_registers_with_a_java_name_server_over_tls(
    tmp_path: Path, jvms: Callable[..., Driver]
) -> None:
    """It calls with TLS since it is enforcing itself."""
    jvm = ("-Dtls.server.mode=enforcing",)
    namesrv = harness.name_server("java-4.9", tmp_path / "namesrv", jvm=jvm).start()
    where = namesrv.address
    settings = {"tls.server.mode": "enforcing"}
    broker = harness.broker("ours", tmp_path / "broker", where, conf=settings).start()
    driver = jvms("4.9.8", TEST_MODE)
    wait_registered(driver, where, broker)
    client = Client(driver, Cluster(namesrv, broker))
    topic = client.topic()
    client.producer().send(topic, "sync", 10)
    assert len(client.push(topic).wait_for(10)) == 10
    client.end()
    broker.stop()
    namesrv.stop()
